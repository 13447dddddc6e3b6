// The session tools as an agent meets them: every call is made by a real run, and its answer is read from the transcript.
import { mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import * as fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { toolNames } from '../../src/protocol/tool.ts';
import type { TranscriptMessage } from '../../src/protocol/transcript.ts';
import { testGateway, type ConfigText, type Refused, type TestGateway } from '../harness/gateway.ts';
import { refusal } from '../harness/refusal.ts';

// Nothing here depends on how long it takes; a machine with other work to do may take its time.
vi.setConfig({ testTimeout: 30_000, hookTimeout: 30_000 });

type Row = Record<string, unknown> & { key: string; sessionId: string; messages?: TranscriptMessage[] };
type Listed = { count: number; scope: string; sessions: Row[]; nextCursor?: string };
type History = { sessionKey: string; messages: TranscriptMessage[]; truncated?: true; nextCursor?: string };

const caller = 'agent:ana:main';

const list = (tools: TestGateway, args: Record<string, unknown> = {}, from = caller) => tools.tool<Listed>('sessions_list', args, from);
const keys = async (tools: TestGateway, args: Record<string, unknown> = {}, from = caller) =>
  (await list(tools, args, from)).sessions.map(({ key }) => key);
const history = (tools: TestGateway, args: Record<string, unknown>, from = caller) => tools.tool<History>('sessions_history', args, from);

const agents = { list: [{ id: 'ana', default: true, name: 'Ana' }, { id: 'bo', name: 'Bo' }, { id: 'cy' }] };
const all = { tools: { sessions: { visibility: 'all' as const }, agentToAgent: { enabled: true } } };

const open = (config: ConfigText = {}, more: { shared?: true } = {}): Promise<TestGateway> =>
  testGateway({ config: { agents, ...all, ...config }, caller, channels: [], ...more });

/** One gateway for all tests of a group, which only ask it things. */
function share(prepare: (tools: TestGateway) => Promise<void> = async () => {}, config: ConfigText = {}): () => TestGateway {
  let tools: TestGateway;
  beforeAll(async () => {
    tools = await open(config, { shared: true });
    await prepare(tools);
  });
  afterAll(() => tools.end());
  return () => tools;
}

const textOf = (message: TranscriptMessage) => message.content.map((block) => (block.type === 'text' ? block.text : '')).join('');

describe('sessions_list', () => {
  it('shows every field of a row that has a value', async () => {
    const tools = await open();
    const key = 'agent:bo:telegram:group:-100';
    await tools.tell(key, 'hello', { kind: 'group', label: 'lunch' });
    const settings = { displayName: 'Kitchen', model: 'x/y', thinkingLevel: 'low', verboseLevel: 'on', sendPolicy: 'deny' };
    const delivery = JSON.stringify({ channel: 'telegram', to: '-100', accountId: 'work' });
    const counted = { total_tokens: 12, system_sent: 1, aborted_last: 1 };
    await tools.rows.setSession(key, { settings: JSON.stringify(settings), delivery, ...counted });
    const { sessions } = await list(tools, { kinds: ['group'] });
    expect(sessions).toEqual([
      {
        key,
        kind: 'group',
        channel: 'telegram',
        label: 'lunch',
        displayName: 'Kitchen',
        user: 'loopback:you',
        updatedAt: tools.clock.now(),
        sessionId: `id of ${key}`,
        model: 'x/y',
        totalTokens: 12,
        thinkingLevel: 'low',
        verboseLevel: 'on',
        systemSent: true,
        abortedLastRun: true,
        sendPolicy: 'deny',
        lastChannel: 'telegram',
        lastTo: '-100',
        deliveryContext: { channel: 'telegram', to: '-100', accountId: 'work' },
      },
    ]);
  });

  it('leaves out what is as usual, and shows it when asked for everything', async () => {
    const providers = { p: { type: 'openai' as const, models: { m: { contextTokens: 9_000 }, big: { contextTokens: 90_000 } } } };
    const defaults = { model: 'p/m', thinking: 'low' as const };
    const tools = await open({
      models: { providers },
      agents: {
        defaults,
        list: agents.list.map((one) => ({ ...one, runtime: caller.includes(`:${one.id}:`) ? ('scripted' as const) : ('model' as const) })),
      },
    });
    const delivery = JSON.stringify({ channel: 'telegram', to: '7', accountId: 'default' });
    const usual = { model: 'p/m', thinkingLevel: 'low', verboseLevel: 'off' };
    await tools.rows.setSession('agent:bo:main', { settings: JSON.stringify(usual), delivery });
    await tools.rows.setSession('agent:cy:main', { settings: JSON.stringify({ model: 'p/big' }) });
    mkdirSync(join(tools.stateDir, 'transcripts'));
    const byKey = async (args: object) => Object.fromEntries((await list(tools, { ...args })).sessions.map((row) => [row.key, row]));
    const lean = await byKey({});
    const [bo, cy] = [lean['agent:bo:main']!, lean['agent:cy:main']!];
    expect(Object.keys(bo)).toEqual(['key', 'kind', 'channel', 'updatedAt', 'sessionId', 'lastChannel', 'lastTo']);
    expect(cy).toMatchObject({ model: 'p/big', contextTokens: 90_000 });
    const transcriptPath = join(tools.stateDir, 'transcripts', `${bo.sessionId}.jsonl`);
    writeFileSync(transcriptPath, '');
    expect((await byKey({ verbose: true }))['agent:bo:main']).toMatchObject({
      ...usual,
      contextTokens: 9_000,
      totalTokens: 0,
      systemSent: false,
      abortedLastRun: false,
      deliveryContext: { channel: 'telegram', to: '7', accountId: 'default' },
      transcriptPath,
    });
    expect((await byKey({}))['agent:bo:main']).toMatchObject({ transcriptPath });
  });

  it('shows a channel as "internal" for work nobody typed, and as "unknown" where nothing is known', async () => {
    const tools = await open();
    await tools.tell('agent:ana:cron:daily', 'x', { kind: 'cron' });
    await tools.tell('agent:ana:direct:bo', 'x');
    const { sessions } = await list(tools);
    const channels = Object.fromEntries(sessions.map((row) => [row.key, row['channel']]));
    expect(channels).toMatchObject({ 'agent:ana:cron:daily': 'internal', 'agent:ana:direct:bo': 'unknown' });
  });

  it('is sorted by the latest activity, newest first', async () => {
    const tools = await open();
    for (const key of ['agent:bo:main', 'agent:cy:main', 'agent:bo:main']) await tools.tell(key, 'hello');
    expect(await keys(tools)).toEqual([caller, 'agent:bo:main', 'agent:cy:main']);
  });

  it('says which scope the rows were cut to', async () => {
    const one = await open({ tools: { sessions: { visibility: 'self' } } });
    expect(await list(one)).toMatchObject({ scope: 'self', count: 1 });
    const sandboxed = await open({ agents: { ...agents, defaults: { sandbox: { mode: 'all' } } } });
    expect(await list(sandboxed)).toMatchObject({ scope: 'tree', count: 1 });
  });

  it('gives 50 rows unless asked, at most 200, and says where more are', async () => {
    const tools = await open();
    await many(tools, 210);
    expect(await list(tools)).toMatchObject({ count: 50, nextCursor: expect.any(String) });
    expect(await list(tools, { limit: 1 })).toMatchObject({ count: 1 });
    expect(await list(tools, { limit: 2.9 })).toMatchObject({ count: 2 });
    expect(await list(tools, { limit: 200 })).toMatchObject({ count: 200 });
    expect(await list(tools, { limit: 1_000_000 })).toMatchObject({ count: 200, nextCursor: expect.any(String) });
  });

  it('pages through everything exactly once, whatever the page size', async () => {
    const tools = await open();
    await many(tools, 60);
    const everything = await keys(tools, { limit: 200 });
    expect(everything).toHaveLength(63);
    const pageSize = fc.oneof(fc.integer({ min: 1, max: 9 }), fc.constantFrom(20, 31, 62, 63, 64));
    await fc.assert(
      fc.asyncProperty(pageSize, async (limit) => {
        const seen: string[] = [];
        let cursor: string | undefined;
        do {
          const page = await list(tools, { limit, ...(cursor === undefined ? {} : { cursor }) });
          seen.push(...page.sessions.map(({ key }) => key));
          cursor = page.nextCursor;
        } while (cursor !== undefined);
        expect(seen).toEqual(everything);
      }),
      { numRuns: 8 },
    );
  });

  it('shows nothing twice when sessions move up between two pages', async () => {
    const tools = await open();
    await many(tools, 20);
    const first = await list(tools, { limit: 10 });
    await tools.tell('agent:bo:direct:peer4', 'I am back');
    await tools.tell(first.sessions[4]!.key, 'me too');
    const rest = await keys(tools, { limit: 200, cursor: first.nextCursor! });
    const shown = [...first.sessions.map(({ key }) => key), ...rest];
    expect(new Set(shown).size).toBe(shown.length);
    expect(new Set([...shown, 'agent:bo:direct:peer4']).size).toBe(23);
  });

  it('pages through a filtered list as well', async () => {
    const tools = await open();
    await many(tools, 30);
    const seen: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await list(tools, { limit: 4, kinds: ['group'], ...(cursor === undefined ? {} : { cursor }) });
      seen.push(...page.sessions.map(({ key }) => key));
      cursor = page.nextCursor;
    } while (cursor !== undefined);
    expect(seen).toEqual(Array.from({ length: 10 }, (_, index) => `agent:bo:x:group:${27 - 3 * index}`));
  });

  it('shows only what was active in the last minutes', async () => {
    const tools = await open();
    await tools.tell('agent:bo:main', 'long ago');
    tools.clock.jump(9 * 60_000);
    await tools.tell('agent:cy:main', 'lately');
    tools.clock.jump(60_000);
    expect((await keys(tools, { activeMinutes: 10 })).toSorted()).toEqual([caller, 'agent:bo:main', 'agent:cy:main']);
    expect((await keys(tools, { activeMinutes: 9.9 })).toSorted()).toEqual([caller, 'agent:cy:main']);
    expect((await keys(tools, { activeMinutes: 1 })).toSorted()).toEqual([caller, 'agent:cy:main']);
    tools.clock.jump(60_000);
    expect(await keys(tools, { activeMinutes: 1 })).toEqual([caller]);
  });

  it('includes the last messages when asked, without tool results, at most 20', async () => {
    const tools = await open();
    await tools.tools([{ tool: 'agents_list' }], 'agent:bo:main');
    for (let index = 0; index < 12; index++) await tools.tell('agent:bo:main', `m${index}`);
    const messages = async (messageLimit?: number) => {
      const { sessions } = await list(tools, messageLimit === undefined ? {} : { messageLimit });
      return sessions.find(({ key }) => key === 'agent:bo:main')!.messages;
    };
    expect(await messages()).toBeUndefined();
    expect(await messages(0)).toBeUndefined();
    expect((await messages(3))!.map(textOf)).toEqual(['re: m10', 'm11', 're: m11']);
    expect(await messages(99)).toHaveLength(20);
    await tools.rows.cutEntries('agent:bo:main', 4);
    // The four that are left are the input, the call, its result and the answer; two of the last three are no tool result.
    expect((await messages(2))!.map(({ role }) => role)).toEqual(['assistant', 'assistant']);
    expect((await messages(20))!.map(({ role }) => role)).toEqual(['user', 'assistant', 'assistant']);
  });

  it('never shows archived or deleted sessions, or lives that are over', async () => {
    const tools = await open();
    for (const key of ['agent:bo:direct:a', 'agent:bo:direct:b', 'agent:bo:direct:c']) await tools.tell(key, 'x');
    await tools.closeSession('agent:bo:direct:a', 'archived', false);
    await tools.closeSession('agent:bo:direct:b', 'deleted', false);
    const { session } = await tools.reset('agent:bo:direct:c');
    const rows = (await list(tools)).sessions.filter(({ key }) => key.includes('direct'));
    expect(rows.map(({ key, sessionId }) => [key, sessionId])).toEqual([['agent:bo:direct:c', session.id]]);
  });

  it('never shows "global": with session.scope "global" it is the main session of the default agent', async () => {
    const tools = await open({ session: { scope: 'global' } });
    const origin = { channel: 'loopback', peer: { kind: 'direct' as const, id: 'you' } };
    const accepted = await tools.receive({ origin, text: 'hello' });
    const shared = 'agent:ana:main';
    expect(accepted.sessionKey).toBe(shared);
    await tools.wait(accepted.runId);
    const own = await list(tools, {}, shared);
    expect(own.sessions.map(({ key, kind }) => [key, kind])).toEqual([
      [shared, 'main'],
      ['agent:cy:main', 'main'],
      ['agent:bo:main', 'main'],
    ]);
    expect(await keys(tools, {}, 'agent:bo:main')).not.toContain('global');
    expect(await history(tools, { sessionKey: 'main' }, shared)).toMatchObject({ sessionKey: shared });
    expect(await tools.tool('sessions_history', { sessionKey: 'global' }, shared)).toEqual(refusal('SESSION_KEY_RESERVED', 'main'));
    expect(await tools.tool('session_status', {}, shared)).toMatchObject({ key: shared });
  });
});

