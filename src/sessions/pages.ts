// The sessions that a viewer may see, as keyset pages: newest first by feed position. The cost of a page does not depend on their number.
import { levelName, levelRank } from '../levels.ts';
import type { SessionKind } from '../protocol/labels.ts';
import { passesScope, type ListScope, type World } from '../rules/decide.ts';
import { scopeFor, scopeNeedsAgents, type Viewer } from '../rules/viewer.ts';
import type { Body, Reading, ReadQuery } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import {
  agentsWithSessions,
  countSessions,
  mostRanges,
  newestSessions,
  pinnedSessions,
  scanSessions,
  sessionsByPk,
  type ScannedSession,
  type SessionRange,
} from '../store/tables/session-pages.ts';

/** A viewer, and the rules that say what it may see. */
export interface Look {
  world: World;
  viewer: Viewer;
}

export interface PageFilter {
  limit: number;
  /** Rows to leave out at the beginning. */
  skip?: number | undefined;
  /** Feed position to continue from: rows strictly before it. */
  before?: number | undefined;
  kinds?: readonly SessionKind[] | undefined;
  activeSince?: number | undefined;
  agentId?: string | undefined;
  /** The store key of the session that spawned them. */
  spawnedBy?: string | undefined;
  label?: string | undefined;
  /** In the key or in the label. */
  search?: string | undefined;
  /** Only live sessions without it. */
  archived?: boolean | 'all' | undefined;
  /** Only pinned ones, or only the others. */
  pinned?: boolean | undefined;
  /** Pinned ones come before the others. */
  pinnedFirst?: boolean | undefined;
  /** The most rows that one page scans for matches; the next page continues by cursor. */
  mostScanned?: number | undefined;
}

export interface SessionsPage {
  rows: SessionRow[];
  /** Where the next page begins. A page may be shorter than its limit and still have a next one. */
  next: number | undefined;
  /** There are more rows than the limit. */
  full: boolean;
  scope: ListScope;
}

/** Past this many agents one pass over all sessions is cheaper than a range for each. */
const mostAgentRanges = 256;
const mostScanned = 5_000;
/** The most rows of one statement. */
const scanRows = 200;

/** Added to the positions of pinned sessions where they come first, so that one number is the place in such a list. */
const pinnedBase = 2 ** 46;

/** The place of a row in a list, where a next page begins. */
export const placeOf = ({ pinnedFirst }: PageFilter, row: SessionRow) => row.last_pos + (pinnedFirst && row.pinned === 1 ? pinnedBase : 0);

/** The sessions that a viewer's lists may contain. Patterns apply to every agent that has a session, configured or not. */
export function* scopeOf(t: Reading, { world, viewer }: Look): Body<ListScope> {
  return scopeFor(world, viewer, scopeNeedsAgents(world, viewer) ? yield* agentsWithSessions(t) : []);
}

/** About how many rows a page looks through: a word may be in none of them. */
export const rowsOfPage = ({ skip = 0, limit, search, label }: PageFilter) =>
  skip + limit + (search === undefined && label === undefined ? 0 : mostScanned);

export const sessionsPage = (look: Look): ReadQuery<PageFilter, SessionsPage> => ({
  name: 'sessions page',
  rows: rowsOfPage,
  *body(t, { kinds, ...rest }) {
    const filter = { ...rest, kinds: kinds?.length === 0 ? undefined : kinds };
    const scope = yield* scopeOf(t, look);
    if (!filter.pinnedFirst || filter.pinned === false) return yield* pageOf(t, scope, filter);
    const { before = Number.MAX_SAFE_INTEGER, limit, skip = 0 } = filter;
    const others = { ...filter, pinned: false, before: before >= pinnedBase ? undefined : before };
    if (before <= pinnedBase) return yield* pageOf(t, scope, others);
    const first = yield* pageOf(t, scope, { ...filter, pinned: true, before: before - pinnedBase, skip: 0, limit: skip + limit });
    const rows = first.rows.slice(skip);
    if (first.next !== undefined) return { ...first, rows, next: first.next + pinnedBase };
    if (filter.pinned) return { ...first, rows };
    if (rows.length === limit) {
      // Whether there are others decides whether there is a next page.
      const more = (yield* pageOf(t, scope, { ...others, skip: 0, limit: 1 })).rows.length > 0;
      return { ...first, rows, ...(more ? { next: pinnedBase, full: true } : {}) };
    }
    const skipped = Math.max(0, skip - first.rows.length);
    const then = yield* pageOf(t, scope, { ...others, skip: skipped, limit: limit - rows.length });
    return { ...then, rows: [...rows, ...then.rows] };
  },
});

