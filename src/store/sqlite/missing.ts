// A database that is gone while other files of its state are still there: an error, not an empty start.
import { closeSync, openSync, readFileSync, readSync, statSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { InterlaneError } from '../../errors.ts';
import { applicationId } from '../migrations.ts';
import { databaseName, namesIn, transcriptsFolder, workspacesFolder } from './files.ts';
import { searchName } from './search-file.ts';

const lastBackup = 'last-backup.json';

/** Refuses to begin anew beside what an earlier store has left. */
export function refuseLostStore(stateDir: string): void {
  const file = join(stateDir, databaseName);
  if (sizeOf(file) > 0) return;
  const left = leftovers(stateDir);
  if (left.length === 0) return;
  const backup = newestBackup(stateDir);
  const fix =
    backup === undefined
      ? 'put it back (no backup was found)'
      : `restore the newest backup: interlane restore ${backup} --state-dir ${stateDir}`;
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
      (name === `${databaseName}-wal` && sizeOf(join(stateDir, name)) > 0) ||
      (name.startsWith(`${databaseName}.`) && isOurs(join(stateDir, name))) ||
      ([workspacesFolder, transcriptsFolder].includes(name) && namesIn(join(stateDir, name)).length > 0),
  );
  return names.toSorted();
}

function newestBackup(stateDir: string): string | undefined {
  const found = namesIn(stateDir)
    .filter((name) => name !== databaseName && !name.endsWith('.restoring'))
    .map((name) => join(stateDir, name));
  return [...found, ...notedBackup(stateDir)]
    .filter(isOurs)
    .map((file) => ({ file, at: statSync(file).mtimeMs }))
    .toSorted((a, b) => b.at - a.at)[0]?.file;
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