describe('the kinds of sessions_list', () => {
  const made: [string, string][] = [
    ['agent:ana:x:group:1', 'group'],
    ['agent:bo:x:channel:2', 'group'],
    ['agent:ana:cron:daily', 'cron'],
    ['agent:ana:hook:h1', 'hook'],
    ['agent:ana:node-n1', 'node'],
    ['agent:ana:direct:you', 'other'],
  ];
  const tools = share(async (one) => {
    for (const [key, kind] of made) await one.tell(key, 'x', { kind });
  });

  it.each<[string[], string[]]>([
    [['main'], ['agent:ana:main', 'agent:bo:main', 'agent:cy:main']],
    [['group'], ['agent:ana:x:group:1', 'agent:bo:x:channel:2']],
    [['cron'], ['agent:ana:cron:daily']],
    [['hook'], ['agent:ana:hook:h1']],
    [['node'], ['agent:ana:node-n1']],
    [['other'], ['agent:ana:direct:you']],
    [
      ['cron', 'hook', 'cron'],
      ['agent:ana:cron:daily', 'agent:ana:hook:h1'],
    ],
  ])('%j are %j', async (kinds, expected) => {
    expect((await keys(tools(), { kinds })).toSorted()).toEqual(expected);
  });
});

describe('sessions_history', () => {
  it('returns messages in the raw transcript shape, oldest first', async () => {
    const tools = await open();
    const asked = [
      { tool: 'agents_list', args: {} },
      { tool: 'nothing', args: { x: 1 } },
    ];
    await tools.tools(asked, 'agent:bo:main');
    const common = { id: expect.any(String), taint: 'PUBLIC', timestamp: tools.clock.now() };
    const { messages } = await history(tools, { sessionKey: 'agent:bo:main', includeTools: true });
    expect(messages.toSorted((a, b) => Number(a.isError ?? 0) - Number(b.isError ?? 0) || a.seq - b.seq)).toEqual([
      { ...common, seq: 1, role: 'user', content: [{ type: 'text', text: 'call' }], provenance: { kind: 'user' } },
      {
        ...common,
        seq: 2,
        role: 'assistant',
        content: [
          { type: 'toolCall', id: '1.0', name: 'agents_list', arguments: {} },
          { type: 'toolCall', id: '1.1', name: 'nothing', arguments: { x: 1 } },
        ],
      },
      {
        ...common,
        seq: expect.any(Number),
        role: 'toolResult',
        content: [{ type: 'text', text: expect.any(String) }],
        toolCallId: '1.0',
        toolName: 'agents_list',
      },
      { ...common, seq: 5, role: 'assistant', content: [{ type: 'text', text: 'done' }] },
      {
        ...common,
        seq: expect.any(Number),
        role: 'toolResult',
        content: [{ type: 'text', text: expect.any(String) }],
        toolCallId: '1.1',
        toolName: 'nothing',
        isError: true,
      },
    ]);
    expect(messages.map(({ seq }) => seq)).toEqual([1, 2, 3, 4, 5]);
  });

  it('leaves out tool results unless asked', async () => {
    const tools = await open();
    await tools.tools([{ tool: 'agents_list' }], 'agent:bo:main');
    const roles = async (more: object) => (await history(tools, { sessionKey: 'agent:bo:main', ...more })).messages.map(({ role }) => role);
    expect(await roles({})).toEqual(['user', 'assistant', 'assistant']);
    expect(await roles({ includeTools: false })).toEqual(['user', 'assistant', 'assistant']);
    expect(await roles({ includeTools: true })).toEqual(['user', 'assistant', 'toolResult', 'assistant']);
  });

  it('gives the last 50 messages unless asked, at most 1000', async () => {
    const tools = await open();
    await tools.rows.addEntries('agent:bo:main', 1_100, (index) => `m${index}`);
    const seqs = async (more: object) => (await history(tools, { sessionKey: 'agent:bo:main', ...more })).messages.map(({ seq }) => seq);
    const last = (count: number) => Array.from({ length: count }, (_, index) => 1_101 - count + index);
    expect(await seqs({})).toEqual(last(50));
    expect(await seqs({ limit: 1 })).toEqual(last(1));
    expect(await seqs({ limit: 3.7 })).toEqual(last(3));
    // As many as fit into the answer; one more would be cut off by its size, not by its number.
    await tools.rows.emptyEntries('agent:bo:main');
    const { messages } = await history(tools, { sessionKey: 'agent:bo:main', limit: 5_000 });
    expect(messages.length).toBeLessThanOrEqual(1_000);
  });

  it('pages through everything exactly once, whatever the page size and with or without tool results', async () => {
    const tools = await open();
    await tools.rows.addEntries(
      'agent:bo:main',
      120,
      (index) => `m${index}`,
      (index) => (index % 5 === 2 ? 'toolResult' : 'user'),
    );
    const page = fc.record({
      limit: fc.oneof(fc.integer({ min: 7, max: 60 }), fc.constantFrom(96, 120, 1_000)),
      includeTools: fc.boolean(),
    });
    await fc.assert(
      fc.asyncProperty(page, async (asked) => {
        const seen: number[] = [];
        let cursor: string | undefined;
        do {
          const answer = await history(tools, { sessionKey: 'agent:bo:main', ...asked, ...(cursor === undefined ? {} : { cursor }) });
          expect(answer.messages.length).toBeLessThanOrEqual(asked.limit);
          seen.unshift(...answer.messages.map(({ seq }) => seq));
          cursor = answer.nextCursor;
        } while (cursor !== undefined);
        const wanted = Array.from({ length: 120 }, (_, index) => index + 1).filter((seq) => asked.includeTools || (seq - 1) % 5 !== 2);
        expect(seen).toEqual(wanted);
      }),
      { numRuns: 10 },
    );
  });

  it('cuts a text at 4,000 characters and says so', async () => {
    const tools = await open();
    const lengths = [3_999, 4_000, 4_001, 100_000];
    await tools.rows.addEntries('agent:bo:main', 4, (index) => 'x'.repeat(lengths[index]!));
    const { messages, truncated } = await history(tools, { sessionKey: 'agent:bo:main' });
    expect(messages.map(({ content: [block] }) => (block!.type === 'text' ? [block!.text.length, block!.truncated] : block))).toEqual([
      [3_999, undefined],
      [4_000, undefined],
      [4_000, true],
      [4_000, true],
    ]);
    expect(truncated).toBeUndefined();
  });

  it('cuts the answer at 80 KiB from the old end and says so; the cursor leads to the rest', async () => {
    const tools = await open();
    const texts = (index: number) => `${index}:`.padEnd(index % 3 === 0 ? 4_000 : 1_500, index % 2 === 0 ? 'é' : 'x');
    await tools.rows.addEntries('agent:bo:main', 100, texts);
    const seen: number[] = [];
    let cursor: string | undefined;
    let pages = 0;
    do {
      const answer: History = await history(tools, {
        sessionKey: 'agent:bo:main',
        limit: 1_000,
        ...(cursor === undefined ? {} : { cursor }),
      });
      const bytes = answer.messages.reduce((sum, message) => sum + Buffer.byteLength(JSON.stringify(message)), 0);
      expect(bytes).toBeLessThanOrEqual(80 * 1024);
      expect(answer.truncated).toBe(answer.nextCursor === undefined ? undefined : true);
      seen.unshift(...answer.messages.map(({ seq }) => seq));
      cursor = answer.nextCursor;
      pages++;
    } while (cursor !== undefined);
    expect(seen).toEqual(Array.from({ length: 100 }, (_, index) => index + 1));
    expect(pages).toBeGreaterThan(2);
  });

  it('reads "main" as the main session of the agent that asks', async () => {
    const tools = await open();
    expect(await history(tools, { sessionKey: 'main' }, 'agent:bo:main')).toMatchObject({ sessionKey: 'agent:bo:main' });
    expect(await history(tools, { sessionKey: 'main' })).toMatchObject({ sessionKey: caller });
  });
});

