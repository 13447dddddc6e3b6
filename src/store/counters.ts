// Where the counters of a store go on from when it is opened.
import type { Body, Counter, Reading } from './contract.ts';
import { latest } from './tables/feed.ts';
import { highestReady } from './tables/runs.ts';

/** Runs that go on after a wait are claimed before new ones: they count from here. */
export const resumeFirst = -(2 ** 52);

export function* firstOfCounters(t: Reading): Body<Record<Counter, number>> {
  return { feed: yield* latest(t), ready: yield* highestReady(t, resumeFirst) };
}
