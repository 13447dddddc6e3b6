// Look-ups and writes that belong to the owners of their tables: sessions, entries, deliveries, feed.
import type { Body, Reading, Writing } from '../contract.ts';
import type { DeliveryRow, EntryRow, SessionRow } from '../rows.ts';

export function* sessionByPk(t: Reading, pk: number): Body<SessionRow | undefined> {
  return yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', pk);
}

export function* hasSessionId(t: Reading, id: string): Body<boolean> {
  return (yield* t.one('SELECT 1 FROM sessions WHERE id = ?', id)) !== undefined;
}

export function* writeSettings<E>(t: Writing<E>, session: Pick<SessionRow, 'pk' | 'settings' | 'label' | 'last_at'>): Body<void> {
  yield* t.run(
    'UPDATE sessions SET settings = ?, label = ?, last_at = ?, policy_rev = policy_rev + 1 WHERE pk = ?',
    session.settings,
    session.label,
    session.last_at,
    session.pk,
  );
}

export function* writeLastAt<E>(t: Writing<E>, pk: number, at: number): Body<void> {
  yield* t.run('UPDATE sessions SET last_at = ? WHERE pk = ?', at, pk);
}

/** Removes lives of a key that never had an entry. */
export function* deleteBlankLives<E>(t: Writing<E>, key: string): Body<void> {
  yield* t.run(`DELETE FROM sessions WHERE key = ? AND next_seq = 1 AND state <> 'deleted'`, key);
}

/** Everything of a life but what is written as its entries come in. */
export type NewLife = Omit<SessionRow, 'pk' | 'next_seq' | 'policy_rev' | 'last_pos'>;

export function* insertLife<E>(t: Writing<E>, life: NewLife): Body<SessionRow> {
  const { pk } = (yield* t.one<{ pk: number }>(
    `INSERT INTO sessions (id, key, life, current, agent, kind, label, user, parent_key, depth, taint, exist_taint, level, state, created_at,
       last_at, total_tokens, input_tokens, output_tokens, cost_micros, compact_seq, aborted_last, system_sent, archive_at, settings, delivery)
     VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) RETURNING pk`,
    life.id,
    life.key,
    life.life,
    life.current,
    life.agent,
    life.kind,
    life.label,
    life.user,
    life.parent_key,
    life.depth,
    life.taint,
    life.exist_taint,
    life.level,
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
  return (yield* sessionByPk(t, pk))!;
}

export function* entryById(t: Reading, id: string): Body<EntryRow | undefined> {
  return yield* t.one<EntryRow>('SELECT * FROM entries WHERE id = ?', id);
}

export function* deliveryById(t: Reading, id: string): Body<DeliveryRow | undefined> {
  return yield* t.one<DeliveryRow>('SELECT * FROM deliveries WHERE id = ?', id);
}

/** Deliveries that are not sent, by state; at most 100,000 of each count. */
export function* openDeliveryCounts(t: Reading): Body<Record<'pending' | 'unknown' | 'dead', number>> {
  const count = function* (where: string): Body<number> {
    return (yield* t.one<{ n: number }>(`SELECT count(*) AS n FROM (SELECT 1 FROM deliveries WHERE ${where} LIMIT 100000) AS counted`))!.n;
  };
  return {
    pending: yield* count(`state = 'pending'`),
    unknown: yield* count(`state = 'unknown'`),
    // Said twice, for the index of settled deliveries.
    dead: yield* count(`state IN ('sent', 'failed', 'dead') AND state = 'dead'`),
  };
}

/** The last position of the feed. */
export function* feedEnd(t: Reading): Body<number> {
  return (yield* t.one<{ seq: number }>(`SELECT seq FROM sqlite_sequence WHERE name = 'feed'`))?.seq ?? 0;
}