describe('the size of an answer', () => {
  const wrapper = 2 * 1024;

  it('is bounded for sessions_history also where a call was made with very long arguments', async () => {
    const tools = await open();
    await tools.tools([{ tool: 'sessions_send', args: { sessionKey: 'nobody', message: 'z'.repeat(500_000) } }], 'agent:bo:main');
    let cursor: string | undefined;
    do {
      const args = { sessionKey: 'agent:bo:main', limit: 1, ...(cursor === undefined ? {} : { cursor }) };
      const [row] = await tools.tools([{ tool: 'sessions_history', args }]);
      expect(Buffer.byteLength(row!.text)).toBeLessThanOrEqual(80 * 1024 + wrapper);
      cursor = (JSON.parse(row!.text) as History).nextCursor;
    } while (cursor !== undefined);
  });

  it('is bounded for sessions_list also where messages are long', async () => {
    const tools = await open();
    for (const key of ['agent:bo:main', 'agent:cy:main']) await tools.tell(key, 'z'.repeat(500_000));
    const [row] = await tools.tools([{ tool: 'sessions_list', args: { messageLimit: 20 } }]);
    expect(Buffer.byteLength(row!.text)).toBeLessThanOrEqual(80 * 1024 + wrapper);
    expect((JSON.parse(row!.text) as Listed).count).toBe(3);
  });
});

