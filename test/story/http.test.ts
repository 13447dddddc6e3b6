// The gateway over HTTP, through a real socket: what each route answers, to whom, and in which order it looks.
import { describe, expect, it, vi } from 'vitest';
import { z } from 'zod';
import { routes } from '../../src/protocol/http.ts';
import { adminToken, testGateway, type ConfigText, type ScriptText } from '../harness/gateway.ts';
import type { Answer } from '../harness/http.ts';

// Nothing here depends on how long it takes; a machine with other work to do may take its time.
vi.setConfig({ testTimeout: 30_000, hookTimeout: 30_000 });

const open = (config: ConfigText = {}, script?: ScriptText) =>
  testGateway({ config, listen: true, stops: true, ...(script ? { script } : {}) });
const main = '/sessions/main/history';
const seqs = ({ json }: Answer) => (json.messages as { __openclaw: { seq: number } }[]).map((message) => message.__openclaw.seq);
/** An answer holds what the table says, and nothing else. */
const fits = (schema: { parse(value: unknown): unknown }, { json }: Answer) => expect(schema.parse(json)).toEqual(json);

describe('history', () => {
  it('comes in pages from the end backwards, oldest first in each, until there is no more', async () => {
    const stage = await open();
    for (const text of ['a', 'b', 'c', 'd', 'e']) await stage.write('main', text);
    const pages: number[][] = [];
    for (let cursor = ''; ;) {
      const page = await stage.http(`${main}?limit=4${cursor}`);
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
    expect(seqs(await stage.http(`${main}?limit=100000`))).toHaveLength(10);
  });

  it('knows a cursor of another life, and says so instead of leading astray', async () => {
    const stage = await open();
    await stage.write('main', 'a');
    const { nextCursor } = (await stage.http(`${main}?limit=1`)).json;
    await stage.reset('agent:main:main');
    const { status, json } = await stage.http(`${main}?cursor=${nextCursor}`);
    expect([status, json.error.code]).toEqual([409, 'SESSION_CHANGED']);
  });

  it('leaves results of tools out unless they are asked for', async () => {
    const script: ScriptText = [{ steps: [{ calls: [{ tool: 'agents_list', args: {} }] }, { say: 'seen' }] }];
    const stage = await open({}, script);
    await stage.write('main', 'look');
    expect(seqs(await stage.http(main))).toEqual([1, 2, 4]);
    expect(seqs(await stage.http(`${main}?includeTools=1`))).toEqual([1, 2, 3, 4]);
  });

  it('finds a session by its key, encoded or as it is, by a short form and by its id', async () => {
    const stage = await open({ session: { dmScope: 'per-peer' } });
    await stage.say('hello', { from: 'a/b %2f? é' });
    await stage.finished();
    const [{ key, sessionId }] = (await stage.http('/sessions?search=direct')).json.sessions;
    expect(key).toContain('direct:');
    for (const name of [encodeURIComponent(key), key.replaceAll('?', '%3F'), sessionId, encodeURIComponent(sessionId)]) {
      const { status, json } = await stage.http(`/sessions/${name}/history`);
      expect([name, status, json.sessionKey]).toEqual([name, 200, key]);
    }
    expect((await stage.http('/sessions/agent:main:main/history')).json.sessionKey).toBe('agent:main:main');
    expect((await stage.http(main)).json.sessionKey).toBe('agent:main:main');
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
    ['a run id that is longer than any', 'GET', `/runs/${'x'.repeat(300)}`, adminToken, 404, 'not_found'],
    ['a word that is not in the list', 'GET', '/sessions?kinds=main,nonsense', adminToken, 400, 'invalid_request_error'],
  ])('%s: %s %s', async (_, method, path, token, status, type) => {
    const stage = await open();
    const answer = await stage.http(path, { method, token });
    expect([answer.status, answer.json.error.type]).toEqual([status, type]);
    if (status === 405) expect(answer.headers.get('allow')).toMatch(/^(GET, HEAD|POST)$/);
  });
});

describe('who calls', () => {
  it('is asked for a token, and told nothing else', async () => {
    const stage = await open();
    for (const token of ['', 'wrong']) {
      const { status, json, headers } = await stage.http('/sessions', { token });
      expect([status, json, headers.get('www-authenticate')]).toEqual([
        401,
        { ok: false, error: { message: 'Unauthorized', type: 'unauthorized', code: 'UNAUTHORIZED' } },
        'Bearer',
      ]);
    }
  });

  it('may guess ten times a minute; a right token is never refused for it', async () => {
    const stage = await open();
    const made = await stage.token('made');
    const guess = async () => (await stage.http('/sessions', { token: 'wrong' })).status;
    for (let i = 0; i < 10; i++) expect(await guess()).toBe(401);
    const refused = await stage.http('/sessions', { token: 'wrong' });
    expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '60']);
    expect((await stage.http('/sessions', { token: made })).status).toBe(200);
    await stage.clock.advance(60_000);
    expect(await guess()).toBe(401);
  });

  it('may do what the scopes of its token say', async () => {
    const stage = await open();
    const reader = await stage.token('reader', { scopes: ['operator.read'] });
    const bound = await stage.token('bound', { sessionKey: 'main' });
    const body = { message: 'hi' };
    expect((await stage.http('/sessions', { token: reader })).status).toBe(200);
    expect((await stage.post('/sessions/main/messages', body, { token: reader })).json.error.code).toBe('MISSING_SCOPE');
    for (const path of ['/sessions', main, '/metrics', '/runs/x']) expect((await stage.http(path, { token: bound })).status).toBe(403);
    expect((await stage.post('/sessions/main/messages', body, { token: bound })).status).toBe(403);
  });

  it('sees nothing above the level of its token, as if it were not there', async () => {
    const stage = await open({ classification: { channels: { loopback: 'CONFIDENTIAL' } }, session: { dmScope: 'per-peer' } });
    const runId = await stage.say('secret');
    await stage.finished();
    const low = await stage.token('low', { level: 'PUBLIC', scopes: ['operator.write'] });
    const hidden = '/sessions/agent:main:direct:you';
    expect((await stage.http(`${hidden}/history`)).status).toBe(200);
    expect((await stage.http('/sessions', { token: low })).json.count).toBe(1);
    const answers = [
      await stage.http(`${hidden}/history`, { token: low }),
      await stage.http(`${hidden}/history?follow=1`, { token: low }),
      await stage.post(`${hidden}/messages`, { message: 'hi' }, { token: low }),
      await stage.http(`/runs/${runId}`, { token: low }),
    ];
    expect(answers.map(({ status }) => status)).toEqual([404, 404, 404, 404]);
  });

  it('may be a browser that has signed in: it reads, and acts only from our own page', async () => {
    const stage = await open();
    expect((await stage.http('/', { token: '' })).text).toContain('sign-in');
    const path = stage.server.signInLink().slice(stage.url.length);
    const signed = await stage.http(path, { token: '' });
    expect([signed.status, signed.headers.get('location')]).toEqual([303, '/']);
    const setCookie = signed.headers.get('set-cookie')!;
    expect(setCookie).toMatch(/; Path=\/; HttpOnly; SameSite=Strict;/);
    const cookie = setCookie.split(';')[0]!;
    expect((await stage.http(path, { token: '' })).status).toBe(403);

    const browser = { token: '', headers: { cookie } };
    expect((await stage.http('/', browser)).text).toMatch(/browser-[a-z0-9]+/);
    expect((await stage.http('/sessions', browser)).status).toBe(200);
    const send = (headers: Record<string, string>) => stage.post('/sessions/main/messages', { message: 'hi' }, { token: '', headers });
    expect((await send({ cookie })).status).toBe(401);
    expect((await send({ cookie, origin: 'http://elsewhere.example' })).status).toBe(403);
    expect((await send({ cookie, origin: stage.url })).status).toBe(202);
    expect((await send({ cookie, authorization: 'Bearer wrong', origin: stage.url })).status).toBe(401);
  });
});

