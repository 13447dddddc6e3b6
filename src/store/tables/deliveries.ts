// The `deliveries` table: what is on its way out. Of all that is open for a destination one row is its head, and only a head is sent.
import type { DeliveryState } from '../../protocol/delivery.ts';
import type { Body, Reading, Writing } from '../contract.ts';
import type { DeliveryRow } from '../rows.ts';
import { inWindows } from '../windows.ts';

type Given =
  | 'id'
  | 'session_pk'
  | 'cause'
  | 'cause_pk'
  | 'part'
  | 'dest_key'
  | 'channel'
  | 'account'
  | 'recipient'
  | 'thread'
  | 'chat_type';
type NewDelivery = Pick<DeliveryRow, Given | 'taint' | 'text' | 'error' | 'hash'> & { state: 'pending' | 'dead'; now: number };

/** I2. Unique by its cause and part. It is the head if nothing else is open for its destination. */
export function* insert(t: Writing, made: NewDelivery): Body<number> {
  const { pk } = (yield* t.one<{ pk: number }>(
    `INSERT INTO deliveries (id, session_pk, cause, cause_pk, part, dest_key, channel, account, recipient, thread, chat_type, taint, text, state, error, due_at, first_at, hash, head)
     VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
       CASE WHEN ? = 1 AND NOT EXISTS (SELECT 1 FROM deliveries WHERE dest_key = ? AND state IN ('pending', 'sending')) THEN 1 ELSE 0 END)
     RETURNING pk`,
    made.id,
    made.session_pk,
    made.cause,
    made.cause_pk,
    made.part,
    made.dest_key,
    made.channel,
    made.account,
    made.recipient,
    made.thread,
    made.chat_type,
    made.taint,
    made.text,
    made.state,
    made.error,
    made.now,
    made.now,
    made.hash,
    made.state === 'pending' ? 1 : 0,
    made.dest_key,
  ))!;
  return pk;
}

export function byId(t: Reading, id: string): Body<DeliveryRow | undefined> {
  return t.one<DeliveryRow>('SELECT * FROM deliveries WHERE id = ?', id);
}

export function byPk(t: Reading, pk: number): Body<DeliveryRow | undefined> {
  return t.one<DeliveryRow>('SELECT * FROM deliveries WHERE pk = ?', pk);
}

/** The attempt that is under way, if it still is. */
export function underWay(t: Reading, pk: number, attempts: number): Body<DeliveryRow | undefined> {
  return t.one<DeliveryRow>(`SELECT * FROM deliveries WHERE pk = ? AND state = 'sending' AND attempts = ?`, pk, attempts);
}

/** Heads of destinations that are due. The index is named because the planner would otherwise sort everything that is pending. */
export function dueHeads(t: Reading, now: number, limit: number): Body<DeliveryRow[]> {
  return t.all<DeliveryRow>(
    `SELECT * FROM deliveries INDEXED BY deliveries_due WHERE state = 'pending' AND head = 1 AND due_at <= ? ORDER BY due_at, pk LIMIT ?`,
    now,
    limit,
  );
}

export function* nextDue(t: Reading): Body<number | undefined> {
  const head = yield* t.one<{ due_at: number }>(
    `SELECT due_at FROM deliveries WHERE state = 'pending' AND head = 1 ORDER BY due_at LIMIT 1`,
  );
  return head?.due_at;
}

/** The head of a destination is settled or gone: the oldest one behind it is next. */
export function* nextHead(t: Writing, destKey: string): Body<void> {
  yield* t.run(
    `UPDATE deliveries SET head = 1
     WHERE pk = (SELECT pk FROM deliveries WHERE dest_key = ? AND state IN ('pending', 'sending') ORDER BY pk LIMIT 1)`,
    destKey,
  );
}

export function* isOpenAt(t: Reading, destKey: string): Body<boolean> {
  const found = yield* t.one(`SELECT 1 AS found FROM deliveries WHERE dest_key = ? AND state IN ('pending', 'sending') LIMIT 1`, destKey);
  return found !== undefined;
}

