// Lists of sessions with details for an operator's clients, and single rows for events and results.
import { levelName } from '../levels.ts';
import { agentId as agentIdOf } from '../protocol/ids.ts';
import type { Level } from '../protocol/labels.ts';
import type { WireSession } from '../protocol/result.ts';
import type { World } from '../rules/decide.ts';
import type { ReadQuery } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import { useById } from '../store/tables/session-pages.ts';
import { current as currentByKey, byId as lifeById } from '../store/tables/sessions.ts';
import { describe, type LiveFacts } from './describe.ts';
import { findSession } from './find.ts';
import { howManyFit, pageBytes, textBound } from './page-bytes.ts';
import { rowsOfPage, sessionsPage, type Look, type PageFilter } from './pages.ts';
import { wireSession } from './views.ts';

export interface ListFilter extends Omit<PageFilter, 'mostScanned'> {
  preview: boolean;
}

/** A search reads at most this many rows and then gives a cursor, so that one request stays short. */
const mostScanned = 5_000;
/** Rows that are described together. Between two such slices other work goes on. */
const slice = 64;

/** `spawnedBy` is a reference here; children of a session that the viewer does not see are not listed. */
export const listSessions = (
  look: Look & LiveFacts,
): ReadQuery<ListFilter, { sessions: WireSession[]; next: number | undefined; full: boolean }> => ({
  name: 'list sessions',
  // Each session comes with its runs, its parent and its newest message.
  rows: (filter) => rowsOfPage(filter) + 3 * filter.limit,
  *body(t, { preview, ...filter }) {
    const parent = filter.spawnedBy === undefined ? undefined : yield* findSession(look).body(t, { session: filter.spawnedBy });
    if (filter.spawnedBy !== undefined && !parent) return { sessions: [], next: undefined, full: false };
    const { rows, next, full } = yield* sessionsPage(look).body(t, {
      ...filter,
      agentId: filter.agentId === undefined ? undefined : agentIdOf(filter.agentId),
      spawnedBy: parent?.key,
      mostScanned: (filter.skip ?? 0) + mostScanned,
    });
    const sessions: WireSession[] = [];
    for (let from = 0; from < rows.length; from += slice)
      for (const one of yield* describe(t, look, rows.slice(from, from + slice), { work: true, origin: true, preview }))
        sessions.push(wireSession(one));
    const fit = howManyFit(sessions, pageBytes, sessionBound);
    if (fit === rows.length) return { sessions, next, full };
    return { sessions: sessions.slice(0, fit), next: rows[fit - 1]!.last_pos, full: true };
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

export const describeSession = (look: Look & LiveFacts): ReadQuery<{ row: SessionRow; preview: boolean }, WireSession> => ({
  name: 'describe session',
  *body(t, { row, preview }) {
    const [described] = yield* describe(t, look, [row], { work: true, origin: true, preview });
    return wireSession(described!);
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
