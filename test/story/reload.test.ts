// A config that changes while the gateway runs: what is safe holds from the next message on, the rest is named.
import { expect, it, onTestFinished } from 'vitest';
import { testGateway, type ConfigText } from '../harness/gateway.ts';
import { mockProvider } from '../mock/provider.ts';

it('takes up agents, bindings and policy, and says what waits for a restart', async () => {
  const stage = await testGateway({ script: [{ agent: 'ana', steps: [{ say: 'Ana here.' }] }, { steps: [{ say: 'Main here.' }] }] });
  expect((await stage.answer('hello')).reply).toBe('Main here.');
  await stage.finished();

  const change = await stage.reload({
    agents: { list: [{ id: 'main', default: true }, { id: 'ana' }] },
    bindings: [{ agentId: 'ana', match: { channel: 'loopback' } }],
    session: { sendPolicy: { default: 'deny' } },
    gateway: { port: 1 },
    store: { keepDays: 3 },
  });
  expect(change).toEqual({
    applied: ['session.sendPolicy.default', 'agents.list', 'bindings'],
    restart: ['gateway.port', 'store.keepDays'],
  });
  expect(await stage.rows.sessions({}, 'key')).toEqual([{ key: 'agent:main:main' }, { key: 'agent:ana:main' }]);

  expect(await stage.answer('hello again')).toMatchObject({ sessionKey: 'agent:ana:main', reply: 'Ana here.' });
  await stage.finished();
  // The first answer left before the change; the second is held back by the new policy.
  expect(stage.sent.map(({ text }) => text)).toEqual(['Main here.']);
});

it('says nothing when nothing has changed', async () => {
  const stage = await testGateway();
  expect(await stage.reload({})).toEqual({ applied: [], restart: [] });
});

it('asks another model from the next turn on, gives other tools, and lets outside servers wait for a restart', async () => {
  const provider = await mockProvider(() => ({ text: 'Hello.' }));
  onTestFinished(() => provider.close());
  const models: ConfigText['models'] = { providers: { mock: { type: 'openai-compatible', baseUrl: provider.url } } };
  const stage = await testGateway({ config: { models, agents: { defaults: { model: 'mock/one' }, list: [{ id: 'main' }] } } });
  const ask = async () => {
    expect((await stage.answer('hello')).reply).toBe('Hello.');
    const { model, tools } = provider.asked.at(-1)!.body as { model: string; tools: { function: { name: string } }[] };
    return [model, tools.map((tool) => tool.function.name).includes('files_read')];
  };
  expect(await ask()).toEqual(['one', true]);
  const change = await stage.reload({
    models,
    agents: { defaults: { model: 'mock/two' }, list: [{ id: 'main', tools: { deny: ['files_*'] } }] },
    mcp: { servers: { gone: { url: 'http://127.0.0.1:1/mcp' } } },
    guests: { replyMinutes: 3 },
  });
  expect(change).toEqual({
    applied: ['agents.defaults.model', 'agents.list', 'guests.replyMinutes'],
    restart: ['mcp.servers.gone'],
  });
  expect(await ask()).toEqual(['two', false]);
});

it('keeps everything as it was when a workspace cannot be', async () => {
  const stage = await testGateway();
  await expect(stage.reload({ agents: { list: [{ id: 'ana', workspace: stage.stateDir }] } })).rejects.toMatchObject({
    code: 'CONFIG_INVALID',
  });
  expect(await stage.answer('hello')).toMatchObject({ sessionKey: 'agent:main:main' });
});
