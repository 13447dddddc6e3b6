// The gateway over HTTP, through a real socket: what each route answers, to whom, and in which order it looks.
import { describe, expect, it, vi } from 'vitest';
import { z } from 'zod';
import { routes } from '../../src/protocol/http.ts';
import { adminToken, door, rpc, tokenFor, type Answer } from './http-door.ts';
import { gates, say, type ScriptText } from './stage.ts';

// Nothing here depends on how long it takes; a machine with other work to do may take its time.
vi.setConfig({ testTimeout: 30_000, hookTimeout: 30_000 });

const main = '/sessions/main/history';
const seqs = ({ json }: Answer) => (json.messages as { __openclaw: { seq: number } }[]).map((message) => message.__openclaw.seq);
/** An answer holds what the table says, and nothing else. */
const fits = (schema: { parse(value: unknown): unknown }, { json }: Answer) => expect(schema.parse(json)).toEqual(json);

describe('history', () => {
  it('comes in pages from the end backwards, oldest first in each, until there is no more', async () => {
    const stage = await door().open();
    for (const text of ['a', 'b', 'c', 'd', 'e']) await stage.tell('main', text);
    const pages: number[][] = [];
    for (let cursor = ''; ;) {
      const page = await stage.ask(`${main}?limit=4${cursor}`);
      fits(routes['GET /sessions/{key}/history'].answers[200], page);
      expect(page.json.items).toEqual(page.json.messages);
      pages.push(seqs(page));
      expect(page.json.hasMore).toBe(page.json.nextCursor !== undefined);
      if (!page.json.hasMore) break;
      cursor = `&cursor=${page.json.nextCursor}`;
    }
    expect(pages).toEqual([
      [7, 8, 9, 10],
      [3, 4, 5, 6],
      [1, 2],
    ]);
    expect(seqs(await stage.ask(`${main}?limit=100000`))).toHaveLength(10);
  });

  it('knows a cursor of another life, and says so instead of leading astray', async () => {
    const stage = await door().open();
    await stage.tell('main', 'a');
    const { nextCursor } = (await stage.ask(`${main}?limit=1`)).json;
    await stage.gateway.engine.reset('agent:main:main');
    const { status, json } = await stage.ask(`${main}?cursor=${nextCursor}`);
    expect([status, json.error.code]).toEqual([409, 'SESSION_CHANGED']);
  });

  it('leaves results of tools out unless they are asked for', async () => {
    const script: ScriptText = [{ steps: [{ calls: [{ tool: 'agents_list', args: {} }] }, { say: 'seen' }] }];
    const stage = await door().open({}, script);
    await stage.tell('main', 'look');
    expect(seqs(await stage.ask(main))).toEqual([1, 2, 4]);
    expect(seqs(await stage.ask(`${main}?includeTools=1`))).toEqual([1, 2, 3, 4]);
  });

  it('finds a session by its key, encoded or as it is, by a short form and by its id', async () => {
    const stage = await door().open({ session: { dmScope: 'per-peer' } });
    await say(stage.gateway, 'hello', 'a/b %2f? é');
    await stage.settled();
    const [{ key, sessionId }] = (await stage.ask('/sessions?search=direct')).json.sessions;
    expect(key).toContain('direct:');
    for (const name of [encodeURIComponent(key), key.replaceAll('?', '%3F'), sessionId, encodeURIComponent(sessionId)]) {
      const { status, json } = await stage.ask(`/sessions/${name}/history`);
      expect([name, status, json.sessionKey]).toEqual([name, 200, key]);
    }
    expect((await stage.ask('/sessions/agent:main:main/history')).json.sessionKey).toBe('agent:main:main');
    expect((await stage.ask(main)).json.sessionKey).toBe('agent:main:main');
  });
});

