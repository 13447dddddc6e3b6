// One tool call: validate → decide → execute → label → record. The only way a tool is run.
import { z } from 'zod';
import { untilAborted } from '../engine/abort.ts';
import type { Engine } from '../engine/engine.ts';
import { partyOfRow } from '../engine/policy.ts';
import type { PendingCall, Turn } from '../engine/runner.ts';
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
  invoke(turn: Turn, call: PendingCall): Promise<'done' | 'waiting'>;
}

export interface InvokerParts {
  store: Store<FeedEvent>;
  engine: Engine;
  now(): number;
  maxPingPongTurns: number;
  /** Level of what a tool returns, from `classification.tools`. */
  toolLevels: Record<string, Level>;
}

export function createInvoker(tools: Tool[], parts: InvokerParts): Invoker {
  const byName = new Map(tools.map((tool) => [tool.name, tool]));
  return {
    tools: byName,
    async invoke(turn, call) {
      if (call.state === 'waiting') return 'waiting';
      const tool = byName.get(call.tool);
      const { session, caller } = await parts.store.read(callerOf(parts.engine), { sessionPk: turn.sessionPk });
      const finish = async (value: unknown, isError: boolean, taint: number) => {
        await turn.finishCall(call, { text: typeof value === 'string' ? value : JSON.stringify(value), isError, taint });
        return 'done' as const;
      };
      const refuse = (code: string, error: string) => finish({ status: 'error', code, error }, true, session.taint);

      // 1. validate
      if (!tool) return refuse('INVALID_REQUEST', `tool ${JSON.stringify(call.tool)} does not exist${suggest(call.tool, byName)}`);
      if (call.state === 'started' && call.effect === 'once')
        return refuse(
          'OUTCOME_UNKNOWN',
          'the gateway stopped while this ran; whether it took effect is not known, so check before doing it again',
        );
      const read = tool.params.safeParse(call.args);
      if (!read.success) return refuse('INVALID_REQUEST', describe(tool, read.error));
      // 2. decide
      const decision = decide({ action: 'tool', caller, tool: tool.name, text: JSON.stringify(read.data) }, parts.engine.world);
      if (decision.effect === 'BLOCK') return refuse(decision.code ?? 'POLICY_BLOCKED', decision.why);
      // Taking something out of arguments could change what they mean, so a REDACT rule refuses them instead.
      if (decision.effect === 'REDACT') return refuse('POLICY_BLOCKED', 'the arguments hold something that a policy rule takes out');
      // 3. execute
      if (call.state === 'planned' && tool.effect !== 'pure') await turn.startCall(call);
      const context: ToolContext = { ...parts, world: parts.engine.world, now: parts.now(), turn, call, session, caller };
      let outcome: ToolOutcome;
      try {
        outcome = await untilAborted(turn.signal, tool.run(context, read.data));
      } catch (thrown) {
        if (turn.signal.aborted || (thrown instanceof InterlaneError && thrown.code === 'LEASE_LOST')) throw thrown;
        return refuse(thrown instanceof InterlaneError ? thrown.code : 'TOOL_FAILED', reasonOf(thrown));
      }
      if ('pending' in outcome) return 'waiting';
      // 4. label, and what the operator's rules say of the result
      const taint = Math.max(levelRank(parts.toolLevels[tool.name] ?? 'PUBLIC'), outcome.taint ?? 0);
      const text = typeof outcome.value === 'string' ? outcome.value : JSON.stringify(outcome.value);
      const result = decide({ action: 'result', caller, tool: tool.name, text }, parts.engine.world);
      if (result.effect === 'BLOCK')
        return refuse(result.code ?? 'POLICY_BLOCKED', `the result of ${tool.name} was withheld: ${result.why}`);
      // 5. record. Outside the try: if this fails, the call is not told a result it does not have.
      return finish(result.effect === 'REDACT' ? redact(text, result.redactions) : text, outcome.isError ?? false, taint);
    },
  };
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
