// The `sessions` table: one row is one life of a key.
import type { Body, Reading, Writing } from '../contract.ts';
import { levelRank } from '../../levels.ts';
import type { Level } from '../../protocol/labels.ts';
import type { SessionRow } from '../rows.ts';

export const columns = [
  'pk',
  'id',
  'key',
  'life',
  'current',
  'agent',
  'kind',
  'label',
  'opened_by',
  'parent_key',
  'depth',
  'next_seq',
  'taint',
  'exist_taint',
  'level',
  'clearance',
  'policy_rev',
  'state',
  'created_at',
  'last_pos',
  'last_at',
  'total_tokens',
  'input_tokens',
  'output_tokens',
  'cost_micros',
  'compact_seq',
  'aborted_last',
  'system_sent',
  'archive_at',
  'pinned',
  'mirror',
  'settings',
  'delivery',
] as const satisfies (keyof SessionRow)[];

/** A text from its end to its beginning. */
export const mirrored = (text: string) => Array.from(text).toReversed().join('');

// Looking up -----------------------------------------------------------------------------------------------------------

export function byPk(t: Reading, pk: number): Body<SessionRow | undefined> {
  return t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', pk);
}

/** For a key that some other row points with: the session is there. */
export function* get(t: Reading, pk: number): Body<SessionRow> {
  return (yield* byPk(t, pk))!;
}

export function byId(t: Reading, id: string): Body<SessionRow | undefined> {
  return t.one<SessionRow>('SELECT * FROM sessions WHERE id = ?', id);
}

export function* hasId(t: Reading, id: string): Body<boolean> {
  return (yield* t.one('SELECT 1 AS found FROM sessions WHERE id = ?', id)) !== undefined;
}

/** For SQLite, which can be told what to read: a key of the table that the index of keys does not find. */
export const lostKey = `SELECT key FROM sessions AS found NOT INDEXED WHERE current = 1
  AND NOT EXISTS (SELECT 1 FROM sessions INDEXED BY sessions_key WHERE key = found.key AND current = 1) LIMIT 1`;

/** The current life of a key. */
export function current(t: Reading, key: string): Body<SessionRow | undefined> {
  return t.one<SessionRow>('SELECT * FROM sessions WHERE key = ? AND current = 1', key);
}

/** This life, if it is the current one and neither archived nor deleted. */
export function live(t: Reading, pk: number): Body<SessionRow | undefined> {
  return t.one<SessionRow>(`SELECT * FROM sessions WHERE pk = ? AND current = 1 AND state = 'live'`, pk);
}

// A life's beginning and end -------------------------------------------------------------------------------------------

export interface NewSession {
  id: string;
  agent: string;
  kind: string;
  user?: string | undefined;
  label?: string | undefined;
  /** The level of its creator. */
  clearance: Level;
}

/** `existence`: the rank of the level from which on it may be known. */
export function* insert(t: Writing, key: string, made: NewSession, existence: number, now: number): Body<SessionRow> {
  return (yield* t.one<SessionRow>(
    `INSERT INTO sessions (id, key, mirror, life, current, agent, kind, label, opened_by, exist_taint, level, clearance, created_at, last_at)
     VALUES (?, ?, ?, (SELECT coalesce(max(life), 0) + 1 FROM sessions WHERE key = ?), 1, ?, ?, ?, ?, ?, ?, ?, ?, ?) RETURNING *`,
    made.id,
    key,
    mirrored(key),
    key,
    made.agent,
    made.kind,
    made.label ?? null,
    made.user ?? null,
    existence,
    existence,
    levelRank(made.clearance),
    now,
    now,
  ))!;
}

/** The key no longer points to this life. */
export function* retire(t: Writing, pk: number): Body<void> {
  yield* t.run('UPDATE sessions SET current = 0 WHERE pk = ?', pk);
}

