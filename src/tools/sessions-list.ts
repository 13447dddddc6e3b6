// sessions_list: the sessions the caller may see, newest first.
import { z } from 'zod';
import { levelRank } from '../levels.ts';
import { readCursor, writeCursor } from '../cursor.ts';
import { listSessions, readHistory, scopeOfCaller } from '../engine/lists.ts';
import { deliveryOf, settingsOf } from '../engine/policy.ts';
import { keyContext } from '../rules/agents.ts';
import { requireSessionKey, sessionChannel } from '../rules/session-key.ts';
import type { SessionRow } from '../store/rows.ts';
import { messageOf } from '../store/views.ts';
import type { TranscriptMessage } from '../protocol/transcript.ts';
import { defineTool, type ToolContext } from './define.ts';
import { largestAnswer, shorten, sizeOf } from './page.ts';

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
    verbose: z.boolean().optional().describe('all fields, also those that are as usual'),
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
        ...sessionView(context, row, args.verbose),
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

/** A row as tools show it: every field of the contract that has a value of its own; all of them when `verbose`. */
export function sessionView(
  { world, session, engine, transcriptPath, online }: Pick<ToolContext, 'world' | 'session' | 'engine' | 'transcriptPath' | 'online'>,
  row: SessionRow,
  verbose = false,
): Record<string, unknown> {
  const key = requireSessionKey(row.key, keyContext(world.agents, row.agent));
  const { channel, displayName, model, thinkingLevel, verboseLevel = 'off', sendPolicy } = settingsOf(row);
  const delivery = deliveryOf(row);
  const own = engine.modelOf(row);
  const usual = engine.modelOf({ ...row, settings: '{}' });
  /** A value that is as usual goes without saying. */
  const unless = <V>(value: V, as: V) => (verbose || value !== as ? value : undefined);
  const all = {
    // The one shared chat is its owner's main session; others reach it by that name in full.
    key: key.shape !== 'global' ? row.key : session.agent === row.agent ? 'main' : `agent:${row.agent}:main`,
    kind: row.kind,
    ...(key.shape === 'guest' ? { runtime: 'guest', online: online(row.key) } : {}),
    channel: sessionChannel(key, { channel, lastChannel: delivery?.channel }),
    label: row.label,
    displayName,
    updatedAt: row.last_at,
    sessionId: row.id,
    model: unless(own?.model ?? model, usual?.model),
    contextTokens: unless(own?.contextTokens, usual?.contextTokens),
    totalTokens: unless(row.total_tokens, 0),
    thinkingLevel: unless(own?.thinkingLevel ?? thinkingLevel, usual?.thinkingLevel),
    verboseLevel: unless(verboseLevel, 'off'),
    systemSent: unless(row.system_sent === 1, false),
    abortedLastRun: unless(row.aborted_last === 1, false),
    sendPolicy,
    lastChannel: delivery?.channel,
    lastTo: delivery?.to,
    // Where it says no more than the two before it, it is left out.
    deliveryContext: verbose || delivery?.threadId !== undefined || isOther(delivery?.accountId) ? delivery : undefined,
    transcriptPath: transcriptPath(row.id),
  };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined && value !== null));
}

const isOther = (account: string | undefined) => account !== undefined && account !== 'default';

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
