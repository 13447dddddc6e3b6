// The websocket as clients use it: the published client unmodified, the published schemas, and a socket that says exactly what a test wants.
import {
  createSessionProjection,
  GatewaySessionMessageSubscriptionCoordinator,
  projectLiveSessionMessage,
  readSessionMessageIdentity,
  readSessionMessageSequence,
  reconcileSessionProjectionSnapshot,
  reduceSessionProjectionRunEvent,
} from '@openclaw/gateway-client';
import * as protocol from '@openclaw/gateway-protocol';
import { readConnectErrorDetailCode } from '@openclaw/gateway-protocol/connect-error-details';
import { describe, expect, it } from 'vitest';
import { errorTable } from '../../src/errors.ts';
import { eventNames, frameLimits } from '../../src/protocol/frame.ts';
import { type OperationName, operations } from '../../src/protocol/operations/all.ts';
import { testGateway, type ConfigText, type ScriptText, type TestOptions } from '../harness/gateway.ts';
import { Published, published } from '../harness/published.ts';
import { connectParams, Wire } from '../harness/socket.ts';

const echo: ScriptText = [
  { when: 'fail', steps: [{ fail: 'the model is out' }] },
  { when: 'gate', steps: [{ calls: [{ tool: 'gate', args: { name: 'one' } }] }, { say: 'through the gate' }] },
  { steps: [{ say: 'you said {{input}}' }] },
];
const main = 'agent:main:main';

const open = (config: ConfigText = {}, more: TestOptions = {}) =>
  testGateway({ config, script: echo, listen: { token: undefined }, stops: true, ...more });

/** Every event a connection got so far has the number after the one before it. */
const numbered = (events: { seq?: number | undefined }[]) => {
  const seqs = events.map(({ seq }) => seq).filter((seq) => seq !== undefined);
  expect(seqs).toEqual(seqs.map((_, index) => seqs[0]! + index));
};

