// The store's contract: writes are named commands whose bodies yield queries; a promise resolves after its commit. Several gateways may
// share one store, so a body takes the locks it needs by name, never reads a feed position, and may be run again after a conflict.
import type { FeedEvent } from '../protocol/event.ts';
import type { HookName } from '../protocol/labels.ts';
import type { Pace } from '../pace.ts';

/** What a query may carry: plain data, so that a command can be run in another thread, or again. */
export type Value = string | number | null | Uint8Array;

export interface Query {
  sql: string;
  params: Value[];
  want: 'one' | 'all' | 'run';
}

/** What a command may hold alone until it commits. A lane is a session key, a destination is where deliveries go. */
export type LockName = `lane:${string}` | `dest:${string}` | 'waits';

/** Numbers that only rise: feed positions, and the order in which runs became ready. Gaps are fine. */
export type Counter = 'feed' | 'ready';

/** What a body yields. Queries in an array do not depend on each other and are answered together. */
export type Ask = Query | Query[] | { lock: LockName[]; try: boolean } | { next: Counter; count: number };

/** A body yields asks and nothing else, so nothing but the store can be awaited inside a transaction. */
export type Body<R> = Generator<Ask, R, unknown>;

type Results<Parts extends Body<unknown>[]> = { [K in keyof Parts]: Parts[K] extends Body<infer R> ? R : never };

/** The queries of a body. Used as `const row = yield* t.one<Row>('SELECT …', id)`; the `yield*` keeps the types. */
export interface Reading {
  one<T>(sql: string, ...params: Value[]): Body<T | undefined>;
  all<T>(sql: string, ...params: Value[]): Body<T[]>;
  /** Runs parts that do not depend on each other side by side, so that their queries share round trips. */
  together<Parts extends Body<unknown>[]>(...parts: Parts): Body<Results<Parts>>;
}

/** A row of the feed before it has its position. `moves`: the session goes to the top of lists. */
export interface FeedNote {
  sessionPk: number;
  kind: FeedEvent['kind'];
  refPk: number;
  state: string | null;
  detail: string | null;
  level: number;
  at: number;
  moves: boolean;
}

/** An event before it has its position. */
type Unplaced<Event> = Event extends unknown ? Omit<Event, 'pos'> : never;

export interface Writing<Event extends { pos: number } = FeedEvent> extends Reading {
  /** Rows changed. An INSERT that needs its key uses RETURNING through `one`. */
  run(sql: string, ...params: Value[]): Body<{ changes: number }>;
  /** Until the commit no other command holds one of these names. Several are taken in sorted order; more may be taken later. */
  lock(...names: LockName[]): Body<void>;
  /** Like `lock`, but returns false at once when another command holds the name. */
  tryLock(name: LockName): Body<boolean>;
  /** The next number of a counter, larger than every one given before that is still in use. */
  next(counter: Counter): Body<number>;
  /** Runs a part in its own savepoint: if it throws, that part is undone and the rest goes on. A conflict passes through. */
  attempt<R>(part: Body<R>): Body<{ ok: true; value: R } | { ok: false; error: unknown }>;
  /** I9. A row of the feed and its event. Both get their position as the last thing before the commit, so no body ever sees one. */
  note(row: FeedNote, event: Unplaced<Event>): void;
}

/**
 * A write. Ids, times and random values come in with `args`, which are plain data, and the body keeps nothing outside the database,
 * so it may be run again after a conflict.
 */
export interface Command<Args, R, Event extends { pos: number } = FeedEvent> {
  name: string;
  /** The texts that its body evaluates policy on, if its arguments have them: they are searched before it runs. */
  texts?(args: Args): { hook: HookName; text: string }[];
  body(t: Writing<Event>, args: Args): Body<R>;
}

/** A read. Its body keeps nothing outside, so it may be run again. */
export interface ReadQuery<Args, R> {
  name: string;
  /**
   * For a page: about how many rows it looks through. A page may leave the thread that serves requests, so each of its statements returns
   * at most `statementRows` rows, and texts together of about `statementBytes`. A read without this is short and stays.
   */
  rows?(args: Args): number;
  body(t: Reading, args: Args): Body<R>;
}

/** The most rows that one statement of a page returns. */
export const statementRows = 256;
/** About how many bytes the texts of one statement of a page may have; a single row may have more. */
export const statementBytes = 256 * 1024;

/** A page sees one moment, for at most this long. After that it fails with BUSY, between two statements. */
export const snapshotMs = 2_000;

/** `urgent` commands (endings, aborts, heartbeats) go before the others and are never refused as BUSY. */
export interface WriteOptions {
  urgent?: boolean;
  /** About how many bytes the command carries, for the limits of the queue. */
  bytes?: number;
  /** The principal that asks for it. Each has a share of the queue: beyond it, BUSY is for that one only. */
  by?: string | undefined;
}

export interface StoreLoad {
  /** Of the log that is not yet part of the database file. */
  walBytes: number;
  /** Pages that wait for their turn at the reader, and pages that it is answering. */
  reads: { waiting: number; active: number };
}

