import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it, onTestFinished } from 'vitest';
import { ofTest } from '../../../test/postgres/statements.ts';
import { InterlaneError } from '../../errors.ts';
import type { Command, Query, ReadQuery, Writing } from '../contract.ts';
import { Connection, openDatabase, type Durability } from './database.ts';
import { databaseName } from './files.ts';
import { openSqliteStore } from './open.ts';
import { SqliteStore, type StoreParts } from './store.ts';

/** The writer's own connection, which also tells what was asked of it. */
class Recorded extends Connection {
  readonly asked: string[] = [];

  override answer(query: Query): unknown {
    this.asked.push(query.sql);
    return super.answer(query);
  }

  count(sql: string): number {
    return this.asked.filter((one) => one === sql).length;
  }
}

function open({ durability = 'full', elapsed = () => 0 }: { durability?: Durability; elapsed?: () => number } = {}) {
  const directory = mkdtempSync(join(tmpdir(), 'interlane-store-'));
  const file = join(directory, databaseName);
  const writer = new Recorded(openDatabase(file, { durability }).database);
  const reader = openDatabase(file, { durability, readOnly: true });
  const ticks: (() => void)[] = [];
  const fatal: InterlaneError[] = [];
  const parts: StoreParts = { afterTick: (work) => void ticks.push(work), elapsed, fatal: (error) => void fatal.push(error) };
  const store = new SqliteStore<Said>(writer, parts);
  /** Ends the current tick as often as the store asks for it, or the given number of times. */
  const tick = (times = Infinity) => {
    for (let done = 0; done < times; done++) {
      const work = ticks.shift();
      if (!work) return;
      work();
    }
  };
  const rows = () => Number(reader.database.prepare('SELECT count(*) AS n FROM meta').get()!['n']);
  const pragma = (name: string) => Object.values(writer.database.prepare(`PRAGMA ${name}`).get()!)[0];
  onTestFinished(async () => {
    await store.close();
    rmSync(directory, { recursive: true });
  });
  return { directory, file, store, writer, tick, rows, pragma, fatal };
}

/** An event, and the row of the feed that goes with it. */
type Said = { pos: number; key: string };
const said = (key: string): Parameters<Writing<Said>['note']> => [
  { sessionPk: 0, kind: 'session', refPk: 0, state: null, detail: null, level: 0, at: 0, moves: false },
  { key },
];

type Put = { key: string; value?: string };

const put: Command<Put, string, Said> = {
  name: 'put',
  *body(t, { key, value = '' }) {
    yield* t.run('INSERT INTO meta (key, value) VALUES (?, ?)', key, value);
    t.note(...said(key));
    return key;
  },
};

const codeOf = (error: unknown) => (error instanceof InterlaneError ? error.code : String(error));
const outcome = (promise: Promise<string>): Promise<string> => promise.catch((error: unknown) => codeOf(error));
const large = 'x'.repeat(3000);

describe('the files', () => {
  it.each([
    ['full', 2],
    ['normal', 1],
  ] as const)('are written with durability %s by the writer itself', (durability, synchronous) => {
    const { pragma } = open({ durability });
    expect(pragma('synchronous')).toBe(synchronous);
    expect(pragma('journal_mode')).toBe('wal');
  });

  it('give back space bit by bit', () => {
    expect(open().pragma('auto_vacuum')).toBe(2);
  });

  it('are private to their user, the ones beside the database too, whatever the umask', async () => {
    const before = process.umask(0);
    onTestFinished(() => void process.umask(before));
    const directory = mkdtempSync(join(tmpdir(), 'interlane-store-'));
    const store = openSqliteStore<Said>(directory, 'full', { afterTick: queueMicrotask, elapsed: () => 0, fatal: () => {} });
    onTestFinished(async () => {
      await store.close();
      rmSync(directory, { recursive: true });
    });
    await store.write(put, { key: 'a' });
    const modes = readdirSync(directory).map((name) => `${name} ${(statSync(join(directory, name)).mode & 0o777).toString(8)}`);
    expect(modes.toSorted()).toEqual([`${databaseName} 600`, `${databaseName}-shm 600`, `${databaseName}-wal 600`]);
  });
});

