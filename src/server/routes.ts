// The handlers of the routes: a request → an operation → a response.
import type { z } from 'zod';
import { nearest } from '../nearest.ts';
import { errorTable, InterlaneError, isErrorCode } from '../errors.ts';
import type { Pace } from '../pace.ts';
import { routes, type Route, type RouteName } from '../protocol/http.ts';
import type { ToolAnswer } from '../protocol/operations/tools.ts';
import type { Tool } from '../tools/define.ts';
import type { Invoker } from '../tools/invoke.ts';
import { answerText } from './answer.ts';
import { requireEverything, viewerOf, type Caller } from './rights.ts';
import type { Dispatch } from './dispatch.ts';
import { failureType } from './failure.ts';
import type { SessionRow } from '../store/rows.ts';
import type { History } from './history.ts';
import type { Metrics } from '../observe/metrics.ts';
import { openApi } from './openapi.ts';
import type { Streams, Wire } from './sse.ts';

export interface RoutesParts {
  dispatch: Dispatch;
  history: History;
  streams: Streams;
  metrics: Metrics;
  /** The routes that the document describes. */
  table: Readonly<Record<string, Route>>;
  /** Our own tools, which the document has one by one. */
  tools: readonly Tool[];
  invoker: Invoker;
  version: string;
  newId(): string;
}

/** One request, of a caller who has the right of its route. */
export interface HttpCall {
  caller: Caller;
  method: string;
  headers: Headers;
  /** The part of the path that has a name in the table: decoded, and the other ways it may be meant. */
  named: { decoded: string; others: string[] };
  pace: Pace;
  wire: Wire;
  /** Whether its token is still valid. */
  valid(): Promise<boolean>;
  query<S extends z.ZodObject>(schema: S): z.output<S>;
  body<S extends z.ZodType>(schema: S): Promise<z.output<S>>;
}

/** Routes that need a caller; http.ts has the others. */
type ClosedRoute = { [R in RouteName]: (typeof routes)[R]['scope'] extends 'none' ? never : R }[RouteName];
export type Handlers = Record<ClosedRoute, (http: HttpCall) => Promise<Response>>;

