// A look at a state directory without changing anything: whether its store is whole, who holds it, and a snapshot to read from.
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { InterlaneError, reasonOf } from '../../errors.ts';
import { isThere, requireReadable } from '../../there.ts';
import { drive, reading, type Body, type Reading } from '../contract.ts';
import { applicationId, migrations } from '../migrations.ts';
import { Connection, damaged, explain, openForReading, refuseLostKeys, sqliteCode } from './database.ts';
import { refuseLostStore } from './missing.ts';
import { databaseName } from './files.ts';

const waitMs = 10_000;
const busy = 5;
const corrupt = 11;

/** A complete check reads every index, about 100 MB a second; a larger database gets the quick check, which reads only its tables. */
const mostChecked = 512 * 1024 ** 2;

/** Undefined when there is no store yet. Throws what is wrong with it. `long` is called before a check that takes more than a second. */
export function inspectStore(
  stateDir: string,
  long: (bytes: number) => void = () => {},
): { file: string; bytes: number; complete: boolean } | undefined {
  const file = join(stateDir, databaseName);
  const found = isThere(file);
  refuseLostStore(stateDir);
  if (!found) return undefined;
  const database = openChecked(file);
  try {
    const bytes = statSync(file).size;
    const complete = bytes <= mostChecked;
    if (bytes > mostChecked / 4) long(bytes);
    const fault = Object.values(database.prepare(`PRAGMA ${complete ? 'integrity_check' : 'quick_check'}(1)`).get()!)[0];
    if (fault !== 'ok') throw damaged(file, String(fault));
    refuseLostKeys(database, file);
    return { file, bytes, complete };
  } catch (thrown) {
    throw unreadable(file, thrown);
  } finally {
    database.close();
  }
}

/** Everything read through it is of one moment, also while a gateway writes. */
export function snapshot(stateDir: string): { read<R>(body: (t: Reading) => Body<R>): R; close(): void } {
  const file = join(stateDir, databaseName);
  if (!isThere(file)) throw new InterlaneError('FILE_UNREADABLE', `state directory ${stateDir} has no ${databaseName}; check --state-dir`);
  const database = openCurrent(file);
  const connection = new Connection(database);
  database.exec('BEGIN');
  return {
    read: (body) => {
      try {
        return drive(body(reading), (ask) => connection.answerAll(ask));
      } catch (thrown) {
        throw unreadable(file, thrown);
      }
    },
    close: () => connection.close(),
  };
}

/** Only a gateway migrates a store: a command that may be refused changes nothing before it is accepted. */
export function refuseOldStore(stateDir: string): void {
  const file = join(stateDir, databaseName);
  if (isThere(file) && statSync(file).size > 0) openCurrent(file).close();
}

function openCurrent(file: string): DatabaseSync {
  const database = openChecked(file);
  const version = Number(Object.values(database.prepare('PRAGMA user_version').get()!)[0]);
  if (version >= migrations.length) return database;
  database.close();
  throw new InterlaneError(
    'STORE_UNUSABLE',
    `store ${file} was written by an older Interlane (schema ${version}, this one has ${migrations.length}); nothing was changed; start the gateway once to migrate it`,
  );
}

/** Whether a process holds the state. Reading a database that is locked for writing is refused, and nothing else is done. */
export function isHeld(stateDir: string): boolean {
  const file = join(stateDir, 'lock.db');
  if (!isThere(file)) return false;
  let database: DatabaseSync | undefined;
  try {
    database = new DatabaseSync(file, { readOnly: true, timeout: 0 });
    database.prepare('SELECT count(*) FROM sqlite_schema').get();
    return false;
  } catch (thrown) {
    return sqliteCode(thrown) === busy;
  } finally {
    database?.close();
  }
}

function openChecked(file: string): DatabaseSync {
  requireReadable(file, 'store');
  let database: DatabaseSync | undefined;
  try {
    database = openForReading(file, waitMs);
    const number = (sql: string) => Number(Object.values(database!.prepare(sql).get()!)[0]);
    if (number('PRAGMA application_id') !== applicationId)
      throw new InterlaneError('STORE_UNUSABLE', `store ${file} is a database of another program; choose another --state-dir`);
    if (number('PRAGMA user_version') > migrations.length)
      throw new InterlaneError(
        'STORE_UNUSABLE',
        `store ${file} was written by a newer Interlane; use that version, or another --state-dir`,
      );
    return database;
  } catch (thrown) {
    if (database?.isOpen) database.close();
    if (thrown instanceof InterlaneError) throw thrown;
    throw new InterlaneError('STORE_UNUSABLE', `store ${file} cannot be opened: ${explain(thrown)}`, { cause: thrown });
  }
}

function unreadable(file: string, thrown: unknown): unknown {
  if (thrown instanceof InterlaneError || sqliteCode(thrown) === undefined) return thrown;
  if (sqliteCode(thrown) === corrupt) return damaged(file, reasonOf(thrown));
  return new InterlaneError('STORE_UNUSABLE', `store ${file} cannot be read: ${explain(thrown)}`, { cause: thrown });
}
