// Arguments at their edges, and the fields of a row, as the session tools and the other transports answer them.
import { describe, expect, it, onTestFinished } from 'vitest';
import { testGateway, type ConfigText } from '../harness/gateway.ts';
import { refusal } from '../harness/refusal.ts';
import { started } from '../harness/terminal.ts';
import { mockProvider } from '../mock/provider.ts';

const caller = 'agent:ana:main';
const team: ConfigText = {
  agents: { list: [{ id: 'ana', default: true }, { id: 'bo' }] },
  tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } },
};

describe('arguments', () => {
  it('a wait of 0.4 seconds ends after 0.4 seconds, not at once', async () => {
    const script = [{ agent: 'bo', steps: [{ calls: [{ tool: 'gate', args: { name: 'bo' } }] }, { say: 'late' }] }];
    const gw = await testGateway({ config: team, caller, stops: true, script });
    const asked = gw.tool('sessions_send', { sessionKey: 'agent:bo:main', message: 'hello', timeoutSeconds: 0.4 });
    await gw.stops.entered('bo');
    await gw.clock.advance(399);
    expect(await gw.rows.waits({}, 'answer')).toEqual([{ answer: null }]);
    await gw.clock.advance(1);
    expect(await asked).toMatchObject({ status: 'timeout' });
    gw.stops.open('bo');
  });

  it('an empty list of kinds filters nothing, in the tool, over websocket and over HTTP', async () => {
    const gw = await testGateway({ config: team, caller, listen: true });
    const keys = ['agent:bo:main', caller];
    type Listed = { sessions: { key: string }[] };
    const keysOf = ({ sessions }: Listed) => sessions.map(({ key }) => key).toSorted();
    expect(keysOf(await gw.tool<Listed>('sessions_list', { kinds: [] }))).toEqual(keys.toSorted());
    expect(keysOf(await gw.call('sessions.list', { kinds: [] }))).toEqual(keys.toSorted());
  });

  it('a row that lost messages to the size of the answer says so, and a row without messages does not', async () => {
    const list = ['ana', 'bo', 'one', 'two', 'three'].map((id) => ({ id, default: id === 'ana' }));
    const gw = await testGateway({ config: { ...team, agents: { list } }, caller });
    for (const id of ['one', 'two', 'three']) await gw.rows.addEntries(`agent:${id}:main`, 20, () => 'x'.repeat(3_900));
    type Row = { key: string; messages: unknown[]; truncated?: true };
    const answer = await gw.tool<{ sessions: Row[]; truncated?: true }>('sessions_list', { messageLimit: 20 });
    const rows = Object.fromEntries(answer.sessions.map(({ key, messages, truncated }) => [key, [messages.length, truncated]]));
    expect(answer.truncated).toBe(true);
    expect(rows['agent:bo:main']).toEqual([0, undefined]);
    const written = ['one', 'two', 'three'].map((id) => rows[`agent:${id}:main`]!);
    expect(written.toSorted(([a], [b]) => Number(a) - Number(b))).toEqual([
      [0, true],
      [0, true],
      [20, undefined],
    ]);
  });

  it('sessions_history without arguments names its own', async () => {
    const gw = await testGateway({ config: team, caller });
    for (const args of [{}, { sessionKey: ' ' }]) {
      const answer = await gw.tool<{ error: string }>('sessions_history', args);
      expect(answer).toEqual(refusal('INVALID_REQUEST', 'sessionKey'));
      expect(answer.error).not.toContain('label');
    }
  });
});

