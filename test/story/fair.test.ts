// No client makes others wait: turns of the event loop, statements and bytes are counted, never time.
import { describe, expect, it } from 'vitest';
import { frameLimits, mostInFlight, mostWaits } from '../../src/protocol/frame.ts';
import { testGateway, type TestGateway } from '../harness/gateway.ts';
import { countClients, countStatements } from '../harness/inside.ts';
import { openSocket, Wire } from '../harness/socket.ts';

const turnOfLoop = () => new Promise<void>((resolve) => setImmediate(resolve));
const answers = (wire: Wire) => wire.frames.filter(({ type }) => type === 'res').length;

async function open() {
  const gw = await testGateway({ listen: true });
  await gw.rows.addCrowd(60, ['main', 'group', 'other']);
  const reader = await gw.token('reader', { scopes: ['operator.read'], level: 'PUBLIC' });
  return { gw, reader };
}

/** 60 requests at once, over each door, with the token of a reader. */
const floods: Record<string, (gw: TestGateway, token: string) => Promise<() => number>> = {
  websocket: async (gw, token) => {
    const wire = await Wire.connect(gw.port, token);
    for (let n = 0; n < 60; n++) wire.ask('sessions.list', { search: 'crowd', offset: 1, limit: 50 });
    return () => answers(wire) - 1;
  },
  'one HTTP connection': async (gw, token) => {
    await gw.http('/sessions', { token }); // the classes of fetch are loaded
    const socket = await openSocket(gw.port);
    let text = '';
    socket.setEncoding('utf8').on('data', (piece: string) => (text += piece));
    socket.write(`GET /sessions?limit=50 HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ${token}\r\n\r\n`.repeat(60));
    return () => text.split('HTTP/1.1 200').length - 1;
  },
  'many HTTP connections': async (gw, token) => {
    await gw.http('/sessions', { token });
    let done = 0;
    for (let n = 0; n < 60; n++) void gw.http('/sessions?limit=50', { token }).then(() => done++);
    return () => done;
  },
};

describe('a client that asks for much at once', () => {
  it.each(Object.keys(floods))('over %s lets another be served in between', async (door) => {
    const { gw, reader } = await open();
    const other = await Wire.connect(gw.port, gw.admin);
    const served = await floods[door]!(gw, reader);
    for (let n = 0; n < 3; n++) {
      const before = served();
      await other.call('health');
      // Without turns, all 60 are answered before the first health.
      expect(served() - before).toBeLessThan(20);
    }
    expect(served()).toBeLessThan(60);
    await gw.until(() => served() === 60);
  });

  it('is served four requests in a turn at most', async () => {
    const { gw, reader } = await open();
    const wire = await Wire.connect(gw.port, reader);
    const statements = countStatements();
    await wire.call('sessions.list', { limit: 50 });
    const each = statements.since().length;
    for (let n = 0; n < 60; n++) wire.ask('sessions.list', { limit: 50 });
    let most = 0;
    let turns = 0;
    while (answers(wire) < 62) {
      await turnOfLoop();
      turns++;
      most = Math.max(most, statements.since().length);
    }
    expect(most).toBeLessThanOrEqual(5 * each);
    expect(turns).toBeGreaterThanOrEqual(15);
  });

  it('and leaves is no longer worked for', async () => {
    const { gw, reader } = await open();
    const wire = await Wire.connect(gw.port, reader);
    const statements = countStatements();
    await wire.call('sessions.list', { limit: 50 });
    const each = statements.since().length;
    for (let n = 0; n < 60; n++) wire.ask('sessions.list', { limit: 50 });
    await gw.until(() => statements.since().length > 0);
    wire.socket.terminate();
    await wire.closed;
    await gw.settled();
    expect(statements.since().length).toBeLessThan(20 * each);
  });

  it(`may have ${mostInFlight} requests under way on one connection, over HTTP as well`, async () => {
    const { gw, reader } = await open();
    const wire = await Wire.connect(gw.port, reader);
    const ids = Array.from({ length: 2 * mostInFlight }, () => wire.ask('sessions.list', { limit: 50 }));
    // After a refusal it is not read for a moment, a millisecond for each.
    const outcomes = await gw.clock.hurrying(Promise.allSettled(ids.map((id) => wire.answer(id))), 4 * mostInFlight);
    const refused = outcomes.filter(({ status }) => status === 'rejected');
    // Some may be answered before the last is read.
    expect(refused.length).toBeGreaterThan(0);
    expect(refused.length).toBeLessThanOrEqual(mostInFlight);
    expect(refused.at(-1)).toMatchObject({ reason: { details: { code: 'BUSY' } } });
    expect(await gw.clock.hurrying(wire.call('health'), 2 * mostInFlight)).toMatchObject({ ok: true });
    const socket = await openSocket(gw.port);
    let text = '';
    socket.setEncoding('utf8').on('data', (piece: string) => (text += piece));
    socket.write(`GET /sessions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ${reader}\r\n\r\n`.repeat(2 * mostInFlight));
    await gw.until(() => text.includes('"code":"BUSY"'));
    expect(text.split('HTTP/1.1 200').length - 1).toBeGreaterThanOrEqual(mostInFlight);
  });
});

