// The way out, when it does not go well: attempts, what is told of them, and what an operator can do.
import { expect, it } from 'vitest';
import type { Channel, Outbound, SendOutcome } from '../../src/channels/channel.ts';
import { listen, startByHand } from './by-hand.ts';

/** A platform that answers as it is told to, or else takes everything. */
function platform(...answers: SendOutcome[]): Channel & { got: Outbound[]; answers: SendOutcome[] } {
  const got: Outbound[] = [];
  return {
    name: 'loopback',
    got,
    answers,
    // oxlint-disable-next-line require-await -- asynchronous by contract
    async send(message) {
      got.push(message);
      return answers.shift() ?? { outcome: 'sent' };
    },
  };
}

it('what was told of each attempt is told again to who comes later', async () => {
  const channel = platform(
    { outcome: 'retry', error: 'come back', afterMs: 1_000 },
    { outcome: 'retry', error: 'not yet', afterMs: 1_000 },
  );
  const hand = await startByHand({ channels: [channel] });
  const live = listen(hand.gateway, 0);
  await hand.say('ana', 'hello');
  await hand.inTime(() => live.events.some((event) => event.kind === 'delivery' && event.state === 'sent'));
  const late = listen(hand.gateway, 0);
  await hand.until(() => late.events.length === live.events.length);
  expect(late.events).toEqual(live.events);
  expect(live.events.flatMap((event) => (event.kind === 'delivery' ? [[event.state, event.error]] : []))).toEqual([
    ['pending', undefined],
    ['retrying', 'come back'],
    ['retrying', 'not yet'],
    ['sent', undefined],
  ]);
});
