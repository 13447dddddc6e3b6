// Lists of sessions with details for an operator's clients, and single rows for events and results.
import { levelName } from '../levels.ts';
import { agentId as agentIdOf } from '../protocol/ids.ts';
import type { Level } from '../protocol/labels.ts';
import type { WireSession } from '../protocol/result.ts';
import type { World } from '../rules/decide.ts';
import type { Body, Reading, ReadQuery } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import { lastMessageTimes, useById } from '../store/tables/session-pages.ts';
import { current as currentByKey, byId as lifeById } from '../store/tables/sessions.ts';
import { describe, type LiveFacts } from './describe.ts';
import { findSession } from './find.ts';
import { howManyFit, pageBytes, textBound } from './page-bytes.ts';
import { placeOf, rowsOfPage, sessionsCount, sessionsPage, type Look, type PageFilter, type SessionsPage } from './pages.ts';
import { wireSession } from './views.ts';

export interface ListFilter extends Omit<PageFilter, 'mostScanned'> {
  preview: boolean;
  /** The operator whose unread messages to count. */
  reader?: string | undefined;
  /** By the last change of any kind, which is the default, or by the last message. */
  sortBy?: 'updatedAt' | 'lastInteractionAt' | undefined;
}

export interface Listed {
  sessions: WireSession[];
  next: number | undefined;
  full: boolean;
  /** How many sessions fit, up to 10,000; undefined if only reading them all could tell. */
  total: number | undefined;
}

/** A search reads at most this many rows and then gives a cursor, so that one request stays short. */
const mostScanned = 5_000;
/** Rows that are described together. Between two such slices other work goes on. */
const slice = 64;
const pageRows = 200;

/** `spawnedBy` is a reference here; children of a session that the viewer does not see are not listed. */
export const listSessions = (look: Look & LiveFacts): ReadQuery<ListFilter, Listed> => ({
  name: 'list sessions',
  // Each session comes with its runs, its parent and its newest message.
  rows: (filter) => rowsOfPage(filter) + 3 * filter.limit + (filter.sortBy === 'lastInteractionAt' ? 2 * mostScanned : 0),
  *body(t, { preview, reader, sortBy, ...filter }) {
    const parent = filter.spawnedBy === undefined ? undefined : yield* findSession(look).body(t, { session: filter.spawnedBy });
    if (filter.spawnedBy !== undefined && !parent) return { sessions: [], next: undefined, full: false, total: 0 };
    const wish = {
      ...filter,
      agentId: filter.agentId === undefined ? undefined : agentIdOf(filter.agentId),
      spawnedBy: parent?.key,
      mostScanned: (filter.skip ?? 0) + mostScanned,
    };
    const {
      rows,
      next,
      full,
      cut = false,
    }: Found = yield* sortBy === 'lastInteractionAt' ? byLastMessages(t, look, wish) : sessionsPage(look).body(t, wish);
    const skip = wish.skip ?? 0;
    const isEnd = wish.before === undefined && next === undefined && !full && !cut && (rows.length > 0 || skip === 0);
    const total = isEnd ? skip + rows.length : yield* sessionsCount(look).body(t, wish);
    const sessions: WireSession[] = [];
    for (let from = 0; from < rows.length; from += slice)
      for (const one of yield* describe(t, look, rows.slice(from, from + slice), { work: true, origin: true, preview, reader }))
        sessions.push(wireSession(one));
    const fit = howManyFit(sessions, pageBytes, sessionBound);
    if (fit === rows.length) return { sessions, next, full, total };
    return {
      sessions: sessions.slice(0, fit),
      next: sortBy === 'lastInteractionAt' ? undefined : placeOf(wish, rows[fit - 1]!),
      full: true,
      total,
    };
  },
});

const sessionBound = ({ key, label, displayName, lastMessagePreview, spawnedBy, lastTo }: WireSession) =>
  2048 +
  textBound(key) +
  textBound(label) +
  textBound(displayName) +
  textBound(lastMessagePreview) +
  textBound(spawnedBy) +
  2 * textBound(lastTo);

type Scan = PageFilter & { mostScanned: number };
/** `cut`: older sessions were not looked at. */
type Found = Omit<SessionsPage, 'scope'> & { cut?: boolean };

