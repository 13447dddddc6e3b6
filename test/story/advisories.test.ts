// What went wrong in gateways like this one and was published: each failure has a test here.
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { type OperationName, operations } from '../../src/protocol/operations/all.ts';
import { adminToken, TestGateway, testGateway, type ConfigText, type ScriptText, type TestOptions } from '../harness/gateway.ts';
import { bytes, http, openSocket, upgrading, Wire } from '../harness/socket.ts';

const main = 'agent:main:main';
const echo: ScriptText = [{ steps: [{ say: 'you said {{input}}' }] }];
const open = (config: ConfigText = {}, script = echo, more: TestOptions = {}) =>
  testGateway({ config, script, listen: { token: undefined }, stops: true, ...more });
const missingScope = { code: 'FORBIDDEN', details: { code: 'MISSING_SCOPE' } };
const names = Object.keys(operations) as OperationName[];

async function token(door: TestGateway, wish: { name: string; scopes?: 'operator.read'[]; level?: 'PUBLIC'; sessionKey?: string }) {
  return (await door.call('tokens.create', wish)).token;
}

/** The cookie of a browser that followed a sign-in link. */
async function signIn(door: TestGateway, url: string): Promise<string> {
  const { pathname, search } = new URL(url);
  const { headers } = await http(door.port, `${pathname}${search}`);
  return headers['set-cookie']![0]!.split(';')[0]!;
}

const origin = (door: TestGateway) => `http://127.0.0.1:${door.port}`;

describe('what a client says of itself', () => {
  it('gives it no right: scopes and role come from the token', async () => {
    const door = await open();
    const reader = await token(door, { name: 'reader', scopes: ['operator.read'] });
    const wire = await door.raw();
    const hello = await wire.hello(reader, { role: 'admin', scopes: ['operator.admin', 'operator.write'], permissions: { all: true } });
    expect(hello).toMatchObject({ auth: { role: 'operator', scopes: ['operator.read'] } });
    const { methods: usable } = hello['features'] as { methods: string[] };
    expect(usable.toSorted()).toEqual(names.filter((name) => ['operator.read', 'session'].includes(operations[name].scope)).toSorted());
    for (const name of names.filter((one) => ['operator.write', 'operator.admin'].includes(operations[one].scope)))
      expect(await wire.refusal(name, {})).toMatchObject(missingScope);
    const acting = { tool: 'sessions_send', args: { sessionKey: 'x', message: 'x' } };
    expect(await wire.call('tools.invoke', acting)).toMatchObject({ ok: false, result: { code: 'MISSING_SCOPE' } });
  });

  it('does not make an operator of a token that is bound to a session', async () => {
    const door = await open();
    const bound = await token(door, { name: 'bound', sessionKey: 'main' });
    const wire = await door.raw();
    const hello = await wire.hello(bound, { role: 'operator', scopes: ['operator.admin'] });
    expect(hello).toMatchObject({ auth: { role: 'session', scopes: [] }, features: { methods: ['health', 'tools.invoke'] } });
    for (const name of names.filter((one) => operations[one].scope !== 'session'))
      expect(await wire.refusal(name, {})).toMatchObject(missingScope);
    expect(await wire.call('tools.invoke', { tool: 'session_status' })).toMatchObject({ ok: true, result: { key: main } });
    // And it hears nothing of what operators are told.
    const admin = await Wire.connect(door.port, door.admin);
    const id = admin.ask('agent', { message: 'x', idempotencyKey: 'k' });
    await admin.answer(id, 2);
    await wire.call('health');
    expect(wire.frames.filter(({ type, event }) => type === 'event' && event !== 'connect.challenge')).toEqual([]);
  });
});

