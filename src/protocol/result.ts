// Shapes that several operations answer with. Fields without a value are left out.
import { z } from 'zod';
import { Scope } from './frame.ts';
import { Level, SessionKind, Visibility } from './labels.ts';
import { runClasses, runStates, UsageView } from './run.ts';
import { DeliveryContext } from './session.ts';
import { Block, Provenance } from './transcript.ts';

/** A message as clients of this protocol know it: `entry` is its place in the transcript, by which clients merge history and events. */
export const WireMessage = z.object({
  role: z.enum(['user', 'assistant', 'toolResult']),
  content: z.union([z.string(), z.array(Block)]),
  timestamp: z.int(),
  provenance: Provenance.exactOptional(),
  toolCallId: z.string().exactOptional(),
  toolName: z.string().exactOptional(),
  isError: z.boolean().exactOptional(),
  stopReason: z.enum(['aborted', 'length', 'content_filter']).exactOptional(),
  /** A rule withheld this reply from the chat that it was for. */
  withheld: z.literal(true).exactOptional(),
  /** Set on a summary that replaces all older messages for the model. */
  summary: z.literal(true).exactOptional(),
  taint: z.string().exactOptional(),
  entry: z.object({
    id: z.string(),
    seq: z.int(),
    runId: z.string().exactOptional(),
    idempotencyKey: z.string().exactOptional(),
  }),
});
export type WireMessage = z.infer<typeof WireMessage>;

/** Fields without a value are left out. */
export const WireSession = z.object({
  key: z.string(),
  /** The kind in the protocol; our own is `sessionKind`. */
  kind: z.enum(['direct', 'group', 'global', 'unknown']),
  sessionKind: SessionKind,
  sessionId: z.string(),
  /** A reset ends a life and starts the next; 1 is the first. */
  life: z.int(),
  /** Set on an earlier life. It can be read, and nothing happens in it any more. */
  ended: z.literal(true).exactOptional(),
  agentId: z.string(),
  updatedAt: z.int(),
  createdAt: z.int(),
  isMain: z.literal(true).exactOptional(),
  /** Set where a guest takes its turns instead of its agent; `online` tells whether the guest is connected. */
  runtime: z.literal('guest').exactOptional(),
  online: z.boolean().exactOptional(),
  /** The visibility that an operator granted, instead of `tools.sessions.visibility`. */
  see: Visibility.exactOptional(),
  archived: z.literal(true).exactOptional(),
  /** Pinned sessions come first in the lists of operators. */
  pinned: z.literal(true).exactOptional(),
  /** Its agent is not in the config any more, so it gets no turn. Operators can read it. */
  orphaned: z.literal(true).exactOptional(),
  label: z.string().exactOptional(),
  displayName: z.string().exactOptional(),
  /** `internal` for scheduled tasks, webhooks and nodes; `unknown` before the first message from a channel. */
  channel: z.string(),
  /** The principal that opened it, or the sender of its first message. */
  user: z.string().exactOptional(),
  status: z.enum(['queued', 'running', 'done', 'failed', 'killed', 'timeout']).exactOptional(),
  hasActiveRun: z.literal(true).exactOptional(),
  activeRunIds: z.array(z.string()).exactOptional(),
  queuedRuns: z.int().exactOptional(),
  spawnedBy: z.string().exactOptional(),
  totalTokens: z.int().exactOptional(),
  messageCount: z.int(),
  /** For the caller, if it asked: messages after the one it has marked as read, up to 1,000. */
  unread: z.boolean().exactOptional(),
  unreadCount: z.int().exactOptional(),
  /** The model's window. */
  contextTokens: z.int().exactOptional(),
  usage: UsageView.exactOptional(),
  /** The model that answers: set by a user, or chosen by the config and the models that were found. */
  model: z.string().exactOptional(),
  modelSource: z.enum(['user', 'auto']).exactOptional(),
  thinkingLevel: z.string().exactOptional(),
  thinkingLevelSource: z.enum(['user', 'auto']).exactOptional(),
  /** What the provider does with a level that it does not support. */
  thinkingNote: z.string().exactOptional(),
  verboseLevel: z.string().exactOptional(),
  verboseLevelSource: z.literal('user').exactOptional(),
  authProfile: z.string().exactOptional(),
  authProfileSource: z.literal('user').exactOptional(),
  sendPolicy: z.enum(['allow', 'deny']).exactOptional(),
  systemSent: z.literal(true).exactOptional(),
  abortedLastRun: z.literal(true).exactOptional(),
  lastChannel: z.string().exactOptional(),
  lastTo: z.string().exactOptional(),
  deliveryContext: DeliveryContext.exactOptional(),
  /** The file of its transcript, if it was written to one. */
  transcriptPath: z.string().exactOptional(),
  taint: z.string().exactOptional(),
  lastMessagePreview: z.string().exactOptional(),
});
export type WireSession = z.infer<typeof WireSession>;

export const WireRun = z.object({
  runId: z.string(),
  sessionKey: z.string(),
  sessionId: z.string(),
  state: z.enum(runStates),
  class: z.enum(runClasses),
  queuedAt: z.int(),
  startedAt: z.int().exactOptional(),
  endedAt: z.int().exactOptional(),
  error: z.string().exactOptional(),
  errorCode: z.string().exactOptional(),
  /** The model that answered last. */
  model: z.string().exactOptional(),
  usage: UsageView.exactOptional(),
});
export type WireRun = z.infer<typeof WireRun>;

export const SessionsPage = z.object({
  ts: z.int(),
  count: z.int(),
  /** How many sessions fit, up to 10,000. Absent from a part of a search. */
  totalCount: z.int().exactOptional(),
  limitApplied: z.int(),
  hasMore: z.boolean(),
  nextOffset: z.int().nullable(),
  nextCursor: z.string().exactOptional(),
  defaults: z.object({ defaultAgentId: z.string(), mainKey: z.string() }),
  sessions: z.array(WireSession),
});
export type SessionsPage = z.infer<typeof SessionsPage>;

export const TokenView = z.object({
  name: z.string(),
  kind: z.enum(['operator', 'session', 'browser']),
  scopes: z.array(Scope),
  level: Level,
  sessionKey: z.string().exactOptional(),
  createdAt: z.int(),
  lastUsedAt: z.int().exactOptional(),
  expiresAt: z.int().exactOptional(),
});
export type TokenView = z.infer<typeof TokenView>;

/** The state of the run that a repeated request finds: active, or ended. */
export const Started = z.object({ runId: z.string(), sessionKey: z.string(), status: z.enum(['started', 'in_flight', 'ok', 'error']) });

/** With the status `timeout` the wait is over and the run continues; `state` is the run's state. */
export const WaitAnswer = z.object({
  runId: z.string(),
  status: z.enum(['ok', 'error', 'timeout']),
  state: z.enum(runStates),
  sessionKey: z.string(),
  startedAt: z.int().exactOptional(),
  endedAt: z.int().exactOptional(),
  error: z.string().exactOptional(),
  errorCode: z.string().exactOptional(),
  model: z.string().exactOptional(),
  usage: UsageView.exactOptional(),
  terminalReply: z.object({ text: z.string() }).exactOptional(),
});
export type WaitAnswer = z.infer<typeof WaitAnswer>;