describe('the published client', () => {
  it('connects, creates, lists, patches, sends, waits and reads', async () => {
    const door = await open();
    const client = await Published.connect(door.port, door.admin);
    expect(published('HelloOk').safeParse(client.hellos[0]).error).toBeUndefined();
    expect(client.hellos[0]).toMatchObject({
      protocol: 4,
      auth: { role: 'operator', scopes: ['operator.admin'] },
      policy: { maxPayload: 25 * 1024 * 1024, tickIntervalMs: 30_000 },
      snapshot: { sessionDefaults: { defaultAgentId: 'main', mainKey: 'main', mainSessionKey: main, scope: 'per-sender' } },
    });
    expect(await client.call('health')).toMatchObject({ ok: true });

    const made = await client.call('sessions.create', { key: 'planning', label: 'Plans' });
    expect(published('SessionsCreateResult').safeParse(made).error).toBeUndefined();
    expect(made).toMatchObject({ ok: true, key: 'agent:main:planning', created: true, runStarted: false, entry: { label: 'Plans' } });
    expect(await client.call('sessions.create', { key: 'planning' })).toMatchObject({ created: false, sessionId: made.sessionId });

    const { sessions } = await client.call('sessions.list', {});
    expect(sessions.map(({ key }) => key)).toEqual(['agent:main:planning', main]);
    for (const row of sessions) expect(published('SessionRow').safeParse(row).error).toBeUndefined();

    const { runId, status } = await client.call('chat.send', { sessionKey: 'planning', message: 'hello', idempotencyKey: 'k1' });
    expect({ runId, status }).toEqual({ runId: 'k1', status: 'started' });
    expect(await client.call('agent.wait', { runId })).toMatchObject({
      status: 'ok',
      state: 'ok',
      terminalReply: { text: 'you said hello' },
    });
    const history = await client.call('chat.history', { sessionKey: 'planning' });
    expect(history).toMatchObject({
      sessionKey: 'agent:main:planning',
      totalMessages: 2,
      hasMore: false,
      messages: [
        { role: 'user', content: 'hello', __openclaw: { seq: 1, runId: 'k1', idempotencyKey: 'k1:user' } },
        { role: 'assistant', content: [{ type: 'text', text: 'you said hello' }], __openclaw: { seq: 2, runId: 'k1' } },
      ],
    });
    expect(published('AgentsListResult').safeParse(await client.call('agents.list')).error).toBeUndefined();
    const found = await client.call('sessions.resolve', { label: 'Plans' });
    expect(published('SessionsResolveResult').safeParse(found).error).toBeUndefined();
    expect(found).toMatchObject({ ok: true, key: 'agent:main:planning' });
    const deleted = await client.call('sessions.delete', { key: 'planning' });
    expect(published('SessionsDeleteResult').safeParse(deleted).error).toBeUndefined();
    expect(deleted).toMatchObject({ deleted: true });
    expect(await client.call('sessions.delete', { key: 'planning' })).toMatchObject({ ok: true, deleted: false });
    expect(client.gaps).toEqual([]);
  });

  it('gets both answers of "agent": accepted at once, and the end under the same id', async () => {
    const door = await open();
    const client = await Published.connect(door.port, door.admin);
    const accepted: unknown[] = [];
    const params = { message: 'hi', idempotencyKey: 'a1' };
    const final = await client.call('agent', params, { expectFinal: true, onAccepted: (payload: unknown) => accepted.push(payload) });
    expect(accepted).toMatchObject([{ runId: 'a1', status: 'accepted', sessionKey: main, agentId: 'main' }]);
    expect(final).toMatchObject({ runId: 'a1', status: 'ok', result: { payloads: [{ text: 'you said hi', mediaUrl: null }] } });
    // Without asking for the end, the first answer is the answer.
    expect(await client.call('agent', params)).toMatchObject({ runId: 'a1', status: 'accepted' });

    const wire = await Wire.connect(door.port, door.admin);
    const id = wire.ask('agent', { message: 'fail', idempotencyKey: 'a2' });
    expect(await wire.answer(id, 1)).toMatchObject({ status: 'accepted', runId: 'a2' });
    expect(await wire.answer(id, 2)).toMatchObject({ status: 'error', runId: 'a2', error: expect.stringContaining('the model is out') });
  });

  it('is told what happens live, numbered without a gap, in the published shapes', async () => {
    const door = await open();
    const client = await Published.connect(door.port, door.admin);
    await client.call('sessions.subscribe', {});
    await client.call('sessions.messages.subscribe', { key: 'main' });
    for (const key of ['one', 'two', 'fail']) await client.call('chat.send', { sessionKey: 'main', message: key, idempotencyKey: key });
    await client.until(() => client.payloads('sessions.changed').filter(({ phase }) => phase === 'end').length === 3);
    await client.until(() => client.payloads('chat').some(({ state }) => state === 'error'));
    for (const payload of client.payloads('chat')) expect(published('ChatEvent').safeParse(payload).error).toBeUndefined();
    for (const payload of client.payloads('agent')) expect(published('AgentEvent').safeParse(payload).error).toBeUndefined();
    expect(client.payloads('chat').filter(({ state }) => state !== 'delta')).toMatchObject([
      { runId: 'one', state: 'final', message: { role: 'assistant' } },
      { runId: 'two', state: 'final' },
      { runId: 'fail', state: 'error', errorMessage: 'the model is out' },
    ]);
    expect(client.payloads('session.message').map(({ messageSeq }) => messageSeq)).toEqual([1, 2, 3, 4, 5]);
    await door.clock.advance(30_000);
    await client.until(() => client.payloads('tick').length === 1);
    expect(published('TickEvent').safeParse(client.payloads('tick')[0]).error).toBeUndefined();
    await door.close();
    await client.until(() => client.closes.length > 0);
    expect(client.closes[0]).toMatchObject({ code: 1012 });
    expect(published('ShutdownEvent').safeParse(client.payloads('shutdown')[0]).error).toBeUndefined();
    numbered(client.events);
    expect(client.gaps).toEqual([]);
  });

  it('comes back after a restart, resumes by its cursor, and misses and repeats nothing', async () => {
    let door = await open();
    const client = await Published.connect(door.port, door.admin);
    await client.call('sessions.messages.subscribe', { key: 'main' });
    await client.call('chat.send', { sessionKey: 'main', message: 'before', idempotencyKey: 'b' });
    await client.until(() => client.payloads('session.message').length === 2);
    const { cursor } = client.payloads('session.message').at(-1) as { cursor: string };

    door = await door.restart();
    await client.until(() => client.hellos.length === 2);
    // Said while it was not listening.
    await client.call('agent', { message: 'between', idempotencyKey: 'm' }, { expectFinal: true });
    expect(await client.call('sessions.messages.subscribe', { key: 'main', cursor })).toMatchObject({
      subscribed: true,
      key: main,
      cursor,
    });
    await client.call('agent', { message: 'after', idempotencyKey: 'e' }, { expectFinal: true });
    await client.until(() => client.payloads('session.message').length === 6);
    const seen = client.payloads('session.message') as { messageSeq: number; messageId: string }[];
    expect(seen.map(({ messageSeq }) => messageSeq)).toEqual([1, 2, 3, 4, 5, 6]);
    const { messages } = (await client.call('chat.history', { sessionKey: 'main' })) as unknown as {
      messages: { __openclaw: { id: string } }[];
    };
    expect(seen.map(({ messageId }) => messageId)).toEqual(messages.map((message) => message.__openclaw.id));
    expect(client.gaps).toEqual([]);
  }, 30_000);

  it.each([
    ['a wrong token', 'il_0000000000000000_wrong', {}, 'AUTH_TOKEN_MISMATCH', 1008],
    ['no token', undefined, {}, 'AUTH_TOKEN_MISSING', 1008],
    ['a version window without 4', 'admin', { minProtocol: 5, maxProtocol: 6 }, 'PROTOCOL_MISMATCH', 1002],
  ] as const)('stops for good with %s', async (_, token, more, detailCode, code) => {
    const door = await open();
    const client = new Published(door.port, token === 'admin' ? door.admin : token, more);
    await client.until(() => client.paused.length > 0);
    expect(client.paused).toMatchObject([{ detailCode }]);
    await client.until(() => client.closes.length > 0);
    expect([code, 1008]).toContain(client.closes[0]!.code); // the client closes too, and may be first
    expect(client.hellos).toEqual([]);
  });

  it('merges history and live events with its own helpers, without a message twice', async () => {
    const door = await open();
    const client = await Published.connect(door.port, door.admin);
    await client.call('sessions.messages.subscribe', { key: 'main' });
    for (const key of ['one', 'two']) await client.call('agent', { message: key, idempotencyKey: key }, { expectFinal: true });
    await client.until(
      () =>
        client.payloads('session.message').length === 4 &&
        client.payloads('chat').some(({ runId, state }) => runId === 'two' && state === 'final'),
    );
    const live = client.payloads('session.message') as { message: object; messageId: string; messageSeq: number }[];
    const { messages } = (await client.call('chat.history', { sessionKey: 'main' })) as { messages: object[] };
    const scope = { sessionKey: main };
    expect(live.map(({ message }) => readSessionMessageSequence(message))).toEqual([1, 2, 3, 4]);
    expect(live.map(({ message }) => readSessionMessageIdentity(message))).toEqual(
      messages.map((message) => readSessionMessageIdentity(message)),
    );
    expect(readSessionMessageIdentity(messages[0])).toMatchObject({ role: 'user', runId: 'one', sequence: 1, idempotencyKey: 'one:user' });

    const play = (from: ReturnType<typeof createSessionProjection>) =>
      live.reduce(
        (state, { message, messageId, messageSeq }) => projectLiveSessionMessage(state, message, { messageId, messageSeq }, scope),
        from,
      );
    // Live first and then the snapshot; the snapshot first and then the same events; the snapshot in the middle; all of it twice.
    const liveFirst = reconcileSessionProjectionSnapshot(play(createSessionProjection(scope)), messages, scope);
    const snapshotFirst = play(createSessionProjection(scope, messages));
    const half = reconcileSessionProjectionSnapshot(play(createSessionProjection(scope)), messages.slice(0, 2), scope);
    for (const state of [
      liveFirst,
      snapshotFirst,
      half,
      play(liveFirst),
      reconcileSessionProjectionSnapshot(snapshotFirst, messages, scope),
    ])
      expect(state.entries.map(({ identity }) => identity?.sequence)).toEqual([1, 2, 3, 4]);
    // The final event of a run is recognised as the message that is there already.
    let state = snapshotFirst;
    for (const event of client.payloads('chat')) state = reduceSessionProjectionRunEvent(state, event, scope)?.projection ?? state;
    expect(state.entries).toHaveLength(4);
    expect(state.runs['two']).toMatchObject({ status: 'completed' });
  });

  it('shares one subscription between its users, and ends it with the last of them', async () => {
    const door = await open();
    const client = await Published.connect(door.port, door.admin);
    const asked: string[] = [];
    const coordinator = new GatewaySessionMessageSubscriptionCoordinator({
      request: (method, params, options) => {
        asked.push(method);
        return client.client.request(method, params, options);
      },
    });
    const first = await coordinator.acquire('main');
    const second = await coordinator.acquire(main);
    expect([first.key, second.key]).toEqual([main, main]);
    await client.call('agent', { message: 'one', idempotencyKey: '1' }, { expectFinal: true });
    await client.until(() => client.payloads('session.message').length === 2);
    await coordinator.release(first);
    await client.call('agent', { message: 'two', idempotencyKey: '2' }, { expectFinal: true });
    await client.until(() => client.payloads('session.message').length === 4);
    await coordinator.release(second);
    expect(asked.at(-1)).toBe('sessions.messages.unsubscribe');
    await client.call('agent', { message: 'three', idempotencyKey: '3' }, { expectFinal: true });
    await client.call('health');
    expect(client.payloads('session.message')).toHaveLength(4);
  });
});

