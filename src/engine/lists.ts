// Reading sessions and transcripts for one caller: keyset pages over indexes, cut to what the caller may see.
import type { SessionKind } from '../protocol/labels.ts';
import type { ListScope, Party, World } from '../rules/decide.ts';
import type { Body, Reading, ReadQuery } from '../store/contract.ts';
import type { EntryRow, SessionRow } from '../store/rows.ts';
import { levelRank } from '../store/views.ts';
import { ask, loadParty } from './policy.ts';

export interface ListArgs {
  scope: ListScope;
  /** The caller's own row; a tree hangs from it. */
  callerPk: number;
  kinds?: SessionKind[] | undefined;
  activeSince?: number | undefined;
  /** Feed position to go on from: rows strictly before it. */
  before?: number | undefined;
  limit: number;
}

/** Past this many agents one pass over all sessions is cheaper than a stream for each. */
const mostAgentStreams = 64;

interface Stream {
  where: string;
  params: (string | number)[];
  keep?: (row: SessionRow) => boolean;
}

/** Newest first by feed position. Each stream is one index range; together they hold exactly what the scope allows. */
export const listSessions: ReadQuery<ListArgs, SessionRow[]> = {
  name: 'list sessions',
  *body(t, args) {
    const found = new Map<number, SessionRow>();
    for (const stream of streamsOf(args)) for (const row of yield* readStream(t, stream, args)) found.set(row.pk, row);
    const own = yield* t.one<SessionRow>(`SELECT * FROM sessions WHERE pk = ? AND current = 1 AND state = 'live'`, args.callerPk);
    if (own && fits(own, args)) found.set(own.pk, own);
    return [...found.values()].toSorted((a, b) => b.last_pos - a.last_pos).slice(0, args.limit);
  },
};

function fits(row: SessionRow, { kinds, activeSince, before }: ListArgs): boolean {
  return (
    (kinds === undefined || kinds.includes(row.kind as SessionKind)) &&
    row.last_at >= (activeSince ?? 0) &&
    row.last_pos < (before ?? Infinity)
  );
}

function streamsOf({ scope, callerPk, kinds }: ListArgs): Stream[] {
  const { filter } = scope;
  const sources: Stream[] = [];
  const byKind = (where: string, params: (string | number)[]) => {
    if (kinds === undefined) sources.push({ where, params });
    else for (const kind of kinds) sources.push({ where: `${where}${where ? ' AND ' : ''}kind = ?`, params: [...params, kind] });
  };
  // Whoever sees every session sees its children among them.
  if (filter.spawnedBy !== undefined && filter.agents !== 'every') byKind('parent_pk = ?', [callerPk]);
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

function* readStream(t: Reading, stream: Stream, args: ListArgs): Body<SessionRow[]> {
  const rows: SessionRow[] = [];
  let before = args.before ?? Number.MAX_SAFE_INTEGER;
  for (;;) {
    const page = yield* t.all<SessionRow>(
      `SELECT * FROM sessions WHERE current = 1 AND state = 'live' AND ${stream.where} AND last_pos < ? ORDER BY last_pos DESC LIMIT ?`,
      ...stream.params,
      before,
      args.limit,
    );
    for (const row of page) {
      if (row.last_at < (args.activeSince ?? 0)) return rows;
      if (stream.keep && !stream.keep(row)) continue;
      rows.push(row);
      if (rows.length === args.limit) return rows;
    }
    if (page.length < args.limit) return rows;
    before = page.at(-1)!.last_pos;
  }
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

/** One session with the caller's right to see it, decided on the rows of one read. */
export function* visibleSession(t: Reading, world: World, caller: Party, row: SessionRow | undefined): Body<SessionRow[]> {
  if (!row || row.state !== 'live' || row.current !== 1) return [];
  const target = yield* loadParty(t, world, row);
  return ask({ action: 'list', caller, target }, world).effect === 'ALLOW' ? [row] : [];
}
