// Reading sessions and transcripts for one caller: keyset pages over indexes, cut to what the caller may see.
import { levelRank } from '../levels.ts';
import type { SessionKind } from '../protocol/labels.ts';
import { listScope, type ListScope, type Party, type World } from '../rules/decide.ts';
import type { Body, Reading, ReadQuery } from '../store/contract.ts';
import type { EntryRow, SessionRow } from '../store/rows.ts';
import { ask, partyOfRow } from './policy.ts';

/**
 * What a caller's lists may hold. Where patterns name the agents it reaches, they are asked of every agent that has a session,
 * configured or not: single decisions do the same.
 */
export const scopeOfCaller: ReadQuery<{ world: World; caller: Party }, ListScope> = {
  name: 'list scope',
  *body(t, { world, caller }) {
    const scope = listScope(world, caller, []);
    if (scope.visibility !== 'all' || scope.filter.agents === 'every' || !world.agentToAgent.enabled) return scope;
    const agents: string[] = [];
    // One look into the index for each agent, however many sessions it has.
    for (;;) {
      const next = yield* t.one<{ agent: string }>(
        `SELECT agent FROM sessions WHERE current = 1 AND state = 'live' AND agent > ? ORDER BY agent LIMIT 1`,
        agents.at(-1) ?? '',
      );
      if (!next) return listScope(world, caller, agents);
      agents.push(next.agent);
    }
  },
};

export interface ListArgs {
  scope: ListScope;
  /** The caller's own row; it is in every list. */
  callerPk: number;
  kinds?: SessionKind[] | undefined;
  activeSince?: number | undefined;
  /** Feed position to go on from: rows strictly before it. */
  before?: number | undefined;
  limit: number;
}

/** Past this many agents one pass over all sessions is cheaper than a stream for each. */
const mostAgentStreams = 256;
/** Rows that one page looks through for those that fit; the cursor leads on. */
const mostScanned = 5_000;
const scanRows = 200;

interface Stream {
  where: string;
  params: (string | number)[];
  keep?: (row: SessionRow) => boolean;
}

/**
 * Newest first by feed position. Each stream is one index range; together they hold exactly what the scope allows. A page may be
 * shorter than its limit and still have a next one.
 */
export const listSessions: ReadQuery<ListArgs, { rows: SessionRow[]; next: number | undefined }> = {
  name: 'list sessions',
  *body(t, args) {
    const found = new Map<number, SessionRow>();
    const streams = streamsOf(args);
    // One row more than a page, so that who asks knows whether there are more. Once they are found, a stream adds about its share.
    const wanted = args.limit + 1;
    const share = Math.ceil(wanted / streams.length);
    /** Down to here every stream was looked through. */
    let reached = 0;
    for (const stream of streams) {
      const floor = floorOf(found, wanted);
      const read = yield* readStream(t, stream, args, floor, floor === 0 ? wanted : share);
      for (const row of read.rows) found.set(row.pk, row);
      reached = Math.max(reached, read.cutAt);
    }
    const own = yield* t.one<SessionRow>(`SELECT * FROM sessions WHERE pk = ? AND current = 1 AND state = 'live'`, args.callerPk);
    if (own && fits(own, args)) found.set(own.pk, own);
    const sorted = [...found.values()].filter((row) => row.last_pos >= reached).toSorted((a, b) => b.last_pos - a.last_pos);
    const rows = sorted.slice(0, args.limit);
    return { rows, next: sorted.length > args.limit ? rows.at(-1)!.last_pos : reached > 0 ? reached : undefined };
  },
};

/** With a page full of rows, what is older than all of them cannot be on it. */
function floorOf(found: Map<number, SessionRow>, limit: number): number {
  if (found.size < limit) return 0;
  const positions = Float64Array.from(found.values(), (row) => row.last_pos).toSorted();
  return positions[positions.length - limit]!;
}

function fits(row: SessionRow, { kinds, activeSince, before }: ListArgs): boolean {
  return (
    (kinds === undefined || kinds.includes(row.kind as SessionKind)) &&
    row.last_at >= (activeSince ?? 0) &&
    row.last_pos < (before ?? Infinity)
  );
}