describe('the session that sessions_history reads', () => {
  const tools = share(async (one) => {
    await one.tell('agent:ana:x:group:1', 'hello', { kind: 'group' });
    await one.rows.setSession('agent:ana:x:group:1', { id: 'id-of-group' });
    await one.tell('agent:bo:direct:you', 'x', { label: 'lunch' });
  });

  it.each<[string, Record<string, unknown>]>([
    ['its full key', { sessionKey: 'agent:ana:x:group:1' }],
    ['its key without the agent', { sessionKey: 'x:group:1' }],
    ['its key in any case, with space around it', { sessionKey: ' Agent:ANA:X:Group:1 ' }],
    ['its session id', { sessionKey: 'id-of-group' }],
    ['the other spelling', { session_id: 'agent:ana:x:group:1' }],
    ['the other spelling and its id', { session_id: 'id-of-group' }],
    ['both spellings with one value', { sessionKey: 'id-of-group', session_id: 'id-of-group' }],
  ])('finds a session by %s', async (_, args) => {
    expect(await history(tools(), args)).toMatchObject({
      sessionKey: 'agent:ana:x:group:1',
      messages: [{ role: 'user' }, { role: 'assistant' }],
    });
  });

  it.each<[string, Record<string, unknown>, string, string]>([
    ['nothing', {}, 'INVALID_REQUEST', 'sessionKey'],
    ['blank text', { sessionKey: '  ' }, 'INVALID_REQUEST', 'sessionKey'],
    ['two spellings that differ', { sessionKey: 'main', session_id: 'agent:bo:main' }, 'INVALID_REQUEST', 'session_id'],
    ['a misspelt key', { sessionKey: 'agent:bo:mian' }, 'SESSION_NOT_FOUND', 'agent:bo:main'],
    ['a label', { sessionKey: 'lunch' }, 'SESSION_NOT_FOUND', ''],
    ['a reserved word', { sessionKey: 'unknown' }, 'SESSION_KEY_RESERVED', ''],
    ['a limit of 0', { sessionKey: 'main', limit: 0 }, 'INVALID_REQUEST', 'limit'],
    ['a limit in words', { sessionKey: 'main', limit: 'ten' }, 'INVALID_REQUEST', 'limit'],
    ['an argument that does not exist', { sessionKey: 'main', offset: 3 }, 'INVALID_REQUEST', 'offset'],
    ['a number as a key', { sessionKey: 5 }, 'INVALID_REQUEST', 'sessionKey'],
    ['includeTools in words', { sessionKey: 'main', includeTools: 'yes' }, 'INVALID_REQUEST', 'includeTools'],
  ])('answers %s with an error that says why', async (_, args, code, error) => {
    expect(await tools().tool('sessions_history', args)).toEqual(refusal(code, error));
  });
});

