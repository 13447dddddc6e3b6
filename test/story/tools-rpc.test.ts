// Tools through the websocket: which a session gets and why, rows with every field, and what is wrong with an outside server.
import { once } from 'node:events';
import { expect, it, onTestFinished, vi } from 'vitest';
import { WebSocket } from 'ws';
import { protocolVersion } from '../../src/protocol/frame.ts';
import { toolNames } from '../../src/protocol/tool.ts';
import { RealClock } from '../clock.ts';
import { forTest, Stage, type ConfigText } from './stage.ts';

// Nothing here depends on how long it takes.
vi.setConfig({ testTimeout: 60_000 });

const token = 'a token for this test';

async function connect(config: ConfigText) {
  const listen = { version: 'test', port: 0, token };
  const { gateway } = await forTest(new Stage(new RealClock())).start(config, [], { listen, channels: [] });
  const socket = new WebSocket(gateway.server!.url.replace('http', 'ws'));
  onTestFinished(() => socket.terminate());
  await once(socket, 'open');
  let ids = 0;
  const ask = <T>(method: string, params: object = {}): Promise<T> => {
    const id = String(ids++);
    const answer = Promise.withResolvers<T>();
    const hear = (data: Buffer) => {
      const frame = JSON.parse(data.toString('utf8')) as {
        type: string;
        id?: string;
        ok?: boolean;
        payload?: T;
        error?: { message: string };
      };
      if (frame.type !== 'res' || frame.id !== id) return;
      socket.off('message', hear);
      if (frame.ok) answer.resolve(frame.payload!);
      else answer.reject(new Error(frame.error!.message));
    };
    socket.on('message', hear);
    socket.send(JSON.stringify({ type: 'req', id, method, params }));
    return answer.promise;
  };
  const client = { id: 'cli', version: '1', platform: 'test', mode: 'cli' };
  await ask('connect', { minProtocol: protocolVersion, maxProtocol: protocolVersion, client, auth: { token } });
  return ask;
}

it('explain.tools says which tools a session gets, and why', async () => {
  const ask = await connect({ agents: { list: [{ id: 'main', tools: { deny: ['files_*'] } }] } });
  const { answer, rules } = await ask<{ answer: string; rules: { rule: string; effect: string; why: string }[] }>('explain.tools', {
    session: { key: 'agent:main:main' },
  });
  expect(answer).toBe(`agent:main:main gets ${toolNames.length - 3} of ${toolNames.length} tools`);
  expect(rules.filter(({ effect }) => effect === 'BLOCK')).toEqual(
    ['files_list', 'files_read', 'files_write'].map((rule) => ({
      rule,
      effect: 'BLOCK',
      why: 'deny of tools of agent "main" has "files_*"',
    })),
  );
});

it('rows have every field, also what a session runs on without having chosen it', async () => {
  const providers = { p: { type: 'openai' as const, models: { m: { contextTokens: 9_000 } } } };
  const ask = await connect({ models: { providers }, agents: { defaults: { model: 'p/m', thinking: 'low' } } });
  const usual = { key: 'agent:main:main', model: 'p/m', contextTokens: 9_000, thinkingLevel: 'low' };
  expect(await ask('sessions.list')).toMatchObject({ sessions: [usual] });
  expect(await ask('sessions.describe', { key: 'main' })).toMatchObject({ session: usual });
});

it('an outside server that cannot be reached is among the warnings of status, and a call of its tools says so', async () => {
  const ask = await connect({ mcp: { servers: { gone: { url: 'http://127.0.0.1:1/mcp', effect: 'pure' } } } });
  expect(await ask('status')).toMatchObject({ warnings: [] });
  expect(await ask('tools.invoke', { tool: 'gone__x' })).toMatchObject({ ok: false, result: { code: 'UNAVAILABLE' } });
  expect(await ask('status')).toMatchObject({ warnings: [expect.stringMatching(/^mcp\.servers\.gone cannot be reached: /)] });
});
