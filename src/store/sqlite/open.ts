// A state directory → the store in it: `interlane.db` with the connection that writes, and a reader.
import { join } from 'node:path';
import type { FeedEvent } from '../../protocol/event.ts';
import type { Store } from '../contract.ts';
import { isThere, requireReadable } from '../../there.ts';
import { openDatabase, type Durability } from './database.ts';
import { databaseName } from './files.ts';
import { refuseLostStore } from './missing.ts';
import { Reader } from './reader.ts';
import { SqliteStore, type StoreParts } from './store.ts';

export function openSqliteStore<Event extends { pos: number } = FeedEvent>(
  stateDir: string,
  durability: Durability,
  parts: StoreParts,
): Store<Event> {
  const path = join(stateDir, databaseName);
  refuseLostStore(stateDir);
  if (isThere(path)) requireReadable(path, 'store');
  return new SqliteStore<Event>(
    openDatabase(path, { durability, ...(parts.upgrade ? { upgrade: parts.upgrade } : {}) }),
    parts,
    new Reader(path, () => parts.elapsed()),
  );
}