describe('a patch', () => {
  it('sets, clears with null, and is all or nothing', async () => {
    const door = await open();
    const wire = await Wire.connect(door.port, door.admin);
    await wire.call('sessions.create', { key: 'other', label: 'Taken' });
    const set = await wire.call('sessions.patch', {
      key: 'main',
      label: 'Home',
      thinkingLevel: 'high',
      verboseLevel: 'on',
      sendPolicy: 'allow',
    });
    expect(set).toMatchObject({
      ok: true,
      key: main,
      changed: true,
      entry: { label: 'Home', thinkingLevel: 'high', verboseLevel: 'on', sendPolicy: 'allow' },
    });
    expect(await wire.call('sessions.patch', { key: 'main', label: 'Home' })).toMatchObject({ changed: false });
    const refused = await wire.refusal('sessions.patch', { key: 'main', thinkingLevel: 'low', label: 'Taken' });
    expect(refused).toMatchObject({ code: 'INVALID_REQUEST', details: { code: 'LABEL_IN_USE' } });
    expect((await wire.call('sessions.describe', { key: 'main' })).session).toMatchObject({ label: 'Home', thinkingLevel: 'high' });
    const cleared = await wire.call('sessions.patch', { key: 'main', label: null, thinkingLevel: null, sendPolicy: null });
    expect(cleared.entry).not.toHaveProperty('label');
    expect(cleared.entry).not.toHaveProperty('thinkingLevel');
    expect(cleared.entry).not.toHaveProperty('sendPolicy');
    expect(cleared.entry).toMatchObject({ verboseLevel: 'on' });
  });

  it.each([
    [{ key: 'main', verboseLevel: 'loud' }, 'INVALID_REQUEST', '/verboseLevel'],
    [{ key: 'main', sendPolicy: 'maybe' }, 'INVALID_REQUEST', '/sendPolicy'],
    [{ key: 'main', bogus: 1 }, 'INVALID_REQUEST', 'bogus'],
    [{ label: 'x' }, 'INVALID_REQUEST', '/key'],
    [{ key: 'mian', label: 'x' }, 'SESSION_NOT_FOUND', 'agent:main:main'],
    [{ key: 'main', label: 'x', expectedSessionId: 'other' }, 'SESSION_CHANGED', ''],
  ])('of %j is refused', async (params, code, named) => {
    const door = await open();
    const wire = await Wire.connect(door.port, door.admin);
    expect(await wire.refusal('sessions.patch', params)).toMatchObject({ details: { code }, message: expect.stringContaining(named) });
  });

  it('of the send policy needs an admin', async () => {
    const door = await open();
    const admin = await Wire.connect(door.port, door.admin);
    const { token } = await admin.call('tokens.create', { name: 'writer', scopes: ['operator.write'] });
    const writer = await Wire.connect(door.port, token);
    expect(await writer.call('sessions.patch', { key: 'main', label: 'x' })).toMatchObject({ changed: true });
    expect(await writer.refusal('sessions.patch', { key: 'main', sendPolicy: 'deny' })).toMatchObject({
      code: 'FORBIDDEN',
      details: { code: 'MISSING_SCOPE', missingScope: 'operator.admin' },
    });
  });
});

describe('history', () => {
  it('comes in pages by offset, in deltas by cursor, and says when to start over', async () => {
    const door = await open();
    const wire = await Wire.connect(door.port, door.admin);
    for (let n = 1; n <= 7; n++) await wire.call('chat.inject', { sessionKey: 'main', message: `m${n}` });
    type Page = { messages: { __openclaw: { seq: number } }[]; hasMore: boolean; nextOffset?: number; deltaCursor: string; kind?: string };
    const page = async (params: object) => (await wire.call('chat.history', { sessionKey: 'main', ...params })) as unknown as Page;
    const seqs = ({ messages }: Page) => messages.map((message) => message.__openclaw.seq);
    const newest = await page({ limit: 3 });
    expect([seqs(newest), newest.hasMore, newest.nextOffset]).toEqual([[5, 6, 7], true, 3]);
    const older = await page({ limit: 3, offset: newest.nextOffset });
    expect([seqs(older), older.hasMore, older.nextOffset]).toEqual([[2, 3, 4], true, 6]);
    const oldest = await page({ limit: 3, offset: older.nextOffset });
    expect([seqs(oldest), oldest.hasMore, oldest.nextOffset]).toEqual([[1], false, undefined]);
    expect(seqs(await page({ offset: 50 }))).toEqual([]);

    const cursorSchema = published('ChatHistoryCursorResult');
    expect(await page({ cursor: newest.deltaCursor })).toMatchObject({ kind: 'delta', messages: [], hasMore: false });
    for (let n = 8; n <= 10; n++) await wire.call('chat.inject', { sessionKey: 'main', message: `m${n}` });
    const delta = await page({ cursor: newest.deltaCursor, limit: 2 });
    expect(cursorSchema.safeParse(delta).error).toBeUndefined();
    expect([delta.kind, seqs(delta), delta.hasMore]).toEqual(['delta', [8, 9], true]);
    const rest = await page({ cursor: delta.deltaCursor });
    expect([seqs(rest), rest.hasMore]).toEqual([[10], false]);
    // A cursor of a page that is not the newest still means: from the end on.
    expect(seqs(await page({ cursor: older.deltaCursor }))).toEqual([8, 9, 10]);

    await wire.call('sessions.reset', { key: 'main' });
    for (const cursor of [rest.deltaCursor, 'nonsense', 'a.b.c', '!', '.']) {
      const answer = await page({ cursor });
      expect(answer).toEqual({ kind: 'reset' });
      expect(cursorSchema.safeParse(answer).error).toBeUndefined();
    }
    expect(await page({})).toMatchObject({ messages: [], totalMessages: 0 });
  });

  it('of a life that is over is not taken for the one of today', async () => {
    const door = await open();
    const wire = await Wire.connect(door.port, door.admin);
    const { session } = await wire.call('sessions.describe', { key: 'main' });
    await wire.call('sessions.reset', { key: 'main' });
    const { sessionId } = session!;
    for (const [method, params] of [
      ['chat.history', { sessionKey: 'main', sessionId }],
      ['chat.send', { sessionKey: 'main', sessionId, message: 'x', idempotencyKey: 'k' }],
      ['agent', { sessionKey: 'main', sessionId, message: 'x', idempotencyKey: 'k' }],
      ['sessions.patch', { key: 'main', expectedSessionId: sessionId, label: 'x' }],
    ] as const)
      expect(await wire.refusal(method, params)).toMatchObject({ details: { code: 'SESSION_CHANGED' } });
  });

  it('of long messages comes in pages of at most 1 MiB, also as a delta', async () => {
    const door = await open();
    const wire = await Wire.connect(door.port, door.admin);
    const start = (await wire.call('chat.history', { sessionKey: 'main' })) as { deltaCursor: string };
    for (let n = 0; n < 2; n++) await wire.call('chat.inject', { sessionKey: 'main', message: 'x'.repeat(900_000) });
    const delta = await wire.call('chat.history', { sessionKey: 'main', cursor: start.deltaCursor, limit: 1000 });
    const page = await wire.call('chat.history', { sessionKey: 'main', limit: 1000 });
    for (const answer of [delta, page] as { messages: object[]; hasMore: boolean }[]) {
      expect(answer.messages.length).toBe(1);
      expect(answer.hasMore).toBe(true);
    }
  }, 30_000);
});

describe('an answer', () => {
  it('that is large waits for its reader, and many of them asked for at once all arrive', async () => {
    const door = await open();
    const wire = await Wire.connect(door.port, door.admin);
    await wire.call('chat.inject', { sessionKey: 'main', message: '💥'.repeat(450_000) });
    const ids = Array.from({ length: 25 }, () => wire.ask('chat.history', { sessionKey: 'main' }));
    for (const id of ids) expect(((await wire.answer(id)) as { messages: object[] }).messages).toHaveLength(1);
    expect(await wire.call('health')).toMatchObject({ ok: true });
  }, 30_000);
});

