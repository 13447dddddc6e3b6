// What every store promises, asked of the SQLite store on a real file and of the in-memory twin that runs bodies again at random.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import * as fc from 'fast-check';
import { describe, expect, it, onTestFinished } from 'vitest';
import { InterlaneError } from '../../src/errors.ts';
import { Conflict, type Body, type Command, type ReadQuery, type Store, type Writing } from '../../src/store/contract.ts';
import { memoryStore } from '../../src/store/memory.ts';
import { openTimeline } from '../../src/store/tables/meta.ts';
import { databaseName } from '../../src/store/sqlite/files.ts';
import { openSqliteStore } from '../../src/store/sqlite/open.ts';

interface Opened {
  store: Store<Said>;
  /** The keys in `meta` as somebody else sees them: only what is committed. */
  seen: () => string[];
}

const keysOf = (database: DatabaseSync) =>
  database
    .prepare('SELECT key FROM meta ORDER BY key')
    .all()
    .map((row) => String(row['key']));

function sqlite(): Opened {
  const directory = mkdtempSync(join(tmpdir(), 'interlane-contract-'));
  const store = openSqliteStore<Said>(directory, 'full', {
    afterTick: (work) => void setImmediate(work),
    elapsed: () => 0,
    fatal: (error) => {
      throw error;
    },
  });
  const other = new DatabaseSync(join(directory, databaseName), { readOnly: true });
  onTestFinished(async () => {
    await store.close();
    other.close();
    rmSync(directory, { recursive: true });
  });
  return { store, seen: () => keysOf(other) };
}

function memory(): Opened {
  let seed = 1;
  const random = () => (seed = (seed * 48_271) % 2_147_483_647) / 2_147_483_647;
  const store = memoryStore<Said>({ rerun: 0.5, random });
  onTestFinished(() => store.close());
  // Nobody else can look into it, so a synchronous peek at what a read finds has to do.
  const seen = () => {
    const found: string[] = [];
    void store.read({ ...listKeys, body: collect }, found);
    return found;
  };
  function* collect(t: Parameters<typeof listKeys.body>[0], found: string[]): Body<void> {
    found.push(...(yield* listKeys.body(t, undefined)));
  }
  return { store, seen };
}

/** An event, and the row of the feed that goes with it. */
type Said = { pos: number; key: string };
const said = (key: string): Parameters<Writing<Said>['note']> => [
  { sessionPk: 0, kind: 'session', refPk: 0, state: null, detail: null, level: 0, at: 0, moves: false },
  { key },
];

type Put = { key: string; value?: string };

/** Writes one row, answers with how many rows there are now, and says so. */
const put: Command<Put, number, Said> = {
  name: 'put',
  *body(t, { key, value = '' }) {
    yield* t.run('INSERT INTO meta (key, value) VALUES (?, ?)', key, value);
    t.note(...said(key));
    const row = yield* t.one<{ n: number }>('SELECT count(*) AS n FROM meta');
    return row!.n;
  },
};

/** Writes, speaks, and then finds a reason not to. */
const refuse: Command<Put, never, Said> = {
  name: 'refuse',
  *body(t, { key }) {
    yield* put.body(t, { key });
    throw new InterlaneError('QUEUE_FULL', `lane ${key} is full; wait`);
  },
};

const listKeys: ReadQuery<undefined, string[]> = {
  name: 'listKeys',
  *body(t) {
    const rows = yield* t.all<{ key: string }>('SELECT key FROM meta ORDER BY key');
    return rows.map((row) => row.key);
  },
};

/** Every promise ends up in the list the moment it settles. */
function note(into: string[], name: string, promise: Promise<unknown>): Promise<void> {
  return promise.then(
    () => void into.push(name),
    (error: unknown) => void into.push(`${name}: ${error instanceof InterlaneError ? error.code : String(error)}`),
  );
}

