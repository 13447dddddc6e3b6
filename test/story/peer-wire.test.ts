// What clients of the peer expect, asked with the client that was published for them: new sessions, lists, and messages written by hand.
import { describe, expect, it, vi } from 'vitest';
import { adminToken, testGateway, type ConfigText } from '../harness/gateway.ts';
import { Published, published } from '../harness/published.ts';
import { Wire } from '../harness/socket.ts';
import { started } from '../harness/terminal.ts';

// Nothing here depends on how long it takes; a machine with other work to do may take its time.
vi.setConfig({ testTimeout: 30_000, hookTimeout: 30_000 });

async function open(config: ConfigText = {}) {
  const gw = await testGateway({ config: { agents: { list: [{ id: 'main', default: true }, { id: 'bo' }] }, ...config }, listen: true });
  return { gw, client: await Published.connect(gw.port, gw.admin) };
}
const code = (work: Promise<unknown>) =>
  work.then(
    () => 'done',
    (thrown: { details?: { code?: string } }) => thrown.details?.code ?? 'none',
  );

describe('a message to a key without a session', () => {
  it('opens it: main, direct, group, channel, named, bridged and bare ones', async () => {
    const { gw, client } = await open();
    for (const [written, key] of [
      ['fresh', 'agent:main:fresh'],
      ['agent:bo:plans', 'agent:bo:plans'],
      ['agent:bo:main:thread:7', 'agent:bo:main:thread:7'],
      ['agent:main:direct:ana', 'agent:main:direct:ana'],
      ['telegram:group:12', 'agent:main:telegram:group:12'],
      ['agent:bo:discord:channel:general', 'agent:bo:discord:channel:general'],
      ['agent:main:acp-bridge:7', 'agent:main:acp-bridge:7'],
    ] as const) {
      const request = { sessionKey: written, message: 'hello', idempotencyKey: `first ${key}` };
      expect(await client.call('chat.send', request)).toEqual({ runId: request.idempotencyKey, sessionKey: key, status: 'started' });
      expect(await gw.wait(request.idempotencyKey)).toMatchObject({ state: 'ok', reply: 're: hello' });
      // The same request again is the same run, and another message goes to the same session.
      expect(await client.call('chat.send', request)).toMatchObject({ status: 'ok' });
      const again = { sessionKey: key, message: 'again', idempotencyKey: `second ${key}` };
      expect(await client.call('agent', again, { expectFinal: true })).toMatchObject({
        sessionKey: key,
        status: 'ok',
        result: { payloads: [{ text: 're: again' }] },
      });
      expect(await client.call('sessions.describe', { key })).toMatchObject({ session: { key, messageCount: 4 } });
    }
  });

  it('opens it for "agent" too, and several at once run side by side', async () => {
    const { client } = await open();
    const keys = ['agent:main:one', 'agent:main:two', 'agent:bo:three'];
    const answers = await Promise.all(
      keys.map((sessionKey) =>
        client.call('agent', { sessionKey, message: sessionKey, idempotencyKey: sessionKey }, { expectFinal: true }),
      ),
    );
    expect(answers.map(({ sessionKey, agentId, status }) => [sessionKey, agentId, status])).toEqual([
      ['agent:main:one', 'main', 'ok'],
      ['agent:main:two', 'main', 'ok'],
      ['agent:bo:three', 'bo', 'ok'],
    ]);
  });

  it('is refused where no operator may open one', async () => {
    const { client } = await open();
    for (const [sessionKey, refusal] of [
      ['agent:main:cron:nightly', 'INVALID_REQUEST'],
      ['agent:main:hook:x', 'INVALID_REQUEST'],
      ['agent:main:node-x', 'INVALID_REQUEST'],
      ['agent:main:subagent:x', 'INVALID_REQUEST'],
      ['agent:main:acp:x', 'INVALID_REQUEST'],
      ['agent:main:guest:x', 'INVALID_REQUEST'],
      ['agent:nobody:main', 'AGENT_NOT_FOUND'],
      ['agent:main:', 'SESSION_KEY_INVALID'],
      ['unknown', 'SESSION_KEY_RESERVED'],
      ['0f8fad5b-d9cb-469f-a165-70867728950e', 'SESSION_NOT_FOUND'],
    ] as const) {
      const sent = await code(client.call('chat.send', { sessionKey, message: 'x', idempotencyKey: 'k1' }));
      const ran = await code(client.call('agent', { sessionKey, message: 'x', idempotencyKey: 'k2' }));
      expect({ sessionKey, sent, ran }).toEqual({ sessionKey, sent: refusal, ran: refusal });
    }
    expect((await client.call('sessions.list', { archived: 'all' })).count).toBe(2);
  });

  it('is refused, as any request, with an agent beside the key or the session id that is not its agent', async () => {
    const { gw, client } = await open();
    const { id } = await gw.rows.session('agent:bo:main');
    const refused = await Promise.all([
      code(client.call('agent', { sessionKey: 'agent:bo:main', agentId: 'main', message: 'x', idempotencyKey: 'k1' })),
      code(client.call('agent', { sessionKey: 'agent:bo:new', agentId: 'main', message: 'x', idempotencyKey: 'k2' })),
      code(client.call('agent', { sessionId: id, agentId: 'main', message: 'x', idempotencyKey: 'k3' })),
      code(client.call('chat.send', { sessionKey: 'agent:bo:new', agentId: 'nobody', message: 'x', idempotencyKey: 'k4' })),
      code(client.call('chat.history', { sessionKey: 'agent:bo:main', agentId: 'main' })),
      code(client.call('sessions.resolve', { key: 'agent:bo:main', agentId: 'main' })),
      code(client.call('sessions.create', { key: 'agent:bo:main', agentId: 'main' })),
      code(client.call('chat.send', { sessionKey: 'bare', agentId: 'nobody', message: 'x', idempotencyKey: 'k5' })),
    ]);
    expect(refused).toEqual([...Array<string>(7).fill('INVALID_REQUEST'), 'AGENT_NOT_FOUND']);
    expect(await client.call('sessions.resolve', { sessionId: id, agentId: 'Bo' })).toMatchObject({ key: 'agent:bo:main' });
  });

  it('is refused to a connection that asked for fewer scopes than its token has, and the error says so', async () => {
    const { gw } = await open();
    const send = async (scopes?: string[]) => {
      const wire = await Wire.connect(gw.port, await gw.token(`t${scopes?.length}`, { scopes: ['operator.write'] }), scopes && { scopes });
      return wire.call('sessions.reset', { key: 'main' }).catch((error: Error) => error.message);
    };
    expect(await send([])).toMatch(/this connection asked for no scopes only; connect with more scopes/);
    expect(await send(['operator.read'])).toMatch(/this connection asked for operator\.read only/);
  });

  it('is refused by the other doors, and for a session id or a send policy that says no', async () => {
    const { gw, client } = await open({
      session: { sendPolicy: { default: 'allow', rules: [{ action: 'deny', match: { keyPrefix: 'agent:main:quiet' } }] } },
    });
    expect(await code(client.call('sessions.send', { key: 'agent:main:absent', message: 'x' }))).toBe('SESSION_NOT_FOUND');
    expect(await code(client.call('chat.inject', { sessionKey: 'agent:main:absent', message: 'x' }))).toBe('SESSION_NOT_FOUND');
    expect((await gw.post('/sessions/absent/messages', { message: 'x' })).status).toBe(404);
    const stale = { sessionKey: 'agent:main:absent', sessionId: 'gone', message: 'x', idempotencyKey: 'k1' };
    expect(await code(client.call('chat.send', stale))).toBe('SESSION_NOT_FOUND');
    expect(await code(client.call('chat.send', { sessionKey: 'agent:main:quiet', message: 'x', idempotencyKey: 'k2' }))).toBe(
      'SEND_POLICY_DENIED',
    );
    expect((await client.call('sessions.list', {})).sessions.map(({ key }) => key).toSorted()).toEqual([
      'agent:bo:main',
      'agent:main:main',
    ]);
  });

  it('looks the same for a hidden session as it looks to create it', async () => {
    const { gw } = await open();
    await gw.tell('agent:main:secret', 'psst', { taint: 3 });
    const low = await Published.connect(gw.port, await gw.token('low', { scopes: ['operator.write'], level: 'PUBLIC' }));
    const sent = await code(low.call('chat.send', { sessionKey: 'agent:main:secret', message: 'x', idempotencyKey: 'k1' }));
    expect(sent).toBe(await code(low.call('sessions.create', { key: 'agent:main:secret' })));
    expect(sent).not.toBe('done');
  });

  it('opens none from the command line without --create or "sessions new"', async () => {
    const { gw, client } = await open();
    const env = { INTERLANE_TOKEN: adminToken, INTERLANE_URL: gw.url };
    const run = async (...argv: string[]) => {
      const { status, stdout } = await started(argv, { env, input: 'hi\n' }).finished;
      return [status, stdout.trim()];
    };
    const keys = async () => (await client.call('sessions.list', {})).sessions.map(({ key }) => key);
    expect((await run('send', 'fresh', 'hello'))[0]).not.toBe(0);
    expect((await run('chat', 'fresh'))[0]).not.toBe(0);
    expect(await keys()).toHaveLength(2);
    expect(await run('send', 'fresh', 'hello', '--create')).toEqual([0, 're: hello']);
    expect(await run('send', 'fresh', 'again', '--create')).toEqual([0, 're: again']);
    expect(await run('chat', 'agent:bo:talk', '--create')).toEqual([0, 're: hi']);
    expect(await run('sessions', 'new', 'plans', '--agent', 'bo', '--label', 'Plans')).toEqual([0, 'agent:bo:plans']);
    const [status, printed] = await run('sessions', 'new', '--json');
    expect([status, JSON.parse(String(printed))]).toMatchObject([0, { key: expect.stringMatching(/^agent:main:dashboard:/) }]);
    expect((await run('sessions', 'new', 'agent:bo:plans'))[0]).not.toBe(0);
    expect(await keys()).toEqual(expect.arrayContaining(['agent:main:fresh', 'agent:bo:talk', 'agent:bo:plans']));
  });
});

