// The lives of a session: opens one, resets it to a new one, closes it.
import { InterlaneError } from '../errors.ts';
import type { Destination } from '../protocol/session.ts';
import type { World } from '../rules/decide.ts';
import type { Body } from '../store/contract.ts';
import type { SessionRow, StopRow } from '../store/rows.ts';
import * as deliveries from '../store/tables/deliveries.ts';
import * as lanes from '../store/tables/run-lanes.ts';
import * as runs from '../store/tables/runs.ts';
import * as sessions from '../store/tables/sessions.ts';
import * as stops from '../store/tables/stops.ts';
import * as tokens from '../store/tables/tokens.ts';
import { endRun } from './end.ts';
import { openFlow, type Current, type Kernel } from './flow.ts';
import { existenceOf, namesForNextLife, requireClearance, visibleToOperator, type Operator } from './policy.ts';
import { noteSession, type EngineCommand, type Tx } from './feed.ts';
import { promote } from './queue.ts';

export type { NewSession } from '../store/tables/sessions.ts';

export function* openSession(t: Tx, key: string, made: sessions.NewSession, existence: number, now: number): Body<SessionRow> {
  yield* t.lock(`lane:${key}`);
  const session = yield* sessions.insert(t, key, made, existence, now);
  noteSession(t, session, 'created', now);
  return session;
}

/** Makes sure that a session exists; for the main sessions of all configured agents, at start. */
export const ensureSession: EngineCommand<{ key: string; made: sessions.NewSession; now: number }, SessionRow> = {
  name: 'ensure session',
  *body(t, { key, made, now }) {
    yield* t.lock(`lane:${key}`);
    return (yield* sessions.current(t, key)) ?? (yield* openSession(t, key, made, 0, now));
  },
};

/** I8. Results that an outside session has read raise its taint, as entries of its transcript do; up to its clearance. */
export function raiseTaint(
  current: () => { world: World },
): EngineCommand<{ sessionKey: string; sessionPk: number; taint: number; now: number }, void> {
  return {
    name: 'raise taint',
    *body(t, { sessionKey, sessionPk, taint, now }) {
      const { world } = current();
      yield* t.lock(`lane:${sessionKey}`);
      requireClearance(world, yield* sessions.get(t, sessionPk), taint, 'result');
      if (yield* sessions.raise(t, sessionPk, taint)) noteSession(t, yield* sessions.get(t, sessionPk), 'changed', now);
    },
  };
}

/** Records the chat of a session's last message from a channel. Inter-session work never changes it. */
export function* rememberDelivery(t: Tx, session: SessionRow, context: Destination): Body<void> {
  const written = JSON.stringify(context);
  if (session.delivery === written) return;
  session.delivery = written;
  yield* sessions.setDelivery(t, session.pk, written);
}

/** Runs whose stop was requested, and whether the sweep has more queued runs to end. */
export interface Stopping {
  stopping: number[];
  more: boolean;
}

/**
 * A new life for a key, in one transaction: the live run is asked to stop, queued runs can no longer start and end with the
 * reason, and the key points to the new life. The lane is the key, so the new life's first run starts after all of them have ended.
 */
export function resetSession(
  current: Current,
): EngineCommand<{ key: string; id: string; now: number; operator?: Operator | undefined }, Stopping & { session: SessionRow }> {
  return {
    name: 'reset session',
    *body(t, { key, id, now, operator }) {
      const kernel = current();
      yield* t.lock(`lane:${key}`);
      const found = yield* sessions.current(t, key);
      const old = operator ? visibleToOperator(kernel.world, found, operator) : found;
      if (!old)
        throw new InterlaneError('SESSION_NOT_FOUND', `session ${JSON.stringify(key)} does not exist, so there is nothing to reset`);
      // This comes first, so that no flow of the old life can open another turn on it.
      yield* sessions.retire(t, old.pk);
      const stopped = yield* stopAll(t, kernel, old, 'reset', now);
      const exist_taint = Math.max(old.exist_taint, existenceOf(kernel.world, key));
      const { label, pinned, settings, delivery } = namesForNextLife(kernel.world, old, exist_taint);
      const session = yield* sessions.nextLife(t, old, { id, label, pinned, exist_taint, settings, delivery }, now);
      noteSession(t, session, 'reset', now);
      return { session, ...stopped };
    },
  };
}

