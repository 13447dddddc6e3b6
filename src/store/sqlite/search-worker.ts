// The search index is fed in a thread of its own: whatever it costs, no run waits for it.
import { parentPort, workerData } from 'node:worker_threads';
import { Search } from './search.ts';

/** `index`: something was written. `forget`: sessions that are gone; answered with the same number when nothing of them is left. */
export type ToIndexer = 'index' | 'stop' | { number: number; forget: number[] };

const search = new Search((workerData as { stateDir: string }).stateDir);
const forgets: { number: number; forget: number[]; compacting: boolean }[] = [];
let busy = false;
let woken = false;
let stopped = false;

/** Steps are small, so that a stop is heard between them. */
parentPort?.on('message', (message: ToIndexer) => {
  if (message === 'stop') {
    stopped = true;
    search.close();
    parentPort?.close();
    return;
  }
  if (message === 'index') woken = true;
  else forgets.push({ ...message, compacting: false });
  if (!busy) step();
});

function step(): void {
  if (stopped) return;
  busy = work();
  // oxlint-disable-next-line no-restricted-globals -- not a clock: lets a message in between two steps of this thread
  if (busy) setImmediate(step);
}

/** Answers whether there is more to do. */
function work(): boolean {
  const [job] = forgets;
  if (!job) {
    woken = false;
    return search.indexNext().more || woken;
  }
  const [sessionPk] = job.forget;
  if (sessionPk !== undefined) {
    if (!search.forget(sessionPk).more) job.forget.shift();
  } else {
    const { more } = search.compact(!job.compacting);
    job.compacting = true;
    if (!more) parentPort?.postMessage(forgets.shift()!.number);
  }
  return true;
}
