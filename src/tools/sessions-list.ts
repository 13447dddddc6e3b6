// sessions_list: the sessions the caller may see, newest first.
import { z } from 'zod';
import { levelName, levelRank } from '../levels.ts';
import type { TranscriptMessage } from '../protocol/transcript.ts';
import { joinAll } from '../rules/taint.ts';
import { describe, type Described } from '../sessions/describe.ts';
import { historyPage } from '../sessions/history.ts';
import { howManyFit } from '../sessions/page-bytes.ts';
import { rowsOfPage, sessionsPage, type PageFilter, type SessionsPage } from '../sessions/pages.ts';
import { toolSession } from '../sessions/views.ts';
import type { ReadQuery } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import { defineTool, lookOf } from './define.ts';
import { largestAnswer, longestBlock, shorten, sizeOf } from './page.ts';

const mostRows = 200;
/** Rows that are described together. */
const slice = 64;

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
    const { page, listed } = await context.store.read(
      describedPage(lookOf(context)),
      {
        kinds: args.kinds,
        activeSince: args.activeMinutes === undefined ? undefined : context.now - Math.floor(args.activeMinutes) * 60_000,
        before: context.cursors.pagePosition('sessions', args.cursor),
        limit: Math.min(Math.floor(args.limit ?? 50), mostRows),
        messageLimit,
      },
      context,
    );
    const rows = listed.map(({ described }) => toolSession(described, args.verbose));
    const fit = howManyFit(rows, largestAnswer, () => rowBound);
    const room = { bytes: largestAnswer - (messageLimit > 0 ? rows.slice(0, fit).reduce((sum, row) => sum + sizeOf(row), 0) : 0) };
    const sessions = rows.slice(0, fit).map((row, index) => (messageLimit > 0 ? { ...row, ...newestThatFit(listed[index]!, room) } : row));
    const cut = room.bytes < 0 || fit < rows.length ? { truncated: true } : {};
    const next = fit < rows.length ? page.rows[fit - 1]!.last_pos : page.next;
    const more = next === undefined ? {} : { nextCursor: context.cursors.page('sessions', next) };
    return {
      value: { count: sessions.length, scope: page.scope.visibility, sessions, ...cut, ...more },
      taint: levelRank(joinAll(page.rows.map((row) => levelName(row.level)))),
    };
  },
});

/** A usual row has 200 bytes; more than this in all, and rows are measured. */
const rowBound = 1024;
/** Sessions whose messages are read together. */
const together = 8;

interface Listed {
  described: Described;
  /** Oldest first. */
  messages: TranscriptMessage[];
}

const describedPage = (
  look: ReturnType<typeof lookOf>,
): ReadQuery<PageFilter & { messageLimit: number }, { page: SessionsPage; listed: Listed[] }> => ({
  name: 'sessions of a caller',
  rows: ({ messageLimit, ...filter }) => rowsOfPage(filter) + 2 * filter.limit * messageLimit,
  *body(t, { messageLimit, ...wish }) {
    const page = yield* sessionsPage(look).body(t, wish);
    const described: Described[] = [];
    for (let from = 0; from < page.rows.length; from += slice)
      described.push(...(yield* describe(t, look, page.rows.slice(from, from + slice), { usualModel: true })));
    if (messageLimit === 0) return { page, listed: described.map((one) => ({ described: one, messages: [] })) };
    const listed: Listed[] = [];
    for (let from = 0; from < described.length; from += together) {
      const some = described.slice(from, from + together);
      const wishOf = (row: SessionRow) => ({
        sessionPk: row.pk,
        limit: messageLimit,
        includeTools: false,
        chars: longestBlock + 1,
        bytes: largestAnswer,
      });
      const pages = yield* t.together(...some.map(({ row }) => historyPage(look.viewer).body(t, wishOf(row))));
      for (const [index, one] of some.entries()) listed.push({ described: one, messages: pages[index]!.messages.map(shorten) });
    }
    return { page, listed };
  },
});

/** The newest messages that still fit, as all rows share one answer. A row that lost some says so. */
function newestThatFit({ described, messages: all }: Listed, room: { bytes: number }): { messages: TranscriptMessage[]; truncated?: true } {
  if (room.bytes < 0) return { messages: [], ...(described.row.next_seq > 1 ? { truncated: true } : {}) };
  const messages: TranscriptMessage[] = [];
  for (const message of all.toReversed()) {
    room.bytes -= sizeOf(message);
    if (room.bytes < 0) return { messages, truncated: true };
    messages.unshift(message);
  }
  return { messages };
}
