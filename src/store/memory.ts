// The in-memory twin: the same SQL on a database in memory. It keeps bodies honest: commands are undone and run again at random, their
// arguments must be plain data, and a write to a run, a session or a delivery needs the lock of its lane or destination.
import { InterlaneError } from '../errors.ts';
import type { Pace } from '../pace.ts';
import type { FeedEvent } from '../protocol/event.ts';
import {
  complete,
  Conflict,
  drive,
  isQuery,
  reading,
  statementBytes,
  statementRows,
  type Ask,
  type Body,
  type Command,
  type LockName,
  type ReadQuery,
  type Store,
} from './contract.ts';
import { firstOfCounters } from './counters.ts';
import { asStoreError, openDatabase, type Connection } from './sqlite/database.ts';
import { place } from './tables/feed.ts';

export interface MemoryOptions {
  /** Chance, 0 to 1, that a command meets a conflict and is run again. A body that keeps anything outside the database shows it then. */
  rerun?: number;
  /** 0 ≤ x < 1; seeded in tests. */
  random?(): number;
}

/** Every command is its own transaction. Nothing survives the process. */
export function memoryStore<Event extends { pos: number } = FeedEvent>({
  rerun = 0,
  random = () => 0.5,
}: MemoryOptions = {}): Store<Event> {
  const connection = openDatabase(':memory:', { durability: 'normal' });
  const held = new Set<LockName>();
  watchLocks(connection, held);
  const listeners = new Set<(events: Event[]) => void>();
  const counters = drive(firstOfCounters(reading), (ask) => answer(ask));
  let closed = false;
  const refuseClosed = () => {
    if (closed) throw new InterlaneError('UNAVAILABLE', 'store is closed; the gateway is stopping');
  };

  function answer(ask: Ask): unknown {
    if (Array.isArray(ask)) return ask.map((query) => connection.answer(query));
    if (isQuery(ask)) return connection.answer(ask);
    if ('lock' in ask) {
      for (const name of ask.lock) held.add(name);
      return true;
    }
    return (counters[ask.next] += ask.count);
  }

  /** One attempt at a command, with its own copy of the arguments. With `until` it meets a conflict at that ask, or else at its commit. */
  function attempt<Args, R>(command: Command<Args, R, Event>, args: Args, until?: number): { result: R; events: Event[] } {
    let asks = 0;
    let met = false;
    held.clear();
    connection.database.exec('BEGIN');
    try {
      const done = drive(complete(command, structuredClone(args), place), (ask) => {
        if (asks++ === until) {
          met = true;
          throw new Conflict('made up, to run the body again');
        }
        return answer(ask);
      });
      if (met) throw new InterlaneError('INTERNAL', `command "${command.name}" went on after a conflict; only the store may catch one`);
      if (until !== undefined) throw new Conflict('made up, to run the body again');
      connection.database.exec('COMMIT');
      return done;
    } catch (thrown) {
      if (connection.database.isTransaction) connection.database.exec('ROLLBACK');
      throw thrown;
    } finally {
      held.clear();
    }
  }

  return {
    async write<Args, R>(command: Command<Args, R, Event>, args: Args): Promise<R> {
      refuseClosed();
      refuseOddities(command.name, args);
      await Promise.resolve(); // as in the other stores, nothing is written within the call, and a listener's write follows its event
      if (random() < rerun) inVain(() => attempt(command, args, Math.floor(random() * 40)));
      let done: { result: R; events: Event[] };
      try {
        done = attempt(command, args);
      } catch (thrown) {
        throw asStoreError(thrown, command.name);
      }
      if (done.events.length > 0) for (const listener of listeners) listener(done.events);
      return done.result;
    },
    // oxlint-disable-next-line require-await -- asynchronous by contract
    async read<Args, R>(query: ReadQuery<Args, R>, args: Args, pace?: Pace): Promise<R> {
      refuseClosed();
      connection.database.exec('PRAGMA query_only = ON');
      try {
        const ask = (asked: Ask) => {
          pace?.signal.throwIfAborted();
          return query.rows ? watched(query.name, asked, answer(asked)) : answer(asked);
        };
        // Another store begins a page again elsewhere when it is long.
        if (query.rows && random() < rerun) interrupted(query.body(reading, args), ask, Math.floor(random() * 4));
        return drive(query.body(reading, args), ask);
      } finally {
        connection.database.exec('PRAGMA query_only = OFF');
      }
    },
    load: () => ({ walBytes: 0, reads: { waiting: 0, active: 0 } }),
    follow(listener) {
      listeners.add(listener);
      return () => void listeners.delete(listener);
    },
    async close() {
      if (closed) return;
      closed = true;
      await Promise.resolve(); // what was written before is still committed
      connection.close();
    },
  };
}

