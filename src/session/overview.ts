// Sessions, transcripts and runs as an operator reads them: found, listed, described. Everything is cut to the level of its token.
import { readHistory, listSessions } from '../engine/lists.ts';
import { byUser, deliveryOf, overseen, settingsOf } from '../engine/policy.ts';
import type { ModelView } from '../engine/runner.ts';
import { InterlaneError, nearest } from '../errors.ts';
import { agentId as agentIdOf } from '../protocol/ids.ts';
import type { Level, SessionKind } from '../protocol/labels.ts';
import type { WireMessage, WireRun, WireSession } from '../protocol/method.ts';
import { isTerminal, type RunState } from '../protocol/run.ts';
import type { TranscriptMessage } from '../protocol/transcript.ts';
import { keyContext } from '../rules/agents.ts';
import { operatorScope, type World } from '../rules/decide.ts';
import { formatSessionKey, keyChatType, parseSessionKey, requireSessionKey } from '../rules/session-key.ts';
import type { Body, Reading, ReadQuery } from '../store/contract.ts';
import type { EntryRow, RunRow, SessionRow } from '../store/rows.ts';
import { levelName, levelRank, messageOf, usageOf } from '../store/views.ts';

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

/** What has no value is left out. */
function withoutGaps<T extends object>(all: { [K in keyof T]: T[K] | undefined }): T {
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined)) as T;
}

// Transcripts ---------------------------------------------------------------------------------------------------------

export interface HistoryWish {
  limit: number;
  /** Entries strictly before this seq. */
  before?: number | undefined;
  includeTools: boolean;
}

/** A page from the end of a transcript, oldest first; `next` leads to the page before it. */
export const historyPage: ReadQuery<
  View & { row: SessionRow; wish: HistoryWish },
  { messages: TranscriptMessage[]; next: number | undefined }
> = {
  name: 'history page',
  *body(t, { level, row, wish }) {
    const { rows, next } = yield* readHistory.body(t, { sessionPk: row.pk, ...wish, level: levelRank(level) });
    return { messages: yield* withRuns(t, rows.toReversed()), next };
  },
};

/** Characters of one page of a delta; the cursor leads on. */
const largestDelta = 4_000_000;
const deltaRows = 50;

/** What was appended after a seq, oldest first. */
export const historyAfter: ReadQuery<
  View & { row: SessionRow; after: number; limit: number },
  { messages: TranscriptMessage[]; more: boolean }
> = {
  name: 'history after',
  *body(t, { level, row, after, limit }) {
    const rows: EntryRow[] = [];
    let chars = 0;
    let more = true;
    for (let from = after; more && rows.length < limit && chars <= largestDelta;) {
      const page = yield* t.all<EntryRow>(
        'SELECT * FROM entries WHERE session_pk = ? AND seq > ? AND taint <= ? ORDER BY seq LIMIT ?',
        row.pk,
        from,
        levelRank(level),
        deltaRows + 1,
      );
      let taken = 0;
      for (const entry of page.slice(0, deltaRows)) {
        if (rows.length === limit || chars > largestDelta) break;
        rows.push(entry);
        chars += entry.text.length;
        from = entry.seq;
        taken++;
      }
      more = page.length > taken;
    }
    return { messages: yield* withRuns(t, rows), more };
  },
};

function* withRuns(t: Reading, rows: EntryRow[]): Body<TranscriptMessage[]> {
  const ids = new Map<number, string | undefined>();
  for (const { run_pk } of rows) {
    if (run_pk === null || ids.has(run_pk)) continue;
    ids.set(run_pk, (yield* t.one<{ id: string }>('SELECT id FROM runs WHERE pk = ?', run_pk))?.id);
  }
  return rows.map((row) => messageOf(row, row.run_pk === null ? undefined : ids.get(row.run_pk)));
}

/** A message in the protocol's shape: people's text as a string, an assistant's as parts. */
export function wireMessage(message: TranscriptMessage, maxChars = Infinity): WireMessage {
  const content = message.content.map((block) =>
    block.type === 'text' && block.text.length > maxChars
      ? { ...block, text: block.text.slice(0, maxChars), truncated: true as const }
      : block,
  );
  const [only] = content;
  const plain = message.role === 'user' && content.length === 1 && only!.type === 'text' && !only!.truncated;
  const wire: WireMessage = {
    role: message.role,
    content: plain ? (only as { text: string }).text : content,
    timestamp: message.timestamp,
    __openclaw: { id: message.id, seq: message.seq },
  };
  if (message.runId !== undefined) {
    wire.__openclaw.runId = message.runId;
    if (message.role === 'user') wire.__openclaw.idempotencyKey = `${message.runId}:user`;
  }
  if (message.provenance && message.provenance.kind !== 'user') wire.provenance = message.provenance;
  if (message.toolCallId !== undefined) wire.toolCallId = message.toolCallId;
  if (message.toolName !== undefined) wire.toolName = message.toolName;
  if (message.isError) wire.isError = true;
  if (message.aborted) wire.stopReason = 'aborted';
  if (message.taint !== 'PUBLIC') wire.taint = message.taint;
  return wire;
}

