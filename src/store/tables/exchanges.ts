// The `exchanges` and `exchange_turns` tables: the life of each sessions_send, and the runs that were its turns.
import { Conflict, type Body, type Reading, type Writing } from '../contract.ts';
import type { ExchangeRow } from '../rows.ts';

export interface NewExchange {
  id: string;
  requesterPk: number;
  targetPk: number;
  origin: { runPk: number; step: number; idx: number } | undefined;
  maxTurns: number;
  hop: number;
  dueAt: number;
  now: number;
}

/** I2. Unique by its id and by the call that made it. */
export function* insert(t: Writing, made: NewExchange): Body<ExchangeRow> {
  return (yield* t.one<ExchangeRow>(
    `INSERT INTO exchanges (id, req_session_pk, tgt_session_pk, origin_run_pk, origin_step, origin_idx, state, max_turns, hop, due_at, at)
     VALUES (?, ?, ?, ?, ?, ?, 'request', ?, ?, ?, ?) RETURNING *`,
    made.id,
    made.requesterPk,
    made.targetPk,
    made.origin?.runPk ?? null,
    made.origin?.step ?? null,
    made.origin?.idx ?? null,
    made.maxTurns,
    made.hop,
    made.dueAt,
    made.now,
  ))!;
}

/** I2. The pair of exchange and turn is unique, so a turn cannot be taken twice. */
export function* addTurn(t: Writing, exchangePk: number, turn: number, runPk: number): Body<void> {
  yield* t.run('INSERT INTO exchange_turns (exchange_pk, turn, run_pk) VALUES (?, ?, ?)', exchangePk, turn, runPk);
}

export function byId(t: Reading, id: string): Body<ExchangeRow | undefined> {
  return t.one<ExchangeRow>('SELECT * FROM exchanges WHERE id = ?', id);
}

export function byPk(t: Reading, pk: number): Body<ExchangeRow | undefined> {
  return t.one<ExchangeRow>('SELECT * FROM exchanges WHERE pk = ?', pk);
}

/** An exchange that has not ended. */
export function open(t: Reading, pk: number): Body<ExchangeRow | undefined> {
  return t.one<ExchangeRow>('SELECT * FROM exchanges WHERE pk = ? AND end_reason IS NULL', pk);
}

export function* isOpenFor(t: Reading, sessionPk: number): Body<boolean> {
  const found = yield* t.one(
    `SELECT 1 AS found FROM exchanges WHERE end_reason IS NULL AND (tgt_session_pk = ? OR req_session_pk = ?) LIMIT 1`,
    sessionPk,
    sessionPk,
  );
  return found !== undefined;
}

/** How many were begun between two sessions since a time, up to a limit. */
export function* recentBetween(t: Reading, requesterPk: number, targetPk: number, since: number, limit: number): Body<number> {
  return (yield* t.one<{ n: number }>(
    'SELECT count(*) AS n FROM (SELECT 1 AS one FROM exchanges WHERE req_session_pk = ? AND tgt_session_pk = ? AND at > ? LIMIT ?) AS counted',
    requesterPk,
    targetPk,
    since,
    limit,
  ))!.n;
}

/** Joins: inputs. Where the request became an entry of the target. */
export function* requestSeq(t: Reading, pk: number): Body<number | null> {
  const row = yield* t.one<{ entry_seq: number | null }>(
    'SELECT inputs.entry_seq FROM inputs JOIN exchange_turns ON exchange_turns.run_pk = inputs.run_pk WHERE exchange_turns.exchange_pk = ? AND exchange_turns.turn = 0',
    pk,
  );
  return row?.entry_seq ?? null;
}

/** Both sides of an exchange advance it, each under its own lane, so the version decides: a writer that comes second runs again. */
export function* save(t: Writing, exchange: ExchangeRow, dueAt: number | null): Body<void> {
  const { changes } = yield* t.run(
    `UPDATE exchanges SET state = ?, turn = ?, first_seq = ?, last_session_pk = ?, last_seq = ?, end_reason = ?, due_at = ?, version = version + 1
     WHERE pk = ? AND version = ?`,
    exchange.state,
    exchange.turn,
    exchange.first_seq,
    exchange.last_session_pk,
    exchange.last_seq,
    exchange.end_reason,
    dueAt,
    exchange.pk,
    exchange.version,
  );
  if (changes === 0) throw new Conflict('the exchange was advanced by another command');
  exchange.due_at = dueAt;
  exchange.version++;
}

export function due(t: Reading, now: number, limit: number): Body<ExchangeRow[]> {
  return t.all<ExchangeRow>('SELECT * FROM exchanges WHERE due_at <= ? ORDER BY due_at, pk LIMIT ?', now, limit);
}

/** The wall clock was set. */
export function* moveDue(t: Writing, byMs: number): Body<void> {
  yield* t.run('UPDATE exchanges SET due_at = due_at + ? WHERE due_at IS NOT NULL', byMs);
}

/** Joins: runs. Whether one of its turns has still to end. */
export function* hasOpenTurn(t: Reading, pk: number): Body<boolean> {
  const found = yield* t.one(
    'SELECT 1 AS found FROM exchange_turns JOIN runs ON runs.pk = exchange_turns.run_pk WHERE exchange_turns.exchange_pk = ? AND runs.ended_at IS NULL LIMIT 1',
    pk,
  );
  return found !== undefined;
}

export function* removeTurnsOf(t: Writing, runPk: number): Body<void> {
  yield* t.run('DELETE FROM exchange_turns WHERE run_pk = ?', runPk);
}

export function* removeOf(t: Writing, sessionPk: number, limit: number): Body<number> {
  const { changes } = yield* t.run(
    'DELETE FROM exchanges WHERE pk IN (SELECT pk FROM exchanges WHERE tgt_session_pk = ? ORDER BY pk LIMIT ?)',
    sessionPk,
    limit,
  );
  return changes;
}

export function* removeEndedBefore(t: Writing, at: number, limit: number): Body<number> {
  const { changes } = yield* t.run(
    'DELETE FROM exchanges WHERE pk IN (SELECT pk FROM exchanges WHERE end_reason IS NOT NULL AND at < ? ORDER BY at, pk LIMIT ?)',
    at,
    limit,
  );
  return changes;
}
