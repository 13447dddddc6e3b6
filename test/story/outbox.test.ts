// The way out, when it does not go well: attempts, what is told of them, and what an operator can do.
import { describe, expect, it } from 'vitest';
import type { Channel, Outbound, SendOutcome } from '../../src/channels/channel.ts';
import { beginSending } from '../../src/delivery/deliveries.ts';
import type { Tx } from '../../src/engine/feed.ts';
import { drive, writing } from '../../src/store/contract.ts';
import { listen, startByHand, type ByHand } from './by-hand.ts';

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

/** Exactly one head for each destination with something open, and it is the oldest unless that was sent again. */
async function headsHold(hand: ByHand): Promise<void> {
  const wrong = await hand.rows(
    `SELECT dest_key, sum(head) AS heads FROM deliveries WHERE state IN ('pending', 'sending') GROUP BY dest_key HAVING heads != 1
     UNION ALL SELECT dest_key, head FROM deliveries WHERE state NOT IN ('pending', 'sending') AND head = 1`,
  );
  expect(wrong).toEqual([]);
}

const settledWith = (hand: ByHand) =>
  hand.rows<{ state: string; text: string; error: string | null }>('SELECT state, text, error FROM deliveries ORDER BY pk');

const allSettled = (hand: ByHand) => async () =>
  (await hand.rows(`SELECT 1 FROM runs WHERE ended_at IS NULL UNION ALL SELECT 1 FROM deliveries WHERE state IN ('pending', 'sending')`))
    .length === 0;

describe('many for one destination', () => {
  const fill = (hand: ByHand, count: number, headDueAt: number) =>
    hand.sql(
      `WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ${count})
       INSERT INTO deliveries (id, session_pk, cause, cause_pk, part, dest_key, channel, recipient, taint, text, due_at, first_at, head)
       SELECT 'm' || n, session_pk, 'test', 1, n, dest_key, channel, recipient, taint, 'm' || n, iif(n = 1, ${headDueAt}, 0), 0, n = 1
       FROM n, (SELECT * FROM deliveries LIMIT 1)`,
    );

  it('are sent in their order', async () => {
    const channel = platform();
    const hand = await startByHand({ channels: [channel] });
    await hand.say('ana', 'first');
    await hand.until(allSettled(hand));
    await fill(hand, 300, 0);
    await hand.say('ana', 'last');
    await hand.inTime(allSettled(hand));
    const numbers = Array.from({ length: 300 }, (_, index) => `m${index + 1}`);
    expect(channel.got.map(({ text }) => text)).toEqual(['re: first', ...numbers, 're: last']);
  });

  it('cost nothing to look at while they wait: an index leads to what is due', async () => {
    const hand = await startByHand();
    const asked: string[] = [];
    drive(beginSending(hand.gateway.world).body(writing([]), { now: 0, limit: 16 }), ({ sql }) => (asked.push(sql), []));
    expect(asked).toHaveLength(1);
    const explained = { name: 'plan', body: (t: Tx) => t.all<{ detail: string }>(`EXPLAIN QUERY PLAN ${asked[0]!}`, 0, 16) };
    const plan = await hand.gateway.store.write(explained, {});
    expect(plan.map(({ detail }) => detail)).toEqual([
      expect.stringMatching(/^SEARCH deliveries USING INDEX deliveries_\w+ \(.*due_at<\?\)$/),
    ]);
  });

  it('behind one that waits are not looked at again and again', async () => {
    const channel = platform({ outcome: 'retry', error: 'later', afterMs: 200_000 });
    const hand = await startByHand({ channels: [channel] });
    await hand.say('ana', 'one');
    await hand.until(async () => (await settledWith(hand)).some(({ error }) => error === 'later'));
    await hand.gateway.engine.wait(await hand.say('ana', 'two'), 3_600_000);
    await hand.say('bob', 'not held up');
    await hand.until(() => channel.got.length === 2);
    for (let looks = 0; looks < 50; looks++) await hand.rows('SELECT 1');
    expect(hand.clock.asleep().nextMs).toBeGreaterThanOrEqual(1_000);
    await headsHold(hand);
    await hand.inTime(allSettled(hand));
    expect(channel.got.map(({ text }) => text)).toEqual(['re: one', 're: not held up', 're: one', 're: two']);
  });

  it('do not wait for one of a session that was deleted', async () => {
    const channel = platform({ outcome: 'retry', error: 'later', afterMs: 200_000 });
    const hand = await startByHand({ channels: [channel] });
    await hand.say('ana', 'one');
    await hand.until(async () => (await settledWith(hand)).some(({ error }) => error === 'later'));
    await hand.gateway.engine.closeSession('agent:main:direct:ana', 'deleted', true);
    await hand.gateway.engine.wait(await hand.say('ana', 'two'), 3_600_000);
    await hand.inTime(allSettled(hand));
    expect(channel.got.map(({ text }) => text)).toEqual(['re: one', 're: two']);
    await headsHold(hand);
  });
});

describe('the text of a delivery', () => {
  it('is gone once it is settled, and kept while nobody knows what came of it', async () => {
    const channel = platform({ outcome: 'sent' }, { outcome: 'refused', error: 'no' }, { outcome: 'unknown', error: 'silence' });
    const hand = await startByHand({ channels: [channel] });
    for (const text of ['one', 'two', 'three']) {
      await hand.say('ana', text);
      await hand.until(allSettled(hand));
    }
    expect(await settledWith(hand)).toEqual([
      { state: 'sent', text: '', error: null },
      { state: 'failed', text: '', error: 'no' },
      { state: 'unknown', text: 're: three', error: 'silence' },
    ]);
  });
});

