// Operations on messages: history, messages in, waits for runs, messages out.
import { z } from 'zod';
import { queueModes, runStates } from '../run.ts';
import { PeerMessage } from '../compat/openclaw.ts';
import { Started, WaitAnswer, WireMessage, WireRun, WireSession } from '../result.ts';
import { agent, Cursor, Id, ignored, Key, Life, Message, TimeoutMs } from './fields.ts';
import type { Operations } from './operation.ts';

/** The most messages of one page over HTTP. */
export const historyLimits = { default: 200, most: 1_000 } as const;

/** No HTTP request waits longer; a client repeats the request to continue. */
const mostWaitSeconds = 3_600;
const WaitQuery = z.strictObject({
  wait: z.int().min(0).max(mostWaitSeconds).optional().describe('seconds to wait for the end of the run'),
});

/** A switch in a query: `1` or `true`, `0` or `false`. */
const Switch = z.boolean();

const HistoryQuery = z.strictObject({
  limit: z.int('must be a positive integer').min(1, 'must be a positive integer').optional().describe('200 by default, 1000 at most'),
  cursor: Cursor.optional().describe('nextCursor of the page before; leads to older messages'),
  includeTools: Switch.optional().describe('also results of tools'),
  life: Life.optional().describe('an earlier life of the session, by its number; it cannot be followed'),
  follow: Switch.optional().describe('stay connected and get new messages as server-sent events; accept: text/event-stream does the same'),
});

export const HistoryPage = z.object({
  sessionKey: z.string(),
  sessionId: z.string(),
  items: z.array(PeerMessage).describe('the same as messages, under the name that older readers know'),
  messages: z.array(PeerMessage),
  hasMore: z.boolean(),
  nextCursor: z.string().exactOptional(),
});

const SendParams = z.strictObject({
  sessionKey: Key.max(512),
  ...agent,
  sessionId: Id.optional(),
  message: Message,
  queueMode: z.enum(queueModes).optional(),
  deliver: z.boolean().optional(),
  timeoutMs: TimeoutMs.optional(),
  idempotencyKey: Id,
  ...ignored('suppressCommandInterpretation'),
});

const news = { messages: z.array(WireMessage), hasMore: z.boolean(), deltaCursor: z.string(), sessionInfo: WireSession };

export const chat = {
  'chat.history': {
    scope: 'operator.read',
    about: 'messages of a session: the newest page, an older one by offset, or what is new since a cursor',
    params: z.strictObject({
      sessionKey: Key,
      ...agent,
      limit: z.int().min(1).max(1000).optional(),
      offset: z.int().min(0).optional(),
      cursor: Cursor.optional(),
      maxChars: z.int().min(1).max(500_000).optional(),
      sessionId: Id.optional(),
      life: Life.optional(),
    }),
    result: z.union([
      z.object({
        sessionKey: z.string(),
        sessionId: z.string(),
        ...news,
        offset: z.int().exactOptional(),
        nextOffset: z.int().exactOptional(),
        totalMessages: z.int(),
      }),
      z.object({ kind: z.literal('delta'), ...news }),
      z.object({ kind: z.literal('reset') }),
    ]),
    http: {
      'GET /sessions/{key}/history': {
        about: 'messages of a session, by key or session id: the newest page, older ones by cursor, and what comes if it is followed',
        query: HistoryQuery,
        answers: { 200: HistoryPage },
        streams: true,
      },
    },
  },
  'chat.send': {
    scope: 'operator.write',
    about: 'a message into a session; the answer comes as events',
    params: SendParams,
    result: Started,
    http: {
      'POST /sessions/{key}/messages': {
        about: 'a message into a session; answers when it is safe, or with wait= when its run has ended',
        query: WaitQuery,
        body: SendParams.pick({ message: true, idempotencyKey: true, timeoutMs: true, queueMode: true, deliver: true }).partial({
          idempotencyKey: true,
        }),
        idempotent: true,
        answers: { 200: WaitAnswer, 202: z.union([Started, WaitAnswer]) },
      },
    },
  },
  'chat.abort': {
    scope: 'operator.write',
    about: 'stop the run of a session',
    params: z.strictObject({ sessionKey: Key, ...agent, runId: Id.optional() }),
    result: z.object({ ok: z.literal(true), aborted: z.boolean(), runIds: z.array(z.string()) }),
  },
  'chat.inject': {
    scope: 'operator.admin',
    about: 'write a message of the assistant into a transcript, without a run; it follows the results of open tool calls',
    params: z.strictObject({
      sessionKey: Key,
      ...agent,
      message: Message,
      label: z.string().min(1).max(100).optional(),
      idempotencyKey: Id.optional(),
    }),
    result: z.object({ ok: z.literal(true), messageId: z.string(), messageSeq: z.int().exactOptional() }),
  },

  agent: {
    scope: 'operator.write',
    about: 'a message into a session; answers when it is accepted and again when the run has ended',
    params: z.strictObject({
      message: Message,
      ...agent,
      sessionKey: Key.optional(),
      sessionId: Id.optional(),
      deliver: z.boolean().optional(),
      timeout: z.int().min(0).max(86_400).optional(),
      idempotencyKey: Id,
      ...ignored('lane', 'bestEffortDeliver'),
    }),
    result: z.object({
      runId: z.string(),
      sessionKey: z.string(),
      agentId: z.string(),
      status: z.enum(['ok', 'error', 'timeout', 'accepted']),
      acceptedAt: z.int().exactOptional(),
      summary: z.string().exactOptional(),
      result: z
        .object({
          payloads: z.array(z.object({ text: z.string(), mediaUrl: z.null() })),
          meta: z.object({ durationMs: z.int() }),
        })
        .exactOptional(),
      error: z.string().exactOptional(),
      errorCode: z.string().exactOptional(),
    }),
  },
  'agent.wait': {
    scope: 'operator.read',
    about: 'wait for the end of a run; also for one that ended long ago',
    params: z.strictObject({ runId: Id, timeoutMs: TimeoutMs.optional() }),
    result: WaitAnswer,
    http: {
      'GET /runs/{id}': {
        about: 'the state of a run, even long after its end',
        query: WaitQuery,
        answers: { 200: WaitAnswer },
      },
    },
  },
  send: {
    scope: 'operator.write',
    about: 'a message to a person or group on a channel, through the outbox',
    params: z.strictObject({
      to: z.string().min(1).max(1024),
      message: Message,
      channel: z.string().min(1).max(64).optional(),
      accountId: z.string().min(1).max(64).optional(),
      threadId: z.string().min(1).max(256).optional(),
      sessionKey: Key.optional(),
      ...agent,
      idempotencyKey: Id,
    }),
    result: z.object({
      ok: z.literal(true),
      status: z.literal('queued'),
      deliveryIds: z.array(z.string()),
      channel: z.string(),
      to: z.string(),
    }),
  },
  'runs.list': {
    scope: 'operator.read',
    about: 'runs, newest first; of one session with a key',
    params: z
      .strictObject({
        key: Key.optional(),
        ...agent,
        states: z.array(z.enum(runStates)).min(1).optional(),
        limit: z.int().min(1).max(1000).optional(),
        cursor: Cursor.optional(),
      })
      .default({}),
    result: z.object({ runs: z.array(WireRun), nextCursor: z.string().exactOptional() }),
  },
} as const satisfies Operations;
