// One gateway per state directory: an exclusive lock on a small database, held for life and freed by the system at death.
import { chmodSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { InterlaneError } from '../../errors.ts';
import { explain, sqliteCode } from './database.ts';

const busy = 5;
/** A connection that nothing refers to is collected, and its lock with it. */
const held = new Set<DatabaseSync>();

export interface Holder {
  pid: number;
  host: string;
  startedAt: number;
}

/** Returns the release. Refuses while another process holds the lock, and names it. */
export function lockState(stateDir: string, holder: Holder): () => void {
  const file = join(stateDir, 'lock.db');
  const nameplate = join(stateDir, 'holder.json');
  let database: DatabaseSync | undefined;
  try {
    database = new DatabaseSync(file, { timeout: 0 });
    chmodSync(file, 0o600);
    database.exec('BEGIN EXCLUSIVE');
    writeFileSync(nameplate, JSON.stringify(holder), { mode: 0o600 });
  } catch (thrown) {
    database?.close();
    if (sqliteCode(thrown) !== busy) throw new InterlaneError('STORE_UNUSABLE', `state lock ${file} cannot be taken: ${explain(thrown)}`);
    throw new InterlaneError(
      'STATE_IN_USE',
      `state directory ${stateDir} is in use by ${readHolder(nameplate)}; stop it, or choose another with --state-dir`,
    );
  }
  const taken = database;
  held.add(taken);
  return () => {
    if (held.delete(taken)) taken.close();
  };
}

function readHolder(nameplate: string): string {
  try {
    const { pid, host } = JSON.parse(readFileSync(nameplate, 'utf8')) as { pid: number; host: string };
    return `another gateway (process ${pid} on ${host})`;
  } catch {
    return 'another gateway';
  }
}