describe('a request is looked at in this order', () => {
  it.each([
    ['the method first, before anyone is asked who they are', 'DELETE', '/sessions/nobody/history?limit=0', '', 405, 'method_not_allowed'],
    ['also where a wider route would fit', 'GET', '/tools/invoke', '', 405, 'method_not_allowed'],
    ['then who calls', 'GET', '/sessions/nobody/history?limit=0', '', 401, 'unauthorized'],
    ['what does not exist is no secret', 'GET', '/nothing/here', '', 404, 'not_found'],
    ['then whether it is there', 'GET', '/sessions/nobody/history?limit=0', adminToken, 404, 'not_found'],
    ['and then what is asked of it', 'GET', '/sessions/main/history?limit=0', adminToken, 400, 'invalid_request_error'],
    ['text is no number', 'GET', '/sessions/main/history?limit=ten', adminToken, 400, 'invalid_request_error'],
    ['what is not known is refused', 'GET', '/sessions/main/history?limits=1', adminToken, 400, 'invalid_request_error'],
    ['a path that cannot be decoded', 'GET', '/sessions/%E0%A4%A/history', adminToken, 400, 'invalid_request_error'],
    ['a run that is not there', 'GET', '/runs/none?wait=x', adminToken, 404, 'not_found'],
    ['a word that is not in the list', 'GET', '/sessions?kinds=main,nonsense', adminToken, 400, 'invalid_request_error'],
  ])('%s: %s %s', async (_, method, path, token, status, type) => {
    const stage = await door().open();
    const answer = await stage.ask(path, { method, token });
    expect([answer.status, answer.json.error.type]).toEqual([status, type]);
    if (status === 405) expect(answer.headers.get('allow')).toMatch(/^(GET, HEAD|POST)$/);
  });
});

describe('who calls', () => {
  it('is asked for a token, and told nothing else', async () => {
    const stage = await door().open();
    for (const token of ['', 'wrong']) {
      const { status, json, headers } = await stage.ask('/sessions', { token });
      expect([status, json, headers.get('www-authenticate')]).toEqual([
        401,
        { ok: false, error: { message: 'Unauthorized', type: 'unauthorized', code: 'UNAUTHORIZED' } },
        'Bearer',
      ]);
    }
  });

  it('may guess ten times a minute; a right token is never refused for it', async () => {
    const stage = await door().open();
    const guess = async () => (await stage.ask('/sessions', { token: 'wrong' })).status;
    for (let i = 0; i < 10; i++) expect(await guess()).toBe(401);
    const refused = await stage.ask('/sessions', { token: 'wrong' });
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '60']);
    expect((await stage.ask('/sessions')).status).toBe(200);
    stage.clock.advance(60_000);
    expect(await guess()).toBe(401);
  });

  it('may do what the scopes of its token say', async () => {
    const stage = await door().open();
    const reader = await tokenFor(stage, 'reader', { scopes: ['operator.read'] });
    const bound = await tokenFor(stage, 'bound', { sessionKey: 'main' });
    const body = { message: 'hi' };
    expect((await stage.ask('/sessions', { token: reader })).status).toBe(200);
    expect((await stage.post('/sessions/main/messages', body, { token: reader })).json.error.code).toBe('MISSING_SCOPE');
    for (const path of ['/sessions', main, '/metrics', '/runs/x']) expect((await stage.ask(path, { token: bound })).status).toBe(403);
    expect((await stage.post('/sessions/main/messages', body, { token: bound })).status).toBe(403);
  });

  it('sees nothing above the level of its token, as if it were not there', async () => {
    const stage = await door().open({ classification: { channels: { loopback: 'CONFIDENTIAL' } }, session: { dmScope: 'per-peer' } });
    const { runId } = await say(stage.gateway, 'secret');
    await stage.settled();
    const low = await tokenFor(stage, 'low', { level: 'PUBLIC', scopes: ['operator.write'] });
    const hidden = '/sessions/agent:main:direct:you';
    expect((await stage.ask(`${hidden}/history`)).status).toBe(200);
    expect((await stage.ask('/sessions', { token: low })).json.count).toBe(1);
    const answers = [
      await stage.ask(`${hidden}/history`, { token: low }),
      await stage.ask(`${hidden}/history?follow=1`, { token: low }),
      await stage.post(`${hidden}/messages`, { message: 'hi' }, { token: low }),
      await stage.ask(`/runs/${runId}`, { token: low }),
    ];
    expect(answers.map(({ status }) => status)).toEqual([404, 404, 404, 404]);
  });

  it('may be a browser that has signed in: it reads, and acts only from our own page', async () => {
    const stage = await door().open();
    expect((await stage.ask('/', { token: '' })).text).toContain('sign-in');
    const path = stage.gateway.server!.signInUrl.slice(stage.url.length);
    const signed = await stage.ask(path, { token: '' });
    expect([signed.status, signed.headers.get('location')]).toEqual([303, '/']);
    const setCookie = signed.headers.get('set-cookie')!;
    expect(setCookie).toMatch(/; Path=\/; HttpOnly; SameSite=Strict;/);
    const cookie = setCookie.split(';')[0]!;
    expect((await stage.ask(path, { token: '' })).status).toBe(403);

    const browser = { token: '', headers: { cookie } };
    expect((await stage.ask('/', browser)).text).toMatch(/Signed in as browser-[a-z0-9]+\./);
    expect((await stage.ask('/sessions', browser)).status).toBe(200);
    const send = (headers: Record<string, string>) => stage.post('/sessions/main/messages', { message: 'hi' }, { token: '', headers });
    expect((await send({ cookie })).status).toBe(401);
    expect((await send({ cookie, origin: 'http://elsewhere.example' })).status).toBe(403);
    expect((await send({ cookie, origin: stage.url })).status).toBe(202);
    expect((await send({ cookie, authorization: 'Bearer wrong', origin: stage.url })).status).toBe(401);
  });
});

