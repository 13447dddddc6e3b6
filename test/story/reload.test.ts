// A config that changes while the gateway runs: what is safe holds from the next message on, the rest is named.
import { expect, it, onTestFinished } from 'vitest';
import { readConfig } from '../../src/config/load.ts';
import { HandClock } from '../clock.ts';
import { mockProvider } from '../mock/provider.ts';
import { forTest, say, Stage } from './stage.ts';

const read = (text: string) => readConfig(text, 'test.json5', {}).config;

it('takes up agents, bindings and policy, and says what waits for a restart', async () => {
  const stage = await forTest(new Stage(new HandClock())).start({}, [
    { agent: 'ana', steps: [{ say: 'Ana here.' }] },
    { steps: [{ say: 'Main here.' }] },
  ]);
  const { gateway } = stage;
  const first = await say(gateway, 'hello', 'you');
  expect((await gateway.engine.wait(first.runId, 1_000)).reply).toBe('Main here.');

  const change = await gateway.reload(
    read(`{
      agents: { list: [{ id: 'main', default: true }, { id: 'ana' }] },
      bindings: [{ agentId: 'ana', match: { channel: 'loopback' } }],
      session: { sendPolicy: { default: 'deny' } },
      gateway: { port: 1 },
      store: { keepDays: 3 },
    }`),
  );
  expect(change).toEqual({
    applied: ['session.sendPolicy.default', 'agents.list', 'bindings'],
    restart: ['gateway.port', 'store.keepDays'],
  });
  expect(await stage.rows('SELECT key FROM sessions ORDER BY key')).toEqual([{ key: 'agent:ana:main' }, { key: 'agent:main:main' }]);

  const second = await say(gateway, 'hello again', 'you');
  expect(second.sessionKey).toBe('agent:ana:main');
  expect((await gateway.engine.wait(second.runId, 1_000)).reply).toBe('Ana here.');
  await stage.settled();
  // The first answer left before the change; the second is held back by the new policy.
  expect(stage.sent.map(({ text }) => text)).toEqual(['Main here.']);
});

it('says nothing when nothing has changed', async () => {
  const stage = await forTest(new Stage(new HandClock())).start({}, []);
  expect(await stage.gateway.reload(read('{}'))).toEqual({ applied: [], restart: [] });
});

it('asks another model from the next turn on, gives other tools, and lets outside servers wait for a restart', async () => {
  const provider = await mockProvider(() => ({ text: 'Hello.' }));
  onTestFinished(() => provider.close());
  const models = `models: { providers: { mock: { type: 'openai-compatible', baseUrl: '${provider.url}' } } }`;
  const stage = await forTest(new Stage(new HandClock())).start(
    read(`{ ${models}, agents: { defaults: { model: 'mock/one' }, list: [{ id: 'main' }] } }`),
    [],
  );
  const ask = async () => {
    const { runId } = await say(stage.gateway, 'hello');
    expect((await stage.gateway.engine.wait(runId, 1_000)).reply).toBe('Hello.');
    const { model, tools } = provider.asked.at(-1)!.body as { model: string; tools: { function: { name: string } }[] };
    return [model, tools.map((tool) => tool.function.name).includes('files_read')];
  };
  expect(await ask()).toEqual(['one', true]);
  const change = await stage.gateway.reload(
    read(`{
      ${models},
      agents: { defaults: { model: 'mock/two' }, list: [{ id: 'main', tools: { deny: ['files_*'] } }] },
      mcp: { servers: { gone: { url: 'http://127.0.0.1:1/mcp' } } },
      guests: { replyMinutes: 3 },
    }`),
  );
  expect(change).toEqual({
    applied: ['agents.defaults.model', 'agents.list', 'guests.replyMinutes'],
    restart: ['mcp.servers.gone'],
  });
  expect([...stage.gateway.world.tools.servers.keys()]).toEqual([]);
  expect(await ask()).toEqual(['two', false]);
});

it('keeps everything as it was when a workspace cannot be', async () => {
  const stage = await forTest(new Stage(new HandClock())).start({}, []);
  const within = read(JSON.stringify({ agents: { list: [{ id: 'ana', workspace: stage.stateDir }] } }));
  await expect(stage.gateway.reload(within)).rejects.toThrow('lie in one another');
  expect(stage.gateway.world.agents.defaultId).toBe('main');
});
