// Sessions as an operator reads them: found, listed, described. Everything is cut to the level of its token.
import { nearest } from '../nearest.ts';
import { levelName, levelRank } from '../levels.ts';
import { withoutGaps } from '../gaps.ts';
import { listSessions } from '../engine/lists.ts';
import { byUser, deliveryOf, overseen, settingsOf } from '../engine/policy.ts';
import type { ModelView } from '../engine/runner.ts';
import { InterlaneError } from '../errors.ts';
import { agentId as agentIdOf } from '../protocol/ids.ts';
import type { Level, SessionKind } from '../protocol/labels.ts';
import type { WireSession } from '../protocol/result.ts';
import { isTerminal, type RunState } from '../protocol/run.ts';
import { keyContext } from '../rules/agents.ts';
import { operatorScope, type World } from '../rules/decide.ts';
import { formatSessionKey, keyChatType, parseSessionKey, requireSessionKey } from '../rules/session-key.ts';
import type { Body, Reading, ReadQuery } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import { usageOf } from '../store/views.ts';

/** What is looked through, and with what right. */
export interface View {
  world: World;
  level: Level;
}

/** What rows are shown with. */
export interface Shown {
  world: World;
  /** What a session is answered by. */
  modelOf(row: SessionRow): ModelView | undefined;
  /** Whether somebody takes the turns of a guest's session. */
  online(sessionKey: string): boolean;
  /** The file a transcript was written to, if it was. */
  transcriptPath(sessionId: string): string | undefined;
}

/** How a client names a session: a key in any spelling, or a session id. */
export interface Named {
  session: string;
  agentId?: string | undefined;
}

const previewLength = 200;

// Finding -------------------------------------------------------------------------------------------------------------

/** The store key that a client means, whether or not there is such a session. */
export function keyMeant(world: World, { session, agentId }: Named): string {
  const context = keyContext(world.agents, agentId === undefined ? world.agents.defaultId : agentIdOf(agentId));
  return formatSessionKey(requireSessionKey(session, context));
}

export const findSession: ReadQuery<View & { named: Named }, SessionRow | undefined> = {
  name: 'find session',
  *body(t, { world, level, named }) {
    const context = keyContext(world.agents, named.agentId === undefined ? world.agents.defaultId : agentIdOf(named.agentId));
    const parsed = parseSessionKey(named.session, context);
    let row = parsed.ok
      ? yield* t.one<SessionRow>('SELECT * FROM sessions WHERE key = ? AND current = 1', formatSessionKey(parsed.key))
      : undefined;
    row ??= yield* t.one<SessionRow>('SELECT * FROM sessions WHERE id = ? AND current = 1', named.session);
    if (!row && !parsed.ok && named.session.includes(':'))
      throw new InterlaneError(parsed.code, `session key ${JSON.stringify(named.session.slice(0, 200))} is not usable: ${parsed.why}`);
    return overseen(world, row, { level, sends: false });
  },
};

/** For a session that must be there: the error names keys that look alike, among those the caller may know. */
export const requireSession: ReadQuery<View & { named: Named }, SessionRow> = {
  name: 'require session',
  *body(t, args) {
    const row = yield* findSession.body(t, args);
    if (row) return row;
    const scope = operatorScope(args.level, { agents: 'every' });
    const known = (yield* listSessions.body(t, { scope, callerPk: 0, limit: 200 })).rows.map((one) => one.key);
    const parsed = parseSessionKey(args.named.session, keyContext(args.world.agents, args.named.agentId ?? args.world.agents.defaultId));
    const near = nearest(parsed.ok ? formatSessionKey(parsed.key) : args.named.session, known, 3);
    throw new InterlaneError(
      'SESSION_NOT_FOUND',
      `session ${JSON.stringify(args.named.session.slice(0, 200))} was not found${near.length > 0 ? `; did you mean ${near.join(' or ')}?` : '; see sessions.list'}`,
    );
  },
};

export const findByLabel: ReadQuery<View & { label: string; agentId?: string | undefined }, SessionRow[]> = {
  name: 'find by label',
  *body(t, { world, level, label, agentId }) {
    const rows =
      agentId === undefined
        ? yield* t.all<SessionRow>('SELECT * FROM sessions WHERE label = ? AND current = 1 LIMIT 50', label)
        : yield* t.all<SessionRow>('SELECT * FROM sessions WHERE agent = ? AND label = ? AND current = 1', agentIdOf(agentId), label);
    return known(world, level, rows);
  },
};

/** Sessions whose id starts with a few characters. */
export const findByShortId: ReadQuery<View & { shortId: string }, SessionRow[]> = {
  name: 'find by short id',
  *body(t, { world, level, shortId }) {
    const rows = yield* t.all<SessionRow>(
      'SELECT * FROM sessions WHERE id >= ? AND id < ? AND current = 1 LIMIT 10',
      shortId,
      `${shortId}\u{10ffff}`,
    );
    return known(world, level, rows);
  },
};