describe('a message', () => {
  it('is safe when it is answered, and its run can be asked for, also after a restart', async () => {
    const stage = await door().open();
    const sent = await stage.post('/sessions/main/messages', { message: 'hi' });
    expect(sent.status).toBe(202);
    fits(routes['POST /sessions/{key}/messages'].answers[202], sent);
    const ended = await stage.ask(`/runs/${sent.json.runId}?wait=60`);
    fits(routes['GET /runs/{id}'].answers[200], ended);
    expect(ended.json).toMatchObject({ status: 'ok', terminalReply: { text: 're: hi' } });
    await stage.close();
    await stage.open();
    expect((await stage.ask(`/runs/${sent.json.runId}`)).json).toEqual(ended.json);
  });

  it('is done once for one idempotency key, in the header or in the body', async () => {
    const stage = await door().open();
    const path = '/sessions/main/messages?wait=60';
    const first = await stage.post(path, { message: 'hi', idempotencyKey: 'k' });
    const again = await stage.post(path, { message: 'hi' }, { headers: { 'idempotency-key': 'k' } });
    expect(again.json).toEqual(first.json);
    expect(seqs(await stage.ask(main))).toEqual([1, 2]);
    expect((await stage.post(path, { message: 'other', idempotencyKey: 'k' })).json.error.code).toBe('IDEMPOTENCY_CONFLICT');
    expect((await stage.post(path, { message: 'hi', idempotencyKey: 'k' }, { headers: { 'idempotency-key': 'l' } })).status).toBe(400);
  });

  it('is answered with its run: ended, or still under way when the time is over', async () => {
    const stops = gates();
    const script: ScriptText = [
      { when: 'stop', steps: [{ calls: [{ tool: 'gate', args: { name: 'a' } }] }, { say: 'done' }] },
      { steps: [{ fail: 'no' }] },
    ];
    const stage = await door().open({}, script, { tools: [stops.tool] });
    const failed = await stage.post('/sessions/main/messages?wait=60', { message: 'x' });
    expect([failed.status, failed.json.status]).toEqual([200, 'error']);
    const slow = await stage.post('/sessions/main/messages?wait=0', { message: 'stop' });
    expect([slow.status, slow.json.status]).toEqual([202, 'timeout']);
    const waiting = stage.ask(`/runs/${slow.json.runId}?wait=60`);
    await stops.entered('a');
    stops.open('a');
    expect((await waiting).json).toMatchObject({ state: 'ok', terminalReply: { text: 'done' } });
  });

  it('that waits is answered when the gateway stops: the run goes on later', async () => {
    const stops = gates();
    const script: ScriptText = [{ steps: [{ calls: [{ tool: 'gate', args: { name: 'a' } }] }, { say: 'done' }] }];
    const stage = await door().open({}, script, { tools: [stops.tool] });
    const waiting = stage.post('/sessions/main/messages?wait=3600', { message: 'stop' });
    await stops.entered('a');
    await stage.close();
    expect((await waiting).json).toMatchObject({ status: 'timeout', state: 'running' });
  });

  it.each([
    ['not JSON', 400, '{"message":'],
    ['nothing', 400, ''],
    ['no object', 400, '[]'],
    ['blank', 400, '{"message":"  "}'],
    ['a field that nobody knows', 400, '{"message":"hi","from":"owner"}'],
    ['no text', 400, new Uint8Array([0x7b, 0xff, 0x7d])],
    ['too much', 413, `{"message":"${'x'.repeat(5 * 1024 * 1024)}"}`],
    ['too much, of a length not told', 413, new Blob([`{"message":"${'x'.repeat(5 * 1024 * 1024)}"}`]).stream()],
  ])('is refused as data: %s', async (_, status, body) => {
    const stage = await door().open();
    // oxlint-disable-next-line typescript/no-explicit-any -- `duplex` is needed for a stream and missing in the types
    const init: any = { method: 'POST', body, duplex: 'half' };
    const answer = await stage.ask('/sessions/main/messages', init);
    expect([answer.status, answer.json.ok]).toEqual([status, false]);
    expect(answer.text).not.toMatch(/\n {4}at |node_modules|\.ts:/);
    expect(stage.warnings).toEqual([]);
  });
});

