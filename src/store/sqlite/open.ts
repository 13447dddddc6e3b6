// A state directory → the store in it: `interlane.db` with one writing and one reading connection.
import { join } from 'node:path';
import type { Store } from '../contract.ts';
import { openDatabase, type Durability } from './database.ts';
import { SqliteStore, type StoreParts } from './store.ts';

export const databaseName = 'interlane.db';

export function openSqliteStore<Event>(stateDir: string, durability: Durability, parts: StoreParts): Store<Event> {
  const file = join(stateDir, databaseName);
  const writer = openDatabase(file, { durability });
  const reader = openDatabase(file, { durability, readOnly: true });
  return new SqliteStore<Event>(writer, reader, parts);
}
