// sessions_history: the end of one session's transcript, cut to what a model can take in.
import { z } from 'zod';
import { InterlaneError } from '../errors.ts';
import { levelRank } from '../levels.ts';
import type { TranscriptMessage } from '../protocol/transcript.ts';
import { joinAll } from '../rules/taint.ts';
import { requireLife } from '../sessions/find.ts';
import { historyPage, messageBound, pageBefore } from '../sessions/history.ts';
import { howManyFit } from '../sessions/page-bytes.ts';
import { alias, defineTool, lookOf, needed, oneOf } from './define.ts';
import { largestAnswer, longestBlock, shorten } from './page.ts';

export const sessionsHistory = defineTool({
  name: 'sessions_history',
  description: 'Read the latest messages of a session, oldest first.',
  effect: 'pure',
  params: z.strictObject({
    sessionKey: needed(z.string().min(1).max(4096), 'session key, session id, or "main"'),
    session_id: alias(z.string().min(1).max(4096)),
    life: z.number().int().min(1).optional().describe('an earlier life of your own session, before it was reset; 1 is the first'),
    limit: z.number().min(1).optional().describe('at most this many messages (default 50, at most 1000)'),
    includeTools: z.boolean().optional().describe('include tool results (default false)'),
    cursor: z.string().max(64).optional().describe('nextCursor of the page before, for older messages'),
  }),
  async run(context, args) {
    const look = lookOf(context);
    const asked = oneOf(args, 'sessionKey', 'session_id');
    if (asked === undefined || asked.trim() === '')
      throw new InterlaneError('INVALID_REQUEST', 'sessionKey is missing; give a session key, a session id or "main"');
    const session = await context.store.read(requireLife(look), { session: asked, life: args.life }, context);
    const page = await context.store.read(
      historyPage(look.viewer),
      {
        sessionPk: session.pk,
        before: pageBefore(context.cursors, session, args.cursor),
        limit: Math.min(Math.floor(args.limit ?? 50), 1000),
        includeTools: args.includeTools ?? false,
        chars: longestBlock + 1,
      },
      context,
    );
    const { messages, cutAt } = newestThatFit(page.messages);
    const cursor = cutAt ?? page.next;
    const life = session.current === 1 ? {} : { life: session.life };
    const flags = {
      ...(cutAt === undefined ? {} : { truncated: true }),
      ...(cursor === undefined ? {} : { nextCursor: context.cursors.place('older', session.id, cursor) }),
    };
    return {
      value: { sessionKey: session.key, ...life, messages, ...flags },
      taint: levelRank(joinAll(page.messages.map(({ taint }) => taint))),
    };
  },
});

/** A full answer loses its oldest messages, which the cursor leads to. */
function newestThatFit(all: TranscriptMessage[]): { messages: TranscriptMessage[]; cutAt?: number } {
  const newestFirst = all.toReversed().map(shorten);
  const fit = howManyFit(newestFirst, largestAnswer, messageBound);
  const messages = newestFirst.slice(0, fit).toReversed();
  return fit === newestFirst.length ? { messages } : { messages, cutAt: messages[0]!.seq };
}
