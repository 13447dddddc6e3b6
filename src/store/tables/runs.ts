// The `runs` table: every turn, from its claim to its one end. Lanes are in run-lanes.ts, lists of runs in run-pages.ts.
import type { RunClass, RunOutcome } from '../../protocol/run.ts';
import { Conflict, type Body, type Reading, type Writing } from '../contract.ts';
import { rowShape } from '../row-shape.ts';
import type { InputRow, ParkedOn, RunRow, SessionRow } from '../rows.ts';
import * as inputs from './inputs.ts';
import * as sessions from './sessions.ts';

const columns = [
  'pk',
  'id',
  'session_pk',
  'lane',
  'class',
  'state',
  'ready_pos',
  'not_before',
  'owner',
  'epoch',
  'crashes',
  'step',
  'deliver',
  'destination',
  'root_pk',
  'hop',
  'budget_ms',
  'used_ms',
  'abort_requested',
  'merged_into',
  'reply_seq',
  'error_code',
  'error',
  'tokens',
  'model',
  'input_tokens',
  'output_tokens',
  'cost_micros',
  'queued_at',
  'started_at',
  'ended_at',
  'parked_on',
  'injections',
] as const satisfies (keyof RunRow)[];

const named = (table: string, prefix: string, names: readonly string[]) =>
  names.map((name) => `${table}.${name} AS ${prefix}${name}`).join(', ');
const runAndSession = `${named('runs', '', columns)}, ${named('sessions', 's_', sessions.columns)}`;

/** One part of a joined row. */
function part(prefix: string, names: readonly string[]): (row: Record<string, unknown>) => Record<string, unknown> {
  const fill = rowShape(names);
  const prefixed = names.map((name) => prefix + name);
  return (row) => fill(prefixed.map((name) => row[name]));
}

const sessionPart = part('s_', sessions.columns);
const inputPart = part('i_', inputs.columns);

export interface RunOfSession {
  run: RunRow;
  session: SessionRow;
}

const split = (row: Record<string, unknown>): RunOfSession => ({
  run: row as unknown as RunRow,
  session: sessionPart(row) as unknown as SessionRow,
});

/** What the end of a run has to see to. */
export interface LooseEnds {
  /** Calls that wait for this run. */
  waiters: number;
  /** Flows of the inputs it consumed, or of its own. */
  flows: number;
  /** The oldest queued run of the lane. */
  head: number | null;
}

/** Joins: waits, inputs. */
const looseEndsOf = `(SELECT count(*) FROM waits WHERE target_kind = 'run' AND target_pk = runs.pk AND answer IS NULL) AS waiters,
  (SELECT count(*) FROM inputs WHERE flow IS NOT NULL AND taken_by = runs.pk)
    + (SELECT count(*) FROM inputs WHERE flow IS NOT NULL AND run_pk = runs.pk AND taken_by IS NULL) AS flows,
  (SELECT pk FROM runs AS next WHERE next.lane = runs.lane AND next.state = 'queued' ORDER BY next.pk LIMIT 1) AS head`;

// Looking up -----------------------------------------------------------------------------------------------------------

export function byPk(t: Reading, pk: number): Body<RunRow | undefined> {
  return t.one<RunRow>('SELECT * FROM runs WHERE pk = ?', pk);
}

/** For a key that some other row points with: the run is there. */
export function* get(t: Reading, pk: number): Body<RunRow> {
  return (yield* byPk(t, pk))!;
}

export function byId(t: Reading, id: string): Body<RunRow | undefined> {
  return t.one<RunRow>('SELECT * FROM runs WHERE id = ?', id);
}

/** The run with this id, or the one that took it in. */
export function* followed(t: Reading, id: string): Body<RunRow | undefined> {
  let run = yield* byId(t, id);
  while (run && run.merged_into !== null) run = yield* byPk(t, run.merged_into);
  return run;
}

export type SeenRun = RunRow & { session_id: string; session_key: string; reply: string | null };

/** Joins: sessions, entries. */
const seenBy = (column: 'id' | 'pk') => `SELECT runs.*, sessions.id AS session_id, sessions.key AS session_key, entries.text AS reply
  FROM runs JOIN sessions ON sessions.pk = runs.session_pk
    LEFT JOIN entries ON entries.session_pk = runs.session_pk AND entries.seq = runs.reply_seq
  WHERE runs.${column} = ?`;
const seenById = seenBy('id');
const seenByPk = seenBy('pk');

