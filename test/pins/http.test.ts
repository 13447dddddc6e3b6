// What every HTTP route answers, compared with corpus/http.txt; its document with corpus/openapi.txt.
import { expect, it } from 'vitest';
import { Recorder } from './recorder.ts';
import { adminToken, opened } from './stage.ts';

it('the corpus of HTTP', async () => {
  const all = await opened();
  const { corpus, url, call, say, gw } = all;
  const seen = new Set<string>();
  corpus.give('h1', 'h2', 'h3', 'h4', 'h5', 't1');
  const headersShown = ['content-type', 'www-authenticate', 'retry-after', 'location', 'allow', 'cache-control', 'set-cookie'];
  const ask = async (request: string, more: { token?: string; body?: unknown; headers?: Record<string, string>; route?: string } = {}) => {
    const { token = adminToken, body, headers = {}, route } = more;
    const [method, path] = request.split(' ') as [string, string];
    const response = await fetch(url + path, {
      method,
      redirect: 'manual',
      headers: { ...(token === '' ? {} : { authorization: `Bearer ${token}` }), ...headers },
      ...(body === undefined ? {} : { body: typeof body === 'string' ? body : JSON.stringify(body) }),
    });
    const text = await response.text();
    const type = response.headers.get('content-type') ?? '';
    const shown = Object.fromEntries(
      headersShown.flatMap((name) => (response.headers.has(name) ? [[name, response.headers.get(name)]] : [])),
    );
    const isJson = type.startsWith('application/json') && text !== '';
    const content = isJson
      ? corpus.json(JSON.parse(text))
      : type.startsWith('text/html')
        ? '<prose>'
        : text === ''
          ? ''
          : corpus.text(text);
    const who = token === adminToken ? 'admin' : token === '' ? 'nobody' : corpus.text(token);
    const asked = `${who} ${request}${body === undefined ? '' : ` ${typeof body === 'string' ? body.slice(0, 40) : corpus.json(body)}`}`;
    const extra = Object.keys(headers).length > 0 ? ` ${corpus.json(headers)}` : '';
    corpus.line(asked + extra, `${response.status} ${corpus.json(shown)}`, ...(content === '' ? [] : [content]));
    if (response.status < 400 && route !== undefined) seen.add(route);
    return { status: response.status, text, json: isJson ? JSON.parse(text) : undefined, headers: response.headers };
  };
  await call('sessions.create', { key: 'agent:main:project', label: 'Project' });
  await say('agent:main:project', 'hello', 'h1');
  await say('agent:main:project', 'status', 'h2');

  corpus.heading('open to all');
  await ask('GET /', { token: '', route: 'GET /' });
  await ask('GET /healthz', { token: '', route: 'GET /healthz' });
  await ask('GET /readyz', { token: '', route: 'GET /readyz' });
  await ask('HEAD /healthz', { token: '' });
  await ask('POST /healthz', { token: '' });
  await ask('GET /nowhere', { token: '' });
  const { url: link } = await call('tokens.signIn', {});
  const code = new URL(link).search;
  await ask(`HEAD /signin${code}`, { token: '' });
  const signedIn = await ask(`GET /signin${code}`, { token: '', route: 'GET /signin' });
  await ask(`GET /signin${code}`, { token: '' });
  const cookie = signedIn.headers.get('set-cookie')!.split(';')[0]!;
  await ask('GET /sessions?limit=1', { token: '', headers: { cookie } });
  await ask('POST /sessions/main/messages', { token: '', headers: { cookie }, body: { message: 'x' } });
  await ask('GET /sessions', { token: '' });
  await ask('GET /sessions', { token: 'wrong' });
  await ask('GET /sessions', { headers: { origin: 'https://evil.example' } });

  corpus.heading('sessions');
  const { json: list } = await ask('GET /sessions?limit=1&includeLastMessage=1', { route: 'GET /sessions' });
  await ask(`GET /sessions?limit=1&cursor=${list.nextCursor}`);
  await ask('GET /sessions?kinds=other&search=proj&agentId=main');
  await ask('GET /sessions?limit=x');
  await ask('GET /sessions?nope=1');
  await ask('DELETE /sessions');
  const { json: history } = await ask('GET /sessions/agent:main:project/history?limit=2&includeTools=1', {
    route: 'GET /sessions/{key}/history',
  });
  await ask(`GET /sessions/agent:main:project/history?limit=2&includeTools=1&cursor=${history.nextCursor}`);
  await ask('GET /sessions/agent%3Amain%3Aproject/history');
  await ask('GET /sessions/main/lives?limit=1', { route: 'GET /sessions/{key}/lives' });
  await ask('GET /sessions/main/history?life=9');
  await ask('GET /sessions/main/history?limit=0');
  await ask('GET /sessions/nowhere/history');
  await ask('GET /sessions/%zz/history');
  await ask('GET /sessions/main/history?cursor=nonsense');
  await ask('GET /sessions/main/history?follow=1&cursor=1');

  corpus.heading('messages and runs');
  const messages = 'POST /sessions/{key}/messages';
  await ask('POST /sessions/main/messages?wait=60', { body: { message: 'hello', idempotencyKey: 'h3' }, route: messages });
  await ask('POST /sessions/main/messages', { body: { message: 'hello' }, headers: { 'idempotency-key': 'h3' } });
  await ask('POST /sessions/main/messages', { body: { message: 'other' }, headers: { 'idempotency-key': 'h3' } });
  await ask('POST /sessions/main/messages', { body: { message: 'x', idempotencyKey: 'h4' }, headers: { 'idempotency-key': 'h5' } });
  await ask('POST /sessions/main/messages', { body: { message: '' } });
  await ask('POST /sessions/main/messages', { body: {} });
  await ask('POST /sessions/main/messages', { body: 'not json' });
  await ask('POST /sessions/main/messages?wait=x', { body: { message: 'x' } });
  await ask('POST /sessions/nowhere/messages', { body: { message: 'x' } });
  await ask('POST /sessions/main/messages?wait=60', { body: { message: 'fail', idempotencyKey: 'h4' } });
  await ask('POST /sessions/agent:main:project/messages', { body: { message: 'gate', idempotencyKey: 'h5' } });
  await gw.stops.entered('gate');
  await ask('GET /runs/h5', { route: 'GET /runs/{id}' });
  gw.stops.open('gate');
  await ask('GET /runs/h5?wait=60');
  await ask('GET /runs/h4');
  await ask('GET /runs/nothing');
  await ask('GET /runs/h4?wait=-1');
  await ask('PUT /runs/h4');

  await ask('GET /feed?limit=2', { route: 'GET /feed' });
  await ask('GET /feed?limit=0');
  await ask('POST /sessions/main/read', { body: { seq: 1 }, route: 'POST /sessions/{key}/read' });
  await ask('POST /sessions/nowhere/read', { body: {} });

  corpus.heading('deliveries');
  await call('send', { to: 'ann', message: 'hi', idempotencyKey: 'd1' });
  await gw.finished();
  await gw.rows.addDeliveries('p', 2, 'unknown');
  await ask('GET /deliveries?states=unknown&limit=1', { route: 'GET /deliveries' });
  await ask('GET /deliveries?states=bogus');
  await ask('POST /deliveries/p1/resend', { body: { attempts: 0 }, route: 'POST /deliveries/{id}/resend' });
  await gw.finished();
  await ask('POST /deliveries/p1/resend', { body: {} });
  await ask('POST /deliveries/p2/settle', { body: { as: 'sent' }, route: 'POST /deliveries/{id}/settle' });
  await ask('POST /deliveries/nobody/settle', { body: { as: 'sent' } });

  corpus.heading('tools');
  const { token: reader } = await call('tokens.create', { name: 'reader', scopes: ['operator.read'], level: 'INTERNAL' });
  const { token: bound } = await call('tokens.create', { name: 'bound', sessionKey: 'agent:main:project' });
  const { token: writer } = await call('tokens.create', { name: 'writer', scopes: ['operator.write'] });
  await ask('POST /tools/invoke', { body: { tool: 'sessions_list', args: { limit: 1 } }, route: 'POST /tools/invoke' });
  await ask('POST /tools/agents_list', { body: {}, route: 'POST /tools/{name}' });
  await ask('POST /tools/session_status?sessionKey=agent:main:project', { body: {} });
  await ask('POST /tools/no_such_tool', { body: {} });
  await ask('POST /tools/sessions_send', { body: { sessionKey: 'main', message: 'x' } });
  await ask('POST /tools/sessions_list', { body: { limit: -1 } });
  await ask('POST /tools/sessions_list', { body: [] });
  const send = { sessionKey: 'agent:main:main', message: 'Which?', timeoutSeconds: 30 };
  await ask('POST /tools/sessions_send', { token: bound, body: send, headers: { 'idempotency-key': 't1' } });
  await ask('POST /tools/sessions_send', { token: bound, body: send, headers: { 'idempotency-key': 't1' } });
  await gw.finished();
  await ask('POST /tools/sessions_send', { token: bound, body: { sessionKey: 'nowhere', message: 'x' } });
  await ask('POST /tools/session_status', { token: bound, body: {} });
  await ask('POST /tools/summarize', { token: bound, body: {} });
  await ask('POST /tools/inbox', { token: bound, body: {} });
  corpus.heading('rights');
  for (const request of ['GET /openapi.json', 'GET /metrics', 'GET /sessions', 'GET /sessions/main/history', 'GET /runs/h4']) {
    const [method, path] = request.split(' ') as [string, string];
    for (const [name, token] of Object.entries({ reader, bound, writer, nobody: '' })) {
      const response = await fetch(url + path, { method, headers: token === '' ? {} : { authorization: `Bearer ${token}` } });
      corpus.line(`${name} ${request}`, `${response.status}`);
      await response.text();
    }
  }
  for (const [name, token] of Object.entries({ reader, bound, writer, nobody: '' })) {
    const response = await fetch(`${url}/sessions/main/messages`, {
      method: 'POST',
      headers: token === '' ? {} : { authorization: `Bearer ${token}` },
      body: JSON.stringify({ message: 'x' }),
    });
    const body = (await response.json()) as { error?: { code: string } };
    corpus.line(`${name} POST /sessions/main/messages`, `${response.status} ${body.error?.code ?? ''}`);
  }
  await gw.finished();
  for (let guess = 0; guess < 10; guess++) await fetch(`${url}/sessions`, { headers: { authorization: 'Bearer wrong' } });
  await ask('GET /sessions', { token: 'wrong again' });
  gw.clock.jump(60_000); // until then the next try of this address waits

  corpus.heading('what is counted: names and labels');
  const metrics = await (await fetch(`${url}/metrics`, { headers: { authorization: `Bearer ${adminToken}` } })).text();
  seen.add('GET /metrics');
  const types = metrics.split('\n').filter((line) => line.startsWith('# TYPE'));
  corpus.line('admin GET /metrics', ...types);

  const openapi = new Recorder();
  const document = await (await fetch(`${url}/openapi.json`, { headers: { authorization: `Bearer ${adminToken}` } })).text();
  seen.add('GET /openapi.json');
  const { paths, components, ...rest } = JSON.parse(document) as Record<string, object>;
  openapi.line('the document', rest);
  for (const [path, methods] of Object.entries(paths!))
    for (const [method, one] of Object.entries(methods as object)) openapi.line(`${method.toUpperCase()} ${path}`, one);
  for (const [kind, parts] of Object.entries(components!))
    for (const [name, one] of Object.entries(parts as object)) openapi.line(`${kind} ${name}`, one);
  expect(openapi.lines).toEqual(openapi.recorded('openapi.txt'));

  const named = (path: string) => (/^\/tools\/(?!invoke)/.test(path) ? '/tools/{name}' : path);
  const documented = Object.entries(paths!).flatMap(([path, methods]) =>
    Object.keys(methods as object).map((method) => `${method.toUpperCase()} ${named(path)}`),
  );
  expect(documented.filter((route) => !seen.has(route))).toEqual([]);
  expect(corpus.lines).toEqual(corpus.recorded('http.txt'));
});
