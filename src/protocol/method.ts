// Every method of the gateway: name, who may call it, closed parameters; results are in result.ts. Websocket, client, command line and docs are made from it.
import { z } from 'zod';
import { ExplainAccess, ExplainKey, ExplainRoute, ExplainSend, ExplainTools } from './explain.ts';
import type { Scope } from './frame.ts';
import { Level, SessionKind, ThinkingLevel } from './labels.ts';
import { queueModes, runStates } from './run.ts';

const Key = z.string().min(1).max(4096);
const Id = z.string().min(1).max(256);
const Label = z.string().trim().min(1).max(512);
/** Characters of one message. */
export const longestMessage = 1_000_000;
const Text = z.string().max(longestMessage);
const Message = Text.refine((text) => text.trim() !== '', 'must not be blank');
const Cursor = z.string().min(1).max(64);
const agent = { agentId: z.string().min(1).max(64).optional() };

const VerboseLevel = z.enum(['off', 'on', 'full']);

/** Fields of the peers' protocol that change nothing here, accepted so that their clients work. */
const ignored = <N extends string>(...names: N[]) =>
  Object.fromEntries(names.map((name) => [name, z.unknown().optional()])) as Record<N, z.ZodOptional<z.ZodUnknown>>;

const SessionsListParams = z.strictObject({
  limit: z.int().min(1).optional(),
  offset: z.int().min(0).max(10_000).optional(),
  cursor: Cursor.optional(),
  activeMinutes: z.int().min(1).optional(),
  label: Label.optional(),
  spawnedBy: Key.optional(),
  agentId: z.string().min(1).max(64).optional(),
  search: z.string().max(512).optional(),
  kinds: z.array(SessionKind).min(1).optional(),
  archived: z.union([z.boolean(), z.literal('all')]).optional(),
  includeLastMessage: z.boolean().optional(),
  ...ignored('includeGlobal', 'includeUnknown', 'includeDerivedTitles', 'configuredAgentsOnly', 'sortBy', 'ownerFirst', 'includePeople'),
});

const runAnswer = { timeoutMs: z.int().min(0).max(86_400_000).optional(), idempotencyKey: Id.optional() };

interface Method<P extends z.ZodType> {
  /** `session`: also for tokens that are bound to a session. */
  scope: Scope | 'session';
  about: string;
  params: P;
}

const method = <P extends z.ZodType>(scope: Method<P>['scope'], about: string, params: P): Method<P> => ({ scope, about, params });
const none = z.strictObject({}).default({});