describe('a token that has ended', () => {
  it.each(['tokens.revoke', 'tokens.rotate'] as const)('by %s ends its connections and later calls at once', async (method) => {
    const door = await open();
    const admin = await Wire.connect(door.port, door.admin);
    const { token: secret } = await admin.call('tokens.create', { name: 'temp', scopes: ['operator.admin'] });
    const wire = await Wire.connect(door.port, secret);
    const deaf = await Wire.connect(door.port, secret);
    await deaf.call('sessions.subscribe', {});
    // It does not hear that it is over, and goes on talking.
    deaf.socket.pause();
    await admin.call(method, { name: 'temp' });
    deaf.ask('chat.inject', { sessionKey: 'main', message: 'too late' });
    deaf.ask('tokens.create', { name: 'backdoor', scopes: ['operator.admin'] });
    expect(await wire.closed).toEqual({ code: 1008, reason: 'token ended' });
    const heard = deaf.texts.length;
    deaf.socket.resume();
    expect(await deaf.closed).toEqual({ code: 1008, reason: 'token ended' });
    expect(deaf.texts).toHaveLength(heard);
    expect(await admin.call('chat.history', { sessionKey: 'main' })).toMatchObject({ totalMessages: 0 });
    expect((await admin.call('tokens.list')).tokens.map(({ name }) => name)).not.toContain('backdoor');
    await expect(Wire.connect(door.port, secret)).rejects.toMatchObject({ details: { code: 'AUTH_TOKEN_MISMATCH' } });
  });

  it('while its owner is at the door does not get in', async () => {
    const door = await open();
    const admin = await Wire.connect(door.port, door.admin);
    for (let n = 0; n < 30; n++) {
      const { token: secret } = await admin.call('tokens.create', { name: `t${n}`, scopes: ['operator.admin'] });
      const wire = await door.raw();
      const greeting = wire.hello(secret).catch(() => undefined);
      await Promise.all([greeting, admin.call('tokens.revoke', { name: `t${n}` })]);
      expect((await wire.closed).code).toBe(1008);
    }
  });

  it('by its owner is answered before the connection ends, so that the new secret arrives', async () => {
    const door = await open();
    const admin = await Wire.connect(door.port, door.admin);
    const { token: fresh } = await admin.call('tokens.rotate', { name: 'admin' });
    expect(await admin.closed).toEqual({ code: 1008, reason: 'token ended' });
    await expect(Wire.connect(door.port, door.admin)).rejects.toMatchObject({ details: { code: 'AUTH_TOKEN_MISMATCH' } });
    const again = await Wire.connect(door.port, fresh);
    expect(await again.call('tokens.revoke', { name: 'admin' })).toEqual({ revoked: true, name: 'admin' });
    expect(await again.closed).toEqual({ code: 1008, reason: 'token ended' });
  });

  it('is refused also when it is the cookie of a browser', async () => {
    const door = await open();
    const cookie = await signIn(door, door.server.signInLink());
    const browser = await Wire.connect(door.port, undefined, {}, { cookie, origin: origin(door) });
    const admin = await Wire.connect(door.port, door.admin);
    const { tokens } = await admin.call('tokens.list');
    const { name } = tokens.find(({ kind }) => kind === 'browser')!;
    await admin.call('tokens.revoke', { name });
    expect((await browser.closed).code).toBe(1008);
    await expect(Wire.connect(door.port, undefined, {}, { cookie, origin: origin(door) })).rejects.toMatchObject({
      details: { code: 'AUTH_TOKEN_MISMATCH' },
    });
  });

  it('by its time ends its connections too, and not earlier', async () => {
    const door = await open();
    const cookie = await signIn(door, door.server.signInLink());
    const browser = await Wire.connect(door.port, undefined, {}, { cookie, origin: origin(door) });
    const day = 86_400_000;
    // Time passes in leaps, so that no ping is left unanswered.
    door.clock.jump(30 * day - 1_000);
    expect(await browser.call('health')).toMatchObject({ ok: true });
    await door.clock.advance(1_000);
    expect(await browser.closed).toEqual({ code: 1008, reason: 'token expired' });
    await expect(Wire.connect(door.port, undefined, {}, { cookie, origin: origin(door) })).rejects.toMatchObject({
      details: { code: 'AUTH_TOKEN_MISMATCH' },
    });
  });
});

describe('the config', () => {
  it('is changed by no method and no route, and nothing is done before authentication', async () => {
    expect(names.filter((name) => /config|settings|reload|exec|plugin|update/.test(name))).toEqual([]);
    const door = await open();
    const before = readFileSync(join(door.stateDir, 'cli.json'), 'utf8');
    for (const name of names) {
      const wire = await door.raw();
      expect(await wire.refusal(name, { key: 'main', name: 'admin' })).toMatchObject({ details: { code: 'HANDSHAKE_REQUIRED' } });
      expect((await wire.closed).code).toBe(1008);
    }
    for (const path of ['/config', '/api/config', '/settings', '/tools/invoke', '/sessions/main/history', '/rpc'])
      for (const method of ['POST', 'PUT', 'PATCH', 'DELETE']) {
        const { status } = await http(door.port, path, {
          method,
          body: '{"gateway":{"host":"0.0.0.0"}}',
          headers: { 'content-type': 'application/json' },
        });
        expect([401, 404, 405]).toContain(status);
      }
    expect(readFileSync(join(door.stateDir, 'cli.json'), 'utf8')).toBe(before);
    expect(await door.rows.runs()).toEqual([]);
  });
});

describe('a tool that acts', () => {
  it('cannot be called by an operator in the name of a session, nor by one session in the name of another', async () => {
    const door = await open({ tools: { sessions: { visibility: 'all' } } });
    const admin = await Wire.connect(door.port, door.admin);
    await admin.call('sessions.create', { key: 'other' });
    const act = { tool: 'sessions_send', args: { sessionKey: 'agent:main:other', message: 'do it', timeoutSeconds: 0 } };
    for (const sessionKey of [undefined, 'main', 'agent:main:main'])
      expect(await admin.call('tools.invoke', { ...act, ...(sessionKey ? { sessionKey } : {}) })).toMatchObject({
        ok: false,
        result: { code: 'MISSING_SCOPE' },
      });
    const bound = await Wire.connect(door.port, await token(door, { name: 'bound', sessionKey: 'main' }));
    expect(await bound.refusal('tools.invoke', { ...act, sessionKey: 'other' })).toMatchObject(missingScope);
    expect(await bound.refusal('tools.invoke', { ...act, sessionKey: 'agent:main:missing' })).toMatchObject(missingScope);
    expect(await door.rows.runs()).toEqual([]);
    expect(await bound.call('tools.invoke', { ...act, sessionKey: 'main' })).toMatchObject({ ok: true, result: { status: 'accepted' } });
    await door.finished();
    const [entry] = await door.rows.entries({ text: 'do it' });
    expect(JSON.parse(entry!.provenance!)).toMatchObject({ sourceSession: main });
  });
});