/** A page in the order of positions alone. */
function* pageOf(t: Reading, scope: ListScope, filter: PageFilter): Body<SessionsPage> {
  const { skip = 0 } = filter;
  const found = new Map<number, ScannedSession>();
  const streams = streamsOf(scope, filter);
  // One extra row tells whether there are more. Once a page is full, another stream adds about its share.
  const wanted = skip + filter.limit + 1;
  const share = Math.ceil(wanted / streams.length);
  /** Every stream was scanned down to this position. */
  let reached = 0;
  for (const stream of streams) {
    const floor = floorOf(found, wanted);
    const read = yield* readStream(t, stream, filter, floor, floor === 0 ? wanted : share);
    for (const row of read.rows) found.set(row.pk, row);
    reached = Math.max(reached, read.cutAt);
  }
  const sorted = [...found.values()].filter((row) => row.last_pos >= reached).toSorted((a, b) => b.last_pos - a.last_pos);
  const shown = sorted.slice(skip, skip + filter.limit);
  const full = sorted.length > skip + filter.limit;
  const rows = scansFirst(filter) ? yield* wholeRows(t, shown) : (shown as SessionRow[]);
  return { rows, next: full ? shown.at(-1)!.last_pos : reached > 0 ? reached : undefined, full, scope };
}

/** A count goes no further than this. */
const mostCounted = 10_000;

/** How many sessions fit, for filters that an index answers and a viewer of every session; undefined for others. */
export const sessionsCount = (look: Look): ReadQuery<Omit<PageFilter, 'limit'>, number | undefined> => ({
  name: 'sessions count',
  rows: () => mostCounted,
  *body(t, filter) {
    const { activeSince, label, search = '', agentId, spawnedBy, pinned } = filter;
    const scope = yield* scopeOf(t, look);
    const isIndexed = scope.filter.agents === 'every' && (agentId === undefined || spawnedBy === undefined);
    if (!isIndexed || activeSince !== undefined || label !== undefined || pinned !== undefined || search.trim() !== '') return undefined;
    const kinds = filter.kinds?.length === 0 ? undefined : filter.kinds;
    let count = 0;
    for (const ranges of inStatements(scope, { ...filter, kinds, limit: 0 }, [narrowest({ ...filter, limit: 0 })], ''))
      count += yield* countSessions(t, ranges, mostCounted - count);
    return count;
  },
});

interface Stream {
  read(t: Reading, before: number, limit: number): Body<ScannedSession[]>;
  keep(row: ScannedSession): boolean;
}

/** Where many rows are looked at and few are shown, they are first read without their details. */
const scansFirst = ({ skip = 0, search, label }: PageFilter) => skip > 0 || search !== undefined || label !== undefined;

function* wholeRows(t: Reading, shown: readonly ScannedSession[]): Body<SessionRow[]> {
  const byPk = new Map<number, SessionRow>();
  for (let from = 0; from < shown.length; from += scanRows) {
    const pks = shown.slice(from, from + scanRows).map(({ pk }) => pk);
    for (const row of yield* sessionsByPk(t, pks)) byPk.set(row.pk, row);
  }
  return shown.map(({ pk }) => byPk.get(pk)!);
}

/** Once a page is full, older rows cannot be on it. */
function floorOf(found: Map<number, ScannedSession>, limit: number): number {
  if (found.size < limit) return 0;
  const positions = Float64Array.from(found.values(), (row) => row.last_pos).toSorted();
  return positions[positions.length - limit]!;
}

/** Together the streams contain exactly the sessions that the scope and the filter allow. */
function streamsOf(scope: ListScope, filter: PageFilter): Stream[] {
  if (filter.pinned) return [pinnedStream(scope, filter)];
  const { key, spawnedBy, agents } = scope.filter;
  const sources: Pick<SessionRange, 'agent' | 'spawnedBy'>[] = [];
  const reachable = agents === 'every' || agents === undefined ? undefined : new Set(agents);
  // A viewer of every session sees its children among them.
  if (spawnedBy !== undefined && agents !== 'every') sources.push({ spawnedBy });
  if (agents === 'every') sources.push(narrowest(filter));
  const onePass = reachable !== undefined && reachable.size > mostAgentRanges;
  if (reachable && !onePass) for (const agent of reachable) sources.push({ agent });
  const wanted = fitsFilter(filter);
  const fits = (row: ScannedSession) => wanted(row) && (row.key !== key || scope.ownLevels.includes(levelName(row.level)));
  const scan = scansFirst(filter) ? scanSessions : newestSessions;
  const streamOf = (ranges: SessionRange[], keep: Stream['keep']): Stream => ({
    read: (t, before, limit) => scan(t, ranges, before, limit),
    keep,
  });
  const streams = inStatements(scope, filter, sources, key).map((ranges) => streamOf(ranges, fits));
  if (onePass)
    for (const ranges of inStatements(scope, filter, [{}], ''))
      streams.push(streamOf(ranges, (row) => reachable.has(row.agent) && fits(row)));
  return streams;
}

