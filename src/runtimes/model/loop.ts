// The turn of an agent on a model: open calls → steering → one model step → persist → calls → … → end. Resumes wherever it stopped.
import { untilAborted } from '../../abort.ts';
import type { PendingCall, Runner, Turn, Usage } from '../../engine/runner.ts';
import { InterlaneError } from '../../errors.ts';
import type { Invoker } from '../../tools/invoke.ts';
import { summarizeOlder } from './compact.ts';
import type { Model, StepLive, StepRequest } from './model.ts';

const mostSteps = 100;
/** Above this share of the model's window, or of its limit of entries, older messages are summarised before the next step. */
const fullAt = 0.85;
/** If the prompt is still too long after this many summaries, the run fails. */
const mostSummaries = 3;

export function modelRunner(model: Model, invoker: Invoker): Runner {
  return {
    async run(turn) {
      let used = turn.totalTokens;
      let summaries = 0;
      while (turn.steps < mostSteps) {
        if ((await carryOut(turn, invoker)) === 'parked') return 'parked';
        await turn.steer();
        const request = await requestOf(turn, model, invoker);
        const live: StepLive = { signal: turn.signal, delta: (text) => turn.delta(text), again: () => turn.retract() };
        const full = used > fullAt * (model.window?.(request) ?? Infinity) || request.prompt.length > fullAt * model.promptEntries;
        if (full && summaries < mostSummaries && (await summarizeOlder(turn, model, request, summaries++))) {
          used = 0;
          continue;
        }
        let result: Awaited<ReturnType<Model['step']>>;
        try {
          result = await untilAborted(turn.signal, model.step(request, live));
        } catch (thrown) {
          if (!isOverflow(thrown) || summaries >= mostSummaries) throw thrown;
          if (!(await summarizeOlder(turn, model, request, summaries++))) throw thrown;
          continue;
        }
        turn.signal.throwIfAborted();
        used = inUse(result.usage);
        if (result.calls.length === 0) {
          await turn.end({ text: result.text, usage: result.usage, cut: result.cut });
          return 'ended';
        }
        const calls = result.calls.map((call) => ({ ...call, effect: effectOf(request, call.tool) }));
        await turn.step({ text: result.text, calls, usage: result.usage, reasoning: result.reasoning, cut: result.cut });
      }
      throw new InterlaneError('STEP_LIMIT', `run was stopped after ${mostSteps} steps without an end; send a new message to continue`);
    },
  };
}

/** The calls of the last step that have no result yet. */
async function carryOut(turn: Turn, invoker: Invoker): Promise<'done' | 'parked'> {
  turn.signal.throwIfAborted();
  let waiting = false;
  for (const together of inTurns(await turn.pending())) {
    // All calls settle before a failure is thrown, so that none continues unobserved.
    const settled = await Promise.allSettled(together.map((call) => invoker.invoke(turn, call)));
    for (const one of settled) if (one.status === 'rejected') throw one.reason;
    turn.signal.throwIfAborted();
    waiting ||= settled.some((one) => one.status === 'fulfilled' && one.value === 'waiting');
  }
  if (waiting && (await turn.park())) return 'parked';
  turn.signal.throwIfAborted();
  return 'done';
}

/** In call order: adjacent calls that only read run together; a call that acts runs alone, so that the next call sees its effect. */
function inTurns(calls: PendingCall[]): PendingCall[][] {
  const turns: PendingCall[][] = [];
  for (const call of calls) {
    const last = turns.at(-1);
    if (call.effect === 'pure' && last?.[0]!.effect === 'pure') last.push(call);
    else turns.push([call]);
  }
  return turns;
}

async function requestOf(turn: Turn, model: Model, invoker: Invoker): Promise<StepRequest> {
  const { session, prompt, settings } = await turn.look(model.promptEntries);
  return {
    agentId: turn.agentId,
    runId: turn.runId,
    sessionKey: turn.sessionKey,
    prompt,
    tools: await invoker.toolsFor(session, turn),
    settings,
  };
}

/** Unknown tools default to `once`, the safest effect. */
const effectOf = ({ tools }: StepRequest, name: string) => tools.find((tool) => tool.name === name)?.effect ?? ('once' as const);

const inUse = (usage: Usage) => usage.input + usage.output;
const isOverflow = (thrown: unknown) => thrown instanceof InterlaneError && thrown.code === 'CONTEXT_OVERFLOW';
