import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import type { ReadQuery } from '../contract.ts';
import { openDatabase } from './database.ts';
import { Reader } from './reader.ts';
import { SqliteStore } from './store.ts';

function open() {
  const directory = mkdtempSync(join(tmpdir(), 'interlane-reader-'));
  const path = join(directory, 'interlane.db');
  const writer = openDatabase(path, { durability: 'normal' });
  const clock = { now: 0 };
  const reader = new Reader(path, () => clock.now);
  onTestFinished(async () => {
    await reader.close();
    writer.close();
    rmSync(directory, { recursive: true });
  });
  return { reader, clock, writer };
}

const client = (signal = new AbortController().signal) => ({ client: {}, signal, pause: () => Promise.resolve() });

/** So many statements. Each is noted when its answer is here. */
const counting = (log: string[], name: string): ReadQuery<{ statements: number }, string> => ({
  name,
  rows: () => 1_000,
  *body(t, { statements }) {
    for (let n = 0; n < statements; n++) {
      yield* t.one('SELECT count(*) AS n FROM sessions');
      log.push(name);
    }
    return name;
  },
});

it('clients take turns: the one read of a client waits for a few statements of another who asked for 200', async () => {
  const { reader } = open();
  const log: string[] = [];
  const [greedy, modest] = [client(), client()];
  const all = Array.from({ length: 200 }, () => reader.read(counting(log, 'greedy'), { statements: 5 }, greedy));
  expect([reader.active, reader.waiting]).toEqual([1, 199]);
  await reader.read(counting(log, 'modest'), { statements: 5 }, modest);
  expect(log.filter((name) => name === 'greedy').length).toBeLessThanOrEqual(10);
  await Promise.all(all);
  expect(log).toHaveLength(1_005);
});

it('with more clients than connections each gets its turn before any has a second', async () => {
  const { reader } = open();
  const log: string[] = [];
  const done: number[] = [];
  const clients = Array.from({ length: 10 }, () => client());
  const rounds = [0, 1].flatMap((round) =>
    clients.map(async (pace, n) => {
      await reader.read(counting(log, `${n}`), { statements: 3 }, pace);
      done.push(round);
    }),
  );
  await Promise.all(rounds);
  // The last three of the first round may be under way while the fourth connection begins the second.
  expect(done.slice(0, 7)).toEqual(Array.from({ length: 7 }, () => 0));
  expect(done.slice(-7)).toEqual(Array.from({ length: 7 }, () => 1));
});

it('a snapshot that is older than 2 s is given up with an error that asks to try again', async () => {
  const { reader, clock } = open();
  const slow: ReadQuery<object, void> = {
    name: 'slow page',
    rows: () => 1_000,
    *body(t) {
      for (let n = 0; n < 100; n++) {
        yield* t.one('SELECT count(*) AS n FROM sessions');
        clock.now += 300;
      }
    },
  };
  await expect(reader.read(slow, {}, client())).rejects.toMatchObject({
    code: 'BUSY',
    message: 'read "slow page" took longer than 2 s; try again, or ask for less at once',
  });
  expect(clock.now).toBe(2_100);
  expect(await reader.read(counting([], 'next'), { statements: 2 }, client())).toBe('next');
});

it('reads of a client that is gone are dropped while they wait', async () => {
  const { reader } = open();
  const log: string[] = [];
  const gone = new AbortController();
  const pace = client(gone.signal);
  const all = Array.from({ length: 50 }, () => reader.read(counting(log, 'gone'), { statements: 5 }, pace));
  gone.abort(new Error('gone'));
  const settled = await Promise.allSettled(all);
  expect(settled.map(({ status }) => status)).toEqual(Array.from({ length: 50 }, () => 'rejected'));
  expect(log.length).toBeLessThanOrEqual(1);
  expect([reader.active, reader.waiting]).toEqual([0, 0]);
});

it('a statement that fails, fails its read only; rows arrive as they are', async () => {
  const { reader, writer } = open();
  writer.database.exec(`INSERT INTO meta (key, value) VALUES ('a', 'ä\u{1f600}')`);
  const failing: ReadQuery<object, unknown> = { name: 'failing', rows: () => 1_000, body: (t) => t.all('SELECT nothing FROM nowhere') };
  await expect(reader.read(failing, {}, undefined)).rejects.toMatchObject({ code: 'STORE_FAILED' });
  const fine: ReadQuery<object, unknown[]> = {
    name: 'fine',
    rows: () => 1_000,
    *body(t) {
      const [one, none] = yield* t.together(
        t.one(`SELECT key, value, NULL AS gap, 1.5 AS number FROM meta WHERE key = 'a'`),
        t.one(`SELECT key FROM meta WHERE key = 'b'`),
      );
      return [one, none, yield* t.all('SELECT key FROM meta WHERE key = ?', 'a')];
    },
  };
  expect(await reader.read(fine, {}, undefined)).toEqual([
    { key: 'a', value: 'ä\u{1f600}', gap: null, number: 1.5 },
    undefined,
    [{ key: 'a' }],
  ]);
});

it('a page that needs more than it said begins again at the reader, and reads the rest there', async () => {
  const { reader, writer } = open();
  const asked: string[] = [];
  const { answer } = writer;
  writer.answer = (query) => {
    asked.push(query.sql);
    return answer.call(writer, query);
  };
  const store = new SqliteStore(writer, { afterTick: setImmediate, elapsed: () => 0, fatal: () => expect.unreachable() }, reader);
  asked.length = 0;
  let began = 0;
  const page: ReadQuery<{ asks: number; together: number }, number> = {
    name: 'page',
    rows: () => 1,
    *body(t, { asks, together }) {
      began++;
      for (let n = 0; n < asks; n++)
        yield* t.together(...Array.from({ length: together }, () => t.one('SELECT count(*) AS n FROM sessions')));
      return asks;
    },
  };
  expect(await store.read(page, { asks: 10, together: 8 })).toBe(10);
  expect([began, asked.length]).toEqual([1, 80]);
  expect(await store.read(page, { asks: 100, together: 1 })).toBe(100);
  expect([began, asked.length]).toEqual([3, 97]);
});

it('a read whose thread ends between two statements fails, and the next one has a new thread', async () => {
  const { reader } = open();
  const log: string[] = [];
  const pause = async () => void (await reader['thread']!['worker'].terminate());
  await expect(reader.read(counting(log, 'cut'), { statements: 2 }, { ...client(), pause })).rejects.toMatchObject({
    code: 'STORE_FAILED',
  });
  expect(log).toEqual(['cut']);
  expect(await reader.read(counting(log, 'next'), { statements: 2 }, client())).toBe('next');
});
