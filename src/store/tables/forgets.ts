// The `forgets` table: sessions that were purged, whose words are still in the search index.
import type { Body, Reading, Writing } from '../contract.ts';

export function* insert(t: Writing, sessionPk: number): Body<void> {
  yield* t.run('INSERT INTO forgets (session_pk) VALUES (?)', sessionPk);
}

export function* first(t: Reading, limit: number): Body<number[]> {
  const rows = yield* t.all<{ session_pk: number }>('SELECT session_pk FROM forgets ORDER BY session_pk LIMIT ?', limit);
  return rows.map((row) => row.session_pk);
}

export function* remove(t: Writing, sessionPk: number): Body<void> {
  yield* t.run('DELETE FROM forgets WHERE session_pk = ?', sessionPk);
}
