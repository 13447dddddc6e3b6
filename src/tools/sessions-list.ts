// sessions_list: the sessions the caller may see, newest first.
import { z } from 'zod';
import { listSessions, readHistory, scopeOfCaller } from '../engine/lists.ts';
import { deliveryOf, settingsOf } from '../engine/policy.ts';
import { keyContext } from '../rules/agents.ts';
import { requireSessionKey, sessionChannel } from '../rules/session-key.ts';
import type { SessionRow } from '../store/rows.ts';
import { levelRank, messageOf } from '../store/views.ts';
import type { TranscriptMessage } from '../protocol/transcript.ts';
import { defineTool, type ToolContext } from './define.ts';
import { largestAnswer, readCursor, shorten, sizeOf, writeCursor } from './page.ts';

const mostRows = 200;

export const sessionsList = defineTool({
  name: 'sessions_list',
  description: 'List the sessions you can reach, most recently active first.',
  effect: 'pure',
  params: z.strictObject({
    kinds: z
      .array(z.enum(['main', 'group', 'cron', 'hook', 'node', 'other']))
      .min(1)
      .optional()
      .describe('only these kinds'),
    limit: z.number().min(1).optional().describe('at most this many rows (default 50, at most 200)'),
    activeMinutes: z.number().min(1).optional().describe('only sessions active in the last N minutes'),
    messageLimit: z.number().min(0).optional().describe('include the last N messages of each (default 0, at most 20)'),
    cursor: z.string().max(64).optional().describe('nextCursor of the page before'),
  }),
  async run(context, args) {
    const limit = Math.min(Math.floor(args.limit ?? 50), mostRows);
    const messageLimit = Math.min(Math.floor(args.messageLimit ?? 0), 20);
    const scope = await context.store.read(scopeOfCaller, context);
    const before = readCursor(args.cursor);
    const activeSince = args.activeMinutes === undefined ? undefined : context.now - Math.floor(args.activeMinutes) * 60_000;
    const { rows: page, next } = await context.store.read(listSessions, {
      scope,
      callerPk: context.session.pk,
      kinds: args.kinds,
      activeSince,
      before,
      limit,
    });
    const sessions: Record<string, unknown>[] = [];
    const room = { bytes: largestAnswer };
    for (const row of page)
      sessions.push({
        ...sessionView(context, row),
        ...(messageLimit > 0 ? { messages: await lastMessages(context, row, messageLimit, room) } : {}),
      });
    const cut = room.bytes < 0 ? { truncated: true } : {};
    const more = next === undefined ? {} : { nextCursor: writeCursor(next) };
    return {
      value: { count: sessions.length, scope: scope.visibility, sessions, ...cut, ...more },
      taint: Math.max(0, ...page.map((row) => row.level)),
    };
  },
});

/** A row as tools show it: every field of the contract that has a value. */
export function sessionView(
  { world, session, online }: Pick<ToolContext, 'world' | 'session' | 'online'>,
  row: SessionRow,
): Record<string, unknown> {
  const key = requireSessionKey(row.key, keyContext(world.agents, row.agent));
  const settings = settingsOf(row);
  const delivery = deliveryOf(row);
  const all = {
    // The one shared chat is its owner's main session; others reach it by that name in full.
    key: key.shape !== 'global' ? row.key : session.agent === row.agent ? 'main' : `agent:${row.agent}:main`,
    kind: row.kind,
    ...(key.shape === 'guest' ? { runtime: 'guest', online: online(row.key) } : {}),
    channel: sessionChannel(key, { channel: settings.channel, lastChannel: delivery?.channel }),
    label: row.label,
    displayName: settings.displayName,
    updatedAt: row.last_at,
    sessionId: row.id,
    model: settings.model,
    totalTokens: row.total_tokens || undefined,
    thinkingLevel: settings.thinkingLevel,
    verboseLevel: settings.verboseLevel,
    systemSent: row.system_sent === 1 || undefined,
    abortedLastRun: row.aborted_last === 1 || undefined,
    sendPolicy: settings.sendPolicy,
    lastChannel: delivery?.channel,
    lastTo: delivery?.to,
    deliveryContext: delivery,
  };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined && value !== null));
}

/** The newest that still fit; all rows share one answer. */
async function lastMessages(context: ToolContext, row: SessionRow, limit: number, room: { bytes: number }): Promise<TranscriptMessage[]> {
  if (room.bytes < 0) return [];
  const { rows } = await context.store.read(readHistory, {
    sessionPk: row.pk,
    limit,
    includeTools: false,
    level: levelRank(context.caller.facts.taint),
  });
  const messages: TranscriptMessage[] = [];
  for (const entry of rows) {
    const message = shorten(messageOf(entry, undefined));
    room.bytes -= sizeOf(message);
    if (room.bytes < 0) break;
    messages.unshift(message);
  }
  return messages;
}
