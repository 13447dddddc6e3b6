// The `read_marks` table: how far each operator has read each session.
import type { Body, Reading, Writing } from '../contract.ts';
import { inBatches } from './value-list.ts';

/** Marks only rise, so two devices of one operator may send them in any order. */
export function* raise(t: Writing, mark: { principal: string; sessionPk: number; seq: number; now: number }): Body<void> {
  yield* t.run(
    `INSERT INTO read_marks (principal, session_pk, seq, at) VALUES (?, ?, ?, ?)
     ON CONFLICT (principal, session_pk) DO UPDATE SET seq = excluded.seq, at = excluded.at WHERE excluded.seq > read_marks.seq`,
    mark.principal,
    mark.sessionPk,
    mark.seq,
    mark.now,
  );
}

export function* of(t: Reading, principal: string, sessionPks: readonly number[]): Body<{ session_pk: number; seq: number }[]> {
  return yield* inBatches(sessionPks, (marks, params) =>
    t.all<{ session_pk: number; seq: number }>(
      `SELECT session_pk, seq FROM read_marks WHERE session_pk IN (${marks}) AND principal = ? ORDER BY session_pk`,
      ...params,
      principal,
    ),
  );
}

export function* removeOf(t: Writing, sessionPk: number): Body<void> {
  yield* t.run('DELETE FROM read_marks WHERE session_pk = ?', sessionPk);
}

export function* removeBy(t: Writing, principal: string): Body<void> {
  yield* t.run('DELETE FROM read_marks WHERE principal = ?', principal);
}
