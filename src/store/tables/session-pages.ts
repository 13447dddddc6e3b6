// Pages of `sessions`, newest first, and the ways to find a session by what a caller wrote.
import type { Body, Reading, Value } from '../contract.ts';
import type { SessionRow } from '../rows.ts';
import { mirrored } from './sessions.ts';
import { inBatches } from './value-list.ts';

/** One stretch of an index on sessions. Whatever is given must be equal. */
export interface SessionRange {
  state: 'live' | 'archived';
  key?: string;
  agent?: string;
  spawnedBy?: string;
  kinds?: readonly string[];
  /** Live sessions are in the order of their positions within one level, archived ones over all levels up to one. */
  level?: number;
}

/** Ranges that go into one statement. */
export const mostRanges = 128;

/** What a filter looks at; the rest of a row costs three times as much. */
const scanned = ['pk', 'key', 'agent', 'kind', 'label', 'parent_key', 'state', 'level', 'pinned', 'last_pos', 'last_at'] as const;
export type ScannedSession = Pick<SessionRow, (typeof scanned)[number]>;

/** The newest sessions before a position, of all ranges together. A session that is in two ranges comes twice. */
export function newestSessions(t: Reading, ranges: readonly SessionRange[], before: number, limit: number): Body<SessionRow[]> {
  return t.all<SessionRow>(...newest('*', ranges, before, limit));
}

/** The same, with what a filter looks at. */
export function scanSessions(t: Reading, ranges: readonly SessionRange[], before: number, limit: number): Body<ScannedSession[]> {
  return t.all<ScannedSession>(...newest(scanned.join(', '), ranges, before, limit));
}

function newest(columns: string, ranges: readonly SessionRange[], before: number, limit: number): [sql: string, ...params: Value[]] {
  const parts = ranges.map((range) => wherePart(range));
  const params = parts.flatMap((part) => [...part.params, before]);
  // A store merges these by position and reads no further than the limit.
  const selects = parts.map(({ where }) => `SELECT ${columns} FROM sessions WHERE current = 1 AND ${where} AND last_pos < ?`);
  return [`${selects.join(' UNION ALL ')} ORDER BY last_pos DESC LIMIT ?`, ...params, limit];
}

/** Whole rows, in any order. */
export function* sessionsByPk(t: Reading, pks: readonly number[]): Body<SessionRow[]> {
  return yield* inBatches(pks, (marks, params) =>
    t.all<SessionRow>(`SELECT * FROM sessions WHERE pk IN (${marks}) ORDER BY pk`, ...params),
  );
}

/** How many sessions are in the ranges, which do not overlap; counts no further than `most`. */
export function* countSessions(t: Reading, ranges: readonly SessionRange[], most: number): Body<number> {
  const parts = ranges.map((range) => wherePart(range));
  const selects = parts.map(({ where }) => `SELECT pk FROM sessions WHERE current = 1 AND ${where}`);
  const row = yield* t.one<{ n: number }>(
    `SELECT count(*) AS n FROM (${selects.join(' UNION ALL ')} LIMIT ?) AS counted`,
    ...parts.flatMap((part) => part.params),
    most,
  );
  return row!.n;
}

/** When each session got its last message; sessions without one are left out. Joins: entries. */
export function* lastMessageTimes(t: Reading, pks: readonly number[]): Body<{ session_pk: number; at: number }[]> {
  return yield* inBatches(pks, (marks, params) =>
    t.all<{ session_pk: number; at: number }>(
      `SELECT entries.session_pk, entries.at FROM sessions JOIN entries ON entries.session_pk = sessions.pk AND entries.seq = sessions.next_seq - 1
       WHERE sessions.pk IN (${marks}) ORDER BY entries.session_pk`,
      ...params,
    ),
  );
}

