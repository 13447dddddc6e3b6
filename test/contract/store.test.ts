// What every store promises, asked of the SQLite store on a real file and of the in-memory twin that runs bodies again at random.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import * as fc from 'fast-check';
import { describe, expect, it, onTestFinished } from 'vitest';
import { InterlaneError } from '../../src/errors.ts';
import type { Body, Command, ReadQuery, Store } from '../../src/store/contract.ts';
import { memoryStore } from '../../src/store/memory.ts';
import { databaseName, openSqliteStore } from '../../src/store/sqlite/open.ts';

interface Opened {
  store: Store<string>;
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
  const store = openSqliteStore<string>(directory, 'full', {
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
  const store = memoryStore<string>({ rerun: 0.5, random });
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

type Put = { key: string; value?: string };

/** Writes one row, answers with how many rows there are now, and says so. */
const put: Command<Put, number, string> = {
  name: 'put',
  *body(t, { key, value = '' }) {
    yield* t.run('INSERT INTO meta (key, value) VALUES (?, ?)', key, value);
    t.emit(key);
    const row = yield* t.one<{ n: number }>('SELECT count(*) AS n FROM meta');
    return row!.n;
  },
};

/** Writes, speaks, and then finds a reason not to. */
const refuse: Command<Put, never, string> = {
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

  it('answers with what the body returned', async () => {
    const { store } = open();
    expect(await Promise.all(['a', 'b', 'c'].map((key) => store.write(put, { key })))).toEqual([1, 2, 3]);
  });

  it('resolves in the order of the calls, which is the order of the commits and of the events', async () => {
    const { store } = open();
    const published: string[] = [];
    const settled: string[] = [];
    store.onCommit((events) => published.push(...events));
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
    store.onCommit((events) => found.push(events.every((key) => seen().includes(key))));
    await Promise.allSettled([store.write(put, { key: 'a' }), store.write(refuse, { key: 'b' }), store.write(put, { key: 'c' })]);
    expect(found.length).toBeGreaterThan(0);
    expect(found).not.toContain(false);
  });

  it('publishes to a listener until it is undone', async () => {
    const { store } = open();
    const heard: string[] = [];
    const undo = store.onCommit((events) => heard.push(...events));
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
    store.onCommit((events) => {
      if (events.includes('a')) more.push(note(settled, 'b', store.write(put, { key: 'b' })));
    });
    store.onCommit((events) => heard.push(...events));
    await note(settled, 'a', store.write(put, { key: 'a' }));
    await Promise.all(more);
    expect(heard).toEqual(['a', 'b']);
    expect(settled).toEqual(['a', 'b']);
  });

  it('rejects a command that refuses, alone and in its turn, with what it threw; nothing of it stays', async () => {
    const { store, seen } = open();
    const published: string[] = [];
    const settled: string[] = [];
    store.onCommit((events) => published.push(...events));
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
    const twice: Command<Put, string, string> = {
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
    store.onCommit((events) => published.push(...events));
    const parts: Command<Put, boolean[], string> = {
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
    const tell: Command<Put, unknown, string> = {
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
    const make: Command<{ id: string; key: string; at: number }, { changes: number; lastId: number }, string> = {
      name: 'makeSession',
      *body(t, { id, key, at }) {
        return yield* t.run(
          `INSERT INTO sessions (id, key, life, current, agent, kind, created_at, last_at) VALUES (?, ?, 1, 1, 'main', 'main', ?, ?)`,
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
    expect(await store.write(make, { id: 's1', key, at: 1_760_000_000_000 })).toEqual({ changes: 1, lastId: 1 });
    expect(await store.read(find, { key })).toEqual({ pk: 1, id: 's1', label: null, next_seq: 1, created_at: 1_760_000_000_000 });
    expect(await store.read(find, { key: 'agent:main:other' })).toBeUndefined();
    // One current life per key is the schema's word, not the body's.
    await expect(store.write(make, { id: 's2', key, at: 1 })).rejects.toMatchObject({ code: 'STORE_FAILED' });
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
    const attempted: Command<Put, void, string> = {
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
        store.onCommit((events) => published.push(...events));
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