/** Joins: sessions, entries. The run with this id, or the one that took it in, with its reply. */
export function* seen(t: Reading, id: string): Body<SeenRun | undefined> {
  let run = yield* t.one<SeenRun>(seenById, id);
  while (run && run.merged_into !== null) run = yield* t.one<SeenRun>(seenByPk, run.merged_into);
  return run;
}

/** Joins: sessions. I3. A run that is under way in this epoch, with its session. */
export function* held(t: Reading, runPk: number, epoch: number): Body<RunOfSession | undefined> {
  const row = yield* t.one<Record<string, unknown>>(
    `SELECT ${runAndSession} FROM runs JOIN sessions ON sessions.pk = runs.session_pk
     WHERE runs.pk = ? AND runs.epoch = ? AND runs.state = 'running'`,
    runPk,
    epoch,
  );
  return row && split(row);
}

/** Joins: sessions, waits, inputs. I3. The same with what its end has to see to. */
export function* heldToEnd(t: Reading, runPk: number, epoch: number): Body<(RunOfSession & { loose: LooseEnds }) | undefined> {
  const row = yield* t.one<Record<string, unknown> & LooseEnds>(
    `SELECT ${runAndSession}, ${looseEndsOf} FROM runs JOIN sessions ON sessions.pk = runs.session_pk
     WHERE runs.pk = ? AND runs.epoch = ? AND runs.state = 'running'`,
    runPk,
    epoch,
  );
  return row && { ...split(row), loose: { waiters: row.waiters, flows: row.flows, head: row.head } };
}

/** Joins: sessions. */
export function* withSession(t: Reading, pk: number): Body<RunOfSession> {
  return split(
    (yield* t.one<Record<string, unknown>>(
      `SELECT ${runAndSession} FROM runs JOIN sessions ON sessions.pk = runs.session_pk WHERE runs.pk = ?`,
      pk,
    ))!,
  );
}

// Claiming -------------------------------------------------------------------------------------------------------------

/** A run that was under way in this many crashes may be the one that kills, and is tried again only alone. */
export const suspectCrashes = 2;

export interface Ready extends RunOfSession {
  input: InputRow;
  /** Whether runs wait behind it in its lane. */
  behind: boolean;
}

const readyOf = `SELECT pk FROM (SELECT pk FROM runs WHERE class = ? AND ready_pos IS NOT NULL AND (not_before IS NULL OR not_before <= ?)
  AND crashes < ${suspectCrashes} ORDER BY ready_pos LIMIT ?) AS counted`;
/** Joins: sessions, inputs. */
const claimable = `SELECT ${runAndSession}, ${named('inputs', 'i_', inputs.columns)},
    CASE WHEN EXISTS (SELECT 1 FROM runs AS later WHERE later.lane = runs.lane AND later.state = 'queued' AND later.pk <> runs.pk) THEN 1 ELSE 0 END AS behind
  FROM runs JOIN sessions ON sessions.pk = runs.session_pk JOIN inputs ON inputs.run_pk = runs.pk
  WHERE runs.pk IN (${[readyOf, readyOf, readyOf, readyOf].join(' UNION ALL ')}
    UNION ALL SELECT pk FROM (SELECT pk FROM runs WHERE ready_pos IS NOT NULL AND crashes >= ${suspectCrashes} ORDER BY ready_pos LIMIT ?) AS suspects)
  ORDER BY runs.ready_pos`;

/** Joins: sessions, inputs. The heads of lanes, oldest first, for as many free slots as each class has; at most so many suspects. */
export function* ready(t: Reading, free: Record<RunClass, number>, suspects: number, now: number): Body<Ready[]> {
  const classes = Object.entries(free).flatMap(([name, slots]) => [name, now, Math.max(0, slots)]);
  const rows = yield* t.all<Record<string, unknown>>(claimable, ...classes, suspects);
  return rows.map((row) => ({ ...split(row), input: inputPart(row) as unknown as InputRow, behind: row['behind'] === 1 }));
}

/** Lanes with a run that may not start yet. */
export function* lanesHeldBack(t: Reading): Body<string[]> {
  const rows = yield* t.all<{ lane: string }>(
    `SELECT DISTINCT lane FROM runs WHERE state = 'queued' AND not_before IS NOT NULL ORDER BY lane`,
  );
  return rows.map(({ lane }) => lane);
}