/** Pinned sessions are few, so all of them are looked at. */
function pinnedStream(scope: ListScope, filter: PageFilter): Stream {
  const fits = fitsFilter(filter);
  const { archived = false } = filter;
  const keep = (row: ScannedSession) =>
    (archived === 'all' || (row.state === 'archived') === archived) &&
    passesScope(scope, { key: row.key, agent: row.agent, spawnedBy: row.parent_key ?? undefined, level: levelName(row.level) }) &&
    fits(row);
  return { read: pinnedSessions, keep };
}

const narrowest = ({ agentId, spawnedBy }: PageFilter): Pick<SessionRange, 'agent' | 'spawnedBy'> =>
  spawnedBy !== undefined ? { spawnedBy } : agentId !== undefined ? { agent: agentId } : {};

/** Live sessions have a range for each kind and level, archived ones an index of their own. */
function inStatements(
  { levels }: ListScope,
  { kinds, archived = false }: PageFilter,
  sources: Pick<SessionRange, 'agent' | 'spawnedBy'>[],
  own: string,
): SessionRange[][] {
  const ranges: SessionRange[] = own !== '' && archived !== true ? [{ state: 'live', key: own }] : [];
  const byKind = kinds ? Array.from(new Set(kinds), (kind) => ({ kinds: [kind] })) : [{}];
  for (const source of sources) {
    if (archived !== true)
      for (const kind of byKind) for (const level of levels) ranges.push({ state: 'live', ...source, ...kind, level: levelRank(level) });
    if (archived !== false)
      ranges.push({ state: 'archived', ...source, ...(kinds && { kinds: [...new Set(kinds)] }), level: levelRank(levels.at(-1)!) });
  }
  const statements: SessionRange[][] = [];
  for (let from = 0; from < ranges.length; from += mostRanges) statements.push(ranges.slice(from, from + mostRanges));
  return statements;
}

function fitsFilter({ kinds, activeSince = 0, agentId, spawnedBy, label, search, pinned }: PageFilter): (row: ScannedSession) => boolean {
  const word = search?.trim().toLowerCase() ?? '';
  return (row) =>
    // Checked row by row: positions only rise, but a clock can be set back.
    row.last_at >= activeSince &&
    (pinned === undefined || (row.pinned === 1) === pinned) &&
    (kinds === undefined || kinds.includes(row.kind as SessionKind)) &&
    // Live children are listed whatever their agent is.
    (agentId === undefined || row.agent === agentId || (spawnedBy !== undefined && row.state === 'live')) &&
    (spawnedBy === undefined || row.parent_key === spawnedBy) &&
    (label === undefined || row.label === label) &&
    (word === '' || row.key.includes(word) || (row.label?.toLowerCase().includes(word) ?? false));
}

/** Scans down to the floor, first about as many rows as a page needs; `cutAt` is above 0 if the scan stopped there. */
function* readStream(
  t: Reading,
  { read, keep }: Stream,
  filter: PageFilter,
  floor: number,
  expected: number,
): Body<{ rows: ScannedSession[]; cutAt: number }> {
  const rows = new Map<number, ScannedSession>();
  const done = (cutAt: number) => ({ rows: [...rows.values()], cutAt });
  let size = Math.min(Math.max(2, expected), scanRows);
  let before = filter.before ?? Number.MAX_SAFE_INTEGER;
  for (let scanned = 0; scanned < (filter.mostScanned ?? mostScanned);) {
    const page = yield* read(t, before, size);
    scanned += page.length;
    for (const row of page) {
      if (row.last_pos < floor) return done(0);
      if (!keep(row)) continue;
      rows.set(row.pk, row);
      if (rows.size > (filter.skip ?? 0) + filter.limit) return done(0);
    }
    if (page.length < size) return done(0);
    before = page.at(-1)!.last_pos;
    size = Math.max(size, Math.min(2 * size, scanRows));
  }
  return done(before);
}