function known(world: World, level: Level, rows: SessionRow[]): SessionRow[] {
  return rows.filter((row) => overseen(world, row, { level, sends: false }) !== undefined);
}

// Listing -------------------------------------------------------------------------------------------------------------

export interface ListWish {
  limit: number;
  /** Rows to skip; for clients that count instead of keeping a cursor. */
  offset: number;
  before?: number | undefined;
  activeSince?: number | undefined;
  agentId?: string | undefined;
  spawnedBy?: string | undefined;
  label?: string | undefined;
  search?: string | undefined;
  kinds?: SessionKind[] | undefined;
  archived: boolean | 'all';
  preview: boolean;
}

/** A search reads at most this many rows and then gives a cursor, so that one request stays short. */
const mostScanned = 5_000;

export const listPage: ReadQuery<View & Shown & { wish: ListWish }, { sessions: WireSession[]; next: number | undefined; full: boolean }> =
  {
    name: 'list page',
    *body(t, { wish, ...view }) {
      const { world, level } = view;
      const wanted = wish.offset + wish.limit;
      const word = wish.search?.trim().toLowerCase() ?? '';
      const fits = (row: SessionRow) =>
        (wish.label === undefined || row.label === wish.label) &&
        (word === '' || row.key.includes(word) || (row.label?.toLowerCase().includes(word) ?? false));
      const rows: SessionRow[] = [];
      let before = wish.before;
      let more = true;
      for (let scanned = 0; more && rows.length <= wanted && scanned < wish.offset + mostScanned;) {
        const page: Page = yield* rawPage(t, { world, level, wish }, before);
        more = page.next !== undefined;
        scanned += page.rows.length + 1;
        before = page.next ?? before;
        rows.push(...page.rows.filter(fits));
      }
      const shown = rows.slice(wish.offset, wanted);
      const next = rows.length > wanted ? shown.at(-1)!.last_pos : more ? before : undefined;
      const sessions: WireSession[] = [];
      for (const row of shown) sessions.push(yield* sessionRow(t, view, row, wish.preview, levelRank(level)));
      return { sessions, next, full: rows.length > wanted };
    },
  };

const pageRows = 200;

interface Page {
  rows: SessionRow[];
  next: number | undefined;
}

function* rawPage(t: Reading, { wish, ...view }: View & { wish: ListWish }, before: number | undefined): Body<Page> {
  const { level } = view;
  const parent = wish.spawnedBy === undefined ? undefined : yield* findSession.body(t, { ...view, named: { session: wish.spawnedBy } });
  if (wish.spawnedBy !== undefined && !parent) return { rows: [], next: undefined };
  const live = wish.archived === true ? { rows: [], next: undefined } : yield* livePage(t, level, wish, parent, before);
  if (wish.archived === false) return live;
  // Archived ones have an index of their own; together they are one list.
  const archived = yield* t.all<SessionRow>(
    `SELECT * FROM sessions INDEXED BY sessions_archived WHERE state = 'archived' AND current = 1 AND level <= ? AND last_pos < ?
     AND last_at >= ? AND (? IS NULL OR agent = ?) AND (? IS NULL OR parent_key = ?)
     AND (? IS NULL OR kind IN (SELECT value FROM json_each(?))) ORDER BY last_pos DESC LIMIT ?`,
    levelRank(level),
    before ?? Number.MAX_SAFE_INTEGER,
    wish.activeSince ?? 0,
    ...twice(wish.agentId === undefined ? null : agentIdOf(wish.agentId)),
    ...twice(parent?.key ?? null),
    ...twice(wish.kinds ? JSON.stringify(wish.kinds) : null),
    pageRows,
  );
  const ends = [live.next, archived.length === pageRows ? archived.at(-1)!.last_pos : undefined].filter((end) => end !== undefined);
  const next = ends.length === 0 ? undefined : Math.max(...ends);
  const rows = [...live.rows, ...archived]
    .filter((row) => row.last_pos >= (next ?? 0))
    .toSorted((one, other) => other.last_pos - one.last_pos);
  return { rows, next };
}

function* livePage(t: Reading, level: Level, wish: ListWish, parent: SessionRow | undefined, before: number | undefined): Body<Page> {
  const filter = parent
    ? { spawnedBy: parent.key }
    : { agents: wish.agentId === undefined ? ('every' as const) : [agentIdOf(wish.agentId)] };
  const { rows, next } = yield* listSessions.body(t, {
    scope: operatorScope(level, filter),
    callerPk: 0,
    kinds: wish.kinds,
    activeSince: wish.activeSince,
    before,
    limit: pageRows,
  });
  return { rows, next };
}

const twice = <T>(value: T): [T, T] => [value, value];

