// With `session.scope: "global"` all direct chats are the default agent's main session, and the word `global` never shows as a key.
import { expect, it, onTestFinished } from 'vitest';
import { createLog } from '../../src/observe/log.ts';
import { testGateway } from '../harness/gateway.ts';
import { started } from '../harness/terminal.ts';
import { mockProvider } from '../mock/provider.ts';

/** What may be said: the setting itself, by name. */
const allowed = /"scope":"global"|session\.scope is \\?"global\\?"|session\.scope/g;

it('no output shows the key "global": models, tools, operators, events, HTTP, the command line and the log', async () => {
  const provider = await mockProvider((asked) => {
    const last = JSON.stringify(asked.body.messages?.at(-1));
    if (last.includes('ask ops'))
      return { calls: [{ name: 'sessions_send', args: { sessionKey: 'agent:ops:main', message: 'are you up?' } }] };
    if (last.includes('look'))
      return {
        calls: [
          { name: 'sessions_search', args: { query: 'hello' } },
          { name: 'sessions_history', args: { sessionKey: 'mian' } },
        ],
      };
    return { text: 'REPLY_SKIP' };
  });
  onTestFinished(() => provider.close());
  const log: string[] = [];
  const stage = await testGateway({
    config: {
      session: { scope: 'global' },
      tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } },
      models: { providers: { mock: { type: 'openai-compatible', baseUrl: provider.url } } },
      agents: { defaults: { model: 'mock/m' }, list: [{ id: 'main' }, { id: 'ops' }] },
    },
    listen: true,
    search: true,
    log: createLog({ level: 'debug', terminal: false, write: (line) => void log.push(line) }),
  });
  const stream = await stage.sse('/sessions/agent%3Amain%3Amain/history?follow=1');
  const events = stage.hear();
  const accepted = await stage.receive({ origin: { channel: 'loopback', peer: { kind: 'direct', id: 'ana' } }, text: 'hello' });
  await stage.wait(accepted.runId);
  await stage.answer('ask ops', { from: 'bo' });
  await stage.finished();
  const looked = await stage.answer('look', { from: 'cy' });
  await stage.finished();

  const key = 'agent:main:main';
  const token = await stage.token('main', { sessionKey: key });
  const ops = await stage.token('ops', { sessionKey: 'agent:ops:main' });
  const outputs: unknown[] = [
    accepted,
    looked,
    provider.asked.map(({ text }) => text),
    await stage.transcript(key),
    await stage.call('sessions.list', { includeLastMessage: true }),
    await stage.call('sessions.describe', { key: 'main' }),
    await stage.call('sessions.resolve', { key: 'main' }),
    await stage.call('sessions.preview', { keys: ['main'] }),
    await stage.call('chat.history', { sessionKey: 'main' }),
    await stage.call('chat.history', { sessionKey: 'agent:ops:main' }),
    await stage.call('chat.send', { sessionKey: 'main', message: 'hello', idempotencyKey: 'k' }),
    await stage.call('sessions.messages.subscribe', { key: 'main' }),
    await stage.call('runs.list', {}),
    await stage.call('tokens.list'),
    await stage.call('agents.list'),
    await stage.call('status'),
    await stage.call('explain.key', { key: 'main' }),
    await stage.call('explain.route', { channel: 'loopback', peer: { kind: 'direct', id: 'ana' } }),
    await stage.call('explain.access', { caller: { key: 'agent:ops:main' }, target: { key } }),
    await stage.call('sessions.create', { key: 'mian' }).catch((thrown: unknown) => String(thrown)),
    await stage.call('sessions.send', { key: 'mainn', message: 'x' }).catch((thrown: unknown) => String(thrown)),
    (await stage.http('/sessions')).text,
    (await stage.http(`/sessions/${encodeURIComponent(key)}/history`)).text,
    events.events,
  ];
  for (const [tool, args] of [
    ['sessions_list', { messageLimit: 5 }],
    ['sessions_history', { sessionKey: key }],
    ['sessions_history', { sessionKey: 'agent:main:mian' }],
    ['session_status', { sessionKey: key }],
    ['sessions_search', { query: 'hello' }],
    ['sessions_send', { sessionKey: 'agent:main:maim', message: 'x' }],
  ] as const)
    for (const as of [token, ops]) outputs.push(await stage.call('tools.invoke', { tool, args }, as));
  const { tools } = await (await stage.mcp(token)).client.listTools();
  outputs.push(tools);
  for (const argv of [['sessions'], ['history', 'main'], ['runs'], ['status'], ['agents'], ['explain', 'key', 'main'], ['export']])
    outputs.push((await started([...argv, '--state-dir', stage.stateDir], {}).finished).stdout);
  await stage.finished();
  outputs.push(await stream.until((heard) => JSON.stringify(heard).includes('look')));
  const found = log.join('\n') + JSON.stringify(outputs);
  expect(found).toContain('agent:main:main');
  expect(found.replaceAll(allowed, '').match(/.{0,80}\bglobal\b.{0,80}/g)).toBeNull();
});