describe('a page of another site', () => {
  it('cannot open a websocket, with or without the cookie; our own can', async () => {
    const door = await open();
    const cookie = await signIn(door, door.server.signInLink());
    for (const foreign of [
      'https://evil.example',
      'null',
      'http://127.0.0.1:1',
      `http://localhost:${door.port}`,
      `https://127.0.0.1.evil.example:${door.port}`,
      'file://',
      '',
      'x',
    ])
      expect(await http(door.port, '/', { headers: { ...upgrading, cookie, origin: foreign } })).toMatchObject({ status: 403 });
    expect((await http(door.port, '/', { headers: { ...upgrading, cookie, origin: origin(door) } })).status).toBe(101);
    expect((await http(door.port, '/healthz', { headers: { origin: 'https://evil.example' } })).status).toBe(403);
    const own = await Wire.connect(door.port, undefined, {}, { cookie, origin: origin(door) });
    expect(await own.call('health')).toMatchObject({ ok: true });
  });

  it.each([
    ['evil.example', 421],
    ['localhost.evil.example', 421],
    ['127.0.0.1.evil.example', 421],
    ['2130706433', 421],
    ['0x7f.1', 421],
    ['user@localhost', 421],
    ['localhost/x', 421],
    ['localhost', 200],
    ['LOCALHOST:99', 200],
    ['127.0.0.1', 200],
    ['[::1]:4683', 200],
    ['192.168.7.7:4683', 200],
    ['gate.example', 200],
    ['Gate.Example:4683', 200],
    ['sub.gate.example', 421],
  ])('that points its name at us (Host %j) gets %i', async (host, status) => {
    const door = await open({ gateway: { names: ['gate.example'] } });
    expect((await http(door.port, '/healthz', { headers: { host } })).status).toBe(status);
    expect((await http(door.port, '/', { headers: { ...upgrading, host } })).status).toBe(status === 200 ? 101 : status);
  });

  it('that is turned away and does not hang up holds nothing: the gateway closes', async () => {
    const door = await open();
    const socket = connect({ port: door.port, host: '127.0.0.1', allowHalfOpen: true });
    onTestFinished(() => void socket.destroy());
    const upgrade = Object.entries(upgrading).map(([name, text]) => `${name}: ${text}\r\n`);
    socket.write(`GET / HTTP/1.1\r\nHost: evil.example\r\n${upgrade.join('')}\r\n`);
    await once(socket.resume(), 'end');
    await door.close();
    expect(await bytes(door.port, 'GET / HTTP/1.1\r\n\r\n')).toBe('');
  });

  it('gets nothing without a Host', async () => {
    const door = await open();
    expect(await bytes(door.port, 'GET /healthz HTTP/1.0\r\n\r\n')).toMatch(/^HTTP\/1\.1 421 /);
    expect(await bytes(door.port, 'GET /healthz HTTP/1.1\r\n\r\n')).toMatch(/^HTTP\/1\.1 400 /);
    expect(await bytes(door.port, 'GET /healthz HTTP/1.1\r\nHost: \r\n\r\n')).toMatch(/^HTTP\/1\.1 421 /);
  });
});

/** A gateway with one session that is RESTRICTED: what was said there, and what names it. */
async function withSecret() {
  const door = await open({ classification: { channels: { vault: 'RESTRICTED' } } });
  const { cursor } = await door.call('sessions.subscribe');
  const {
    sessionKey: key,
    sessionId,
    runId,
  } = await door.receive({
    origin: { channel: 'vault', peer: { kind: 'group', id: 'spy' } },
    text: 'the word is xyzzy',
  });
  await door.finished();
  const admin = await Wire.connect(door.port, door.admin);
  await admin.call('sessions.patch', { key, label: 'Vault' });
  const low = await Wire.connect(door.port, await token(door, { name: 'low', scopes: ['operator.admin'] as never, level: 'PUBLIC' }));
  return { door, admin, low, key, sessionId, runId, cursor };
}