export const describeSession: ReadQuery<View & Shown & { row: SessionRow; preview: boolean }, WireSession> = {
  name: 'describe session',
  *body(t, { row, preview, ...view }) {
    return yield* sessionRow(t, view, row, preview, levelRank(view.level));
  },
};

/** The row of the session with this id as it is now, for events; undefined when it is gone. */
export const currentRow: ReadQuery<Shown & { sessionId: string }, { row: WireSession; level: Level } | undefined> = {
  name: 'current row',
  *body(t, { sessionId, ...view }) {
    const row = yield* t.one<SessionRow>('SELECT * FROM sessions WHERE id = ?', sessionId);
    return row && { row: yield* sessionRow(t, view, row, true), level: levelName(row.level) };
  },
};

/** What of that row an event of a message needs. */
export const currentUse: ReadQuery<{ sessionId: string }, { level: Level; totalTokens: number | undefined } | undefined> = {
  name: 'current use',
  *body(t, { sessionId }) {
    const row = yield* t.one<Pick<SessionRow, 'level' | 'total_tokens'>>(
      'SELECT level, total_tokens FROM sessions WHERE id = ?',
      sessionId,
    );
    return row && { level: levelName(row.level), totalTokens: row.total_tokens || undefined };
  },
};

const ended = { ok: 'done', error: 'failed', timeout: 'timeout', aborted: 'killed' } as const;

/** `level`: of who looks. Without it the row is for everyone who may know the session. */
function* sessionRow(
  t: Reading,
  { world, modelOf, online, transcriptPath }: Shown,
  row: SessionRow,
  preview: boolean,
  level = row.level,
): Body<WireSession> {
  const key = requireSessionKey(row.key, keyContext(world.agents, row.agent));
  const settings = settingsOf(row);
  const delivery = deliveryOf(row);
  const active = yield* t.one<{ id: string }>(`SELECT id FROM runs WHERE lane = ? AND state IN ('running', 'waiting')`, row.key);
  const last = yield* t.one<{ state: RunState }>('SELECT state FROM runs WHERE session_pk = ? ORDER BY pk DESC LIMIT 1', row.pk);
  const waiting = yield* t.one<{ n: number }>(
    `SELECT count(*) AS n FROM (SELECT 1 FROM runs WHERE lane = ? AND state = 'queued' LIMIT 1000)`,
    row.key,
  );
  const parent =
    row.parent_key === null
      ? undefined
      : yield* t.one<{ level: number }>('SELECT level FROM sessions WHERE key = ? AND current = 1', row.parent_key);
  const newest = preview
    ? yield* t.one<{ text: string }>(
        'SELECT substr(text, 1, ?) AS text FROM entries WHERE session_pk = ? ORDER BY seq DESC LIMIT 1',
        previewLength,
        row.pk,
      )
    : undefined;
  const chat = keyChatType(key);
  return withoutGaps<WireSession>({
    key: row.key,
    kind: key.shape === 'global' ? 'global' : chat === 'group' || chat === 'channel' ? 'group' : 'direct',
    sessionKind: row.kind as SessionKind,
    sessionId: row.id,
    agentId: row.agent,
    updatedAt: row.last_at,
    createdAt: row.created_at,
    isMain: row.kind === 'main' || undefined,
    runtime: key.shape === 'guest' ? 'guest' : undefined,
    online: key.shape === 'guest' ? online(row.key) : undefined,
    see: settings.see,
    archived: row.state === 'archived' || undefined,
    label: row.label ?? undefined,
    displayName: settings.displayName,
    status: active ? 'running' : last && (isTerminal(last.state) ? ended[last.state] : 'queued'),
    hasActiveRun: active !== undefined || undefined,
    activeRunIds: active && [active.id],
    queuedRuns: waiting!.n || undefined,
    // A parent that is gone is still named; one above the caller's level is not.
    spawnedBy: row.parent_key !== null && (parent?.level ?? 0) <= level ? row.parent_key : undefined,
    totalTokens: row.total_tokens || undefined,
    messageCount: row.next_seq - 1,
    contextTokens: undefined,
    usage: usageOf(row),
    model: settings.model,
    modelSource: byUser(settings.model),
    thinkingLevel: settings.thinkingLevel,
    thinkingLevelSource: byUser(settings.thinkingLevel),
    thinkingNote: undefined,
    ...modelOf(row),
    verboseLevel: settings.verboseLevel,
    verboseLevelSource: byUser(settings.verboseLevel),
    authProfile: settings.authProfile,
    authProfileSource: byUser(settings.authProfile),
    sendPolicy: settings.sendPolicy,
    systemSent: row.system_sent === 1 || undefined,
    abortedLastRun: row.aborted_last === 1 || undefined,
    lastChannel: delivery?.channel,
    lastTo: delivery?.to,
    deliveryContext: delivery,
    transcriptPath: transcriptPath(row.id),
    taint: row.taint === 0 ? undefined : levelName(row.taint),
    lastMessagePreview: newest?.text,
  });
}