describe('a batch', () => {
  it('is one commit for all writes of a tick', async () => {
    const { store, writer, tick, rows } = open();
    const written = Array.from({ length: 200 }, (_, index) => store.write(put, { key: `k${index}` }));
    expect(writer.count('COMMIT')).toBe(0);
    tick();
    await Promise.all(written);
    expect([writer.count('BEGIN IMMEDIATE'), writer.count('COMMIT'), rows()]).toEqual([1, 1, 200]);
  });

  it('closes at 256 commands', async () => {
    const { store, writer, tick, rows } = open();
    const written = Array.from({ length: 257 }, (_, index) => store.write(put, { key: `k${index}` }));
    tick(1);
    expect([writer.count('COMMIT'), rows()]).toEqual([1, 256]);
    tick(1);
    await Promise.all(written);
    expect([writer.count('COMMIT'), rows()]).toEqual([2, 257]);
  });

  it('closes at 256 KiB, and takes at least one command of any size', async () => {
    const { store, writer, tick, rows } = open();
    const written = [200, 100, 50, 9_000].map((kib) => store.write(put, { key: `${kib}` }, { bytes: kib * 1024 }));
    tick(1);
    expect(rows()).toBe(2);
    tick();
    await Promise.all(written);
    expect([writer.count('COMMIT'), rows()]).toEqual([2, 4]);
  });

  it('closes after 5 ms', async () => {
    let now = 0;
    const { store, writer, tick } = open({ elapsed: () => (now += 2) });
    const written = Array.from({ length: 6 }, (_, index) => store.write(put, { key: `k${index}` }));
    tick(1);
    expect(writer.count('INSERT INTO meta (key, value) VALUES (?, ?)')).toBe(3);
    tick();
    await Promise.all(written);
    expect(writer.count('COMMIT')).toBe(2);
  });

  it('of 16 with one bad command loses only that one', async () => {
    const { store, writer, tick, rows } = open();
    const published: string[] = [];
    store.follow((events) => published.push(...events.map(({ key }) => key)));
    const keys = Array.from({ length: 16 }, (_, index) => (index === 7 ? 'k0' : `k${index}`));
    const outcomes = keys.map((key) => outcome(store.write(put, { key })));
    tick();
    const good = keys.filter((_, index) => index !== 7);
    expect(await Promise.all(outcomes)).toEqual(keys.map((key, index) => (index === 7 ? 'STORE_FAILED' : key)));
    expect([writer.count('COMMIT'), rows()]).toEqual([1, 15]);
    expect(published).toEqual(good);
  });

  it('is run again with a savepoint for each command only when one fails after it has written', async () => {
    const { store, writer, tick, rows } = open();
    const published: string[] = [];
    store.follow((events) => published.push(...events.map(({ key }) => key)));
    const refuse = (written: boolean): Command<Put, string, Said> => ({
      name: 'refuse',
      *body(t, { key }) {
        if (written) yield* put.body(t, { key });
        yield* t.one('SELECT 1 FROM meta');
        throw new InterlaneError('LABEL_IN_USE', `label ${key} is in use`);
      },
    });
    const batch = (written: boolean, ...keys: [string, string, string]) => {
      const [first, second, third] = keys;
      const outcomes = [store.write(put, { key: first }), store.write(refuse(written), { key: second }), store.write(put, { key: third })];
      const all = Promise.all(outcomes.map(outcome));
      tick();
      return all;
    };
    expect(await batch(false, 'a', 'b', 'c')).toEqual(['a', 'LABEL_IN_USE', 'c']);
    expect([writer.count('SAVEPOINT command'), writer.count('COMMIT'), rows()]).toEqual([0, 1, 2]);
    expect(await batch(true, 'd', 'e', 'f')).toEqual(['d', 'LABEL_IN_USE', 'f']);
    expect([writer.count('SAVEPOINT command'), writer.count('ROLLBACK'), writer.count('COMMIT'), rows()]).toEqual([3, 1, 2, 4]);
    expect(published).toEqual(['a', 'c', 'd', 'f']);
  });

  it('tells nobody of a refusal before its commit, for the refusal may rest on what is then undone', async () => {
    const { store, writer, tick, rows, pragma } = open();
    const ifNew: Command<Put, string, Said> = {
      name: 'ifNew',
      *body(t, { key }) {
        if (yield* t.one('SELECT 1 FROM meta WHERE key = ?', key)) throw new InterlaneError('LABEL_IN_USE', `label ${key} is in use`);
        return yield* put.body(t, { key });
      },
    };
    writer.database.exec(`PRAGMA max_page_count = ${Number(pragma('page_count'))}`);
    const outcomes = [
      outcome(store.write(ifNew, { key: 'a' })),
      outcome(store.write(ifNew, { key: 'a' })),
      outcome(store.write(put, { key: 'b', value: large.repeat(10) })),
    ];
    tick();
    expect(await Promise.all(outcomes)).toEqual(['STORE_FAILED', 'STORE_FAILED', 'STORE_FAILED']);
    expect(rows()).toBe(0);
  });
});

