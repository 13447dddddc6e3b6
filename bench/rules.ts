// How long each rule takes, beside an empty call measured in the same run.
import { performance } from 'node:perf_hooks';
import { readConfig } from '../src/config/load.ts';
import { SessionFacts } from '../src/protocol/session.ts';
import { compileAgents } from '../src/rules/agents.ts';
import { compileWorld, decide, partyOf } from '../src/rules/decide.ts';
import { matchesGlob } from '../src/rules/glob.ts';
import { compileRoutes, route } from '../src/rules/route.ts';
import { nextDue, parseSchedule } from '../src/rules/schedule.ts';
import { formatSessionKey, requireSessionKey } from '../src/rules/session-key.ts';
import { nanoseconds, sampleMs, samples } from './measure.ts';

export function benchRules(): void {
  const rows: [name: string, ns: number][] = [['an empty call', nanoseconds((turn) => turn)]];
  const add = (name: string, call: (turn: number) => unknown) => {
    rows.push([name, nanoseconds(call)]);
    process.stderr.write('.');
  };

  const context = { agentId: 'main', mainKey: 'main' };
  add('parse and format a direct key', () => formatSessionKey(requireSessionKey('agent:main:telegram:direct:42', context)));
  add('parse and format a topic key', () => formatSessionKey(requireSessionKey('agent:main:telegram:group:-100:topic:7', context)));
  add('parse a key with a 10,000-character id', () => requireSessionKey(`agent:main:direct:${'x'.repeat(10_000)}`, context));

  for (const count of [10, 1_000, 100_000]) {
    const bindings = Array.from({ length: count }, (_, n) => ({
      agentId: `a${n % 50}`,
      match: { channel: 'telegram', peer: { kind: 'direct', id: `${n}` } },
    }));
    const { config } = readConfig(JSON.stringify({ session: { dmScope: 'per-peer' }, bindings }), 'bench', {});
    const started = performance.now();
    const routes = compileRoutes(config, compileAgents(config));
    const compiled = performance.now() - started;
    const hits = Array.from({ length: 1_000 }, (_, n) => ({
      channel: 'telegram',
      peer: { kind: 'direct' as const, id: `${(n * 7919) % count}` },
    }));
    add(`route to a peer, ${count.toLocaleString('en')} bindings (index made in ${compiled.toFixed(1)} ms)`, (turn) =>
      route(routes, hits[turn % hits.length]!),
    );
    add(`route past all to the default agent, ${count.toLocaleString('en')} bindings`, () =>
      route(routes, { channel: 'telegram', peer: { kind: 'group', id: 'none' }, guildId: 'g', teamId: 't' }),
    );
  }

  const world = compileWorld(
    readConfig(`{ tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true, allow: ['*a*', 'w*'] } } }`, 'bench', {}).config,
  );
  const caller = partyOf(world, SessionFacts.parse({ key: 'agent:main:main' }));
  const target = partyOf(world, SessionFacts.parse({ key: 'agent:work:main' }));
  add('decide: read another session', () => decide({ action: 'read', caller, target }, world));
  add('decide: deliver to a channel', () => decide({ action: 'deliver', caller, channel: 'discord', text: 'hello' }, world));
  add('glob, 20 stars on 10,000 characters', () => matchesGlob('*a'.repeat(20), 'a'.repeat(10_000)));
  const cron = parseSchedule('cron 30 9 * * 1-5 Europe/Berlin');
  if (cron.ok) add('next time of a cron schedule with a time zone', () => nextDue(cron.schedule, 1_800_000_000_000, 0));

  const [, base] = rows[0]!;
  const width = Math.max(...rows.map(([name]) => name.length));
  process.stdout.write(`\nnode ${process.version}, median of ${samples} samples of ${sampleMs} ms\n\n`);
  for (const [name, ns] of rows) {
    process.stdout.write(
      `${name.padEnd(width)}  ${(ns / 1_000).toFixed(3).padStart(9)} µs  ${Math.round(ns / base)
        .toLocaleString('en')
        .padStart(8)} × empty\n`,
    );
  }
}
