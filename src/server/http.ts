// HTTP: method → caller → right → handler of the route. Probes, sign-in, and the operations that have routes.
import { Hono, type Context } from 'hono';
import { secureHeaders } from 'hono/secure-headers';
import { InterlaneError } from '../errors.ts';
import { frameLimits } from '../protocol/frame.ts';
import type { Route, RouteName } from '../protocol/http.ts';
import { bearerOf, cookieName, cookieOf } from './access.ts';
import type { Auth } from './auth.ts';
import { frameLimitOf, requireScope, type Caller } from './rights.ts';
import { readBody } from './body.ts';
import { httpFailure } from './failure.ts';
import { readQuery } from './query.ts';
import type { HttpCall, Handlers } from './routes.ts';
import type { TokenClients } from './token-clients.ts';
import type { Report } from '../warn.ts';

export interface HttpParts {
  auth: Auth;
  /** The routes to serve: all, or some of them. */
  routes: Readonly<Record<string, Route>>;
  handlers: Handlers;
  clients: TokenClients;
  /** Reports an internal failure to the operator; the client never sees it. */
  report: Report;
  newId(): string;
  ready(): boolean;
}

/** The connection of a request. */
export interface Remote {
  remoteAddress: string;
  /** Our own port. */
  localPort: number | undefined;
  /** Ends it at once. */
  drop(): void;
  /** It has a token. */
  identified(): void;
}

type Env = { Bindings: Remote };
type HttpContext = Context<Env>;

export interface Http {
  fetch(request: Request, remote: Remote): Response | Promise<Response>;
  /** Answers waiting requests with the present state, and begins nothing new. */
  close(): void;
}

export function createHttp(parts: HttpParts): Http {
  const { auth, routes } = parts;
  const stopping = new AbortController();
  const app = new Hono<Env>();
  app.use(secureHeaders({ strictTransportSecurity: false, contentSecurityPolicy: { defaultSrc: ["'self'"], frameAncestors: ["'none'"] } }));
  app.onError((thrown, c) => {
    if (thrown instanceof InterlaneError) return failed(c, thrown);
    // The client can name this id to the operator, whose log has it.
    const request = parts.newId();
    parts.report(`${c.req.method} request`, thrown, { request });
    c.header('x-request-id', request);
    return failed(c, thrown);
  });
  app.notFound((c) => failed(c, new InterlaneError('ROUTE_NOT_FOUND', 'there is nothing here')));

  const pages: Record<Exclude<RouteName, keyof Handlers>, (c: HttpContext) => Response | Promise<Response>> = {
    'GET /': async (c) => {
      const secret = secretOf(c);
      const caller = secret === undefined ? 'wrong' : await auth.identify(secret, c.env.remoteAddress);
      if (caller === 'too many') return tooMany(c);
      if (caller === 'wrong') return c.html(page('Interlane', 'Run <code>npx interlane token sign-in</code> and open the link it prints.'));
      const links = ['/sessions', '/openapi.json', '/metrics', '/readyz'].map((path) => `<a href="${path}">${path}</a>`);
      return c.html(page('Interlane', `Signed in as ${caller.name}. ${links.join(' ')}`));
    },
    'GET /healthz': (c) => c.text('ok'),
    'GET /readyz': (c) => (parts.ready() ? c.text('ready') : c.text('not ready', 503)),
    'GET /signin': async (c) => {
      // A preview or a scanner must not use the link up.
      if (c.req.method === 'HEAD') return c.body(null, 200);
      const signed = await auth.redeem(c.req.query('code') ?? '');
      if (!signed)
        return c.html(
          page('This link was used already or is too old.', 'Run <code>npx interlane token sign-in</code> for a new one.'),
          403,
        );
      c.header(
        'set-cookie',
        `${cookieName(c.env.localPort)}=${signed.token}; Path=/; HttpOnly; SameSite=Strict; Max-Age=${signed.maxAgeSeconds}`,
      );
      return c.redirect('/', 303);
    },
  };

  const serve = async (c: HttpContext, name: keyof Handlers, written: string): Promise<Response> => {
    const { scope } = routes[name]!;
    const caller = await identify(c, auth);
    if (caller instanceof Response) return caller;
    if (scope !== 'session' && scope !== 'none') requireScope(caller, scope, name);
    const { raw } = c.req;
    // The request ends with its token.
    const over = new AbortController();
    const undo = auth.onEnd((tokenId) => {
      if (tokenId === caller.tokenId) over.abort(ended);
    });
    // A gateway that stops ends waits, which then answer with the present state; reads end only when nobody wants their result.
    const unwanted = AbortSignal.any([raw.signal, over.signal]);
    const signal = AbortSignal.any([unwanted, stopping.signal]);
    const pace = parts.clients.of(caller.tokenId).pace(unwanted);
    const own = frameLimitOf(caller);
    const call: HttpCall = {
      caller,
      method: raw.method,
      headers: raw.headers,
      named: readings(written),
      pace,
      wire: { signal, drop: () => c.env.drop() },
      valid: async () => (await auth.check(secretOf(c))) !== undefined,
      query: (schema) => readQuery(schema, new URL(raw.url).searchParams),
      body: (schema) => readBody(schema, raw, name.startsWith('POST /tools/') ? Math.max(own, frameLimits.tools) : own, pace),
    };
    try {
      await pace.pause();
      const response = await parts.handlers[name](call);
      if (auth.isOver(caller)) throw ended;
      return response;
    } finally {
      undo();
    }
  };

  const byPath = Map.groupBy(Object.keys(routes) as RouteName[], (name) => name.split(' ')[1]!);
  for (const [path, names] of byPath) {
    const pattern = path.replaceAll(/\{(\w+)\}/g, ':$1{.+}');
    const place = new RegExp(`^${path.replaceAll('.', '\\.').replace(/\{\w+\}/, '(.+)')}$`);
    for (const name of names) {
      app.on(name.split(' ')[0]!, pattern, async (c) => {
        const response =
          name in pages ? await pages[name as keyof typeof pages](c) : await serve(c, name as keyof Handlers, placed(c, place));
        response.headers.set('cache-control', 'no-store');
        return response;
      });
    }
    const allowed = names.map((name) => name.split(' ')[0]!).flatMap((method) => (method === 'GET' ? ['GET', 'HEAD'] : [method]));
    app.all(pattern, (c) => {
      c.header('allow', allowed.join(', '));
      return failed(c, new InterlaneError('METHOD_NOT_ALLOWED', `${c.req.method} is not possible here; use ${allowed.join(' or ')}`));
    });
  }

  return {
    fetch: (request, remote) => app.fetch(request, remote),
    close: () => stopping.abort(new InterlaneError('UNAVAILABLE', 'gateway is stopping; try again in a moment')),
  };
}

