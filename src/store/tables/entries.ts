// The `entries` table: transcripts, append-only. Pages of them are read in entry-pages.ts.
import type { Body, Reading, Writing } from '../contract.ts';
import type { EntryRow } from '../rows.ts';
import type { SearchedEntry } from '../search.ts';
import { inBatches } from './value-list.ts';

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

export function byId(t: Reading, id: string): Body<EntryRow | undefined> {
  return t.one<EntryRow>('SELECT * FROM entries WHERE id = ?', id);
}

export function bySeq(t: Reading, sessionPk: number, seq: number): Body<EntryRow | undefined> {
  return t.one<EntryRow>('SELECT * FROM entries WHERE session_pk = ? AND seq = ?', sessionPk, seq);
}

/** Joins: runs. An entry with the id of the run that wrote it. */
export function withRun(t: Reading, pk: number): Body<(EntryRow & { run_id: string | null }) | undefined> {
  return t.one<EntryRow & { run_id: string | null }>(
    'SELECT entries.*, runs.id AS run_id FROM entries LEFT JOIN runs ON runs.pk = entries.run_pk WHERE entries.pk = ?',
    pk,
  );
}

/** The text of one entry; empty when there is none. */
export function* textAt(t: Reading, sessionPk: number, seq: number | null): Body<string> {
  if (seq === null) return '';
  return (yield* t.one<{ text: string }>('SELECT text FROM entries WHERE session_pk = ? AND seq = ?', sessionPk, seq))?.text ?? '';
}

/** What a run was asked: the inputs it consumed, in order. */
export function askedOf(t: Reading, sessionPk: number, runPk: number): Body<EntryRow[]> {
  return t.all<EntryRow>(`SELECT * FROM entries WHERE session_pk = ? AND run_pk = ? AND role = 'user' ORDER BY seq`, sessionPk, runPk);
}

// For the search index ----------------------------------------------------------------------------------------------------

export interface EntrySize {
  pk: number;
  /** Of its text. */
  bytes: number;
}

export interface EntryText {
  pk: number;
  session_pk: number;
  text: string;
}

export function* newestPk(t: Reading): Body<number | undefined> {
  return (yield* t.one<{ pk: number }>('SELECT pk FROM entries ORDER BY pk DESC LIMIT 1'))?.pk;
}

/** Of all sessions, newest first. */
export function sizesBefore(t: Reading, pk: number, limit: number): Body<EntrySize[]> {
  return t.all<EntrySize>('SELECT pk, octet_length(text) AS bytes FROM entries WHERE pk < ? ORDER BY pk DESC LIMIT ?', pk, limit);
}

export function* sizes(t: Reading, pks: readonly number[]): Body<EntrySize[]> {
  return yield* inBatches(pks, (marks, params) =>
    t.all<EntrySize>(`SELECT pk, octet_length(text) AS bytes FROM entries WHERE pk IN (${marks}) ORDER BY pk`, ...params),
  );
}

export function* texts(t: Reading, pks: readonly number[]): Body<EntryText[]> {
  return yield* inBatches(pks, (marks, params) =>
    t.all<EntryText>(`SELECT pk, session_pk, text FROM entries WHERE pk IN (${marks}) ORDER BY pk`, ...params),
  );
}

/** Joins: sessions. Entries with what decides who may read them. */
export function* withSessions(t: Reading, pks: readonly number[]): Body<SearchedEntry[]> {
  return yield* inBatches(pks, (marks, params) =>
    t.all<SearchedEntry>(
      `SELECT e.pk, e.session_pk AS "sessionPk", e.seq, e.role, e.taint, e.at, e.text, s.key AS "sessionKey", s.agent,
         s.parent_key AS "spawnedBy", s.level, CASE WHEN s.current = 1 AND s.state = 'live' THEN 1 ELSE 0 END AS live
       FROM entries e LEFT JOIN sessions s ON s.pk = e.session_pk WHERE e.pk IN (${marks}) ORDER BY e.pk`,
      ...params,
    ),
  );
}

// Forgetting --------------------------------------------------------------------------------------------------------------

export function* removeOf(t: Writing, sessionPk: number, limit: number): Body<number> {
  const { changes } = yield* t.run(
    'DELETE FROM entries WHERE pk IN (SELECT pk FROM entries WHERE session_pk = ? ORDER BY pk LIMIT ?)',
    sessionPk,
    limit,
  );
  return changes;
}