describe('lists', () => {
  it('can be paged by offset and by cursor to the end, each session once', async () => {
    const door = await open();
    const wire = await Wire.connect(door.port, door.admin);
    for (let n = 0; n < 23; n++) await wire.call('sessions.create', { key: `s${n}`, ...(n % 5 === 0 ? { label: `five ${n}` } : {}) });
    const all = (await wire.call('sessions.list', {})).sessions.map(({ key }) => key);
    expect(all).toHaveLength(24);
    const byOffset: string[] = [];
    for (let offset: number | null = 0; offset !== null;) {
      const page: { sessions: { key: string }[]; nextOffset: number | null } = await wire.call('sessions.list', { limit: 5, offset });
      byOffset.push(...page.sessions.map(({ key }) => key));
      offset = page.nextOffset;
    }
    expect(byOffset).toEqual(all);
    const byCursor: string[] = [];
    for (let cursor: string | undefined, more = true; more;) {
      const page: { sessions: { key: string }[]; nextCursor?: string } = await wire.call('sessions.list', {
        limit: 5,
        ...(cursor ? { cursor } : {}),
      });
      byCursor.push(...page.sessions.map(({ key }) => key));
      cursor = page.nextCursor;
      more = cursor !== undefined;
    }
    expect(byCursor).toEqual(all);
    expect((await wire.call('sessions.list', { search: 'FIVE' })).count).toBe(5);
    expect((await wire.call('sessions.list', { search: 's2', limit: 1 })).sessions).toHaveLength(1);
    expect(await wire.call('sessions.list', { agentId: 'nobody' })).toMatchObject({ count: 0, hasMore: false });
    expect(await wire.call('sessions.list', { limit: 5, offset: 1_900 })).toMatchObject({ count: 0, hasMore: false, nextOffset: null });
  });

  it('show archived sessions when asked, cut by the same filters', async () => {
    const door = await open({ agents: { list: [{ id: 'main', default: true }, { id: 'b' }] } });
    const wire = await Wire.connect(door.port, door.admin);
    for (const key of ['agent:main:old', 'agent:b:old', 'agent:b:new']) await wire.call('sessions.create', { key });
    for (const key of ['agent:main:old', 'agent:b:old']) await door.closeSession(key, 'archived', false);
    const keys = async (params: object) => (await wire.call('sessions.list', params)).sessions.map(({ key }) => key).toSorted();
    expect(await keys({})).toEqual(['agent:b:main', 'agent:b:new', main]);
    expect(await keys({ archived: true })).toEqual(['agent:b:old', 'agent:main:old']);
    expect(await keys({ archived: true, agentId: 'b' })).toEqual(['agent:b:old']);
    expect(await keys({ archived: 'all', agentId: 'b' })).toEqual(['agent:b:main', 'agent:b:new', 'agent:b:old']);
    expect(await keys({ archived: 'all', kinds: ['main'] })).toEqual(['agent:b:main', main]);
    expect(await keys({ archived: true, activeMinutes: 1 })).toEqual(['agent:b:old', 'agent:main:old']);
  });

  it('of one label in two agents name the candidates in the published shape', async () => {
    const door = await open({ agents: { list: [{ id: 'main', default: true }, { id: 'b' }] } });
    const wire = await Wire.connect(door.port, door.admin);
    for (const key of ['agent:main:x', 'agent:b:x']) await wire.call('sessions.create', { key, label: 'twin' });
    const found = await wire.call('sessions.resolve', { label: 'twin', allowMissing: true });
    expect(published('SessionsResolveResult').safeParse(found).error).toBeUndefined();
    expect(found).toMatchObject({ ok: false, candidates: expect.arrayContaining([{ key: 'agent:b:x', agentId: 'b' }]) });
    expect(await wire.refusal('sessions.resolve', { label: 'twin' })).toMatchObject({ details: { code: 'SESSION_AMBIGUOUS' } });
    expect(await wire.call('sessions.resolve', { label: 'twin', agentId: 'b' })).toMatchObject({ key: 'agent:b:x' });
    expect(await wire.call('sessions.resolve', { label: 'none', allowMissing: true })).toEqual({ ok: false });
  });
});

describe('an idempotency key', () => {
  it('is one run: under way, ended well, ended badly, and after a restart', async () => {
    let door = await open();
    let wire = await Wire.connect(door.port, door.admin);
    const send = (message: string, idempotencyKey: string) => wire.call('chat.send', { sessionKey: 'main', message, idempotencyKey });
    expect(await send('gate', 'k')).toMatchObject({ runId: 'k', status: 'started' });
    await door.stops.entered('one');
    expect(await send('gate', 'k')).toMatchObject({ runId: 'k', status: 'in_flight' });
    expect(await wire.call('agent.wait', { runId: 'k', timeoutMs: 0 })).toMatchObject({ status: 'timeout', state: 'running' });
    door.stops.open('one');
    expect(await wire.call('agent.wait', { runId: 'k' })).toMatchObject({ status: 'ok', terminalReply: { text: 'through the gate' } });
    expect(await send('gate', 'k')).toMatchObject({ runId: 'k', status: 'ok' });
    await send('fail', 'f');
    expect(await wire.call('agent.wait', { runId: 'f' })).toMatchObject({ status: 'error', state: 'error', error: 'the model is out' });
    expect(await send('fail', 'f')).toMatchObject({ runId: 'f', status: 'error' });
    const before = await wire.call('chat.history', { sessionKey: 'main' });

    await door.restart();
    wire = await Wire.connect(door.port, door.admin);
    expect(await send('gate', 'k')).toMatchObject({ runId: 'k', status: 'ok' });
    expect(await send('fail', 'f')).toMatchObject({ runId: 'f', status: 'error' });
    expect(await wire.call('agent.wait', { runId: 'k' })).toMatchObject({ status: 'ok', terminalReply: { text: 'through the gate' } });
    const id = wire.ask('agent', { message: 'again', idempotencyKey: 'x' });
    await wire.answer(id, 2);
    const { messages } = before as { messages: object[] };
    expect(await wire.call('chat.history', { sessionKey: 'main' })).toMatchObject({ totalMessages: messages.length + 2 });
  });

  it('with another text, method, session or token is a conflict, never somebody else’s run', async () => {
    const door = await open();
    const wire = await Wire.connect(door.port, door.admin);
    await wire.call('sessions.create', { key: 'other' });
    await wire.call('chat.send', { sessionKey: 'main', message: 'one', idempotencyKey: 'k' });
    const { token } = await wire.call('tokens.create', { name: 'second', scopes: ['operator.write'] });
    const second = await Wire.connect(door.port, token);
    const conflict = { code: 'INVALID_REQUEST', details: { code: 'IDEMPOTENCY_CONFLICT' } };
    for (const [by, method, params] of [
      [wire, 'chat.send', { sessionKey: 'main', message: 'two', idempotencyKey: 'k' }],
      [wire, 'chat.send', { sessionKey: 'other', message: 'one', idempotencyKey: 'k' }],
      [wire, 'agent', { message: 'one', idempotencyKey: 'k' }],
      [wire, 'sessions.send', { key: 'main', message: 'one', idempotencyKey: 'k' }],
      [second, 'chat.send', { sessionKey: 'main', message: 'one', idempotencyKey: 'k' }],
    ] as const)
      expect(await by.refusal(method, params)).toMatchObject(conflict);
    expect(await door.rows.runs({}, 'id')).toEqual([{ id: 'k' }]);
  });

  it('of an injected or sent message is one message, and another text is a conflict', async () => {
    const door = await open();
    const wire = await Wire.connect(door.port, door.admin);
    const inject = { sessionKey: 'main', message: 'note', idempotencyKey: 'i' };
    const first = await wire.call('chat.inject', inject);
    expect(await wire.call('chat.inject', inject)).toEqual(first);
    expect(await wire.refusal('chat.inject', { ...inject, message: 'other' })).toMatchObject({ details: { code: 'IDEMPOTENCY_CONFLICT' } });
    const send = { to: 'ana', message: 'hello', channel: 'loopback', idempotencyKey: 's' };
    const sent = await wire.call('send', send);
    await door.finished();
    expect(await wire.call('send', send)).toEqual(sent);
    for (const other of [{ message: 'other' }, { to: 'bo' }])
      expect(await wire.refusal('send', { ...send, ...other })).toMatchObject({ details: { code: 'IDEMPOTENCY_CONFLICT' } });
    await door.finished();
    expect(door.sent.map(({ text }) => text)).toEqual(['hello']);
  });

  it('of a creation is one session and one run, also without a session key', async () => {
    const door = await open();
    const wire = await Wire.connect(door.port, door.admin);
    const wish = { message: 'hello', idempotencyKey: 'c' };
    const first = await wire.call('sessions.create', wish);
    expect(first).toMatchObject({ created: true, runStarted: true, runId: 'c' });
    await wire.call('agent.wait', { runId: 'c' });
    expect(await wire.call('sessions.create', wish)).toMatchObject({
      created: false,
      key: first.key,
      sessionId: first.sessionId,
      runId: 'c',
    });
    expect((await wire.call('sessions.list', {})).count).toBe(2);
    const other = await wire.call('sessions.create', { ...wish, message: 'something else' });
    expect(published('SessionsCreateResult').safeParse(other).error).toBeUndefined();
    expect(other).toMatchObject({ runStarted: false, runError: { details: { code: 'IDEMPOTENCY_CONFLICT' } } });
  });
});

