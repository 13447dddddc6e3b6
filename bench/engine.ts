// The engine on a real disk, beside the raw limits of the same disk in the same run.
import { cpSync, mkdirSync, rmSync } from 'node:fs';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import type { Query } from '../src/store/contract.ts';
import { openDatabase } from '../src/store/sqlite/database.ts';
import { databaseName } from '../src/store/sqlite/files.ts';
import { inChild, type PagesReport, type RecoverReport } from './child.ts';
import { chatKey, longKey, longSessions, makeChats, makeState, openIndex, startOfTime, writeText } from './data.ts';
import { drawLines, inTemporary, median, percent, progress, rate, table, whole, type Line } from './measure.ts';
import { grouped, record, replay, type Written } from './raw.ts';
import { acceptance, start } from './setting.ts';

const rounds = 5;
const chats = 10_000;

export async function benchEngine({ full }: { full: boolean }): Promise<void> {
  const started = performance.now();
  await inTemporary(async (directory) => {
    const base = join(directory, 'base');
    progress('engine: making chats');
    await makeChats(base, chats);
    const lines: Line[] = [];
    const show = (title: string, text: string) => process.stdout.write(`\n${title}\n\n${text}`);
    for (const size of [300, 4_000]) lines.push(await appends(directory, base, size));
    lines.push(...(await runs(directory, base)));
    lines.push(...(await recovery(directory, base)));
    for (const size of [300, 4_000]) lines.push(await indexing(directory, size));
    const sizes = full ? [1_000, 100_000, 1_000_000] : [1_000, 100_000];
    const { rows, memory } = await pages(directory, sizes);
    lines.push(...memory);
    show(`engine, node ${process.version}, ${availableParallelism()} cores, median of ${rounds}`, drawLines(lines));
    show(
      'a page of 50 rows, median milliseconds',
      table(['', 'rows', ...sizes.map(whole), `${whole(sizes.at(-1)!)} ÷ 1,000`, 'at most 2 ×'], rows),
    );
    process.stdout.write(`\n${full ? 'full' : 'without --full'}, ${whole((performance.now() - started) / 1_000)} s\n`);
  });
}

let copies = 0;
/** A fresh copy of a state directory, removed after use. */
async function onCopy<R>(directory: string, base: string, work: (stateDir: string) => Promise<R> | R): Promise<R> {
  const stateDir = join(directory, `copy-${copies++}`);
  cpSync(base, stateDir, { recursive: true });
  try {
    return await work(stateDir);
  } finally {
    rmSync(stateDir, { recursive: true, force: true });
  }
}

async function appends(directory: string, base: string, size: number): Promise<Line> {
  progress(`engine: appends of ${size} characters`);
  const count = 6_400;
  const texts = Array.from({ length: 64 }, (_, n) => writeText(size, n));
  const append = (n: number) => acceptance(chatKey(n % chats), n, texts[n % texts.length]!);
  const written = await onCopy(directory, base, async (stateDir) => {
    const gateway = await start(stateDir, 0, { durability: 'normal' });
    const all = await record(count, (n) => gateway.engine.accept(append(n)));
    await gateway.close();
    return all;
  });
  const commits = grouped(written, 16);
  const [raw, engine]: [number[], number[]] = [[], []];
  for (let round = 0; round < rounds; round++) {
    raw.push(await onCopy(directory, base, (stateDir) => replay(stateDir, commits) * 16));
    engine.push(
      await onCopy(directory, base, async (stateDir) => {
        const gateway = await start(stateDir, 0);
        const perSecond = await rate(count, 16, (n) => gateway.engine.accept(append(n)));
        await gateway.close();
        return perSecond;
      }),
    );
  }
  const share = median(engine.map((perSecond, round) => perSecond / raw[round]!));
  return {
    name: `durable appends, ${size === 300 ? '300 bytes' : '4 kB'}, 16 at once`,
    measured: `${whole(median(engine))} /s`,
    beside: `${percent(share)} of raw ${whole(median(raw))} /s`,
    target: '≥ 25 %',
    reached: share >= 0.25,
  };
}

