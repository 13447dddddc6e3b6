// Keeps the search index up with the store: a worker thread that is told when something was written.
import { Worker } from 'node:worker_threads';
import type { FromIndexer, ToIndexer } from './search-worker.ts';

export interface Indexer {
  /** Something was written; looked at when the thread gets to it. */
  wake(): void;
  /** Whether it has had something to do: then it also does what was left from before. */
  readonly started: boolean;
  /** Sessions that were purged leave the index. False when the thread is over: ask again after the next start. */
  forget(sessionPks: number[]): Promise<boolean>;
  close(): Promise<void>;
}

/**
 * The thread starts with the first thing there is to do: a gateway where nobody speaks does without it. A failing index is told and
 * left alone: it is derived, and the next start makes it good.
 */
export function startIndexer(stateDir: string, failed: (error: Error) => void): Indexer {
  const forgets = new Map<number, (done: boolean) => void>();
  let asked = 0;
  let thread: { worker: Worker; over: Promise<void> } | undefined;
  let alive = true;
  const post = (message: ToIndexer) => {
    thread ??= begin();
    thread.worker.postMessage(message);
  };
  const begin = () => {
    const file = import.meta.url.endsWith('.ts') ? './search-worker.ts' : './search-worker.js';
    const worker = new Worker(new URL(file, import.meta.url), { workerData: { stateDir } });
    const over = new Promise<void>((resolve) =>
      worker.once('exit', () => {
        alive = false;
        for (const answer of forgets.values()) answer(false);
        resolve();
      }),
    );
    worker.on('error', failed);
    worker.on('message', heard);
    return { worker, over };
  };
  // A message costs as much as a few rows, so there is one on its way at a time: the next when the thread has caught up.
  let busy = false;
  let again = false;
  const wake = () => {
    again = busy;
    if (busy || !alive) return;
    busy = true;
    post('index');
  };
  const heard = (message: FromIndexer) => {
    if (message !== 'caught up') {
      forgets.get(message)?.(true);
      forgets.delete(message);
      return;
    }
    busy = false;
    if (again) wake();
  };
  return {
    wake,
    get started() {
      return thread !== undefined;
    },
    forget: (sessionPks) =>
      new Promise((resolve) => {
        if (!alive) return resolve(false);
        const number = asked++;
        forgets.set(number, resolve);
        post({ number, forget: sessionPks });
      }),
    async close() {
      if (thread && alive) post('stop');
      alive = false;
      await thread?.over;
    },
  };
}
