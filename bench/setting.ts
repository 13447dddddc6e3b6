// The gateway as the benchmarks start it.
import { readConfig } from '../src/config/load.ts';
import type { Config } from '../src/config/schema.ts';
import type { AcceptArgs } from '../src/engine/accept.ts';
import type { Gateway, GatewayOptions } from '../src/embed.ts';
import { assemble, type Parts } from '../src/gateway.ts';
import type { Visibility } from '../src/protocol/labels.ts';
import type { Asked, Say } from '../test/mock/provider.ts';
import { agentCount, rareCount, startOfTime } from './data.ts';

export interface Setting {
  durability?: 'full' | 'normal';
  visibility?: Visibility;
  /** Agents that may reach each other; without it all may. */
  allow?: string[];
}

export function configOf({ durability = 'full', visibility = 'all', allow = [] }: Setting = {}): Config {
  const named = (name: string, count: number) => Array.from({ length: count }, (_, n) => `${name}${n}`);
  const names = [...named('a', agentCount), ...named('rare', rareCount)];
  const text = JSON.stringify({
    agents: { list: names.map((id) => ({ id, default: id === 'a0' })) },
    tools: { sessions: { visibility }, agentToAgent: { enabled: true, allow } },
    store: { durability },
  });
  return readConfig(text, 'bench', {}).config;
}

/** A gateway and what is inside it. */
export type Running = Gateway & Parts;

export async function run(config: Config, options: GatewayOptions): Promise<Running> {
  const { gateway, parts } = await assemble(config, options);
  return { ...parts, ...gateway };
}

/** `slots` turns at once; with 0 nothing is claimed, so that only accepting is measured. */
export function start(stateDir: string, slots: number, setting: Setting = {}, options: Partial<GatewayOptions> = {}): Promise<Running> {
  return run(configOf(setting), {
    stateDir,
    caps: { main: slots, nested: slots, subagent: slots, cron: slots },
    warn: (message) => process.stderr.write(`! ${message}\n`),
    ...options,
  });
}

/** What a message from a chat client looks like when it is accepted. */
export function acceptance(sessionKey: string, n: number, text: string): AcceptArgs {
  return {
    sessionKey,
    input: {
      runId: `run-${n.toString(36).padStart(30, '0')}`,
      text,
      provenance: { kind: 'user', channel: 'telegram' },
      principal: 'channel:telegram:42',
      taint: 0,
      mode: 'followup',
      class: 'main',
      deliver: false,
      destination: { channel: 'telegram', to: '42', accountId: 'default' },
    },
    idempotency: { principal: 'channel:telegram:42', method: 'inbound:telegram:default', key: `message-${n}`, hash: 'f'.repeat(64) },
    now: startOfTime + n,
  };
}

/** Answers at once: with a look around first when that is asked for. */
export const instantModel = ({ body }: Asked): Say => {
  const last = body.messages?.at(-1);
  return last?.role === 'user' && last.content === 'look' ? { calls: [{ name: 'session_status', args: {} }] } : { text: 'Here you are.' };
};