async function runs(directory: string, base: string): Promise<Line[]> {
  const lines: Line[] = [];
  const text = writeText(300, 1);
  progress('engine: the rows of a run');
  const written: Written[] = await onCopy(directory, base, async (stateDir) => {
    const gateway = await start(stateDir, 1, { durability: 'normal' });
    const all = await record(3_200, async (n) => {
      const { runId } = await gateway.engine.accept(acceptance(chatKey(n), n, text));
      await gateway.engine.wait(runId, 60_000);
    });
    await gateway.close();
    return all;
  });
  const commits = grouped(written, 16);
  const oneRow = Array.from({ length: 500 }, (_, n) => [rowOf(n)]);
  const [single, raw]: [number[], number[]] = [[], []];
  const cases = [
    { name: '1 in flight', inFlight: 1, count: 400, key: chatKey, engine: [] as number[] },
    { name: '16 in flight', inFlight: 16, count: 3_200, key: chatKey, engine: [] as number[] },
    { name: '256 in flight', inFlight: 256, count: 3_200, key: chatKey, engine: [] as number[] },
    {
      name: '16 in flight, 400 entries before each',
      inFlight: 16,
      count: 800,
      key: (n: number) => longKey(n % longSessions),
      engine: [] as number[],
    },
  ];
  for (let round = 0; round < rounds; round++) {
    progress(`engine: runs, round ${round + 1} of ${rounds}`);
    single.push(await onCopy(directory, base, (stateDir) => replay(stateDir, oneRow)));
    raw.push(await onCopy(directory, base, (stateDir) => replay(stateDir, commits)));
    for (const one of cases)
      one.engine.push(
        await onCopy(directory, base, async (stateDir) => {
          const gateway = await start(stateDir, one.inFlight);
          const perSecond = await rate(one.count, one.inFlight, async (n) => {
            const { runId } = await gateway.engine.accept(acceptance(one.key(n), n, text));
            const { state } = await gateway.engine.wait(runId, 60_000);
            if (state !== 'ok') throw new Error(`a run ended ${state}`);
          });
          await gateway.close();
          return perSecond;
        }),
      );
  }
  const limit = median(raw) * 16;
  const most = (commits.length * 16) / written.length;
  lines.push({
    name: 'raw commits, one row in each',
    measured: `${whole(median(single))} /s`,
    beside: 'what the disk gives',
  });
  lines.push({
    name: 'raw commits, the rows of 16 runs in each',
    measured: `${whole(median(raw))} /s`,
    beside: `${most} commits for each 16 runs`,
  });
  for (const { name, inFlight, engine } of cases) {
    const perSecond = median(engine);
    const share = median(engine.map((one, round) => one / (raw[round]! * 16)));
    lines.push({
      name: `complete runs, ${name}`,
      measured: `${whole(perSecond)} /s`,
      beside: `${percent(share)} of raw commits × 16 = ${whole(limit)} /s`,
      ...(name === `${inFlight} in flight` && inFlight === 16 ? { target: '≥ 15 %', reached: share >= 0.15 } : {}),
    });
  }
  return lines;
}

function rowOf(n: number): Query {
  const sql = `INSERT INTO feed (session_pk, kind, ref_pk, level, at) VALUES (?, 'entry', ?, 0, ?)`;
  return { sql, params: [1, n, startOfTime], want: 'run' };
}

async function recovery(directory: string, base: string): Promise<Line[]> {
  const lines: Line[] = [];
  for (const lanes of ['one', 'many']) {
    const where = lanes === 'one' ? 'one session' : '10,000 sessions';
    progress(`engine: recovery with 10,000 queued runs in ${where}`);
    await onCopy(directory, base, async (stateDir) => {
      const filler = await inChild<{ perSecond: number }>('fill', stateDir, lanes);
      await filler.kill();
      const reports: RecoverReport[] = [];
      for (let round = 0; round < rounds; round++)
        await onCopy(directory, stateDir, async (killed) => {
          const again = await inChild<RecoverReport>('recover', killed);
          reports.push(again.report);
          await again.kill();
        });
      const readyMs = median(reports.map((report) => report.readyMs));
      lines.push({
        name: `ready after SIGKILL, 10,000 queued in ${where}`,
        measured: `${whole(readyMs)} ms`,
        beside: `accepted at ${whole(filler.report.perSecond)} /s, then run at ${whole(median(reports.map((report) => report.perSecond)))} /s`,
        target: '< 1 s',
        reached: readyMs < 1_000,
      });
    });
  }
  return lines;
}

