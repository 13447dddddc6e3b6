// sessions_history: the end of one session's transcript, cut to what a model can take in.
import { z } from 'zod';
import { levelRank } from '../levels.ts';
import { readCursor, writeCursor } from '../cursor.ts';
import { readHistory } from '../engine/lists.ts';
import type { TranscriptMessage } from '../protocol/transcript.ts';
import { messageOf } from '../store/views.ts';
import { alias, defineTool, needed } from './define.ts';
import { largestAnswer, shorten, sizeOf } from './page.ts';
import { oneOf, resolveSession } from './resolve.ts';

export const sessionsHistory = defineTool({
  name: 'sessions_history',
  description: 'Read the latest messages of a session, oldest first.',
  effect: 'pure',
  params: z.strictObject({
    sessionKey: needed(z.string().min(1).max(4096), 'session key, session id, or "main"'),
    session_id: alias(z.string().min(1).max(4096)),
    limit: z.number().min(1).optional().describe('at most this many messages (default 50, at most 1000)'),
    includeTools: z.boolean().optional().describe('include tool results (default false)'),
    cursor: z.string().max(64).optional().describe('nextCursor of the page before, for older messages'),
  }),
  async run(context, args) {
    const session = await resolveSession(context, { session: oneOf(args, 'sessionKey', 'session_id') });
    const limit = Math.min(Math.floor(args.limit ?? 50), 1000);
    const before = readCursor(args.cursor);
    const { rows, next } = await context.store.read(readHistory, {
      sessionPk: session.pk,
      before,
      limit,
      includeTools: args.includeTools ?? false,
      level: levelRank(context.caller.facts.taint),
    });
    const messages: TranscriptMessage[] = [];
    let size = 0;
    let cursor = next;
    let truncated = false;
    // Newest first, so that a full answer loses its oldest messages, which the cursor leads to.
    for (const row of rows) {
      const message = shorten(messageOf(row, undefined));
      const bytes = sizeOf(message);
      if (size + bytes > largestAnswer && messages.length > 0) {
        cursor = messages[0]!.seq;
        truncated = true;
        break;
      }
      size += bytes;
      messages.unshift(message);
    }
    const flags = { ...(truncated ? { truncated } : {}), ...(cursor === undefined ? {} : { nextCursor: writeCursor(cursor) }) };
    return {
      value: { sessionKey: session.key === 'global' ? 'main' : session.key, messages, ...flags },
      taint: Math.max(0, ...rows.map((row) => row.taint)),
    };
  },
});
