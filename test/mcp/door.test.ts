// The MCP door over real sockets: who is let in, as whom, with which tools; what a refusal says; calls that are made twice.
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { defineTool } from '../../src/tools/define.ts';
import { adminToken, testGateway, type ConfigText, type TestGateway, type TestOptions } from '../harness/gateway.ts';

const open = (config: ConfigText = {}, more: TestOptions = {}) => testGateway({ config, listen: true, ...more });
const main = 'agent:main:main';

const post = (stage: TestGateway, headers: Record<string, string>) =>
  fetch(`${stage.url}/mcp`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', accept: 'application/json, text/event-stream', ...headers },
    body: JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'ping' }),
  });

const bound = async (stage: TestGateway, name: string, sessionKey: string) =>
  (await stage.call('tokens.create', { name, sessionKey })).token;

describe('the MCP door', () => {
  it('lets in only tokens that are bound to a session, and says how to make one', async () => {
    const stage = await open();
    const answers = [];
    for (const authorization of ['', 'Bearer wrong', `Bearer ${adminToken}`, `Basic ${adminToken}`]) {
      const answer = await post(stage, authorization === '' ? {} : { authorization });
      const { error } = (await answer.json()) as { error: { code: string; message: string } };
      answers.push([answer.status, error.code, answer.headers.get('www-authenticate')]);
      if (answer.status === 403) expect(error.message).toMatch(/interlane join .*interlane token create /);
    }
    expect(answers).toEqual([
      [401, 'UNAUTHORIZED', 'Bearer'],
      [401, 'UNAUTHORIZED', 'Bearer'],
      [403, 'MISSING_SCOPE', null],
      [401, 'UNAUTHORIZED', 'Bearer'],
    ]);
  });

  it('takes no cookie, answers no other site, and slows down who guesses', async () => {
    const stage = await open();
    const authorization = `Bearer ${await bound(stage, 'm', main)}`;
    expect((await post(stage, { cookie: `interlane=${authorization.slice(7)}` })).status).toBe(401);
    expect((await post(stage, { authorization, origin: 'https://evil.example' })).status).toBe(403);
    expect((await post(stage, { authorization })).status).toBe(200);
    const statuses = [];
    for (let guess = 0; guess < 11; guess++) statuses.push((await post(stage, { authorization: `Bearer ${guess}` })).status);
    expect(statuses).toEqual([...Array.from({ length: 10 }, () => 401), 429]);
    expect((await post(stage, { authorization })).status).toBe(200);
  });

  it('makes the caller the session of its token: a main session has no inbox, and its turns are its agent’s', async () => {
    const stage = await open({ tools: { sessions: { visibility: 'agent' } } });
    const [one, guest] = [await stage.mcp(await bound(stage, 'm', main)), await stage.call('guests.join', { name: 'g' })];
    expect(one.client.getInstructions()).toContain(main);
    expect((await one.client.listTools()).tools.map((tool) => tool.name)).not.toContain('inbox');
    const two = await stage.mcp(guest.token);
    expect((await one.call('session_status'))['key']).toBe(main);
    expect((await two.call('session_status'))['key']).toBe('agent:main:guest:g');
    await expect(one.call('inbox')).rejects.toThrow('inbox');
  });

  it('gives a tool’s own refusal as an error the model can read', async () => {
    const stage = await open();
    const client = await stage.mcp(await bound(stage, 'm', main));
    expect(await client.call('sessions_history', {})).toMatchObject({ isError: true, status: 'error' });
    expect(await client.call('sessions_list', { limit: -1 })).toMatchObject({ isError: true, error: expect.stringContaining('limit') });
    expect(await client.call('sessions_send', { sessionKey: 'nobody', message: 'x' })).toMatchObject({ code: 'SESSION_NOT_FOUND' });
  });

  it('makes a call with the same idempotency key once, and one without a key each time', async () => {
    const stage = await open();
    const { token } = await stage.call('guests.join', { name: 'g', see: 'agent' });
    const client = await stage.mcp(token);
    const send = (key?: string) =>
      client.call('sessions_send', { sessionKey: 'main', message: 'Hello', timeoutSeconds: 0 }, key === undefined ? {} : { key });
    const [a, b, c, d] = [await send('k'), await send('k'), await send(), await send()];
    expect(b['runId']).toBe(a['runId']);
    expect(new Set([a['runId'], c['runId'], d['runId']]).size).toBe(3);
  });

  it('refuses at the next request when the token is revoked, and when its session is deleted, also after the key is there again', async () => {
    const stage = await open();
    const { token } = await stage.call('guests.join', { name: 'g' });
    const other = await stage.call('guests.join', { name: 'h' });
    const status = async (secret: string) => (await post(stage, { authorization: `Bearer ${secret}` })).status;
    expect([await status(token), await status(other.token)]).toEqual([200, 200]);
    await stage.call('sessions.delete', { key: 'agent:main:guest:g' });
    await stage.call('tokens.revoke', { name: 'guest:main:h' });
    expect([await status(token), await status(other.token)]).toEqual([401, 401]);
    await stage.call('guests.join', { name: 'g' });
    expect(await status(token)).toBe(401);
  });

  it('cuts a stream that has nothing to answer when its token ends', async () => {
    const stage = await open();
    const { token } = await stage.call('guests.join', { name: 'g' });
    const { client } = await stage.mcp(token);
    const news = await client.listen({ toolsListChanged: true });
    await stage.call('tokens.revoke', { name: 'guest:main:g' });
    await stage.clock.advance(500);
    expect(await news.closed).not.toBe('local');
  });

  it('raises the level of a session to what its tools have told it', async () => {
    const secret = defineTool({
      name: 'vault',
      description: 'tells a secret',
      effect: 'pure',
      params: z.strictObject({}),
      run: () => Promise.resolve({ value: { word: 'plum' } }),
    });
    const stage = await open(
      { classification: { tools: { vault: 'CONFIDENTIAL' } }, agents: { list: [{ id: 'main', tools: { allow: ['*'] } }] } },
      { tools: [secret] },
    );
    const { token, key } = await stage.call('guests.join', { name: 'g', see: 'agent' });
    const client = await stage.mcp(token);
    expect(await client.call('sessions_send', { sessionKey: 'main', message: 'Hello' })).toMatchObject({ status: 'ok' });
    expect(await client.call('vault')).toMatchObject({ word: 'plum' });
    expect(await client.call('sessions_send', { sessionKey: 'main', message: 'plum' })).toMatchObject({
      isError: true,
      code: 'WRITE_DOWN',
    });
    expect((await stage.call('sessions.describe', { key })).session!.taint).toBe('CONFIDENTIAL');
  });
});
