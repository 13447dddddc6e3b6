// A database that is gone while other files of its state are still there: an error, not an empty start.
import { closeSync, existsSync, openSync, readFileSync, readSync, statSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { InterlaneError } from '../../errors.ts';
import { applicationId } from '../migrations.ts';
import { openAlone } from './database.ts';
import { databaseName, namesIn, transcriptsFolder, workspacesFolder } from './files.ts';
import { searchName } from './search-file.ts';

const lastBackup = 'last-backup.json';

/** Refuses to begin anew beside what an earlier store has left. */
export function refuseLostStore(stateDir: string): void {
  const file = join(stateDir, databaseName);
  if (sizeOf(file) > 0) return;
  const left = leftovers(stateDir);
  if (left.length === 0) return;
  const fix = fixOf(stateDir);
  const how = sizeOf(file) === 0 ? 'is empty' : 'is missing';
  throw new InterlaneError(
    'STORE_UNUSABLE',
    `store ${file} ${how}, but the state directory has files of an earlier one (${left.join(', ')}); ${fix}; or move these files away to start empty`,
  );
}

/** So that a later error can name it, wherever it is. A backup is good without this, too. */
export function noteBackup(stateDir: string, file: string): void {
  try {
    writeFileSync(join(stateDir, lastBackup), JSON.stringify({ file: resolve(file) }), { mode: 0o600 });
  } catch {
    // a state directory that cannot be written
  }
}

/** What only a store that was in use leaves behind. A start that failed early leaves a lock and a cache, which do not count. */
function leftovers(stateDir: string): string[] {
  const names = namesIn(stateDir).filter(
    (name) =>
      name === searchName ||
      name === lastBackup ||
      (name === `${databaseName}-wal` && sizeOf(join(stateDir, name)) > 0) ||
      (name.startsWith(`${databaseName}.`) && !isUnfinished(name) && isOurs(join(stateDir, name))) ||
      ([workspacesFolder, transcriptsFolder].includes(name) && namesIn(join(stateDir, name)).length > 0),
  );
  return names.toSorted();
}

/** The last backup, or else the newest copy beside the store. What a restore replaced comes last: it was replaced for a reason. */
function fixOf(stateDir: string): string {
  const restore = (file: string) => `interlane restore ${file} --state-dir ${stateDir}`;
  const copies = namesIn(stateDir)
    .filter((name) => name !== databaseName && !isUnfinished(name))
    .map((name) => join(stateDir, name))
    .filter(isOurs)
    .map((file) => ({ file, at: statSync(file).mtimeMs }))
    .toSorted((a, b) => b.at - a.at)
    .map(({ file }) => file);
  const replaced = copies.filter((file) => file.includes(replacedMark));
  const backup = [...notedBackup(stateDir), ...copies.filter((file) => !replaced.includes(file))].find(isWhole);
  if (backup !== undefined) return `restore the newest backup: ${restore(backup)}`;
  const earlier = replaced.find(isWhole);
  if (earlier !== undefined) return `no backup was found, only a database that an earlier restore replaced: ${restore(earlier)}`;
  return 'put it back (no backup was found)';
}

const replacedMark = `${databaseName}.replaced-`;
/** Files of a restore or a migration that was interrupted. */
const isUnfinished = (name: string) => /\.(restoring|partial)(-\w+)?$/.test(name);

/** Ours, and every page can be read. */
function isWhole(file: string): boolean {
  if (!isOurs(file)) return false;
  let database: DatabaseSync | undefined;
  try {
    database = existsSync(`${file}-wal`) ? new DatabaseSync(file, { readOnly: true }) : openAlone(file);
    return Object.values(database.prepare('PRAGMA quick_check(1)').get()!)[0] === 'ok';
  } catch {
    return false;
  } finally {
    database?.close();
  }
}

/** Compares the file in the state directory with the one that is open now. Returns why it is another one, or undefined. */
export function watchDatabase(stateDir: string): () => string | undefined {
  const file = join(stateDir, databaseName);
  const look = () => statSync(file, { throwIfNoEntry: false });
  const opened = look();
  return () => {
    let found: ReturnType<typeof look>;
    try {
      found = look();
    } catch {
      return undefined; // a directory that may not be looked at says nothing about the file
    }
    if (!opened || (found?.ino === opened.ino && found.dev === opened.dev)) return undefined;
    return `${file} was ${found ? 'replaced' : 'deleted or moved'} while the gateway runs, so what is written now is lost when it ends; stop the gateway, then put the file back or restore a backup`;
  };
}

function notedBackup(stateDir: string): string[] {
  try {
    return [(JSON.parse(readFileSync(join(stateDir, lastBackup), 'utf8')) as { file: string }).file];
  } catch {
    return [];
  }
}

/** By the bytes that SQLite keeps for the program that made the file. */
function isOurs(file: string): boolean {
  const header = Buffer.alloc(72);
  try {
    const opened = openSync(file, 'r');
    try {
      return (
        readSync(opened, header, 0, 72, 0) === 72 &&
        header.readInt32BE(68) === applicationId &&
        header.toString('latin1', 0, 6) === 'SQLite'
      );
    } finally {
      closeSync(opened);
    }
  } catch {
    return false;
  }
}

/** -1 if it does not exist. */
const sizeOf = (file: string) => statSync(file, { throwIfNoEntry: false })?.size ?? -1;
