// The search index is fed in a thread of its own: whatever it costs, no run waits for it.
import { parentPort, workerData } from 'node:worker_threads';
import { Search } from './search.ts';

const search = new Search((workerData as { stateDir: string }).stateDir);
let busy = false;
let woken = false;

/** A message means that something was written. Steps are small, so that a stop is heard between them. */
parentPort?.on('message', (message: 'index' | 'stop') => {
  if (message === 'stop') {
    search.close();
    parentPort?.close();
    return;
  }
  woken = true;
  if (!busy) step();
});

function step(): void {
  busy = true;
  woken = false;
  const { more } = search.indexNext();
  // oxlint-disable-next-line no-restricted-globals -- not a clock: lets a message in between two steps of this thread
  if (more || woken) setImmediate(step);
  else busy = false;
}
