// Operations for a client that shows everything: the feed by pages, and how far the caller has read.
import { z } from 'zod';
import { PeerMessage } from '../compat/openclaw.ts';
import { runStates } from '../run.ts';
import { agent, Cursor, Key } from './fields.ts';
import type { Operations } from './operation.ts';

const ReadParams = z.strictObject({
  key: Key.optional(),
  ...agent,
  cursor: Cursor.optional().describe(
    'nextCursor of the page before, or the cursor of an event; without it, the oldest events that are kept',
  ),
  limit: z.int().min(1).max(200).optional(),
});

const common = { cursor: z.string(), sessionKey: z.string(), sessionId: z.string(), agentId: z.string(), ts: z.int() };
const error = z.string().exactOptional();

/** What happened, in the order in which it was stored. */
export const FeedItem = z.discriminatedUnion('kind', [
  z.object({
    kind: z.literal('entry'),
    ...common,
    messageId: z.string(),
    messageSeq: z.int(),
    runId: z.string().exactOptional(),
    message: PeerMessage,
  }),
  z.object({ kind: z.literal('run'), ...common, runId: z.string(), state: z.enum(runStates), error }),
  z.object({ kind: z.literal('session'), ...common, change: z.enum(['created', 'changed', 'reset', 'archived', 'deleted']) }),
  z.object({
    kind: z.literal('exchange'),
    ...common,
    exchangeId: z.string(),
    state: z.string(),
    turn: z.int(),
    reason: z.string().exactOptional(),
  }),
  z.object({
    kind: z.literal('delivery'),
    ...common,
    deliveryId: z.string(),
    state: z.string(),
    channel: z.string(),
    recipient: z.string(),
    error,
  }),
]);
export type FeedItem = z.infer<typeof FeedItem>;

const FeedPage = z.object({
  events: z.array(FeedItem),
  nextCursor: z.string(),
  hasMore: z.boolean(),
  /** Events after the cursor are no longer kept: read the sessions again, and go on with nextCursor. */
  reset: z.literal(true).exactOptional(),
});

const Mark = z.strictObject({ seq: z.int().min(0).optional().describe('the last message that was read; without it, all of them') });
const Marked = z.object({ ok: z.literal(true), key: z.string(), sessionId: z.string(), readSeq: z.int(), unreadCount: z.int() });

export const feed = {
  'feed.read': {
    scope: 'operator.read',
    about: 'what happened in all sessions or in one, in pages, oldest first',
    params: ReadParams.default({}),
    result: FeedPage,
    http: { 'GET /feed': { query: ReadParams, answers: { 200: FeedPage } } },
  },
  'sessions.markRead': {
    scope: 'operator.read',
    about: 'remember how far the caller has read a session; a mark never goes back',
    params: Mark.extend({ key: Key, ...agent }),
    result: Marked,
    http: { 'POST /sessions/{key}/read': { body: Mark, answers: { 200: Marked } } },
  },
} as const satisfies Operations;