describe('a message', () => {
  it('is safe when it is answered, and its run can be asked for, also after a restart', async () => {
    const stage = await open();
    const sent = await stage.post('/sessions/main/messages', { message: 'hi' });
    expect(sent.status).toBe(202);
    fits(routes['POST /sessions/{key}/messages'].answers[202], sent);
    const ended = await stage.http(`/runs/${sent.json.runId}?wait=60`);
    fits(routes['GET /runs/{id}'].answers[200], ended);
    expect(ended.json).toMatchObject({ status: 'ok', terminalReply: { text: 're: hi' } });
    await stage.restart();
    expect((await stage.http(`/runs/${sent.json.runId}`)).json).toEqual(ended.json);
  });

  it('is done once for one idempotency key, in the header or in the body', async () => {
    const stage = await open();
    const path = '/sessions/main/messages?wait=60';
    const first = await stage.post(path, { message: 'hi', idempotencyKey: 'k' });
    const again = await stage.post(path, { message: 'hi' }, { headers: { 'idempotency-key': 'k' } });
    expect(again.json).toEqual(first.json);
    expect(seqs(await stage.http(main))).toEqual([1, 2]);
    expect((await stage.post(path, { message: 'other', idempotencyKey: 'k' })).json.error.code).toBe('IDEMPOTENCY_CONFLICT');
    expect((await stage.post(path, { message: 'hi', idempotencyKey: 'k' }, { headers: { 'idempotency-key': 'l' } })).status).toBe(400);
  });

  it('is answered with its run: ended, or still under way when the time is over', async () => {
    const script: ScriptText = [
      { when: 'stop', steps: [{ calls: [{ tool: 'gate', args: { name: 'a' } }] }, { say: 'done' }] },
      { steps: [{ fail: 'no' }] },
    ];
    const stage = await open({}, script);
    const failed = await stage.post('/sessions/main/messages?wait=60', { message: 'x' });
    expect([failed.status, failed.json.status]).toEqual([200, 'error']);
    const slow = await stage.post('/sessions/main/messages?wait=0', { message: 'stop' });
    expect([slow.status, slow.json.status]).toEqual([202, 'timeout']);
    const waiting = stage.http(`/runs/${slow.json.runId}?wait=60`);
    await stage.stops.entered('a');
    stage.stops.open('a');
    expect((await waiting).json).toMatchObject({ state: 'ok', terminalReply: { text: 'done' } });
  });

  it('that waits is answered when the gateway stops: the run goes on later', async () => {
    const script: ScriptText = [{ steps: [{ calls: [{ tool: 'gate', args: { name: 'a' } }] }, { say: 'done' }] }];
    const stage = await open({}, script);
    const waiting = stage.post('/sessions/main/messages?wait=3600', { message: 'stop' });
    await stage.stops.entered('a');
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
    const stage = await open();
    // oxlint-disable-next-line typescript/no-explicit-any -- `duplex` is needed for a stream and missing in the types
    const init: any = { method: 'POST', body, duplex: 'half', token: await stage.token('writer', { scopes: ['operator.write'] }) };
    const answer = await stage.http('/sessions/main/messages', init);
    expect([answer.status, answer.json.ok]).toEqual([status, false]);
    expect(answer.text).not.toMatch(/\n {4}at |node_modules|\.ts:/);
    expect(stage.warnings).toEqual([]);
  });
});

