// Handlers about the gateway itself: health, status, agents.
import type { system as table } from '../../protocol/operations/system.ts';
import { keyContext } from '../../rules/agents.ts';
import { counts } from '../../sessions/runs.ts';
import { seesEverything } from '../rights.ts';
import type { Context, Handlers, OperationParts } from './context.ts';

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
      ...(seesEverything(call.caller) ? { ...parts.facts(), ...(await store.read(counts, {}, call.pace)) } : partly(parts.facts())),
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

/** Without the facts about the machine, and without counts, which would tell of hidden sessions. */
function partly(facts: ReturnType<OperationParts['facts']>) {
  const { pid: _, store, ...others } = facts;
  const { path: __, ...known } = store;
  return { ...others, store: known };
}
