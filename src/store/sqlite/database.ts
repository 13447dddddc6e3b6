// Opening a SQLite file the way Interlane needs it: private, WAL, migrated, and refused by name when it is not ours to use.
import { accessSync, chmodSync, closeSync, constants, existsSync, openSync, statSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import { DatabaseSync, type StatementSync } from 'node:sqlite';
import { pathToFileURL } from 'node:url';
import { InterlaneError, reasonOf } from '../../errors.ts';
import { Conflict, isQuery, type Ask, type Query } from '../contract.ts';
import { rowShape } from '../row-shape.ts';
import { applicationId, migrations } from '../migrations.ts';
import { lostKey } from '../tables/sessions.ts';
import { prepareUpgrade, type Upgrade } from './upgrade.ts';

export type Durability = 'full' | 'normal';

export interface OpenOptions {
  durability: Durability;
  readOnly?: boolean;
  upgrade?: Upgrade;
}

interface Prepared {
  statement: StatementSync;
  /** An INSERT that is asked for the key of its row. */
  returnsKey: boolean;
  /** Makes a row from its values in the order of the columns. */
  rowOf(values: unknown): unknown;
}

const insertReturningKey = /^(INSERT (?![\s\S]*ON CONFLICT)[\s\S]*?)\s+RETURNING pk$/;

/** A connection with its prepared statements. Queries come from our own code, so there are few different ones. */
export class Connection {
  readonly database: DatabaseSync;
  private readonly statements = new Map<string, Prepared>();

  constructor(database: DatabaseSync) {
    this.database = database;
  }

  answer(query: Query): unknown {
    let prepared = this.statements.get(query.sql);
    if (!prepared) this.statements.set(query.sql, (prepared = this.prepare(query.sql)));
    const { statement } = prepared;
    if (prepared.returnsKey) return { pk: Number(statement.run(...query.params).lastInsertRowid) };
    if (query.want === 'one') {
      const values = statement.get(...query.params);
      return values && prepared.rowOf(values);
    }
    if (query.want === 'all') return statement.all(...query.params).map(prepared.rowOf);
    return { changes: Number(statement.run(...query.params).changes) };
  }

  /** `INSERT … RETURNING pk` takes SQLite twice the time of an INSERT whose row id it knows anyway. */
  private prepare(sql: string): Prepared {
    const returnsKey = insertReturningKey.test(sql);
    const statement = this.database.prepare(planned(returnsKey ? sql.replace(insertReturningKey, '$1') : sql));
    // A row that node makes itself is a hash table, and costs twice the time of the values in it.
    statement.setReturnArrays(true);
    const fill = rowShape(statement.columns().map(({ name }) => name));
    return { statement, returnsKey, rowOf: (values) => fill(values as unknown[]) };
  }

  /** For reading: one query, or several that are independent of each other. */
  answerAll(ask: Ask): unknown {
    if (Array.isArray(ask)) return ask.map((query) => this.answer(query));
    if (isQuery(ask)) return this.answer(ask);
    throw new InterlaneError('INTERNAL', 'a read takes no locks and no numbers');
  }

  close(): void {
    this.statements.clear();
    this.database.close();
  }
}

/** SQLite looks at the value of a bare `LIMIT ?` to plan, so it plans again at every call; a sum it leaves alone. */
export function planned(sql: string): string {
  return sql.replaceAll('LIMIT ?', 'LIMIT 0 + ?');
}

export function openDatabase(file: string, options: OpenOptions): Connection {
  const inMemory = file === ':memory:';
  let database: DatabaseSync | undefined;
  if (!inMemory && !options.readOnly) createPrivate(file);
  try {
    // The database is opened by one gateway at a time, so waiting for a lock would only hide a mistake.
    database = new DatabaseSync(file, { readOnly: options.readOnly === true, timeout: 0 });
    if (!options.readOnly) {
      // Looked at before anything changes in a file that is not ours.
      const version = versionOf(database, file, migrations.length);
      if (version === 0) database.exec('PRAGMA auto_vacuum = INCREMENTAL');
      else if (version < migrations.length && !inMemory) prepareUpgrade(database, file, version, migrations.length, options.upgrade);
      database.exec('PRAGMA journal_mode = WAL');
      database.exec(`PRAGMA synchronous = ${options.durability === 'full' ? 'FULL' : 'NORMAL'}`);
      migrate(database, file, migrations, options.upgrade?.say);
      refuseLostKeys(database, file);
      // SQLite opens a file that cannot be written without a word, and tells at the first write; so here is one, undone.
      database.exec(`BEGIN IMMEDIATE; PRAGMA user_version = ${migrations.length}; ROLLBACK`);
      if (!inMemory) keepPrivate(file);
    }
    database.exec('PRAGMA foreign_keys = OFF; PRAGMA cache_size = -8192; PRAGMA temp_store = MEMORY');
    return new Connection(database);
  } catch (thrown) {
    if (database?.isOpen) database.close();
    if (thrown instanceof InterlaneError) throw thrown;
    throw new InterlaneError('STORE_UNUSABLE', `store ${file} cannot be opened: ${explain(thrown)}`, { cause: thrown });
  }
}

/** A database that no other process has open. */
export function openAlone(file: string): DatabaseSync {
  const url = pathToFileURL(file);
  url.searchParams.set('immutable', '1');
  return new DatabaseSync(url, { readOnly: true });
}

/**
 * For a look at a database that a gateway may have open. SQLite makes files beside a database with a WAL even to read it. Where no file
 * can be made (a disk that is mounted for reading), no gateway runs either, and the database is complete without its WAL.
 */
export function openForReading(file: string, waitMs: number, writable = isWritable(dirname(file))): DatabaseSync {
  if (!writable && !existsSync(`${file}-wal`)) return openAlone(file);
  return new DatabaseSync(file, { readOnly: true, timeout: waitMs });
}

function isWritable(directory: string): boolean {
  try {
    accessSync(directory, constants.W_OK);
    return true;
  } catch {
    return false;
  }
}

/** SQLite gives the files beside a database the mode of the database, so it must be private before it is opened. */
export function createPrivate(file: string): void {
  if (existsSync(file)) return;
  try {
    closeSync(openSync(file, 'wx', 0o600));
  } catch {
    // SQLite will say what is wrong
  }
}

/** A database that was copied here may be open to others. */
export function keepPrivate(file: string): void {
  for (const name of [file, `${file}-wal`, `${file}-shm`]) {
    if ((statSync(name, { throwIfNoEntry: false })?.mode ?? 0) & 0o077) chmodSync(name, 0o600);
  }
}

/** The schema version of a database that is ours and not newer than we are; anything else is refused. */
function versionOf(database: DatabaseSync, file: string, known: number): number {
  const number = (sql: string) => Number(Object.values(database.prepare(sql).get()!)[0]);
  const version = number('PRAGMA user_version');
  const application = number('PRAGMA application_id');
  const tables = number('SELECT count(*) FROM sqlite_schema');
  if (application !== applicationId && (application !== 0 || version !== 0 || tables > 0)) {
    throw new InterlaneError('STORE_UNUSABLE', `store ${file} is a database of another program; choose another --state-dir`);
  }
  if (version > known) {
    throw new InterlaneError(
      'STORE_UNUSABLE',
      `store ${file} was written by a newer Interlane (schema ${version}, this one knows ${known}); use that version, or another --state-dir`,
    );
  }
  return version;
}

/** Applies what is missing, each step in its own transaction. */
export function migrate(database: DatabaseSync, file: string, steps: string[] = migrations, say: (line: string) => void = () => {}): void {
  const version = versionOf(database, file, steps.length);
  for (let step = version; step < steps.length; step++) {
    if (version > 0) say(`store ${basename(file)} gets schema ${step + 1} of ${steps.length}`);
    database.exec('BEGIN IMMEDIATE');
    try {
      database.exec(`${steps[step]!}; PRAGMA application_id = ${applicationId}; PRAGMA user_version = ${step + 1}`);
      database.exec('COMMIT');
    } catch (thrown) {
      if (database.isTransaction) database.exec('ROLLBACK');
      throw thrown;
    }
  }
}

/** The words of SQLite come last, for readers who know them. */
export const damaged = (file: string, how: string) =>
  new InterlaneError(
    'STORE_UNUSABLE',
    `store ${file} is damaged: a part of it cannot be read (SQLite: ${how.replaceAll(/[\s;*]+/g, ' ').trim()}); restore a backup with "interlane restore <file>", or start on another --state-dir`,
  );

/**
 * A bit that has flipped in the index of keys hides a session, and the gateway would open a second one of the same key. So each key is
 * looked up once: 40 ms for 100,000 sessions.
 */
export function refuseLostKeys(database: DatabaseSync, file: string): void {
  const lost = database.prepare(lostKey).get();
  if (lost) throw damaged(file, `session ${String(lost['key'])} is missing from index sessions_key`);
}

const codes: Record<number, string> = {
  5: 'it is locked by another process',
  8: 'it is read-only; check who owns the file',
  10: 'the disk reported an error',
  11: 'the file is damaged; restore a backup with "interlane restore"',
  13: 'the disk is full',
  14: 'the file cannot be opened; check that the directory exists and is yours',
  26: 'the file is not a database; move it away, or choose another --state-dir',
};

/** SQLite's primary result code, or undefined for something else. */
export function sqliteCode(thrown: unknown): number | undefined {
  const { errcode } = thrown as { errcode?: unknown };
  return typeof errcode === 'number' ? errcode & 0xff : undefined;
}

export function explain(thrown: unknown): string {
  return codes[sqliteCode(thrown) ?? -1] ?? reasonOf(thrown);
}

/** What is wrong with the store as a whole, in contrast to one command. `lasting`: writing on does not end it. */
export function troubleOf(thrown: unknown): { why: string; lasting: boolean } | undefined {
  const code = sqliteCode(thrown) ?? sqliteCode((thrown as { cause?: unknown }).cause ?? {});
  if (code === undefined || ![8, 10, 11, 13, 14, 26].includes(code)) return undefined;
  return { why: codes[code]!, lasting: code === 11 || code === 26 };
}

/** What a command itself refused passes as it is; what SQLite said becomes a store error. */
export function asStoreError(thrown: unknown, command: string): unknown {
  // With one writer a conflict cannot end by itself, so running the body again would not help.
  if (thrown instanceof Conflict)
    return new InterlaneError('BUSY', `store is busy with "${command}"; try again in a moment`, { cause: thrown });
  if (thrown instanceof InterlaneError || sqliteCode(thrown) === undefined) return thrown;
  return new InterlaneError('STORE_FAILED', `store refused "${command}": ${troubleOf(thrown)?.why ?? reasonOf(thrown)}`, { cause: thrown });
}