/** A conflict undoes the attempt; a refusal comes before it, and the real run says the same. */
function inVain(attempt: () => unknown): void {
  try {
    attempt();
  } catch (thrown) {
    if (thrown instanceof InterlaneError && thrown.code === 'INTERNAL') throw thrown;
  }
}

/** A body that is left before its end. */
function interrupted(body: Body<unknown>, answer: (ask: Ask) => unknown, after: number): void {
  let step = body.next();
  for (let asks = 0; asks < after && !step.done; asks++) step = body.next(answer(step.value));
  body.return(undefined);
}

/** A statement of a page cannot be interrupted, so it answers with few rows and few bytes. */
function watched(name: string, ask: Ask, answer: unknown): unknown {
  const queries = Array.isArray(ask) ? ask : isQuery(ask) ? [ask] : [];
  const answers = Array.isArray(ask) ? (answer as unknown[]) : [answer];
  for (const [index, rows] of answers.entries()) {
    if (!Array.isArray(rows)) continue;
    const bytes = rows.reduce<number>((sum, row) => sum + textOf(row as Record<string, unknown>), 0);
    if (rows.length > statementRows || (rows.length > 1 && bytes > 4 * statementBytes))
      throw new InterlaneError(
        'INTERNAL',
        `page "${name}" got ${rows.length} rows of ${bytes} characters at once from ${queries[index]!.sql}`,
      );
  }
  return answer;
}

function textOf(row: Record<string, unknown>): number {
  return Object.values(row).reduce<number>((sum, value) => sum + (typeof value === 'string' ? value.length : 8), 0);
}

/** Arguments travel to other threads and are used again, so they are plain data: nothing with a behaviour, nothing shared. */
function refuseOddities(command: string, value: unknown, path = 'args'): void {
  if (value === null || ['string', 'number', 'boolean', 'undefined'].includes(typeof value) || value instanceof Uint8Array) return;
  if (Array.isArray(value)) {
    for (const [index, one] of value.entries()) refuseOddities(command, one, `${path}[${index}]`);
    return;
  }
  const plain = typeof value === 'object' && [Object.prototype, null].includes(Object.getPrototypeOf(value) as object | null);
  if (!plain) throw new InterlaneError('INTERNAL', `command "${command}": ${path} is not plain data`);
  for (const [name, one] of Object.entries(value)) refuseOddities(command, one, `${path}.${name}`);
}

/** Lock discipline, checked by the database itself at every write. */
function watchLocks(connection: Connection, held: Set<LockName>): void {
  const { database } = connection;
  database.function('must_hold', { varargs: false }, (kind, name) => {
    const lock = `${String(kind)}:${String(name)}` as LockName;
    if (!held.has(lock)) throw new InterlaneError('INTERNAL', `lock ${lock} is not held; take it first with t.lock`);
    return 1;
  });
  const watched = [
    ['runs', 'lane', 'lane'],
    ['sessions', 'lane', 'key'],
    ['deliveries', 'dest', 'dest_key'],
  ] as const;
  for (const [table, kind, column] of watched)
    for (const [event, row] of [
      ['INSERT', 'NEW'],
      ['UPDATE', 'OLD'],
      ['DELETE', 'OLD'],
    ] as const)
      database.exec(
        `CREATE TEMP TRIGGER ${table}_${event.toLowerCase()}_locked BEFORE ${event} ON ${table} BEGIN SELECT must_hold('${kind}', ${row}.${column}); END`,
      );
}
