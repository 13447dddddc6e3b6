// The search index is fed in a thread of its own: whatever it costs, no run waits for it.
import { parentPort, workerData } from 'node:worker_threads';
import { Search } from './search.ts';

const search = new Search((workerData as { stateDir: string }).stateDir);
let stopped = false;
/** A pause when it has caught up: while much is written it is not woken for each commit, and indexes in larger pieces. */
const restMs = 50;

/** "index" means that something was written. Steps are small, so that a stop is heard between them. */
parentPort?.on('message', (message: 'index' | 'stop') => {
  if (message === 'index') return step();
  stopped = true;
  search.close();
  parentPort?.close();
});

function step(): void {
  if (stopped) return;
  const { more } = search.indexNext();
  // oxlint-disable-next-line no-restricted-globals -- not a clock: lets a message in between two steps of this thread
  if (more) setImmediate(step);
  // oxlint-disable-next-line no-restricted-globals -- a pause of this thread that nothing depends on
  else setTimeout(() => parentPort?.postMessage('caught up'), restMs).unref();
}
