// Operations about the gateway itself.
import { z } from 'zod';
import { none } from './fields.ts';
import type { Operations } from './operation.ts';

const Count = z.int().min(0);

export const system = {
  health: {
    scope: 'session',
    about: 'whether the gateway is well',
    params: none,
    result: z.object({ ok: z.literal(true), ts: z.int(), durationMs: z.int() }),
  },
  status: {
    scope: 'operator.read',
    about: 'what the gateway is doing: version, sessions, runs, connections',
    params: none,
    result: z.object({
      version: z.string(),
      uptimeMs: z.int(),
      /** The process, the path of the store and the counts of work are for tokens of level RESTRICTED. */
      pid: z.int().exactOptional(),
      defaultAgentId: z.string(),
      agents: Count,
      connections: Count,
      runs: z.object({ queued: Count, running: Count, waiting: Count }).exactOptional(),
      deliveries: z.object({ pending: Count, unknown: Count, dead: Count }).exactOptional(),
      store: z.object({ kind: z.literal('sqlite'), durability: z.string(), path: z.string().exactOptional() }),
      model: z.string(),
      /** Changed settings that apply after a restart, and why the last change of the config was rejected. */
      config: z.object({ restart: z.array(z.string()), rejected: z.string().exactOptional() }),
      warnings: z.array(z.string()),
    }),
  },
  'agents.list': {
    scope: 'operator.read',
    about: 'the configured agents',
    params: none,
    result: z.object({
      defaultId: z.string(),
      mainKey: z.string(),
      scope: z.enum(['per-sender', 'global']),
      agents: z.array(z.object({ id: z.string(), name: z.string().exactOptional(), mainSessionKey: z.string() })),
    }),
  },
} as const satisfies Operations;
