// A whole gateway on the in-memory twin: bodies that are run again, plain arguments, and locks, for everything that clients start.
import { expect, it } from 'vitest';
import { purge } from '../harness/inside.ts';
import { testGateway, type ScriptText } from '../harness/gateway.ts';
import { twin } from '../harness/twin.ts';

const kitchen = 'agent:bo:loopback:group:kitchen';
const script: ScriptText = [
  { agent: 'bo', when: 'exchange with', steps: [{ say: 'Announced.' }] },
  { when: 'Reply from session', steps: [{ say: 'REPLY_SKIP' }] },
  {
    when: 'ask',
    steps: [{ calls: [{ tool: 'sessions_send', args: { sessionKey: kitchen, message: 'question' } }] }, { say: '{{result}}' }],
  },
  { when: 'find', steps: [{ calls: [{ tool: 'sessions_search', args: { query: 'pineapple' } }] }, { say: '{{result}}' }] },
  { when: 'hold', steps: [{ calls: [{ tool: 'gate', args: { name: 'hold' } }] }, { say: 'held' }] },
  { steps: [{ say: 're: {{input}}' }] },
];
const config = {
  agents: { list: [{ id: 'ana', default: true }, { id: 'bo' }] },
  bindings: [{ agentId: 'bo', match: { channel: 'loopback', peer: { kind: 'group' as const, id: 'kitchen' } } }],
  tools: { sessions: { visibility: 'all' as const }, agentToAgent: { enabled: true } },
};

it.each([1, 20_261_115])('does everything that clients ask for, with seed %i', async (seed) => {
  const gw = await testGateway({ config, script, store: twin(seed), listen: true, stops: true, search: true });
  const main = 'agent:ana:main';

  // An exchange with its wait and its announce, and what leaves on the channel.
  await gw.receive({ origin: { channel: 'loopback', peer: { kind: 'group', id: 'kitchen' } }, text: 'open?', sender: 'cook' });
  expect((await gw.answer('ask them')).reply).toContain('re: question');
  await gw.finished();
  expect(gw.sent.map(({ text }) => text)).toContain('Announced.');

  // A guest's turn.
  const guest = await gw.guest('fable');
  const { runId } = await gw.call('sessions.send', { key: 'agent:ana:guest:fable', message: 'hello', idempotencyKey: 'g' });
  const { turnId } = await guest.message();
  await guest.reply(turnId, 'so says the guest');
  expect(await gw.wait(runId)).toMatchObject({ state: 'ok', reply: 'so says the guest' });

  // What operators do to sessions.
  const key = 'agent:ana:notes';
  await gw.call('sessions.create', { key, label: 'Notes', message: 'the pineapple is ripe', idempotencyKey: 'one' });
  await gw.wait('one');
  await gw.call('sessions.patch', { key, displayName: 'Notes', thinkingLevel: 'low' });
  await gw.call('chat.inject', { sessionKey: key, message: 'by hand', idempotencyKey: 'two' });
  await gw.call('send', { sessionKey: key, channel: 'loopback', to: 'you', message: 'out', idempotencyKey: 'three' });
  await gw.token('reader', { scopes: ['operator.read'] });
  await gw.finished();
  expect(gw.sent.filter(({ text }) => text === 'out')).toHaveLength(1);

  // A lane with a queue: steered, aborted, reset.
  await gw.call('chat.send', { sessionKey: key, message: 'hold on', idempotencyKey: 'four' });
  await gw.stops.entered('hold');
  for (const id of ['five', 'six']) await gw.call('chat.send', { sessionKey: key, message: id, idempotencyKey: id });
  await gw.call('chat.abort', { sessionKey: key, runId: 'five' });
  await gw.call('sessions.reset', { key });
  gw.stops.open('hold');
  await gw.finished();
  expect(await gw.ended('four', 'five', 'six')).toEqual(['aborted', 'aborted', 'aborted']);

  // Words, and their end.
  await gw.call('chat.send', { sessionKey: main, message: 'another pineapple', idempotencyKey: 'seven' });
  await gw.wait('seven');
  await gw.until(
    async () =>
      ((await gw.call('tools.invoke', { tool: 'sessions_search', args: { query: 'another' } })).result as { count: number }).count > 0,
  );
  await gw.call('sessions.delete', { key, force: true });
  await purge(gw);
  await gw.reload({ ...config, session: { sendPolicy: { default: 'deny' } } });
  expect((await gw.call('sessions.list', {})).sessions.map((session) => session.key).toSorted()).toEqual(
    ['agent:ana:guest:fable', main, kitchen, 'agent:bo:main'].toSorted(),
  );
  expect(await gw.rows.faults()).toEqual({});
  expect(gw.warnings).toEqual([]);
});