describe('session_status', () => {
  it('shows the session that asks, with its live run, when nothing is asked for', async () => {
    const tools = await open();
    const status = await tools.tool<Record<string, unknown>>('session_status');
    const row = await tools.rows.session(caller);
    expect(status).toMatchObject({ key: caller, sessionId: row.id, taint: 'PUBLIC', createdAt: row.created_at, queued: 0 });
    expect(status['run']).toEqual({ runId: 'run0', state: 'running', since: tools.clock.now() });
  });

  it('shows another session: id, channel, user, level, when it was opened, what it does', async () => {
    const tools = await open();
    const key = 'agent:bo:x:group:1';
    const opened = tools.clock.now();
    await tools.tell(key, 'hello', { kind: 'group' });
    tools.clock.jump(5_000);
    for (const args of [{ sessionKey: key }, { session_id: key }]) {
      expect(await tools.tool('session_status', args)).toEqual({
        key,
        kind: 'group',
        channel: 'x',
        updatedAt: opened,
        sessionId: `id of ${key}`,
        user: 'loopback:you',
        totalTokens: 3,
        taint: 'PUBLIC',
        createdAt: opened,
        queued: 0,
        tools: [...toolNames],
      });
    }
  });

  it('refuses two spellings that differ, and what cannot be seen', async () => {
    const tools = await open({ tools: { sessions: { visibility: 'self' } } });
    expect(await tools.tool('session_status', { sessionKey: 'main', session_id: 'x' })).toEqual(refusal('INVALID_REQUEST', 'session_id'));
    expect(await tools.tool('session_status', { sessionKey: 'agent:bo:main' })).toEqual(refusal('SESSION_NOT_FOUND'));
  });
});

describe('agents_list', () => {
  it.each<[string, ConfigText['agents'], object[]]>([
    ['only the own agent by default', agents, [{ id: 'ana', name: 'Ana' }]],
    [
      'those that the defaults allow',
      { ...agents, defaults: { subagents: { allowAgents: ['bo'] } } },
      [
        { id: 'ana', name: 'Ana' },
        { id: 'bo', name: 'Bo' },
      ],
    ],
    [
      'all of them for "*"',
      { list: [{ ...agents.list[0]!, subagents: { allowAgents: ['*'] } }, agents.list[1]!, agents.list[2]!] },
      [{ id: 'ana', name: 'Ana' }, { id: 'bo', name: 'Bo' }, { id: 'cy' }],
    ],
    ['never one that is not configured', { ...agents, defaults: { subagents: { allowAgents: ['dee'] } } }, [{ id: 'ana', name: 'Ana' }]],
  ])('shows %s', async (_, config, expected) => {
    const tools = await open({ agents: config });
    expect(await tools.tool('agents_list')).toEqual({ requester: 'ana', agents: expected });
  });

  it('is refused to a session that may not spawn', async () => {
    const tools = await open({ tools: { ...all.tools, subagents: { tools: { allow: ['*'] } } } });
    expect(await tools.tool('agents_list', {}, await child(tools))).toEqual(refusal('SPAWN_DEPTH', 'maxSpawnDepth'));
  });
});

