// The `tool_calls` table: the calls of each step, planned → started → waiting → done.
import type { Body, Reading, Writing } from '../contract.ts';
import type { CallRow } from '../rows.ts';

export function* insert(t: Writing, row: Omit<CallRow, 'state' | 'result_seq'>): Body<CallRow> {
  yield* t.run(
    'INSERT INTO tool_calls (run_pk, step, idx, provider_id, tool, args, effect) VALUES (?, ?, ?, ?, ?, ?, ?)',
    row.run_pk,
    row.step,
    row.idx,
    row.provider_id,
    row.tool,
    row.args,
    row.effect,
  );
  return { ...row, state: 'planned', result_seq: null };
}

export function* get(t: Reading, runPk: number, step: number, idx: number): Body<CallRow> {
  return (yield* t.one<CallRow>('SELECT * FROM tool_calls WHERE run_pk = ? AND step = ? AND idx = ?', runPk, step, idx))!;
}

/** Calls of a step that have no result yet. */
export function open(t: Reading, runPk: number, step: number): Body<CallRow[]> {
  return t.all<CallRow>(`SELECT * FROM tool_calls WHERE run_pk = ? AND step = ? AND state <> 'done' ORDER BY idx`, runPk, step);
}

/** Calls of any step of a run that have no result yet. */
export function unanswered(t: Reading, runPk: number): Body<CallRow[]> {
  return t.all<CallRow>(`SELECT * FROM tool_calls WHERE run_pk = ? AND state <> 'done' ORDER BY step, idx`, runPk);
}

export function* started(t: Writing, runPk: number, step: number, idx: number): Body<void> {
  yield* t.run(`UPDATE tool_calls SET state = 'started' WHERE run_pk = ? AND step = ? AND idx = ? AND state = 'planned'`, runPk, step, idx);
}

/** In a restored state, calls that act once may have been made after the backup. */
export function* assumeStarted(t: Writing): Body<void> {
  yield* t.run(`UPDATE tool_calls SET state = 'started' WHERE state = 'planned' AND effect = 'once'`);
}

export function* waiting(t: Writing, runPk: number, step: number, idx: number): Body<void> {
  yield* t.run(`UPDATE tool_calls SET state = 'waiting' WHERE run_pk = ? AND step = ? AND idx = ?`, runPk, step, idx);
}

export function* done(t: Writing, call: CallRow, resultSeq: number): Body<void> {
  yield* t.run(
    `UPDATE tool_calls SET state = 'done', result_seq = ? WHERE run_pk = ? AND step = ? AND idx = ?`,
    resultSeq,
    call.run_pk,
    call.step,
    call.idx,
  );
}

export function* removeOf(t: Writing, runPk: number): Body<void> {
  yield* t.run('DELETE FROM tool_calls WHERE run_pk = ?', runPk);
}
