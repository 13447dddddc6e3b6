// `interlane sessions`, `history` and `runs`: lists from a running gateway.
import type { Client } from '../client/client.ts';
import { isSaid } from '../client/messages.ts';
import { InterlaneError } from '../errors.ts';
import { toPeer } from '../protocol/compat/openclaw.ts';
import type { Params, Results } from '../protocol/operations/all.ts';
import type { WireMessage, WireRun, WireSession } from '../protocol/result.ts';
import { messageLine } from './messages.ts';
import { sessionMeant } from './session-meant.ts';
import { answer, moment, oneLine, paint, span, table, type Terminal } from './terminal.ts';

export interface SessionsFlags {
  json?: boolean;
  keys?: boolean;
  tree?: boolean;
  archived?: boolean;
  agent?: string;
  kind?: NonNullable<NonNullable<Params<'sessions.list'>>['kinds']>;
  /** Milliseconds. */
  active?: number;
  search?: string;
  label?: string;
  pinned?: boolean;
  /** The session whose lives are listed. */
  lives?: string;
  limit: number;
}

const largestPage = 1_000;

export async function sessions(terminal: Terminal, client: Client, flags: SessionsFlags): Promise<void> {
  if (flags.lives !== undefined) return lives(terminal, client, flags.lives, flags);
  const wish = {
    ...(flags.agent === undefined ? {} : { agentId: flags.agent }),
    ...(flags.kind === undefined ? {} : { kinds: flags.kind }),
    ...(flags.active === undefined ? {} : { activeMinutes: Math.ceil(flags.active / 60_000) }),
    ...(flags.search === undefined ? {} : { search: flags.search }),
    ...(flags.label === undefined ? {} : { label: flags.label }),
    ...(flags.archived ? { archived: true } : {}),
    ...(flags.pinned ? { pinned: true } : {}),
  };
  const found: WireSession[] = [];
  let page: Results['sessions.list'] | undefined;
  do {
    const limit = Math.min(flags.limit - found.length, largestPage);
    const from: { cursor?: string } = page?.nextCursor === undefined ? {} : { cursor: page.nextCursor };
    page = await client.call('sessions.list', { ...wish, ...from, limit });
    found.push(...page.sessions);
  } while (page.nextCursor !== undefined && found.length < flags.limit);
  const hasMore = page.nextCursor !== undefined;
  if (flags.keys) {
    for (const { key } of found) terminal.stdout.write(`${oneLine(key)}\n`);
    return;
  }
  answer(terminal, flags.json, { count: found.length, hasMore, sessions: found }, () => {
    if (found.length === 0) return terminal.stdout.isTTY ? 'No sessions.\n' : '';
    const more =
      hasMore && terminal.stdout.isTTY ? paint(terminal, 'gray', `There are more; see them with --limit ${flags.limit * 4}.\n`) : '';
    return (flags.tree ? tree(terminal, found) : list(terminal, found)) + more;
  });
}

export interface NewFlags {
  json?: boolean;
  agent?: string;
  label?: string;
}

/** A key that exists is refused, so that two people do not take one session for two. */
export async function newSession(terminal: Terminal, client: Client, key: string | undefined, flags: NewFlags): Promise<void> {
  const made = await client.call('sessions.create', {
    ...(key === undefined ? {} : { key }),
    ...(flags.agent === undefined ? {} : { agentId: flags.agent }),
    ...(flags.label === undefined ? {} : { label: flags.label }),
  });
  if (!made.created)
    throw new InterlaneError('INVALID_REQUEST', `session ${made.key} exists already; to read it: interlane history ${made.key}`);
  answer(terminal, flags.json, { key: made.key, sessionId: made.sessionId }, () => `${oneLine(made.key)}\n`);
}

/** The lives of one session, newest first. */
async function lives(terminal: Terminal, client: Client, session: string, { json, limit }: SessionsFlags): Promise<void> {
  const key = await sessionMeant(terminal, client, session);
  const page = await client.call('sessions.lives', { key, limit: Math.min(limit, largestPage) });
  answer(terminal, json, page, () =>
    table(
      terminal,
      ['LIFE', 'SESSION ID', 'STARTED', 'ACTIVE', 'MESSAGES', 'USER'],
      page.lives.map(({ life, sessionId, createdAt, updatedAt, messageCount, user }) => [
        String(life),
        sessionId,
        moment(terminal, createdAt),
        moment(terminal, updatedAt),
        String(messageCount),
        user ?? '',
      ]),
    ),
  );
}