export function createRoutes(parts: RoutesParts): Handlers {
  const { dispatch, history, streams, invoker } = parts;
  const callOf = ({ caller, wire, pace }: HttpCall) => ({ caller, signal: wire.signal, pace });

  /** A key may contain percent signs, and some clients put it into a path without encoding them. */
  const sessionOf = async ({ named }: HttpCall, find: (session: string) => Promise<SessionRow>) => {
    try {
      return await find(named.decoded);
    } catch (thrown) {
      if (!(thrown instanceof InterlaneError)) throw thrown;
      for (const key of named.others) {
        const found = await find(key).catch(() => undefined);
        if (found) return found;
      }
      throw thrown;
    }
  };

  const named = (http: HttpCall) => sessionOf(http, (key) => history.find(viewerOf(http.caller), key, http.pace));

  const invoke = async (http: HttpCall, wish: z.output<(typeof routes)['POST /tools/invoke']['body']>): Promise<Response> => {
    const { tool, args, sessionKey, idempotencyKey } = wish;
    if (!invoker.knows(tool)) {
      const [near] = nearest(tool, invoker.names());
      throw new InterlaneError('METHOD_NOT_FOUND', `tool ${JSON.stringify(tool)} does not exist${near ? `; did you mean ${near}?` : ''}`);
    }
    const { ok, result } = await dispatch.do(
      'tools.invoke',
      { tool, args, sessionKey, idempotencyKey: keyOf(http, idempotencyKey) },
      callOf(http),
    );
    if (ok) return json({ ok: true, result } satisfies ToolAnswer);
    const { code = 'TOOL_FAILED', error = 'tool failed' } = (result ?? {}) as { code?: string; error?: string };
    const status = isErrorCode(code) ? errorTable[code].http : 500;
    const type = status === 500 ? 'tool_error' : failureType(status);
    return json({ ok: false, error: { type, code, message: error } } satisfies ToolAnswer, status);
  };

  let document: string | undefined;

  return {
    'GET /openapi.json': async () => {
      document ??= JSON.stringify(openApi(parts.version, parts.table, parts.tools));
      return new Response(document, { headers: { 'content-type': 'application/json' } });
    },
    'GET /metrics': async ({ caller }) => {
      requireEverything(caller, 'metrics count the work of sessions of every level, so they need');
      const { type, body } = await parts.metrics.text();
      return new Response(body, { headers: { 'content-type': type } });
    },

    'GET /sessions': async (http) => json(await dispatch.do('sessions.list', http.query(routes['GET /sessions'].query), callOf(http))),
    'GET /sessions/{key}/history': async (http) => {
      const { caller, headers } = http;
      const asked = () => http.query(routes['GET /sessions/{key}/history'].query);
      // Whether the session is there is looked at before what is asked.
      const session = await sessionOf(http, (key) => history.findLife(viewerOf(caller), key, attempt(asked)?.life, http.pace));
      const { follow, life: _, ...wish } = asked();
      const follows = follow ?? headers.get('accept')?.includes('text/event-stream') ?? false;
      // A HEAD has no body, so it gets no stream.
      if (!follows || http.method === 'HEAD')
        return new Response(await history.page(viewerOf(caller), session, wish, http.pace), {
          headers: { 'content-type': 'application/json' },
        });
      if (wish.cursor !== undefined)
        throw new InterlaneError('INVALID_REQUEST', 'cursor leads to older messages and follow to newer ones; ask for one of them');
      if (session.current === 0)
        throw new InterlaneError(
          'INVALID_REQUEST',
          `life ${session.life} of session ${JSON.stringify(session.key)} has ended, so it cannot be followed; leave follow out`,
        );
      const stream = streams.start(caller, http.wire);
      // The stream ends with its token from here on; a token that ended a moment before fails this check.
      if (await http.valid())
        history.follow(viewerOf(caller), session.key, wish, headers.get('last-event-id') || undefined, stream, http.pace);
      else stream.end();
      return new Response(stream.body, {
        headers: { 'content-type': 'text/event-stream; charset=utf-8', 'x-accel-buffering': 'no', connection: 'close' },
      });
    },
    'GET /sessions/{key}/lives': async (http) => {
      const { key } = await named(http);
      const wish = http.query(routes['GET /sessions/{key}/lives'].query);
      return json(await dispatch.do('sessions.lives', { key, ...wish }, callOf(http)));
    },
    'POST /sessions/{key}/messages': async (http) => {
      const session = await named(http);
      const { query, body } = routes['POST /sessions/{key}/messages'];
      const { wait } = http.query(query);
      const said = await http.body(body);
      const idempotencyKey = keyOf(http, said.idempotencyKey) ?? parts.newId();
      const started = await dispatch.do('chat.send', { ...said, sessionKey: session.key, idempotencyKey }, callOf(http));
      if (wait === undefined) return json(started, 202);
      const answer = await dispatch.doRead('agent.wait', { runId: started.runId, timeoutMs: wait * 1000 }, callOf(http));
      return json(answer, answer.status === 'timeout' ? 202 : 200);
    },

    'GET /runs/{id}': async (http) => {
      const runId = http.named.decoded;
      const now = await dispatch.doRead('agent.wait', { runId, timeoutMs: 0 }, callOf(http));
      const { wait = 0 } = http.query(routes['GET /runs/{id}'].query);
      return json(
        wait > 0 && now.status === 'timeout' ? await dispatch.doRead('agent.wait', { runId, timeoutMs: wait * 1000 }, callOf(http)) : now,
      );
    },

    'GET /deliveries': async (http) =>
      json(await dispatch.do('deliveries.list', http.query(routes['GET /deliveries'].query), callOf(http))),
    'POST /deliveries/{id}/resend': async (http) => {
      const body = await http.body(routes['POST /deliveries/{id}/resend'].body);
      return json(await dispatch.do('deliveries.resend', { ...body, deliveryId: http.named.decoded }, callOf(http)));
    },
    'POST /deliveries/{id}/settle': async (http) => {
      const body = await http.body(routes['POST /deliveries/{id}/settle'].body);
      return json(await dispatch.do('deliveries.settle', { ...body, deliveryId: http.named.decoded }, callOf(http)));
    },

    'GET /feed': async (http) => json(await dispatch.do('feed.read', http.query(routes['GET /feed'].query), callOf(http))),
    'POST /sessions/{key}/read': async (http) => {
      const session = await named(http);
      const body = await http.body(routes['POST /sessions/{key}/read'].body);
      return json(await dispatch.do('sessions.markRead', { ...body, key: session.key }, callOf(http)));
    },

    'POST /tools/invoke': async (http) => invoke(http, await http.body(routes['POST /tools/invoke'].body)),
    'POST /tools/{name}': async (http) => {
      const { query, body } = routes['POST /tools/{name}'];
      return invoke(http, { ...http.query(query), tool: http.named.decoded, args: await http.body(body) });
    },
  };
}

function keyOf({ headers }: HttpCall, inBody: string | undefined): string | undefined {
  const inHeader = headers.get('idempotency-key') ?? undefined;
  if (inHeader !== undefined && inBody !== undefined && inHeader !== inBody)
    throw new InterlaneError('INVALID_REQUEST', 'idempotencyKey is given twice and differs; leave the header or the field out');
  return inHeader ?? inBody;
}

function attempt<R>(work: () => R): R | undefined {
  try {
    return work();
  } catch {
    return undefined;
  }
}

function json(value: unknown, status = 200): Response {
  return new Response(answerText(value, 'this request'), { status, headers: { 'content-type': 'application/json' } });
}
