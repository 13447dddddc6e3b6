// Pages of `runs`, and what lists and status tell of the work in a session.
import type { RunState } from '../../protocol/run.ts';
import type { Body, Reading } from '../contract.ts';
import type { RunRow, SessionRow } from '../rows.ts';
import { inBatches } from './value-list.ts';
import { inWindows } from '../windows.ts';

/** The work of one session: its lane's run that is under way, its own last run, and how many wait in its lane (at most 1,000 count). */
export interface SessionWork {
  session_pk: number;
  active_id: string | null;
  active_state: RunState | null;
  active_since: number | null;
  last_state: RunState | null;
  queued: number;
}

/** Joins: sessions. */
export function* workOf(t: Reading, sessionPks: readonly number[]): Body<SessionWork[]> {
  return yield* inBatches(sessionPks, (marks, params) =>
    t.all<SessionWork>(
      `SELECT sessions.pk AS session_pk, active.id AS active_id, active.state AS active_state, active.started_at AS active_since,
         (SELECT state FROM runs WHERE session_pk = sessions.pk ORDER BY pk DESC LIMIT 1) AS last_state,
         (SELECT count(*) FROM (SELECT 1 FROM runs WHERE lane = sessions.key AND state = 'queued' LIMIT 1000) AS counted) AS queued
       FROM sessions LEFT JOIN runs AS active ON active.lane = sessions.key AND active.state IN ('running', 'waiting')
       WHERE sessions.pk IN (${marks}) ORDER BY sessions.pk`,
      ...params,
    ),
  );
}

export function* runIdsOf(t: Reading, pks: readonly number[]): Body<{ pk: number; id: string }[]> {
  return yield* inBatches(pks, (marks, params) =>
    t.all<{ pk: number; id: string }>(`SELECT pk, id FROM runs WHERE pk IN (${marks}) ORDER BY pk`, ...params),
  );
}

/** The run that is under way in a lane. */
export function* activeRunId(t: Reading, lane: string): Body<string | undefined> {
  return (yield* t.one<{ id: string }>(`SELECT id FROM runs WHERE lane = ? AND state IN ('running', 'waiting')`, lane))?.id;
}

export type RunOfSession = RunRow & {
  session_key: string;
  session_id: string;
  session_agent: string;
  session_parent: string | null;
  session_level: number;
};

/** Joins: sessions. Newest first, strictly before a run: of one session, or of all sessions up to a level. */
export function* runsBefore(
  t: Reading,
  before: number,
  limit: number,
  of: { sessionPk?: number | undefined; level: number },
): Body<RunOfSession[]> {
  const rows = `SELECT runs.*, sessions.key AS session_key, sessions.id AS session_id, sessions.agent AS session_agent,
      sessions.parent_key AS session_parent, sessions.level AS session_level
    FROM runs CROSS JOIN sessions WHERE sessions.pk = runs.session_pk`;
  if (of.sessionPk !== undefined)
    return yield* t.all<RunOfSession>(
      `${rows} AND runs.session_pk = ? AND runs.pk < ? ORDER BY runs.pk DESC LIMIT ?`,
      of.sessionPk,
      before,
      limit,
    );
  const ends = yield* t.one<{ oldest: number | null; newest: number | null }>(
    'SELECT (SELECT min(pk) FROM runs) AS oldest, (SELECT max(pk) FROM runs) AS newest',
  );
  return yield* inWindows(ends, before, limit, (from, end, most) =>
    t.all<RunOfSession>(
      `${rows} AND runs.pk >= ? AND runs.pk < ? AND sessions.level <= ? ORDER BY runs.pk DESC LIMIT ?`,
      from,
      end,
      of.level,
      most,
    ),
  );
}

/** Joins: sessions. The session that a run belongs to. */
export function sessionOfRun(t: Reading, runId: string): Body<Pick<SessionRow, 'key' | 'agent' | 'parent_key' | 'level'> | undefined> {
  return t.one<Pick<SessionRow, 'key' | 'agent' | 'parent_key' | 'level'>>(
    'SELECT sessions.key, sessions.agent, sessions.parent_key, sessions.level FROM runs JOIN sessions ON sessions.pk = runs.session_pk WHERE runs.id = ?',
    runId,
  );
}

/** Whether a session ever had a run. */
export function* hasRun(t: Reading, sessionPk: number): Body<boolean> {
  return (yield* t.one('SELECT 1 FROM runs WHERE session_pk = ? LIMIT 1', sessionPk)) !== undefined;
}

/** Joins: stops. Lanes whose first queued run cannot be claimed, though nothing is before it. There should be none. */
export function stuckLanes(t: Reading, limit: number): Body<{ lane: string }[]> {
  return t.all<{ lane: string }>(
    `SELECT head.lane FROM runs AS head WHERE head.state = 'queued' AND head.ready_pos IS NULL
       AND NOT EXISTS (SELECT 1 FROM runs AS earlier WHERE earlier.lane = head.lane AND earlier.state = 'queued' AND earlier.pk < head.pk)
       AND NOT EXISTS (SELECT 1 FROM runs AS active WHERE active.lane = head.lane AND active.state IN ('running', 'waiting'))
       AND NOT EXISTS (SELECT 1 FROM stops WHERE stops.lane = head.lane AND stops.upto >= head.pk)
     ORDER BY head.pk LIMIT ?`,
    limit,
  );
}

/** Runs that have not ended, by state; at most 100,000 of each count. */
export function* openRunCounts(t: Reading): Body<Record<'queued' | 'running' | 'waiting', number>> {
  const count = function* (where: string): Body<number> {
    return (yield* t.one<{ n: number }>(`SELECT count(*) AS n FROM (SELECT 1 FROM runs WHERE ${where} LIMIT 100000) AS counted`))!.n;
  };
  return {
    queued: yield* count(`state = 'queued'`),
    running: yield* count(`state = 'running'`),
    // Said twice, for the index of active runs.
    waiting: yield* count(`state IN ('running', 'waiting') AND state = 'waiting'`),
  };
}

/** Queued runs by class; at most 100,000 of all count. */
export function queuedByClass(t: Reading): Body<{ class: string; n: number }[]> {
  return t.all<{ class: string; n: number }>(
    `SELECT class, count(*) AS n FROM (SELECT class FROM runs WHERE state = 'queued' LIMIT 100000) AS counted GROUP BY class`,
  );
}
