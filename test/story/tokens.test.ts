// Tokens: what a connection asks for, how long a token works, and what ends with its session.
import { describe, expect, it } from 'vitest';
import { testGateway } from '../harness/gateway.ts';
import { Wire } from '../harness/socket.ts';

const hour = 3_600_000;
const open = () => testGateway({ listen: true });

describe('requested scopes', () => {
  it.each([
    [undefined, 'operator.admin', ['operator.admin']],
    [['operator.read'], 'operator.admin', ['operator.read']],
    [['operator.read', 'operator.write'], 'operator.admin', ['operator.write']],
    [['operator.admin', 'operator.approvals'], 'operator.read', ['operator.read']],
    [['operator.approvals'], 'operator.admin', []],
    [[], 'operator.admin', []],
  ] as const)('%j of a token with %s give %j', async (scopes, own, given) => {
    const gw = await open();
    const token = await gw.token('one', { scopes: [own] });
    const wire = await Wire.open(gw.port);
    expect(await wire.hello(token, scopes === undefined ? {} : { scopes })).toMatchObject({ auth: { scopes: given } });
    const allowed = given.some((scope) => scope !== 'operator.read');
    const creation = wire.call('sessions.create', { key: 'agent:main:new' });
    if (allowed) expect(await creation).toMatchObject({ ok: true });
    else await expect(creation).rejects.toMatchObject({ details: { code: 'MISSING_SCOPE' } });
  });
});

describe('a token that expires', () => {
  it('ends on every transport when its time is over, and its name is free again', async () => {
    const gw = await open();
    const { token, view } = await gw.call('tokens.create', { name: 'brief', scopes: ['operator.write'], expiresInSeconds: 7_200 });
    expect(view.expiresAt).toBe(gw.now() + 2 * hour);
    const wire = await Wire.connect(gw.port, token);
    const stream = await gw.sse('/sessions/main/history?follow=1', { token });
    // Time passes in a leap, so that no ping is left unanswered.
    gw.clock.jump(2 * hour - 1_000);
    expect(await wire.call('health')).toMatchObject({ ok: true });
    await gw.clock.advance(1_000);
    expect(await wire.closed).toEqual({ code: 1008, reason: 'token expired' });
    await stream.rest();
    expect((await gw.http('/sessions', { token })).status).toBe(401);
    expect((await gw.call('tokens.list')).tokens.map(({ name }) => name)).not.toContain('brief');
    // A new secret would be dead, too.
    await expect(gw.call('tokens.rotate', { name: 'brief' })).rejects.toMatchObject({
      code: 'TOKEN_NOT_FOUND',
      message: expect.stringContaining('expired'),
    });
    await gw.token('brief');
  });

  it('leaves nothing that it has read to the next token of its name', async () => {
    const gw = await open();
    await gw.tell('agent:main:main', 'hello');
    const unread = async (token: string) =>
      (await gw.call('sessions.list', { includeUnread: true }, token)).sessions.find(({ key }) => key === 'agent:main:main')!.unreadCount;
    const brief = { scopes: ['operator.write'] as ['operator.write'], expiresInSeconds: 60 };
    const first = await gw.token('brief', brief);
    await gw.call('sessions.markRead', { key: 'main' }, first);
    expect(await unread(first)).toBe(0);
    const low = await gw.token('low', { scopes: ['operator.write'], level: 'PUBLIC' });
    await gw.tell('agent:main:high', 'secret', { taint: 3 });
    await expect(gw.call('sessions.markRead', { key: 'agent:main:high' }, low)).rejects.toMatchObject({ code: 'SESSION_NOT_FOUND' });
    await gw.clock.advance(60_000);
    expect(await unread(await gw.token('brief', brief))).toBe(2);
  });

  it('is refused by its time, also before the timer of its end, and looked at each hour', async () => {
    const gw = await open();
    const token = await gw.token('brief', { scopes: ['operator.write'], expiresInSeconds: 7_200 });
    const wire = await Wire.connect(gw.port, token);
    gw.clock.setForward(3 * hour); // no timer notices
    expect((await gw.post('/sessions/main/messages', { message: 'x' }, { token })).status).toBe(401);
    expect((await gw.http('/sessions', { token })).status).toBe(401);
    expect(await gw.clock.passing(wire.closed)).toMatchObject({ reason: 'token expired' });
  });

  it('ends a call over MCP that waits', async () => {
    const gw = await open();
    const brief = await gw.token('brief', { scopes: ['operator.admin'], expiresInSeconds: 10 });
    const { token } = await gw.call('guests.join', { name: 'fable' }, brief);
    const guest = await gw.mcp(token);
    const asleep = gw.clock.fallsAsleep(25_000);
    const inbox = guest.inbox();
    await asleep;
    await gw.clock.advance(10_000);
    expect(await inbox).toMatchObject({ isError: true, code: 'UNAUTHORIZED' });
  });

  it('gives no token that outlives it: by making, joining, rotating or signing in', async () => {
    const gw = await open();
    await gw.token('lasting', { scopes: ['operator.read'] });
    const brief = await gw.token('brief', { scopes: ['operator.admin'], expiresInSeconds: 3_600 });
    const end = gw.now() + hour;
    const create = (more: object) => gw.call('tokens.create', { name: 'made', ...more }, brief);
    await expect(create({ expiresInSeconds: 3_601 })).rejects.toMatchObject({ code: 'MISSING_SCOPE' });
    expect((await create({})).view.expiresAt).toBe(end);
    await expect(gw.call('tokens.rotate', { name: 'lasting' }, brief)).rejects.toMatchObject({ code: 'MISSING_SCOPE' });
    await gw.call('guests.join', { name: 'fable' }, brief);
    const { url } = await gw.call('tokens.signIn', {}, brief);
    const signed = await fetch(url, { redirect: 'manual' });
    expect(signed.headers.get('set-cookie')).toContain('Max-Age=3600');
    const expiries = new Map(
      (await gw.call('tokens.list')).tokens.map((one) => [one.kind === 'browser' ? 'browser' : one.name, one.expiresAt]),
    );
    expect([expiries.get('guest:main:fable'), expiries.get('browser')]).toEqual([end, end]);
  });
});

