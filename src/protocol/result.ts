// What the methods answer with. Fields without a value are left out.
import { z } from 'zod';
import type { Explanation } from './decision.ts';
import type { ErrorShape, Scope } from './frame.ts';
import { type Level, SessionKind, Visibility } from './labels.ts';
import { runStates, UsageView, type RunClass, type RunState } from './run.ts';
import { DeliveryContext } from './session.ts';
import { Block, Provenance } from './transcript.ts';

/** A message as clients of this protocol know it: `__openclaw` is the envelope their views are merged by. */
export const WireMessage = z.object({
  role: z.enum(['user', 'assistant', 'toolResult']),
  content: z.union([z.string(), z.array(Block)]),
  timestamp: z.int(),
  provenance: Provenance.exactOptional(),
  toolCallId: z.string().exactOptional(),
  toolName: z.string().exactOptional(),
  isError: z.boolean().exactOptional(),
  stopReason: z.enum(['aborted', 'length', 'content_filter']).exactOptional(),
  taint: z.string().exactOptional(),
  __openclaw: z.object({
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
  /** The protocol's word; ours is `sessionKind`. */
  kind: z.enum(['direct', 'group', 'global', 'unknown']),
  sessionKind: SessionKind,
  sessionId: z.string(),
  agentId: z.string(),
  updatedAt: z.int(),
  createdAt: z.int(),
  isMain: z.literal(true).exactOptional(),
  /** Who takes its turns, where it is not its agent: somebody outside, who is there or not. */
  runtime: z.literal('guest').exactOptional(),
  online: z.boolean().exactOptional(),
  /** What an operator lets it see, instead of `tools.sessions.visibility`. */
  see: Visibility.exactOptional(),
  archived: z.literal(true).exactOptional(),
  label: z.string().exactOptional(),
  displayName: z.string().exactOptional(),
  status: z.enum(['queued', 'running', 'done', 'failed', 'killed', 'timeout']).exactOptional(),
  hasActiveRun: z.literal(true).exactOptional(),
  activeRunIds: z.array(z.string()).exactOptional(),
  queuedRuns: z.int().exactOptional(),
  spawnedBy: z.string().exactOptional(),
  totalTokens: z.int().exactOptional(),
  messageCount: z.int(),
  /** The model's window. */
  contextTokens: z.int().exactOptional(),
  usage: UsageView.exactOptional(),
  /** What answers: set on the session by a user, or chosen by the config and what was found. */
  model: z.string().exactOptional(),
  modelSource: z.enum(['user', 'auto']).exactOptional(),
  thinkingLevel: z.string().exactOptional(),
  thinkingLevelSource: z.enum(['user', 'auto']).exactOptional(),
  /** What the provider makes of a level that it does not have. */
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
  /** The file its transcript was written to, if it was. */
  transcriptPath: z.string().exactOptional(),
  taint: z.string().exactOptional(),
  lastMessagePreview: z.string().exactOptional(),
});
export type WireSession = z.infer<typeof WireSession>;

export interface WireRun {
  runId: string;
  sessionKey: string;
  sessionId: string;
  state: RunState;
  class: RunClass;
  queuedAt: number;
  startedAt?: number;
  endedAt?: number;
  error?: string;
  errorCode?: string;
  /** The model that answered last. */
  model?: string;
  usage?: UsageView;
}

export const SessionsPage = z.object({
  ts: z.int(),
  count: z.int(),
  limitApplied: z.int(),
  hasMore: z.boolean(),
  nextOffset: z.int().nullable(),
  nextCursor: z.string().exactOptional(),
  defaults: z.object({ defaultAgentId: z.string(), mainKey: z.string() }),
  sessions: z.array(WireSession),
});
export type SessionsPage = z.infer<typeof SessionsPage>;

export interface TokenView {
  name: string;
  kind: 'operator' | 'session' | 'browser';
  scopes: Scope[];
  level: Level;
  sessionKey?: string;
  createdAt: number;
  lastUsedAt?: number;
  expiresAt?: number;
}

/** A retry of the same request finds its run: under way, or ended. */
export const Started = z.object({ runId: z.string(), sessionKey: z.string(), status: z.enum(['started', 'in_flight', 'ok', 'error']) });
type Started = z.infer<typeof Started>;

/** `state` says what the run is doing; with the status `timeout` it goes on. */
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

export interface Results {
  health: { ok: true; ts: number; durationMs: number };
  status: {
    version: string;
    uptimeMs: number;
    pid: number;
    defaultAgentId: string;
    agents: number;
    connections: number;
    runs: Record<'queued' | 'running' | 'waiting', number>;
    deliveries: Record<'pending' | 'unknown' | 'dead', number>;
    store: { kind: 'sqlite'; durability: string; path: string };
    model: string;
    warnings: string[];
  };
  'agents.list': {
    defaultId: string;
    mainKey: string;
    scope: 'per-sender' | 'global';
    agents: { id: string; name?: string; mainSessionKey: string }[];
  };
  'sessions.list': SessionsPage;
  'sessions.describe': { session: WireSession | null };
  'sessions.resolve':
    | { ok: true; key: string; agentId: string; sessionId: string }
    | { ok: false; candidates?: { key: string; agentId: string }[] };
  'sessions.preview': {
    ts: number;
    previews: { key: string; status: 'ok' | 'missing'; items: { role: string; text: string }[] }[];
  };
  'sessions.create': {
    ok: true;
    key: string;
    sessionId: string;
    created: boolean;
    entry: WireSession;
    runStarted: boolean;
    runId?: string;
    /** Why the message did not start a run. */
    runError?: ErrorShape;
  };
  'sessions.patch': { ok: true; key: string; changed: boolean; entry: WireSession };
  'sessions.reset': { ok: true; key: string; entry: WireSession };
  'sessions.delete': { ok: true; key: string; deleted: boolean; archived: string[] };
  'sessions.abort': { ok: true; abortedRunId: string | null; status: 'aborted' | 'no-active-run' };
  'sessions.send': Started;
  'sessions.subscribe': { subscribed: true; cursor: string; list?: SessionsPage };
  'sessions.unsubscribe': { subscribed: false };
  'sessions.messages.subscribe': { subscribed: true; key: string; cursor: string };
  'sessions.messages.unsubscribe': { subscribed: false; key: string };
  'chat.history':
    | {
        sessionKey: string;
        sessionId: string;
        messages: WireMessage[];
        hasMore: boolean;
        offset?: number;
        nextOffset?: number;
        totalMessages: number;
        deltaCursor: string;
        sessionInfo: WireSession;
      }
    | { kind: 'delta'; messages: WireMessage[]; hasMore: boolean; deltaCursor: string; sessionInfo: WireSession }
    | { kind: 'reset' };
  'chat.send': Started;
  'chat.abort': { ok: true; aborted: boolean; runIds: string[] };
  'chat.inject': { ok: true; messageId: string; messageSeq: number };
  agent: {
    runId: string;
    sessionKey: string;
    agentId: string;
    status: 'ok' | 'error' | 'timeout' | 'accepted';
    acceptedAt?: number;
    summary?: string;
    result?: { payloads: { text: string; mediaUrl: null }[]; meta: { durationMs: number } };
    error?: string;
    errorCode?: string;
  };
  'agent.wait': WaitAnswer;
  send: { ok: true; status: 'queued'; deliveryIds: string[]; channel: string; to: string };
  'runs.list': { runs: WireRun[]; nextCursor?: string };
  'tools.invoke': { ok: boolean; tool: string; result: unknown };
  'explain.route': Explanation;
  'explain.key': Explanation;
  'explain.send': Explanation;
  'explain.access': Explanation;
  'explain.tools': Explanation;
  'guests.join': {
    key: string;
    sessionId: string;
    created: boolean;
    /** What its tools may see. */
    see: Visibility;
    token: string;
    tokenName: string;
    /** Where it connects. */
    url: string;
    /** What to paste into the harness. */
    sentence: string;
  };
  'tokens.list': { tokens: TokenView[] };
  'tokens.create': { token: string; view: TokenView };
  'tokens.signIn': { url: string; expiresAt: number };
  'tokens.rotate': { token: string; view: TokenView };
  'tokens.revoke': { revoked: boolean; name: string };
}