describe.each([
  ['the SQLite store', sqlite],
  ['the in-memory twin', memory],
])('%s', (_, open) => {
  it('resolves a write after its commit: others see it then, and not before', async () => {
    const { store, seen } = open();
    const written = store.write(put, { key: 'a' });
    expect(seen()).toEqual([]);
    await written;
    expect(seen()).toEqual(['a']);
  });

  it('a page sees one moment and everything acknowledged before it, whatever others write meanwhile', async () => {
    const { store } = open();
    await store.write(put, { key: 'before' });
    const writes: Promise<unknown>[] = [];
    const counts = await store.read(
      {
        name: 'counts',
        rows: () => 1_000_000,
        *body(t): Body<number[]> {
          const seen: number[] = [];
          for (let n = 0; n < 20; n++) {
            seen.push((yield* t.one<{ n: number }>('SELECT count(*) AS n FROM meta'))!.n);
            writes.push(store.write(put, { key: `${writes.length}` }));
          }
          return seen;
        },
      },
      {},
    );
    await Promise.all(writes);
    expect(counts).toEqual(Array.from({ length: 20 }, () => 1));
    expect((await store.read(listKeys, undefined)).length).toBe(writes.length + 1);
  });

  it('a page of a client that is gone stops between two statements', async () => {
    const { store } = open();
    const gone = new AbortController();
    const pace = { client: {}, signal: gone.signal, pause: () => Promise.resolve() };
    let statements = 0;
    const endless: ReadQuery<object, void> = {
      name: 'endless',
      rows: () => 1_000_000,
      *body(t) {
        for (; statements < 1_000; statements++) {
          yield* listKeys.body(t, undefined);
          if (statements === 2) gone.abort(new InterlaneError('UNAVAILABLE', 'connection is gone'));
        }
      },
    };
    await expect(store.read(endless, {}, pace)).rejects.toMatchObject({ code: 'UNAVAILABLE' });
    expect(statements).toBe(3);
    await expect(store.read(endless, {}, pace)).rejects.toMatchObject({ code: 'UNAVAILABLE' });
  });

  it('begins one timeline and keeps it, also when several ask at once', async () => {
    const { store } = open();
    // The command has no events of its own, so it fits a store of any.
    const begin = openTimeline as unknown as Command<{ fresh: string }, string, Said>;
    expect(await Promise.all(['one', 'two', 'three'].map((fresh) => store.write(begin, { fresh })))).toEqual(['one', 'one', 'one']);
    expect(await store.write(begin, { fresh: 'four' })).toBe('one');
  });

  it('answers with what the body returned', async () => {
    const { store } = open();
    expect(await Promise.all(['a', 'b', 'c'].map((key) => store.write(put, { key })))).toEqual([1, 2, 3]);
  });

  it('resolves in the order of the calls, which is the order of the commits and of the events', async () => {
    const { store } = open();
    const published: string[] = [];
    const settled: string[] = [];
    store.follow((events) => published.push(...events.map(({ key }) => key)));
    const keys = Array.from({ length: 600 }, (_, index) => `k${index}`);
    const counts: number[] = [];
    await Promise.all(
      keys.map((key) =>
        note(
          settled,
          key,
          store.write(put, { key }).then((n) => counts.push(n)),
        ),
      ),
    );
    expect(settled).toEqual(keys);
    expect(published).toEqual(keys);
    expect(counts).toEqual(keys.map((_key, index) => index + 1));
  });

  it('publishes after the commit: a listener finds the row, and hears of nothing that is not there', async () => {
    const { store, seen } = open();
    const found: boolean[] = [];
    store.follow((events) => found.push(events.every(({ key }) => seen().includes(key))));
    await Promise.allSettled([store.write(put, { key: 'a' }), store.write(refuse, { key: 'b' }), store.write(put, { key: 'c' })]);
    expect(found.length).toBeGreaterThan(0);
    expect(found).not.toContain(false);
  });

  it('publishes to a listener until it is undone', async () => {
    const { store } = open();
    const heard: string[] = [];
    const undo = store.follow((events) => heard.push(...events.map(({ key }) => key)));
    await store.write(put, { key: 'a' });
    undo();
    await store.write(put, { key: 'b' });
    expect(heard).toEqual(['a']);
  });

  it('lets a listener write: what it writes comes after what it heard, for every listener', async () => {
    const { store } = open();
    const heard: string[] = [];
    const settled: string[] = [];
    const more: Promise<void>[] = [];
    store.follow((events) => {
      if (events.some(({ key }) => key === 'a')) more.push(note(settled, 'b', store.write(put, { key: 'b' })));
    });
    store.follow((events) => heard.push(...events.map(({ key }) => key)));
    await note(settled, 'a', store.write(put, { key: 'a' }));
    await Promise.all(more);
    expect(heard).toEqual(['a', 'b']);
    expect(settled).toEqual(['a', 'b']);
  });

  it('rejects a command that refuses, alone and in its turn, with what it threw; nothing of it stays', async () => {
    const { store, seen } = open();
    const published: string[] = [];
    const settled: string[] = [];
    store.follow((events) => published.push(...events.map(({ key }) => key)));
    await Promise.all([
      note(settled, 'a', store.write(put, { key: 'a' })),
      note(settled, 'no', store.write(refuse, { key: 'no' })),
      note(settled, 'b', store.write(put, { key: 'b' })),
    ]);
    expect(settled).toEqual(['a', 'no: QUEUE_FULL', 'b']);
    expect(published).toEqual(['a', 'b']);
    expect(seen()).toEqual(['a', 'b']);
  });

  it('rejects a broken constraint with a store error that names the command', async () => {
    const { store, seen } = open();
    await store.write(put, { key: 'a' });
    await expect(store.write(put, { key: 'a' })).rejects.toMatchObject({
      code: 'STORE_FAILED',
      message: expect.stringMatching(/^store refused "put": .*meta\.key/),
    });
    expect(seen()).toEqual(['a']);
  });

  it('lets a body live with a broken constraint and go on', async () => {
    const { store, seen } = open();
    const twice: Command<Put, string, Said> = {
      name: 'twice',
      *body(t, { key }) {
        yield* put.body(t, { key });
        try {
          yield* put.body(t, { key });
        } catch {
          yield* put.body(t, { key: `${key}2` });
        }
        return 'went on';
      },
    };
    expect(await store.write(twice, { key: 'a' })).toBe('went on');
    expect(seen()).toEqual(['a', 'a2']);
  });

  it('undoes only the attempted part that failed, with its events, also when attempts are nested', async () => {
    const { store, seen } = open();
    const published: string[] = [];
    store.follow((events) => published.push(...events.map(({ key }) => key)));
    const parts: Command<Put, boolean[], Said> = {
      name: 'parts',
      *body(t) {
        yield* put.body(t, { key: '1 before' });
        const bad = yield* t.attempt(refuse.body(t, { key: '2 bad' }));
        const good = yield* t.attempt(put.body(t, { key: '3 good' }));
        const outer = yield* t.attempt(
          (function* (): Body<boolean> {
            yield* put.body(t, { key: '4 outer' });
            const inner = yield* t.attempt(refuse.body(t, { key: '5 inner' }));
            yield* put.body(t, { key: '6 outer' });
            return inner.ok;
          })(),
        );
        const undone = yield* t.attempt(
          (function* (): Body<void> {
            yield* t.attempt(put.body(t, { key: '7 kept in what is undone' }));
            throw new Error('no');
          })(),
        );
        yield* put.body(t, { key: '8 after' });
        return [bad.ok, good.ok, outer.ok && outer.value, undone.ok];
      },
    };
    expect(await store.write(parts, { key: '' })).toEqual([false, true, false, false]);
    const kept = ['1 before', '3 good', '4 outer', '6 outer', '8 after'];
    expect(seen()).toEqual(kept);
    expect(published).toEqual(kept);
  });

  it('hands the error of a failed part to the body', async () => {
    const { store } = open();
    const tell: Command<Put, unknown, Said> = {
      name: 'tell',
      *body(t, { key }) {
        const part = yield* t.attempt(refuse.body(t, { key }));
        return part.ok ? undefined : (part.error as InterlaneError).code;
      },
    };
    expect(await store.write(tell, { key: 'a' })).toBe('QUEUE_FULL');
  });

  it('reads what is committed, in the spelling of the schema', async () => {
    const { store } = open();
    const make: Command<{ id: string; key: string; at: number }, { pk: number } | undefined, Said> = {
      name: 'makeSession',
      *body(t, { id, key, at }) {
        yield* t.lock(`lane:${key}`);
        return yield* t.one<{ pk: number }>(
          `INSERT INTO sessions (id, key, life, current, agent, kind, created_at, last_at) VALUES (?, ?, 1, 1, 'main', 'main', ?, ?) RETURNING pk`,
          id,
          key,
          at,
          at,
        );
      },
    };
    const find: ReadQuery<{ key: string }, unknown> = {
      name: 'findSession',
      *body(t, { key }) {
        return yield* t.one('SELECT pk, id, label, next_seq, created_at FROM sessions WHERE key = ? AND current = 1', key);
      },
    };
    const key = 'agent:main:main';
    expect(await store.write(make, { id: 's1', key, at: 1_760_000_000_000 })).toEqual({ pk: 1 });
    expect(await store.read(find, { key })).toEqual({ pk: 1, id: 's1', label: null, next_seq: 1, created_at: 1_760_000_000_000 });
    expect(await store.read(find, { key: 'agent:main:other' })).toBeUndefined();
    // One current life per key is the schema's word, not the body's.
    await expect(store.write(make, { id: 's2', key, at: 1 })).rejects.toMatchObject({ code: 'STORE_FAILED' });
  });

  it('gives events their positions at the commit: in order, rising, and the same in the feed', async () => {
    const { store } = open();
    const published: Said[] = [];
    store.follow((events) => published.push(...events));
    await Promise.all(['a', 'b', 'c'].map((key) => store.write(put, { key })));
    const feed: ReadQuery<undefined, number[]> = {
      name: 'feed',
      *body(t) {
        return (yield* t.all<{ pos: number }>('SELECT pos FROM feed ORDER BY pos')).map((row) => row.pos);
      },
    };
    const positions = published.map(({ pos }) => pos);
    expect(published.map(({ key }) => key)).toEqual(['a', 'b', 'c']);
    expect(positions).toEqual(positions.toSorted((one, other) => one - other));
    expect(new Set(positions).size).toBe(3);
    expect(await store.read(feed, undefined)).toEqual(positions);
  });

  it('gives numbers of a counter that only rise', async () => {
    const { store } = open();
    const draw: Command<object, number, Said> = { name: 'draw', body: (t) => t.next('ready') };
    const drawn = [await store.write(draw, {}), await store.write(draw, {}), await store.write(draw, {})];
    expect(drawn[0]).toBeLessThan(drawn[1]!);
    expect(drawn[1]).toBeLessThan(drawn[2]!);
  });

  it('grants locks by name, in any number, and again', async () => {
    const { store } = open();
    const locking: Command<object, boolean, Said> = {
      name: 'locking',
      *body(t) {
        yield* t.lock('lane:b', 'lane:a', 'waits');
        yield* t.lock();
        yield* t.lock('lane:a');
        return yield* t.tryLock('dest:x');
      },
    };
    expect(await store.write(locking, {})).toBe(true);
  });

  it('answers independent queries together, whatever their number of steps', async () => {
    const { store } = open();
    await store.write(put, { key: 'a', value: '1' });
    await store.write(put, { key: 'b', value: '2' });
    const both: ReadQuery<undefined, unknown> = {
      name: 'both',
      *body(t) {
        function* value(key: string): Body<string> {
          return (yield* t.one<{ value: string }>('SELECT value FROM meta WHERE key = ?', key))!.value;
        }
        function* sum(): Body<number> {
          return Number(yield* value('a')) + Number(yield* value('b'));
        }
        // oxlint-disable-next-line require-yield -- a part that asks nothing
        function* nothing(): Body<string> {
          return 'nothing';
        }
        return yield* t.together(sum(), value('b'), nothing(), t.together(value('a'), value('b')));
      },
    };
    expect(await store.read(both, undefined)).toEqual([3, '2', 'nothing', ['1', '2']]);
  });

  it('lets a conflict pass through an attempt, and never shows it to a caller', async () => {
    const { store, seen } = open();
    const swallowing: Command<Put, string, Said> = {
      name: 'swallowing',
      *body(t, { key }) {
        function* part(): Body<void> {
          yield* put.body(t, { key });
          throw new Conflict('two at once');
        }
        const tried = yield* t.attempt(part());
        return tried.ok ? 'kept' : 'caught';
      },
    };
    await expect(store.write(swallowing, { key: 'a' })).rejects.toMatchObject({ code: 'BUSY' });
    expect(seen()).toEqual([]);
  });

  it('does not let a read change anything', async () => {
    const { store, seen } = open();
    await store.write(put, { key: 'a' });
    const sneaky: ReadQuery<undefined, unknown> = {
      name: 'sneaky',
      *body(t) {
        return yield* t.all('DELETE FROM meta RETURNING key');
      },
    };
    await expect(store.read(sneaky, undefined)).rejects.toThrow('readonly');
    expect(seen()).toEqual(['a']);
  });

  it('commits what was written before it was closed, and refuses what comes after', async () => {
    const { store } = open();
    const settled: string[] = [];
    const before = note(settled, 'before', store.write(put, { key: 'a' }));
    await Promise.all([before, store.close()]);
    expect(settled).toEqual(['before']);
    await expect(store.write(put, { key: 'b' })).rejects.toMatchObject({ code: 'UNAVAILABLE' });
    await expect(store.write(put, { key: 'c' }, { urgent: true })).rejects.toMatchObject({ code: 'UNAVAILABLE' });
    await expect(store.read(listKeys, undefined)).rejects.toMatchObject({ code: 'UNAVAILABLE' });
    await store.close();
  });

  it('keeps exactly what it acknowledged, whatever the mixture', { timeout: 60_000 }, async () => {
    const step = fc.record({ key: fc.integer({ min: 0, max: 12 }).map(String), kind: fc.constantFrom('put', 'refuse', 'attempt') });
    const attempted: Command<Put, void, Said> = {
      name: 'attempted',
      *body(t, { key }) {
        yield* t.attempt(refuse.body(t, { key: `never ${key}` }));
        yield* put.body(t, { key });
      },
    };
    const commands = { put, refuse, attempt: attempted };
    await fc.assert(
      fc.asyncProperty(fc.array(step, { maxLength: 30 }), async (steps) => {
        const { store, seen } = open();
        const published: string[] = [];
        const acknowledged: string[] = [];
        store.follow((events) => published.push(...events.map(({ key }) => key)));
        await Promise.all(
          steps.map(({ key, kind }) =>
            store.write<Put, unknown>(commands[kind], { key }).then(
              () => void acknowledged.push(key),
              () => {},
            ),
          ),
        );
        expect(published).toEqual(acknowledged);
        expect(seen()).toEqual(acknowledged.toSorted());
        const wanted = steps.filter(({ kind }) => kind !== 'refuse').map(({ key }) => key);
        expect(acknowledged).toEqual([...new Set(wanted)]);
        await store.close();
      }),
      { numRuns: 60 },
    );
  });
});