describe('the token of a session', () => {
  it('ends when the session is deleted, and does not work for another session with the same key', async () => {
    const gw = await open();
    const key = 'agent:main:project';
    await gw.call('sessions.create', { key });
    const token = await gw.token('bound', { sessionKey: key });
    const wire = await Wire.connect(gw.port, token);
    await gw.call('sessions.delete', { key });
    expect(await wire.closed).toEqual({ code: 1008, reason: 'token ended' });
    await gw.call('sessions.create', { key });
    expect((await gw.post('/tools/session_status', {}, { token })).status).toBe(401);
    expect((await gw.call('tokens.list')).tokens.map(({ name }) => name)).not.toContain('bound');
  });

  it('stays when the session is reset or archived', async () => {
    const gw = await open();
    const key = 'agent:main:project';
    await gw.call('sessions.create', { key });
    const token = await gw.token('bound', { sessionKey: key });
    await gw.call('sessions.reset', { key });
    expect((await gw.post('/tools/session_status', {}, { token })).status).toBe(200);
  });
});

it('the cookie of a browser has the name of the port, so gateways beside each other do not sign each other out', async () => {
  const gw = await open();
  const signed = await fetch(gw.server.signInLink(), { redirect: 'manual' });
  const [cookie] = signed.headers.get('set-cookie')!.split(';');
  expect(cookie).toMatch(new RegExp(`^interlane-${gw.port}=il_`));
  const as = (name: string) => gw.http('/sessions', { token: '', headers: { cookie: `${name}=${cookie!.split('=')[1]}` } });
  expect((await as(`interlane-${gw.port}`)).status).toBe(200);
  expect((await as('interlane')).status).toBe(401);
  expect((await as(`interlane-${gw.port + 1}`)).status).toBe(401);
});
