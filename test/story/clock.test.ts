// A wall clock that is set, or a machine that slept: whatever waits keeps the time it had left.
import { describe, expect, it } from 'vitest';
import type { Channel, SendOutcome } from '../../src/channels/channel.ts';
import { testGateway, type ScriptText, type TestGateway, type TestOptions } from '../harness/gateway.ts';

const hour = 3_600_000;
const config = {
  agents: { list: [{ id: 'ana', default: true }, { id: 'bo' }], defaults: { timeoutSeconds: 0 } },
  session: { dmScope: 'per-peer' as const, queue: { collectMs: 20_000 } },
  tools: { sessions: { visibility: 'all' as const }, agentToAgent: { enabled: true } },
  guests: { replyMinutes: 1 },
};
const ask = { tool: 'sessions_send', args: { sessionKey: 'agent:bo:main', message: 'work', timeoutSeconds: 20 } };
const script: ScriptText = [
  { agent: 'ana', when: 'ask', steps: [{ calls: [ask] }, { say: '{{result}}' }] },
  { agent: 'bo', steps: [{ calls: [{ tool: 'gate', args: { name: 'work' } }] }, { say: 'x' }] },
  { steps: [{ say: 're: {{input}}' }] },
];
const started = (more: TestOptions = {}) => testGateway({ config, script, stops: true, listen: true, ...more });

/** How long it takes, on a watch that nobody sets. */
async function secondsUntil(gw: TestGateway, holds: () => boolean | Promise<boolean>): Promise<number> {
  const from = gw.clock.elapsed();
  await gw.clock.until(holds);
  return (gw.clock.elapsed() - from) / 1_000;
}
const ended = async (gw: TestGateway, runId: string) => (await gw.wait(runId, 0)).state === 'ok';

/** A platform that asks for one retry, after 20 seconds. */
function busyOnce(): Channel & { got: string[] } {
  const got: string[] = [];
  return {
    name: 'loopback',
    got,
    // oxlint-disable-next-line require-await -- asynchronous by contract
    async send({ text }): Promise<SendOutcome> {
      got.push(text);
      return got.length === 1 ? { outcome: 'retry', error: 'busy', afterMs: 20_000 } : { outcome: 'sent' };
    },
  };
}

describe.each([
  ['set back by an hour', -hour],
  ['set forward by an hour', hour],
])('a wall clock that is %s', (_, jump) => {
  it('leaves a call that waits the time it had left, and one that begins then its own', async () => {
    const gw = await started();
    const first = await gw.say('ask', { from: 'ann' });
    await gw.stops.entered('work');
    await gw.clock.advance(5_000);
    gw.clock.setForward(jump);
    const second = await gw.say('ask', { from: 'bob' });
    expect(await secondsUntil(gw, () => ended(gw, first))).toBeLessThanOrEqual(16);
    expect(await ended(gw, second)).toBe(false);
    expect(await secondsUntil(gw, () => ended(gw, second))).toBeGreaterThan(2);
    expect(await gw.clock.passing(gw.wait(second))).toMatchObject({ reply: expect.stringContaining('"status":"timeout"') });
    expect(gw.warnings.join()).toContain(`by 3600 s; due times move along`);
  });

  it('leaves a message that collects the time it had left', async () => {
    const gw = await started();
    const run = await gw.say('one', { from: 'ann', mode: 'collect' });
    await gw.clock.advance(5_000);
    gw.clock.setForward(jump);
    const seconds = await secondsUntil(gw, () => ended(gw, run));
    expect(seconds).toBeGreaterThan(12);
    expect(seconds).toBeLessThanOrEqual(16);
  });

  it('leaves a delivery that is tried again the time it had left', async () => {
    const channel = busyOnce();
    const gw = await started({ channels: [channel] });
    await gw.answer('hello');
    await gw.clock.advance(5_000);
    gw.clock.setForward(jump);
    const seconds = await secondsUntil(gw, () => channel.got.length === 2);
    expect(seconds).toBeGreaterThan(12);
    expect(seconds).toBeLessThanOrEqual(16);
  });

  it('does not end the attempts of a delivery that was being sent then', async () => {
    const held = Promise.withResolvers<SendOutcome>();
    const got: string[] = [];
    const channel: Channel = {
      name: 'loopback',
      send: ({ text }) => (got.push(text) === 1 ? held.promise : Promise.resolve({ outcome: 'sent' })),
    };
    const gw = await started({ channels: [channel] });
    await gw.answer('hello');
    await gw.until(() => got.length === 1);
    gw.clock.setForward(jump);
    held.resolve({ outcome: 'retry', error: 'the network changed', afterMs: 20_000 });
    const seconds = await secondsUntil(gw, () => got.length === 2);
    expect(seconds).toBeGreaterThan(17);
    expect(seconds).toBeLessThanOrEqual(21);
    await gw.finished();
    expect(await gw.rows.deliveries({}, 'state', 'attempts')).toEqual([{ state: 'sent', attempts: 2 }]);
  });

  it('leaves a guest the time it had left for its turn', async () => {
    const gw = await started();
    const { key, token } = await gw.call('guests.join', { name: 'fable' });
    await gw.call('sessions.send', { key, message: 'Which colour?' });
    await gw.settled();
    const look = async () => (await gw.post('/tools/inbox', { waitSeconds: 0 }, { token })).json.result.status;
    expect(await look()).toBe('message');
    await gw.clock.advance(5_000);
    gw.clock.setForward(jump);
    await gw.clock.advance(40_000);
    expect(await look()).not.toBe('message');
    await gw.clock.advance(20_000);
    expect(await look()).toBe('message');
  });
});

describe('a wall clock that is set back while no gateway runs', () => {
  it('is noticed at the start, once: a call that waits keeps the time it had left', async () => {
    const gw = await started();
    const run = await gw.say('ask', { from: 'ann' });
    await gw.stops.entered('work');
    await gw.clock.advance(5_000);
    await gw.close();
    gw.clock.setForward(-hour);
    // The second start finds the clock as the first one left it.
    for (let starts = 0; starts < 2; starts++) {
      await gw.start();
      await gw.settled();
      expect(await ended(gw, run)).toBe(false);
      if (starts === 0) await gw.close();
    }
    expect(gw.warnings.filter((line) => line.includes('clock was set back'))).toHaveLength(1);
    const seconds = await secondsUntil(gw, () => ended(gw, run));
    expect(seconds).toBeGreaterThan(10);
    expect(seconds).toBeLessThanOrEqual(21);
  });
});
