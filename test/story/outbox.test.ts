// The way out, when it does not go well: attempts, what is told of them, and what an operator can do.
import { describe, expect, it } from 'vitest';
import type { Channel, Outbound, SendOutcome } from '../../src/channels/channel.ts';
import { testGateway, type TestGateway, type TestOptions } from '../harness/gateway.ts';
import { planOfDue } from '../harness/inside.ts';

const open = (options: TestOptions = {}) => testGateway({ config: { session: { dmScope: 'per-peer' } }, ...options });

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
  const hand = await open({ channels: [channel] });
  const live = hand.hear(0);
  await hand.say('hello', { from: 'ana' });
  await hand.clock.until(() => live.events.some((event) => event.kind === 'delivery' && event.state === 'sent'));
  const late = hand.hear(0);
  await hand.until(() => late.events.length === live.events.length);
  expect(late.events).toEqual(live.events);
  expect(live.events.flatMap((event) => (event.kind === 'delivery' ? [[event.state, event.error]] : []))).toEqual([
    ['pending', undefined],
    ['retrying', 'come back'],
    ['retrying', 'not yet'],
    ['sent', undefined],
  ]);
});

/** Exactly one head for each destination with something open, and it is the oldest unless that was sent again. */
async function headsHold(hand: TestGateway): Promise<void> {
  expect(await hand.rows.faultsOfHeads()).toEqual([]);
}

const settledWith = (hand: TestGateway) => hand.rows.deliveries({}, 'state', 'text', 'error');

const allSettled = (hand: TestGateway) => async () => (await hand.rows.open()) === 0;

describe('many for one destination', () => {
  it('are sent in their order', async () => {
    const channel = platform();
    const hand = await open({ channels: [channel] });
    await hand.say('first', { from: 'ana' });
    await hand.until(allSettled(hand));
    await hand.rows.addDeliveries('m', 300, 'pending');
    await hand.say('last', { from: 'ana' });
    await hand.clock.until(allSettled(hand));
    const numbers = Array.from({ length: 300 }, (_, index) => `m${index + 1}`);
    expect(channel.got.map(({ text }) => text)).toEqual(['re: first', ...numbers, 're: last']);
  });

  it('cost nothing to look at while they wait: an index leads to what is due', async () => {
    const hand = await open();
    expect(await planOfDue(hand.inside)).toEqual([expect.stringMatching(/^SEARCH deliveries USING INDEX deliveries_\w+ \(.*due_at<\?\)$/)]);
  });

  it('behind one that waits are not looked at again and again', async () => {
    const channel = platform({ outcome: 'retry', error: 'later', afterMs: 200_000 });
    const hand = await open({ channels: [channel] });
    await hand.say('one', { from: 'ana' });
    await hand.until(async () => (await settledWith(hand)).some(({ error }) => error === 'later'));
    await hand.wait(await hand.say('two', { from: 'ana' }));
    await hand.say('not held up', { from: 'bob' });
    await hand.until(() => channel.got.length === 2);
    await hand.settled();
    expect(hand.clock.nextMs).toBeGreaterThanOrEqual(1_000);
    await headsHold(hand);
    await hand.clock.until(allSettled(hand));
    expect(channel.got.map(({ text }) => text)).toEqual(['re: one', 're: not held up', 're: one', 're: two']);
  });

  it('do not wait for one of a session that was deleted', async () => {
    const channel = platform({ outcome: 'retry', error: 'later', afterMs: 200_000 });
    const hand = await open({ channels: [channel] });
    await hand.say('one', { from: 'ana' });
    await hand.until(async () => (await settledWith(hand)).some(({ error }) => error === 'later'));
    await hand.closeSession('agent:main:direct:ana', 'deleted', true);
    await hand.wait(await hand.say('two', { from: 'ana' }));
    await hand.clock.until(allSettled(hand));
    expect(channel.got.map(({ text }) => text)).toEqual(['re: one', 're: two']);
    await headsHold(hand);
  });
});

describe('the text of a delivery', () => {
  it('is gone once it arrived, and kept while it can be sent again', async () => {
    const channel = platform({ outcome: 'sent' }, { outcome: 'refused', error: 'no' }, { outcome: 'unknown', error: 'silence' });
    const hand = await open({ channels: [channel] });
    for (const text of ['one', 'two', 'three']) {
      await hand.say(text, { from: 'ana' });
      await hand.until(allSettled(hand));
    }
    expect(await settledWith(hand)).toEqual([
      { state: 'sent', text: '', error: null },
      { state: 'failed', text: 're: two', error: 'no' },
      { state: 'unknown', text: 're: three', error: 'silence' },
    ]);
  });
});

describe('what came of an attempt', () => {
  it('is written as soon as it can be, as it was, and the destination goes on', async () => {
    const channel = platform();
    const hand = await open({ channels: [channel] });
    await hand.rows.failToSettle(true);
    await hand.say('one', { from: 'ana' });
    await hand.clock.until(() => hand.warnings.length >= 3);
    await hand.say('two', { from: 'ana' });
    expect((await settledWith(hand)).map(({ state }) => state)).toContain('sending');
    await hand.rows.failToSettle(false);
    await hand.clock.until(allSettled(hand));
    expect((await settledWith(hand)).map(({ state }) => state)).toEqual(['sent', 'sent']);
    expect(channel.got.map(({ text }) => text)).toEqual(['re: one', 're: two']);
  });

  it('and cannot be written before a stop is unknown at the next start', async () => {
    const hand = await open({ channels: [platform()] });
    await hand.rows.failToSettle(true);
    await hand.say('one', { from: 'ana' });
    await hand.clock.until(() => hand.warnings.length > 0);
    const again = await hand.restart();
    expect(await settledWith(again)).toMatchObject([{ state: 'unknown', text: 're: one' }]);
  });
});