/** The wall clock was set. */
export function* moveNotBefore(t: Writing, byMs: number): Body<void> {
  yield* t.run(`UPDATE runs SET not_before = not_before + ? WHERE state = 'queued' AND not_before IS NOT NULL`, byMs);
}

/** I3. The epoch rises with every claim, so that an earlier holder's writes are refused. False: another gateway was faster. */
export function* claim(t: Writing, run: RunRow, owner: number, now: number): Body<boolean> {
  const { changes } = yield* t.run(
    `UPDATE runs SET state = 'running', ready_pos = NULL, parked_on = NULL, owner = ?, epoch = ?, started_at = coalesce(started_at, ?)
     WHERE pk = ? AND epoch = ? AND ready_pos IS NOT NULL`,
    owner,
    run.epoch + 1,
    now,
    run.pk,
    run.epoch,
  );
  if (changes > 0) Object.assign(run, { state: 'running', ready_pos: null, parked_on: null, owner, epoch: run.epoch + 1 });
  return changes > 0;
}

/** The highest number in use among ready runs: the counter goes on from there. Resumed runs count below zero from `resumeFirst`. */
export function* highestReady(t: Reading, resumeFirst: number): Body<number> {
  const row = yield* t.one<{ high: number | null }>(
    'SELECT max(CASE WHEN ready_pos < 0 THEN ready_pos - ? ELSE ready_pos END) AS high FROM runs WHERE ready_pos IS NOT NULL',
    resumeFirst,
  );
  return Math.max(0, row?.high ?? 0);
}

// While it is under way ------------------------------------------------------------------------------------------------

/** What a model cost. */
export interface Spent {
  model: string | null;
  tokens: number;
  input: number;
  output: number;
  costMicros: number;
}

export const nothingSpent: Spent = { model: null, tokens: 0, input: 0, output: 0, costMicros: 0 };

/**
 * Progress sets the count of crashes back, but only to 1: a run that stores a step and then kills the gateway, again and again, stays a
 * suspect after each crash and takes no other run with it.
 */
export function* stepped(t: Writing, pk: number, step: number, spent: Spent): Body<void> {
  yield* t.run(
    `UPDATE runs SET step = ?, crashes = CASE WHEN crashes > 1 THEN 1 ELSE crashes END, tokens = tokens + ?, model = coalesce(?, model), input_tokens = input_tokens + ?, output_tokens = output_tokens + ?,
       cost_micros = cost_micros + ? WHERE pk = ?`,
    step,
    spent.tokens,
    spent.model,
    spent.input,
    spent.output,
    spent.costMicros,
    pk,
  );
}

/** Gives back the slot and the lease, keeps the lane. */
export function* park(t: Writing, pk: number, on: ParkedOn, usedMs: number, readyPos: number | null): Body<void> {
  yield* t.run(
    `UPDATE runs SET state = 'waiting', parked_on = ?, owner = NULL, ready_pos = ?, used_ms = used_ms + ? WHERE pk = ?`,
    on,
    readyPos,
    usedMs,
    pk,
  );
}

/** How many injected messages wait for the results of its calls. */
export function* setInjections(t: Writing, run: RunRow, count: number): Body<void> {
  yield* t.run('UPDATE runs SET injections = ? WHERE pk = ?', count, run.pk);
  run.injections = count;
}

export function* addUsedTime(t: Writing, pk: number, ms: number): Body<void> {
  if (ms > 0) yield* t.run('UPDATE runs SET used_ms = used_ms + ? WHERE pk = ?', ms, pk);
}

export function* requestAbort(t: Writing, pk: number, reason: string): Body<void> {
  yield* t.run('UPDATE runs SET abort_requested = ? WHERE pk = ?', reason, pk);
}

/** Runs that say "running" but belong to a gateway that is gone. */
export function orphans(t: Reading, me: number, limit: number): Body<RunRow[]> {
  return t.all<RunRow>(`SELECT * FROM runs WHERE state = 'running' AND owner <> ? ORDER BY pk LIMIT ?`, me, limit);
}

/** A run whose gateway died goes on when it gets a slot. */
export function* recover(t: Writing, run: RunRow, readyPos: number): Body<void> {
  yield* t.run(
    `UPDATE runs SET state = 'waiting', parked_on = 'slot', owner = NULL, epoch = epoch + 1, crashes = crashes + 1, ready_pos = ? WHERE pk = ?`,
    readyPos,
    run.pk,
  );
  Object.assign(run, {
    state: 'waiting',
    parked_on: 'slot',
    owner: null,
    epoch: run.epoch + 1,
    crashes: run.crashes + 1,
    ready_pos: readyPos,
  });
}

