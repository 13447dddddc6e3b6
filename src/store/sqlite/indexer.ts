// Keeps the search index up with the store: a worker thread that is told when something was written.
import { Worker } from 'node:worker_threads';

export interface Indexer {
  /** Something was written; looked at when the thread gets to it. */
  wake(): void;
  close(): Promise<void>;
}

/** A failing index is told and left alone: it is derived, and the next start makes it good. */
export function startIndexer(stateDir: string, failed: (error: Error) => void): Indexer {
  const file = import.meta.url.endsWith('.ts') ? './search-worker.ts' : './search-worker.js';
  const worker = new Worker(new URL(file, import.meta.url), { workerData: { stateDir } });
  let alive = true;
  const over = new Promise<void>((resolve) =>
    worker.once('exit', () => {
      alive = false;
      resolve();
    }),
  );
  worker.on('error', failed);
  // A message costs as much as a few rows, so there is one on its way at a time: the next when the thread has caught up.
  let busy = false;
  let again = false;
  const wake = () => {
    again = busy;
    if (busy || !alive) return;
    busy = true;
    worker.postMessage('index');
  };
  worker.on('message', () => {
    busy = false;
    if (again) wake();
  });
  wake();
  return {
    wake,
    async close() {
      if (alive) worker.postMessage('stop');
      await over;
    },
  };
}