/** Takes a session out of the lists (archive), or deletes all its lives and frees its key (delete). Throws if the session has open work, unless forced. */
export function closeSession(
  current: Current,
): EngineCommand<{ key: string; to: 'archived' | 'deleted'; force: boolean; now: number; operator?: Operator | undefined }, Stopping> {
  return {
    name: 'close session',
    *body(t, { key, to, force, now, operator }) {
      const kernel = current();
      yield* t.lock(`lane:${key}`);
      const found = yield* sessions.current(t, key);
      const session = operator ? visibleToOperator(kernel.world, found, operator) : found;
      if (!session) throw new InterlaneError('SESSION_NOT_FOUND', `session ${JSON.stringify(key)} does not exist`);
      const open = yield* openWork(t, kernel, session);
      if (open && !force)
        throw new InterlaneError('SESSION_BUSY', `session ${JSON.stringify(key)} has ${open} open; wait for it, or stop it first`);
      yield* to === 'deleted' ? sessions.markDeleted(t, key) : sessions.archive(t, session.pk);
      // Another session may get the key; the tokens of this one must not work for it.
      if (to === 'deleted') yield* tokens.removeBoundTo(t, key);
      const stopped = yield* stopAll(t, kernel, session, to, now);
      noteSession(t, session, to, now);
      return stopped;
    },
  };
}

function* openWork(t: Tx, kernel: Kernel, session: SessionRow): Body<string | undefined> {
  if (yield* lanes.isOpenIn(t, session.key)) return 'a run';
  const flow = yield* openFlow(t, kernel.flows, session);
  if (flow !== undefined) return flow;
  return (yield* deliveries.isOpenFor(t, session.pk)) ? 'a delivery' : undefined;
}

/** The most queued runs that end in one transaction; the sweep ends the rest. */
const stopRows = 50;

function* stopAll(t: Tx, kernel: Kernel, session: SessionRow, reason: string, now: number): Body<Stopping> {
  const more = yield* stopQueue(t, kernel, session.key, reason, now);
  return { stopping: yield* stopActive(t, kernel, session, reason, now), more };
}

/** After this transaction no queued run of the lane can start, however long it takes to end them all. */
function* stopQueue(t: Tx, kernel: Kernel, lane: string, reason: string, now: number): Body<boolean> {
  const upto = yield* lanes.lastQueued(t, lane);
  if (upto === undefined) return false;
  yield* stops.insert(t, { lane, upto, reason });
  yield* lanes.setReady(t, (yield* lanes.headOf(t, lane))!.pk, null);
  return yield* endStopped(t, kernel, (yield* stops.firstIn(t, lane))!, now);
}

/** Ends some stopped runs of a lane, oldest first; after the last one the lane continues. Returns whether there are more. */
function* endStopped(t: Tx, kernel: Kernel, stop: StopRow, now: number): Body<boolean> {
  const queued = yield* lanes.queuedUpTo(t, stop.lane, stop.upto, stopRows);
  for (const run of queued) yield* endRun(t, kernel, run, { outcome: 'aborted', code: 'ABORTED', error: stop.reason, now });
  if (queued.length === stopRows) return true;
  yield* stops.remove(t, stop);
  yield* promote(t, stop.lane);
  return (yield* stops.firstIn(t, stop.lane)) !== undefined;
}

/** Ends a few runs that a reset or a delete left over. Returns 0 when none is left. */
export function sweepStops(current: Current): EngineCommand<{ now: number }, number> {
  return {
    name: 'sweep stops',
    *body(t, { now }) {
      const kernel = current();
      const stop = yield* stops.first(t);
      if (!stop || !(yield* t.tryLock(`lane:${stop.lane}`))) return 0;
      yield* endStopped(t, kernel, stop, now);
      return 1;
    },
  };
}

/** Ends a waiting turn of a session, and asks a running one to stop. Returns the runs that must stop. */
export function* stopActive(t: Tx, kernel: Kernel, session: SessionRow, reason: string, now: number): Body<number[]> {
  const run = yield* lanes.activeIn(t, session.key);
  if (!run || run.session_pk !== session.pk) return [];
  if (run.state === 'running') {
    yield* runs.requestAbort(t, run.pk, reason);
    return [run.pk];
  }
  yield* endRun(t, kernel, run, { outcome: 'aborted', code: 'ABORTED', error: reason, now });
  return [];
}
