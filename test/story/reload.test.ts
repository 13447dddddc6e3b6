// A config that changes while the gateway runs: what is safe holds from the next message on, the rest is named.
import { expect, it } from 'vitest';
import { readConfig } from '../../src/config/load.ts';
import { HandClock } from '../clock.ts';
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