export function* isOpenFor(t: Reading, sessionPk: number): Body<boolean> {
  const found = yield* t.one(
    `SELECT 1 AS found FROM deliveries WHERE session_pk = ? AND state IN ('pending', 'sending') LIMIT 1`,
    sessionPk,
  );
  return found !== undefined;
}

/** Committed before the first byte leaves. False: another gateway sends it. */
export function* sending(
  t: Writing,
  pk: number,
  attempt: { attempts: number; text: string; firstAt: number; owner: number },
): Body<boolean> {
  const { changes } = yield* t.run(
    `UPDATE deliveries SET state = 'sending', attempts = ?, text = ?, first_at = ?, owner = ? WHERE pk = ? AND state = 'pending'`,
    attempt.attempts,
    attempt.text,
    attempt.firstAt,
    attempt.owner,
    pk,
  );
  return changes > 0;
}

export interface Settled {
  state: DeliveryState;
  error: string | null;
  platformId: string | null;
  dueAt: number;
  text: string;
  head: number;
}

export function* settle(t: Writing, pk: number, as: Settled): Body<void> {
  yield* t.run(
    'UPDATE deliveries SET state = ?, error = ?, platform_id = ?, due_at = ?, text = ?, head = ?, owner = NULL WHERE pk = ?',
    as.state,
    as.error,
    as.platformId,
    as.dueAt,
    as.text,
    as.head,
    pk,
  );
}

/** What a gateway that is gone was sending. Whether it arrived is not known. */
export function orphans(t: Reading, me: number, limit: number): Body<DeliveryRow[]> {
  return t.all<DeliveryRow>(
    `SELECT * FROM deliveries WHERE state = 'sending' AND (owner IS NULL OR owner <> ?) ORDER BY pk LIMIT ?`,
    me,
    limit,
  );
}

/** What is open, whichever gateway sends it. */
export function someOpen(t: Reading, limit: number): Body<DeliveryRow[]> {
  return t.all<DeliveryRow>(`SELECT * FROM deliveries WHERE state IN ('pending', 'sending') ORDER BY pk LIMIT ?`, limit);
}

export function* unknown(t: Writing, pk: number, error: string): Body<void> {
  yield* t.run(`UPDATE deliveries SET state = 'unknown', error = ?, head = 0, owner = NULL WHERE pk = ?`, error, pk);
}

/** Its turn comes after what is open for its destination now. */
export function* queueAgain(t: Writing, pk: number, head: number, now: number): Body<void> {
  yield* t.run(
    `UPDATE deliveries SET state = 'pending', error = NULL, head = ?, due_at = ?, first_at = ? WHERE pk = ?`,
    head,
    now,
    now,
    pk,
  );
}

/** Destinations with something open. */
export function* openDestinations(t: Reading): Body<string[]> {
  const rows = yield* t.all<{ dest_key: string }>(
    `SELECT DISTINCT dest_key FROM deliveries WHERE state IN ('pending', 'sending') ORDER BY dest_key`,
  );
  return rows.map((row) => row.dest_key);
}

/** The wall clock was set. */
export function* moveDue(t: Writing, byMs: number): Body<void> {
  yield* t.run(`UPDATE deliveries SET due_at = due_at + ?, first_at = first_at + ? WHERE state IN ('pending', 'sending')`, byMs, byMs);
}

/** What is shown of a delivery, beside the beginning of its text. */
const shown = ['pk', 'id', 'state', 'channel', 'recipient', 'account', 'thread', 'attempts', 'first_at', 'error', 'platform_id'] as const;
const beginning = 500;
export type ShownDelivery = Pick<DeliveryRow, (typeof shown)[number] | 'text'>;
export type DeliveryOfSession = ShownDelivery & { session_key: string; session_id: string; session_agent: string; session_level: number };

