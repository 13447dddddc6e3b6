// A store ↔ one private file: an online copy of a live database, and back in one rename that keeps what was there before.
import {
  closeSync,
  copyFileSync,
  constants,
  existsSync,
  fsyncSync,
  linkSync,
  mkdirSync,
  openSync,
  renameSync,
  rmSync,
  statSync,
} from 'node:fs';
import { dirname, join } from 'node:path';
import { backup, DatabaseSync } from 'node:sqlite';
import { InterlaneError, isDenied, stateUnusable, systemReason } from '../../errors.ts';
import { isThere, requireReadable } from '../../there.ts';
import { drive, writing } from '../contract.ts';
import { applicationId, migrations } from '../migrations.ts';
import { endTimeline } from '../tables/meta.ts';
import { Connection, explain, openAlone, openForReading, sqliteCode } from './database.ts';
import { lockState, type Holder } from './lock.ts';
import { noteBackup } from './missing.ts';
import { databaseName } from './files.ts';
import { searchName } from './search-file.ts';

/** All pages in one step, which is one snapshot. In several, each commit of the gateway would start the copy over again. */
const oneStep = { rate: 2 ** 31 - 1 };
const lockWaitMs = 10_000;

/** Copies the database of a state directory, whether a gateway is running or not. What is written has been checked. */
export async function backupStore(stateDir: string, file: string): Promise<{ bytes: number }> {
  const source = join(stateDir, databaseName);
  if (!isThere(source)) {
    throw new InterlaneError('FILE_UNREADABLE', `state directory ${stateDir} has no ${databaseName} to back up; check --state-dir`);
  }
  requireReadable(source, 'store');
  const partial = `${file}.partial`;
  try {
    closeSync(openSync(partial, 'wx', 0o600));
  } catch (thrown) {
    const why = existsSync(partial)
      ? `it is being written, or was interrupted: if nobody is at it, remove ${partial}`
      : existsSync(dirname(file))
        ? systemReason(thrown)
        : 'its directory does not exist';
    throw new InterlaneError(isDenied(thrown) ? 'FILE_DENIED' : 'STORE_FAILED', `backup ${file} cannot be written: ${why}`);
  }
  try {
    // Whoever has the partial file is alone, so this look is good until the rename.
    if (existsSync(file)) throw new InterlaneError('INVALID_REQUEST', `backup ${file} exists already; choose another name`);
    const open = () => openForReading(source, lockWaitMs);
    await copyDatabase(open, partial, `store ${source} cannot be backed up: it`);
    check(partial, `store ${source} cannot be backed up: it`);
    renameSync(partial, file);
    syncDirectory(dirname(file));
    noteBackup(stateDir, file);
    return { bytes: statSync(file).size };
  } catch (thrown) {
    throw asFailure(thrown, `backup ${file} cannot be written`);
  } finally {
    remove(partial);
  }
}

/** Puts a backup in the place of the database, unless a gateway is running. The database that was there is kept beside it. */
export async function restoreStore(file: string, stateDir: string, holder: Holder): Promise<{ kept: string | undefined }> {
  if (!isThere(file) || !statSync(file).isFile())
    throw new InterlaneError('FILE_UNREADABLE', `backup ${file} is not a file that exists; check its name`);
  requireReadable(file, 'backup');
  const database = join(stateDir, databaseName);
  const fresh = `${database}.restoring`;
  const release = enter(stateDir, holder);
  try {
    remove(fresh);
    closeSync(openSync(fresh, 'wx', 0o600));
    await copyDatabase(() => openBackup(file), fresh, `backup ${file} cannot be restored: it`);
    check(fresh, `backup ${file} cannot be restored: it`);
    leaveTimeline(fresh);
    const kept = keep(database);
    remove(join(stateDir, searchName)); // it was made from the other database, and makes itself anew
    renameSync(fresh, database);
    syncDirectory(stateDir);
    return { kept };
  } catch (thrown) {
    throw asFailure(thrown, `backup ${file} cannot be restored`);
  } finally {
    remove(fresh);
    release();
  }
}