describe('a level', () => {
  it('hides the sessions above it: they look exactly like missing ones', async () => {
    const { admin, low, key, sessionId, runId } = await withSecret();
    expect(await admin.call('sessions.describe', { key })).toMatchObject({ session: { key, label: 'Vault', taint: 'RESTRICTED' } });
    const missing = {
      key: 'agent:main:vault:group:spx',
      id: '00000000-0000-4000-8000-000000000000',
      label: 'Vaulx',
      run: 'no-such-run-at-all',
    };
    const same = async (method: OperationName, params: (of: typeof missing) => object) => {
      const hidden = { key, id: sessionId, label: 'Vault', run: runId };
      const answers: string[] = [];
      for (const of of [hidden, missing]) {
        const id = low.ask(method, params(of));
        const { ok, payload, error } = await low.frame((frame) => frame.type === 'res' && frame.id === id);
        let text = JSON.stringify({ ok, payload: { ...payload, ts: 0 }, error });
        for (const [name, value] of Object.entries(of)) text = text.replaceAll(value, `<${name}>`);
        answers.push(text.replaceAll(of.id.slice(0, 8), '<short>').replaceAll(/"cursor":"[\w-]+"/g, '"cursor":"<cursor>"'));
      }
      expect(answers[0]).toBe(answers[1]);
    };
    await same('sessions.describe', (of) => ({ key: of.key }));
    await same('sessions.describe', (of) => ({ key: of.id }));
    for (const allowMissing of [true, false]) {
      await same('sessions.resolve', (of) => ({ key: of.key, allowMissing }));
      await same('sessions.resolve', (of) => ({ sessionId: of.id, allowMissing }));
      await same('sessions.resolve', (of) => ({ label: of.label, allowMissing }));
      await same('sessions.resolve', (of) => ({ shortId: of.id.slice(0, 8), allowMissing }));
    }
    await same('sessions.describe', (of) => ({ key: of.key, life: 1 }));
    await same('sessions.lives', (of) => ({ key: of.key }));
    await same('sessions.preview', (of) => ({ keys: [of.key, of.id] }));
    await same('sessions.patch', (of) => ({ key: of.key, displayName: 'mine' }));
    await same('sessions.reset', (of) => ({ key: of.key }));
    await same('sessions.delete', (of) => ({ key: of.key }));
    await same('sessions.abort', (of) => ({ key: of.key }));
    await same('sessions.abort', (of) => ({ runId: of.run }));
    await same('sessions.send', (of) => ({ key: of.key, message: 'x' }));
    await same('sessions.messages.subscribe', (of) => ({ key: of.key }));
    await same('sessions.messages.subscribe', (of) => ({ key: of.key, cursor: '1' }));
    await same('sessions.messages.unsubscribe', (of) => ({ key: of.key }));
    await same('chat.history', (of) => ({ sessionKey: of.key }));
    await same('chat.history', (of) => ({ sessionKey: of.id }));
    await same('chat.history', (of) => ({ sessionKey: of.key, life: 1 }));
    await same('chat.history', (of) => ({ sessionKey: of.key, cursor: 'x.1' }));
    await same('chat.abort', (of) => ({ sessionKey: of.key }));
    await same('chat.abort', (of) => ({ sessionKey: 'main', runId: of.run }));
    await same('chat.inject', (of) => ({ sessionKey: of.key, message: 'x' }));
    // These open the session of a key that is free, so a hidden one answers like a reserved key.
    for (const method of ['chat.send', 'agent'] as const)
      expect(await low.refusal(method, { sessionKey: key, message: 'x', idempotencyKey: 'i' })).toMatchObject({
        details: { code: 'SESSION_KEY_RESERVED' },
      });
    await same('agent.wait', (of) => ({ runId: of.run, timeoutMs: 0 }));
    await same('send', (of) => ({ sessionKey: of.key, to: 'a', channel: 'loopback', message: 'x', idempotencyKey: 'i' }));
    await same('runs.list', (of) => ({ key: of.key }));
    await same('tools.invoke', (of) => ({ tool: 'session_status', sessionKey: of.key }));
    await same('tokens.create', (of) => ({ name: 'new', sessionKey: of.key }));
    await same('sessions.list', (of) => ({ spawnedBy: of.key }));
    await same('sessions.list', (of) => ({ label: of.label }));
    await same('sessions.list', (of) => ({ search: of.key.slice(11) }));
    const { sessions } = await low.call('sessions.list', { archived: 'all' });
    expect(sessions.map((row) => row.key)).toEqual([main]);
    expect(await low.call('runs.list')).toEqual({ runs: [] });
    // No near match above the level is suggested.
    expect((await admin.refusal('chat.history', { sessionKey: `${key}x` })).message).toContain(`did you mean ${key}?`);
    expect((await low.refusal('chat.history', { sessionKey: `${key}x` })).message).not.toContain('did you mean');
    expect(low.texts.join('\n')).not.toContain('xyzzy');
  }, 30_000);

  it('hides what happens above it, live and from a cursor', async () => {
    const { door, admin, low, key, cursor } = await withSecret();
    for (const wire of [admin, low]) {
      await wire.call('sessions.subscribe', { cursor });
      await wire.call('sessions.messages.subscribe', { key, cursor });
    }
    const said = { origin: { channel: 'vault', peer: { kind: 'group', id: 'spy' } }, text: 'now it is xyzzy two' } as const;
    await door.receive(said);
    await admin.event('chat', ({ state }) => state === 'final');
    await admin.event('session.message', ({ messageSeq }) => messageSeq === 4);
    // Something it may see comes after it, so that what it was not told would have been told by now.
    await admin.call('chat.inject', { sessionKey: 'main', message: 'for everyone' });
    await low.event('session.message', ({ sessionKey }) => sessionKey === main);
    await low.call('health');
    const told = low.texts.filter((text) => text.includes('"type":"event"')).join('\n');
    expect(told).not.toContain('xyzzy');
    expect(told).not.toContain(key);
    expect(admin.texts.join('\n')).toContain('xyzzy two');
  });

  it('hides from a slow reader what has come into a session since the event it is told of', async () => {
    const { door, admin, low } = await withSecret();
    await admin.call('sessions.create', { key: 'big' });
    await low.call('sessions.subscribe', {});
    low.socket.pause();
    const armed = door.clock.fallsAsleep(30_000);
    for (let n = 0; n < 30; n++) await admin.call('chat.inject', { sessionKey: 'big', message: 'x'.repeat(900_000) });
    await armed;
    // Heard by the bus while it is PUBLIC, written for the reader when it is RESTRICTED.
    await admin.call('chat.inject', { sessionKey: 'main', message: 'for everyone' });
    await door.receive({ origin: { channel: 'vault', peer: { kind: 'direct', id: 'spy' } }, text: 'now it is xyzzy two' });
    await door.finished();
    expect((await admin.call('sessions.describe', { key: 'main' })).session).toMatchObject({ taint: 'RESTRICTED' });
    await admin.call('sessions.create', { key: 'after' });
    low.socket.resume();
    await low.event('sessions.changed', ({ sessionKey }) => sessionKey === 'agent:main:after');
    expect(low.texts.some((text) => text.includes('xyzzy'))).toBe(false);
  }, 30_000);

  it('hides what a run says after it has read something above it', async () => {
    const door = await open({ classification: { tools: { gate: 'RESTRICTED' } } }, [
      {
        when: 'look',
        steps: [
          { say: 'let me look', calls: [{ tool: 'gate', args: { name: 'one' } }] },
          { say: 'the word is xyzzy', stream: 4 },
        ],
      },
    ]);
    const low = await Wire.connect(door.port, await token(door, { name: 'low', scopes: ['operator.write'] as never, level: 'PUBLIC' }));
    const admin = await Wire.connect(door.port, door.admin);
    for (const wire of [low, admin]) await wire.call('sessions.subscribe', {});
    const asked = low.ask('agent', { message: 'look', idempotencyKey: 'k' });
    expect(await low.answer(asked)).toMatchObject({ status: 'accepted' });
    const waiting = low.ask('agent.wait', { runId: 'k' });
    await door.stops.entered('one');
    await low.event('session.message', ({ messageSeq }) => messageSeq === 2);
    // What the model says after that is passed on while it speaks, and again when it is done.
    const speaking = door.clock.fallsAsleep(100);
    door.stops.open('one');
    await speaking;
    await door.clock.advance(100);
    await admin.event('chat', ({ deltaText }) => deltaText === 'the word is xyzzy');
    await admin.event('chat', ({ state }) => state === 'final');
    await expect(low.answer(asked, 2)).rejects.toMatchObject({ details: { code: 'RUN_NOT_FOUND' } });
    await expect(low.answer(waiting)).rejects.toMatchObject({ details: { code: 'RUN_NOT_FOUND' } });
    expect(await low.refusal('agent.wait', { runId: 'k' })).toMatchObject({ details: { code: 'RUN_NOT_FOUND' } });
    await admin.call('sessions.create', { key: 'after' });
    await low.event('sessions.changed', ({ sessionKey }) => sessionKey === 'agent:main:after');
    expect(low.texts.join('\n')).not.toContain('xyzzy');
    expect(low.texts.join('\n')).toContain('let me look');
    expect(admin.texts.join('\n')).toContain('xyzzy');
  });

  it('cannot be raised by making, rotating or signing in: nobody gives what is above them', async () => {
    const { door, low, key: hidden } = await withSecret();
    expect(await low.refusal('tokens.create', { name: 'up', level: 'RESTRICTED', scopes: ['operator.admin'] })).toMatchObject(missingScope);
    expect((await low.call('tokens.create', { name: 'side', scopes: ['operator.admin'] })).view).toMatchObject({ level: 'PUBLIC' });
    expect(await low.refusal('tokens.rotate', { name: 'admin' })).toMatchObject(missingScope);
    expect(await low.refusal('tokens.revoke', { name: 'admin' })).toMatchObject(missingScope);
    const { url } = await low.call('tokens.signIn');
    const browser = await Wire.connect(door.port, undefined, {}, { cookie: await signIn(door, url), origin: origin(door) });
    expect((await browser.call('sessions.list', {})).sessions.map(({ key }) => key)).toEqual([main]);
    for (const name of ['cli', 'environment']) expect(await low.call('tokens.revoke', { name })).toEqual({ revoked: false, name });
    // A token that is a session above them would make them that session.
    await token(door, { name: 'inside', sessionKey: hidden });
    expect(await low.refusal('tokens.rotate', { name: 'inside' })).toMatchObject({ details: { code: 'TOKEN_NOT_FOUND' } });
    expect(await low.call('tokens.revoke', { name: 'inside' })).toEqual({ revoked: false, name: 'inside' });
    expect((await low.call('tokens.list')).tokens.map(({ name }) => name)).not.toContain('inside');
    expect(await low.refusal('tokens.create', { name: 'cli' })).toMatchObject({ details: { code: 'NAME_RESERVED' } });
    await Wire.connect(door.port, door.admin);
  });
});

