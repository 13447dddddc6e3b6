// Deletes old rows in small transactions: everything of a deleted session, and traces of work that ended long ago.
import type { Body, ReadQuery } from '../store/contract.ts';
import * as calls from '../store/tables/tool-calls.ts';
import * as deliveries from '../store/tables/deliveries.ts';
import * as entries from '../store/tables/entries.ts';
import * as exchanges from '../store/tables/exchanges.ts';
import * as feed from '../store/tables/feed.ts';
import * as forgets from '../store/tables/forgets.ts';
import * as idempotency from '../store/tables/idempotency.ts';
import * as inputs from '../store/tables/inputs.ts';
import * as offers from '../store/tables/offers.ts';
import * as readMarks from '../store/tables/read-marks.ts';
import * as runs from '../store/tables/runs.ts';
import * as sessions from '../store/tables/sessions.ts';
import * as workspaces from '../store/tables/workspaces.ts';
import type { EngineCommand, Tx } from './feed.ts';

const rowsAtOnce = 200;

/** Deletes a few due rows and returns how many; call again until it returns 0. Never touches a run with open work. */
export const purgeSome: EngineCommand<{ now: number; keepMs: number | null }, number> = {
  name: 'purge',
  *body(t, { now, keepMs }) {
    const gone = yield* sessions.purgeable(t);
    const purged = gone ? yield* purgeSession(t, gone) : 0;
    if (purged > 0 || keepMs === null) return purged;
    const before = now - keepMs;
    return (
      (yield* feed.removeBefore(t, before, rowsAtOnce)) +
      (yield* purgeRuns(t, before)) +
      (yield* exchanges.removeEndedBefore(t, before, rowsAtOnce)) +
      (yield* purgeDeliveries(t, before))
    );
  },
};

/** A deleted session's text goes first; its row goes last, when no other row refers to it. */
function* purgeSession(t: Tx, { pk, id, key }: { pk: number; id: string; key: string }): Body<number> {
  if (!(yield* t.tryLock(`lane:${key}`))) return 0;
  const texts = (yield* entries.removeOf(t, pk, rowsAtOnce)) || (yield* feed.removeOf(t, pk, rowsAtOnce));
  if (texts > 0) return texts;
  const open = yield* deliveries.someOf(t, pk, rowsAtOnce);
  yield* t.lock(...open.map((delivery) => `dest:${delivery.dest_key}` as const));
  for (const delivery of open) {
    yield* deliveries.remove(t, delivery.pk);
    if (delivery.head === 1) yield* deliveries.nextHead(t, delivery.dest_key);
  }
  if (open.length > 0) return open.length;
  const old = yield* runs.someOf(t, pk, rowsAtOnce);
  for (const run of old) yield* forgetRun(t, run);
  if (old.length > 0) return old.length;
  const ended = yield* exchanges.removeOf(t, pk, rowsAtOnce);
  if (ended > 0) return ended;
  yield* forgets.insert(t, { pk, id });
  yield* readMarks.removeOf(t, pk);
  yield* workspaces.remove(t, `session:${id}`);
  return yield* sessions.remove(t, pk);
}

/** Purged sessions whose words are still in the search index, a few at a time. */
export const toForget: ReadQuery<object, forgets.Purged[]> = {
  name: 'to forget',
  *body(t) {
    return yield* forgets.first(t, rowsAtOnce);
  },
};

/** Written after the index has deleted them. A crash before this only repeats the deletion. */
export const forgotten: EngineCommand<{ sessionPks: number[] }, void> = {
  name: 'forgotten',
  *body(t, { sessionPks }) {
    for (const pk of sessionPks) yield* forgets.remove(t, pk);
  },
};

function* purgeRuns(t: Tx, before: number): Body<number> {
  const old = yield* runs.endedBefore(t, before, rowsAtOnce);
  yield* t.lock(...new Set(old.map((run) => `lane:${run.lane}` as const)));
  for (const { pk } of old) yield* forgetRun(t, pk);
  return old.length;
}

/** An idempotency key stays valid as long as its run, so they go together. */
function* forgetRun(t: Tx, pk: number): Body<void> {
  yield* calls.removeOf(t, pk);
  yield* idempotency.removeOf(t, pk);
  yield* inputs.removeOf(t, pk);
  yield* exchanges.removeTurnsOf(t, pk);
  yield* offers.removeOf(t, pk);
  yield* runs.remove(t, pk);
}

function* purgeDeliveries(t: Tx, before: number): Body<number> {
  const old = yield* deliveries.settledBefore(t, before, rowsAtOnce);
  yield* t.lock(...new Set(old.map((delivery) => `dest:${delivery.dest_key}` as const)));
  for (const { pk } of old) yield* deliveries.remove(t, pk);
  return old.length;
}