export interface Store<Event extends { pos: number } = FeedEvent> {
  /** Resolves after the commit. Rejects with what the body threw, or with a store error when nothing is known to be written. */
  write<Args, R>(command: Command<Args, R, Event>, args: Args, options?: WriteOptions): Promise<R>;
  /**
   * Reads what is committed, as of one moment: at least everything whose write had resolved when this was called. A read for a client has
   * its pace: it stops between statements once the client is gone, and clients take turns.
   */
  read<Args, R>(query: ReadQuery<Args, R>, args: Args, pace?: Pace): Promise<R>;
  /** How busy it is now. */
  load(): StoreLoad;
  /** Every committed event of every gateway, in feed order, each once. Returns the undo. */
  follow(listener: (events: Event[]) => void): () => void;
  close(): Promise<void>;
}

/** Another command was in the way. A store with several writers runs the body again; a caller sees at most BUSY. */
export class Conflict extends Error {
  override readonly name = 'Conflict';
}

/** A body needs something that is made outside of transactions. It is undone as a whole; its caller makes it and runs it again. */
export class Unready extends Error {
  override readonly name = 'Unready';
}

/** Runs a body against something that answers each ask at once. */
export function drive<R>(body: Body<R>, answer: (ask: Ask) => unknown): R {
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

/** The same against something that answers later. */
export async function driveLater<R>(body: Body<R>, answer: (ask: Ask) => Promise<unknown>): Promise<R> {
  let step = body.next();
  while (!step.done) {
    let value: unknown;
    try {
      value = await answer(step.value);
    } catch (thrown) {
      step = body.throw(thrown);
      continue;
    }
    step = body.next(value);
  }
  return step.value;
}

export const isQuery = (ask: Ask): ask is Query => 'sql' in ask;

export const reading: Reading = {
  *one<T>(sql: string, ...params: Value[]): Body<T | undefined> {
    return (yield { sql, params, want: 'one' }) as T | undefined;
  },
  *all<T>(sql: string, ...params: Value[]): Body<T[]> {
    return (yield { sql, params, want: 'all' }) as T[];
  },
  *together<Parts extends Body<unknown>[]>(...parts: Parts): Body<Results<Parts>> {
    let open = parts.map((part, index) => ({ part, index, step: part.next() }));
    const results: unknown[] = [];
    for (;;) {
      for (const { step, index } of open) if (step.done) results[index] = step.value;
      open = open.filter(({ step }) => !step.done);
      if (open.length === 0) return results as Results<Parts>;
      const asks = open.map(({ step }) => step.value as Ask);
      const queries = asks.flatMap((ask) => (Array.isArray(ask) || isQuery(ask) ? ask : []));
      const answers = (yield queries) as unknown[];
      for (const [at, one] of open.entries()) {
        const ask = asks[at]!;
        if (Array.isArray(ask)) one.step = one.part.next(answers.splice(0, ask.length));
        else one.step = one.part.next(isQuery(ask) ? answers.shift() : yield ask);
      }
    }
  },
};

export interface Noted<Event> {
  row: FeedNote;
  event: Unplaced<Event>;
}

/** The writing half, with the notes of one run of one command. */
export function writing<Event extends { pos: number }>(notes: Noted<Event>[]): Writing<Event> {
  let depth = 0;
  return {
    ...reading,
    *run(sql, ...params) {
      return (yield { sql, params, want: 'run' }) as { changes: number };
    },
    *lock(...names) {
      yield { lock: names.length > 1 ? names.toSorted() : names, try: false };
    },
    *tryLock(name) {
      return (yield { lock: [name], try: true }) as boolean;
    },
    *next(counter) {
      return (yield { next: counter, count: 1 }) as number;
    },
    *attempt(part) {
      const name = `part${depth++}`;
      const before = notes.length;
      yield { sql: `SAVEPOINT ${name}`, params: [], want: 'run' };
      try {
        const value = yield* part;
        yield { sql: `RELEASE ${name}`, params: [], want: 'run' };
        return { ok: true, value };
      } catch (error) {
        if (error instanceof Conflict || error instanceof Unready) throw error;
        notes.length = before;
        yield { sql: `ROLLBACK TO ${name}`, params: [], want: 'run' };
        yield { sql: `RELEASE ${name}`, params: [], want: 'run' };
        return { ok: false, error };
      } finally {
        depth--;
      }
    },
    note(row, event) {
      notes.push({ row, event });
    },
  };
}

/** A command's body, and then the positions of what it noted: the last statements before its commit. Returns its result and events. */
export function* complete<Args, R, Event extends { pos: number }>(
  command: Command<Args, R, Event>,
  args: Args,
  place: (t: Writing<Event>, notes: readonly { row: FeedNote }[], first: number) => Body<void>,
): Body<{ result: R; events: Event[] }> {
  const notes: Noted<Event>[] = [];
  const t = writing(notes);
  const result = yield* command.body(t, args);
  if (notes.length === 0) return { result, events: [] };
  const last = (yield { next: 'feed', count: notes.length }) as number;
  const first = last - notes.length + 1;
  yield* place(t, notes, first);
  return { result, events: notes.map(({ event }, index) => ({ pos: first + index, ...event }) as unknown as Event) };
}