export const methods = {
  health: method('session', 'whether the gateway is well', none),
  status: method('operator.read', 'what the gateway is doing: version, sessions, runs, connections', none),
  'agents.list': method('operator.read', 'the configured agents', none),

  'sessions.list': method('operator.read', 'sessions, most recently active first', SessionsListParams.default({})),
  'sessions.describe': method(
    'operator.read',
    'one session',
    z.strictObject({ key: Key, ...agent, includeLastMessage: z.boolean().optional(), ...ignored('includeDerivedTitles') }),
  ),
  'sessions.resolve': method(
    'operator.read',
    'the key of the session that a key, session id or label means',
    z.strictObject({
      key: Key.optional(),
      sessionId: Id.optional(),
      label: Label.optional(),
      shortId: z.string().min(4).max(64).optional(),
      ...agent,
      spawnedBy: Key.optional(),
      allowMissing: z.boolean().optional(),
      ...ignored('includeGlobal', 'includeUnknown', 'slugHint'),
    }),
  ),
  'sessions.preview': method(
    'operator.read',
    'the last messages of several sessions, shortened',
    z.strictObject({
      keys: z.array(Key).min(1).max(100),
      limit: z.int().min(1).max(50).optional(),
      maxChars: z.int().min(20).max(10_000).optional(),
    }),
  ),
  'sessions.create': method(
    'operator.write',
    'open a session, or find it if it is there',
    z.strictObject({
      key: Key.optional(),
      ...agent,
      label: Label.optional(),
      displayName: z.string().min(1).max(500).optional(),
      model: z.string().min(1).max(256).optional(),
      thinkingLevel: ThinkingLevel.optional(),
      message: Text.optional(),
      idempotencyKey: Id.optional(),
    }),
  ),
  'sessions.patch': method(
    'operator.write',
    'set or clear (null) settings of a session, all or nothing; sendPolicy needs operator.admin',
    z.strictObject({
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
    }),
  ),
  'sessions.reset': method(
    'operator.admin',
    'give a key a new life with an empty transcript',
    z.strictObject({ key: Key, ...agent, reason: z.enum(['new', 'reset']).optional() }),
  ),
  'sessions.delete': method(
    'operator.admin',
    'delete a session and its transcript',
    z.strictObject({
      key: Key,
      ...agent,
      expectedSessionId: Id.optional(),
      force: z.boolean().optional(),
      ...ignored('deleteTranscript', 'emitLifecycleHooks'),
    }),
  ),
  'sessions.abort': method(
    'operator.write',
    'stop the run of a session, or one run',
    z.strictObject({ key: Key.optional(), runId: Id.optional(), ...agent }),
  ),
  'sessions.send': method(
    'operator.write',
    'a message into a session, answered by a run',
    z.strictObject({ key: Key, ...agent, message: Message, ...runAnswer }),
  ),
  'sessions.subscribe': method(
    'operator.read',
    'be told what happens in all sessions; with a cursor, from there on',
    SessionsListParams.default({}),
  ),
  'sessions.unsubscribe': method('operator.read', 'the end of sessions.subscribe', none),
  'sessions.messages.subscribe': method(
    'operator.read',
    'be told the messages of one session; with a cursor, from there on',
    z.strictObject({ key: Key, ...agent, cursor: Cursor.optional(), ...ignored('includeApprovals') }),
  ),
  'sessions.messages.unsubscribe': method(
    'operator.read',
    'the end of sessions.messages.subscribe',
    z.strictObject({ key: Key, ...agent }),
  ),

  'chat.history': method(
    'operator.read',
    'messages of a session: the newest page, an older one by offset, or what is new since a cursor',
    z.strictObject({
      sessionKey: Key,
      ...agent,
      limit: z.int().min(1).max(1000).optional(),
      offset: z.int().min(0).optional(),
      cursor: Cursor.optional(),
      maxChars: z.int().min(1).max(500_000).optional(),
      sessionId: Id.optional(),
    }),
  ),
  'chat.send': method(
    'operator.write',
    'a message into a session; the answer comes as events',
    z.strictObject({
      sessionKey: Key.max(512),
      ...agent,
      sessionId: Id.optional(),
      message: Message,
      queueMode: z.enum(queueModes).optional(),
      deliver: z.boolean().optional(),
      timeoutMs: z.int().min(0).max(86_400_000).optional(),
      idempotencyKey: Id,
      ...ignored('suppressCommandInterpretation'),
    }),
  ),
  'chat.abort': method('operator.write', 'stop the run of a session', z.strictObject({ sessionKey: Key, ...agent, runId: Id.optional() })),
  'chat.inject': method(
    'operator.admin',
    'write a message of the assistant into a transcript, without a run',
    z.strictObject({
      sessionKey: Key,
      ...agent,
      message: Message,
      label: z.string().min(1).max(100).optional(),
      idempotencyKey: Id.optional(),
    }),
  ),

  agent: method(
    'operator.write',
    'a message into a session; answers when it is accepted and again when the run has ended',
    z.strictObject({
      message: Message,
      ...agent,
      sessionKey: Key.optional(),
      sessionId: Id.optional(),
      deliver: z.boolean().optional(),
      timeout: z.int().min(0).max(86_400).optional(),
      idempotencyKey: Id,
      ...ignored('lane', 'bestEffortDeliver'),
    }),
  ),
  'agent.wait': method(
    'operator.write',
    'wait for the end of a run; also for one that ended long ago',
    z.strictObject({ runId: Id, timeoutMs: z.int().min(0).max(86_400_000).optional() }),
  ),
  send: method(
    'operator.write',
    'a message to a person or group on a channel, through the outbox',
    z.strictObject({
      to: z.string().min(1).max(1024),
      message: Message,
      channel: z.string().min(1).max(64).optional(),
      accountId: z.string().min(1).max(64).optional(),
      threadId: z.string().min(1).max(256).optional(),
      sessionKey: Key.optional(),
      ...agent,
      idempotencyKey: Id,
    }),
  ),

  'runs.list': method(
    'operator.read',
    'runs, newest first; of one session with a key',
    z
      .strictObject({
        key: Key.optional(),
        ...agent,
        states: z.array(z.enum(runStates)).min(1).optional(),
        limit: z.int().min(1).max(1000).optional(),
        cursor: Cursor.optional(),
      })
      .default({}),
  ),
  'tools.invoke': method(
    'session',
    'call a session tool as the session the token is bound to; an operator may look through the eyes of one with tools that only read',
    z.strictObject({
      tool: z.string().min(1).max(128),
      args: z.record(z.string(), z.unknown()).default({}),
      sessionKey: Key.optional(),
      idempotencyKey: Id.optional(),
      ...ignored('action', 'dryRun'),
    }),
  ),
  'explain.route': method('operator.read', 'which agent and session a message goes to', ExplainRoute),
  'explain.key': method('operator.read', 'what a session key means', ExplainKey),
  'explain.send': method('operator.read', 'whether text may leave for a channel', ExplainSend),
  'explain.access': method('operator.read', 'whether one session reaches another', ExplainAccess),
  'explain.tools': method('operator.read', 'which tools a session gets, and why', ExplainTools),

  'guests.join': method(
    'operator.admin',
    'let an outside harness take part: a session of its own, a token bound to it, and what it may see',
    z.strictObject({
      name: z.string().regex(/^[a-z0-9][a-z0-9_-]{0,31}$/, 'must be 1 to 32 of a-z, 0-9, "_" and "-"'),
      ...agent,
      see: z.enum(['tree', 'agent', 'all']).optional(),
      rotate: z.boolean().optional(),
    }),
  ),

  'tokens.list': method('operator.admin', 'the tokens, without their secrets', none),
  'tokens.create': method(
    'operator.admin',
    'make a token; its secret is shown once',
    z.strictObject({
      name: z.string().regex(/^[a-z0-9][a-z0-9_.-]{0,63}$/, 'must be 1 to 64 of a-z, 0-9, ".", "_" and "-"'),
      scopes: z
        .array(z.enum(['operator.read', 'operator.write', 'operator.admin']))
        .min(1)
        .optional(),
      level: Level.optional(),
      sessionKey: Key.optional(),
    }),
  ),
  'tokens.signIn': method('operator.admin', 'a link that signs a browser in; it works once, for ten minutes', none),
  'tokens.rotate': method(
    'operator.admin',
    'give a token a new secret; the old one and its connections end at once',
    z.strictObject({ name: z.string().min(1).max(128) }),
  ),
  'tokens.revoke': method(
    'operator.admin',
    'end a token and its connections at once',
    z.strictObject({ name: z.string().min(1).max(128) }),
  ),
} as const;

export type MethodName = keyof typeof methods;
/** What a caller writes. */
export type Params<M extends MethodName> = z.input<(typeof methods)[M]['params']>;
/** What a handler gets. */
export type ReadParams<M extends MethodName> = z.output<(typeof methods)[M]['params']>;
