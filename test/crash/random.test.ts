// Mixed load, killed at random points, again and again; and the log cut off at random bytes.
import { copyFileSync, existsSync, mkdtempSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { spawn } from 'node:child_process';
import { DatabaseSync } from 'node:sqlite';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { findViolations } from './checker.ts';
import { crash, startReceiver, type Receiver } from './harness.ts';
import { mixedLoad, seeded } from './scenarios.ts';
import type { Task } from './worker.ts';

const directory = mkdtempSync(join(tmpdir(), 'interlane-receiver-'));
let receiver: Receiver;
beforeAll(async () => {
  receiver = await startReceiver(directory);
});
afterAll(() => {
  receiver.stop();
  rmSync(directory, { recursive: true, force: true });
});

const kills = Number(process.env['CRASH_KILLS'] ?? 30);
const seed = Number(process.env['CRASH_SEED'] ?? 20_261_115);
const killsPerRound = 3;
/** Where a kill finds the runs depends on the machine: after the wanted number it goes on until every phase was hit, but not for ever. */
const mostTries = 5;
/** Ends only what hangs: the work is bounded, not the time that a busy machine takes for it. */
const limitOf = (kills: number) => 600_000 + kills * 60_000;

const everyPhase = ['queued', 'mid-step', 'tool started', 'ending', 'announcing', 'delivering', 'waiting', 'offered'];
/** Short ones, which a few kills may miss. */
const rarePhases = ['stopping'];

describe(`${kills} kills under mixed load, seed ${seed}`, () => {
  it(
    'lose nothing, do nothing twice, and hit every phase of a run',
    async () => {
      const random = seeded(seed);
      const found: string[] = [];
      const hit = new Map<string, number>();
      let done = 0;
      const phases = kills < 200 ? everyPhase : [...everyPhase, ...rarePhases];
      const missed = () => phases.filter((phase) => !hit.has(phase));
      const round = async () => {
        while (done < kills || (missed().length > 0 && done < mostTries * kills)) {
          const ops = mixedLoad(random, 30);
          const dieAt = Array.from({ length: killsPerRound }, () => 8 + Math.floor(random() * 300));
          const { violations, kills: where, phases: seen } = await crash(receiver, ops, dieAt, { parallel: 6 });
          done += where.length;
          for (const violation of violations) found.push(`killed at ${dieAt.join(', ')} (${where.join('; ')}): ${violation}`);
          const ending = where.filter((kill) => /before commit of .*end run/.test(kill)).map(() => 'ending');
          for (const phase of [...seen, ...ending]) hit.set(phase, (hit.get(phase) ?? 0) + 1);
        }
      };
      await Promise.all([round(), round()]);
      expect(found).toEqual([]);
      expect(missed()).toEqual([]);
    },
    limitOf(mostTries * kills),
  );
});

describe('a gateway that is stopped by the system and goes on', () => {
  it('loses nothing', async () => {
    const state = mkdtempSync(join(tmpdir(), 'interlane-stopped-'));
    try {
      const ops = mixedLoad(seeded(seed + 1), 60);
      const task: Task = {
        stateDir: state,
        receiver: `${receiver.url}/stopped`,
        acked: join(state, 'acked'),
        killed: join(state, 'killed'),
        ops,
        parallel: 4,
        dieAt: 0,
      };
      writeFileSync(join(state, 'task.json'), JSON.stringify(task));
      const child = spawn(process.execPath, [resolve('test/crash/worker.ts'), join(state, 'task.json')], { stdio: 'ignore' });
      const over = new Promise<number | null>((done) => child.on('close', done));
      let stops = 0;
      for (let seen = 0; child.exitCode === null;) {
        const size = existsSync(task.acked) ? statSync(task.acked).size : 0;
        if (size > seen) {
          seen = size;
          child.kill('SIGSTOP');
          child.kill('SIGCONT');
          stops++;
        }
        await new Promise((go) => setImmediate(go));
      }
      expect(await over).toBe(0);
      expect(stops).toBeGreaterThan(2);
      const sent = new Map(ops.flatMap((op) => (op.do === 'message' ? [[op.id, op.text] as const] : [])));
      expect(
        findViolations({ database: join(state, 'interlane.db'), acked: task.acked, received: receiver.log, prefix: '/stopped', sent }),
      ).toEqual([]);
    } finally {
      rmSync(state, { recursive: true, force: true });
    }
  });
});

describe('a log that is cut off', () => {
  it('at any byte leaves a prefix of what was committed', async () => {
    const random = seeded(seed);
    const state = mkdtempSync(join(tmpdir(), 'interlane-torn-'));
    const copies = mkdtempSync(join(tmpdir(), 'interlane-copies-'));
    try {
      const task: Task = {
        stateDir: state,
        receiver: `${receiver.url}/torn`,
        acked: join(state, 'acked'),
        killed: join(state, 'killed'),
        ops: mixedLoad(random, 150),
        parallel: 8,
        dieAt: 0,
      };
      writeFileSync(join(state, 'task.json'), JSON.stringify(task));
      const child = spawn(process.execPath, [resolve('test/crash/worker.ts'), join(state, 'task.json')], { stdio: 'ignore' });
      const over = new Promise<number | null>((done) => child.on('close', done));
      // The log only grows until a checkpoint, and the database file changes only at one: copies in this order fit together.
      const taken: string[] = [];
      while (child.exitCode === null) {
        const [database, wal] = [join(state, 'interlane.db'), join(state, 'interlane.db-wal')];
        if (existsSync(wal) && taken.length < 3 && statSync(wal).size > 800_000 * (taken.length + 1)) {
          const copy = join(copies, `${taken.length}.db`);
          copyFileSync(database, copy);
          copyFileSync(wal, `${copy}-wal`);
          taken.push(copy);
        }
        await new Promise((next) => setImmediate(next));
      }
      expect(await over).toBe(0);
      expect(taken.length).toBeGreaterThan(0);
      const whole = readFeed(join(state, 'interlane.db'));
      let longest = 0;
      for (const copy of taken) {
        const wal = readFileSync(`${copy}-wal`);
        for (let cut = 0; cut < 25; cut++) {
          const torn = join(copies, 'torn.db');
          copyFileSync(copy, torn);
          writeFileSync(`${torn}-wal`, wal);
          truncateSync(`${torn}-wal`, Math.floor(random() * wal.length));
          rmSync(`${torn}-shm`, { force: true });
          const feed = readFeed(torn);
          expect(feed).toEqual(whole.slice(0, feed.length));
          longest = Math.max(longest, feed.length);
        }
      }
      expect(longest).toBeGreaterThan(20);
    } finally {
      rmSync(state, { recursive: true, force: true });
      rmSync(copies, { recursive: true, force: true });
    }
  });
});

/** What is in the feed, each row with the text it points to; every transcript must be dense. */
function readFeed(file: string): string[] {
  const db = new DatabaseSync(file);
  try {
    if (!db.prepare(`SELECT 1 FROM sqlite_schema WHERE name = 'feed'`).get()) return []; // cut before the first commit
    expect(db.prepare('SELECT session_pk FROM entries GROUP BY session_pk HAVING count(*) != max(seq) OR min(seq) != 1').all()).toEqual([]);
    const text = db.prepare('SELECT seq, role, text FROM entries WHERE pk = ?');
    const rows = db.prepare('SELECT pos, kind, ref_pk, state FROM feed ORDER BY pos').all();
    return rows.map((row) => JSON.stringify([row, row['kind'] === 'entry' ? text.get(row['ref_pk'] as number) : null]));
  } finally {
    db.close();
  }
}
