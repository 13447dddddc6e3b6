// The `offers` table: turns that wait for a guest. Open: free to take. Taken: a guest has it until due_at. Stopped: it ended otherwise,
// and the guest that had it does not know yet.
import type { Body, Reading, Writing } from '../contract.ts';
import type { OfferRow } from '../rows.ts';

export function* insert(t: Writing, runPk: number, lane: string): Body<void> {
  yield* t.run('INSERT INTO offers (run_pk, lane) VALUES (?, ?) ON CONFLICT DO NOTHING', runPk, lane);
}

export function ofRun(t: Reading, runPk: number): Body<OfferRow | undefined> {
  return t.one<OfferRow>('SELECT * FROM offers WHERE run_pk = ?', runPk);
}

/** A lane has at most one turn under way, so at most one offer can be taken or answered. */
export function openIn(t: Reading, lane: string): Body<OfferRow | undefined> {
  return t.one<OfferRow>(`SELECT * FROM offers WHERE lane = ? AND state IN ('open', 'taken') ORDER BY run_pk LIMIT 1`, lane);
}

/** Joins: runs. Since when the oldest offer is open or taken. */
export function* oldest(t: Reading, state: 'open' | 'taken'): Body<number | undefined> {
  return (yield* t.one<{ at: number }>(
    `SELECT coalesce(offers.taken_at, runs.queued_at) AS at FROM offers JOIN runs ON runs.pk = offers.run_pk
     WHERE offers.state = ? ORDER BY offers.run_pk LIMIT 1`,
    state,
  ))?.at;
}

export function due(t: Reading, now: number, limit: number): Body<OfferRow[]> {
  return t.all<OfferRow>('SELECT * FROM offers WHERE due_at <= ? ORDER BY due_at, run_pk LIMIT ?', now, limit);
}

export function* take(t: Writing, runPk: number, attempt: number, now: number, dueAt: number): Body<void> {
  yield* t.run(`UPDATE offers SET state = 'taken', attempt = ?, taken_at = ?, due_at = ? WHERE run_pk = ?`, attempt, now, dueAt, runPk);
}

/** The wall clock was set. */
export function* moveDue(t: Writing, byMs: number): Body<void> {
  yield* t.run('UPDATE offers SET due_at = due_at + ?, taken_at = taken_at + ? WHERE due_at IS NOT NULL', byMs, byMs);
}

/** Only the latest attempt can be opened again. Returns false when it was answered or taken by another since. */
export function* reopen(t: Writing, runPk: number, attempt: number): Body<boolean> {
  const { changes } = yield* t.run(
    `UPDATE offers SET state = 'open', due_at = NULL WHERE run_pk = ? AND attempt = ? AND state = 'taken'`,
    runPk,
    attempt,
  );
  return changes > 0;
}

/** The run ended otherwise. A guest that has the turn learns at its next look that there is nothing left to answer. */
export function* stop(t: Writing, runPk: number): Body<void> {
  yield* t.run(`DELETE FROM offers WHERE run_pk = ? AND state = 'open'`, runPk);
  yield* t.run(`UPDATE offers SET state = 'stopped', due_at = NULL WHERE run_pk = ?`, runPk);
}

/** Joins: runs. Offers of a lane that ended otherwise, with the reason. */
export function stoppedIn(t: Reading, lane: string, limit: number): Body<(OfferRow & { id: string; error: string | null })[]> {
  return t.all<OfferRow & { id: string; error: string | null }>(
    `SELECT offers.*, runs.id, runs.error FROM offers JOIN runs ON runs.pk = offers.run_pk
     WHERE offers.lane = ? AND offers.state = 'stopped' ORDER BY offers.run_pk LIMIT ?`,
    lane,
    limit,
  );
}

export function* removeOf(t: Writing, runPk: number): Body<void> {
  yield* t.run('DELETE FROM offers WHERE run_pk = ?', runPk);
}