describe('a full disk', () => {
  /** 16 commands and room for 14 pages: nine fit, the tenth asks for 20 more. */
  function fill(tenth: Command<Put, string, Said>) {
    const opened = open();
    const { store, writer, tick, pragma } = opened;
    const published: string[] = [];
    store.follow((events) => published.push(...events.map(({ key }) => key)));
    writer.database.exec(`PRAGMA max_page_count = ${Number(pragma('page_count')) + 14}`);
    const outcomes = Array.from({ length: 16 }, (_, index) =>
      store.write(index === 9 ? tenth : put, { key: `k${index}`, value: large }).catch((error: unknown) => error as InterlaneError),
    );
    tick(1);
    return { ...opened, outcomes, published };
  }

  const greedy: Command<Put, string, Said> = {
    name: 'greedy',
    *body(t, { key, value }) {
      for (let i = 0; i < 20; i++) yield* put.body(t, { key: `${key} ${i}`, value: value! });
      return key;
    },
  };
  const full = { code: 'STORE_FAILED', message: 'store could not write: the disk is full; nothing of this was kept, try again' };

  it('in mid-batch rejects the whole batch, keeps nothing of it, and the store works on', async () => {
    const { store, writer, tick, rows, outcomes, published, fatal } = fill(greedy);
    const failed = await Promise.all(outcomes.slice(0, 10));
    expect(failed.map((one) => one instanceof InterlaneError && { code: one.code, message: one.message })).toEqual(failed.map(() => full));
    expect([rows(), published, fatal]).toEqual([0, [], []]);

    // What the batch had not taken yet has a transaction of its own.
    tick();
    const rest = Array.from({ length: 6 }, (_, index) => `k${index + 10}`);
    expect(await Promise.all(outcomes.slice(10))).toEqual(rest);
    expect([rows(), published]).toEqual([6, rest]);

    writer.database.exec('PRAGMA max_page_count = 1000000');
    const again = store.write(greedy, { key: 'k9', value: large });
    tick();
    expect(await again).toBe('k9');
    expect([rows(), published.length]).toEqual([26, 26]);
  });

  const stubborn: [string, Command<Put, string, Said>['body']][] = [
    [
      'catches the error and goes on',
      function* (t, { key, value }) {
        for (let i = 0; i < 20; i++) {
          try {
            yield* put.body(t, { key: `${key} ${i}`, value: value! });
          } catch {
            yield* put.body(t, { key: `outside ${i}` });
          }
        }
        return key;
      },
    ],
    [
      'swallows every error and returns',
      function* (t, args) {
        try {
          return yield* greedy.body(t, args);
        } catch {
          return 'fine';
        }
      },
    ],
    [
      'attempts it in parts',
      function* (t, { key, value }) {
        for (let i = 0; i < 20; i++) yield* t.attempt(put.body(t, { key: `${key} ${i}`, value: value! }));
        return key;
      },
    ],
    [
      'turns the error into its own',
      function* (t, args) {
        try {
          return yield* greedy.body(t, args);
        } catch {
          throw new InterlaneError('QUEUE_FULL', 'lane is full; wait');
        }
      },
    ],
  ];

  it.each(stubborn)('is not hidden by a body that %s: nothing is written outside the transaction', async (_, body) => {
    const { outcomes, rows, published } = fill({ name: 'stubborn', body });
    expect(await Promise.all(outcomes.slice(0, 10))).toMatchObject(Array.from({ length: 10 }, () => full));
    expect([rows(), published]).toEqual([0, []]);
  });
});