/** Joins: sessions. Newest first, strictly before a delivery: of one session, or of all sessions up to a level, of some states or all. */
export function* pageBefore(
  t: Reading,
  before: number,
  limit: number,
  { sessionPk, states, level }: { sessionPk?: number | undefined; states?: readonly DeliveryState[] | undefined; level: number },
): Body<DeliveryOfSession[]> {
  const wanted = sessionPk !== undefined ? [sessionPk] : [...new Set(states)];
  const where = sessionPk !== undefined ? 'session_pk = ? AND ' : states === undefined ? '' : 'deliveries.state = ? AND ';
  const select = `SELECT deliveries.* FROM deliveries CROSS JOIN sessions
    WHERE sessions.pk = deliveries.session_pk AND ${where}deliveries.pk >= ? AND deliveries.pk < ? AND sessions.level <= ?`;
  // A store merges these by pk and reads no further than the limit.
  const selects = (where === '' ? [select] : wanted.map(() => select)).join(' UNION ALL ');
  const ends = yield* t.one<{ oldest: number | null; newest: number | null }>(
    'SELECT (SELECT min(pk) FROM deliveries) AS oldest, (SELECT max(pk) FROM deliveries) AS newest',
  );
  return yield* inWindows(ends, before, limit, (from, end, most) => {
    const range = [from, end, level];
    return t.all<DeliveryOfSession>(
      `SELECT ${shown.map((name) => `page.${name}`).join(', ')}, substr(page.text, 1, ${beginning}) AS text, sessions.key AS session_key, sessions.id AS session_id, sessions.agent AS session_agent, sessions.level AS session_level
       FROM (${selects} ORDER BY pk DESC LIMIT ?) AS page JOIN sessions ON sessions.pk = page.session_pk ORDER BY page.pk DESC`,
      ...(where === '' ? range : wanted.flatMap((one) => [one, ...range])),
      most,
    );
  });
}

/** Deliveries that are not sent, by state; at most 100,000 of each count. */
export function* openCounts(t: Reading): Body<Record<'pending' | 'unknown' | 'dead', number>> {
  const count = function* (where: string): Body<number> {
    return (yield* t.one<{ n: number }>(
      `SELECT count(*) AS n FROM (SELECT 1 AS one FROM deliveries WHERE ${where} LIMIT 100000) AS counted`,
    ))!.n;
  };
  return {
    pending: yield* count(`state = 'pending'`),
    unknown: yield* count(`state = 'unknown'`),
    // Said twice, for the index of settled deliveries.
    dead: yield* count(`state IN ('sent', 'failed', 'dead') AND state = 'dead'`),
  };
}

/** The first attempt of the oldest delivery in a state; if none was made yet, when it was queued. */
export function* oldest(t: Reading, state: 'pending' | 'sending' | 'unknown'): Body<number | undefined> {
  return (yield* t.one<{ at: number }>('SELECT first_at AS at FROM deliveries WHERE state = ? ORDER BY pk LIMIT 1', state))?.at;
}

export function someOf(t: Reading, sessionPk: number, limit: number): Body<{ pk: number; dest_key: string; head: number }[]> {
  return t.all<{ pk: number; dest_key: string; head: number }>(
    'SELECT pk, dest_key, head FROM deliveries WHERE session_pk = ? ORDER BY pk LIMIT ?',
    sessionPk,
    limit,
  );
}

export function* remove(t: Writing, pk: number): Body<void> {
  yield* t.run('DELETE FROM deliveries WHERE pk = ?', pk);
}

export function settledBefore(t: Reading, at: number, limit: number): Body<{ pk: number; dest_key: string }[]> {
  return t.all<{ pk: number; dest_key: string }>(
    `SELECT pk, dest_key FROM deliveries WHERE state IN ('sent', 'failed', 'dead') AND first_at < ? ORDER BY first_at, pk LIMIT ?`,
    at,
    limit,
  );
}
