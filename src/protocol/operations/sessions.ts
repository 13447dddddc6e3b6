// Operations on sessions: find, list, open, patch, close, send into, subscribe to.
import { z } from 'zod';
import { ErrorShape } from '../frame.ts';
import { SessionKind, ThinkingLevel, VerboseLevel } from '../labels.ts';
import { SessionsPage, Started, WireSession } from '../result.ts';
import { agent, Cursor, Id, ignored, Key, Label, Life, Message, none, Text, TimeoutMs } from './fields.ts';
import type { Operations } from './operation.ts';

/** Rows that are skipped are read, so there is a limit. */
export const largestOffset = 2_000;

const ListParams = z.strictObject({
  limit: z.int().min(1).optional(),
  offset: z.int().min(0).max(largestOffset, `is at most ${largestOffset}; go on with nextCursor as cursor`).optional(),
  cursor: Cursor.optional(),
  activeMinutes: z.int().min(1).optional(),
  label: Label.optional(),
  spawnedBy: Key.optional(),
  agentId: z.string().min(1).max(64).optional(),
  search: z.string().max(512).optional(),
  kinds: z.array(SessionKind).optional(),
  archived: z.union([z.boolean(), z.literal('all')]).optional(),
  pinned: z.boolean().optional(),
  includeLastMessage: z.boolean().optional(),
  includeUnread: z.boolean().optional(),
  sortBy: z.enum(['updatedAt', 'lastInteractionAt']).optional(),
  ...ignored('includeGlobal', 'includeUnknown', 'includeDerivedTitles', 'configuredAgentsOnly', 'ownerFirst', 'includePeople'),
});

const LivesQuery = z.strictObject({
  limit: z.int().min(1).max(1000).optional().describe('100 by default, 1000 at most'),
  before: Life.optional().describe('only lives with a smaller number; nextBefore of the page before'),
});

const LivesPage = z.object({ key: z.string(), lives: z.array(WireSession), nextBefore: z.int().exactOptional() });

const ok = { ok: z.literal(true), key: z.string() };