describe('what came of an attempt', () => {
  it('is written as soon as it can be, as it was, and the destination goes on', async () => {
    const channel = platform();
    const hand = await startByHand({ channels: [channel] });
    await hand.sql(
      `CREATE TRIGGER full BEFORE UPDATE OF platform_id ON deliveries BEGIN SELECT RAISE(ABORT, 'the disk is full, say'); END`,
    );
    await hand.say('ana', 'one');
    await hand.inTime(() => hand.warned.filter((warning) => warning.includes('could not be settled yet')).length >= 3);
    await hand.say('ana', 'two');
    expect((await settledWith(hand)).map(({ state }) => state)).toContain('sending');
    await hand.sql('DROP TRIGGER full');
    await hand.inTime(allSettled(hand));
    expect((await settledWith(hand)).map(({ state }) => state)).toEqual(['sent', 'sent']);
    expect(channel.got.map(({ text }) => text)).toEqual(['re: one', 're: two']);
  });

  it('and cannot be written before a stop is unknown at the next start', async () => {
    const hand = await startByHand({ channels: [platform()] });
    await hand.sql(`CREATE TRIGGER full BEFORE UPDATE OF platform_id ON deliveries BEGIN SELECT RAISE(ABORT, 'still full'); END`);
    await hand.say('ana', 'one');
    await hand.inTime(() => hand.warned.some((warning) => warning.includes('could not be settled yet')));
    await hand.close();
    const again = await startByHand({ stateDir: hand.stateDir });
    expect(await settledWith(again)).toMatchObject([{ state: 'unknown', text: 're: one' }]);
  });
});

describe('an operator', () => {
  async function unknown(...more: SendOutcome[]) {
    const channel = platform({ outcome: 'unknown', error: 'silence' }, ...more);
    const hand = await startByHand({ channels: [channel] });
    await hand.say('ana', 'one');
    await hand.until(allSettled(hand));
    await hand.until(async () => (await settledWith(hand)).length === 1);
    const { deliveries } = await hand.gateway.outbox.list({ state: 'unknown' });
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
    await hand.say('ana', 'two');
    await hand.until(async () => (await settledWith(hand)).some(({ error }) => error === 'later'));
    await hand.gateway.engine.wait(await hand.say('ana', 'three'), 3_600_000);
    expect(await hand.gateway.outbox.resend(id)).toMatchObject({ deliveryId: id, state: 'pending', preview: 're: one' });
    await headsHold(hand);
    await hand.inTime(allSettled(hand));
    expect(channel.got.map(({ text }) => text)).toEqual(['re: one', 're: two', 're: two', 're: one', 're: three']);
    expect(channel.got[3]!.id).toBe(channel.got[0]!.id);
    expect((await settledWith(hand)).map(({ state, text }) => state + text)).toEqual(['sent', 'sent', 'sent']);
    await headsHold(hand);
  });

  it('that sends again what then fails for ten minutes gives it that time anew', async () => {
    const { hand, channel, id } = await unknown();
    hand.clock.time += 86_400_000;
    channel.answers.push({ outcome: 'retry', error: 'later' });
    await hand.gateway.outbox.resend(id);
    await hand.inTime(allSettled(hand));
    expect(await settledWith(hand)).toMatchObject([{ state: 'sent' }]);
  });

  it.each(['sent', 'failed'] as const)('can settle it as %s; it is told, and not sent again', async (as) => {
    const { hand, channel, id } = await unknown();
    const live = listen(hand.gateway);
    expect(await hand.gateway.outbox.settle(id, as)).toMatchObject({ deliveryId: id, state: as });
    expect(await settledWith(hand)).toMatchObject([{ state: as, text: '' }]);
    await hand.until(() => live.events.length > 0);
    expect(live.events).toMatchObject([{ kind: 'delivery', deliveryId: id, state: as }]);
    for (const word of [hand.gateway.outbox.settle(id, 'sent'), hand.gateway.outbox.resend(id)])
      await expect(word).rejects.toMatchObject({ code: 'DELIVERY_SETTLED', message: expect.stringContaining(`is ${as}`) as string });
    expect(channel.got).toHaveLength(1);
  });

  it('is told of a delivery that does not exist', async () => {
    const { hand } = await unknown();
    await expect(hand.gateway.outbox.resend('nobody')).rejects.toMatchObject({ code: 'DELIVERY_NOT_FOUND' });
    await expect(hand.gateway.outbox.settle('nobody', 'sent')).rejects.toMatchObject({ code: 'DELIVERY_NOT_FOUND' });
  });

  it('pages through a list of any length, each once, newest first', async () => {
    const { hand } = await unknown();
    await hand.sql(
      `WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 250)
       INSERT INTO deliveries (id, session_pk, cause, cause_pk, part, dest_key, channel, recipient, taint, text, state, due_at, first_at)
       SELECT 'u' || n, session_pk, 'test', 1, n, dest_key, channel, recipient, taint, text, 'unknown', 0, 0 FROM n, (SELECT * FROM deliveries LIMIT 1)`,
    );
    const seen: string[] = [];
    let before: number | undefined;
    do {
      const page = await hand.gateway.outbox.list({ state: 'unknown', limit: 1_000, ...(before === undefined ? {} : { before }) });
      expect(page.deliveries.length).toBeLessThanOrEqual(100);
      seen.push(...page.deliveries.map(({ deliveryId }) => deliveryId));
      before = page.next;
    } while (before !== undefined);
    expect(seen.slice(0, -1)).toEqual(Array.from({ length: 250 }, (_, index) => `u${250 - index}`));
    expect(await hand.gateway.outbox.list({ state: 'failed' })).toEqual({ deliveries: [] });
  });
});
