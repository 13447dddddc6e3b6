// The `waits` table: what a parked call waits for. Edges are between lanes, so a run queued behind a live one counts.
import { Conflict, type Body, type Reading, type Writing } from '../contract.ts';
import type { WaitRow } from '../rows.ts';

export function* insert(t: Writing, row: Omit<WaitRow, 'pk' | 'answer'>): Body<void> {
  yield* t.run(
    'INSERT INTO waits (run_pk, step, idx, lane, target_kind, target_pk, target_lane, due_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?)',
    row.run_pk,
    row.step,
    row.idx,
    row.lane,
    row.target_kind,
    row.target_pk,
    row.target_lane,
    row.due_at,
  );
}

/** Unanswered waits for one target, oldest first. */
export function forTarget(t: Reading, kind: WaitRow['target_kind'], pk: number, limit: number): Body<WaitRow[]> {
  return t.all<WaitRow>(
    'SELECT * FROM waits WHERE target_kind = ? AND target_pk = ? AND answer IS NULL ORDER BY pk LIMIT ?',
    kind,
    pk,
    limit,
  );
}

/** Joins: runs. When the run of the oldest wait was queued. */
export function* oldest(t: Reading): Body<number | undefined> {
  return (yield* t.one<{ at: number }>(
    'SELECT runs.queued_at AS at FROM waits JOIN runs ON runs.pk = waits.run_pk WHERE waits.answer IS NULL ORDER BY waits.pk LIMIT 1',
  ))?.at;
}

export function due(t: Reading, now: number, limit: number): Body<WaitRow[]> {
  return t.all<WaitRow>('SELECT * FROM waits WHERE due_at <= ? AND answer IS NULL ORDER BY due_at, pk LIMIT ?', now, limit);
}

/** The other waits of the same call. */
export function besides(t: Reading, wait: WaitRow): Body<WaitRow[]> {
  return t.all<WaitRow>(
    'SELECT * FROM waits WHERE run_pk = ? AND step = ? AND idx = ? AND pk <> ? ORDER BY pk',
    wait.run_pk,
    wait.step,
    wait.idx,
    wait.pk,
  );
}

/** Whether a run still waits for something. */
export function* anyOf(t: Reading, runPk: number): Body<boolean> {
  return (yield* t.one('SELECT 1 AS found FROM waits WHERE run_pk = ? AND answer IS NULL LIMIT 1', runPk)) !== undefined;
}

/** Lanes that a lane waits for. */
export function* targetsOf(t: Reading, lane: string): Body<string[]> {
  const rows = yield* t.all<{ target_lane: string }>('SELECT target_lane FROM waits WHERE lane = ? AND answer IS NULL ORDER BY pk', lane);
  return rows.map((row) => row.target_lane);
}

/** A target was taken in by another run, which is waited for instead. */
export function* retarget(t: Writing, fromPk: number, toPk: number): Body<void> {
  yield* t.run(`UPDATE waits SET target_pk = ? WHERE target_kind = 'run' AND target_pk = ?`, toPk, fromPk);
}

/** Those left over by an ending are due now, so the sweep takes them next. */
export function* makeDue(t: Writing, kind: WaitRow['target_kind'], pk: number): Body<void> {
  yield* t.run('UPDATE waits SET due_at = 0 WHERE target_kind = ? AND target_pk = ? AND answer IS NULL', kind, pk);
}

/** The wall clock was set. */
export function* moveDue(t: Writing, byMs: number): Body<void> {
  yield* t.run('UPDATE waits SET due_at = due_at + ? WHERE answer IS NULL', byMs);
}

export function* keepAnswer(t: Writing, pk: number, answer: string): Body<void> {
  yield* t.run('UPDATE waits SET answer = ? WHERE pk = ?', answer, pk);
}

/** A call gets its result once: a command that read its waits before another one answered them runs again. */
export function* removeCall(t: Writing, wait: WaitRow): Body<void> {
  const { changes } = yield* t.run('DELETE FROM waits WHERE run_pk = ? AND step = ? AND idx = ?', wait.run_pk, wait.step, wait.idx);
  if (changes === 0) throw new Conflict('the wait was answered by another command');
}

export function* removeOf(t: Writing, runPk: number): Body<void> {
  yield* t.run('DELETE FROM waits WHERE run_pk = ?', runPk);
}