function enter(stateDir: string, holder: Holder): () => void {
  try {
    mkdirSync(stateDir, { recursive: true, mode: 0o700 });
  } catch (thrown) {
    throw stateUnusable(stateDir, thrown);
  }
  return lockState(stateDir, holder);
}

function asFailure(thrown: unknown, failure: string): unknown {
  return thrown instanceof InterlaneError
    ? thrown
    : new InterlaneError('STORE_FAILED', `${failure}: ${explain(thrown)}`, { cause: thrown });
}

async function copyDatabase(open: () => DatabaseSync, to: string, subject: string): Promise<void> {
  let source: DatabaseSync | undefined;
  try {
    source = open();
    await backup(source, to, oneStep);
  } catch (thrown) {
    throw unusable(thrown, subject);
  } finally {
    source?.close();
  }
}

/** Beside a database in use there is a WAL. A file without one may lie where nothing can be written, so nothing is made beside it. */
function openBackup(file: string): DatabaseSync {
  return existsSync(`${file}-wal`) ? new DatabaseSync(file, { readOnly: true, timeout: lockWaitMs }) : openAlone(file);
}

/** Ours, whole, and not newer than we are. */
function check(file: string, subject: string): void {
  const refuse = (why: string): never => {
    throw new InterlaneError('STORE_UNUSABLE', `${subject} ${why}`);
  };
  const database = openAlone(file);
  const ask = (sql: string) => Object.values(database.prepare(sql).get()!)[0];
  try {
    if (ask('PRAGMA application_id') !== applicationId) refuse('is not a database of Interlane');
    const version = Number(ask('PRAGMA user_version'));
    if (version > migrations.length) {
      refuse(`was written by a newer Interlane (schema ${version}, this one knows ${migrations.length}); use that version`);
    }
    const found = ask('PRAGMA integrity_check(1)');
    if (found !== 'ok') refuse(`is damaged (${String(found).replaceAll(/\s+/g, ' ')})`);
  } catch (thrown) {
    throw unusable(thrown, subject);
  } finally {
    database.close();
  }
}

/** Before the database is put in place, so that no gateway ever continues the timeline of the one it replaces. */
function leaveTimeline(file: string): void {
  const connection = new Connection(new DatabaseSync(file));
  try {
    drive(endTimeline(writing([])), (ask) => connection.answerAll(ask));
  } finally {
    connection.close();
  }
}

function unusable(thrown: unknown, subject: string): unknown {
  const code = sqliteCode(thrown);
  if (code === undefined) return thrown;
  const why = code === 11 ? 'is damaged' : code === 26 ? 'is not a database' : `could not be copied (${explain(thrown)})`;
  return new InterlaneError('STORE_UNUSABLE', `${subject} ${why}`, { cause: thrown });
}

/** Gives the database a second name, so that the rename over the first one is the only moment anything changes. */
function keep(database: string): string | undefined {
  if (!existsSync(database)) {
    remove(database); // a WAL without its database is nothing, but the new one would take it for its own
    return undefined;
  }
  foldWal(database);
  let kept = '';
  for (let number = 1; kept === '' || existsSync(kept); number++) kept = `${database}.replaced-${number}`;
  try {
    linkSync(database, kept);
  } catch {
    copyFileSync(database, kept, constants.COPYFILE_EXCL); // a file system without links
  }
  // Left over only when somebody still reads the old database. It must not be taken for that of the new one.
  for (const end of ['-wal', '-shm']) if (existsSync(database + end)) renameSync(database + end, kept + end);
  return kept;
}

/** What a killed gateway had committed is in the WAL; closing the database properly brings it home. */
function foldWal(database: string): void {
  try {
    const old = new DatabaseSync(database);
    try {
      old.exec('PRAGMA wal_checkpoint(TRUNCATE)');
    } finally {
      old.close();
    }
  } catch {
    // a damaged database is kept as it is
  }
}

function remove(database: string): void {
  for (const end of ['-wal', '-shm', '-journal', '']) rmSync(database + end, { force: true });
}

/** A rename is on the disk when its directory is. */
function syncDirectory(directory: string): void {
  const opened = openSync(directory, 'r');
  try {
    fsyncSync(opened);
  } finally {
    closeSync(opened);
  }
}