describe('a token that ends', () => {
  it('takes along the sign-in link that it asked for', async () => {
    const door = await open();
    const admin = await Wire.connect(door.port, door.admin);
    const { token: made } = await admin.call('tokens.create', { name: 'temp', scopes: ['operator.admin'] });
    const temp = await Wire.connect(door.port, made);
    const { pathname, search } = new URL((await temp.call('tokens.signIn')).url);
    await admin.call('tokens.revoke', { name: 'temp' });
    expect(await http(door.port, `${pathname}${search}`)).toMatchObject({ status: 403 });
  });

  it('takes along the requests under way', async () => {
    const script: ScriptText = [{ steps: [{ calls: [{ tool: 'gate', args: { name: 'g' } }] }, { say: 'late' }] }];
    const door = await open({}, script);
    const admin = await Wire.connect(door.port, door.admin);
    const { token: made } = await admin.call('tokens.create', { name: 'temp', scopes: ['operator.write'] });
    const waiting = fetch(`${origin(door)}/sessions/main/messages?wait=60`, {
      method: 'POST',
      headers: { authorization: `Bearer ${made}` },
      body: JSON.stringify({ message: 'hello' }),
    });
    await door.stops.entered('g');
    await admin.call('tokens.revoke', { name: 'temp' });
    expect(await (await waiting).json()).toMatchObject({ ok: false, error: { code: 'UNAUTHORIZED' } });
    door.stops.open('g');
  });

  it("that is in INTERLANE_TOKEN and not an admin's is refused at the start instead of becoming one", async () => {
    const door = await open();
    const made = await token(door, { name: 'inside', sessionKey: main });
    await door.close();
    await expect(door.start({ listen: { token: made } })).rejects.toThrow(/INTERLANE_TOKEN.*"inside"/);
  });
});