describe('a wait', () => {
  it('for a run that does not exist is an error, not a timeout', async () => {
    const door = await open();
    const wire = await Wire.connect(door.port, door.admin);
    expect(await wire.refusal('agent.wait', { runId: 'nothing' })).toMatchObject({
      code: 'INVALID_REQUEST',
      details: { code: 'RUN_NOT_FOUND' },
    });
  });

  it('ends with its time while the run goes on', async () => {
    const door = await open();
    const wire = await Wire.connect(door.port, door.admin);
    await wire.call('chat.send', { sessionKey: 'main', message: 'gate', idempotencyKey: 'k' });
    await door.stops.entered('one');
    const asleep = door.clock.fallsAsleep(1_234);
    const id = wire.ask('agent.wait', { runId: 'k', timeoutMs: 1_234 });
    await asleep;
    await door.clock.advance(1_234);
    expect(await wire.answer(id)).toMatchObject({ runId: 'k', status: 'timeout', state: 'running', sessionKey: main });
    door.stops.open('one');
    expect(await wire.call('agent.wait', { runId: 'k' })).toMatchObject({ status: 'ok' });
  });

  it('for an aborted run is an error; a run is stopped only through its own session', async () => {
    const door = await open();
    const wire = await Wire.connect(door.port, door.admin);
    await wire.call('sessions.create', { key: 'other' });
    await wire.call('chat.send', { sessionKey: 'main', message: 'gate', idempotencyKey: 'k' });
    await door.stops.entered('one');
    for (const [method, params] of [
      ['chat.abort', { sessionKey: 'other', runId: 'k' }],
      ['sessions.abort', { key: 'other', runId: 'k' }],
    ] as const)
      expect(await wire.refusal(method, params)).toMatchObject({ details: { code: 'RUN_NOT_FOUND' } });
    expect(await wire.call('chat.abort', { sessionKey: 'other' })).toEqual({ ok: true, aborted: false, runIds: [] });
    expect(await wire.refusal('sessions.abort', {})).toMatchObject({ details: { code: 'INVALID_REQUEST' } });
    expect(await wire.call('chat.abort', { sessionKey: 'main', runId: 'k' })).toEqual({ ok: true, aborted: true, runIds: ['k'] });
    expect(await wire.call('agent.wait', { runId: 'k' })).toMatchObject({ status: 'error', state: 'aborted' });
    expect(await wire.call('sessions.abort', { key: 'main' })).toEqual({ ok: true, abortedRunId: null, status: 'no-active-run' });
  });
});

describe('a send policy that denies', () => {
  it('blocks what sends, and lets a run through whose answer goes nowhere', async () => {
    const door = await open();
    const wire = await Wire.connect(door.port, door.admin);
    await wire.call('sessions.patch', { key: 'main', sendPolicy: 'deny' });
    for (const [method, params] of [
      ['chat.send', { sessionKey: 'main', message: 'x', idempotencyKey: '1' }],
      ['chat.send', { sessionKey: 'main', message: 'x', idempotencyKey: '1', deliver: false }],
      ['sessions.send', { key: 'main', message: 'x' }],
      ['agent', { message: 'x', deliver: true, idempotencyKey: '2' }],
      ['send', { to: 'ana', channel: 'loopback', message: 'x', idempotencyKey: '3' }],
    ] as const)
      expect(await wire.refusal(method, params)).toMatchObject({ code: 'FORBIDDEN', details: { code: 'SEND_POLICY_DENIED' } });
    expect(await wire.call('sessions.create', { key: 'main', message: 'x' })).toMatchObject({
      runStarted: false,
      runError: { details: { code: 'SEND_POLICY_DENIED' } },
    });
    expect(await door.rows.runs()).toEqual([]);
    for (const deliver of [{ deliver: false }, {}]) {
      const id = wire.ask('agent', { message: 'quiet', ...deliver, idempotencyKey: `q${JSON.stringify(deliver)}` });
      expect(await wire.answer(id, 2)).toMatchObject({ status: 'ok', result: { payloads: [{ text: 'you said quiet' }] } });
    }
    await door.finished();
    expect(door.sent).toEqual([]);
  });
});