function wherePart({ state, key, agent, spawnedBy, kinds, level }: SessionRange): { where: string; params: Value[] } {
  const conditions: string[] = [state === 'live' ? `state = 'live'` : `state = 'archived'`];
  const params: Value[] = [];
  const add = (condition: string, ...values: Value[]) => {
    conditions.push(condition);
    params.push(...values);
  };
  if (key !== undefined) add('key = ?', key);
  if (spawnedBy !== undefined) add('parent_key = ?', spawnedBy);
  if (agent !== undefined) add('agent = ?', agent);
  if (kinds?.length === 1) add('kind = ?', kinds[0]!);
  else if (kinds) add(`kind IN (${kinds.map(() => '?').join(', ')})`, ...kinds);
  if (level !== undefined) add(state === 'live' ? 'level = ?' : 'level <= ?', level);
  return { where: conditions.join(' AND '), params };
}

/** Pinned sessions before a position, newest first; archived ones too. */
export function pinnedSessions(t: Reading, before: number, limit: number): Body<SessionRow[]> {
  return t.all<SessionRow>(
    'SELECT * FROM sessions WHERE pinned = 1 AND current = 1 AND last_pos < ? ORDER BY last_pos DESC LIMIT ?',
    before,
    limit,
  );
}

/** The agents that have a live session: one look into the index for each, however many sessions it has. */
export function* agentsWithSessions(t: Reading): Body<string[]> {
  const rows = yield* t.all<{ agent: string }>(
    `SELECT agent FROM (
       WITH RECURSIVE known (agent) AS (
         SELECT min(agent) FROM sessions WHERE current = 1 AND state = 'live'
         UNION ALL
         SELECT (SELECT min(later.agent) FROM sessions AS later WHERE later.current = 1 AND later.state = 'live' AND later.agent > known.agent)
         FROM known WHERE known.agent IS NOT NULL
       ) SELECT agent FROM known WHERE agent IS NOT NULL
     ) AS agents ORDER BY agent`,
  );
  return rows.map(({ agent }) => agent);
}

// Finding -------------------------------------------------------------------------------------------------------------

/** As the stores' `lower` does it. */
const folded = (text: string) => text.replaceAll(/[A-Z]+/g, (capitals) => capitals.toLowerCase());

/** In any case of its letters, of any life. Imported ids may differ in case alone. */
export function livesById(t: Reading, id: string): Body<SessionRow[]> {
  return t.all<SessionRow>(`SELECT * FROM sessions WHERE lower(id) = ? AND state <> 'deleted' ORDER BY pk LIMIT 10`, folded(id));
}

export function* currentByLabel(t: Reading, label: string, agent?: string): Body<SessionRow[]> {
  return agent === undefined
    ? yield* t.all<SessionRow>('SELECT * FROM sessions WHERE label = ? AND current = 1 ORDER BY pk LIMIT 50', label)
    : yield* t.all<SessionRow>('SELECT * FROM sessions WHERE agent = ? AND label = ? AND current = 1 ORDER BY pk', agent, label);
}

export function currentByIdStart(t: Reading, start: string): Body<SessionRow[]> {
  return t.all<SessionRow>(
    'SELECT * FROM sessions WHERE lower(id) >= ? AND lower(id) < ? AND current = 1 ORDER BY lower(id), pk LIMIT 10',
    folded(start),
    `${folded(start)}\u{10ffff}`,
  );
}

export function useById(t: Reading, id: string): Body<Pick<SessionRow, 'level' | 'total_tokens'> | undefined> {
  return t.one<Pick<SessionRow, 'level' | 'total_tokens'>>('SELECT level, total_tokens FROM sessions WHERE id = ?', id);
}

// Similar ones ----------------------------------------------------------------------------------------------------------

const neighbours = 8;

/** A stretch on either side of a text, in the order of a column. The store reads no more rows than it returns. */
const around = (column: 'key' | 'mirror', where: string): string[] =>
  [`${column} >= ? ORDER BY ${column}`, `${column} < ? ORDER BY ${column} DESC`].map(
    (end, side) =>
      `SELECT * FROM (SELECT * FROM sessions WHERE current = 1 AND state = 'live' AND ${where} AND ${end} LIMIT ?) AS ${column}_${side}`,
  );