describe('an operator', () => {
  async function unknown(...more: SendOutcome[]) {
    const channel = platform({ outcome: 'unknown', error: 'silence' }, ...more);
    const hand = await open({ channels: [channel] });
    await hand.say('one', { from: 'ana' });
    await hand.until(allSettled(hand));
    await hand.until(async () => (await settledWith(hand)).length === 1);
    const { deliveries } = await hand.inside.deliveries.list({ states: ['unknown'] });
    return { hand, channel, deliveries, id: deliveries[0]!.deliveryId };
  }

  it('sees what nobody knows the outcome of', async () => {
    const { deliveries } = await unknown();
    expect(deliveries).toEqual([
      {
        deliveryId: expect.any(String) as string,
        sessionKey: 'agent:main:direct:ana',
        sessionId: expect.any(String) as string,
        channel: 'loopback',
        account: 'default',
        recipient: 'ana',
        state: 'unknown',
        attempts: 1,
        error: 'silence',
        since: 1_800_000_000_000,
        preview: 're: one',
      },
    ]);
  });

  it('can have it sent again, under the same id, after what is open for the destination', async () => {
    const { hand, channel, id } = await unknown({ outcome: 'retry', error: 'later', afterMs: 5_000 });
    await hand.say('two', { from: 'ana' });
    await hand.until(async () => (await settledWith(hand)).some(({ error }) => error === 'later'));
    await hand.wait(await hand.say('three', { from: 'ana' }));
    expect(await hand.inside.deliveries.resend(id)).toMatchObject({
      changed: true,
      delivery: { deliveryId: id, state: 'pending', preview: 're: one' },
    });
    await headsHold(hand);
    await hand.clock.until(allSettled(hand));
    expect(channel.got.map(({ text }) => text)).toEqual(['re: one', 're: two', 're: two', 're: one', 're: three']);
    expect(channel.got[3]!.id).toBe(channel.got[0]!.id);
    expect((await settledWith(hand)).map(({ state, text }) => state + text)).toEqual(['sent', 'sent', 'sent']);
    await headsHold(hand);
  });

  it('that sends again what then fails for ten minutes gives it that time anew', async () => {
    const { hand, channel, id } = await unknown();
    hand.clock.jump(86_400_000);
    channel.answers.push({ outcome: 'retry', error: 'later' });
    await hand.inside.deliveries.resend(id);
    await hand.clock.until(allSettled(hand));
    expect(await settledWith(hand)).toMatchObject([{ state: 'sent' }]);
  });

  it.each(['sent', 'failed'] as const)('can settle it as %s; it is told, and not sent again', async (as) => {
    const { hand, channel, id } = await unknown();
    const live = hand.hear();
    expect(await hand.inside.deliveries.settle(id, as)).toMatchObject({ changed: true, delivery: { deliveryId: id, state: as } });
    expect(await settledWith(hand)).toMatchObject([{ state: as, text: '' }]);
    await hand.until(() => live.events.length > 0);
    expect(live.events).toMatchObject([{ kind: 'delivery', deliveryId: id, state: as }]);
    expect(await hand.inside.deliveries.settle(id, as)).toMatchObject({ changed: false, delivery: { state: as } });
    for (const word of [hand.inside.deliveries.settle(id, as === 'sent' ? 'failed' : 'sent'), hand.inside.deliveries.resend(id)])
      await expect(word).rejects.toMatchObject({ code: 'DELIVERY_SETTLED' });
    expect(channel.got).toHaveLength(1);
  });

  it('is told of a delivery that does not exist', async () => {
    const { hand } = await unknown();
    await expect(hand.inside.deliveries.resend('nobody')).rejects.toMatchObject({ code: 'DELIVERY_NOT_FOUND' });
    await expect(hand.inside.deliveries.settle('nobody', 'sent')).rejects.toMatchObject({ code: 'DELIVERY_NOT_FOUND' });
  });

  it('pages through a list of any length, each once, newest first', async () => {
    const { hand } = await unknown();
    await hand.rows.addDeliveries('u', 250, 'unknown');
    const seen: string[] = [];
    let before: number | undefined;
    do {
      const page = await hand.inside.deliveries.list({ states: ['unknown'], before });
      expect(page.deliveries.length).toBeLessThanOrEqual(100);
      seen.push(...page.deliveries.map(({ deliveryId }) => deliveryId));
      before = page.next;
    } while (before !== undefined);
    expect(seen.slice(0, -1)).toEqual(Array.from({ length: 250 }, (_, index) => `u${250 - index}`));
    expect(await hand.inside.deliveries.list({ states: ['failed'] })).toEqual({ deliveries: [], next: undefined });
  });
});