export const sessions = {
  'sessions.list': {
    scope: 'operator.read',
    about: 'sessions: pinned ones first, then the most recently active first',
    params: ListParams.default({}),
    result: SessionsPage,
    http: {
      'GET /sessions': {
        query: ListParams.pick({
          limit: true,
          cursor: true,
          activeMinutes: true,
          label: true,
          spawnedBy: true,
          agentId: true,
          search: true,
          kinds: true,
          archived: true,
          pinned: true,
          includeLastMessage: true,
          includeUnread: true,
        }),
        answers: { 200: SessionsPage },
      },
    },
  },
  'sessions.describe': {
    scope: 'operator.read',
    about: 'one session, or an earlier life of it',
    params: z.strictObject({
      key: Key,
      ...agent,
      life: Life.optional(),
      includeLastMessage: z.boolean().optional(),
      includeUnread: z.boolean().optional(),
      ...ignored('includeDerivedTitles'),
    }),
    result: z.object({ session: WireSession.nullable() }),
  },
  'sessions.lives': {
    scope: 'operator.read',
    about: 'the lives of a session, newest first: the current one and those that a reset ended',
    params: z.strictObject({ key: Key, ...agent, ...LivesQuery.shape }),
    result: LivesPage,
    http: {
      'GET /sessions/{key}/lives': { query: LivesQuery, answers: { 200: LivesPage } },
    },
  },
  'sessions.resolve': {
    scope: 'operator.read',
    about: 'the key of the session that a key, session id or label means',
    params: z.strictObject({
      key: Key.optional(),
      sessionId: Id.optional(),
      label: Label.optional(),
      shortId: z.string().min(4).max(64).optional(),
      ...agent,
      spawnedBy: Key.optional(),
      allowMissing: z.boolean().optional(),
      ...ignored('includeGlobal', 'includeUnknown', 'slugHint'),
    }),
    result: z.union([
      z.object({ ...ok, agentId: z.string(), sessionId: z.string() }),
      z.object({ ok: z.literal(false), candidates: z.array(z.object({ key: z.string(), agentId: z.string() })).exactOptional() }),
    ]),
  },
  'sessions.preview': {
    scope: 'operator.read',
    about: 'the last messages of several sessions, shortened',
    params: z.strictObject({
      keys: z.array(Key).min(1).max(100),
      limit: z.int().min(1).max(50).optional(),
      maxChars: z.int().min(20).max(10_000).optional(),
    }),
    result: z.object({
      ts: z.int(),
      previews: z.array(
        z.object({
          key: z.string(),
          status: z.enum(['ok', 'missing']),
          items: z.array(z.object({ role: z.string(), text: z.string() })),
        }),
      ),
      /** The keys that are not in `previews` did not fit. */
      truncated: z.literal(true).exactOptional(),
    }),
  },
  'sessions.create': {
    scope: 'operator.write',
    about: 'open a session, or find it if it is there',
    params: z.strictObject({
      key: Key.optional(),
      ...agent,
      label: Label.optional(),
      displayName: z.string().min(1).max(500).optional(),
      model: z.string().min(1).max(256).optional(),
      thinkingLevel: ThinkingLevel.optional(),
      message: Text.optional(),
      idempotencyKey: Id.optional(),
    }),
    result: z.object({
      ...ok,
      sessionId: z.string(),
      created: z.boolean(),
      entry: WireSession,
      runStarted: z.boolean(),
      runId: z.string().exactOptional(),
      /** Why the message did not start a run. */
      runError: ErrorShape.exactOptional(),
    }),
  },
  'sessions.patch': {
    scope: 'operator.write',
    about: 'set or clear (null) settings of a session, all or nothing; sendPolicy needs operator.admin',
    params: z.strictObject({
      key: Key,
      ...agent,
      expectedSessionId: Id.optional(),
      label: Label.nullable().optional(),
      displayName: z.string().min(1).max(500).nullable().optional(),
      sendPolicy: z.enum(['allow', 'deny']).nullable().optional(),
      model: z.string().min(1).max(256).nullable().optional(),
      authProfile: z.string().min(1).max(100).nullable().optional(),
      thinkingLevel: ThinkingLevel.nullable().optional(),
      verboseLevel: VerboseLevel.nullable().optional(),
      pinned: z.boolean().nullable().optional(),
    }),
    result: z.object({ ...ok, changed: z.boolean(), entry: WireSession }),
  },
  'sessions.reset': {
    scope: 'operator.admin',
    about: 'give a key a new life with an empty transcript',
    params: z.strictObject({ key: Key, ...agent, reason: z.enum(['new', 'reset']).optional() }),
    result: z.object({ ...ok, entry: WireSession }),
  },
  'sessions.delete': {
    scope: 'operator.admin',
    about: 'delete a session and the transcripts of all its lives',
    params: z.strictObject({
      key: Key,
      ...agent,
      expectedSessionId: Id.optional(),
      force: z.boolean().optional(),
      ...ignored('deleteTranscript', 'emitLifecycleHooks'),
    }),
    result: z.object({ ...ok, deleted: z.boolean(), archived: z.array(z.string()) }),
  },
  'sessions.abort': {
    scope: 'operator.write',
    about: 'stop the run of a session, or one run',
    params: z.strictObject({ key: Key.optional(), runId: Id.optional(), ...agent }),
    result: z.object({ ok: z.literal(true), abortedRunId: z.string().nullable(), status: z.enum(['aborted', 'no-active-run']) }),
  },
  'sessions.send': {
    scope: 'operator.write',
    about: 'a message into a session, answered by a run',
    params: z.strictObject({ key: Key, ...agent, message: Message, timeoutMs: TimeoutMs.optional(), idempotencyKey: Id.optional() }),
    result: Started,
  },
  'sessions.subscribe': {
    scope: 'operator.read',
    about: 'receive the events of all sessions; with a cursor, from there on',
    params: ListParams.default({}),
    result: z.object({ subscribed: z.literal(true), cursor: z.string(), list: SessionsPage.exactOptional() }),
  },
  'sessions.unsubscribe': {
    scope: 'operator.read',
    about: 'the end of sessions.subscribe',
    params: none,
    result: z.object({ subscribed: z.literal(false) }),
  },
  'sessions.messages.subscribe': {
    scope: 'operator.read',
    about: 'receive the messages of one session; with a cursor, from there on',
    params: z.strictObject({ key: Key, ...agent, cursor: Cursor.optional(), ...ignored('includeApprovals') }),
    result: z.object({ subscribed: z.literal(true), key: z.string(), cursor: z.string() }),
  },
  'sessions.messages.unsubscribe': {
    scope: 'operator.read',
    about: 'the end of sessions.messages.subscribe',
    params: z.strictObject({ key: Key, ...agent }),
    result: z.object({ subscribed: z.literal(false), key: z.string() }),
  },
} as const satisfies Operations;
