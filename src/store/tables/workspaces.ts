// The `workspaces` table: the level of a directory of files, which only rises, and how much sessions have written there.
import type { Body, Reading, Writing } from '../contract.ts';

export interface WorkspaceRow {
  /** `session:<id>` for the directory of one life, `dir:<path>` for a configured one; `agent:<id>` is the level from before there were rows. */
  name: string;
  level: number;
  bytes: number;
  files: number;
}

/** The highest level of these names; 0 if none is known. */
export function* levelOf(t: Reading, name: string, older: string): Body<number> {
  const row = yield* t.one<{ level: number | null }>('SELECT max(level) AS level FROM workspaces WHERE name IN (?, ?)', name, older);
  return row?.level ?? 0;
}

/** I8. Adds to what is there, which is never less than nothing; the level never falls. */
export function* grow(t: Writing, { name, level, bytes, files }: WorkspaceRow): Body<WorkspaceRow> {
  yield* t.run('INSERT INTO workspaces (name, level, bytes, files) VALUES (?, ?, 0, 0) ON CONFLICT DO NOTHING', name, level);
  return (yield* t.one<WorkspaceRow>(
    `UPDATE workspaces SET
       level = CASE WHEN level < ? THEN ? ELSE level END,
       bytes = CASE WHEN bytes + ? < 0 THEN 0 ELSE bytes + ? END,
       files = CASE WHEN files + ? < 0 THEN 0 ELSE files + ? END
     WHERE name = ? RETURNING *`,
    level,
    level,
    bytes,
    bytes,
    files,
    files,
    name,
  ))!;
}

/** What was counted in the directory. */
export function* recount(t: Writing, name: string, bytes: number, files: number): Body<void> {
  yield* t.run('UPDATE workspaces SET bytes = ?, files = ? WHERE name = ?', bytes, files, name);
}

export function* remove(t: Writing, name: string): Body<void> {
  yield* t.run('DELETE FROM workspaces WHERE name = ?', name);
}
