// What `explain` says is what the gateway then does, for every topic; and it says what does not exist, and what it assumes without a gateway.
import { describe, expect, it } from 'vitest';
import type { Explanation } from '../../src/protocol/decision.ts';
import type { Params } from '../../src/protocol/operations/all.ts';
import { testGateway, type ConfigText, type TestGateway } from '../harness/gateway.ts';
import { started } from '../harness/terminal.ts';

const env = { INTERLANE_DISCOVER: '0' };
const list = [
  { id: 'main' },
  { id: 'work', tools: { deny: ['files_*', 'sessions_search'] } },
  { id: 'box', sandbox: { mode: 'all' as const }, tools: { allow: ['sessions_*', 'session_status'] } },
];
const mask = (id: string, hook: 'PRE_CONTEXT_INJECTION' | 'PRE_OUTPUT') => ({
  id,
  hook,
  match: { text: 'secret' },
  effect: 'REDACT' as const,
});
const configs: [string, ConfigText][] = [
  ['with the defaults', {}],
  [
    'where all see all, with levels and rules about text',
    {
      tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } },
      classification: { channels: { loopback: 'INTERNAL' } },
      policy: {
        rules: [
          mask('in', 'PRE_CONTEXT_INJECTION'),
          mask('out', 'PRE_OUTPUT'),
          { id: 'box', hook: 'PRE_CONTEXT_INJECTION', match: { agentId: 'box' }, effect: 'BLOCK' },
        ],
      },
    },
  ],
  [
    'where an agent sees its own, some reach each other, and a policy denies sending',
    {
      tools: { sessions: { visibility: 'agent' }, agentToAgent: { enabled: true, allow: ['main', 'wo*'] } },
      session: { dmScope: 'per-peer', sendPolicy: { rules: [{ match: { keyPrefix: 'agent:main:direct:x' }, action: 'deny' }] } },
    },
  ],
];
const text = 'a secret word';
const keys = ['agent:main:main', 'agent:main:notes', 'agent:main:plans', 'agent:work:main', 'agent:box:main', 'agent:main:guest:codex'];

async function stageWith(config: ConfigText): Promise<TestGateway> {
  const stage = await testGateway({ config: { ...config, agents: { list } }, listen: true });
  await stage.tell('agent:main:notes', 'hello');
  await stage.tell('agent:main:plans', 'hello', { taint: 1 });
  await stage.call('guests.join', { name: 'codex', see: 'all' });
  return stage;
}

const effectOf = ({ facts }: Explanation) => facts['effect'];

describe.each(configs)('%s, explain', (_, config) => {
  it('access is what the tools of a session answer', async () => {
    const stage = await stageWith(config);
    let refused = 0;
    for (const caller of keys.filter((key) => key !== 'agent:main:notes' && key !== 'agent:box:main')) {
      const token = await stage.token(`as-${caller.replaceAll(':', '-')}`, { sessionKey: caller });
      const use = async (tool: string, args: Record<string, unknown>) =>
        (await stage.call('tools.invoke', { tool, args }, token)).result as { code?: string; sessions?: { key: string }[]; runId?: string };
      const listed = new Set((await use('sessions_list', { limit: 200 })).sessions?.map(({ key }) => key));
      for (const target of ['agent:main:main', 'agent:main:plans', 'agent:work:main', 'agent:box:main', 'agent:nobody:main']) {
        const asked = (action: Params<'explain.access'>['action']) =>
          stage.call('explain.access', { action, caller: { key: caller }, target: { key: target }, text });
        const [list, readable, known, sendable] = await Promise.all((['list', 'read', 'status', 'send'] as const).map(asked));
        const said = { list: list!, read: readable!, status: known!, send: sendable! };
        const pair = `${caller} to ${target}`;
        expect([pair, effectOf(said.list) === 'ALLOW', said.list.facts['targetIsListed']]).toEqual([
          pair,
          listed.has(target),
          listed.has(target),
        ]);
        const read = await use('sessions_history', { sessionKey: target });
        expect([pair, effectOf(said.read), said.read.facts['code']]).toEqual([pair, read.code ? 'BLOCK' : 'ALLOW', read.code]);
        const status = await use('session_status', { sessionKey: target });
        expect([pair, effectOf(said.status), said.status.facts['code']]).toEqual([pair, status.code ? 'BLOCK' : 'ALLOW', status.code]);
        const sent = await use('sessions_send', { sessionKey: target, message: text, timeoutSeconds: 0 });
        expect([pair, effectOf(said.send) === 'BLOCK', said.send.facts['code']]).toEqual([pair, sent.code !== undefined, sent.code]);
        if (read.code) refused++;
        if (effectOf(said.send) === 'REDACT') {
          await stage.wait(sent.runId!);
          expect((await stage.transcript(target)).join()).toContain(String(said.send.facts['redactedText']));
        }
      }
    }
    expect(refused).toBeGreaterThan(4);
  });

  it('send is what leaves for the channel', async () => {
    const stage = await stageWith(config);
    await Promise.all(['you', 'xavier'].map((from) => stage.answer('hello', { from })));
    await stage.finished();
    const { sessions } = await stage.call('sessions.list', {});
    const spoken = sessions.filter(({ deliveryContext }) => deliveryContext !== undefined);
    expect(spoken.length).toBeGreaterThan(0);
    for (const { key, deliveryContext } of spoken) {
      const said = await stage.call('explain.send', { session: { key }, text });
      const { channel, to } = deliveryContext!;
      const before = stage.sent.length;
      const sent = stage.call('send', { sessionKey: key, channel, to, message: text, idempotencyKey: key });
      if (effectOf(said) === 'BLOCK') await expect(sent).rejects.toMatchObject({ code: said.facts['code'] });
      else {
        await sent;
        await stage.finished();
        expect(stage.sent.slice(before).map((one) => one.text)).toEqual([said.facts['redactedText'] ?? text]);
      }
    }
  });

  it('tools are the tools that a session is offered', async () => {
    const stage = await stageWith(config);
    for (const key of keys) {
      const said = await stage.call('explain.tools', { session: { key } });
      const token = await stage.token(`of-${key.replaceAll(':', '-')}`, { sessionKey: key });
      const { tools } = await (await stage.mcp(token)).client.listTools();
      expect([key, ...String(said.facts['tools']).split(', ').toSorted()]).toEqual([key, ...tools.map(({ name }) => name).toSorted()]);
    }
  });

  it('route and key are where a message goes and what a session is called', async () => {
    const stage = await stageWith({ ...config, bindings: [{ agentId: 'work', match: { channel: 'loopback', accountId: 'w' } }] });
    for (const origin of [
      { channel: 'loopback', peer: { kind: 'direct' as const, id: 'Ana' } },
      { channel: 'loopback', accountId: 'W', peer: { kind: 'group' as const, id: '-1' }, threadId: '7' },
      { channel: 'Loopback', peer: { kind: 'dm' as const, id: 'x y' } },
    ]) {
      const said = await stage.call('explain.route', origin);
      expect((await stage.receive({ origin, text: 'hello' })).sessionKey).toBe(said.facts['sessionKey']);
      expect((await stage.call('explain.route', origin)).facts['exists']).toBe(true);
    }
    for (const key of ['Telegram:group:-100:topic:7', 'agent:work:Some Name', 'main']) {
      const said = await stage.call('explain.key', { key });
      expect(said.facts['exists']).toBe(key === 'main');
      expect((await stage.call('sessions.create', { key })).key).toBe(said.facts['sessionKey']);
      expect((await stage.call('explain.key', { key })).facts['exists']).toBe(true);
    }
  });
});

