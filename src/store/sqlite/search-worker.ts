// The search index is fed in a thread of its own: whatever it costs, no run waits for it.
import { parentPort, workerData } from 'node:worker_threads';
import { Search } from './search.ts';

/** `index`: something was written. `forget`: sessions that are gone; answered with the same number when nothing of them is left. */
export type ToIndexer = 'index' | 'stop' | { number: number; forget: number[] };
export type FromIndexer = 'caught up' | number;

const search = new Search((workerData as { stateDir: string }).stateDir);
const forgets: { number: number; forget: number[]; compacting: boolean }[] = [];
let busy = false;
/** Something was written that has not been indexed yet. */
let woken = false;
let stopped = false;
/** A pause when it has caught up: while much is written it is not woken for each commit, and indexes in larger pieces. */
const restMs = 50;
const tell = (message: FromIndexer) => parentPort?.postMessage(message);

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
    if (!woken) return false;
    if (search.indexNext().more) return true;
    woken = false;
    // oxlint-disable-next-line no-restricted-globals -- a pause of this thread that nothing depends on
    setTimeout(() => tell('caught up'), restMs).unref();
    return false;
  }
  const [sessionPk] = job.forget;
  if (sessionPk !== undefined) {
    if (!search.forget(sessionPk).more) job.forget.shift();
  } else {
    const { more } = search.compact(!job.compacting);
    job.compacting = true;
    if (!more) tell(forgets.shift()!.number);
  }
  return true;
}
