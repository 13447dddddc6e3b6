// Every HTTP route: the pages of the port, and the routes of operations.
import { z } from 'zod';
import { PeerMessage } from './compat/openclaw.ts';
import { operations } from './operations/all.ts';
import { HistoryPage } from './operations/chat.ts';
import type { HttpRoute, Operation, Operations } from './operations/operation.ts';
import { ToolAnswer } from './operations/tools.ts';
import { SessionsPage, Started, WaitAnswer } from './result.ts';

export const Failure = z.object({
  ok: z.literal(false).exactOptional(),
  error: z.looseObject({ type: z.string(), message: z.string(), code: z.string().exactOptional() }),
});

/** The shapes with a name in the OpenAPI document. */
export const named = { HistoryPage, Message: PeerMessage, SessionsPage, Started, Run: WaitAnswer, ToolAnswer, Failure };

export interface Route extends HttpRoute {
  /** `session`: tokens that are bound to a session have it too. `none`: no token is needed. */
  scope: Operation['scope'] | 'none';
  about: string;
}

/** Routes of the port itself, which are not operations. */
const pages = {
  'GET /': { scope: 'none', about: 'a page that says where to go', answers: { 200: 'text/html' } },
  'GET /healthz': { scope: 'none', about: 'whether the process lives', answers: { 200: 'text/plain' } },
  'GET /readyz': { scope: 'none', about: 'whether it takes work', answers: { 200: 'text/plain', 503: 'text/plain' } },
  'GET /signin': {
    scope: 'none',
    about: 'signs a browser in, with a link that works once',
    query: z.object({ code: z.string().optional() }),
    answers: { 303: 'text/plain', 403: 'text/html' },
  },
  'GET /openapi.json': { scope: 'session', about: 'this document', answers: { 200: z.looseObject({ openapi: z.string() }) } },
  'GET /metrics': { scope: 'operator.read', about: 'counters for Prometheus', answers: { 200: 'text/plain' } },
} as const satisfies Record<string, Route>;

type HttpOf<T extends Operations> = { [N in keyof T]: T[N] extends { http: infer H } ? H : never }[keyof T];
type Together<U> = (U extends unknown ? (one: U) => void : never) extends (all: infer I) => void ? I : never;
type Called = Pick<Route, 'scope' | 'about'>;
type CalledRoutes<T extends Operations> = { [R in keyof Together<HttpOf<T>>]: Together<HttpOf<T>>[R] & Called };

/** The pages, and the routes of a table of operations: each has the right of its operation. */
export function routesOf<T extends Operations>(table: T): typeof pages & CalledRoutes<T> {
  const called = Object.values(table).flatMap(({ scope, about, http = {} }) =>
    Object.entries(http).map(([name, route]) => [name, { about, ...route, scope }] as const),
  );
  return { ...pages, ...(Object.fromEntries(called) as unknown as CalledRoutes<T>) };
}

export const routes = routesOf(operations);
export type RouteName = keyof typeof routes;