/** Live sessions of an agent whose keys are next to a key, by their beginning or by their end. A session may come twice. */
export function* nextToKey(t: Reading, key: string, agent: string, level: number): Body<SessionRow[]> {
  const parts = [...around('key', 'agent = ? AND level = ?'), ...around('mirror', 'agent = ? AND level = ?')];
  const mirror = mirrored(key);
  const params = [key, key, mirror, mirror].flatMap((text) => [agent, level, text, neighbours]);
  return yield* t.all<SessionRow>(parts.join(' UNION ALL '), ...params);
}

/** Live sessions up to a level whose labels are next to a text. */
export function* nextToLabel(t: Reading, label: string, agent: string | undefined, level: number): Body<SessionRow[]> {
  const where = `current = 1 AND label IS NOT NULL AND state = 'live' AND level <= ?${agent === undefined ? '' : ' AND agent = ?'}`;
  const given = [level, ...(agent === undefined ? [] : [agent]), label, neighbours];
  return yield* t.all<SessionRow>(
    `SELECT * FROM (SELECT * FROM sessions WHERE ${where} AND label >= ? ORDER BY label LIMIT ?) AS after
     UNION ALL SELECT * FROM (SELECT * FROM sessions WHERE ${where} AND label < ? ORDER BY label DESC LIMIT ?) AS before`,
    ...given,
    ...given,
  );
}

/** Live sessions up to a level whose ids begin like a text. */
export function likeId(t: Reading, start: string, level: number): Body<SessionRow[]> {
  return t.all<SessionRow>(
    `SELECT * FROM sessions WHERE lower(id) >= ? AND lower(id) < ? AND current = 1 AND state = 'live' AND level <= ? ORDER BY lower(id), pk LIMIT ?`,
    folded(start),
    `${folded(start)}\u{10ffff}`,
    level,
    neighbours,
  );
}

/** The levels of current sessions, for each key that has one. */
export function* levelsOfKeys(t: Reading, keys: readonly string[]): Body<{ key: string; level: number }[]> {
  return yield* inBatches(keys, (marks, params) =>
    t.all<{ key: string; level: number }>(
      `SELECT key, level FROM sessions WHERE key IN (${marks}) AND current = 1 ORDER BY key`,
      ...params,
    ),
  );
}

// For export and import -----------------------------------------------------------------------------------------------

/** The key of a session that has this key or this id, in any life that was not deleted. */
export function* keyOfKeyOrId(t: Reading, text: string): Body<string | undefined> {
  const row = yield* t.one<{ key: string }>(
    `SELECT key FROM sessions WHERE (key = ? OR lower(id) = ?) AND state <> 'deleted' ORDER BY pk LIMIT 1`,
    text,
    folded(text),
  );
  return row?.key;
}

/** One life of a key, by its number. */
export function life(t: Reading, key: string, number: number): Body<SessionRow | undefined> {
  return t.one<SessionRow>(`SELECT * FROM sessions WHERE key = ? AND life = ? AND state <> 'deleted'`, key, number);
}

/** Lives of a key before a number, newest first. */
export function livesBefore(t: Reading, key: string, number: number, limit: number): Body<SessionRow[]> {
  return t.all<SessionRow>(
    `SELECT * FROM sessions WHERE key = ? AND life < ? AND state <> 'deleted' ORDER BY life DESC LIMIT ?`,
    key,
    number,
    limit,
  );
}

/** Keys in the order in which they were last active. */
export function* keysByActivity(t: Reading): Body<string[]> {
  const rows = yield* t.all<{ key: string }>(
    `SELECT key, max(last_pos) AS pos FROM sessions WHERE state <> 'deleted' GROUP BY key ORDER BY pos, key`,
  );
  return rows.map(({ key }) => key);
}

/** All lives of a key that were not deleted, oldest first. */
export function livesOfKey(t: Reading, key: string): Body<SessionRow[]> {
  return t.all<SessionRow>(`SELECT * FROM sessions WHERE key = ? AND state <> 'deleted' ORDER BY life`, key);
}