describe('tools', () => {
  it('are called as the session that a token is bound to, and as no other', async () => {
    const stage = await open({
      agents: { list: [{ id: 'ana', default: true }, { id: 'bo' }] },
      tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } },
    });
    const token = await stage.token('ana', { sessionKey: 'main' });
    const listed = await stage.post('/tools/sessions_list', {}, { token });
    expect(listed.json).toMatchObject({ ok: true, result: { count: 2 } });
    fits(routes['POST /tools/{name}'].answers[200], listed);
    const send = { tool: 'sessions_send', args: { sessionKey: 'agent:bo:main', message: 'hi', timeoutSeconds: 0 } };
    const sent = await stage.post('/tools/invoke', send, { token });
    expect(sent.json).toMatchObject({ ok: true, result: { status: 'accepted' } });
    const [first] = (await stage.http('/sessions/agent:bo:main/history')).json.messages;
    await stage.finished();
    expect(first ?? (await stage.http('/sessions/agent:bo:main/history')).json.messages[0]).toMatchObject({
      provenance: { sourceSession: 'agent:ana:main' },
    });
    expect((await stage.post('/tools/invoke', { ...send, sessionKey: 'agent:bo:main' }, { token })).json.error.code).toBe('MISSING_SCOPE');
  });

  it('that only read are there for operators, through the eyes of a session', async () => {
    const stage = await open();
    expect((await stage.post('/tools/sessions_list?sessionKey=main', {})).json).toMatchObject({ ok: true, result: { count: 1 } });
    const acting = await stage.post('/tools/sessions_send', { sessionKey: 'x', message: 'y' });
    expect([acting.status, acting.json.ok, acting.json.error.type]).toEqual([403, false, 'forbidden']);
    const wrong = await stage.post('/tools/invoke', { tool: 'sessions_list', args: { limit: 'x' } });
    expect([wrong.status, wrong.json.error.type]).toEqual([400, 'invalid_request_error']);
    fits(routes['POST /tools/invoke'].answers[200], wrong);
    const missing = await stage.post('/tools/sessions_lst', {});
    expect([missing.status, missing.json.error.type]).toEqual([404, 'not_found']);
    expect(missing.json.error.message).toContain('sessions_list');
    expect((await stage.post('/tools/sessions_list?sessionKey=nobody', {})).status).toBe(404);
  });
});

