// A clock that was set: due times are stored as wall time, so all of them move along, and every wait keeps the time it had left.
import { jumpMs } from '../clock.ts';
import type { ReadQuery } from '../store/contract.ts';
import * as deliveries from '../store/tables/deliveries.ts';
import * as feed from '../store/tables/feed.ts';
import * as meta from '../store/tables/meta.ts';
import * as offers from '../store/tables/offers.ts';
import * as runs from '../store/tables/runs.ts';
import * as waits from '../store/tables/waits.ts';
import type { EngineCommand } from './feed.ts';
import type { Current } from './flow.ts';

/** Jumps are rare, so one transaction moves everything. */
export const moveDueTimes = (current: Current): EngineCommand<{ byMs: number; now: number }, void> => ({
  name: 'move due times',
  *body(t, { byMs, now }) {
    const kernel = current();
    yield* t.lock(...(yield* runs.lanesHeldBack(t)).map((lane) => `lane:${lane}` as const));
    yield* runs.moveNotBefore(t, byMs);
    yield* waits.moveDue(t, byMs);
    yield* offers.moveDue(t, byMs);
    for (const flow of kernel.flows.values()) yield* flow.moveDue(t, byMs);
    yield* t.lock(...(yield* deliveries.openDestinations(t)).map((dest) => `dest:${dest}` as const));
    yield* deliveries.moveDue(t, byMs);
    yield* meta.noteClock(t, { pos: (yield* feed.newest(t))?.pos ?? 0, at: now });
  },
});

/**
 * How far the clock was set back while no gateway ran: the last event cannot be in the future. A clock that was set forward looks like
 * a long stop, in which time passes for whoever waits.
 */
export const setBackSince: ReadQuery<{ now: number }, number> = {
  name: 'clock set back',
  *body(t, { now }) {
    const last = yield* feed.newest(t);
    if (!last) return 0;
    const noted = yield* meta.notedClock(t);
    const seen = noted?.pos === last.pos ? noted.at : last.at;
    return seen - now > jumpMs ? now - seen : 0;
  },
};
