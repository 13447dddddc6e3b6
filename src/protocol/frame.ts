// The frames of the websocket: one JSON object each, protocol version 4. Requests are validated; outgoing frames are only typed.
import { z } from 'zod';

export const protocolVersion = 4;

const mebibyte = 1024 * 1024;
/**
 * The most bytes of one frame or body: before a client has authenticated, then by its token. `tools` is for `/mcp` and `POST /tools/*`,
 * where sessions send attachments.
 */
export const frameLimits = {
  before: 64 * 1024,
  session: mebibyte,
  operator: 4 * mebibyte,
  admin: 25 * mebibyte,
  tools: 8 * mebibyte,
} as const;
/** Requests of one websocket, or on one HTTP connection, that are not answered yet. */
export const mostInFlight = 64;
/** Requests of one websocket that wait for the end of a run, beside those. */
export const mostWaits = 1_000;
/** The most bytes that may wait in a socket; a reader that is further behind gets its events from the store. */
export const bufferLimit = 4 * 1024 * 1024;
export const tickIntervalMs = 30_000;

export const scopes = ['operator.read', 'operator.write', 'operator.admin'] as const;
export const Scope = z.enum(scopes);
export type Scope = z.infer<typeof Scope>;

export type RequestFrame = z.infer<typeof RequestFrame>;
export const RequestFrame = z.strictObject({
  type: z.literal('req'),
  id: z.string().min(1).max(256),
  method: z.string().min(1).max(128),
  params: z.unknown().optional(),
  traceparent: z.string().max(128).optional(),
  expectedProfileId: z.string().max(256).optional(),
});

const short = z.string().max(1024);

/** A client's description of itself. Its rights come from `auth` alone; requested scopes can only narrow them. */
export const ConnectParams = z.strictObject({
  minProtocol: z.int().min(1),
  maxProtocol: z.int().min(1),
  client: z.strictObject({
    id: short.min(1),
    version: short.min(1),
    platform: short.min(1),
    mode: short.min(1),
    displayName: short.optional(),
    buildId: short.optional(),
    deviceFamily: short.optional(),
    modelIdentifier: short.optional(),
    timeZone: short.optional(),
    instanceId: short.optional(),
  }),
  caps: z.array(short).max(64).optional(),
  role: short.optional(),
  scopes: z.array(short).max(64).optional(),
  auth: z
    .strictObject({
      token: short.optional(),
      password: short.optional(),
      deviceToken: short.optional(),
      bootstrapToken: short.optional(),
      approvalRuntimeToken: short.optional(),
      agentRuntimeIdentityToken: short.optional(),
    })
    .optional(),
  device: z.unknown().optional(),
  commands: z.unknown().optional(),
  permissions: z.unknown().optional(),
  pathEnv: z.unknown().optional(),
  locale: short.optional(),
  userAgent: short.optional(),
  computerUse: z.unknown().optional(),
  workerRuns: z.unknown().optional(),
});
export type ConnectParams = z.infer<typeof ConnectParams>;

export const ErrorShape = z.object({
  code: z.string(),
  message: z.string(),
  details: z.looseObject({ code: z.string() }).exactOptional(),
  retryable: z.boolean().exactOptional(),
  retryAfterMs: z.int().exactOptional(),
});
export type ErrorShape = z.infer<typeof ErrorShape>;

export type ResponseFrame = { type: 'res'; id: string } & ({ ok: true; payload: unknown } | { ok: false; error: ErrorShape });

export interface EventFrame {
  type: 'event';
  event: string;
  payload: unknown;
  seq?: number;
}

export interface HelloOk {
  type: 'hello-ok';
  protocol: number;
  server: { version: string; connId: string; bootId: string };
  features: { methods: string[]; events: string[] };
  snapshot: {
    presence: [];
    health: { ok: boolean };
    stateVersion: { presence: number; health: number };
    uptimeMs: number;
    sessionDefaults: { defaultAgentId: string; mainKey: string; mainSessionKey: string; scope: string };
    authMode: 'token';
  };
  auth: { role: 'operator' | 'session'; scopes: Scope[] };
  policy: { maxPayload: number; maxBufferedBytes: number; tickIntervalMs: number };
}

export const eventNames = [
  'connect.challenge',
  'tick',
  'shutdown',
  'health',
  'chat',
  'agent',
  'session.message',
  'sessions.changed',
] as const;
export type EventName = (typeof eventNames)[number];