describe('what is said of the gateway', () => {
  it('is little to strangers', async () => {
    const stage = await open();
    expect((await stage.http('/healthz', { token: '' })).text).toBe('ok');
    expect((await stage.http('/readyz', { token: '' })).text).toBe('ready');
    expect((await stage.http('/metrics', { token: '' })).status).toBe(401);
    expect((await stage.http('/openapi.json', { token: '' })).status).toBe(401);
  });

  it('is a list of sessions, filtered as the method does', async () => {
    const stage = await open({ session: { dmScope: 'per-peer' } });
    await stage.say('hello');
    await stage.finished();
    const all = await stage.http('/sessions?includeLastMessage=1');
    fits(routes['GET /sessions'].answers[200], all);
    expect(all.json.sessions.map(({ key }: { key: string }) => key)).toEqual(['agent:main:direct:you', 'agent:main:main']);
    expect((await stage.http('/sessions?kinds=main,cron&limit=5')).json.sessions).toHaveLength(1);
    const page = (await stage.http('/sessions?limit=1')).json;
    expect((await stage.http(`/sessions?limit=1&cursor=${page.nextCursor}`)).json.sessions).toHaveLength(1);
    expect(all.json.sessions).toEqual((await stage.call('sessions.list', { includeLastMessage: true })).sessions);
  });

  it('is a document that real answers fit', async () => {
    const stage = await open();
    const { paths, components } = JSON.parse((await stage.http('/openapi.json')).text.replaceAll('#/components/schemas/', '#/$defs/'));
    const fitsDocument = ({ status, json }: Answer, path: string, method = 'get') => {
      const { responses } = paths[path][method];
      const { schema } = (responses[status] ?? responses.default).content['application/json'];
      z.fromJSONSchema({ ...schema, $defs: components.schemas }).parse(json);
      expect(() => z.fromJSONSchema({ ...schema, $defs: components.schemas }).parse({})).toThrow(z.ZodError);
    };
    const sent = await stage.post('/sessions/main/messages?wait=60', { message: 'hi' });
    fitsDocument(sent, '/sessions/{key}/messages', 'post');
    fitsDocument(await stage.http(`/runs/${sent.json.runId}`), '/runs/{id}');
    fitsDocument(await stage.http(main), '/sessions/{key}/history');
    fitsDocument(await stage.http('/sessions'), '/sessions');
    fitsDocument(await stage.post('/tools/sessions_list', {}), '/tools/sessions_list', 'post');
    fitsDocument(await stage.http('/sessions/nobody/history'), '/sessions/{key}/history');
    fitsDocument(await stage.http('/sessions', { token: '' }), '/sessions');
  });

  it('is counted, with no word of who talks', async () => {
    const stage = await open({ session: { dmScope: 'per-peer' } });
    await stage.say('hello', { from: 'somebody' });
    await stage.write('main', 'hi');
    await stage.finished();
    const { text, headers } = await stage.http('/metrics');
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
