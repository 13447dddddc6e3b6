// A state directory of commit d35cbfc (schema 3), killed in the middle of its work: it opens, everything in it is there, and it goes on.
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import { defineTool } from '../../src/tools/define.ts';
import { levelName } from '../../src/levels.ts';
import { TestGateway, type ConfigText, type ScriptText } from '../harness/gateway.ts';
import { changedTokens, loadState, sharedChat, type TokenChange } from '../harness/rows.ts';

const fixture = 'test/fixtures/state-d35cbfc';
const names = JSON.parse(readFileSync(join(fixture, 'names.json'), 'utf8')) as {
  time: number;
  tokens: Record<'admin' | 'reader' | 'writer' | 'bound' | 'rotated' | 'before' | 'fable' | 'swift', string>;
  runs: Record<
    'idem' | 'asked' | 'printing' | 'noting' | 'waiting' | 'queued' | 'steered' | 'telling' | 'offered' | 'taken' | 'behind' | 'fromGuest',
    string
  >;
  sessions: Record<'firstLife' | 'ann' | 'diary' | 'project', string>;
  deliveries: Record<'dead' | 'failed' | 'lost' | 'sending' | 'pending' | 'later', string>;
  cookie: string;
  turnId: string;
};

/** As the gateway was configured; the model of `tea` is not there any more. */
const config: ConfigText = {
  agents: { list: [{ id: 'main', default: true }, { id: 'research' }, { id: 'ops' }, { id: 'tea' }] },
  session: { dmScope: 'per-peer' },
  tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } },
  bindings: [{ agentId: 'research', match: { channel: 'loopback', peer: { kind: 'direct', id: 'rita' } } }],
  classification: { channels: { vault: 'CONFIDENTIAL' } },
};
const call = (tool: string, args: object) => ({ calls: [{ tool, args: { ...args } }] });
const script: ScriptText = [
  { when: 'REPLY_SKIP', steps: [{ say: 'REPLY_SKIP' }] },
  { agent: 'ops', when: 'ANNOUNCE_SKIP', steps: [{ say: 'ANNOUNCE_SKIP' }] },
  { agent: 'research', when: 'ANNOUNCE_SKIP', steps: [{ say: 'The capital is Paris.' }] },
  {
    when: 'ask ops',
    steps: [call('sessions_send', { sessionKey: 'agent:ops:main', message: 'Is it up?', timeoutSeconds: 600 }), { say: 'Ops: {{result}}' }],
  },
  {
    when: 'tell research',
    steps: [
      call('sessions_send', { sessionKey: 'agent:research:direct:rita', message: 'Which capital?', timeoutSeconds: 0 }),
      call('note', { text: 'told' }),
      { say: 'Told: {{result}}' },
    ],
  },
  { when: 'print', steps: [call('print', { text: 'page' }), { say: 'Printed: {{result}}' }] },
  { when: 'write down', steps: [call('note', { text: 'milk' }), { say: 'Noted: {{result}}' }] },
  { steps: [{ say: 're: {{input}}' }] },
];

/** `changes`: SQL that makes another state of it, first. */
async function reopened(changes = '') {
  const stateDir = mkdtempSync(join(tmpdir(), 'interlane-old-'));
  onTestFinished(() => rmSync(stateDir, { recursive: true, force: true }));
  loadState(stateDir, readFileSync(join(fixture, 'interlane.sql'), 'utf8') + changes);
  const acted: string[] = [];
  const tool = (name: string, effect: 'once' | 'keyed') =>
    defineTool({
      name,
      description: name,
      effect,
      params: z.strictObject({ text: z.string() }),
      // oxlint-disable-next-line require-await -- asynchronous by contract
      async run(_, { text }) {
        acted.push(`${name} ${text}`);
        return { value: `${name}: ${text}` };
      },
    });
  const tools = [tool('print', 'once'), tool('note', 'keyed')];
  const gw = new TestGateway({ config, script, tools, stateDir, listen: { token: undefined } });
  onTestFinished(() => gw.end());
  gw.clock.jump(names.time + 119_000 - gw.now());
  await gw.start();
  const admin = await gw.client({ token: names.tokens.admin });
  const ask = (token: string, path: string, body?: object) => (body ? gw.post(path, body, { token }) : gw.http(path, { token }));
  /** Only the turns of guests are left, which nobody takes here. */
  const rest = () => gw.none(async () => (await gw.rows.runs({ ended_at: null })).filter(({ lane }) => !lane.includes(':guest:')).length);
  const said = async (sessionKey: string) => {
    const page = await admin.call('chat.history', { sessionKey });
    if (!('totalMessages' in page)) throw new Error('not a page');
    return page.messages.map(({ role, content }) => {
      const text =
        typeof content === 'string' ? content : content.map((block) => ('text' in block ? block.text : `<${block.type}>`)).join('');
      return `${role}: ${text}`;
    });
  };
  return { gw, admin, ask, rest, said, acted };
}