// Runs ----------------------------------------------------------------------------------------------------------------

export interface RunsWish {
  sessionPk?: number | undefined;
  states?: RunState[] | undefined;
  before?: number | undefined;
  limit: number;
}

export const runsPage: ReadQuery<View & { wish: RunsWish }, { runs: WireRun[]; next: number | undefined }> = {
  name: 'runs page',
  *body(t, { level, wish }) {
    const runs: WireRun[] = [];
    let before = wish.before ?? Number.MAX_SAFE_INTEGER;
    for (let scanned = 0; scanned < mostScanned;) {
      const columns = 'runs.*, sessions.key AS session_key, sessions.id AS session_id, sessions.level AS session_level';
      const page: (RunRow & { session_key: string; session_id: string; session_level: number })[] =
        wish.sessionPk === undefined
          ? yield* t.all(
              `SELECT ${columns} FROM runs JOIN sessions ON sessions.pk = runs.session_pk WHERE runs.pk < ? ORDER BY runs.pk DESC LIMIT ?`,
              before,
              pageRows,
            )
          : yield* t.all(
              `SELECT ${columns} FROM runs JOIN sessions ON sessions.pk = runs.session_pk WHERE runs.session_pk = ? AND runs.pk < ? ORDER BY runs.pk DESC LIMIT ?`,
              wish.sessionPk,
              before,
              pageRows,
            );
      scanned += page.length;
      for (const row of page) {
        if (runs.length === wish.limit) return { runs, next: before };
        before = row.pk;
        if (row.session_level > levelRank(level) || (wish.states && !wish.states.includes(row.state))) continue;
        runs.push(
          withoutGaps<WireRun>({
            runId: row.id,
            sessionKey: row.session_key,
            sessionId: row.session_id,
            state: row.state,
            class: row.class,
            queuedAt: row.queued_at,
            startedAt: row.started_at ?? undefined,
            endedAt: row.ended_at ?? undefined,
            error: row.error ?? undefined,
            errorCode: row.error_code ?? undefined,
            model: row.model ?? undefined,
            usage: usageOf(row),
          }),
        );
      }
      if (page.length < pageRows) return { runs, next: undefined };
    }
    return { runs, next: before };
  },
};

/** The run under way in a session's lane, if there is one. */
export const activeRun: ReadQuery<{ key: string }, string | undefined> = {
  name: 'active run',
  *body(t, { key }) {
    return (yield* t.one<{ id: string }>(`SELECT id FROM runs WHERE lane = ? AND state IN ('running', 'waiting')`, key))?.id;
  },
};

/** Whether an operator of this level may know a run, and it is one of the session, if one is named. */
export const knownRun: ReadQuery<{ runId: string; level: Level; key?: string | undefined }, boolean> = {
  name: 'known run',
  *body(t, { runId, level, key }) {
    const row = yield* t.one<{ level: number; key: string }>(
      'SELECT sessions.level, sessions.key FROM runs JOIN sessions ON sessions.pk = runs.session_pk WHERE runs.id = ?',
      runId,
    );
    return row !== undefined && row.level <= levelRank(level) && (key === undefined || key === row.key);
  },
};

/** How much is going on, by counting what is open; never all that ever was. */
export const counts: ReadQuery<
  object,
  { runs: Record<'queued' | 'running' | 'waiting', number>; deliveries: Record<'pending' | 'unknown' | 'dead', number> }
> = {
  name: 'counts',
  *body(t) {
    const count = function* (sql: string): Body<number> {
      return (yield* t.one<{ n: number }>(`SELECT count(*) AS n FROM (${sql} LIMIT 100000)`))!.n;
    };
    return {
      runs: {
        queued: yield* count(`SELECT 1 FROM runs WHERE state = 'queued'`),
        running: yield* count(`SELECT 1 FROM runs WHERE state = 'running'`),
        waiting: yield* count(`SELECT 1 FROM runs WHERE state IN ('running', 'waiting') AND state = 'waiting'`),
      },
      deliveries: {
        pending: yield* count(`SELECT 1 FROM deliveries WHERE state = 'pending'`),
        unknown: yield* count(`SELECT 1 FROM deliveries WHERE state = 'unknown'`),
        dead: yield* count(`SELECT 1 FROM deliveries WHERE state IN ('sent', 'failed', 'dead') AND state = 'dead'`),
      },
    };
  },
};