const list = (terminal: Terminal, found: WireSession[]) =>
  table(
    terminal,
    ['SESSION', 'KIND', 'ACTIVE', 'MESSAGES', 'STATE', 'LABEL'],
    found.map((one) => [one.key, one.sessionKind, moment(terminal, one.updatedAt), String(one.messageCount), stateOf(one), nameOf(one)]),
  );

const stateOf = ({ archived, orphaned, status }: WireSession) => (archived ? 'archived' : orphaned ? 'orphaned' : (status ?? 'idle'));
const nameOf = ({ label, displayName }: WireSession) => label ?? displayName ?? '';

/** Each session under the one that spawned it. A session whose parent is not listed is a root. */
function tree(terminal: Terminal, found: WireSession[]): string {
  const listed = new Set(found.map(({ key }) => key));
  const children = Map.groupBy(found, ({ spawnedBy }) => (spawnedBy !== undefined && listed.has(spawnedBy) ? spawnedBy : ''));
  const lines: string[] = [];
  const draw = (parent: string, before: string) => {
    const below = children.get(parent) ?? [];
    for (const [index, one] of below.entries()) {
      const last = index === below.length - 1;
      const branch = parent === '' ? '' : last ? '└─ ' : '├─ ';
      const name = nameOf(one);
      const about = `${stateOf(one)}, ${moment(terminal, one.updatedAt)}${name === '' ? '' : `, ${oneLine(name)}`}`;
      lines.push(`${before}${branch}${oneLine(one.key)}  ${paint(terminal, 'gray', `(${about})`)}`);
      draw(one.key, parent === '' ? '' : `${before}${last ? '   ' : '│  '}`);
    }
  };
  draw('', '');
  return `${lines.join('\n')}\n`;
}

export interface HistoryFlags {
  json?: boolean;
  tools?: boolean;
  life?: number;
  limit: number;
}

/** The last messages, oldest first. Without tools, a page of nothing but tools leads to the page before it. */
export async function history(terminal: Terminal, client: Client, session: string, flags: HistoryFlags): Promise<void> {
  const found: WireMessage[] = [];
  const named = await sessionMeant(terminal, client, session);
  let sessionKey = named;
  let offset: number | undefined;
  for (;;) {
    const limit = Math.min(Math.max(flags.limit - found.length, 50), largestPage);
    const page = await client.call('chat.history', {
      sessionKey: named,
      limit,
      ...(flags.life === undefined ? {} : { life: flags.life }),
      ...(offset === undefined ? {} : { offset }),
    });
    if (!('sessionKey' in page)) break;
    ({ sessionKey } = page);
    found.unshift(...page.messages.filter((message) => flags.tools || isSaid(message)));
    offset = page.nextOffset;
    if (offset === undefined || found.length >= flags.limit) break;
  }
  const messages = found.slice(-flags.limit);
  answer(terminal, flags.json, toPeer({ sessionKey, messages }), () =>
    messages.length === 0 && terminal.stdout.isTTY
      ? 'No messages.\n'
      : messages.map((message) => messageLine(terminal, message, { tools: flags.tools === true })).join(''),
  );
}

export interface RunsFlags {
  json?: boolean;
  state?: NonNullable<NonNullable<Params<'runs.list'>>['states']>;
  limit: number;
}

export async function runs(terminal: Terminal, client: Client, session: string | undefined, flags: RunsFlags): Promise<void> {
  const key = session === undefined ? undefined : await sessionMeant(terminal, client, session);
  const found = await client.call('runs.list', {
    ...(key === undefined ? {} : { key }),
    ...(flags.state === undefined ? {} : { states: flags.state }),
    limit: flags.limit,
  });
  answer(terminal, flags.json, found, () =>
    found.runs.length === 0 && terminal.stdout.isTTY
      ? 'No runs.\n'
      : table(
          terminal,
          ['RUN', 'SESSION', 'STATE', 'QUEUED', 'TOOK', 'ERROR'],
          found.runs.map((run) => [run.runId, run.sessionKey, run.state, moment(terminal, run.queuedAt), took(run), run.error ?? '']),
        ),
  );
}

const took = ({ startedAt, endedAt }: WireRun) => {
  if (startedAt === undefined || endedAt === undefined) return '';
  const ms = endedAt - startedAt;
  return ms < 10_000 ? `${ms}ms` : span(ms);
};
