// What others wait while hostile clients are at work, beside a bare `ws` server under the same load; and how long an acknowledgement takes.
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { availableParallelism, loadavg } from 'node:os';
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect } from '../src/client/client.ts';
import { openDatabase } from '../src/store/sqlite/database.ts';
import { databaseName } from '../src/store/sqlite/files.ts';
import { searchName } from '../src/store/sqlite/search-file.ts';
import { callerKey, longKey, makeState, openIndex } from './data.ts';
import { harms, type Harm, type HostileReport, type HostileWish } from './hostile.ts';
import { drawLines, inTemporary, progress, table, whole, type Line } from './measure.ts';
import type { ProbeReport, ProbeWish } from './probe.ts';
import type { Address, ServerWish } from './raw-server.ts';
import { startAsked, type Asked } from './talk.ts';

const sessions = 20_000;
const attackMs = 2_000;
const everyMs = 10;
const targets = { 1: 50, 20: 250 } as const;
/** Of the last of the probes, after which a crowd that is still served is not waited for. */
const mostWaitMs = 60_000;

interface Side {
  server: Asked<ServerWish>;
  address: Address;
}

export async function benchFair(): Promise<void> {
  const started = performance.now();
  await inTemporary(async (directory) => {
    progress(`fair: making ${whole(sessions)} sessions`);
    const state = join(directory, 'state');
    await makeState(state, sessions);
    addLargeMessages(state);
    await indexAll(state);
    const raw = await side('raw');
    const ours = await side('gateway', state);
    const tokens = await makeTokens(ours.address);
    const probe = startAsked<ProbeWish>('probe');
    const rows: string[][] = [];
    const ask = (to: Side, ms: number) => within(probe.ask<ProbeReport>({ to: to.address, health: { everyMs, ms } }));
    for (const one of [raw, ours]) await ask(one, 1_000);
    const quiet = { raw: await ask(raw, 1_000), ours: await ask(ours, 1_000) };
    rows.push(['nobody else', '', ...shown(quiet.ours), '', ...shown(quiet.raw).slice(0, 3), '']);
    // Before hostile senders leave a queue of long runs.
    const lines = await acknowledgements(ours, probe);
    for (const harm of Object.keys(harms) as Harm[])
      for (const crowd of [1, 20] as const) {
        progress(`fair: ${crowd} × ${harm}`);
        const token = tokens[harms[harm].token];
        const bare = await attacked(raw, raw.address, harm, crowd, ask);
        const gateway = await attacked(ours, { ...ours.address, token }, harm, crowd, ask);
        const reached = percentile(gateway.during, 0.99) < targets[crowd];
        rows.push([
          harm,
          String(crowd),
          ...shown(gateway.during),
          percentile(gateway.after, 0.99).toFixed(1),
          ...shown(bare.during),
          `< ${targets[crowd]} ms ${reached ? 'reached' : 'NOT REACHED'}`,
        ]);
      }
    await Promise.all([raw.server.kill(), ours.server.kill(), probe.kill()]);
    process.stdout.write(
      `\nfair, node ${process.version}, ${availableParallelism()} cores, load ${loadavg()[0]!.toFixed(1)}; milliseconds of another client's health\n\n` +
        table(['', 'clients', 'p50', 'p99', 'max', 'p99 1 s after', 'raw p50', 'raw p99', 'raw max', 'p99'], rows) +
        `\n${drawLines(lines)}\n${whole((performance.now() - started) / 1_000)} s\n`,
    );
  });
}

async function side(name: 'raw' | 'gateway', ...args: string[]): Promise<Side> {
  const server = startAsked<ServerWish>(name, ...args);
  return { server, address: await server.ask<Address>({ open: true }) };
}

/** 50 messages of a megabyte in one session. */
function addLargeMessages(state: string): void {
  const connection = openDatabase(join(state, databaseName), { durability: 'normal' });
  connection.database.exec(`
    UPDATE entries SET text = hex(zeroblob(500000))
    WHERE session_pk = (SELECT pk FROM sessions WHERE key = '${longKey(0)}') AND seq > 350;
    PRAGMA wal_checkpoint(TRUNCATE)
  `);
  connection.close();
}

