// A step of a turn: the assistant's text, its calls and their cost; and the result of one call, as an entry.
import type { Cut } from '../protocol/transcript.ts';
import type { Body } from '../store/contract.ts';
import type { CallRow, RunRow, SessionRow } from '../store/rows.ts';
import * as calls from '../store/tables/tool-calls.ts';
import * as injections from '../store/tables/injections.ts';
import * as lanes from '../store/tables/run-lanes.ts';
import * as runs from '../store/tables/runs.ts';
import { appendEntry, type Tx } from './feed.ts';
import { derivedId } from './ids.ts';

/** The cost of one step. Without a model's name it is an estimate of the scripted model. */
export interface Usage {
  model?: string;
  /** Tokens read; all of the prompt. */
  input: number;
  output: number;
  /** How many of the input tokens were cached. */
  cached?: number;
  /** Millionths of a dollar, where the price is known. */
  costMicros?: number;
}

/** Data that a provider needs back with its messages. Only the provider reads it. */
export type ProviderOptions = Record<string, Record<string, JsonValue>>;

/** A model's reasoning, stored to be sent back. Only the provider reads it. */
export interface Thought {
  type: 'reasoning';
  text: string;
  /** The provider of the model; another provider cannot use it. */
  provider: string;
  providerOptions?: ProviderOptions;
}
type JsonValue = null | string | number | boolean | JsonValue[] | { [name: string]: JsonValue | undefined };

interface PlannedCall {
  providerId: string;
  tool: string;
  args: Record<string, unknown>;
  effect: CallRow['effect'];
  providerOptions?: ProviderOptions | undefined;
}

/** A step as a runner reports it: the assistant's text and all its calls. */
export interface Step {
  text: string;
  calls: PlannedCall[];
  usage: Usage;
  reasoning?: Thought[] | undefined;
  cut?: Cut | undefined;
}

/** A real model reports its prompt tokens; for the scripted model the output is added up. */
export function tokensInUse(session: SessionRow, usage: Usage): number {
  return usage.model === undefined ? session.total_tokens + usage.output : usage.input + usage.output;
}

/** Only real models have a cost; the tokens of the scripted model are an estimate. */
export function spentOf({ model, input, output, costMicros = 0 }: Usage): runs.Spent {
  return model === undefined
    ? { ...runs.nothingSpent, tokens: input + output }
    : { model, tokens: input + output, input, output, costMicros };
}

/** Changes the row in memory; its next write stores it. */
export function addToSession(session: SessionRow, usage: Usage): void {
  if (usage.model === undefined) return;
  session.input_tokens += usage.input;
  session.output_tokens += usage.output;
  session.cost_micros += usage.costMicros ?? 0;
  session.system_sent = 1;
}

export interface CallResult {
  text: string;
  isError: boolean;
  taint: number;
  /** The cost of the call, if it used a model. */
  usage?: Usage | undefined;
}

export function* recordResult(t: Tx, run: RunRow, session: SessionRow, call: CallRow, result: CallResult, now: number): Body<void> {
  const entry = {
    id: derivedId(run.id, call.step, call.idx, 'result'),
    role: 'toolResult' as const,
    text: result.text,
    body: { toolCallId: `${call.step}.${call.idx}`, toolName: call.tool, isError: result.isError },
    taint: result.taint,
    runPk: run.pk,
    step: call.step,
    runId: run.id,
  };
  yield* calls.done(t, call, yield* appendEntry(t, session, entry, now));
  if (run.injections > 0) yield* appendInjected(t, run, session, now);
}

/** I4. Appends a message of an operator, or lets it wait while calls of the turn are open: then it has no `seq` yet. */
export function* inject(t: Tx, session: SessionRow, message: { id: string; text: string }, now: number): Body<number | undefined> {
  const run = yield* lanes.activeIn(t, session.key);
  if (run?.session_pk === session.pk && (yield* calls.unanswered(t, run.pk)).length > 0) {
    yield* injections.insert(t, { ...message, run_pk: run.pk, session_pk: session.pk });
    yield* runs.setInjections(t, run, run.injections + 1);
    return undefined;
  }
  return yield* appendEntry(t, session, { ...message, role: 'assistant', taint: session.taint }, now);
}

/** After the last result of a step. */
function* appendInjected(t: Tx, run: RunRow, session: SessionRow, now: number): Body<void> {
  if ((yield* calls.unanswered(t, run.pk)).length > 0) return;
  for (const { id, text } of yield* injections.ofRun(t, run.pk))
    yield* appendEntry(t, session, { id, text, role: 'assistant', taint: session.taint }, now);
  yield* injections.removeOf(t, run.pk);
  yield* runs.setInjections(t, run, 0);
}