/** Pinned ones first, if that is wanted. */
function* byLastMessages(t: Reading, look: Look, { pinnedFirst, ...wish }: Scan): Body<Found> {
  if (!pinnedFirst || wish.pinned !== undefined) return yield* byLastMessage(t, look, wish);
  const { skip = 0, limit } = wish;
  const first = yield* byLastMessage(t, look, { ...wish, pinned: true, skip: 0, limit: skip + limit });
  const then = yield* byLastMessage(t, look, { ...wish, pinned: false, skip: 0, limit: skip + limit - first.rows.length });
  return {
    rows: [...first.rows, ...then.rows].slice(skip),
    next: undefined,
    full: first.full || then.full,
    cut: first.cut === true || then.cut === true,
  };
}

/**
 * The sessions with the newest messages. No index has this order. But a session did not get a message after its last change, so once
 * enough messages are newer than the last change of a row, the rows after it cannot be among them. It looks at the newest rows only, as
 * many as a search does.
 */
function* byLastMessage(t: Reading, look: Look, wish: Scan): Body<Found> {
  const found: { row: SessionRow; at: number }[] = [];
  let before: number | undefined;
  for (let scanned = pageRows; ; scanned += pageRows) {
    const page = yield* sessionsPage(look).body(t, { ...wish, before, skip: 0, limit: pageRows, mostScanned: pageRows });
    const times = new Map(
      (yield* lastMessageTimes(
        t,
        page.rows.map((row) => row.pk),
      )).map(({ session_pk, at }) => [session_pk, at]),
    );
    for (const row of page.rows) found.push({ row, at: times.get(row.pk) ?? row.created_at });
    const changed = page.rows.at(-1)?.last_at ?? 0;
    before = page.next;
    const wanted = (wish.skip ?? 0) + wish.limit;
    const isDone = before === undefined || scanned >= wish.mostScanned;
    if (!isDone && found.filter(({ at }) => at >= changed).length <= wanted) continue;
    const rows = found.toSorted((a, b) => b.at - a.at || b.row.last_pos - a.row.last_pos).map(({ row }) => row);
    return { rows: rows.slice(wish.skip ?? 0, wanted), next: undefined, full: rows.length > wanted, cut: before !== undefined };
  }
}

export const describeSession = (
  look: Look & LiveFacts,
): ReadQuery<{ row: SessionRow; preview: boolean; reader?: string | undefined }, WireSession> => ({
  name: 'describe session',
  *body(t, { row, preview, reader }) {
    const [described] = yield* describe(t, look, [row], { work: true, origin: true, preview, reader });
    return wireSession(described!);
  },
});

/** Several sessions, or lives of one. */
export const describeSessions = (look: Look & LiveFacts): ReadQuery<{ rows: SessionRow[] }, WireSession[]> => ({
  name: 'describe sessions',
  *body(t, { rows }) {
    return (yield* describe(t, look, rows, { work: true, origin: true })).map((one) => wireSession(one));
  },
});

/** The session with this id as it is now, for events; undefined when it is gone. */
export const currentRow = (
  world: World,
  around: LiveFacts,
): ReadQuery<{ sessionId: string }, { session: WireSession; level: Level } | undefined> => ({
  name: 'current row',
  *body(t, { sessionId }) {
    const row = yield* lifeById(t, sessionId);
    if (!row) return undefined;
    // All subscribers of a session get the same text, so it contains only what the lowest of them may read.
    const level = levelName(row.level);
    const look = { world, viewer: { as: 'operator' as const, level }, ...around };
    return { session: yield* describeSession(look).body(t, { row, preview: true }), level };
  },
});

/** The part of that row that a message event needs. */
export const currentUse: ReadQuery<{ sessionId: string }, { level: Level; totalTokens: number | undefined } | undefined> = {
  name: 'current use',
  *body(t, { sessionId }) {
    const row = yield* useById(t, sessionId);
    return row && { level: levelName(row.level), totalTokens: row.total_tokens || undefined };
  },
};

export const currentLevel: ReadQuery<{ key: string }, Level | undefined> = {
  name: 'current level',
  *body(t, { key }) {
    const row = yield* currentByKey(t, key);
    return row && levelName(row.level);
  },
};