/** A new life; what was said stays with the old one, and who said it first. */
export function* nextLife(t: Writing, old: SessionRow, next: NextLife, now: number): Body<SessionRow> {
  return (yield* t.one<SessionRow>(
    `INSERT INTO sessions (id, key, mirror, life, current, agent, kind, label, pinned, parent_key, depth, exist_taint, level, clearance, created_at, last_at,
       settings, delivery)
     SELECT ?, key, mirror, life + 1, 1, agent, kind, ?, ?, parent_key, depth, ?, ?, clearance, ?, ?, ?, ?
     FROM sessions WHERE pk = ? RETURNING *`,
    next.id,
    next.label,
    next.pinned,
    next.exist_taint,
    next.exist_taint,
    now,
    now,
    next.settings,
    next.delivery,
    old.pk,
  ))!;
}

export type NextLife = Pick<SessionRow, 'id' | 'label' | 'pinned' | 'exist_taint' | 'settings' | 'delivery'>;

export function* setUser(t: Writing, session: SessionRow, user: string): Body<void> {
  session.opened_by = user;
  yield* t.run('UPDATE sessions SET opened_by = ? WHERE pk = ?', user, session.pk);
}

export function* archive(t: Writing, pk: number): Body<void> {
  yield* t.run(`UPDATE sessions SET state = 'archived', label = NULL, policy_rev = policy_rev + 1 WHERE pk = ?`, pk);
}

/** All lives of the key. */
export function* markDeleted(t: Writing, key: string): Body<void> {
  yield* t.run(`UPDATE sessions SET state = 'deleted', current = 0, label = NULL, policy_rev = policy_rev + 1 WHERE key = ?`, key);
}

/** An archived session is live again. */
export function* revive(t: Writing, session: SessionRow): Body<void> {
  session.state = 'live';
  yield* t.run(`UPDATE sessions SET state = 'live', archive_at = NULL, policy_rev = policy_rev + 1 WHERE pk = ?`, session.pk);
}

// What changes during a life -------------------------------------------------------------------------------------------

/** I4, I8. The counter of entries, the taint and everything else that an entry moves. The feed sets `last_pos`. */
export function* appended(t: Writing, session: SessionRow, risen: boolean): Body<void> {
  yield* t.run(
    `UPDATE sessions SET next_seq = ?, taint = ?, level = ?, last_at = ?, policy_rev = policy_rev + ?, aborted_last = ?, total_tokens = ?,
       input_tokens = ?, output_tokens = ?, cost_micros = ?, system_sent = ?, compact_seq = ? WHERE pk = ?`,
    session.next_seq,
    session.taint,
    session.level,
    session.last_at,
    risen ? 1 : 0,
    session.aborted_last,
    session.total_tokens,
    session.input_tokens,
    session.output_tokens,
    session.cost_micros,
    session.system_sent,
    session.compact_seq,
    session.pk,
  );
}

/** What a turn that ended without a reply leaves behind. */
export function* turnEnded(t: Writing, session: SessionRow): Body<void> {
  yield* t.run(
    `UPDATE sessions SET aborted_last = ?, total_tokens = ?, input_tokens = ?, output_tokens = ?, cost_micros = ?, system_sent = ? WHERE pk = ?`,
    session.aborted_last,
    session.total_tokens,
    session.input_tokens,
    session.output_tokens,
    session.cost_micros,
    session.system_sent,
    session.pk,
  );
}

export function* charge(t: Writing, pk: number, spent: { input: number; output: number; costMicros: number }): Body<void> {
  yield* t.run(
    'UPDATE sessions SET input_tokens = input_tokens + ?, output_tokens = output_tokens + ?, cost_micros = cost_micros + ? WHERE pk = ?',
    spent.input,
    spent.output,
    spent.costMicros,
    pk,
  );
}

/** I8. Returns false when the session was at that level already. */
export function* raise(t: Writing, pk: number, taint: number): Body<boolean> {
  const { changes } = yield* t.run(
    `UPDATE sessions SET taint = ?, level = CASE WHEN level < ? THEN ? ELSE level END, policy_rev = policy_rev + 1
     WHERE pk = ? AND taint < ?`,
    taint,
    taint,
    taint,
    pk,
    taint,
  );
  return changes > 0;
}

