// One tool call: validate → decide → execute → label → record. The only way a tool is run.
import { z } from 'zod';
import { untilAborted } from '../engine/abort.ts';
import type { Engine } from '../engine/engine.ts';
import { partyOfRow } from '../engine/policy.ts';
import type { PendingCall, Turn } from '../engine/runner.ts';
import { raiseTaint } from '../engine/sessions.ts';
import { InterlaneError, nearest, reasonOf } from '../errors.ts';
import type { FeedEvent } from '../protocol/event.ts';
import { decide, type Party } from '../rules/decide.ts';
import { redact } from '../rules/hooks.ts';
import type { ReadQuery, Store } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import { levelRank } from '../store/views.ts';
import type { Level } from '../protocol/labels.ts';
import type { Tool, ToolContext, ToolOutcome } from './define.ts';

export interface Invoker {
  tools: Map<string, Tool>;
  /** A call of a run's step; the result goes into the transcript. */
  invoke(turn: Turn, call: PendingCall): Promise<'done' | 'waiting'>;
  /** A call from outside by a caller that is this session; the result is answered, not recorded. */
  callAs(sessionPk: number, call: OutsideCall, signal: AbortSignal): Promise<ToolAnswer>;
}

interface OutsideCall {
  tool: string;
  args: Record<string, unknown>;
  /** The same for the same call, so that one made twice acts once. */
  callId: string;
  /** Only tools that change nothing. */
  readOnly?: boolean;
}

interface ToolAnswer {
  text: string;
  isError: boolean;
  taint: number;
}

export interface InvokerParts {
  store: Store<FeedEvent>;
  engine: Engine;
  now(): number;
  maxPingPongTurns: number;
  online(sessionKey: string): boolean;
  /** Level of what a tool returns, from `classification.tools`. */
  toolLevels: Record<string, Level>;
}

export function createInvoker(tools: Tool[], parts: InvokerParts): Invoker {
  const byName = new Map(tools.map((tool) => [tool.name, tool]));
  /** The steps every call goes through, whoever makes it. `start` is committed before the tool acts. */
  const perform = async (
    sessionPk: number,
    asked: { tool: string; args: Record<string, unknown>; readOnly?: boolean },
    by: Pick<ToolContext, 'origin' | 'key' | 'turn' | 'signal'>,
    start: (tool: Tool) => Promise<void>,
  ): Promise<ToolAnswer | 'waiting'> => {
    const { session, caller } = await parts.store.read(callerOf(parts.engine), { sessionPk });
    const refuse = (code: string, error: string) => ({
      text: JSON.stringify({ status: 'error', code, error }),
      isError: true,
      taint: session.taint,
    });
    // 1. validate
    const tool = byName.get(asked.tool);
    if (!tool) return refuse('INVALID_REQUEST', `tool ${JSON.stringify(asked.tool)} does not exist${suggest(asked.tool, byName)}`);
    if (asked.readOnly && tool.effect !== 'pure')
      return refuse('MISSING_SCOPE', `tool ${tool.name} acts in the name of a session; call it with a token bound to that session`);
    const read = tool.params.safeParse(asked.args);
    if (!read.success) return refuse('INVALID_REQUEST', describe(tool, read.error));
    // 2. decide
    const decision = decide({ action: 'tool', caller, tool: tool.name, text: JSON.stringify(read.data) }, parts.engine.world);
    if (decision.effect === 'BLOCK') return refuse(decision.code ?? 'POLICY_BLOCKED', decision.why);
    // Taking something out of arguments could change what they mean, so a REDACT rule refuses them instead.
    if (decision.effect === 'REDACT') return refuse('POLICY_BLOCKED', 'the arguments hold something that a policy rule takes out');
    // 3. execute
    await start(tool);
    const context: ToolContext = { ...parts, world: parts.engine.world, now: parts.now(), ...by, session, caller };
    let outcome: ToolOutcome;
    try {
      outcome = await untilAborted(by.signal, tool.run(context, read.data));
    } catch (thrown) {
      if (by.signal.aborted || (thrown instanceof InterlaneError && thrown.code === 'LEASE_LOST')) throw thrown;
      return refuse(thrown instanceof InterlaneError ? thrown.code : 'TOOL_FAILED', reasonOf(thrown));
    }
    if ('pending' in outcome) return 'waiting';
    // 4. label, and what the operator's rules say of the result
    const taint = Math.max(levelRank(parts.toolLevels[tool.name] ?? 'PUBLIC'), outcome.taint ?? 0);
    const text = typeof outcome.value === 'string' ? outcome.value : JSON.stringify(outcome.value);
    const result = decide({ action: 'result', caller, tool: tool.name, text }, parts.engine.world);
    if (result.effect === 'BLOCK') return refuse(result.code ?? 'POLICY_BLOCKED', `the result of ${tool.name} was withheld: ${result.why}`);
    return { text: result.effect === 'REDACT' ? redact(text, result.redactions) : text, isError: outcome.isError ?? false, taint };
  };

  return {
    tools: byName,
    async invoke(turn, call) {
      if (call.state === 'waiting') return 'waiting';
      const origin = { ...turn.lease, step: call.step, idx: call.idx };
      const answer =
        call.state === 'started' && call.effect === 'once'
          ? await unknownOutcome(parts, turn.sessionPk)
          : await perform(turn.sessionPk, call, { origin, key: call.key, turn, signal: turn.signal }, async (tool) => {
              if (call.state === 'planned' && tool.effect !== 'pure') await turn.startCall(call);
            });
      if (answer === 'waiting') return 'waiting';
      // 5. record. Outside of any try: if this fails, the call is not told a result it does not have.
      await turn.finishCall(call, answer);
      return 'done';
    },
    async callAs(sessionPk, call, signal) {
      const answer = await perform(
        sessionPk,
        call,
        { origin: { sessionPk, callId: call.callId }, key: call.callId, signal },
        async () => {},
      );
      if (answer === 'waiting') throw new InterlaneError('INTERNAL', `tool ${call.tool} cannot wait for a caller from outside`);
      // Before the answer is given. An operator who looks through its eyes tells it nothing.
      if (answer.taint > 0 && !call.readOnly) await parts.store.write(raiseTaint, { sessionPk, taint: answer.taint, now: parts.now() });
      return answer;
    },
  };
}

/** A tool that may have acted when the gateway died is not called again; the model is told. */
async function unknownOutcome(parts: InvokerParts, sessionPk: number): Promise<ToolAnswer> {
  const { session } = await parts.store.read(callerOf(parts.engine), { sessionPk });
  const error = 'the gateway stopped while this ran; whether it took effect is not known, so check before doing it again';
  return { text: JSON.stringify({ status: 'error', code: 'OUTCOME_UNKNOWN', error }), isError: true, taint: session.taint };
}

function callerOf(engine: Engine): ReadQuery<{ sessionPk: number }, { session: SessionRow; caller: Party }> {
  return {
    name: 'caller',
    *body(t, { sessionPk }) {
      const session = (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', sessionPk))!;
      return { session, caller: partyOfRow(engine.world, session) };
    },
  };
}

function suggest(name: string, tools: Map<string, Tool>): string {
  const [near] = nearest(name, tools.keys());
  return near === undefined ? `; the tools are: ${[...tools.keys()].join(', ')}` : `; did you mean ${near}?`;
}

function describe(tool: Tool, error: z.ZodError): string {
  const lines = error.issues.slice(0, 5).map((issue) => `${z.core.toDotPath(issue.path) || 'arguments'}: ${issue.message}`);
  return `arguments of ${tool.name} do not fit: ${lines.join('; ')}`;
}
