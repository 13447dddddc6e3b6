// The handlers of the routes: a request → an operation → a response.
import type { z } from 'zod';
import { nearest } from '../nearest.ts';
import { errorTable, InterlaneError, isErrorCode } from '../errors.ts';
import { routes, type Route, type RouteName } from '../protocol/http.ts';
import type { ToolAnswer } from '../protocol/operations/tools.ts';
import type { Tool } from '../tools/define.ts';
import type { Invoker } from '../tools/invoke.ts';
import { viewerOf, type Caller } from './rights.ts';
import type { Dispatch } from './dispatch.ts';
import { failureType } from './failure.ts';
import type { History } from './history.ts';
import type { Metrics } from '../observe/metrics.ts';
import { openApi } from './openapi.ts';
import type { Streams, Wire } from './sse.ts';

export interface RoutesParts {
  dispatch: Dispatch;
  history: History;
  streams: Streams;
  metrics: Metrics;
  /** What the document describes. */
  table: Readonly<Record<string, Route>>;
  /** Our own; the document has them one by one. */
  tools: readonly Tool[];
  invoker: Invoker;
  version: string;
  newId(): string;
}

/** One request of a caller who is known and may. */
export interface Ask {
  caller: Caller;
  method: string;
  headers: Headers;
  /** What stands in the path where the table has a name: decoded, and the other ways it may be meant. */
  named: { decoded: string; others: string[] };
  wire: Wire;
  /** Whether the secret it came with is still good. */
  valid(): Promise<boolean>;
  query<S extends z.ZodObject>(schema: S): z.output<S>;
  body<S extends z.ZodType>(schema: S): Promise<z.output<S>>;
}

/** Those that need to know who calls; the others are in http.ts. */
type ClosedRoute = { [R in RouteName]: (typeof routes)[R]['scope'] extends 'none' ? never : R }[RouteName];
export type Handlers = Record<ClosedRoute, (ask: Ask) => Promise<Response>>;

export function createRoutes(parts: RoutesParts): Handlers {
  const { dispatch, history, streams, invoker } = parts;
  const callOf = ({ caller, wire }: Ask) => ({ caller, signal: wire.signal });

  /** A key may hold percent signs of its own; who put it into a path as it is means it as it is. */
  const sessionOf = async ({ caller, named }: Ask) => {
    try {
      return await history.find(viewerOf(caller), named.decoded);
    } catch (thrown) {
      if (!(thrown instanceof InterlaneError)) throw thrown;
      for (const key of named.others) {
        const found = await history.find(viewerOf(caller), key).catch(() => undefined);
        if (found) return found;
      }
      throw thrown;
    }
  };

  const invoke = async (ask: Ask, wish: z.output<(typeof routes)['POST /tools/invoke']['body']>): Promise<Response> => {
    const { tool, args, sessionKey, idempotencyKey } = wish;
    if (!invoker.knows(tool)) {
      const [near] = nearest(tool, invoker.names());
      throw new InterlaneError('METHOD_NOT_FOUND', `tool ${JSON.stringify(tool)} does not exist${near ? `; did you mean ${near}?` : ''}`);
    }
    const { ok, result } = await dispatch.do(
      'tools.invoke',
      { tool, args, sessionKey, idempotencyKey: keyOf(ask, idempotencyKey) },
      callOf(ask),
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
    'GET /metrics': async () => {
      const { type, body } = await parts.metrics.text();
      return new Response(body, { headers: { 'content-type': type } });
    },

    'GET /sessions': async (ask) => json(await dispatch.do('sessions.list', ask.query(routes['GET /sessions'].query), callOf(ask))),
    'GET /sessions/{key}/history': async (ask) => {
      const { caller, headers } = ask;
      const session = await sessionOf(ask);
      const { follow, ...wish } = ask.query(routes['GET /sessions/{key}/history'].query);
      const follows = follow ?? headers.get('accept')?.includes('text/event-stream') ?? false;
      // Nobody would ever read the stream of a HEAD.
      if (!follows || ask.method === 'HEAD')
        return new Response(await history.page(viewerOf(caller), session, wish), { headers: { 'content-type': 'application/json' } });
      if (wish.cursor !== undefined)
        throw new InterlaneError('INVALID_REQUEST', 'cursor leads to older messages and follow to newer ones; ask for one of them');
      const stream = streams.start(caller, ask.wire);
      // From here on the stream ends with its token; one that ended a moment before is noticed now.
      if (await ask.valid()) history.follow(viewerOf(caller), session.key, wish, headers.get('last-event-id') || undefined, stream);
      else stream.end();
      return new Response(stream.body, {
        headers: { 'content-type': 'text/event-stream; charset=utf-8', 'x-accel-buffering': 'no', connection: 'close' },
      });
    },
    'POST /sessions/{key}/messages': async (ask) => {
      const session = await sessionOf(ask);
      const { query, body } = routes['POST /sessions/{key}/messages'];
      const { wait } = ask.query(query);
      const said = await ask.body(body);
      const idempotencyKey = keyOf(ask, said.idempotencyKey) ?? parts.newId();
      const started = await dispatch.do('chat.send', { ...said, sessionKey: session.key, idempotencyKey }, callOf(ask));
      if (wait === undefined) return json(started, 202);
      const answer = await dispatch.do('agent.wait', { runId: started.runId, timeoutMs: wait * 1000 }, callOf(ask));
      return json(answer, answer.status === 'timeout' ? 202 : 200);
    },

    'GET /runs/{id}': async (ask) => {
      const runId = ask.named.decoded;
      const now = await dispatch.do('agent.wait', { runId, timeoutMs: 0 }, callOf(ask));
      const { wait = 0 } = ask.query(routes['GET /runs/{id}'].query);
      return json(
        wait > 0 && now.status === 'timeout' ? await dispatch.do('agent.wait', { runId, timeoutMs: wait * 1000 }, callOf(ask)) : now,
      );
    },

    'POST /tools/invoke': async (ask) => invoke(ask, await ask.body(routes['POST /tools/invoke'].body)),
    'POST /tools/{name}': async (ask) => {
      const { query, body } = routes['POST /tools/{name}'];
      return invoke(ask, { ...ask.query(query), tool: ask.named.decoded, args: await ask.body(body) });
    },
  };
}

function keyOf({ headers }: Ask, inBody: string | undefined): string | undefined {
  const inHeader = headers.get('idempotency-key') ?? undefined;
  if (inHeader !== undefined && inBody !== undefined && inHeader !== inBody)
    throw new InterlaneError('INVALID_REQUEST', 'idempotencyKey is given twice and differs; leave the header or the field out');
  return inHeader ?? inBody;
}

function json(value: unknown, status = 200): Response {
  return Response.json(value, { status });
}