export function* setDelivery(t: Writing, pk: number, delivery: string): Body<void> {
  yield* t.run('UPDATE sessions SET delivery = ? WHERE pk = ?', delivery, pk);
}

/** The feed's last word on a session: lists sort by it. */
export function* moveTo(t: Writing, pk: number, pos: number): Body<void> {
  yield* t.run('UPDATE sessions SET last_pos = ? WHERE pk = ?', pos, pk);
}

// Patching and importing -----------------------------------------------------------------------------------------------

/** Its settings, its label and its pin. */
export function* writeSettings(t: Writing, session: Pick<SessionRow, 'pk' | 'settings' | 'label' | 'pinned' | 'last_at'>): Body<void> {
  yield* t.run(
    'UPDATE sessions SET settings = ?, label = ?, pinned = ?, last_at = ?, policy_rev = policy_rev + 1 WHERE pk = ?',
    session.settings,
    session.label,
    session.pinned,
    session.last_at,
    session.pk,
  );
}

export function* writeLastAt(t: Writing, pk: number, at: number): Body<void> {
  yield* t.run('UPDATE sessions SET last_at = ? WHERE pk = ?', at, pk);
}

/** Removes lives of a key that never had an entry. */
export function* deleteBlankLives(t: Writing, key: string): Body<void> {
  yield* t.run(`DELETE FROM sessions WHERE key = ? AND next_seq = 1 AND state <> 'deleted'`, key);
}

/** Everything of a life but what is written as its entries come in. */
export type NewLife = Omit<SessionRow, 'mirror' | 'pk' | 'next_seq' | 'policy_rev' | 'last_pos'>;

export function* insertLife(t: Writing, life: NewLife): Body<SessionRow> {
  return (yield* t.one<SessionRow>(
    `INSERT INTO sessions (id, key, mirror, life, current, agent, kind, label, pinned, opened_by, parent_key, depth, taint, exist_taint, level, clearance,
       state, created_at, last_at, total_tokens, input_tokens, output_tokens, cost_micros, compact_seq, aborted_last, system_sent, archive_at, settings,
       delivery)
     VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) RETURNING *`,
    life.id,
    life.key,
    mirrored(life.key),
    life.life,
    life.current,
    life.agent,
    life.kind,
    life.label,
    life.pinned,
    life.opened_by,
    life.parent_key,
    life.depth,
    life.taint,
    life.exist_taint,
    life.level,
    life.clearance,
    life.state,
    life.created_at,
    life.last_at,
    life.total_tokens,
    life.input_tokens,
    life.output_tokens,
    life.cost_micros,
    life.compact_seq,
    life.aborted_last,
    life.system_sent,
    life.archive_at,
    life.settings,
    life.delivery,
  ))!;
}

// Forgetting -----------------------------------------------------------------------------------------------------------

/** Joins: runs, exchanges, deliveries. A deleted session for which nothing is under way. */
export function purgeable(t: Reading): Body<{ pk: number; id: string; key: string } | undefined> {
  return t.one<{ pk: number; id: string; key: string }>(
    `SELECT pk, id, key FROM sessions WHERE state = 'deleted' AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.session_pk = sessions.pk AND ended_at IS NULL)
     AND NOT EXISTS (SELECT 1 FROM exchanges WHERE tgt_session_pk = sessions.pk AND end_reason IS NULL)
     AND NOT EXISTS (SELECT 1 FROM deliveries WHERE deliveries.session_pk = sessions.pk AND deliveries.state = 'sending') ORDER BY pk LIMIT 1`,
  );
}

export function* remove(t: Writing, pk: number): Body<number> {
  return (yield* t.run('DELETE FROM sessions WHERE pk = ?', pk)).changes;
}