describe('a subscriber', () => {
  it('gets a short run in at most 10 frames and 8 kB', async () => {
    const door = await open();
    const wire = await Wire.connect(door.port, door.admin);
    await wire.call('sessions.subscribe', {});
    await wire.call('sessions.messages.subscribe', { key: 'main' });
    const other = await Wire.connect(door.port, door.admin, { caps: ['session-scoped-events'] });
    const before = wire.texts.length;
    await other.call('chat.send', { sessionKey: 'main', message: 'hello', idempotencyKey: 'k' });
    await wire.event('sessions.changed', ({ phase }) => phase === 'end');
    await wire.event('chat', ({ state }) => state === 'final');
    await wire.call('health');
    const frames = wire.texts.slice(before).filter((text) => text.includes('"type":"event"'));
    expect(frames.length).toBeLessThanOrEqual(10);
    expect(frames.join('').length).toBeLessThanOrEqual(8_000);
    numbered(wire.frames);
    // Who asked for the events of its sessions only, and follows none, hears nothing.
    expect(other.frames.filter(({ event }) => event !== undefined && event !== 'connect.challenge')).toEqual([]);
  });

  it('of all sessions and of one, from different cursors, gets each message once', async () => {
    const door = await open();
    const wire = await Wire.connect(door.port, door.admin);
    const { cursor } = await wire.call('sessions.subscribe', {});
    await wire.call('sessions.unsubscribe');
    for (let n = 1; n <= 3; n++) await wire.call('chat.inject', { sessionKey: 'main', message: `m${n}` });
    // The one session from now on, all from before: what was said in between comes with all.
    await wire.call('sessions.messages.subscribe', { key: 'main' });
    await wire.call('sessions.subscribe', { cursor });
    await wire.call('chat.inject', { sessionKey: 'main', message: 'm4' });
    await wire.event('sessions.changed', ({ phase }) => phase === 'message', 4);
    await wire.event('session.message', ({ messageSeq }) => messageSeq === 4);
    expect(wire.events('session.message').map(({ messageSeq }) => messageSeq)).toEqual([1, 2, 3, 4]);
  });

  it('of one session from now on does not overtake what comes with all sessions, and a later look back repeats nothing', async () => {
    const door = await open();
    const wire = await Wire.connect(door.port, door.admin);
    const { cursor } = await wire.call('sessions.subscribe', {});
    await wire.call('sessions.unsubscribe');
    const writer = await Wire.connect(door.port, door.admin);
    for (let n = 1; n <= 250; n++) await writer.call('chat.inject', { sessionKey: 'main', message: `m${n}` });
    // All sessions are far behind when the one session begins.
    wire.ask('sessions.subscribe', { cursor });
    wire.ask('sessions.messages.subscribe', { key: 'main' });
    await writer.call('chat.inject', { sessionKey: 'main', message: 'm251' });
    await wire.event('session.message', ({ messageSeq }) => messageSeq === 251);
    const order = () => wire.events('session.message').map(({ messageSeq }) => messageSeq);
    expect(order()).toEqual(Array.from({ length: 251 }, (_, index) => index + 1));
    // Another session is followed from an old cursor, and this one from its beginning.
    await writer.call('sessions.create', { key: 'aside' });
    await writer.call('chat.inject', { sessionKey: 'aside', message: 'there' });
    await wire.call('sessions.messages.subscribe', { key: 'aside', cursor });
    await wire.call('sessions.messages.subscribe', { key: 'main', cursor });
    await writer.call('chat.inject', { sessionKey: 'main', message: 'm252' });
    await wire.event('session.message', ({ messageSeq, sessionKey }) => messageSeq === 252 && sessionKey === 'agent:main:main');
    expect(order()).toEqual([...Array.from({ length: 251 }, (_, index) => index + 1), 1, 252]);
  }, 30_000);

  it('with a cursor that nobody knows is told to start over', async () => {
    const door = await open();
    const wire = await Wire.connect(door.port, door.admin);
    for (const [index, cursor] of ['zzzz', 'not a cursor', '0'].entries()) {
      expect(await wire.call('sessions.subscribe', { cursor })).toEqual({ subscribed: true, cursor });
      await wire.event('sessions.changed', ({ reason }) => reason === 'resync', index + 1);
    }
    await wire.call('sessions.messages.subscribe', { key: 'main', cursor: 'zzzz' });
    await wire.event('sessions.changed', ({ reason, sessionKey }) => reason === 'resync' && sessionKey === 'agent:main:main');
  });

  it('that does not read is let go, and resumes by its cursor with nothing missed or doubled', async () => {
    const door = await open();
    const writer = await Wire.connect(door.port, door.admin);
    const slow = await Wire.connect(door.port, door.admin);
    await slow.call('sessions.messages.subscribe', { key: 'main' });
    await writer.call('chat.inject', { sessionKey: 'main', message: 'first' });
    await slow.event('session.message');
    slow.socket.pause();
    const armed = door.clock.fallsAsleep(30_000);
    const count = 30;
    for (let n = 0; n < count; n++) await writer.call('chat.inject', { sessionKey: 'main', message: 'x'.repeat(900_000) });
    await armed;
    await door.clock.advance(30_000);
    slow.socket.resume();
    await slow.closed;
    const seen = slow.events('session.message') as { messageSeq: number; cursor: string }[];
    expect(seen.length).toBeLessThan(count + 1);
    const again = await Wire.connect(door.port, door.admin);
    await again.call('sessions.messages.subscribe', { key: 'main', cursor: seen.at(-1)!.cursor });
    await again.event('session.message', ({ messageSeq }) => messageSeq === count + 1);
    const all = [...seen, ...(again.events('session.message') as { messageSeq: number }[])].map(({ messageSeq }) => messageSeq);
    expect(all).toEqual(Array.from({ length: count + 1 }, (_, index) => index + 1));
    expect(await writer.call('health')).toMatchObject({ ok: true });
  }, 30_000);

  it('hears a run that waits in between with numbers that only rise', async () => {
    const door = await open(
      {
        tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } },
        agents: { list: [{ id: 'main', default: true }, { id: 'b' }] },
      },
      {
        script: [
          {
            agent: 'main',
            when: 'ask',
            steps: [
              { say: 'let me see', calls: [{ tool: 'sessions_send', args: { sessionKey: 'agent:b:main', message: 'q' } }] },
              { say: 'done' },
            ],
          },
          { agent: 'b', when: '^\nq$', steps: [{ say: 'a' }] },
          { steps: [{ say: 'REPLY_SKIP' }] },
        ],
      },
    );
    const wire = await Wire.connect(door.port, door.admin);
    await wire.call('chat.send', { sessionKey: 'main', message: 'ask', idempotencyKey: 'k' });
    await wire.event('chat', ({ runId, state }) => runId === 'k' && state === 'final');
    for (const name of ['chat', 'agent']) {
      const seqs = wire
        .events(name)
        .filter(({ runId }) => runId === 'k')
        .map(({ seq }) => seq);
      expect(seqs.length).toBeGreaterThan(1);
      expect(seqs).toEqual([...new Set(seqs)].toSorted((a, b) => (a as number) - (b as number)));
    }
  });
});

