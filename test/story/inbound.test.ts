// A message from a channel on its way in: where it goes when it says little about itself, and what it is told when it makes no sense.
import { expect, it } from 'vitest';
import { testGateway } from '../harness/gateway.ts';

it('a message without a peer goes to the main session of the agent that its account is bound to', async () => {
  const gw = await testGateway({
    config: {
      agents: { list: [{ id: 'main', default: true }, { id: 'ops' }] },
      session: { dmScope: 'per-peer' },
      bindings: [
        { agentId: 'main', match: { channel: 'loopback', accountId: 'ops', peer: { kind: 'direct', id: 'ana' } } },
        { agentId: 'ops', match: { channel: 'loopback', accountId: 'ops' } },
      ],
    },
  });
  const { runId, sessionKey } = await gw.receive({ origin: { channel: 'loopback', accountId: 'ops' }, text: 'the disk is full' });
  expect(sessionKey).toBe('agent:ops:main');
  expect(await gw.ended(runId)).toEqual(['ok: re: the disk is full']);
  // There is no chat to answer in, and none was recorded; where to answer can be said.
  expect(await gw.outgoing()).toEqual([]);
  expect(await gw.rows.sessions({ key: 'agent:ops:main' }, 'delivery', 'opened_by')).toEqual([
    { delivery: null, opened_by: 'loopback:unknown' },
  ]);
  const again = await gw.receive({ origin: { channel: 'loopback', accountId: 'ops' }, text: 'still full', replyTo: 'the operators' });
  await gw.wait(again.runId);
  expect(await gw.outgoing()).toEqual(['re: still full']);
});

it('a blank thread or topic is none', async () => {
  const gw = await testGateway();
  const peer = { kind: 'group' as const, id: 'g' };
  const { sessionKey, runId } = await gw.receive({ origin: { channel: 'loopback', peer, threadId: ' ', topicId: '' }, text: 'hello' });
  expect(sessionKey).toBe('agent:main:loopback:group:g');
  await gw.wait(runId);
  await gw.outgoing();
  expect(gw.sent[0]).not.toHaveProperty('thread');
});

it.each([
  ['a peer without an id', { channel: 'loopback', peer: { kind: 'direct' as const, id: ' ' } }],
  ['a blank channel', { channel: ' ' }],
  ['no origin at all', undefined],
])('a message that cannot be routed (%s) is rejected, and nothing is thrown', async (_, origin) => {
  const gw = await testGateway();
  const received = gw.receive({ origin: origin as never, text: 'hello' });
  await expect(received).rejects.toMatchObject({ code: 'INVALID_REQUEST' });
});