describe('a state of schema 3', () => {
  it.each<[string, TokenChange[], [string, string]]>([
    ['RESTRICTED, as all admins are', [], ['RESTRICTED', 'RESTRICTED']],
    ['that of the operator who made them', [{ like: 'admin', level: 1 }], ['INTERNAL', 'PUBLIC']],
    [
      'the present level, if that operator is gone',
      [
        { like: 'admin', name: 'other' },
        { like: 'browser%', level: 2 },
      ],
      ['PUBLIC', 'PUBLIC'],
    ],
  ])('has sessions and tokens with a ceiling: %s', async (_, changes, [fable, bound]) => {
    const { gw } = await reopened(changedTokens(changes));
    const [guest] = await gw.rows.tokens({ name: 'guest:main:fable' });
    const [other] = await gw.rows.tokens({ name: 'bound' });
    const { clearance } = await gw.rows.session('agent:main:guest:fable');
    expect([guest!.level, clearance, other!.level].map(levelName)).toEqual([fable, fable, bound]);
    expect((await gw.rows.session('agent:main:direct:ann')).clearance).toBe(3);
  });

  it('lists its sessions as they were', async () => {
    const { admin } = await reopened();
    const { sessions } = await admin.call('sessions.list', { limit: 100 });
    expect(sessions.map(({ key }) => key).toSorted()).toEqual([
      'agent:main:diary',
      'agent:main:direct:ann',
      'agent:main:direct:bob',
      'agent:main:direct:cfo',
      'agent:main:guest:fable',
      'agent:main:guest:swift',
      'agent:main:loopback:group:team',
      'agent:main:main',
      'agent:main:project',
      'agent:main:subagent:child',
      'agent:ops:main',
      'agent:research:direct:rita',
      'agent:research:main',
      'agent:tea:main',
    ]);
    const of = (key: string) => sessions.find((session) => session.key === key);
    expect(of('agent:main:main')).toMatchObject({ isMain: true, sessionKind: 'main', messageCount: 0 });
    expect(of('agent:main:direct:ann')).toMatchObject({ sessionId: names.sessions.ann, lastChannel: 'loopback', lastTo: 'ann' });
    expect(of('agent:main:loopback:group:team')).toMatchObject({ kind: 'group', sessionKind: 'group', messageCount: 2 });
    expect(of('agent:main:direct:cfo')).toMatchObject({ taint: 'CONFIDENTIAL', lastChannel: 'vault' });
    expect(of('agent:main:project')).toMatchObject({ label: 'Project X', displayName: 'The project', sessionId: names.sessions.project });
    expect(of('agent:main:diary')).toMatchObject({ sessionId: names.sessions.diary, messageCount: 2 });
    expect(of('agent:main:subagent:child')).toMatchObject({ spawnedBy: 'agent:main:main', messageCount: 2 });
    expect(of('agent:main:guest:fable')).toMatchObject({ runtime: 'guest', see: 'all' });
    expect(of('agent:tea:main')).toMatchObject({
      totalTokens: 910,
      messageCount: 5,
      usage: { inputTokens: 2100, outputTokens: 26, cost: 0.00669 },
    });
    expect(await admin.call('sessions.resolve', { label: 'Project X' })).toMatchObject({ ok: true, key: 'agent:main:project' });
    expect(await admin.call('sessions.list', { archived: true })).toMatchObject({
      sessions: [{ key: 'agent:main:attic', archived: true }],
    });
    expect(await admin.call('sessions.list', { spawnedBy: 'agent:main:main' })).toMatchObject({ count: 1 });
    expect(await admin.call('sessions.describe', { key: 'agent:main:old' })).toEqual({ session: null });
    expect(await admin.call('sessions.describe', { key: names.sessions.firstLife })).toMatchObject({ session: { life: 1, ended: true } });
    // Its keys have got what similar ones are found by.
    await expect(admin.call('chat.history', { sessionKey: 'agent:main:idary' })).rejects.toThrow('did you mean agent:main:diary?');
  });

  it('has every transcript, and goes on writing where it was', async () => {
    const { gw, said } = await reopened();
    expect(await said('agent:main:loopback:group:team')).toEqual(['user: All here?', 'assistant: re: All here?']);
    expect(await said('agent:main:direct:cfo')).toEqual(['user: The number is 42.', 'assistant: re: The number is 42.']);
    expect(await said('agent:main:diary')).toEqual(['user: A new page', 'assistant: re: A new page']);
    expect(await said('agent:main:subagent:child')).toEqual(['user: Count to three', 'assistant: re: Count to three']);
    expect(await said('agent:main:attic')).toEqual(['user: Keep this', 'assistant: re: Keep this']);
    expect(await said('agent:tea:main')).toEqual([
      'user: Which tea?',
      'assistant: Tea it is.',
      'user: With milk?',
      'user: They spoke about tea.',
      'assistant: Tea it is.',
    ]);
    const ann = await said('agent:main:direct:ann');
    expect(ann.slice(0, 4)).toEqual(['user: Good morning', 'assistant: re: Good morning', 'user: ask research', 'assistant: <toolCall>']);
    expect(ann.at(-1)).toBe('assistant: REPLY_SKIP');
    expect((await said('agent:research:direct:rita')).slice(0, 6)).toEqual([
      'user: Hello research',
      'assistant: re: Hello research',
      'user: Which capital?',
      'assistant: Paris.',
      expect.stringMatching(/^user: /),
      'assistant: The capital is Paris.',
    ]);
    expect(await gw.answer('Good evening', { from: 'ann' })).toMatchObject({ state: 'ok', sessionKey: 'agent:main:direct:ann' });
    expect((await said('agent:main:direct:ann')).slice(ann.length)).toEqual(['user: Good evening', 'assistant: re: Good evening']);
  });

  it('goes on with what ran, waited and was queued; an exchange comes to its end', async () => {
    const { gw, rest, said, acted } = await reopened();
    const { runs } = names;
    expect(await gw.wait(runs.printing)).toMatchObject({ state: 'ok', reply: expect.stringContaining('OUTCOME_UNKNOWN') });
    expect(await gw.wait(runs.noting)).toMatchObject({ state: 'ok', reply: 're: and bread' });
    expect(await gw.wait(runs.waiting)).toMatchObject({ state: 'ok', reply: expect.stringContaining('"reply":"re: Is it up?"') });
    expect(await gw.wait(runs.queued)).toMatchObject({ state: 'ok', reply: 're: What else?' });
    expect(await gw.wait(runs.steered)).toMatchObject({ state: 'ok' });
    expect(await gw.wait(runs.telling)).toMatchObject({ state: 'ok', reply: 'Told: note: told' });
    expect(await gw.wait(runs.fromGuest)).toMatchObject({ state: 'ok', reply: 're: Are you there?' });
    await rest();
    expect(acted.toSorted()).toEqual(['note milk', 'note told']);
    // bob asked, ops answered, bob had no more to say, ops announced nothing
    expect((await said('agent:main:direct:bob')).slice(-2)).toEqual(['user: re: Is it up?', 'assistant: REPLY_SKIP']);
    expect((await said('agent:ops:main')).filter((line) => line === 'assistant: ANNOUNCE_SKIP')).toHaveLength(1);
    // the exchange that was in its second turn was announced to rita
    expect((await said('agent:main:project')).slice(-2)).toEqual(['user: Paris.', 'assistant: REPLY_SKIP']);
    expect((await said('agent:research:direct:rita')).at(-1)).toBe('assistant: The capital is Paris.');
    await gw.settled();
    expect(gw.sent.filter(({ recipient }) => recipient === 'rita').map(({ text }) => text)).toEqual(['The capital is Paris.']);
    expect(gw.sent.filter(({ recipient }) => recipient === 'bob')).toHaveLength(1);
  });

  it('offers the turns of its guests; one that was taken can be answered', async () => {
    const { gw, ask } = await reopened();
    const { fable, swift } = names.tokens;
    const look = async (token: string) => (await ask(token, '/tools/inbox', { waitSeconds: 0 })).json['result'];
    const offered = await look(fable);
    expect(offered).toMatchObject({ status: 'message', messages: [{ text: 'Which colour?' }] });
    expect((await ask(fable, '/tools/reply', { turnId: offered.turnId, text: 'Blue.' })).json).toMatchObject({ ok: true });
    expect(await gw.wait(names.runs.offered)).toMatchObject({ state: 'ok', reply: 'Blue.' });
    expect(await look(swift)).toMatchObject({ status: 'unanswered', turnId: names.turnId });
    expect((await ask(swift, '/tools/reply', { turnId: names.turnId, text: 'Round.' })).json).toMatchObject({ ok: true });
    expect(await gw.wait(names.runs.taken)).toMatchObject({ state: 'ok', reply: 'Round.' });
    const next = (await ask(swift, '/tools/inbox', {})).json['result'];
    expect(next).toMatchObject({ status: 'message', messages: [{ text: 'Which size?' }] });
    await ask(swift, '/tools/reply', { turnId: next.turnId, text: 'Small.' });
    expect(await gw.wait(names.runs.behind)).toMatchObject({ state: 'ok', reply: 'Small.' });
  });

  it('sends what was pending, and says of what was being sent that nobody knows', async () => {
    const { gw, admin } = await reopened();
    await gw.settled();
    expect((await admin.call('status')).deliveries).toEqual({ pending: 1, unknown: 2, dead: 1 });
    await gw.clock.advance(1_000);
    expect((await admin.call('status')).deliveries).toEqual({ pending: 0, unknown: 2, dead: 1 });
    const out = gw.sent.filter(({ recipient }) => recipient === 'stuck' || recipient === 'later');
    expect(out.map(({ id, recipient, text }) => [id, recipient, text])).toEqual([
      [names.deliveries.pending, 'stuck', 'Three'],
      [names.deliveries.later, 'later', 'Soon'],
    ]);
  });

  it('knows its tokens', async () => {
    const { gw, admin, ask } = await reopened();
    const { tokens } = await admin.call('tokens.list');
    expect(tokens.map(({ name, kind }) => `${kind} ${name.replace(/^browser-.*/, 'one')}`).toSorted()).toEqual([
      'browser one',
      'operator admin',
      'operator reader',
      'operator rotated',
      'operator writer',
      'session bound',
      'session guest:main:fable',
      'session guest:main:swift',
    ]);
    const reader = await gw.client({ token: names.tokens.reader });
    expect((await reader.call('sessions.list', { limit: 100 })).sessions.map(({ key }) => key)).not.toContain('agent:main:direct:cfo');
    const message = { sessionKey: 'agent:main:main', message: 'Hello', idempotencyKey: 'from-a-token' };
    await expect(reader.call('chat.send', message)).rejects.toMatchObject({ code: 'MISSING_SCOPE' });
    expect(await (await gw.client({ token: names.tokens.writer })).call('chat.send', message)).toMatchObject({ status: 'started' });
    expect((await ask(names.tokens.bound, '/tools/session_status', {})).json).toMatchObject({ result: { key: 'agent:main:direct:ann' } });
    expect((await ask(names.tokens.rotated, '/sessions')).status).toBe(200);
    expect((await ask(names.tokens.before, '/sessions')).status).toBe(401);
    const cookie = names.cookie.replace('interlane=', `interlane-${gw.port}=`);
    expect((await gw.http('/sessions', { token: '', headers: { cookie } })).status).toBe(200);
  });

  it('knows what it was asked before', async () => {
    const { gw, admin } = await reopened();
    const request = { sessionKey: 'agent:main:project', message: 'First step', idempotencyKey: 'idem-1' };
    expect(await admin.call('chat.send', request)).toMatchObject({ runId: names.runs.idem, status: 'ok' });
    await expect(admin.call('chat.send', { ...request, message: 'Another' })).rejects.toMatchObject({ code: 'IDEMPOTENCY_CONFLICT' });
    const morning = {
      origin: { channel: 'loopback', peer: { kind: 'direct' as const, id: 'ann' } },
      text: 'Good morning',
      messageId: 'm1',
    };
    expect(await gw.receive(morning)).toMatchObject({ repeated: true });
    const again = { to: 'stuck', message: 'Three', channel: 'loopback', idempotencyKey: 'send-stuck-5' };
    expect((await admin.call('send', again)).deliveryIds).toEqual([names.deliveries.pending]);
    expect(await admin.call('agent.wait', { runId: names.runs.asked })).toMatchObject({ status: 'ok' });
  });

  it.each([
    ['has no other main session', 'agent:main:old', 'agent:main:main'],
    ['has one', 'agent:main:main', 'agent:main:shared-chat'],
  ])('has the shared chat that was stored as "global" under a key of its agent, which %s', async (_, main, key) => {
    const { admin, ask, rest } = await reopened(sharedChat('agent:main:direct:ann', main));
    await rest();
    const { sessions } = await admin.call('sessions.list', { limit: 100 });
    expect(sessions.find((row) => row.key === key)?.sessionId).toBe(names.sessions.ann);
    expect(JSON.stringify(sessions)).not.toContain('global');
    expect((await ask(names.tokens.bound, '/tools/session_status', {})).json).toMatchObject({ result: { key } });
  });

  it('is whole after a second restart', async () => {
    const { gw, rest } = await reopened();
    await rest();
    await gw.restart();
    expect((await gw.http('/sessions?limit=100', { token: names.tokens.rotated })).json.count).toBe(14);
  });
});
