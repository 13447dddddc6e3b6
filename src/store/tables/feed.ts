// The `feed` table: the order of everything that happened. A cursor is a position in it. `feed_head` is the last position given.
import type { Body, FeedNote, Reading, Writing } from '../contract.ts';
import type { FeedEvent } from '../../protocol/event.ts';
import * as sessions from './sessions.ts';

export interface FeedRow {
  pos: number;
  session_pk: number;
  kind: FeedEvent['kind'];
  ref_pk: number;
  state: string | null;
  detail: string | null;
  level: number;
  at: number;
}

/** Rows of one INSERT. */
const rowsAtOnce = 40;
const oneRow = '(?, ?, ?, ?, ?, ?, ?, ?)';
const inserts = Array.from(
  { length: rowsAtOnce },
  (_, index) =>
    `INSERT INTO feed (pos, session_pk, kind, ref_pk, state, detail, level, at) VALUES ${Array.from({ length: index + 1 }, () => oneRow).join(', ')}`,
);

/** The last thing a command does: its notes get their positions, and the sessions that spoke move to the top of lists. */
export function* place(t: Pick<Writing<{ pos: number }>, 'run'>, notes: readonly { row: FeedNote }[], first: number): Body<void> {
  const moved = new Map<number, number>();
  for (let from = 0; from < notes.length; from += rowsAtOnce) {
    const until = Math.min(from + rowsAtOnce, notes.length);
    const params: (string | number | null)[] = [];
    for (let at = from; at < until; at++) {
      const { sessionPk, kind, refPk, state, detail, level, at: when, moves } = notes[at]!.row;
      params.push(first + at, sessionPk, kind, refPk, state, detail, level, when);
      if (moves) moved.set(sessionPk, first + at);
    }
    yield* t.run(inserts[until - from - 1]!, ...params);
  }
  for (const [pk, pos] of moved) yield* sessions.moveTo(t as Writing, pk, pos);
}

/** The last position that was given; 0 before the first. */
export function* latest(t: Reading): Body<number> {
  return (yield* t.one<{ pos: number }>('SELECT pos FROM feed_head'))?.pos ?? 0;
}

/** The oldest position that is kept. */
export function* oldest(t: Reading): Body<number | undefined> {
  return (yield* t.one<{ pos: number }>('SELECT pos FROM feed ORDER BY pos LIMIT 1'))?.pos;
}

/** The newest event that is kept. */
export function newest(t: Reading): Body<{ pos: number; at: number } | undefined> {
  return t.one<{ pos: number; at: number }>('SELECT pos, at FROM feed ORDER BY pos DESC LIMIT 1');
}

export function after(t: Reading, pos: number, limit: number): Body<FeedRow[]> {
  return t.all<FeedRow>('SELECT * FROM feed WHERE pos > ? ORDER BY pos LIMIT ?', pos, limit);
}

/** Joins: sessions. Events of sessions up to a level, in a range of positions; of one key or of all. A cross join is read from the left. */
export function within(
  t: Reading,
  { after: pos, upTo, level, key }: { after: number; upTo: number; level: number; key?: string | undefined },
  limit: number,
): Body<FeedRow[]> {
  const rows = `SELECT feed.* FROM feed CROSS JOIN sessions
    WHERE sessions.pk = feed.session_pk AND feed.pos > ? AND feed.pos <= ? AND sessions.level <= ?`;
  return key === undefined
    ? t.all<FeedRow>(`${rows} ORDER BY feed.pos LIMIT ?`, pos, upTo, level, limit)
    : t.all<FeedRow>(`${rows} AND sessions.key = ? ORDER BY feed.pos LIMIT ?`, pos, upTo, level, key, limit);
}

/** Joins: entries. The entries that were written after a position and are still there, with the size of their texts. */
export function newEntries(t: Reading, pos: number, limit: number): Body<{ pos: number; pk: number; bytes: number }[]> {
  return t.all<{ pos: number; pk: number; bytes: number }>(
    `SELECT feed.pos, entries.pk, octet_length(entries.text) AS bytes FROM feed JOIN entries ON entries.pk = feed.ref_pk
     WHERE feed.pos > ? AND feed.kind = 'entry' ORDER BY feed.pos LIMIT ?`,
    pos,
    limit,
  );
}

export function* removeOf(t: Writing, sessionPk: number, limit: number): Body<number> {
  const { changes } = yield* t.run(
    'DELETE FROM feed WHERE pos IN (SELECT pos FROM feed WHERE session_pk = ? ORDER BY pos LIMIT ?)',
    sessionPk,
    limit,
  );
  return changes;
}

/** Oldest first, so that what is left is always the end of the feed and a cursor that is too old is noticed. The newest row stays. */
export function* removeBefore(t: Writing, at: number, limit: number): Body<number> {
  const old = yield* t.all<{ pos: number; at: number }>('SELECT pos, at FROM feed ORDER BY pos LIMIT ?', limit);
  if (old.length === 0 || old[0]!.at >= at) return 0;
  const newest = yield* t.one<{ pos: number }>('SELECT pos FROM feed ORDER BY pos DESC LIMIT 1');
  const stop = old.findIndex((row) => row.at >= at || row.pos === newest?.pos);
  const last = (stop < 0 ? old : old.slice(0, stop)).at(-1);
  return last ? (yield* t.run('DELETE FROM feed WHERE pos <= ?', last.pos)).changes : 0;
}
