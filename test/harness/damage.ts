// A database whose disk has lost a page.
import { closeSync, openSync, writeSync } from 'node:fs';
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