function failed(c: HttpContext, thrown: unknown): Response {
  const { status, body } = httpFailure(thrown);
  return c.json(body, status);
}

/** A bearer token counts before a cookie, also when it is wrong. */
function secretOf(c: HttpContext): string | undefined {
  const authorization = c.req.header('authorization');
  return authorization === undefined ? cookieOf(c.req.header('cookie'), c.env.localPort) : bearerOf(authorization);
}

async function identify(c: HttpContext, auth: Auth): Promise<Caller | Response> {
  const secret = secretOf(c);
  const caller = secret === undefined ? 'wrong' : await auth.identify(secret, c.env.remoteAddress);
  const refused = (message: string) =>
    c.json({ ok: false, error: { message, type: 'unauthorized', code: 'UNAUTHORIZED' } }, 401, { 'www-authenticate': 'Bearer' });
  if (caller === 'too many') return tooMany(c);
  if (caller === 'wrong') return refused('Unauthorized');
  c.env.identified();
  // A browser sends the cookie whichever page asks, so a request that acts must have an Origin. The port has already refused every
  // origin but ours.
  const acts = c.req.method !== 'GET' && c.req.method !== 'HEAD';
  if (acts && c.req.header('authorization') === undefined && c.req.header('origin') === undefined)
    return refused('Unauthorized: a cookie acts only with an Origin header; use a bearer token');
  return caller;
}

function tooMany(c: HttpContext): Response {
  const message = 'Too many wrong tokens from this address; wait a minute';
  return c.json({ ok: false, error: { message, type: 'rate_limited', code: 'AUTH_RATE_LIMITED' } }, 429, { 'retry-after': '60' });
}

const ended = new InterlaneError('UNAUTHORIZED', 'token ended while this was under way');

function placed(c: HttpContext, place: RegExp): string {
  return place.exec(new URL(c.req.url).pathname)?.[1] ?? '';
}

/** How the part may be meant: encoded; encoded by a client that leaves percent signs alone; or not encoded. */
function readings(written: string): HttpCall['named'] {
  try {
    const decoded = decodeURIComponent(written);
    const others = new Set([decodeURIComponent(written.replaceAll('%25', '%2525')), written]);
    others.delete(decoded);
    return { decoded, others: [...others] };
  } catch {
    throw new InterlaneError('INVALID_REQUEST', 'path is not well encoded; write a % of a key as %25');
  }
}

/** A page of two sentences, until there is a control UI. */
function page(title: string, text: string): string {
  return `<!doctype html><html lang="en"><meta charset="utf-8"><title>Interlane</title><h1>${title}</h1><p>${text}</p></html>`;
}