describe('tools', () => {
  it('are called as the session that a token is bound to, and as no other', async () => {
    const stage = await door().open({
      agents: { list: [{ id: 'ana', default: true }, { id: 'bo' }] },
      tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } },
    });
    const token = await tokenFor(stage, 'ana', { sessionKey: 'main' });
    const listed = await stage.post('/tools/sessions_list', {}, { token });
    expect(listed.json).toMatchObject({ ok: true, result: { count: 2 } });
    fits(routes['POST /tools/{name}'].answers[200], listed);
    const send = { tool: 'sessions_send', args: { sessionKey: 'agent:bo:main', message: 'hi', timeoutSeconds: 0 } };
    const sent = await stage.post('/tools/invoke', send, { token });
    expect(sent.json).toMatchObject({ ok: true, result: { status: 'accepted' } });
    const [first] = (await stage.ask('/sessions/agent:bo:main/history')).json.messages;
    await stage.settled();
    expect(first ?? (await stage.ask('/sessions/agent:bo:main/history')).json.messages[0]).toMatchObject({
      provenance: { sourceSession: 'agent:ana:main' },
    });
    expect((await stage.post('/tools/invoke', { ...send, sessionKey: 'agent:bo:main' }, { token })).json.error.code).toBe('MISSING_SCOPE');
  });

  it('that only read are there for operators, through the eyes of a session', async () => {
    const stage = await door().open();
    expect((await stage.post('/tools/sessions_list?sessionKey=main', {})).json).toMatchObject({ ok: true, result: { count: 1 } });
    const acting = await stage.post('/tools/sessions_send', { sessionKey: 'x', message: 'y' });
    expect([acting.status, acting.json.ok, acting.json.error.type]).toEqual([403, false, 'forbidden']);
    const wrong = await stage.post('/tools/invoke', { tool: 'sessions_list', args: { limit: 'x' } });
    expect([wrong.status, wrong.json.error.type]).toEqual([400, 'invalid_request_error']);
    fits(routes['POST /tools/invoke'].answers[200], wrong);
    const missing = await stage.post('/tools/sessions_lst', {});
    expect([missing.status, missing.json.error.type, missing.json.error.message]).toEqual([
      404,
      'not_found',
      'tool "sessions_lst" does not exist; did you mean sessions_list?',
    ]);
    expect((await stage.post('/tools/sessions_list?sessionKey=nobody', {})).status).toBe(404);
  });
});

