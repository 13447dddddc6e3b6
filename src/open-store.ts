// The store that a gateway was given, or the SQLite file in its state directory; with the cursors of its timeline.
import { hostname } from 'node:os';
import type { Clock } from './clock.ts';
import type { Config } from './config/schema.ts';
import { Cursors } from './cursor.ts';
import type { GatewayOptions } from './embed.ts';
import { errorTable, type InterlaneError } from './errors.ts';
import type { Store } from './store/contract.ts';
import { lockState } from './store/sqlite/lock.ts';
import { watchDatabase } from './store/sqlite/missing.ts';
import { openSqliteStore } from './store/sqlite/open.ts';
import type { StoreParts } from './store/sqlite/store.ts';
import { openTimeline } from './store/tables/meta.ts';

interface Opened {
  store: Store;
  cursors: Cursors;
  unlock(): void;
  /** Why the store's file is no longer the one in the state directory; undefined while it is. */
  lost(): string | undefined;
}

type Parts = Pick<StoreParts, 'observe' | 'trouble' | 'afterTick'> & { clock: Clock; random(bytes: number): Buffer };

/** A state directory belongs to one process at a time. */
export async function openStore(config: Config, options: GatewayOptions, parts: Parts): Promise<Opened> {
  const { clock, random, ...watch } = parts;
  const { stateDir, warn = () => {} } = options;
  const end = (error: InterlaneError) => {
    if (options.log) options.log.error(`gateway ends: ${error.message}`);
    else warn(`gateway ends: ${error.message}`);
    process.exit(errorTable.INTERNAL.exit);
  };
  if (options.store)
    return { store: options.store, cursors: await openCursors(options.store, random), unlock: () => {}, lost: () => undefined };
  const unlock = lockState(stateDir, { pid: process.pid, host: hostname(), startedAt: clock.now() });
  try {
    const store = openSqliteStore(stateDir, config.store.durability, {
      elapsed: () => clock.elapsed(),
      fatal: options.fatal ?? end,
      upgrade: { say: warn },
      ...watch,
    });
    return { store, cursors: await openCursors(store, random), unlock, lost: watchDatabase(stateDir) };
  } catch (thrown) {
    unlock();
    throw thrown;
  }
}

async function openCursors(store: Store, random: Parts['random']): Promise<Cursors> {
  try {
    return new Cursors(await store.write(openTimeline, { fresh: random(32).toString('base64url') }), random);
  } catch (thrown) {
    await store.close();
    throw thrown;
  }
}