/** A session that the caller spawned. */
async function child(tools: TestGateway): Promise<string> {
  const key = 'agent:ana:subagent:1';
  await tools.tell(key, 'x');
  await tools.rows.setSession(key, { depth: 1, parent_key: caller });
  return key;
}

describe('the tools of a session', () => {
  it('are refused with the reason where it does not get them, and the run goes on', async () => {
    const tools = await open({ agents: { list: [{ ...agents.list[0]!, tools: { deny: ['agents_*'] } }] } });
    expect(await tools.tool('agents_list')).toEqual(refusal('TOOL_NOT_ALLOWED', 'agents_list', 'ana'));
    expect(await tools.tool('agents_lost')).toEqual(refusal('INVALID_REQUEST'));
    expect((await tools.tool('agents_lost')).error).not.toContain('agents_list');
    expect(await tools.tool('sessions_list')).toMatchObject({ count: 1 });
  });

  it('of a child are none of the session tools, unless the config names them', async () => {
    const tools = await open();
    const from = await child(tools);
    expect(await tools.tool('sessions_list', {}, from)).toEqual(refusal('TOOL_NOT_ALLOWED', 'tools.subagents.tools.allow'));
    const trusted = await open({ tools: { ...all.tools, subagents: { tools: { allow: ['sessions_list'] } } } });
    expect(await trusted.tool('sessions_list', {}, await child(trusted))).toMatchObject({ count: 4 });
  });

  it('are shown by session_status: which it gets, and why not the others', async () => {
    const tools = await open({ agents: { list: [{ ...agents.list[0]!, tools: { deny: ['sessions_send'] } }, agents.list[1]!] } });
    const own = await tools.tool<Record<string, unknown>>('session_status');
    expect(own['tools']).toEqual(toolNames.filter((name) => name !== 'sessions_send'));
    expect(own['toolsRefused']).toEqual({ sessions_send: expect.stringMatching(/ana.*sessions_send/) });
    const other = await tools.tool<Record<string, unknown>>('session_status', { sessionKey: 'agent:bo:main', verbose: true });
    expect(other['tools']).toEqual(toolNames.map((tool) => ({ tool, allowed: true, why: expect.stringContaining('bo') })));
  });
});

describe('what a session sees', () => {
  const sessions = [
    'agent:ana:main',
    'agent:ana:direct:you',
    'agent:ana:subagent:1',
    'agent:bo:main',
    'agent:bo:subagent:2',
    'agent:cy:main',
    'agent:cy:x:group:1',
  ];

  /** Two children of the caller, one of them under another agent, and sessions that have nothing to do with it. */
  async function family(config: ConfigText): Promise<TestGateway> {
    const tools = await open(config);
    for (const key of sessions) await tools.tell(key, 'x');
    for (const key of sessions.filter((one) => one.includes(':subagent:')))
      await tools.rows.setSession(key, { depth: 1, parent_key: caller });
    return tools;
  }

  const visibilities = ['self', 'tree', 'agent', 'all'] as const;
  const crossings = [{ enabled: false }, { enabled: true }, { enabled: true, allow: ['a*', 'cy'] }, { enabled: true, allow: ['bo', 'cy'] }];
  const sandboxes = [{ mode: 'off' as const }, { mode: 'all' as const }, { mode: 'all' as const, sessionToolsVisibility: 'all' as const }];

  it('is the same for list, history, status and send, whatever the settings', async () => {
    const tools = await family({});
    for (const visibility of visibilities) {
      for (const agentToAgent of crossings) {
        for (const sandbox of sandboxes) {
          const settings = { agents: { ...agents, defaults: { sandbox } }, tools: { sessions: { visibility }, agentToAgent } };
          await tools.reload(settings);
          const listed = new Set(await keys(tools, { limit: 200 }));
          const asks = sessions.flatMap((sessionKey) => [
            { tool: 'sessions_history', args: { sessionKey } },
            { tool: 'session_status', args: { sessionKey } },
            { tool: 'sessions_send', args: { sessionKey, message: 'hello', timeoutSeconds: 0 } },
          ]);
          const answers = (await tools.tools(asks)).map((row) => JSON.parse(row.text) as Partial<Refused>);
          const seen = asks
            .filter((_, index) => answers[index]!.code !== 'SESSION_NOT_FOUND')
            .map(({ tool, args }) => [tool, args.sessionKey]);
          const wanted = asks.filter(({ args }) => listed.has(args.sessionKey)).map(({ tool, args }) => [tool, args.sessionKey]);
          expect({ settings, seen }).toEqual({ settings, seen: wanted });
          expect(listed.has(caller)).toBe(true);
          // A minute later, so that the many messages do not look like a loop.
          tools.clock.jump(60_000);
        }
      }
    }
  });

  it.each<[string, string[]]>([
    ['self', ['agent:ana:main']],
    ['tree', ['agent:ana:main', 'agent:ana:subagent:1', 'agent:bo:subagent:2']],
    ['agent', ['agent:ana:direct:you', 'agent:ana:main', 'agent:ana:subagent:1', 'agent:bo:subagent:2']],
    ['all', sessions.toSorted()],
  ])('under visibility "%s" is %j', async (visibility, expected) => {
    const tools = await family({ tools: { sessions: { visibility: visibility as 'self' }, agentToAgent: { enabled: true } } });
    expect((await keys(tools)).toSorted()).toEqual(expected);
  });

  it('of another agent needs tools.agentToAgent; its own children do not', async () => {
    const tools = await family({ tools: { sessions: { visibility: 'all' } } });
    expect((await keys(tools)).toSorted()).toEqual([
      'agent:ana:direct:you',
      'agent:ana:main',
      'agent:ana:subagent:1',
      'agent:bo:subagent:2',
    ]);
  });

  it('that is hidden looks exactly like what is missing, for every tool and every way to name it', async () => {
    const config = { tools: { sessions: { visibility: 'agent' as const } } };
    const secret = 'agent:bo:x:group:secret';
    const ways = [{ sessionKey: secret }, { sessionKey: 'id-of-secret' }, { session_id: secret }];
    const asks = [
      ...ways.flatMap((args) => [
        { tool: 'sessions_history', args },
        { tool: 'session_status', args },
      ]),
      ...ways.map((args) => ({ tool: 'sessions_send', args: { ...args, message: 'psst' } })),
      { tool: 'sessions_send', args: { label: 'secret', message: 'psst' } },
      { tool: 'sessions_send', args: { label: 'secret', agentId: 'bo', message: 'psst' } },
      { tool: 'sessions_list', args: { limit: 200 } },
    ];
    const answers = async (exists: boolean) => {
      const tools = await open(config);
      await tools.rows.setSession(caller, { id: 'the caller' });
      if (exists) {
        await tools.tell(secret, 'the plan', { kind: 'group', label: 'secret' });
        await tools.rows.setSession(secret, { id: 'id-of-secret' });
      }
      const rows = await tools.tools(asks);
      return rows.map((row) => [row.text, row.taint, (JSON.parse(row.body!) as { isError: boolean }).isError]);
    };
    expect(await answers(true)).toEqual(await answers(false));
  });

  it('is never suggested when it is hidden', async () => {
    const tools = await open({ tools: { sessions: { visibility: 'agent' } } });
    await tools.tell('agent:bo:x:group:kitchen', 'x', { kind: 'group' });
    await tools.tell('agent:ana:x:group:kitchens', 'x', { kind: 'group' });
    const { error } = await tools.tool('sessions_history', { sessionKey: 'agent:ana:x:group:kitchen' });
    expect(error).toContain('agent:ana:x:group:kitchens');
    expect(error).not.toContain('agent:bo');
  });

  it('by a label that several of its sessions have must be narrowed by the agent', async () => {
    const tools = await open();
    await tools.tell('agent:bo:direct:x', 'x', { label: 'lunch' });
    await tools.tell('agent:cy:direct:x', 'x', { label: 'lunch' });
    const args = { label: 'lunch', message: 'hi', timeoutSeconds: 0 };
    expect(await tools.tool('sessions_send', args)).toEqual(refusal('SESSION_AMBIGUOUS', 'bo', 'cy'));
    expect(await tools.tool('sessions_send', { ...args, agentId: 'cy' })).toMatchObject({ status: 'accepted' });
    expect((await tools.rows.turns()).filter(({ turn }) => turn === 0).map(({ lane }) => lane)).toEqual(['agent:cy:direct:x']);
  });
});

