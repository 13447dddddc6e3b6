// A step of a turn: the assistant's words, its calls and what they cost; and the result of one call, as an entry.
import type { Cut } from '../protocol/transcript.ts';
import type { Body } from '../store/contract.ts';
import type { CallRow, RunRow, SessionRow } from '../store/rows.ts';
import * as calls from '../store/tables/tool-calls.ts';
import * as runs from '../store/tables/runs.ts';
import { appendEntry, type Tx } from './feed.ts';
import { derivedId } from './ids.ts';

/** What one step cost. Without a model's name it is a guess of the scripted one. */
export interface Usage {
  model?: string;
  /** Tokens read; all of the prompt. */
  input: number;
  output: number;
  /** How many of those read were cached. */
  cached?: number;
  /** Millionths of a dollar, where the price is known. */
  costMicros?: number;
}

/** What a provider wants to have back with its words; nobody else reads it. */
export type ProviderOptions = Record<string, Record<string, JsonValue>>;

/** A model's reasoning, kept to be given back to it; nobody else reads it. */
export interface Thought {
  type: 'reasoning';
  text: string;
  /** Whose model thought it; another has no use for it. */
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

/** What a runner has of a step: the assistant's words and all its calls. */
export interface Step {
  text: string;
  calls: PlannedCall[];
  usage: Usage;
  reasoning?: Thought[] | undefined;
  cut?: Cut | undefined;
}

/** A model says how much it has read; the scripted one only adds up what it said. */
export function tokensInUse(session: SessionRow, usage: Usage): number {
  return usage.model === undefined ? session.total_tokens + usage.output : usage.input + usage.output;
}

/** What real models cost counts; the scripted one's tokens are a guess. */
export function spentOf({ model, input, output, costMicros = 0 }: Usage): runs.Spent {
  return model === undefined
    ? { ...runs.nothingSpent, tokens: input + output }
    : { model, tokens: input + output, input, output, costMicros };
}

/** In memory; the next write of the session's row keeps it. */
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
  /** What the call cost, if it asked a model. */
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
}
