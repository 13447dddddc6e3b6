// Sessions as rows: opening one, finding one, and ending a life of one.
import { InterlaneError } from '../errors.ts';
import type { DeliveryContext } from '../protocol/session.ts';
import type { Body, Reading } from '../store/contract.ts';
import type { RunRow, SessionRow, StopRow } from '../store/rows.ts';
import { endRun, type Ending } from './end.ts';
import { overseen, type Operator } from './policy.ts';
import { noteSession, type EngineCommand, type Tx } from './feed.ts';
import { promote } from './queue.ts';

export interface NewSession {
  id: string;
  agent: string;
  kind: string;
  user?: string | undefined;
  label?: string | undefined;
}

export function* sessionByKey(t: Reading, key: string): Body<SessionRow | undefined> {
  return yield* t.one<SessionRow>('SELECT * FROM sessions WHERE key = ? AND current = 1', key);
}

function* sessionByPk(t: Reading, pk: number): Body<SessionRow> {
  return (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', pk))!;
}

export function* openSession(t: Tx, key: string, made: NewSession, now: number): Body<SessionRow> {
  const last = yield* t.one<{ life: number }>('SELECT life FROM sessions WHERE key = ? ORDER BY life DESC LIMIT 1', key);
  const { lastId } = yield* t.run(
    'INSERT INTO sessions (id, key, life, current, agent, kind, label, user, created_at, last_at) VALUES (?,?,?,1,?,?,?,?,?,?)',
    made.id,
    key,
    (last?.life ?? 0) + 1,
    made.agent,
    made.kind,
    made.label ?? null,
    made.user ?? null,
    now,
    now,
  );
  const session = yield* sessionByPk(t, lastId);
  yield* noteSession(t, session, 'created', now);
  return session;
}

/** Makes sure that a session exists; for the main sessions of all configured agents, at start. */
export const ensureSession: EngineCommand<{ key: string; made: NewSession; now: number }, SessionRow> = {
  name: 'ensure session',
  *body(t, { key, made, now }) {
    return (yield* sessionByKey(t, key)) ?? (yield* openSession(t, key, made, now));
  },
};

/** I8. What a session that is driven from outside has been told counts like what stands in its transcript. */
export const raiseTaint: EngineCommand<{ sessionPk: number; taint: number; now: number }, void> = {
  name: 'raise taint',
  *body(t, { sessionPk, taint, now }) {
    const { changes } = yield* t.run(
      'UPDATE sessions SET taint = ?, level = max(level, ?), policy_rev = policy_rev + 1 WHERE pk = ? AND taint < ?',
      taint,
      taint,
      sessionPk,
      taint,
    );
    if (changes > 0) yield* noteSession(t, yield* sessionByPk(t, sessionPk), 'changed', now);
  },
};

/** Where a session last spoke; set by what comes in from a channel, never by inter-session work. */
export function* rememberDelivery(t: Tx, session: SessionRow, context: DeliveryContext): Body<void> {
  const written = JSON.stringify(context);
  if (session.delivery === written) return;
  session.delivery = written;
  yield* t.run('UPDATE sessions SET delivery = ? WHERE pk = ?', written, session.pk);
}

/** Runs that were asked to stop, and whether the sweep has more of the queue to end. */
export interface Stopping {
  stopping: number[];
  more: boolean;
}

/**
 * A new life for a key, in one transaction: the live run is told to stop, what was queued can no longer start and ends with the
 * reason, and the key points to the new life. The lane is the key, so the new life's first run starts after all of that has ended.
 */
export function resetSession(
  ending: Ending,
): EngineCommand<{ key: string; id: string; now: number; operator?: Operator | undefined }, Stopping & { session: SessionRow }> {
  return {
    name: 'reset session',
    *body(t, { key, id, now, operator }) {
      const found = yield* sessionByKey(t, key);
      const old = operator ? overseen(ending.world, found, operator) : found;
      if (!old)
        throw new InterlaneError('SESSION_NOT_FOUND', `session ${JSON.stringify(key)} does not exist, so there is nothing to reset`);
      // First, so that no flow of the old life can open another turn on it.
      yield* t.run('UPDATE sessions SET current = 0 WHERE pk = ?', old.pk);
      const stopped = yield* stopAll(t, ending, old, 'reset', now);
      const { lastId } = yield* t.run(
        `INSERT INTO sessions (id, key, life, current, agent, kind, label, user, parent_key, depth, exist_taint, level, created_at, last_at, settings, delivery)
         SELECT ?, key, life + 1, 1, agent, kind, label, user, parent_key, depth, exist_taint, exist_taint, ?, ?, settings, delivery FROM sessions WHERE pk = ?`,
        id,
        now,
        now,
        old.pk,
      );
      const session = yield* sessionByPk(t, lastId);
      yield* noteSession(t, session, 'reset', now);
      return { session, ...stopped };
    },
  };
}

/** Takes a session out of the lists (archive), or frees its key for good (delete). Refuses while something is open, unless forced. */
export function closeSession(
  ending: Ending,
): EngineCommand<{ key: string; to: 'archived' | 'deleted'; force: boolean; now: number; operator?: Operator | undefined }, Stopping> {
  return {
    name: 'close session',
    *body(t, { key, to, force, now, operator }) {
      const found = yield* sessionByKey(t, key);
      const session = operator ? overseen(ending.world, found, operator) : found;
      if (!session) throw new InterlaneError('SESSION_NOT_FOUND', `session ${JSON.stringify(key)} does not exist`);
      const open = yield* openWork(t, session);
      if (open && !force)
        throw new InterlaneError('SESSION_BUSY', `session ${JSON.stringify(key)} has ${open} open; wait for it, or stop it first`);
      yield* t.run(
        'UPDATE sessions SET state = ?, current = ?, label = NULL, policy_rev = policy_rev + 1 WHERE pk = ?',
        to,
        to === 'deleted' ? 0 : 1,
        session.pk,
      );
      const stopped = yield* stopAll(t, ending, session, to, now);
      yield* noteSession(t, session, to, now);
      return stopped;
    },
  };
}

function* openWork(t: Tx, session: SessionRow): Body<string | undefined> {
  const run = yield* t.one(
    `SELECT 1 FROM runs WHERE lane = ? AND state IN ('running', 'waiting') UNION ALL SELECT 1 FROM runs WHERE lane = ? AND state = 'queued' LIMIT 1`,
    session.key,
    session.key,
  );
  if (run) return 'a run';
  const flow = yield* t.one(
    `SELECT 1 FROM exchanges WHERE end_reason IS NULL AND (tgt_session_pk = ? OR req_session_pk = ?) LIMIT 1`,
    session.pk,
    session.pk,
  );
  if (flow) return 'an exchange';
  const delivery = yield* t.one(`SELECT 1 FROM deliveries WHERE session_pk = ? AND state IN ('pending', 'sending') LIMIT 1`, session.pk);
  return delivery ? 'a delivery' : undefined;
}

/** Queued runs that are ended in one transaction; the sweep goes on with the rest. */
const stopRows = 50;

function* stopAll(t: Tx, ending: Ending, session: SessionRow, reason: string, now: number): Body<Stopping> {
  const more = yield* stopQueue(t, ending, session.key, reason, now);
  return { stopping: yield* stopActive(t, ending, session, reason, now), more };
}

/** From this transaction on nothing that is queued in a lane can start, however long it takes to end it all. */
function* stopQueue(t: Tx, ending: Ending, lane: string, reason: string, now: number): Body<boolean> {
  const last = yield* t.one<{ pk: number }>(`SELECT pk FROM runs WHERE lane = ? AND state = 'queued' ORDER BY pk DESC LIMIT 1`, lane);
  if (!last) return false;
  yield* t.run('INSERT OR IGNORE INTO stops (lane, upto, reason) VALUES (?,?,?)', lane, last.pk, reason);
  yield* t.run(
    `UPDATE runs SET ready_pos = NULL WHERE pk = (SELECT pk FROM runs WHERE lane = ? AND state = 'queued' ORDER BY pk LIMIT 1)`,
    lane,
  );
  const first = (yield* t.one<StopRow>('SELECT * FROM stops WHERE lane = ? ORDER BY upto LIMIT 1', lane))!;
  return yield* endStopped(t, ending, first, now);
}

/** Ends some of what was stopped in a lane, oldest first; after the last one the lane goes on. Answers whether there is more. */
function* endStopped(t: Tx, ending: Ending, { lane, upto, reason }: StopRow, now: number): Body<boolean> {
  const queued = yield* t.all<RunRow>(
    `SELECT * FROM runs WHERE lane = ? AND state = 'queued' AND pk <= ? ORDER BY pk LIMIT ?`,
    lane,
    upto,
    stopRows,
  );
  for (const run of queued) yield* endRun(t, ending, run, { outcome: 'aborted', code: 'ABORTED', error: reason, now });
  if (queued.length === stopRows) return true;
  yield* t.run('DELETE FROM stops WHERE lane = ? AND upto = ?', lane, upto);
  const { pos } = (yield* t.one<{ pos: number }>('SELECT max(pos) AS pos FROM feed'))!;
  yield* promote(t, lane, pos);
  return (yield* t.one('SELECT 1 FROM stops WHERE lane = ?', lane)) !== undefined;
}

/** What a reset or a delete had to leave over. A little of it; answers 0 when there is nothing left. */
export function sweepStops(ending: Ending): EngineCommand<{ now: number }, number> {
  return {
    name: 'sweep stops',
    *body(t, { now }) {
      const stop = yield* t.one<StopRow>('SELECT * FROM stops ORDER BY lane, upto LIMIT 1');
      if (!stop) return 0;
      yield* endStopped(t, ending, stop, now);
      return 1;
    },
  };
}

/** Ends a waiting turn of a session, and asks a running one to stop. Returns the runs that were asked. */
export function* stopActive(t: Tx, ending: Ending, session: SessionRow, reason: string, now: number): Body<number[]> {
  const active = yield* t.all<RunRow>(
    `SELECT * FROM runs WHERE lane = ? AND state IN ('running', 'waiting') AND session_pk = ?`,
    session.key,
    session.pk,
  );
  const stopping: number[] = [];
  for (const run of active) {
    if (run.state === 'running') {
      yield* t.run('UPDATE runs SET abort_requested = ? WHERE pk = ?', reason, run.pk);
      stopping.push(run.pk);
    } else {
      yield* endRun(t, ending, run, { outcome: 'aborted', code: 'ABORTED', error: reason, now });
    }
  }
  return stopping;
}