describe('what is said of the gateway', () => {
  it('is little to strangers', async () => {
    const stage = await door().open();
    expect((await stage.ask('/healthz', { token: '' })).text).toBe('ok');
    expect((await stage.ask('/readyz', { token: '' })).text).toBe('ready');
    expect((await stage.ask('/metrics', { token: '' })).status).toBe(401);
    expect((await stage.ask('/openapi.json', { token: '' })).status).toBe(401);
  });

  it('is a list of sessions, filtered as the method does', async () => {
    const stage = await door().open({ session: { dmScope: 'per-peer' } });
    await say(stage.gateway, 'hello');
    await stage.settled();
    const all = await stage.ask('/sessions?includeLastMessage=1');
    fits(routes['GET /sessions'].answers[200], all);
    expect(all.json.sessions.map(({ key }: { key: string }) => key)).toEqual(['agent:main:direct:you', 'agent:main:main']);
    expect((await stage.ask('/sessions?kinds=main,cron&limit=5')).json.sessions).toHaveLength(1);
    const page = (await stage.ask('/sessions?limit=1')).json;
    expect((await stage.ask(`/sessions?limit=1&cursor=${page.nextCursor}`)).json.sessions).toHaveLength(1);
    expect(all.json.sessions).toEqual(
      ((await rpc(stage, 'sessions.list', { includeLastMessage: true })) as unknown as Answer['json']).sessions,
    );
  });

  it('is a document that real answers fit', async () => {
    const stage = await door().open();
    const { paths, components } = JSON.parse((await stage.ask('/openapi.json')).text.replaceAll('#/components/schemas/', '#/$defs/'));
    const fitsDocument = ({ status, json }: Answer, path: string, method = 'get') => {
      const { responses } = paths[path][method];
      const { schema } = (responses[status] ?? responses.default).content['application/json'];
      z.fromJSONSchema({ ...schema, $defs: components.schemas }).parse(json);
      expect(() => z.fromJSONSchema({ ...schema, $defs: components.schemas }).parse({})).toThrow(z.ZodError);
    };
    const sent = await stage.post('/sessions/main/messages?wait=60', { message: 'hi' });
    fitsDocument(sent, '/sessions/{key}/messages', 'post');
    fitsDocument(await stage.ask(`/runs/${sent.json.runId}`), '/runs/{id}');
    fitsDocument(await stage.ask(main), '/sessions/{key}/history');
    fitsDocument(await stage.ask('/sessions'), '/sessions');
    fitsDocument(await stage.post('/tools/sessions_list', {}), '/tools/sessions_list', 'post');
    fitsDocument(await stage.ask('/sessions/nobody/history'), '/sessions/{key}/history');
    fitsDocument(await stage.ask('/sessions', { token: '' }), '/sessions');
  });

  it('is counted, with no word of who talks', async () => {
    const stage = await door().open({ session: { dmScope: 'per-peer' } });
    await say(stage.gateway, 'hello', 'somebody');
    await stage.tell('main', 'hi');
    await stage.settled();
    const { text, headers } = await stage.ask('/metrics');
    expect(headers.get('content-type')).toContain('text/plain');
    for (const line of [
      'interlane_runs_total{class="main",outcome="ok"} 2',
      'interlane_lane_wait_seconds_count{class="main"} 2',
      'interlane_queue_depth{class="main"} 0',
      'interlane_runs{state="running"} 0',
      'interlane_deliveries_total{state="sent"} 1',
      'interlane_decisions_total{action="deliver",effect="ALLOW"} 2',
      'interlane_event_lag 0',
      'interlane_connections{door="ws"} 0',
    ])
      expect(text).toContain(line);
    expect(text).toMatch(/interlane_store_commit_seconds_count [1-9]/);
    expect(text).toMatch(/interlane_memory_bytes\{kind="resident"\} [1-9]/);
    expect(text).not.toMatch(/agent:|somebody/);
  });
});
