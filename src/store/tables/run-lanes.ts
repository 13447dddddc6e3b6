// The `runs` table as lanes: what is queued in a session, what is ready, what waits behind the run under way.
import type { QueueMode, RunClass } from '../../protocol/run.ts';
import type { Body, Reading, Writing } from '../contract.ts';
import type { RunRow } from '../rows.ts';

export interface NewRun {
  id: string;
  sessionPk: number;
  lane: string;
  class: RunClass;
  /** Its place in the order of claims; null while the lane is not free. */
  readyPos: number | null;
  deliver: boolean;
  destination: string | null;
  rootPk: number | null;
  hop: number;
  budgetMs: number;
  notBefore: number | null;
  now: number;
}

/** What a lane has at this moment: its oldest queued run, and whether one is running or waiting. */
export function* laneNow(t: Reading, lane: string): Body<{ oldest: number | null; active: boolean }> {
  const { oldest, active } = (yield* t.one<{ oldest: number | null; active: number }>(
    `SELECT (SELECT pk FROM runs WHERE lane = ? AND state = 'queued' ORDER BY pk LIMIT 1) AS oldest,
       CASE WHEN EXISTS (SELECT 1 FROM runs WHERE lane = ? AND state IN ('running', 'waiting')) THEN 1 ELSE 0 END AS active`,
    lane,
    lane,
  ))!;
  return { oldest, active: active === 1 };
}

export function* insert(t: Writing, run: NewRun): Body<number> {
  const { pk } = (yield* t.one<{ pk: number }>(
    `INSERT INTO runs (id, session_pk, lane, class, ready_pos, deliver, destination, root_pk, hop, budget_ms, not_before, queued_at)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING pk`,
    run.id,
    run.sessionPk,
    run.lane,
    run.class,
    run.readyPos,
    run.deliver ? 1 : 0,
    run.destination,
    run.rootPk,
    run.hop,
    run.budgetMs,
    run.notBefore,
    run.now,
  ))!;
  return pk;
}

/** Joins: stops. What a reset has stopped already does not count against the next life, though some of it is still there. */
export function* queuedIn(t: Reading, lane: string, cap: number): Body<number> {
  const { n } = (yield* t.one<{ n: number }>(
    `SELECT count(*) AS n FROM (SELECT 1 AS one FROM runs WHERE lane = ? AND state = 'queued'
       AND pk > (SELECT coalesce(max(upto), 0) FROM stops WHERE stops.lane = ?) LIMIT ?) AS counted`,
    lane,
    lane,
    cap,
  ))!;
  return n;
}

/** Joins: stops. The oldest queued run of a lane, and whether it was stopped. */
export function headOf(t: Reading, lane: string): Body<{ pk: number; ready_pos: number | null; stopped: number } | undefined> {
  return t.one<{ pk: number; ready_pos: number | null; stopped: number }>(
    `SELECT pk, ready_pos, CASE WHEN EXISTS (SELECT 1 FROM stops WHERE stops.lane = runs.lane AND upto >= runs.pk) THEN 1 ELSE 0 END AS stopped
     FROM runs WHERE lane = ? AND state = 'queued' ORDER BY pk LIMIT 1`,
    lane,
  );
}

/** The running or waiting run of a lane. */
export function activeIn(t: Reading, lane: string): Body<RunRow | undefined> {
  return t.one<RunRow>(`SELECT * FROM runs WHERE lane = ? AND state IN ('running', 'waiting') ORDER BY pk LIMIT 1`, lane);
}

export function* isOpenIn(t: Reading, lane: string): Body<boolean> {
  const found = yield* t.one(
    `SELECT 1 AS found FROM runs WHERE lane = ? AND state IN ('running', 'waiting')
     UNION ALL SELECT 1 AS found FROM runs WHERE lane = ? AND state = 'queued' LIMIT 1`,
    lane,
    lane,
  );
  return found !== undefined;
}

export function* setReady(t: Writing, pk: number, readyPos: number | null): Body<void> {
  yield* t.run('UPDATE runs SET ready_pos = ? WHERE pk = ?', readyPos, pk);
}

export function* lastQueued(t: Reading, lane: string): Body<number | undefined> {
  return (yield* t.one<{ pk: number }>(`SELECT pk FROM runs WHERE lane = ? AND state = 'queued' ORDER BY pk DESC LIMIT 1`, lane))?.pk;
}

/** Queued runs of a lane up to one of them, oldest first. */
export function queuedUpTo(t: Reading, lane: string, upto: number, limit: number): Body<RunRow[]> {
  return t.all<RunRow>(`SELECT * FROM runs WHERE lane = ? AND state = 'queued' AND pk <= ? ORDER BY pk LIMIT ?`, lane, upto, limit);
}

/** Joins: inputs. What waits behind a run of the same life, oldest first, with how it asked to be queued. */
export function behind(t: Reading, run: RunRow, limit: number): Body<(RunRow & { mode: QueueMode; merge_key: string })[]> {
  return t.all<RunRow & { mode: QueueMode; merge_key: string }>(
    `SELECT runs.*, inputs.mode, inputs.merge_key FROM runs JOIN inputs ON inputs.run_pk = runs.pk
     WHERE runs.lane = ? AND runs.state = 'queued' AND runs.session_pk = ? ORDER BY runs.pk LIMIT ?`,
    run.lane,
    run.session_pk,
    limit,
  );
}

/** Joins: inputs. Whether the next run of a lane asks to steer the one under way. */
export function* steerWaits(t: Reading, lane: string): Body<boolean> {
  const head = yield* t.one<{ mode: string }>(
    `SELECT inputs.mode FROM runs JOIN inputs ON inputs.run_pk = runs.pk WHERE runs.lane = ? AND runs.state = 'queued' ORDER BY runs.pk LIMIT 1`,
    lane,
  );
  return head?.mode === 'steer';
}

export function* countQueued(t: Reading, lane: string, cap: number): Body<number> {
  return (yield* t.one<{ n: number }>(
    `SELECT count(*) AS n FROM (SELECT 1 AS one FROM runs WHERE lane = ? AND state = 'queued' LIMIT ?) AS counted`,
    lane,
    cap,
  ))!.n;
}