describe('levels', () => {
  const made: [string, number][] = [
    ['agent:bo:direct:public', 0],
    ['agent:bo:direct:internal', 1],
    ['agent:bo:direct:confidential', 2],
    ['agent:bo:direct:restricted', 3],
  ];

  it.each([0, 1, 2, 3])('a session at level %i lists, reads and asks about what is not above it, and nothing else', async (level) => {
    const tools = await open();
    for (const [key, taint] of made) await tools.tell(key, 'x', { taint });
    const from = 'agent:ana:direct:asker';
    await tools.tell(from, 'x', { taint: level });
    const allowed = made.filter(([, taint]) => taint <= level).map(([key]) => key);
    expect((await keys(tools, { limit: 200 }, from)).filter((key) => key.startsWith('agent:bo:direct'))).toEqual(allowed.toReversed());
    const asks = made.flatMap(([sessionKey]) => [
      { tool: 'sessions_history', args: { sessionKey } },
      { tool: 'session_status', args: { sessionKey } },
    ]);
    const answers = (await tools.tools(asks, from)).map((row) => JSON.parse(row.text) as Partial<Refused>);
    expect(answers.map(({ code }) => code)).toEqual(
      made.flatMap(([, taint]) => (taint <= level ? [undefined, undefined] : Array(2).fill('SESSION_NOT_FOUND'))),
    );
  });

  it('a session sends only to its own level: above is not found, below is refused as writing down', async () => {
    const tools = await open();
    for (const [key, taint] of made) await tools.tell(key, 'x', { taint });
    const from = 'agent:ana:direct:asker';
    await tools.tell(from, 'x', { taint: 1 });
    const asks = made.map(([sessionKey]) => ({ tool: 'sessions_send', args: { sessionKey, message: 'hello', timeoutSeconds: 0 } }));
    const answers = (await tools.tools(asks, from)).map((row) => JSON.parse(row.text) as Partial<Refused>);
    expect(answers.map(({ status, code }) => code ?? status)).toEqual(['WRITE_DOWN', 'accepted', 'SESSION_NOT_FOUND', 'SESSION_NOT_FOUND']);
  });

  it('a result carries the level of what it shows, or of its tool, and raises the session that reads it', async () => {
    const tools = await open({ classification: { tools: { agents_list: 'CONFIDENTIAL' } } });
    const from = 'agent:ana:direct:asker';
    await tools.tell('agent:bo:direct:internal', 'x', { taint: 1 });
    await tools.tell(from, 'x', { taint: 1 });
    const levels = async (tool: string, args: object) => (await tools.tools([{ tool, args: { ...args } }], from))[0]!.taint;
    expect(await levels('sessions_history', { sessionKey: 'agent:bo:direct:internal' })).toBe(1);
    expect(await levels('session_status', { sessionKey: 'agent:cy:main' })).toBe(0);
    expect(await levels('agents_list', {})).toBe(2);
    expect(await tools.rows.session(from)).toMatchObject({ taint: 2, level: 2 });
  });

  it('messages in a list are cut to the level of the caller as well', async () => {
    const tools = await open();
    const from = 'agent:ana:direct:asker';
    await tools.tell(from, 'known to all');
    await tools.tell(from, 'for few', { taint: 2 });
    const own = (await list(tools, { messageLimit: 20 }, from)).sessions.find(({ key }) => key === from)!;
    expect(own.messages!.map(textOf)).toContain('for few');
    expect((await list(tools, { messageLimit: 20 })).sessions.map(({ key }) => key)).not.toContain(from);
  });
});

