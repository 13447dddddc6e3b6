// An answer that a rule on output blocks: the user reads one sentence instead, and whoever reads the transcript sees why nothing came.
import { expect, it } from 'vitest';
import type { SendOutcome } from '../../src/channels/channel.ts';
import type { PolicyRule } from '../../src/protocol/settings.ts';
import { withheldAnswer } from '../../src/wording.ts';
import { testGateway, type ConfigText } from '../harness/gateway.ts';

const main = 'agent:main:main';
const config = (match: PolicyRule['match'], more: ConfigText = {}): ConfigText => ({
  ...more,
  policy: { rules: [{ id: 'no-pins', hook: 'PRE_OUTPUT', match, effect: 'BLOCK', message: 'it has a pin in it' }] },
});

it('is told to the user on the channel, in the history and in events, without the reason', async () => {
  const gw = await testGateway({ config: config({ text: '4711' }), script: [{ steps: [{ say: 'pin {{input}}' }] }], listen: true });
  const heard = gw.hear();
  await gw.answer('4711');
  await gw.finished();
  expect(gw.sent.map(({ text }) => text)).toEqual([withheldAnswer]);
  expect(withheldAnswer).not.toMatch(/pin|4711/);
  const { messages } = (await gw.call('chat.history', { sessionKey: main })) as { messages: object[] };
  expect(messages.at(-1)).toMatchObject({ role: 'assistant', withheld: true });
  const replies = heard.events.flatMap((event) => (event.kind === 'entry' && event.message.role === 'assistant' ? [event.message] : []));
  expect(replies).toMatchObject([{ withheld: true }]);
  // An answer that passes has no mark, and comes after the sentence.
  await gw.answer('1234');
  await gw.finished();
  expect(gw.sent.map(({ text }) => text)).toEqual([withheldAnswer, 'pin 1234']);
  expect(((await gw.call('chat.history', { sessionKey: main })) as { messages: object[] }).messages.at(-1)).not.toHaveProperty('withheld');
});

it.each<[string, ConfigText]>([
  ['a rule that blocks everything on the channel', config({ channel: 'loopback' })],
  ['the send policy', config({ text: '4711' }, { session: { sendPolicy: { default: 'deny' } } })],
  ['levels', config({ text: '4711' }, { classification: { channels: { loopback: 'PUBLIC' } } })],
])('is not told where %s must keep silent', async (what, settings) => {
  const gw = await testGateway({ config: settings, script: [{ steps: [{ say: 'pin {{input}}' }] }] });
  if (what === 'levels') {
    const destination = { channel: 'loopback', to: 'you' };
    await gw.accept('secret', { taint: 3, deliver: true, destination, text: '4711' });
    await gw.wait('secret');
  } else await gw.answer('4711');
  await gw.finished();
  expect(gw.sent).toEqual([]);
  expect(await gw.rows.deliveries()).toMatchObject([{ state: 'dead' }]);
});

it('is told once when the rule comes while the answer waits for its next attempt', async () => {
  const tries: string[] = [];
  const send = async ({ text }: { text: string }): Promise<SendOutcome> => {
    tries.push(text);
    return tries.length === 1 ? { outcome: 'retry', error: 'busy', afterMs: 10_000 } : { outcome: 'sent' };
  };
  const long = `${'word '.repeat(1_000)}4711`;
  const gw = await testGateway({ config: {}, script: [{ steps: [{ say: long }] }], channels: [{ name: 'loopback', send }] });
  await gw.answer('hello');
  await gw.settled();
  expect(tries).toHaveLength(1);
  await gw.reload(config({ text: 'word|4711' }));
  await gw.clock.advance(11_000);
  await gw.finished();
  expect(tries.slice(1)).toEqual([withheldAnswer]);
  expect((await gw.rows.deliveries()).map(({ state }) => state)).toEqual(['dead', 'dead', 'sent']);
});