async function indexing(directory: string, size: number): Promise<Line> {
  progress(`engine: search indexing of ${size} characters`);
  const count = size === 300 ? 20_000 : 4_000;
  const stateDir = join(directory, `search-${size}`);
  mkdirSync(stateDir);
  await makeState(stateDir, 1_000);
  const { index, close } = openIndex(stateDir);
  while ((await index.indexNext()).more);
  const connection = openDatabase(join(stateDir, databaseName), { durability: 'normal' });
  const { database } = connection;
  database.exec('BEGIN');
  const entry = database.prepare(`INSERT INTO entries (session_pk, seq, id, role, taint, text, at) VALUES (?, ?, ?, 'user', 0, ?, ?)`);
  const feed = database.prepare(`INSERT INTO feed (session_pk, kind, ref_pk, level, at) VALUES (?, 'entry', ?, 0, ?)`);
  for (let n = 0; n < count; n++) {
    const session = 100 + (n % 900);
    const { lastInsertRowid } = entry.run(session, 3 + Math.floor(n / 900), `new-${n}`, writeText(size, n), startOfTime);
    feed.run(session, lastInsertRowid, startOfTime);
  }
  database.exec('COMMIT');
  connection.close();
  const started = performance.now();
  while ((await index.indexNext()).more);
  const seconds = (performance.now() - started) / 1_000;
  await close();
  return {
    name: `search index, entries of ${size === 300 ? '300 bytes' : '4 kB'}`,
    measured: `${whole(count / seconds)} /s`,
    beside: `${whole(count)} entries behind, caught up in ${seconds.toFixed(1)} s`,
  };
}

async function pages(directory: string, sizes: number[]): Promise<{ rows: string[][]; memory: Line[] }> {
  const reports: PagesReport[] = [];
  for (const sessions of sizes) {
    progress(`engine: making ${whole(sessions)} sessions`);
    const stateDir = join(directory, `sessions-${sessions}`);
    await makeState(stateDir, sessions);
    progress(`engine: pages of ${whole(sessions)} sessions`);
    const child = await inChild<PagesReport>('pages', stateDir, String(sessions));
    reports.push(child.report);
    await child.kill();
    rmSync(stateDir, { recursive: true, force: true });
  }
  const [small, large] = [reports[0]!, reports.at(-1)!];
  const rows = large.pages.map(({ name, rows, ms }, n) => {
    const times = reports.map((report) => report.pages[n]!.ms.toFixed(2));
    const ratio = ms / small.pages[n]!.ms;
    return [name, String(rows), ...times, `${ratio.toFixed(1)} ×`, ratio <= 2 ? 'reached' : 'NOT REACHED'];
  });
  const megabytes = (bytes: number) => (bytes / 2 ** 20).toFixed(1);
  const more = large.stays - small.stays;
  const at = whole(sizes.at(-1)!);
  return {
    rows,
    memory: [
      {
        name: `memory that stays after all pages, ${at} sessions`,
        measured: `${megabytes(large.stays)} MB`,
        beside: `${megabytes(more)} MB above 1,000 sessions`,
        target: '≤ 20 MB',
        reached: more <= 20 * 2 ** 20,
      },
      {
        name: `memory before a collection, ${at} sessions`,
        measured: `${megabytes(large.memory)} MB`,
        beside: `${megabytes(large.memory - small.memory)} MB above 1,000 sessions`,
      },
      {
        name: `ready, nothing queued, ${at} sessions`,
        measured: `${whole(large.readyMs)} ms`,
        beside: `${whole(small.readyMs)} ms with 1,000 sessions`,
      },
    ],
  };
}