describe('a call that is wrong', () => {
  const tools = share();

  it.each<[string, string, string[]]>([
    ['sesions_list', 'a tool name with a slip', ['sessions_list']],
    ['Session_Status', 'a tool name in another case', ['session_status']],
    ['fly_to_the_moon', 'a tool name like no other', [...toolNames]],
  ])('%s: %s is answered with what there is, and the run goes on', async (tool, _, named) => {
    expect(await tools().tool(tool)).toEqual(refusal('INVALID_REQUEST', ...named));
  });

  it.each<[Record<string, unknown>, string]>([
    [{ kinds: ['group', 'channel'] }, 'kinds'],
    [{ kinds: 'group' }, 'kinds'],
    [{ limit: 0 }, 'limit'],
    [{ limit: -5 }, 'limit'],
    [{ limit: '10' }, 'limit'],
    [{ activeMinutes: 0 }, 'activeMinutes'],
    [{ messageLimit: -1 }, 'messageLimit'],
    [{ cursor: 'x'.repeat(65) }, 'cursor'],
    [{ agentId: 'bo' }, 'agentId'],
  ])('sessions_list %j is an error result, and the run goes on', async (args, error) => {
    const [row] = await tools().tools([{ tool: 'sessions_list', args }]);
    expect(JSON.parse(row!.text)).toEqual(refusal('INVALID_REQUEST', 'sessions_list', error));
    expect(JSON.parse(row!.body!)).toMatchObject({ isError: true, toolName: 'sessions_list' });
  });

  it('names the words it knows when a kind is unknown', async () => {
    const { error } = await tools().tool('sessions_list', { kinds: ['chats'] });
    for (const word of ['main', 'group', 'cron', 'hook', 'node', 'other']) expect(error).toContain(word);
  });

  it.each(['!!', '12 34', '-5', ''])('the cursor %j is an error, not an empty page', async (cursor) => {
    const asked = [
      { tool: 'sessions_list', args: { cursor } },
      { tool: 'sessions_history', args: { sessionKey: 'main', cursor } },
    ];
    for (const row of await tools().tools(asked)) expect(JSON.parse(row.text)).toEqual(refusal('INVALID_REQUEST', 'cursor'));
  });

  it('does not spoil the calls beside it', async () => {
    const rows = await tools().tools([
      { tool: 'nothing' },
      { tool: 'agents_list' },
      { tool: 'sessions_list', args: { limit: 0 } },
      { tool: 'session_status' },
    ]);
    expect(rows.map((row) => (JSON.parse(row.body!) as { isError: boolean }).isError)).toEqual([true, false, true, false]);
  });

  it('is refused by a policy rule with the words of the rule', async () => {
    const rules = [
      { id: 'no-lists', hook: 'PRE_TOOL_CALL' as const, match: { tool: 'sessions_*' }, effect: 'BLOCK' as const, message: 'ask a person' },
    ];
    const strict = await open({ policy: { rules } });
    expect(await strict.tool('sessions_list')).toEqual(refusal('POLICY_BLOCKED', 'ask a person'));
    expect(await strict.tool('session_status')).toMatchObject({ key: caller });
  });
});

describe('both spellings of sessions_send', () => {
  const key = 'agent:bo:main';
  const tools = share(undefined, { session: { agentToAgent: { maxPingPongTurns: 0 } } });

  it.each<[Record<string, unknown>, object]>([
    [{ sessionKey: key, message: 'hi' }, { status: 'ok' }],
    [{ session_id: key, content: 'hi' }, { status: 'ok' }],
    [{ sessionKey: key, content: 'hi' }, { status: 'ok' }],
    [{ sessionKey: key, session_id: key, message: 'hi', content: 'hi' }, { status: 'ok' }],
    [{ sessionKey: key, session_id: 'agent:cy:main', message: 'hi' }, refusal('INVALID_REQUEST', 'sessionKey', 'session_id')],
    [{ sessionKey: key, message: 'hi', content: 'bye' }, refusal('INVALID_REQUEST', 'message', 'content')],
  ])('%j → %j', async (args, expected) => {
    expect(await tools().tool('sessions_send', args)).toMatchObject(expected);
  });
});

/** Sessions of Bo, every third one a group, each with one message. */
async function many(tools: TestGateway, count: number): Promise<void> {
  const keys = Array.from({ length: count }, (_, index) =>
    index % 3 === 0 ? `agent:bo:x:group:${index}` : `agent:bo:direct:peer${index}`,
  );
  for (let from = 0; from < count; from += 50) {
    const batch = keys.slice(from, from + 50);
    await Promise.all(batch.map((key) => tools.tell(key, 'x', { kind: key.includes('group') ? 'group' : 'other' })));
  }
  // Their turns may have ended in any order; the order of the list is the order of the names.
  for (const [index, key] of keys.entries()) await tools.rows.setSession(key, { last_pos: index + 10 });
}