describe('a database that somebody else has locked', () => {
  it('rejects what waits, does not hang at the close, and works again when it is free', async () => {
    const { file, store, tick, rows } = open();
    const other = new DatabaseSync(file);
    onTestFinished(() => other.close());
    other.exec('BEGIN IMMEDIATE');
    const refused = [outcome(store.write(put, { key: 'a' })), outcome(store.write(put, { key: 'b' }, { urgent: true }))];
    tick(1);
    expect(await Promise.all(refused)).toEqual(['STORE_FAILED', 'STORE_FAILED']);
    other.exec('ROLLBACK');
    const written = store.write(put, { key: 'a' });
    tick();
    await written;
    expect(rows()).toBe(1);

    other.exec('BEGIN IMMEDIATE');
    const last = outcome(store.write(put, { key: 'c' }));
    await store.close();
    expect(await last).toBe('STORE_FAILED');
  });
});

describe('a queue that is full', () => {
  const list: ReadQuery<undefined, string[]> = {
    name: 'list',
    *body(t) {
      return (yield* t.all<{ key: string }>(ofTest('SELECT key FROM meta ORDER BY rowid LIMIT 3'))).map((row) => row.key);
    },
  };

  it('says BUSY beyond 10,000 commands, lets urgent ones pass and takes them first', { timeout: 60_000 }, async () => {
    const { store, tick, rows } = open();
    const waiting = Array.from({ length: 10_000 }, (_, index) => store.write(put, { key: `k${index}` }));
    await expect(store.write(put, { key: 'one more' })).rejects.toMatchObject({ code: 'BUSY' });
    const settled: string[] = [];
    const urgent = ['first', 'second'].map((key) => store.write(put, { key }, { urgent: true }).then((done) => settled.push(done)));
    void waiting[0]!.then((done) => settled.push(done));
    tick();
    await Promise.all([...waiting, ...urgent]);
    expect(settled).toEqual(['first', 'second', 'k0']);
    expect(await store.read(list, undefined)).toEqual(['first', 'second', 'k0']);
    expect(rows()).toBe(10_002);
  });

  it('takes turns between principals, keeps the order of each, and leaves a part of the queue free', { timeout: 60_000 }, async () => {
    const { store, tick } = open();
    const written: string[] = [];
    const write = (by: string, n: number) => store.write(put, { key: `${by}${n}` }, { by }).then(() => written.push(`${by}${n}`));
    const first = Array.from({ length: 5_001 }, (_, n) => write('a', n));
    await expect(first.pop()).rejects.toMatchObject({ code: 'BUSY' });
    const second = Array.from({ length: 2_501 }, (_, n) => write('b', n));
    await expect(second.pop()).rejects.toMatchObject({ code: 'BUSY' });
    first.push(write('c', 0));
    tick();
    await Promise.all([...first, ...second]);
    expect(written.slice(0, 6)).toEqual(['a0', 'b0', 'c0', 'a1', 'b1', 'a2']);
    expect(written.filter((key) => key.startsWith('b'))).toEqual(Array.from({ length: 2_500 }, (_, n) => `b${n}`));
  });

  it('says BUSY beyond 64 MiB, and forgets the bytes when they are written', async () => {
    const { store, tick, rows } = open();
    const mib = 1024 * 1024;
    const waiting = [40, 24].map((size) => store.write(put, { key: `${size}` }, { bytes: size * mib }));
    await expect(store.write(put, { key: 'more' }, { bytes: 1 })).rejects.toMatchObject({ code: 'BUSY' });
    const urgent = store.write(put, { key: 'urgent' }, { urgent: true, bytes: mib });
    tick();
    await Promise.all([...waiting, urgent]);
    const after = store.write(put, { key: 'after' }, { bytes: 64 * mib });
    tick();
    await after;
    expect(rows()).toBe(4);
  });

  it('answers a burst of 100,000: 10,000 are kept, the rest is BUSY and is not kept', { timeout: 60_000 }, async () => {
    const { store, tick, rows } = open({ durability: 'normal' });
    const burst = Array.from({ length: 100_000 }, (_, index) => outcome(store.write(put, { key: `k${index}` })));
    tick();
    const outcomes = await Promise.all(burst);
    expect(outcomes.slice(0, 10_000).every((one, index) => one === `k${index}`)).toBe(true);
    expect(outcomes.slice(10_000).every((one) => one === 'BUSY')).toBe(true);
    expect(rows()).toBe(10_000);
  });
});
