// A tool that a user of the package adds: what it is, and a function that gets its caller and its arguments, and nothing of the inside.
import type { z } from 'zod';
import { levelName, levelRank } from '../levels.ts';
import type { Level } from '../protocol/labels.ts';
import type { Tool } from './define.ts';

/** The call that a tool answers. The gateway makes it; arguments never name the caller. */
export interface PluginCall {
  /** The session that calls. */
  session: {
    key: string;
    id: string;
    agentId: string;
    /** The highest level of what the session has read. */
    taint: Level;
  };
  /** The same for the same call, also after a crash. Pass it on to a service that takes idempotency keys. */
  idempotencyKey: string;
  /** Wall time in milliseconds. */
  now: number;
  signal: AbortSignal;
}

/** The value goes to the model: text as it is, everything else as JSON. `level` labels it; PUBLIC without one. */
export interface PluginResult {
  value: unknown;
  isError?: boolean;
  level?: Level;
}

export function defineTool<P extends z.ZodType<Record<string, unknown>>>(tool: {
  name: string;
  description: string;
  params: P;
  /** What happens after a crash during a call: `pure` and `keyed` calls are repeated, a `once` call is reported as unknown. */
  effect: Tool['effect'];
  run(call: PluginCall, args: z.infer<P>): Promise<PluginResult>;
}): Tool {
  const { name, description, params, effect } = tool;
  return {
    name,
    description,
    params,
    effect,
    async run({ session, key: idempotencyKey, now, signal }, args) {
      const { key, id, agent: agentId } = session;
      const call = { session: { key, id, agentId, taint: levelName(session.taint) }, idempotencyKey, now, signal };
      const { level = 'PUBLIC', ...outcome } = await tool.run(call, args as z.infer<P>);
      return { ...outcome, taint: levelRank(level) };
    },
  };
}