describe('a wrong token', () => {
  it('counts on the first page too, which would otherwise tell a right one', async () => {
    const door = await open();
    const look = () => fetch(`${origin(door)}/`, { headers: { authorization: 'Bearer wrong' } });
    const statuses = new Set<number>();
    for (let tries = 0; tries < 12; tries++) statuses.add((await look()).status);
    expect([...statuses]).toEqual([200, 429]);
  });
});

describe('a token that only reads', () => {
  it('does not spend on models', async () => {
    const door = await open();
    const reader = await Wire.connect(door.port, await token(door, { name: 'reader', scopes: ['operator.read'] }));
    expect(await reader.call('tools.invoke', { tool: 'summarize' })).toMatchObject({ ok: false, result: { code: 'MISSING_SCOPE' } });
  });
});

describe('a tool whose results have a level', () => {
  it('gives them to nobody below it who asks from outside, and raises a session that reads them', async () => {
    const door = await open({ classification: { tools: { gate: 'CONFIDENTIAL' } } });
    door.stops.open('one');
    const low = await Wire.connect(door.port, await token(door, { name: 'low', level: 'PUBLIC' }));
    const bound = await Wire.connect(door.port, await token(door, { name: 'bound', sessionKey: 'main' }));
    const admin = await Wire.connect(door.port, door.admin);
    const asked = { tool: 'gate', args: { name: 'one' } };
    expect(await low.call('tools.invoke', asked)).toMatchObject({ ok: false, result: { code: 'ABOVE_CLEARANCE' } });
    for (const wire of [admin, bound]) expect(await wire.call('tools.invoke', asked)).toMatchObject({ ok: true, result: 'open' });
    expect(await low.call('sessions.list')).toMatchObject({ sessions: [] });
  });
});

describe('a session that another may not see', () => {
  it('answers to a token of that other exactly like one that does not exist', async () => {
    const door = await open({ agents: { list: [{ id: 'main', default: true }, { id: 'b' }] } });
    const admin = await Wire.connect(door.port, door.admin);
    const hidden = 'agent:b:direct:hidden-1';
    const missing = 'agent:b:direct:hidden-2';
    const { sessionId } = await admin.call('sessions.create', { key: hidden, label: 'Hidden One' });
    await admin.call('chat.inject', { sessionKey: hidden, message: 'the word is xyzzy' });
    const bound = await Wire.connect(door.port, await token(door, { name: 'bound', sessionKey: 'main' }));
    const none = { key: missing, id: '00000000-0000-4000-8000-000000000000', label: 'Hidden Two' };
    const calls: [string, (of: typeof none) => Record<string, unknown>][] = [
      ['session_status', (of) => ({ sessionKey: of.key })],
      ['session_status', (of) => ({ session_id: of.id })],
      ['sessions_history', (of) => ({ sessionKey: of.key })],
      ['sessions_history', (of) => ({ sessionKey: of.id, includeTools: true })],
      ['sessions_send', (of) => ({ sessionKey: of.key, message: 'x', timeoutSeconds: 0 })],
      ['sessions_send', (of) => ({ label: of.label, message: 'x', timeoutSeconds: 0 })],
      ['sessions_send', (of) => ({ label: of.label, agentId: 'b', message: 'x', timeoutSeconds: 0 })],
    ];
    for (const [tool, args] of calls) {
      const answers: string[] = [];
      for (const of of [{ key: hidden, id: sessionId, label: 'Hidden One' }, none]) {
        let text = JSON.stringify(await bound.call('tools.invoke', { tool, args: args(of) }));
        for (const [name, value] of Object.entries(of)) text = text.replaceAll(value, `<${name}>`);
        answers.push(text);
      }
      expect(answers[0]).toBe(answers[1]);
      expect(answers[0]).toContain('SESSION_NOT_FOUND');
    }
    for (const tool of ['sessions_list', 'sessions_search', 'agents_list'])
      expect(
        JSON.stringify(await bound.call('tools.invoke', { tool, args: tool === 'sessions_search' ? { query: 'word' } : {} })),
      ).not.toMatch(/hidden|xyzzy/i);
    // An operator who looks through the eyes of that session sees no more than it.
    expect(await admin.call('tools.invoke', { tool: 'session_status', args: { sessionKey: hidden }, sessionKey: 'main' })).toMatchObject({
      ok: false,
    });
  });
});

describe('an address that others can reach', () => {
  it('is not opened without a token', async () => {
    const stage = new TestGateway({});
    onTestFinished(() => stage.end());
    const at = (more: object) => stage.start({ listen: { token: undefined, host: '0.0.0.0', port: 0, ...more } });
    await expect(at({})).rejects.toMatchObject({ code: 'PORT_UNUSABLE' });
    await expect(at({ token: '' })).rejects.toMatchObject({ code: 'PORT_UNUSABLE' });
    await at({ token: 'from the environment' });
    const wire = await Wire.connect(stage.port, 'from the environment');
    expect(await wire.call('health')).toMatchObject({ ok: true });
    await expect(Wire.connect(stage.port, '')).rejects.toMatchObject({ code: 'INVALID_REQUEST' });
    await stage.close();
    // There is a token now: the one that was made at that start.
    await at({});
  });

  it('or port that is taken does not use up the one time that the admin’s secret is shown', async () => {
    const taken = createServer();
    await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve));
    const stage = new TestGateway({});
    onTestFinished(() => stage.end());
    const { port } = taken.address() as AddressInfo;
    await expect(stage.start({ listen: { token: undefined, port } })).rejects.toMatchObject({ code: 'PORT_UNUSABLE' });
    await new Promise((resolve) => taken.close(resolve));
    await stage.start({ listen: { token: undefined, port } });
    expect(stage.server.adminToken).toMatch(/^il_/);
  });
});

