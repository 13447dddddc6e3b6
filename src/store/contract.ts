// The store's contract: writes are named commands whose bodies yield queries; a promise resolves after its commit.

/** What a query may carry: plain data, so that a command can be run in another thread, or again. */
export type Value = string | number | null | Uint8Array;

export interface Query {
  sql: string;
  params: Value[];
  want: 'one' | 'all' | 'run';
}

interface Changed {
  changes: number;
  lastId: number;
}

/** A body yields queries and nothing else, so nothing but the store can be awaited inside a transaction. */
export type Body<R> = Generator<Query, R, unknown>;

/** The queries of a body. Used as `const row = yield* t.one<Row>('SELECT …', id)`; the `yield*` keeps the types. */
export interface Reading {
  one<T>(sql: string, ...params: Value[]): Body<T | undefined>;
  all<T>(sql: string, ...params: Value[]): Body<T[]>;
}

export interface Writing<Event> extends Reading {
  run(sql: string, ...params: Value[]): Body<Changed>;
  /** Runs a part in its own savepoint: if it throws, that part is undone and the rest goes on. */
  attempt<R>(part: Body<R>): Body<{ ok: true; value: R } | { ok: false; error: unknown }>;
  /** I9. Published after the commit, in commit order; forgotten if the command is undone. */
  emit(event: Event): void;
}

/**
 * A write. Ids, times and random values come in with `args`, and the body keeps nothing outside the database, so it may be
 * run again after a conflict.
 */
export interface Command<Args, R, Event> {
  name: string;
  body(t: Writing<Event>, args: Args): Body<R>;
}

export interface ReadQuery<Args, R> {
  name: string;
  body(t: Reading, args: Args): Body<R>;
}

/** `urgent` commands (endings, aborts, heartbeats) go before the others and are never refused as BUSY. */
export interface WriteOptions {
  urgent?: boolean;
  /** About how many bytes the command carries, for the limits of the queue. */
  bytes?: number;
}

export interface Store<Event> {
  /** Resolves after the commit. Rejects with what the body threw, or with a store error when nothing is known to be written. */
  write<Args, R>(command: Command<Args, R, Event>, args: Args, options?: WriteOptions): Promise<R>;
  /** Reads what is committed. */
  read<Args, R>(query: ReadQuery<Args, R>, args: Args): Promise<R>;
  /** Hears the events of each commit, in order. Returns the undo. */
  onCommit(listener: (events: Event[]) => void): () => void;
  close(): Promise<void>;
}

/** Runs a body against something that answers each query at once. */
export function drive<R>(body: Body<R>, answer: (query: Query) => unknown): R {
  let step = body.next();
  while (!step.done) {
    let value: unknown;
    try {
      value = answer(step.value);
    } catch (thrown) {
      step = body.throw(thrown);
      continue;
    }
    step = body.next(value);
  }
  return step.value;
}

export const reading: Reading = {
  *one<T>(sql: string, ...params: Value[]): Body<T | undefined> {
    return (yield { sql, params, want: 'one' }) as T | undefined;
  },
  *all<T>(sql: string, ...params: Value[]): Body<T[]> {
    return (yield { sql, params, want: 'all' }) as T[];
  },
};

/** The writing half, with the events of one run of one command. */
export function writing<Event>(events: Event[]): Writing<Event> {
  let depth = 0;
  return {
    ...reading,
    *run(sql, ...params): Body<Changed> {
      return (yield { sql, params, want: 'run' }) as Changed;
    },
    *attempt(part) {
      const name = `part${depth++}`;
      const before = events.length;
      yield { sql: `SAVEPOINT ${name}`, params: [], want: 'run' };
      try {
        const value = yield* part;
        yield { sql: `RELEASE ${name}`, params: [], want: 'run' };
        return { ok: true, value };
      } catch (error) {
        events.length = before;
        yield { sql: `ROLLBACK TO ${name}`, params: [], want: 'run' };
        yield { sql: `RELEASE ${name}`, params: [], want: 'run' };
        return { ok: false, error };
      } finally {
        depth--;
      }
    },
    emit(event) {
      events.push(event);
    },
  };
}
