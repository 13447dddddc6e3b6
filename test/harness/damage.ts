// A database whose disk has lost a page.
import { closeSync, openSync, readFileSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { databaseName } from '../../src/store/sqlite/files.ts';

/** Overwrites the first page of a table, while no gateway runs. */
export function damageTable(stateDir: string, table: string): void {
  const path = join(stateDir, databaseName);
  const database = new DatabaseSync(path);
  const root = Number(database.prepare('SELECT rootpage FROM sqlite_schema WHERE name = ?').get(table)!['rootpage']);
  const size = Number(Object.values(database.prepare('PRAGMA page_size').get()!)[0]);
  database.exec('PRAGMA wal_checkpoint(TRUNCATE)');
  database.close();
  const file = openSync(path, 'r+');
  writeSync(file, Buffer.alloc(size, 0xff), 0, size, (root - 1) * size);
  closeSync(file);
}

/** Changes a text in the first page of an index, as a bit that has flipped does, while no gateway runs. */
export function damageIndex(stateDir: string, index: string, text: string, to: string): void {
  const path = join(stateDir, databaseName);
  const database = new DatabaseSync(path);
  const root = Number(database.prepare('SELECT rootpage FROM sqlite_schema WHERE name = ?').get(index)!['rootpage']);
  const size = Number(Object.values(database.prepare('PRAGMA page_size').get()!)[0]);
  database.exec('PRAGMA wal_checkpoint(TRUNCATE)');
  database.close();
  const bytes = readFileSync(path);
  const at = bytes.indexOf(text, (root - 1) * size);
  if (at < 0 || at >= root * size) throw new Error(`${text} is not in the first page of ${index}`);
  bytes.write(to, at);
  writeFileSync(path, bytes);
}
