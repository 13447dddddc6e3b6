// sessions_list: the sessions the caller may see, newest first.
import { z } from 'zod';
import { levelName, levelRank } from '../levels.ts';
import type { TranscriptMessage } from '../protocol/transcript.ts';
import { joinAll } from '../rules/taint.ts';
import { describe, type Described } from '../sessions/describe.ts';
import { historyPage } from '../sessions/history.ts';
import { sessionsPage, type PageFilter, type SessionsPage } from '../sessions/pages.ts';
import { toolSession } from '../sessions/views.ts';
import type { ReadQuery } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import { defineTool, lookOf, type ToolContext } from './define.ts';
import { largestAnswer, shorten, sizeOf } from './page.ts';

const mostRows = 200;

export const sessionsList = defineTool({
  name: 'sessions_list',
  description: 'List the sessions you can reach, most recently active first.',
  effect: 'pure',
  params: z.strictObject({
    kinds: z
      .array(z.enum(['main', 'group', 'cron', 'hook', 'node', 'other']))
      .optional()
      .describe('only these kinds'),
    limit: z.number().min(1).optional().describe('at most this many rows (default 50, at most 200)'),
    activeMinutes: z.number().min(1).optional().describe('only sessions active in the last N minutes'),
    messageLimit: z.number().min(0).optional().describe('include the last N messages of each (default 0, at most 20)'),
    cursor: z.string().max(64).optional().describe('nextCursor of the page before'),
    verbose: z.boolean().optional().describe('all fields, also those that are as usual'),
  }),
  async run(context, args) {
    const messageLimit = Math.min(Math.floor(args.messageLimit ?? 0), 20);
    const { page, described } = await context.store.read(
      describedPage(lookOf(context)),
      {
        kinds: args.kinds,
        activeSince: args.activeMinutes === undefined ? undefined : context.now - Math.floor(args.activeMinutes) * 60_000,
        before: context.cursors.pagePosition('sessions', args.cursor),
        limit: Math.min(Math.floor(args.limit ?? 50), mostRows),
      },
      context,
    );
    const sessions: Record<string, unknown>[] = [];
    const room = { bytes: largestAnswer };
    for (const one of described)
      sessions.push({
        ...toolSession(one, context.session.agent, args.verbose),
        ...(messageLimit > 0 ? await lastMessages(context, one.row, messageLimit, room) : {}),
      });
    const cut = room.bytes < 0 ? { truncated: true } : {};
    const more = page.next === undefined ? {} : { nextCursor: context.cursors.page('sessions', page.next) };
    return {
      value: { count: sessions.length, scope: page.scope.visibility, sessions, ...cut, ...more },
      taint: levelRank(joinAll(page.rows.map((row) => levelName(row.level)))),
    };
  },
});

const describedPage = (look: ReturnType<typeof lookOf>): ReadQuery<PageFilter, { page: SessionsPage; described: Described[] }> => ({
  name: 'sessions of a caller',
  *body(t, wish) {
    const page = yield* sessionsPage(look).body(t, wish);
    return { page, described: yield* describe(t, look, page.rows, { usualModel: true }) };
  },
});

/** The newest messages that still fit, as all rows share one answer. A row that lost some says so. */
async function lastMessages(
  context: ToolContext,
  row: SessionRow,
  limit: number,
  room: { bytes: number },
): Promise<{ messages: TranscriptMessage[]; truncated?: true }> {
  if (room.bytes < 0) return { messages: [], ...(row.next_seq > 1 ? { truncated: true } : {}) };
  const wish = { sessionPk: row.pk, limit, includeTools: false };
  const page = await context.store.read(historyPage(lookOf(context).viewer), wish, context);
  const messages: TranscriptMessage[] = [];
  for (const one of page.messages.toReversed()) {
    const message = shorten(one);
    room.bytes -= sizeOf(message);
    if (room.bytes < 0) return { messages, truncated: true };
    messages.unshift(message);
  }
  return { messages };
}
