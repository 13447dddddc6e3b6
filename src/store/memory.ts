// The in-memory twin: the same SQL on a database in memory, whose commands are undone and run again at random.
import { InterlaneError } from '../errors.ts';
import { drive, reading, writing, type Command, type ReadQuery, type Store } from './contract.ts';
import { asStoreError, openDatabase, type Connection } from './sqlite/database.ts';

export interface MemoryOptions {
  /** Chance, 0 to 1, that a command's body is first run and undone. A body that keeps anything outside the database shows it then. */
  rerun: number;
  /** 0 ≤ x < 1; seeded in tests. */
  random(): number;
}

/** Every command is its own transaction. Nothing survives the process. */
export function memoryStore<Event>(options: MemoryOptions): Store<Event> {
  const connection = openDatabase(':memory:', { durability: 'normal' });
  const listeners = new Set<(events: Event[]) => void>();
  let closed = false;
  const refuseClosed = () => {
    if (closed) throw new InterlaneError('UNAVAILABLE', 'store is closed; the gateway is stopping');
  };
  return {
    async write<Args, R>(command: Command<Args, R, Event>, args: Args): Promise<R> {
      refuseClosed();
      await Promise.resolve(); // as in the other stores, nothing is written within the call, and a listener's write follows its event
      if (options.random() < options.rerun) {
        transaction(connection, 'ROLLBACK', () =>
          drive(command.body(writing<Event>([]), structuredClone(args)), (query) => connection.answer(query)),
        );
      }
      const events: Event[] = [];
      let result: R;
      try {
        result = transaction(connection, 'COMMIT', () => drive(command.body(writing(events), args), (query) => connection.answer(query)));
      } catch (thrown) {
        throw asStoreError(thrown, command.name);
      }
      if (events.length > 0) for (const listener of listeners) listener(events);
      return result;
    },
    // oxlint-disable-next-line require-await -- asynchronous by contract
    async read<Args, R>(query: ReadQuery<Args, R>, args: Args): Promise<R> {
      refuseClosed();
      connection.database.exec('PRAGMA query_only = ON');
      try {
        return drive(query.body(reading, args), (one) => connection.answer(one));
      } finally {
        connection.database.exec('PRAGMA query_only = OFF');
      }
    },
    onCommit(listener) {
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

function transaction<R>(connection: Connection, end: 'COMMIT' | 'ROLLBACK', work: () => R): R {
  connection.database.exec('BEGIN');
  try {
    const result = work();
    connection.database.exec(end);
    return result;
  } catch (thrown) {
    if (connection.database.isTransaction) connection.database.exec('ROLLBACK');
    if (end === 'ROLLBACK') return undefined as R; // the real run will say the same
    throw thrown;
  }
}