function streamsOf({ scope, kinds }: ListArgs): Stream[] {
  const { filter } = scope;
  const sources: Stream[] = [];
  const byKind = (where: string, params: (string | number)[]) => {
    if (kinds === undefined) sources.push({ where, params });
    else for (const kind of kinds) sources.push({ where: `${where}${where ? ' AND ' : ''}kind = ?`, params: [...params, kind] });
  };
  // Whoever sees every session sees its children among them.
  if (filter.spawnedBy !== undefined && filter.agents !== 'every') byKind('parent_key = ?', [filter.spawnedBy]);
  if (filter.agents === 'every') byKind('', []);
  else if ((filter.agents?.length ?? 0) > mostAgentStreams) {
    const allowed = new Set(filter.agents);
    const first = sources.length;
    byKind('', []);
    for (const stream of sources.slice(first)) stream.keep = (row) => allowed.has(row.agent);
  } else for (const agent of filter.agents ?? []) byKind('agent = ?', [agent]);
  return sources.flatMap((source) =>
    scope.levels.map((level) => ({
      ...source,
      where: `${source.where}${source.where ? ' AND ' : ''}level = ?`,
      params: [...source.params, levelRank(level)],
    })),
  );
}

/** Down to the floor, at first so many rows as are expected; `cutAt` above 0 when it stopped looking there. */
function* readStream(
  t: Reading,
  stream: Stream,
  args: ListArgs,
  floor: number,
  expected: number,
): Body<{ rows: SessionRow[]; cutAt: number }> {
  const rows: SessionRow[] = [];
  let size = Math.max(2, expected);
  let before = args.before ?? Number.MAX_SAFE_INTEGER;
  for (let scanned = 0; scanned < mostScanned;) {
    const page = yield* t.all<SessionRow>(
      `SELECT * FROM sessions WHERE current = 1 AND state = 'live' AND ${stream.where} AND last_pos < ? ORDER BY last_pos DESC LIMIT ?`,
      ...stream.params,
      before,
      size,
    );
    scanned += page.length;
    for (const row of page) {
      if (row.last_pos < floor) return { rows, cutAt: 0 };
      // Looked at one by one: positions only rise, but a clock can be set back.
      if (row.last_at < (args.activeSince ?? 0) || stream.keep?.(row) === false) continue;
      rows.push(row);
      if (rows.length > args.limit) return { rows, cutAt: 0 };
    }
    if (page.length < size) return { rows, cutAt: 0 };
    before = page.at(-1)!.last_pos;
    size = Math.min(2 * size, scanRows);
  }
  return { rows, cutAt: before };
}

export interface HistoryArgs {
  sessionPk: number;
  /** Entries strictly before this seq. */
  before?: number | undefined;
  limit: number;
  includeTools: boolean;
  /** Entries above this level are left out, also in a session that may be read. */
  level: number;
}

const pageRows = 50;
/** Characters of one page; the cursor leads on. */
const largestPage = 4_000_000;

/** The end of a transcript, newest first. Scans a bounded stretch, so that a page costs the same in any transcript. */
export const readHistory: ReadQuery<HistoryArgs, { rows: EntryRow[]; next: number | undefined }> = {
  name: 'history',
  *body(t, { sessionPk, before, limit, includeTools, level }) {
    const rows: EntryRow[] = [];
    let from = before ?? Number.MAX_SAFE_INTEGER;
    let chars = 0;
    for (let scanned = 0; scanned < 5_000;) {
      const page = yield* t.all<EntryRow>(
        'SELECT * FROM entries WHERE session_pk = ? AND seq < ? ORDER BY seq DESC LIMIT ?',
        sessionPk,
        from,
        pageRows,
      );
      scanned += page.length;
      for (const row of page) {
        if (rows.length === limit || chars > largestPage) return { rows, next: from };
        from = row.seq;
        if ((includeTools || row.role !== 'toolResult') && row.taint <= level) {
          rows.push(row);
          chars += row.text.length;
        }
      }
      if (page.length < pageRows) return { rows, next: undefined };
    }
    return { rows, next: from };
  },
};

/** Whether a caller may know of one session. */
export function isVisible(world: World, caller: Party, row: SessionRow): boolean {
  if (row.state !== 'live' || row.current !== 1) return false;
  return ask({ action: 'list', caller, target: partyOfRow(world, row) }, world).effect === 'ALLOW';
}
