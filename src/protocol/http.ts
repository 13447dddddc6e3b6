// Every HTTP route: who may call it, what it takes, what it answers. The routes, their checks and the OpenAPI document are made from it.
import { z } from 'zod';
import type { Scope } from './frame.ts';
import { methods } from './method.ts';
import { SessionsPage, Started, WaitAnswer, WireMessage } from './result.ts';

export const largestBody = 5 * 1024 * 1024;
export const historyLimits = { default: 200, most: 1_000 } as const;
/** Longer than this no request is kept waiting; who wants to wait on asks again. */
const mostWaitSeconds = 3_600;

/** A switch in a query: `1` or `true`, `0` or `false`. */
const Switch = z.boolean();
const wait = { wait: z.int().min(0).max(mostWaitSeconds).optional().describe('seconds to wait for the end of the run') };

const HistoryQuery = z.strictObject({
  limit: z.int('must be a positive integer').min(1, 'must be a positive integer').optional().describe('200 by default, 1000 at most'),
  cursor: z.string().min(1).max(64).optional().describe('nextCursor of the page before; leads to older messages'),
  includeTools: Switch.optional().describe('also results of tools'),
  follow: Switch.optional().describe('stay and hear what is new, as server-sent events; so does accept: text/event-stream'),
});

export const HistoryPage = z.object({
  sessionKey: z.string(),
  sessionId: z.string(),
  items: z.array(WireMessage).describe('the same as messages, under the name that older readers know'),
  messages: z.array(WireMessage),
  hasMore: z.boolean(),
  nextCursor: z.string().exactOptional(),
});

const Said = methods['chat.send'].params
  .pick({ message: true, idempotencyKey: true, timeoutMs: true, queueMode: true, deliver: true })
  .partial({ idempotencyKey: true });

const ToolAnswer = z.union([
  z.object({ ok: z.literal(true), result: z.unknown() }),
  z.object({ ok: z.literal(false), error: z.object({ type: z.string(), code: z.string(), message: z.string() }) }),
]);
export type ToolAnswer = z.infer<typeof ToolAnswer>;

export const Failure = z.object({
  ok: z.literal(false).exactOptional(),
  error: z.looseObject({ type: z.string(), message: z.string(), code: z.string().exactOptional() }),
});

/** What is named in the document. */
export const named = { HistoryPage, Message: WireMessage, SessionsPage, Started, Run: WaitAnswer, ToolAnswer, Failure };

export interface Route {
  /** `session`: also tokens that are bound to one. `none`: anyone. */
  scope: Scope | 'session' | 'none';
  about: string;
  query?: z.ZodObject;
  body?: z.ZodType;
  /** Takes the header `Idempotency-Key`. */
  idempotent?: true;
  /** By status: JSON of this shape, or the media type of text. */
  answers: Record<number, z.ZodType | 'text/plain' | 'text/html'>;
  /** The success is a stream of events if it is asked for. */
  streams?: true;
}

const route = <R extends Route>(one: R): R => one;

export const routes = {
  'GET /': route({ scope: 'none', about: 'a page that says where to go', answers: { 200: 'text/html' } }),
  'GET /healthz': route({ scope: 'none', about: 'whether the process lives', answers: { 200: 'text/plain' } }),
  'GET /readyz': route({ scope: 'none', about: 'whether it takes work', answers: { 200: 'text/plain', 503: 'text/plain' } }),
  'GET /signin': route({
    scope: 'none',
    about: 'signs a browser in, with a link that works once',
    query: z.object({ code: z.string().optional() }),
    answers: { 303: 'text/plain', 403: 'text/html' },
  }),
  'GET /openapi.json': route({ scope: 'session', about: 'this document', answers: { 200: z.looseObject({ openapi: z.string() }) } }),
  'GET /metrics': route({ scope: 'operator.read', about: 'counters for Prometheus', answers: { 200: 'text/plain' } }),
  'GET /sessions': route({
    scope: 'operator.read',
    about: methods['sessions.list'].about,
    query: methods['sessions.list'].params.unwrap().pick({
      limit: true,
      cursor: true,
      activeMinutes: true,
      label: true,
      spawnedBy: true,
      agentId: true,
      search: true,
      kinds: true,
      archived: true,
      includeLastMessage: true,
    }),
    answers: { 200: SessionsPage },
  }),
  'GET /sessions/{key}/history': route({
    scope: 'operator.read',
    about: 'messages of a session, by key or session id: the newest page, older ones by cursor, and what comes if it is followed',
    query: HistoryQuery,
    answers: { 200: HistoryPage },
    streams: true,
  }),
  'POST /sessions/{key}/messages': route({
    scope: 'operator.write',
    about: 'a message into a session; answers when it is safe, or with wait= when its run has ended',
    query: z.strictObject(wait),
    body: Said,
    idempotent: true,
    answers: { 200: WaitAnswer, 202: z.union([Started, WaitAnswer]) },
  }),
  'GET /runs/{id}': route({
    scope: 'operator.read',
    about: 'how a run stands; also long after it has ended',
    query: z.strictObject(wait),
    answers: { 200: WaitAnswer },
  }),
  'POST /tools/invoke': route({
    scope: 'session',
    about: methods['tools.invoke'].about,
    body: methods['tools.invoke'].params,
    idempotent: true,
    answers: { 200: ToolAnswer },
  }),
  'POST /tools/{name}': route({
    scope: 'session',
    about: 'the same for one tool, whose arguments are the body; an operator names the session in the query',
    query: methods['tools.invoke'].params.pick({ sessionKey: true }),
    body: methods['tools.invoke'].params.shape.args,
    idempotent: true,
    answers: { 200: ToolAnswer },
  }),
} as const satisfies Record<string, Route>;

export type RouteName = keyof typeof routes;
