// A state directory → the store in it: `interlane.db` with the connection that writes, and a reader.
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { InterlaneError } from '../../errors.ts';
import type { FeedEvent } from '../../protocol/event.ts';
import type { Store } from '../contract.ts';
import { isThere, requireReadable } from '../../there.ts';
import { explain, openDatabase, sqliteCode, type Durability } from './database.ts';
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
  for (const end of ['', '-wal', '-shm', '-journal']) rmSync(`${path}.restoring${end}`, { force: true }); // of a restore that was killed
  refuseLostStore(stateDir);
  if (isThere(path)) requireReadable(path, 'store');
  const connection = openDatabase(path, { durability, ...(parts.upgrade ? { upgrade: parts.upgrade } : {}) });
  try {
    return new SqliteStore<Event>(connection, parts, new Reader(path, () => parts.elapsed()));
  } catch (thrown) {
    connection.close();
    if (sqliteCode(thrown) === undefined) throw thrown;
    throw new InterlaneError('STORE_UNUSABLE', `store ${path} cannot be opened: ${explain(thrown)}`, { cause: thrown });
  }
}
