// The thread that answers the queries of heavy reads: read-only connections, one for each read that is under way.
import { parentPort, workerData } from 'node:worker_threads';
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { reasonOf } from '../../errors.ts';
import type { Query } from '../contract.ts';
import { planned, sqliteCode } from './database.ts';
import type { FromReader, Table, ToReader } from './reader-thread.ts';

const { path } = workerData as { path: string };
/** A reader meets a lock only while a log is begun anew. */
const lockMs = 250;

interface Opened {
  database: DatabaseSync;
  statements: Map<string, { statement: StatementSync; columns: string[] }>;
}

const connections = new Map<number, Opened>();

parentPort!.on('message', (message: ToReader) => {
  if ('stop' in message) {
    for (const { database } of connections.values()) database.close();
    parentPort!.close();
  } else if ('end' in message) {
    const { database } = connections.get(message.end) ?? {};
    if (database?.isTransaction) database.exec('COMMIT');
  } else parentPort!.postMessage(answerTo(message));
});

function answerTo({ id, slot, queries }: Extract<ToReader, { queries: Query[] }>): FromReader {
  try {
    const opened = connections.get(slot) ?? open(slot);
    // The snapshot begins with the first query after this, and so after everything that was committed before the read was asked for.
    if (!opened.database.isTransaction) opened.database.exec('BEGIN');
    return { id, answers: queries.map((query) => answer(opened, query)) };
  } catch (thrown) {
    return { id, error: reasonOf(thrown), code: sqliteCode(thrown) };
  }
}

/** Rows without their names: half the cost of crossing over. */
function answer(opened: Opened, { sql, params, want }: Query): Table {
  let prepared = opened.statements.get(sql);
  if (!prepared) {
    const statement = opened.database.prepare(planned(sql));
    statement.setReturnArrays(true);
    prepared = { statement, columns: statement.columns().map(({ name }) => name) };
    opened.statements.set(sql, prepared);
  }
  const { statement, columns } = prepared;
  if (want === 'all') return { columns, rows: statement.all(...params) as unknown as unknown[][] };
  const row = statement.get(...params) as unknown as unknown[] | undefined;
  return { columns, rows: row ? [row] : [] };
}

function open(slot: number): Opened {
  const database = new DatabaseSync(path, { readOnly: true, timeout: lockMs });
  database.exec('PRAGMA cache_size = -4096; PRAGMA temp_store = MEMORY');
  const opened = { database, statements: new Map() };
  connections.set(slot, opened);
  return opened;
}
