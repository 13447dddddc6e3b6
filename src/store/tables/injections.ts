// The `injections` table: messages of operators that wait for the results of open calls, so that no call is split from its result.
import type { Body, Reading, Writing } from '../contract.ts';
import type { InjectionRow } from '../rows.ts';

export function* insert(t: Writing, row: Omit<InjectionRow, 'pk'>): Body<void> {
  yield* t.run('INSERT INTO injections (id, run_pk, session_pk, text) VALUES (?, ?, ?, ?)', row.id, row.run_pk, row.session_pk, row.text);
}

export function byId(t: Reading, id: string): Body<InjectionRow | undefined> {
  return t.one<InjectionRow>('SELECT * FROM injections WHERE id = ?', id);
}

/** In the order in which they came. */
export function ofRun(t: Reading, runPk: number): Body<InjectionRow[]> {
  return t.all<InjectionRow>('SELECT * FROM injections WHERE run_pk = ? ORDER BY pk', runPk);
}

export function* removeOf(t: Writing, runPk: number): Body<void> {
  yield* t.run('DELETE FROM injections WHERE run_pk = ?', runPk);
}