/** Every message can be found. */
async function indexAll(state: string): Promise<void> {
  rmSync(join(state, searchName));
  const { index, close } = openIndex(state);
  while ((await index.indexNext()).more);
  await close();
}

/** A reader and a writer of what is public, and the main session of the state. */
async function makeTokens(address: Address): Promise<Record<'reader' | 'session' | 'writer', string>> {
  const client = await connectTo(address);
  const make = async (params: object) => ((await client.request('tokens.create', params)) as { token: string }).token;
  const tokens = {
    reader: await make({ name: 'reader', scopes: ['operator.read'], level: 'PUBLIC' }),
    writer: await make({ name: 'writer', scopes: ['operator.write'], level: 'PUBLIC' }),
    session: await make({ name: 'session', sessionKey: callerKey }),
  };
  client.close();
  return tokens;
}

const connectTo = ({ url, token }: Address) =>
  connect({ url, token, client: { id: 'bench', version: '1', platform: 'node', mode: 'cli' } });

/** Another client while the hostile ones are at work, and a second after they have left. */
async function attacked(
  to: Side,
  address: Address,
  harm: Harm,
  connections: number,
  ask: (to: Side, ms: number) => Promise<ProbeReport>,
): Promise<{ during: ProbeReport; after: ProbeReport }> {
  const hostile = startAsked<HostileWish>('hostile');
  const work = hostile.ask<HostileReport>({ to: address, harm, connections, ms: attackMs, largeKey: longKey(0) }).catch(() => {});
  const during = await ask(to, attackMs);
  await Promise.race([work, sleep(attackMs)]);
  // They leave without a goodbye, whatever they have under way.
  await hostile.kill();
  await sleep(1_000);
  return { during, after: await ask(to, 500) };
}

/** Messages are acknowledged when they are on the disk; their runs go on meanwhile. */
async function acknowledgements(ours: Side, probe: Asked<ProbeWish>): Promise<Line[]> {
  progress('fair: acknowledged messages');
  const keys = Array.from({ length: 19 }, (_, n) => longKey(n + 1));
  const sends = { keys, connections: 8, ms: 3_000 };
  const ask = (pace: { inFlight: number } | { perSecond: number }) =>
    within(probe.ask<ProbeReport>({ to: ours.address, sends: { ...sends, pace } }));
  const client = await connectTo(ours.address);
  const finished = async () => {
    const open = { states: ['queued', 'running', 'waiting'], limit: 1 } as const;
    while (((await client.request('runs.list', open)) as { runs: unknown[] }).runs.length > 0) await sleep(20);
  };
  await ask({ inFlight: 64 });
  await within(finished());
  const began = performance.now();
  const most = await ask({ inFlight: 256 });
  await within(finished());
  const highest = (most.waits.length * 1_000) / (performance.now() - began);
  const paced = await ask({ perSecond: highest * 0.8 });
  client.close();
  const at = (share: number) => `${percentile(paced, share).toFixed(1)} ms`;
  return [
    {
      name: 'sessions.send, highest rate, 256 under way',
      measured: `${whole(highest)} /s`,
      beside: 'full sync, until their runs have ended',
    },
    {
      name: 'sessions.send acknowledged at 80 % of it, p99',
      measured: at(0.99),
      beside: `p50 ${at(0.5)}, p99.9 ${at(0.999)}`,
      target: '≤ 20 ms',
      reached: percentile(paced, 0.99) <= 20,
    },
  ];
}

function percentile({ waits }: ProbeReport, share: number): number {
  const sorted = waits.toSorted();
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;
}

const shown = (report: ProbeReport) => [0.5, 0.99, 1].map((share) => percentile(report, share).toFixed(1));

/** The benchmark ends by itself, also when something that it measures does not. */
async function within<R>(work: Promise<R>): Promise<R> {
  const late = new AbortController();
  const cancel = sleep(mostWaitMs, undefined, { signal: late.signal }).then(() => {
    throw new Error(`bench: no answer within ${mostWaitMs / 1_000} s`);
  });
  try {
    return await Promise.race([work, cancel]);
  } finally {
    cancel.catch(() => {});
    late.abort();
  }
}