describe('interlane explain', () => {
  const ask = async (stage: TestGateway, topic: string, question: object, more: string[] = []) => {
    const argv = ['explain', topic, JSON.stringify(question), '--json', '--state-dir', stage.stateDir, ...more];
    const { status, stdout, stderr } = await started(argv, { env }).finished;
    return { status, stderr, ...(JSON.parse(stdout) as Explanation & { config: string; note?: string }) };
  };
  const access = { caller: { key: 'agent:main:guest:codex' }, target: { key: 'agent:main:main' } };

  it('asks the running gateway for every topic; without one it says so, and answers from the config and the stored sessions', async () => {
    const stage = await stageWith({});
    const questions: [string, object][] = [
      ['route', { channel: 'loopback', peer: { kind: 'direct', id: '1' } }],
      ['key', { key: 'main' }],
      ['send', { session: { key: 'main' }, channel: 'loopback' }],
      ['access', access],
      ['tools', { session: { key: 'agent:main:plans' }, tool: 'files_read' }],
    ];
    const live = await Promise.all(questions.map(([topic, question]) => ask(stage, topic, question)));
    expect(live.map(({ config, note }) => [config, note])).toEqual(live.map(() => ['the running gateway', undefined]));
    // The grant of the guest counts, which only the gateway and its store know.
    expect(live[3]).toMatchObject({ facts: { effect: 'ALLOW', callerSees: 'all' } });
    await stage.close();
    const stored = await Promise.all(questions.map(([topic, question]) => ask(stage, topic, question)));
    for (const [at, { note, config, ...answer }] of stored.entries()) {
      const { config: _, note: __, ...before } = live[at]!;
      expect({ ...answer, rules: answer.rules.filter(({ rule }) => rule !== 'agent') }).toEqual(before);
      expect(note).toMatch(new RegExp(`^no gateway runs on ${stage.stateDir};.*stored sessions`));
      expect(config).toBe('the built-in defaults');
    }
  });

  it('says that a session or an agent does not exist, and what is assumed where nothing is stored', async () => {
    const stage = await stageWith({});
    const missing = await ask(stage, 'access', { caller: { key: 'main' }, target: { key: 'agent:wrok:main' } });
    expect(missing).toMatchObject({ facts: { effect: 'BLOCK', code: 'SESSION_NOT_FOUND', targetExists: false } });
    expect(missing.answer).toMatch(/agent:wrok:main does not exist.*did you mean "work"/);
    const tools = await ask(stage, 'tools', { session: { key: 'agent:nobody:x' } });
    expect(tools.facts).toMatchObject({ exists: false, tools: 'none' });
    expect(tools.rules.filter(({ effect }) => effect === 'NOTE').map(({ rule }) => rule)).toEqual(['session', 'agent']);
    const empty = await testGateway();
    await empty.close();
    const { stdout } = await started(['explain', 'key', 'main', '--state-dir', `${empty.stateDir}/none`], { env }).finished;
    expect(stdout).toMatch(/nothing is stored yet, so sessions are assumed to be as the question says\n$/);
  });
});
