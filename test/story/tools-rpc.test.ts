// Tools through the websocket: which a session gets and why, rows with every field, and what is wrong with an outside server.
import { expect, it, vi } from 'vitest';
import { toolNames } from '../../src/protocol/tool.ts';
import { testGateway, type ConfigText } from '../harness/gateway.ts';

// Nothing here depends on how long it takes.
vi.setConfig({ testTimeout: 60_000 });

const open = (config: ConfigText) => testGateway({ config, listen: true, channels: [], clock: 'real' });

it('explain.tools says which tools a session gets, and why', async () => {
  const gw = await open({ agents: { list: [{ id: 'main', tools: { deny: ['files_*'] } }] } });
  const { answer, rules } = await gw.call('explain.tools', {
    session: { key: 'agent:main:main' },
  });
  for (const part of ['agent:main:main', toolNames.length - 3, toolNames.length]) expect(answer).toContain(String(part));
  expect(rules.filter(({ effect }) => effect === 'BLOCK')).toEqual(
    ['files_list', 'files_read', 'files_write'].map((rule) => ({
      rule,
      effect: 'BLOCK',
      why: expect.stringContaining('files_*') as string,
    })),
  );
});

it('rows have every field, also what a session runs on without having chosen it', async () => {
  const providers = { p: { type: 'openai' as const, models: { m: { contextTokens: 9_000 } } } };
  const gw = await open({ models: { providers }, agents: { defaults: { model: 'p/m', thinking: 'low' } } });
  const usual = { key: 'agent:main:main', model: 'p/m', contextTokens: 9_000, thinkingLevel: 'low' };
  expect(await gw.call('sessions.list')).toMatchObject({ sessions: [usual] });
  expect(await gw.call('sessions.describe', { key: 'main' })).toMatchObject({ session: usual });
});

it('an outside server that cannot be reached is among the warnings of status, and a call of its tools says so', async () => {
  const gw = await open({ mcp: { servers: { gone: { url: 'http://127.0.0.1:1/mcp', effect: 'pure' } } } });
  expect(await gw.call('status')).toMatchObject({ warnings: [] });
  expect(await gw.call('tools.invoke', { tool: 'gone__x' })).toMatchObject({ ok: false, result: { code: 'UNAVAILABLE' } });
  expect(await gw.call('status')).toMatchObject({ warnings: [expect.stringContaining('mcp.servers.gone')] });
});
