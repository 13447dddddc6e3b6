// Pages of `entries`: a transcript from its end backwards, or from a place onwards.
import type { Body, Reading } from '../contract.ts';
import type { EntryRow } from '../rows.ts';
import { inBatches } from './value-list.ts';

/** Newest first, strictly before a seq. */
export function entriesBefore(t: Reading, sessionPk: number, seq: number, limit: number): Body<EntryRow[]> {
  return t.all<EntryRow>('SELECT * FROM entries WHERE session_pk = ? AND seq < ? ORDER BY seq DESC LIMIT ?', sessionPk, seq, limit);
}

/** Oldest first, strictly after a seq, of entries that are not above a level. */
export function entriesAfter(t: Reading, sessionPk: number, seq: number, level: number, limit: number): Body<EntryRow[]> {
  return t.all<EntryRow>(
    'SELECT * FROM entries WHERE session_pk = ? AND seq > ? AND taint <= ? ORDER BY seq LIMIT ?',
    sessionPk,
    seq,
    level,
    limit,
  );
}

/** Joins: sessions. How the newest entry of each session begins; sessions without an entry are left out. */
export function* newestTexts(t: Reading, sessionPks: readonly number[], length: number): Body<{ session_pk: number; text: string }[]> {
  const rows = yield* inBatches(sessionPks, (marks, params) =>
    t.all<{ session_pk: number; text: string | null }>(
      `SELECT sessions.pk AS session_pk,
         (SELECT substr(text, 1, ?) FROM entries WHERE session_pk = sessions.pk ORDER BY seq DESC LIMIT 1) AS text
       FROM sessions WHERE pk IN (${marks}) ORDER BY pk`,
      length,
      ...params,
    ),
  );
  return rows.flatMap(({ session_pk, text }) => (text === null ? [] : [{ session_pk, text }]));
}
