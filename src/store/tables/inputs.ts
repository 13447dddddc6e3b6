// The `inputs` table: what asked for a turn. Its text lives here until a run consumes it, then in the transcript.
import type { Body, Reading, Writing } from '../contract.ts';
import type { InputRow } from '../rows.ts';

export const columns = [
  'pk',
  'session_pk',
  'run_pk',
  'mode',
  'principal',
  'taint',
  'provenance',
  'merge_key',
  'text',
  'context',
  'state',
  'reason',
  'entry_seq',
  'at',
  'flow',
  'flow_pk',
  'taken_by',
] as const satisfies (keyof InputRow)[];

type New = Omit<InputRow, 'pk' | 'state' | 'reason' | 'entry_seq' | 'taken_by'>;

export function* insert(t: Writing, row: New): Body<void> {
  yield* t.run(
    `INSERT INTO inputs (session_pk, run_pk, mode, principal, taint, provenance, merge_key, text, context, at, flow, flow_pk)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
    row.session_pk,
    row.run_pk,
    row.mode,
    row.principal,
    row.taint,
    row.provenance,
    row.merge_key,
    row.text,
    row.context,
    row.at,
    row.flow,
    row.flow_pk,
  );
}

/** Every run has one input of its own. */
export function* ofRun(t: Reading, runPk: number): Body<InputRow> {
  return (yield* t.one<InputRow>('SELECT * FROM inputs WHERE run_pk = ?', runPk))!;
}

/** From here on the text lives in the transcript only. */
export function* consumed(t: Writing, pk: number, runPk: number, entrySeq: number): Body<void> {
  yield* t.run(
    `UPDATE inputs SET state = 'consumed', entry_seq = ?, taken_by = ?, text = '', context = NULL WHERE pk = ?`,
    entrySeq,
    runPk,
    pk,
  );
}

/** Its run ended before it was consumed. */
export function* aborted(t: Writing, runPk: number, reason: string): Body<void> {
  yield* t.run(`UPDATE inputs SET state = 'aborted', reason = ? WHERE run_pk = ? AND state = 'queued'`, reason, runPk);
}

/** The flows that end with a run: those of the inputs it consumed, and of its own input when it never did. */
export function flowsOf(t: Reading, runPk: number): Body<{ flow: string; flow_pk: number }[]> {
  return t.all<{ flow: string; flow_pk: number }>(
    `SELECT flow, flow_pk FROM inputs WHERE flow IS NOT NULL AND taken_by = ?
     UNION ALL SELECT flow, flow_pk FROM inputs WHERE flow IS NOT NULL AND run_pk = ? AND taken_by IS NULL ORDER BY flow_pk, flow`,
    runPk,
    runPk,
  );
}

export function* removeOf(t: Writing, runPk: number): Body<void> {
  yield* t.run('DELETE FROM inputs WHERE run_pk = ?', runPk);
}