describe('a message that an operator writes into a transcript', () => {
  it('comes to clients as the end of a run of its own', async () => {
    const { client } = await open();
    const { messageId } = await client.call('chat.inject', { sessionKey: 'main', message: 'By hand', label: 'note' });
    await client.until(() => client.payloads('chat').length > 0);
    const [event] = client.payloads('chat');
    expect(published('ChatEvent').safeParse(event).error).toBeUndefined();
    expect(event).toMatchObject({
      runId: `inject-${messageId}`,
      sessionKey: 'agent:main:main',
      state: 'final',
      message: { role: 'assistant', content: [{ text: '[note]\n\nBy hand' }], __openclaw: { id: messageId } },
    });
  });

  it('reaches only clients that may see the session', async () => {
    const { gw, client } = await open();
    await gw.tell('agent:main:secret', 'psst', { taint: 3 });
    const low = await Published.connect(gw.port, await gw.token('low', { scopes: ['operator.read'], level: 'PUBLIC' }));
    await client.call('chat.inject', { sessionKey: 'agent:main:secret', message: 'hidden' });
    await client.call('chat.inject', { sessionKey: 'main', message: 'plain' });
    await low.until(() => low.payloads('chat').length > 0);
    expect(JSON.stringify(low.payloads('chat'))).not.toContain('hidden');
  });
});