it('a connection that waits for many runs, or took many, may still ask and stop them; only a wait too much is refused', async () => {
  const gw = await testGateway({ listen: true, script: [{ steps: [{ sleepMs: 3_600_000 }] }] });
  const wire = await Wire.connect(gw.port, gw.admin);
  for (let n = 0; n < mostInFlight + 6; n++)
    expect(await wire.call('agent', { message: 'x', idempotencyKey: `run-${n}` })).toMatchObject({ status: 'accepted' });
  const places = mostWaits - mostInFlight - 6;
  // Each is under way before the next comes, so that none is refused as unanswered.
  for (let n = 0; n < places; n += 50) {
    for (let m = n; m < Math.min(n + 50, places); m++) wire.ask('agent.wait', { runId: 'run-0', timeoutMs: 3_600_000 }, `wait-${m}`);
    await wire.call('health');
  }
  await expect(wire.call('agent.wait', { runId: 'run-0', timeoutMs: 3_600_000 })).rejects.toMatchObject({ details: { code: 'BUSY' } });
  const late = wire.ask('agent', { message: 'x', idempotencyKey: 'late' });
  const answers = [await wire.frame(({ id }) => id === late, 1), await wire.frame(({ id }) => id === late, 2)];
  expect(answers).toMatchObject([
    { ok: true, payload: { status: 'accepted' } },
    { ok: false, error: { details: { code: 'BUSY' } } },
  ]);
  expect(await wire.call('chat.abort', { sessionKey: 'main' })).toMatchObject({ runIds: ['run-0'] });
  expect(await wire.answer('wait-0')).toMatchObject({ state: 'aborted' });
  await wire.answer(`wait-${places - 1}`);
  expect(await wire.call('agent.wait', { runId: 'run-0' })).toMatchObject({ state: 'aborted' });
});

it('the tool calls of the runs of a session are one client', async () => {
  const clients = countClients();
  const look = { tool: 'session_status', args: {} };
  const gw = await testGateway({ script: [{ steps: [{ calls: [look, look] }, { calls: [look] }, { say: 'done' }] }] });
  await gw.tell('agent:main:main', 'one');
  await gw.tell('agent:main:main', 'two');
  expect(clients.made).toBe(1);
  await gw.tell('agent:main:other', 'three');
  expect(clients.made).toBe(2);
});

it('a sender has a share of what waits to be written, and BUSY beyond it is for that one only', async () => {
  const gw = await testGateway();
  const megabyte = 'x'.repeat(1_000_000);
  const sent = Array.from({ length: 40 }, () => gw.say(megabyte, { from: 'ann' }));
  const other = gw.say(megabyte, { from: 'bob' });
  const outcomes = await Promise.allSettled(sent);
  const refused = outcomes.filter(({ status }) => status === 'rejected');
  expect(refused).toHaveLength(40 - 34);
  expect(refused[0]).toMatchObject({ reason: { code: 'BUSY' } });
  await other;
});

describe('a message of a client', () => {
  /** What each token may send at most, over each door. */
  it.each<[token: 'session' | 'read' | 'admin', ws: number, body: number]>([
    ['session', frameLimits.session, frameLimits.tools],
    ['read', frameLimits.operator, frameLimits.tools],
    ['admin', frameLimits.admin, frameLimits.admin],
  ])('with a token of kind %s has at most %i bytes on a websocket, and %i for a tool over HTTP', async (kind, ws, body) => {
    const gw = await testGateway({ listen: true });
    const token = {
      session: async () => gw.token('s', { sessionKey: 'main' }),
      read: async () => gw.token('r', { scopes: ['operator.read'] }),
      admin: async () => gw.admin,
    };
    const secret = await token[kind]();
    const wire = await Wire.open(gw.port);
    expect(await wire.hello(secret)).toMatchObject({ policy: { maxPayload: ws } });
    const frame = (bytes: number) => JSON.stringify({ type: 'req', id: 'x', method: 'health' }).padEnd(bytes);
    wire.send(frame(ws));
    await wire.frame(({ id }) => id === 'x');
    wire.send(frame(ws + 1));
    expect((await wire.closed).code).toBe(1009);
    const post = async (bytes: number) =>
      (await gw.http('/tools/session_status', { method: 'POST', body: '{}'.padEnd(bytes), token: secret })).status;
    expect([await post(body), await post(body + 1)]).toEqual([200, 413]);
  });

  const shapes: [what: string, text: string, refused: boolean][] = [
    ['64 levels', '['.repeat(63) + ']'.repeat(63), false],
    ['65 levels', '['.repeat(64) + ']'.repeat(64), true],
    ['19,000 values', `[${'1,'.repeat(18_999)}1]`, false],
    ['20,001 values', `[${'1,'.repeat(20_000)}1]`, true],
    ['5,001 keys', `{${Array.from({ length: 5_001 }, (_, n) => `"${n}":1`).join(',')}}`, true],
    ['brackets and commas in a text', JSON.stringify(`\\"${'[{,"'.repeat(30_000)}`), false],
  ];

  it.each(shapes)('of %s is read or refused before it is parsed, over each door', async (_, text, refused) => {
    const gw = await testGateway({ listen: true });
    const wire = await Wire.connect(gw.port, gw.admin);
    const bound = await gw.token('s', { sessionKey: 'main' });
    const message = /deeper than 64 levels|more than (20000 values|5000 keys)/;
    wire.send(`{"type":"req","id":"x","method":"health","params":${text}}`);
    const { error } = await wire.frame(({ id }) => id === 'x');
    expect(message.test(error?.message ?? '')).toBe(refused);
    const body = `{"tool":${text}}`;
    const posted = await gw.http('/tools/invoke', { method: 'POST', body });
    expect([posted.status, message.test(posted.text)]).toEqual([400, refused]);
    const over = { 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
    const mcp = await gw.http('/mcp', {
      method: 'POST',
      token: bound,
      headers: over,
      body: `{"jsonrpc":"2.0","id":1,"method":"ping","x":${text}}`,
    });
    expect(message.test(mcp.text)).toBe(refused);
    expect(await wire.call('health')).toMatchObject({ ok: true });
  });
});