describe('guessing', () => {
  it('is slowed down per address, and a right token always passes at once', async () => {
    const door = await testGateway({ listen: true });
    const made = await door.token('made');
    const wrong = async (options: { localAddress?: string; headers?: Record<string, string> } = {}) => {
      const wire = await door.raw(options);
      const error = await wire.hello('il_0123456789abcdef_guess').catch((thrown: unknown) => thrown as { details: { code: string } });
      await wire.closed;
      return (error as { details: { code: string } }).details.code;
    };
    for (let n = 0; n < 10; n++) expect(await wrong()).toBe('AUTH_TOKEN_MISMATCH');
    expect(await wrong()).toBe('AUTH_RATE_LIMITED');
    expect(await wrong({ headers: { 'x-forwarded-for': '203.0.113.9', forwarded: 'for=203.0.113.9' } })).toBe('AUTH_RATE_LIMITED');
    // The next of this address wait a second each, if they are wrong.
    let done = 0;
    const waiting = [wrong(), wrong()];
    for (const one of waiting) void one.then(() => done++);
    expect(await wrong({ localAddress: '127.0.0.2' })).toBe('AUTH_TOKEN_MISMATCH');
    for (const right of [made, adminToken]) await (await Wire.connect(door.port, right)).call('health');
    await door.settled();
    expect(done).toBe(0);
    for (let n = 1; n <= 2; n++) {
      await door.clock.advance(1_000);
      await door.until(() => done === n);
    }
    expect(await Promise.all(waiting)).toEqual(['AUTH_RATE_LIMITED', 'AUTH_RATE_LIMITED']);
    door.clock.jump(60_000);
    expect(await wrong()).toBe('AUTH_TOKEN_MISMATCH');
  });

  it('by many at once from one address is refused without a look beyond a line of ten', async () => {
    const door = await open();
    const guess = async () => (await door.http('/sessions', { token: 'wrong' })).status;
    for (let n = 0; n < 11; n++) await guess();
    let refused = 0;
    const all = Array.from({ length: 30 }, () => guess().then((status) => (refused += Number(status === 429))));
    await door.until(() => refused >= 19);
    await door.settled();
    expect(refused).toBeLessThan(30);
    await door.clock.advance(15_000);
    await Promise.all(all);
    expect(refused).toBe(30);
  });
});

describe('too much', () => {
  it('of strangers at the door makes the oldest of their address go; who is in stays, and a newcomer gets in', async () => {
    const door = await open();
    const wire = await Wire.connect(door.port, door.admin);
    const other = await door.raw({ localAddress: '127.0.0.2' });
    const strangers: Wire[] = [];
    for (let n = 0; n < 256; n++) strangers.push(await door.raw());
    for (const gone of strangers.slice(0, 100)) expect((await gone.closed).code).toBe(1008);
    const { connections } = await wire.call('status');
    expect(connections).toBeLessThan(150);
    await other.hello(door.admin);
    await Wire.connect(door.port, door.admin);
    await door.clock.advance(15_000);
    for (const stranger of strangers) expect((await stranger.closed).code).toBe(1008);
    expect(await wire.call('status')).toMatchObject({ connections: 3 });
  });

  it('of silence or nonsense before a request keeps no socket, even if the other side never closes', async () => {
    const door = await open();
    const nonsense = await openSocket(door.port, { allowHalfOpen: true });
    nonsense.write('nonsense\r\n\r\n');
    await once(nonsense, 'data');
    let over = false;
    nonsense.on('close', () => (over = true)).on('error', () => {});
    // Writing fails only if the gateway has let go of the socket.
    await door.until(() => !nonsense.write('x') || over || nonsense.destroyed);
    await door.until(() => over);
    const silent = await door.raw();
    silent.socket.pause(); // it does not even answer a close
    await door.clock.advance(15_000);
    const wire = await Wire.connect(door.port, door.admin);
    expect(await wire.call('status')).toMatchObject({ connections: 2 });
    await door.clock.advance(2_000);
    expect(await wire.call('status')).toMatchObject({ connections: 1 });
    silent.socket.resume();
  });

  it('of open connections that never ask makes the oldest of their address go', async () => {
    const door = await open();
    const kept = await Wire.connect(door.port, door.admin);
    const sockets: Socket[] = [];
    for (let n = 0; n < 520; n++) sockets.push((await openSocket(door.port)).on('error', () => {}));
    await door.until(() => sockets.slice(0, 5).every(({ readableEnded, destroyed }) => readableEnded || destroyed));
    expect(sockets.at(-1)!.destroyed).toBe(false);
    expect((await door.http('/healthz')).status).toBe(200);
    expect(await kept.call('health')).toMatchObject({ ok: true });
  });

  it('of requests on one connection is refused for now, and the connection lives', async () => {
    const door = await open({}, [{ steps: [{ calls: [{ tool: 'gate', args: { name: 'one' } }] }, { say: 'done' }] }]);
    const wire = await Wire.connect(door.port, door.admin);
    await wire.call('chat.send', { sessionKey: 'main', message: 'x', idempotencyKey: 'k' });
    const waits = Array.from({ length: 64 }, () => wire.ask('agent.wait', { runId: 'k' }));
    expect(await wire.refusal('health')).toMatchObject({ code: 'UNAVAILABLE', retryable: true, details: { code: 'BUSY' } });
    door.stops.open('one');
    await door.clock.advance(1_000);
    for (const id of waits) expect(await wire.answer(id)).toMatchObject({ status: 'ok' });
    expect(await wire.call('health')).toMatchObject({ ok: true });
  });

  it('of silence ends a connection that is not there any more', async () => {
    const door = await open();
    const admin = await Wire.connect(door.port, door.admin);
    const dead = await Wire.connect(door.port, door.admin);
    dead.socket.pause();
    expect(await admin.call('status')).toMatchObject({ connections: 2 });
    for (let n = 1; n <= 2; n++) {
      await door.clock.advance(30_000);
      await admin.event('tick', () => true, n);
      await admin.call('health');
    }
    expect(await admin.call('status')).toMatchObject({ connections: 1 });
    dead.socket.resume();
    expect((await dead.closed).code).toBe(1006);
  });
});