// The end --------------------------------------------------------------------------------------------------------------

export interface End {
  outcome: RunOutcome;
  replySeq: number | null;
  code: string | null;
  error: string | null;
  usedMs: number;
  spent: Spent;
  now: number;
}

/** A run ends once: a command that read it before another one ended it runs again. */
export function* end(t: Writing, pk: number, as: End): Body<void> {
  const { changes } = yield* t.run(
    `UPDATE runs SET state = ?, ready_pos = NULL, parked_on = NULL, owner = NULL, reply_seq = ?, error_code = ?, error = ?, used_ms = used_ms + ?,
       tokens = tokens + ?, model = coalesce(?, model), input_tokens = input_tokens + ?, output_tokens = output_tokens + ?, cost_micros = cost_micros + ?,
       ended_at = ? WHERE pk = ? AND ended_at IS NULL`,
    as.outcome,
    as.outcome === 'ok' ? as.replySeq : null,
    as.code,
    as.error,
    as.usedMs,
    as.spent.tokens,
    as.spent.model,
    as.spent.input,
    as.spent.output,
    as.spent.costMicros,
    as.now,
    pk,
  );
  if (changes === 0) throw new Conflict('the run was ended by another command');
}

/** Its input went into another run, whose answer is its answer. */
export function* mergedInto(t: Writing, pk: number, intoPk: number, now: number): Body<void> {
  yield* t.run(`UPDATE runs SET state = 'ok', ready_pos = NULL, merged_into = ?, ended_at = ? WHERE pk = ?`, intoPk, now, pk);
}

/** Joins: waits, inputs. */
export function* looseEnds(t: Reading, pk: number): Body<LooseEnds> {
  return (yield* t.one<LooseEnds>(`SELECT ${looseEndsOf} FROM runs WHERE pk = ?`, pk))!;
}

// Forgetting -----------------------------------------------------------------------------------------------------------

export function* someOf(t: Reading, sessionPk: number, limit: number): Body<number[]> {
  const rows = yield* t.all<{ pk: number }>('SELECT pk FROM runs WHERE session_pk = ? ORDER BY pk LIMIT ?', sessionPk, limit);
  return rows.map((row) => row.pk);
}

/** Joins: exchanges, exchange_turns, waits. Runs that ended long ago and that nothing open depends on. */
export function endedBefore(t: Reading, at: number, limit: number): Body<{ pk: number; lane: string }[]> {
  return t.all<{ pk: number; lane: string }>(
    `SELECT pk, lane FROM runs WHERE ended_at < ?
     AND NOT EXISTS (SELECT 1 FROM exchanges JOIN exchange_turns ON exchange_pk = exchanges.pk WHERE exchange_turns.run_pk = runs.pk AND end_reason IS NULL)
     AND NOT EXISTS (SELECT 1 FROM waits WHERE target_kind = 'run' AND target_pk = runs.pk AND answer IS NULL)
     ORDER BY ended_at, pk LIMIT ?`,
    at,
    limit,
  );
}

export function* remove(t: Writing, pk: number): Body<void> {
  yield* t.run('DELETE FROM runs WHERE pk = ?', pk);
}

export interface NextDue {
  wait: number | null;
  offer: number | null;
  flow: number | null;
  /** When the next run may start that may not start yet. */
  startable: number | null;
  /** 1 if a run may start that could not start when it was queued. */
  startable_now: number;
}

/** Joins: waits, offers, exchanges. When each kind of stored due time comes next. */
export function* nextDue(t: Reading, now: number): Body<NextDue> {
  return (yield* t.one<NextDue>(
    `SELECT (SELECT due_at FROM waits WHERE answer IS NULL ORDER BY due_at LIMIT 1) AS wait,
       (SELECT due_at FROM offers WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1) AS offer,
       (SELECT due_at FROM exchanges WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1) AS flow,
       (SELECT not_before FROM runs WHERE not_before IS NOT NULL AND ready_pos IS NOT NULL AND not_before > ? ORDER BY not_before LIMIT 1) AS startable,
       CASE WHEN EXISTS (SELECT 1 FROM runs WHERE not_before IS NOT NULL AND ready_pos IS NOT NULL AND not_before <= ?) THEN 1 ELSE 0 END
         AS startable_now`,
    now,
    now,
  ))!;
}
