// What a guest and others are answered over MCP, compared with corpus/mcp.txt.
import { expect, it } from 'vitest';
import { adminToken, opened } from './stage.ts';

it('the corpus of MCP', async () => {
  const all = await opened();
  const { corpus, url, call, ended } = all;
  const { token } = await call('guests.join', { name: 'fable', see: 'all' });
  const { token: bound } = await call('tokens.create', { name: 'bound', sessionKey: 'main' });
  let id = 0;
  const ask = async (who: string, method: string, params?: object, more: { token?: string; headers?: Record<string, string> } = {}) => {
    const secret = more.token ?? token;
    const response = await fetch(`${url}/mcp`, {
      method: 'POST',
      headers: {
        'content-type': 'application/json',
        accept: 'application/json, text/event-stream',
        ...(secret === '' ? {} : { authorization: `Bearer ${secret}` }),
        ...more.headers,
      },
      body: JSON.stringify({ jsonrpc: '2.0', id: ++id, method, ...(params ? { params } : {}) }),
    });
    const text = await response.text();
    const type = response.headers.get('content-type') ?? '';
    const parts = type.startsWith('text/event-stream') ? [...text.matchAll(/^data: (\{.*)$/gm)].map((found) => found[1]!) : [text];
    const answers = parts.filter((part) => part !== '').map((part) => JSON.parse(part) as { result?: any }); // oxlint-disable-line typescript/no-explicit-any
    corpus.line(`${who} ${method}${params ? ` ${corpus.json(params)}` : ''}`, `${response.status} ${type}`, ...answers);
    return answers.at(-1)?.result;
  };
  const version = { 'mcp-protocol-version': '2025-11-25' };
  const tool = (name: string, args: object, meta?: object) =>
    ask('guest', 'tools/call', { name, arguments: args, ...(meta ? { _meta: meta } : {}) }, { headers: version });
  corpus.heading('who is let in');
  await ask('nobody', 'ping', undefined, { token: '' });
  await ask('wrong', 'ping', undefined, { token: 'wrong' });
  await ask('admin', 'ping', undefined, { token: adminToken });
  await ask('guest', 'ping', undefined, { headers: version });
  corpus.heading('what there is');
  const about = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'corpus', version: '1' } };
  await ask('guest', 'initialize', about);
  await ask('guest', 'tools/list', {}, { headers: version });
  await ask('bound', 'tools/list', {}, { token: bound, headers: version });
  await ask('guest', 'resources/list', {}, { headers: version });
  await ask('guest', 'no/such/method', {}, { headers: version });
  corpus.heading('a turn of a guest');
  await tool('inbox', { waitSeconds: 0 });
  corpus.give('m1', 'm2');
  await call('chat.send', { sessionKey: 'agent:main:guest:fable', message: 'Which colour?', idempotencyKey: 'm1' });
  await call('chat.send', { sessionKey: 'agent:main:guest:fable', message: 'Which shape?', idempotencyKey: 'm2' });
  const { structuredContent: first } = await tool('inbox', {});
  await tool('inbox', { waitSeconds: 0 });
  const { structuredContent: again } = await tool('inbox', { again: true });
  await tool('reply', { turnId: first.turnId, text: 'Red.' });
  await tool('reply', { turnId: again.turnId, text: 'Blue.' });
  await tool('reply', { turnId: again.turnId, text: 'Blue.' });
  await tool('reply', { turnId: 'nonsense', text: 'x' });
  await ended('m1');
  const { structuredContent: second } = await tool('inbox', {});
  await call('sessions.abort', { key: 'agent:main:guest:fable' });
  await tool('inbox', { waitSeconds: 0 });
  await tool('reply', { turnId: second.turnId, text: 'Late.' });
  corpus.heading('the session tools');
  await tool('session_status', {});
  await tool('agents_list', {});
  await tool('sessions_list', { limit: 2 });
  await tool('sessions_history', { sessionKey: 'agent:main:guest:fable' });
  await tool(
    'sessions_send',
    { sessionKey: 'agent:research:main', message: 'Which one?', timeoutSeconds: 30 },
    { 'interlane/idempotencyKey': 'x1' },
  );
  await tool(
    'sessions_send',
    { sessionKey: 'agent:research:main', message: 'Which one?', timeoutSeconds: 30 },
    { 'interlane/idempotencyKey': 'x1' },
  );
  await tool('sessions_send', { sessionKey: 'nowhere', message: 'x' });
  await tool('sessions_list', { limit: 'x' });
  await tool('no_such_tool', {});
  expect(corpus.lines).toEqual(corpus.recorded('mcp.txt'));
});