describe('a list of sessions', () => {
  it('says how many there are, whatever the page', async () => {
    const { gw, client } = await open();
    for (let n = 1; n <= 7; n++) await client.call('sessions.create', { key: `agent:bo:n${n}`, label: `note ${n}` });
    await gw.tell('agent:main:secret', 'psst', { taint: 3 });
    const total = async (wish: object, caller = client) => (await caller.call('sessions.list', wish)).totalCount;
    expect([await total({}), await total({ limit: 2 }), await total({ limit: 2, offset: 4 })]).toEqual([10, 10, 10]);
    const { nextCursor } = await client.call('sessions.list', { limit: 3 });
    expect(await total({ limit: 3, cursor: nextCursor })).toBe(10);
    expect([await total({ agentId: 'bo', limit: 1 }), await total({ kinds: ['main'], limit: 1 })]).toEqual([8, 2]);
    expect([await total({ search: 'note' }), await total({ label: 'note 3' }), await total({ search: 'note', limit: 2 })]).toEqual([
      7,
      1,
      undefined,
    ]);
    await client.call('sessions.delete', { key: 'agent:bo:n1' });
    expect([await total({ limit: 1 }), await total({ archived: true, limit: 1 })]).toEqual([9, 0]);
    const low = await Published.connect(gw.port, await gw.token('low', { scopes: ['operator.read'], level: 'PUBLIC' }));
    expect(await total({ limit: 1 }, low)).toBe(8);
    expect((await gw.http('/sessions?limit=1')).json.totalCount).toBe(9);
  });

  it('comes in the order that was asked for, and an order that does not exist is refused', async () => {
    const { gw, client } = await open();
    const names = ['one', 'two', 'three'];
    for (const name of names) {
      await client.call('sessions.create', { key: name });
      await gw.clock.advance(1_000);
      await client.call('chat.inject', { sessionKey: name, message: 'x' });
      await gw.clock.advance(1_000);
    }
    await client.call('sessions.patch', { key: 'one', displayName: 'changed' });
    const order = async (wish: object) =>
      (await client.call('sessions.list', { search: 'agent:main', ...wish })).sessions
        .map(({ key }) => key.split(':')[2])
        .filter((name) => names.includes(name!));
    expect(await order({})).toEqual(['one', 'three', 'two']);
    expect(await order({ sortBy: 'updatedAt' })).toEqual(['one', 'three', 'two']);
    expect(await order({ sortBy: 'lastInteractionAt' })).toEqual(['three', 'two', 'one']);
    const first = await client.call('sessions.list', { sortBy: 'lastInteractionAt', limit: 2 });
    expect(first).toMatchObject({ hasMore: true, nextOffset: 2, sessions: [{ key: 'agent:main:three' }, { key: 'agent:main:two' }] });
    expect(first).not.toHaveProperty('nextCursor');
    const next = await client.call('sessions.list', { sortBy: 'lastInteractionAt', limit: 1, offset: 2 });
    expect(next.sessions).toMatchObject([{ key: 'agent:main:one' }]);
    expect(await code(client.call('sessions.list', { sortBy: 'bogus' as never }))).toBe('INVALID_REQUEST');
    const { nextCursor } = await client.call('sessions.list', { limit: 1 });
    expect(await code(client.call('sessions.list', { sortBy: 'lastInteractionAt', cursor: nextCursor! }))).toBe('INVALID_REQUEST');
  });

  it('by the last message is one of the newest 5,000 sessions, however many there are', async () => {
    const { gw, client } = await open();
    for (const key of ['far', 'near']) await client.call('sessions.create', { key, label: `${key} away` });
    await gw.rows.addOldSessions(6_000);
    await client.call('chat.inject', { sessionKey: 'near', message: 'x' });
    await client.call('sessions.patch', { key: 'near', displayName: 'newest' });
    const found = async (search: string) => {
      const { sessions, hasMore, totalCount } = await client.call('sessions.list', { sortBy: 'lastInteractionAt', search });
      return [sessions.length, hasMore, totalCount];
    };
    // The search stops, so a word that is nowhere cannot make it read everything.
    expect([await found('old-5999'), await found('far away')]).toEqual([
      [1, false, undefined],
      [0, false, undefined],
    ]);
  });
});
