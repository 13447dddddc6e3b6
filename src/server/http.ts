// The HTTP door: probes, sign-in, and the same methods as the websocket for whoever would rather ask than stay connected.
import { Hono } from 'hono';
import { secureHeaders } from 'hono/secure-headers';
import { InterlaneError } from '../errors.ts';
import { cookieName } from './access.ts';
import type { Auth } from './auth.ts';
import { httpFailure } from './failure.ts';

export interface HttpParts {
  auth: Auth;
  /** What failed inside, for the operator; never for the client. */
  report(what: string, error: unknown): void;
  ready(): boolean;
}

export type Env = { Bindings: { remoteAddress: string } };

export function createHttp(parts: HttpParts): Hono<Env> {
  const app = new Hono<Env>();
  app.use(secureHeaders({ contentSecurityPolicy: { defaultSrc: ["'self'"], frameAncestors: ["'none'"] } }));
  app.onError((thrown, c) => {
    if (!(thrown instanceof InterlaneError)) parts.report(`${c.req.method} request`, thrown);
    const { status, body } = httpFailure(thrown);
    return c.json(body, status);
  });
  app.notFound((c) => c.json({ ok: false, error: { type: 'not_found', code: 'ROUTE_NOT_FOUND', message: 'there is nothing here' } }, 404));

  app.get('/healthz', (c) => c.text('ok'));
  app.get('/readyz', (c) => (parts.ready() ? c.text('ready') : c.text('not ready', 503)));
  app.get('/signin', async (c) => {
    const signed = await parts.auth.redeem(c.req.query('code') ?? '');
    if (!signed)
      return c.html(page('This link was used already or is too old.', 'Run <code>npx interlane token sign-in</code> for a new one.'), 403);
    c.header('set-cookie', `${cookieName}=${signed.token}; Path=/; HttpOnly; SameSite=Strict; Max-Age=${signed.maxAgeSeconds}`);
    c.header('cache-control', 'no-store');
    return c.redirect('/', 303);
  });
  return app;
}

/** A page of two sentences, until there is a control UI. */
export function page(title: string, text: string): string {
  return `<!doctype html><html lang="en"><meta charset="utf-8"><title>Interlane</title><h1>${title}</h1><p>${text}</p></html>`;
}