describe('a sign-in link', () => {
  it('works once, and sets a cookie that scripts and other sites cannot use', async () => {
    const door = await open();
    const { pathname, search } = new URL(door.server.signInLink());
    const first = await http(door.port, `${pathname}${search}`);
    expect(first).toMatchObject({ status: 303, headers: { location: '/', 'cache-control': 'no-store' } });
    expect(first.headers['set-cookie']).toEqual([
      expect.stringMatching(/^interlane-\d+=il_[0-9a-f]{16}_[\w-]{43}; Path=\/; HttpOnly; SameSite=Strict; Max-Age=2592000$/),
    ]);
    const second = await http(door.port, `${pathname}${search}`);
    expect(second.status).toBe(403);
    expect(second.headers['set-cookie']).toBeUndefined();
    for (const code of ['', 'x', '../', 'a'.repeat(5_000), encodeURIComponent('💥')]) {
      const guess = await http(door.port, `/signin?code=${code}`);
      expect([guess.status, guess.headers['set-cookie']]).toEqual([403, undefined]);
    }
    expect((await http(door.port, '/signin')).status).toBe(403);
  });

  it('ends after ten minutes, and when the same token makes a newer one', async () => {
    const door = await open();
    const admin = await Wire.connect(door.port, door.admin);
    const follow = async (url: string) => (await http(door.port, `/signin${new URL(url).search}`)).status;
    const first = door.server.signInLink();
    const older = await admin.call('tokens.signIn');
    const newer = await admin.call('tokens.signIn');
    const other = await Wire.connect(
      door.port,
      (await admin.call('tokens.create', { name: 'low', scopes: ['operator.admin'], level: 'PUBLIC' })).token,
    );
    await other.call('tokens.signIn');
    expect(await follow(first)).toBe(303);
    expect(await follow(older.url)).toBe(403);
    expect(await follow(newer.url)).toBe(303);
    const late = await admin.call('tokens.signIn');
    expect(late.expiresAt).toBe(door.clock.now() + 600_000);
    door.clock.jump(600_000);
    expect(await follow(late.url)).toBe(403);
  });
});

describe('secrets', () => {
  it('of the command line are private to the user and die with the process', async () => {
    const door = await open();
    const file = join(door.stateDir, 'cli.json');
    expect(statSync(file).mode & 0o777).toBe(0o600);
    const written = JSON.parse(readFileSync(file, 'utf8')) as { url: string; token: string; pid: number };
    expect(written).toMatchObject({ url: door.url, pid: process.pid });
    const wire = await Wire.connect(door.port, written.token);
    expect(await wire.call('tokens.list')).toMatchObject({ tokens: [{ name: 'admin' }] });
    const after = await door.restart();
    await expect(Wire.connect(after.port, written.token)).rejects.toMatchObject({ details: { code: 'AUTH_TOKEN_MISMATCH' } });
    await after.close();
    expect(readdirSync(door.stateDir)).not.toContain('cli.json');
  });

  it('are nowhere in the state, and nowhere in what the operator is told', async () => {
    const door = await open({}, echo, { listen: { token: 'environment-secret-0123456789' } });
    const admin = await Wire.connect(door.port, door.admin);
    const { token: made } = await admin.call('tokens.create', { name: 'made' });
    const { token: fresh } = await admin.call('tokens.rotate', { name: 'made' });
    const { url } = await admin.call('tokens.signIn');
    const cookie = (await signIn(door, url)).split('=')[1]!;
    await Wire.connect(door.port, fresh);
    await Wire.connect(door.port, 'environment-secret-0123456789');
    await expect(Wire.connect(door.port, `${fresh}x`)).rejects.toMatchObject({ details: { code: 'AUTH_TOKEN_MISMATCH' } });
    expect(await admin.refusal('tokens.create', { name: 'made' })).toMatchObject({ details: { code: 'TOKEN_EXISTS' } });
    const secrets = [door.admin, made, fresh, cookie, 'environment-secret-0123456789', new URL(url).searchParams.get('code')!];
    const listed = JSON.stringify(await admin.call('tokens.list'));
    for (const secret of secrets) {
      const tail = secret.slice(-20);
      expect(listed).not.toContain(tail);
      expect(door.warnings.join('\n')).not.toContain(tail);
      for (const name of readdirSync(door.stateDir)) {
        if (name === 'cli.json' || !statSync(join(door.stateDir, name)).isFile()) continue;
        expect(readFileSync(join(door.stateDir, name)).includes(tail)).toBe(false);
      }
    }
  });
});