describe('the handshake', () => {
  const first = (id: string, frame: { type: string; id?: string }) => frame.type === 'res' && frame.id === id;

  it.each([
    [
      'a wrong token',
      connectParams('nope'),
      1008,
      {
        code: 'INVALID_REQUEST',
        details: {
          code: 'AUTH_TOKEN_MISMATCH',
          authReason: 'token_mismatch',
          canRetryWithDeviceToken: false,
          recommendedNextStep: 'update_auth_credentials',
        },
      },
    ],
    ['a wrong password', connectParams(undefined, { auth: { password: 'nope' } }), 1008, { details: { code: 'AUTH_TOKEN_MISMATCH' } }],
    ['no token', connectParams(undefined), 1008, { code: 'INVALID_REQUEST', details: { code: 'AUTH_TOKEN_MISSING' } }],
    ['a device instead of a token', connectParams(undefined, { device: { id: 'x' } }), 1008, { details: { code: 'AUTH_TOKEN_MISSING' } }],
    [
      'an old window',
      connectParams('nope', { minProtocol: 1, maxProtocol: 3 }),
      1002,
      {
        code: 'INVALID_REQUEST',
        details: { code: 'PROTOCOL_MISMATCH', clientMinProtocol: 1, clientMaxProtocol: 3, expectedProtocol: 4 },
      },
    ],
    [
      'params that do not fit',
      { ...connectParams('nope'), client: {} },
      1008,
      { code: 'INVALID_REQUEST', message: expect.stringContaining('/client/id') },
    ],
    ['an unknown field', connectParams('nope', { bogus: 1 }), 1008, { message: expect.stringContaining('bogus') }],
    ['a field whose name is long and not ASCII', connectParams('nope', { ['💥'.repeat(200)]: 1 }), 1008, { code: 'INVALID_REQUEST' }],
    ['no params', undefined, 1008, { code: 'INVALID_REQUEST' }],
  ])('with %s is refused', async (_, params, code, error) => {
    const door = await open();
    const wire = await door.raw();
    wire.ask('connect', params, 'c');
    const answer = await wire.frame((frame) => first('c', frame));
    expect(answer).toMatchObject({ ok: false, error });
    expect(readConnectErrorDetailCode(answer.error!.details)).not.toBeNull();
    expect((await wire.closed).code).toBe(code);
    // And the door is open for others.
    await Wire.connect(door.port, door.admin);
  });

  it.each([
    ['another request', JSON.stringify({ type: 'req', id: 'x', method: 'health' }), 'HANDSHAKE_REQUIRED'],
    ['an unknown method', JSON.stringify({ type: 'req', id: 'x', method: 'no.such' }), 'HANDSHAKE_REQUIRED'],
    ['no JSON', 'hello', 'INVALID_REQUEST'],
    ['no object', '[1]', 'INVALID_REQUEST'],
    ['null', 'null', 'INVALID_REQUEST'],
    ['an answer', JSON.stringify({ type: 'res', id: 'x', ok: true }), 'INVALID_REQUEST'],
    ['an unknown field in the frame', JSON.stringify({ type: 'req', id: 'x', method: 'connect', params: {}, extra: 1 }), 'INVALID_REQUEST'],
  ])('that begins with %s is refused with 1008', async (_, text, code) => {
    const door = await open();
    const wire = await door.raw();
    wire.send(text);
    expect(await wire.frame(({ type }) => type === 'res')).toMatchObject({
      ok: false,
      error: { code: 'INVALID_REQUEST', details: { code } },
    });
    expect(await wire.closed).toMatchObject({ code: 1008, reason: expect.stringMatching(/./) });
  });

  it('that is larger than 64 KiB is cut off with 1009; afterwards frames may be larger, up to 25 MiB', async () => {
    const door = await open();
    const big = await door.raw();
    big.ask('connect', connectParams('x'.repeat(frameLimits.before)));
    expect((await big.closed).code).toBe(1009);
    const wire = await Wire.connect(door.port, door.admin);
    expect(await wire.call('chat.inject', { sessionKey: 'main', message: 'y'.repeat(500_000) })).toMatchObject({ ok: true });
    wire.send(Buffer.alloc(frameLimits.admin + 1, ' '));
    expect((await wire.closed).code).toBe(1009);
    await Wire.connect(door.port, door.admin);
  });

  it('that never comes ends after its time', async () => {
    const door = await open();
    const wire = await door.raw();
    await door.clock.advance(15_000);
    expect(await wire.closed).toMatchObject({ code: 1008, reason: 'no connect request in time' });
  });

  it('is done once, on any path, and a binary frame counts like text', async () => {
    const door = await open();
    const wire = await Wire.open(door.port, { path: '/any/path?x=1' });
    wire.send(Buffer.from(JSON.stringify({ type: 'req', id: 'c', method: 'connect', params: connectParams(door.admin) })));
    await wire.answer('c');
    expect(await wire.refusal('connect', connectParams(door.admin))).toMatchObject({ code: 'INVALID_REQUEST' });
    expect(await wire.call('health')).toMatchObject({ ok: true });
  });

  it('leaves no trace in the counts when clients go away in the middle', async () => {
    const door = await open();
    for (let n = 0; n < 300; n++) {
      const wire = await door.raw();
      if (n % 2 === 0) wire.ask('connect', connectParams(door.admin));
      wire.socket.terminate();
      await wire.closed;
    }
    const wire = await Wire.connect(door.port, door.admin);
    expect(await wire.call('health')).toMatchObject({ ok: true });
  });
});

describe('after the handshake', () => {
  it('bad frames are answered, and the connection lives', async () => {
    const door = await open();
    const wire = await Wire.connect(door.port, door.admin);
    const bad: [string, string][] = [
      ['{', 'invalid'],
      ['7', 'invalid'],
      ['"text"', 'invalid'],
      [JSON.stringify({ type: 'req', id: 'a', method: '' }), 'a'],
      [JSON.stringify({ type: 'req', id: 'b', method: 'health', extra: 1 }), 'b'],
      [JSON.stringify({ type: 'event', id: 'd', event: 'tick' }), 'd'],
      [JSON.stringify({ type: 'req', id: '', method: 'health' }), 'invalid'],
    ];
    for (const [text] of bad) wire.send(text);
    for (const [, id] of bad)
      expect(await wire.frame((frame) => frame.type === 'res' && frame.id === id)).toMatchObject({
        ok: false,
        error: { code: 'INVALID_REQUEST' },
      });
    await wire.frame(({ id }) => id === 'invalid', 4);
    for (const name of ['sessions.lst', 'constructor', '__proto__', 'toString'])
      expect(await wire.refusal(name)).toMatchObject({ details: { code: 'METHOD_NOT_FOUND' } });
    expect(await wire.refusal('sessions.lst')).toMatchObject({ message: expect.stringContaining('sessions.list') });
    // Two requests with one id are both answered.
    wire.ask('health', undefined, 'twice');
    wire.ask('health', undefined, 'twice');
    await wire.answer('twice', 2);
  });

  it('a tool answers an operator, also one whose answer is plain text', async () => {
    const door = await open();
    door.stops.open('now');
    const wire = await Wire.connect(door.port, door.admin);
    expect(await wire.call('tools.invoke', { tool: 'gate', args: { name: 'now' } })).toEqual({ ok: true, tool: 'gate', result: 'open' });
    expect(await wire.call('tools.invoke', { tool: 'session_status' })).toMatchObject({ ok: true, result: { key: main } });
    expect(await wire.call('tools.invoke', { tool: 'nothing' })).toMatchObject({ ok: false, result: { code: 'INVALID_REQUEST' } });
  });

  it('a failed tool call of a connection that has gone leaves nothing behind', async () => {
    const door = await open();
    const wire = await Wire.connect(door.port, door.admin);
    wire.ask('tools.invoke', { tool: 'gate', args: { name: 'never' } });
    await door.stops.entered('never');
    await wire.end();
    const other = await Wire.connect(door.port, door.admin);
    expect(await other.call('status')).toMatchObject({ connections: 1 });
    expect(door.warnings).toEqual([]);
  });

  it('a client that is told of its own session only while it is there: subscriptions end with the connection', async () => {
    const door = await open();
    const wire = await Wire.connect(door.port, door.admin);
    // The answers are never read: the connection ends while they are worked out.
    for (let n = 0; n < 20; n++) wire.ask('sessions.subscribe', { limit: 1 });
    wire.socket.terminate();
    await wire.closed;
    const other = await Wire.connect(door.port, door.admin);
    await other.call('chat.inject', { sessionKey: 'main', message: 'x' });
    await door.event(({ kind }) => kind === 'entry');
    expect(await other.call('status')).toMatchObject({ connections: 1 });
    expect(door.warnings).toEqual([]);
  });
});

