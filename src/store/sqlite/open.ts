// A state directory → the store in it: `interlane.db` with its one connection.
import { join } from 'node:path';
import type { FeedEvent } from '../../protocol/event.ts';
import type { Store } from '../contract.ts';
import { openDatabase, type Durability } from './database.ts';
import { SqliteStore, type StoreParts } from './store.ts';

export const databaseName = 'interlane.db';

export function openSqliteStore<Event extends { pos: number } = FeedEvent>(
  stateDir: string,
  durability: Durability,
  parts: StoreParts,
): Store<Event> {
  return new SqliteStore<Event>(openDatabase(join(stateDir, databaseName), { durability }), parts);
}
