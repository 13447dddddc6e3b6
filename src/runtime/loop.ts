// The turn of an agent on a model: open calls → steering → one model step → persist → calls → … → end. Resumes wherever it stopped.
import { untilAborted } from '../engine/abort.ts';
import type { Runner } from '../engine/runner.ts';
import { InterlaneError } from '../errors.ts';
import type { Invoker } from '../tools/invoke.ts';
import type { Model } from './model.ts';

const promptEntries = 200;
const mostSteps = 100;

export function modelRunner(model: Model, invoker: Invoker): Runner {
  return {
    async run(turn) {
      for (let steps = 0; steps < mostSteps; steps++) {
        turn.signal.throwIfAborted();
        const pending = await turn.pending();
        // All are tried before one failure is looked at, so that none goes on unwatched.
        const settled = await Promise.allSettled(pending.map((call) => invoker.invoke(turn, call)));
        for (const one of settled) if (one.status === 'rejected') throw one.reason;
        turn.signal.throwIfAborted();
        if (settled.some((one) => one.status === 'fulfilled' && one.value === 'waiting') && (await turn.park())) return;
        turn.signal.throwIfAborted();
        await turn.steer();
        const prompt = await turn.prompt(promptEntries);
        const request = { agentId: turn.agentId, sessionKey: turn.sessionKey, prompt, tools: invoker.tools.values() };
        const said = await untilAborted(turn.signal, model.step(request, { signal: turn.signal, delta: (text) => turn.delta(text) }));
        turn.signal.throwIfAborted();
        if (said.calls.length === 0) return turn.end({ text: said.text, tokens: said.tokens });
        const calls = said.calls.map((call) => ({ ...call, effect: invoker.tools.get(call.tool)?.effect ?? ('pure' as const) }));
        await turn.step({ text: said.text, calls, tokens: said.tokens });
      }
      throw new InterlaneError('POLICY_BLOCKED', `run took ${mostSteps} steps without an end and was stopped`);
    },
  };
}
