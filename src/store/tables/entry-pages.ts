// Pages of `entries`: a transcript from its end backwards, or from a place onwards.
import { statementBytes, type Body, type Reading } from '../contract.ts';
import type { EntryRow } from '../rows.ts';
import { inBatches } from './value-list.ts';

/** An entry of a page. A large one has its text and its body still to come: `whole` reads them. */
export type PageEntry = Omit<EntryRow, 'text'> & { text: string | null; bytes: number; body_bytes: number };

/** Text and body up to this many bytes come with the page, so a page of small messages is one statement. */
const smallBytes = 4096;
/** The rows of one statement, so that their small texts together are short. */
export const entryRows = 64;

const size = 'octet_length(text) + coalesce(octet_length(body), 0)';
const columns = `pk, session_pk, seq, id, run_pk, step, role, taint, provenance, at, ${size} AS bytes,
  coalesce(octet_length(body), 0) AS body_bytes,
  CASE WHEN ${size} <= ${smallBytes} THEN text END AS text, CASE WHEN ${size} <= ${smallBytes} THEN body END AS body`;

/** Newest first, strictly before a seq and after another. */
export function entriesBefore(t: Reading, sessionPk: number, seq: number, limit = entryRows, after = 0): Body<PageEntry[]> {
  return t.all<PageEntry>(
    `SELECT ${columns} FROM entries WHERE session_pk = ? AND seq < ? AND seq > ? ORDER BY seq DESC LIMIT ?`,
    sessionPk,
    seq,
    after,
    limit,
  );
}

/** Oldest first, strictly after a seq, of entries that are not above a level. */
export function entriesAfter(t: Reading, sessionPk: number, seq: number, level: number, limit = entryRows): Body<PageEntry[]> {
  return t.all<PageEntry>(
    `SELECT ${columns} FROM entries WHERE session_pk = ? AND seq > ? AND taint <= ? ORDER BY seq LIMIT ?`,
    sessionPk,
    seq,
    level,
    limit,
  );
}

/** The same entries with all of their texts, or with the first characters of them. Reads large ones a few at a time. */
export function* whole(t: Reading, rows: readonly PageEntry[], chars = 0x7fff_ffff): Body<EntryRow[]> {
  const late = new Map<number, Pick<EntryRow, 'text' | 'body'>>();
  for (const pks of inShares(rows.filter((row) => row.text === null))) {
    const read = yield* inBatches(pks, (marks, params) =>
      t.all<Pick<EntryRow, 'pk' | 'text' | 'body'>>(
        `SELECT pk, substr(text, 1, ?) AS text, body FROM entries WHERE pk IN (${marks}) ORDER BY pk`,
        chars,
        ...params,
      ),
    );
    for (const row of read) late.set(row.pk, row);
  }
  return rows.map((row) => ({ ...row, ...(late.get(row.pk) ?? { text: row.text ?? '' }) }));
}

/** The keys of some rows that together are short enough for one statement; at least one. */
function* inShares(rows: readonly PageEntry[]): Generator<number[]> {
  let share: number[] = [];
  let bytes = 0;
  for (const row of rows) {
    if (share.length > 0 && bytes + row.bytes > statementBytes) {
      yield share;
      [share, bytes] = [[], 0];
    }
    share.push(row.pk);
    bytes += row.bytes;
  }
  if (share.length > 0) yield share;
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
