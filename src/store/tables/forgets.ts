// The `forgets` table: sessions that were purged, whose words are still in the search index, or whose files are still there.
import type { Body, Reading, Writing } from '../contract.ts';

/** `id` is null in rows of earlier versions. */
export interface Purged {
  pk: number;
  id: string | null;
}

export function* insert(t: Writing, { pk, id }: Purged): Body<void> {
  yield* t.run('INSERT INTO forgets (session_pk, id) VALUES (?, ?)', pk, id);
}

export function first(t: Reading, limit: number): Body<Purged[]> {
  return t.all<Purged>('SELECT session_pk AS pk, id FROM forgets ORDER BY session_pk LIMIT ?', limit);
}

export function* remove(t: Writing, sessionPk: number): Body<void> {
  yield* t.run('DELETE FROM forgets WHERE session_pk = ?', sessionPk);
}
