// The `entries` table: transcripts, append-only. Pages of them are read in entry-pages.ts.
import type { Body, Reading, Writing } from '../contract.ts';
import type { EntryRow } from '../rows.ts';

/** I4. The unique index on (session, seq) keeps the transcript dense and in one order. */
export function* insert(t: Writing, row: Omit<EntryRow, 'pk'>): Body<EntryRow> {
  const { pk } = (yield* t.one<{ pk: number }>(
    `INSERT INTO entries (session_pk, seq, id, run_pk, step, role, taint, provenance, text, body, at)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING pk`,
    row.session_pk,
    row.seq,
    row.id,
    row.run_pk,
    row.step,
    row.role,
    row.taint,
    row.provenance,
    row.text,
    row.body,
    row.at,
  ))!;
  return { pk, ...row };
}

export function* byId(t: Reading, id: string): Body<EntryRow | undefined> {
  return yield* t.one<EntryRow>('SELECT * FROM entries WHERE id = ?', id);
}

export function* bySeq(t: Reading, sessionPk: number, seq: number): Body<EntryRow | undefined> {
  return yield* t.one<EntryRow>('SELECT * FROM entries WHERE session_pk = ? AND seq = ?', sessionPk, seq);
}

/** Joins: runs. An entry with the id of the run that wrote it. */
export function* withRun(t: Reading, pk: number): Body<(EntryRow & { run_id: string | null }) | undefined> {
  return yield* t.one<EntryRow & { run_id: string | null }>(
    'SELECT entries.*, runs.id AS run_id FROM entries LEFT JOIN runs ON runs.pk = entries.run_pk WHERE entries.pk = ?',
    pk,
  );
}

/** The text of one entry; empty when there is none. */
export function* textAt(t: Reading, sessionPk: number, seq: number | null): Body<string> {
  if (seq === null) return '';
  return (yield* t.one<{ text: string }>('SELECT text FROM entries WHERE session_pk = ? AND seq = ?', sessionPk, seq))?.text ?? '';
}

/** The end of a transcript after a seq, newest first. */
export function* lastAfter(t: Reading, sessionPk: number, after: number, limit: number): Body<EntryRow[]> {
  return yield* t.all<EntryRow>(
    'SELECT * FROM entries WHERE session_pk = ? AND seq > ? ORDER BY seq DESC LIMIT ?',
    sessionPk,
    after,
    limit,
  );
}

/** What a run was asked: the inputs it consumed, in order. */
export function* askedOf(t: Reading, sessionPk: number, runPk: number): Body<EntryRow[]> {
  return yield* t.all<EntryRow>(
    `SELECT * FROM entries WHERE session_pk = ? AND run_pk = ? AND role = 'user' ORDER BY seq`,
    sessionPk,
    runPk,
  );
}

export function* removeOf(t: Writing, sessionPk: number, limit: number): Body<number> {
  const { changes } = yield* t.run(
    'DELETE FROM entries WHERE pk IN (SELECT pk FROM entries WHERE session_pk = ? ORDER BY pk LIMIT ?)',
    sessionPk,
    limit,
  );
  return changes;
}