// The outward surface, as literals -------------------------------------------------------------------------------------

describe('the surface', () => {
  it('has these methods, for these callers', () => {
    expect(Object.fromEntries(Object.entries(operations).map(([name, { scope }]) => [name, scope]))).toEqual({
      health: 'session',
      status: 'operator.read',
      'agents.list': 'operator.read',
      'sessions.list': 'operator.read',
      'sessions.lives': 'operator.read',
      'sessions.describe': 'operator.read',
      'sessions.resolve': 'operator.read',
      'sessions.preview': 'operator.read',
      'sessions.create': 'operator.write',
      'sessions.patch': 'operator.write',
      'sessions.reset': 'operator.admin',
      'sessions.delete': 'operator.admin',
      'sessions.abort': 'operator.write',
      'sessions.send': 'operator.write',
      'sessions.subscribe': 'operator.read',
      'sessions.unsubscribe': 'operator.read',
      'sessions.messages.subscribe': 'operator.read',
      'sessions.messages.unsubscribe': 'operator.read',
      'chat.history': 'operator.read',
      'chat.send': 'operator.write',
      'chat.abort': 'operator.write',
      'chat.inject': 'operator.admin',
      agent: 'operator.write',
      'agent.wait': 'operator.read',
      send: 'operator.write',
      'runs.list': 'operator.read',
      'deliveries.list': 'operator.read',
      'deliveries.resend': 'operator.write',
      'deliveries.settle': 'operator.write',
      'feed.read': 'operator.read',
      'sessions.markRead': 'operator.read',
      'tools.invoke': 'session',
      'explain.route': 'operator.read',
      'explain.key': 'operator.read',
      'explain.send': 'operator.read',
      'explain.access': 'operator.read',
      'explain.tools': 'operator.read',
      'guests.join': 'operator.admin',
      'tokens.list': 'operator.admin',
      'tokens.create': 'operator.admin',
      'tokens.signIn': 'operator.admin',
      'tokens.rotate': 'operator.admin',
      'tokens.revoke': 'operator.admin',
    });
  });

  it('has these events', () => {
    expect(eventNames).toEqual(['connect.challenge', 'tick', 'shutdown', 'health', 'chat', 'agent', 'session.message', 'sessions.changed']);
  });

  const validators = protocol as unknown as Record<string, (params: unknown) => boolean>;
  it.each<[OperationName, string, object]>([
    ['agents.list', 'AgentsList', {}],
    ['sessions.list', 'SessionsList', {}],
    [
      'sessions.list',
      'SessionsList',
      {
        limit: 10,
        offset: 0,
        activeMinutes: 5,
        label: 'x',
        spawnedBy: 'main',
        agentId: 'main',
        search: 'a',
        archived: 'all',
        includeLastMessage: true,
        includeDerivedTitles: true,
        includeGlobal: true,
        includeUnknown: false,
        configuredAgentsOnly: true,
        sortBy: 'updatedAt',
        ownerFirst: true,
        includePeople: true,
      },
    ],
    ['sessions.describe', 'SessionsDescribe', { key: 'main' }],
    ['sessions.resolve', 'SessionsResolve', { key: 'main' }],
    ['sessions.resolve', 'SessionsResolve', { label: 'x', agentId: 'main', allowMissing: true }],
    ['sessions.preview', 'SessionsPreview', { keys: ['main'], limit: 3, maxChars: 20 }],
    ['sessions.create', 'SessionsCreate', {}],
    [
      'sessions.create',
      'SessionsCreate',
      {
        key: 'planning',
        label: 'Plans',
        message: 'x',
        idempotencyKey: 'c',
        displayName: 'P',
        model: 'm',
        thinkingLevel: 'high',
        agentId: 'main',
      },
    ],
    ['sessions.patch', 'SessionsPatch', { key: 'main' }],
    [
      'sessions.patch',
      'SessionsPatch',
      { key: 'main', label: null, thinkingLevel: 'high', verboseLevel: 'on', sendPolicy: 'deny', model: null, expectedSessionId: 'x' },
    ],
    ['sessions.reset', 'SessionsReset', { key: 'main', reason: 'new' }],
    ['sessions.delete', 'SessionsDelete', { key: 'main', expectedSessionId: 'x', deleteTranscript: true }],
    ['sessions.abort', 'SessionsAbort', { key: 'main' }],
    ['sessions.abort', 'SessionsAbort', { runId: 'k' }],
    ['sessions.send', 'SessionsSend', { key: 'main', message: 'x' }],
    ['sessions.subscribe', 'SessionsList', { limit: 1 }],
    ['sessions.messages.subscribe', 'SessionsMessagesSubscribe', { key: 'main', includeApprovals: true }],
    ['sessions.messages.unsubscribe', 'SessionsMessagesUnsubscribe', { key: 'main' }],
    ['chat.history', 'ChatHistory', { sessionKey: 'main', limit: 1000, offset: 3, maxChars: 500_000 }],
    ['chat.history', 'ChatHistory', { sessionKey: 'main', cursor: 'x' }],
    ['chat.send', 'ChatSend', { sessionKey: 'main', message: 'x', idempotencyKey: 'k' }],
    ['chat.abort', 'ChatAbort', { sessionKey: 'main', runId: 'k' }],
    ['chat.inject', 'ChatInject', { sessionKey: 'main', message: 'x', label: 'l' }],
    ['agent', 'Agent', { message: 'x', idempotencyKey: 'k' }],
    [
      'agent',
      'Agent',
      { message: 'x', idempotencyKey: 'k', sessionKey: 'main', deliver: false, timeout: 5, lane: 'main', bestEffortDeliver: true },
    ],
    ['agent.wait', 'AgentWait', { runId: 'k', timeoutMs: 0 }],
    [
      'send',
      'Send',
      { to: 'ana', message: 'x', idempotencyKey: 'k', channel: 'loopback', accountId: 'a', threadId: 't', sessionKey: 'main' },
    ],
  ])('takes for %s what the published %sParams take: %j', (method, name, params) => {
    expect(validators[`validate${name}Params`]!(params), 'published').toBe(true);
    expect(operations[method].params.safeParse(params).error, 'ours').toBeUndefined();
  });

  it('answers with errors in the published shape, and refusals are told apart by their code', async () => {
    const door = await open();
    const wire = await Wire.connect(door.port, door.admin);
    for (const [method, params] of [
      ['sessions.list', { bogus: 1 }],
      ['chat.history', { sessionKey: 'nowhere' }],
      ['nothing', {}],
      ['sessions.describe', { key: 'agent::' }],
    ] as const) {
      const error = await wire.refusal(method, params);
      expect(published('ErrorShape').safeParse(error).error).toBeUndefined();
      expect(Object.keys(errorTable)).toContain(error.details!.code);
    }
    expect((await wire.refusal('sessions.list', { bogus: 1 })).message).toContain('bogus');
  });
});