describe('the in-memory twin keeps bodies honest', () => {
  const always = () => memoryStore<Said>({ rerun: 1, random: () => 0.2 });

  it('runs every command again', async () => {
    const store = always();
    let runs = 0;
    const counting: Command<object, number, Said> = {
      name: 'counting',
      *body(t) {
        runs++;
        return (yield* t.one<{ n: number }>('SELECT count(*) AS n FROM meta'))!.n;
      },
    };
    await store.write(counting, {});
    expect(runs).toBe(2);
    await store.close();
  });

  it('refuses arguments that are not plain data, and says which', async () => {
    const store = memoryStore<Said>();
    const odd: Command<object, void, Said> = { name: 'odd', body: (t) => t.lock() };
    const oddities = [{ world: new Map() }, { deep: [{ call: () => 1 }] }, { at: new Date(0) }, { id: Symbol('x') }];
    for (const args of oddities) await expect(store.write(odd, args)).rejects.toMatchObject({ code: 'INTERNAL' });
    await expect(store.write(odd, { deep: [{ call: () => 1 }] })).rejects.toThrow('args.deep[0].call');
    await store.write(odd, { text: 'a', list: [1, null, true, undefined], bytes: new Uint8Array(2), nested: { row: { pk: 1 } } });
    await store.close();
  });

  it('refuses a body that goes on after a conflict', async () => {
    const store = memoryStore<Said>({ rerun: 1, random: () => 0 });
    const stubborn: Command<object, void, Said> = {
      name: 'stubborn',
      *body(t) {
        for (let tries = 0; tries < 3; tries++) {
          try {
            yield* t.all('SELECT * FROM meta ORDER BY key');
            return;
          } catch {
            // goes on
          }
        }
      },
    };
    await store.write(stubborn, {}).then(
      () => expect.unreachable(),
      (error: unknown) => expect(String(error)).toContain('went on after a conflict'),
    );
    await store.close();
  });

  it.each([
    [
      'sessions',
      `INSERT INTO sessions (id, key, life, current, agent, kind, created_at, last_at) VALUES ('s', 'k', 1, 1, 'a', 'main', 0, 0)`,
      'lane:k',
    ],
    ['runs', `INSERT INTO runs (id, session_pk, lane, class, deliver, queued_at) VALUES ('r', 1, 'k', 'main', 0, 0)`, 'lane:k'],
    [
      'deliveries',
      `INSERT INTO deliveries (id, session_pk, cause, cause_pk, part, dest_key, channel, recipient, taint, text, due_at, first_at)
       VALUES ('d', 1, 'reply', 1, 0, 'k', 'c', 'r', 0, '', 0, 0)`,
      'dest:k',
    ],
  ] as const)('refuses a write to %s without its lock', async (_, sql, lock) => {
    const store = memoryStore<Said>();
    const write: Command<{ locked: boolean }, void, Said> = {
      name: 'write',
      *body(t, { locked }) {
        if (locked) yield* t.lock(lock);
        yield* t.run(sql);
      },
    };
    await expect(store.write(write, { locked: false })).rejects.toThrow(`lock ${lock} is not held`);
    await store.write(write, { locked: true });
    await store.close();
  });
});