describe('a row', () => {
  it('has its channel and its user at every door; the user of a main session is the sender of the first message of its life', async () => {
    const gw = await testGateway({ config: team, caller, listen: true });
    const told = (user: string | undefined, channel: string) => expect.objectContaining({ channel, ...(user && { user }) }) as object;
    const everywhere = async () => {
      const { sessions } = await gw.tool<{ sessions: { key: string }[] }>('sessions_list', { kinds: ['main'] });
      const page = JSON.parse((await gw.http('/sessions?kinds=main')).text) as typeof wire;
      const wire = await gw.call('sessions.list', { kinds: ['main'] });
      const cli = started(['sessions', '--json', '--url', gw.url], { env: { INTERLANE_TOKEN: gw.admin } });
      const printed = JSON.parse((await cli.finished).stdout) as typeof wire;
      const lists = [sessions, wire.sessions, page.sessions, printed.sessions];
      const status = await gw.tool('session_status', { sessionKey: 'agent:ana:main' }, 'agent:bo:main');
      return [
        status,
        (await gw.call('sessions.describe', { key: 'main' })).session,
        ...lists.map((rows) => rows.find(({ key }) => key === caller)),
      ];
    };
    for (const from of ['Rita', 'sam']) {
      await gw.answer('hello', { from });
      for (const row of await everywhere()) expect(row).toEqual(told('loopback:rita', 'loopback'));
    }
    // A new life has no user before its first message.
    await gw.reset(caller);
    expect((await gw.call('sessions.describe', { key: 'main' })).session).not.toHaveProperty('user');
    await gw.write('main', 'hello');
    for (const row of await everywhere()) expect(row).toEqual(told('operator:admin', 'loopback'));
  });

  it('of a summary is marked in the history, and no other message is', async () => {
    const provider = await mockProvider(({ text }, index) => {
      if (text.includes('Write only the summary')) return { text: 'They greeted each other.' };
      return { text: `Hello ${index}.`, usage: { input: 900, output: 10 } };
    });
    onTestFinished(() => provider.close());
    const mock = { type: 'openai-compatible' as const, baseUrl: provider.url, models: { m: { contextTokens: 1_000 } } };
    const gw = await testGateway({ config: { models: { providers: { mock } }, agents: { defaults: { model: 'mock/m' } } }, listen: true });
    for (const text of ['one', 'two', 'three']) await gw.answer(text);
    const page = await gw.call('chat.history', { sessionKey: 'main' });
    const messages = 'messages' in page ? page.messages : [];
    const marked = messages.filter(({ summary }) => summary === true);
    expect(marked.length).toBeGreaterThan(0);
    for (const message of messages) expect(message.summary === true).toBe(message.content === 'They greeted each other.');
    const { messages: overHttp } = JSON.parse((await gw.http('/sessions/main/history')).text) as { messages: { summary?: true }[] };
    expect(overHttp.filter(({ summary }) => summary).length).toBe(marked.length);
  });
});

it.each<[string, ConfigText, string | undefined]>([
  ['visibility alone', { tools: { sessions: { visibility: 'agent' } } }, 'every session of your agent'],
  ['all, but no other agent', { tools: { sessions: { visibility: 'all' } } }, 'every session of your agent'],
  ['all', { tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } } }, 'every session'],
  [
    'all, some agents',
    { tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true, allow: ['main', 'b*'] } } },
    'every session of your agent, and those of the agents that yours may reach',
  ],
  [
    'a sandbox',
    {
      agents: { list: [{ id: 'main', sandbox: { mode: 'all' } }] },
      tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } },
    },
    'this session and those it spawned',
  ],
  [
    'no session tools',
    { tools: { sessions: { visibility: 'all' } }, agents: { list: [{ id: 'main', tools: { allow: ['files_*'] } }] } },
    undefined,
  ],
])('the prompt says what the session reaches in fact: %s', async (_, config, reach) => {
  const provider = await mockProvider(() => ({ text: 'Hello.' }));
  onTestFinished(() => provider.close());
  const mock = { type: 'openai-compatible' as const, baseUrl: provider.url };
  const agents = { ...config.agents, defaults: { model: 'mock/m' } };
  const gw = await testGateway({ config: { ...config, models: { providers: { mock } }, agents } });
  await gw.answer('hello');
  const [system] = provider.asked[0]!.body.messages!;
  const [, said] = /you can reach: (.*)\./.exec(String(system!.content)) ?? [];
  expect(said).toBe(reach);
});

it('history takes the name of an agent, as send does, and help shows a readable timeout', async () => {
  const gw = await testGateway({ config: team, listen: true });
  await gw.write('agent:bo:main', 'hello');
  const env = { INTERLANE_TOKEN: gw.admin };
  const read = await started(['history', 'bo', '--url', gw.url], { env }).finished;
  expect(read).toMatchObject({ status: 0, stdout: expect.stringContaining('re: hello') as string });
  for (const command of ['send', 'wait']) {
    const { stdout } = await started([command, '--help']).finished;
    expect(stdout).toContain('(default: 5m)');
    expect(stdout).not.toContain('300000');
  }
});
