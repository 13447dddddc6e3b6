// Handlers about the gateway itself: health, status, agents.
import type { system as table } from '../../protocol/operations/system.ts';
import { keyContext } from '../../rules/agents.ts';
import { counts } from '../../sessions/runs.ts';
import type { Context, Handlers } from './context.ts';

export function systemHandlers(context: Context): Handlers<keyof typeof table> {
  const { parts, world, mainOf } = context;
  const { store } = context.parts;
  return {
    health: async () => {
      const before = parts.elapsed();
      await parts.position();
      return { ok: true, ts: parts.now(), durationMs: Math.round(parts.elapsed() - before) };
    },
    status: async (_, call) => ({
      ...parts.facts(),
      ...(await store.read(counts, {}, call.pace)),
      defaultAgentId: world().agents.defaultId,
      agents: world().agents.byId.size,
    }),
    'agents.list': async () => {
      const { agents } = world();
      const { mainKey: name, globalOwner } = keyContext(agents, agents.defaultId);
      return {
        defaultId: agents.defaultId,
        mainKey: name,
        scope: globalOwner === undefined ? 'per-sender' : 'global',
        agents: [...agents.byId.values()].map(({ id, name: shown }) => ({
          id,
          ...(shown === undefined ? {} : { name: shown }),
          mainSessionKey: mainOf(id),
        })),
      };
    },
  };
}
