// What settings say about time: how long a turn that collects waits for more, and how long a run may work.
import { describe, expect, it } from 'vitest';
import { testGateway as open } from '../harness/gateway.ts';

const config = (more: { collectMs?: number; timeoutSeconds?: number }) => ({
  session: { dmScope: 'per-peer' as const, queue: { collectMs: more.collectMs ?? 0 } },
  agents: { list: [{ id: 'ana', default: true }, { id: 'bo' }], defaults: { timeoutSeconds: more.timeoutSeconds ?? 3_600 } },
  tools: { sessions: { visibility: 'all' as const }, agentToAgent: { enabled: true } },
});

describe('a turn that collects', () => {
  it('waits for more as long as the setting says, and then takes in all that came', async () => {
    const hand = await open({ config: config({ collectMs: 500 }), script: [{ steps: [{ say: 'heard' }] }] });
    const first = await hand.say('one', { from: 'you', mode: 'collect' });
    await hand.clock.advance(300);
    const second = await hand.say('two', { from: 'you', mode: 'collect' });
    await hand.clock.advance(199);
    await hand.settled();
    expect(await hand.wait(first, 0)).toMatchObject({ state: 'queued' });
    await hand.clock.until(async () => (await hand.wait(first, 0)).state === 'ok');
    expect(await hand.wait(second, 0)).toMatchObject({ state: 'ok', reply: 'heard' });
    expect(await hand.rows.entries({}, 'role', 'text')).toEqual([
      { role: 'user', text: 'one' },
      { role: 'user', text: 'two' },
      { role: 'assistant', text: 'heard' },
    ]);
  });

  it('does not wait without the setting, and other modes never do', async () => {
    for (const [collectMs, mode] of [
      [0, 'collect'],
      [500, 'followup'],
      [500, 'steer'],
    ] as const) {
      const hand = await open({ config: config({ collectMs }) });
      const run = await hand.say('one', { from: 'you', mode });
      expect(await hand.wait(run)).toMatchObject({ state: 'ok' });
    }
  });

  it('still waits after a restart', async () => {
    const hand = await open({ config: config({ collectMs: 60_000 }) });
    const until = hand.clock.now() + 60_000;
    const run = await hand.say('one', { from: 'you', mode: 'collect' });
    const again = await hand.restart();
    await again.settled();
    expect(await again.wait(run, 0)).toMatchObject({ state: 'queued' });
    await again.clock.until(async () => (await again.wait(run, 0)).state === 'ok');
    const [started] = await again.rows.runs();
    expect(started!.started_at).toBeGreaterThanOrEqual(until);
  });
});

describe('a run that works longer than it may', () => {
  it('ends as timeout, and with it what it asked of others has its own limit', async () => {
    const script = [
      { agent: 'bo', steps: [{ say: 'never', sleepMs: 100_000_000 }] },
      {
        agent: 'ana',
        when: 'ask',
        steps: [
          { calls: [{ tool: 'sessions_send', args: { sessionKey: 'agent:bo:main', message: 'hello', timeoutSeconds: 600 } }] },
          { say: '{{result}}' },
        ],
      },
      { agent: 'ana', steps: [{ say: 'never', sleepMs: 100_000_000 }] },
    ];
    const hand = await open({ config: config({ timeoutSeconds: 60 }), script });
    const slow = await hand.say('think', { from: 'slow' });
    const asks = await hand.say('ask', { from: 'asks' });
    await hand.until(async () => (await hand.wait(asks, 0)).state === 'waiting');
    await hand.until(async () => (await hand.rows.runs({ state: 'running' })).length === 2);
    await hand.clock.advance(59_999);
    await hand.settled();
    expect(await hand.wait(slow, 0)).toMatchObject({ state: 'running' });
    await hand.clock.until(async () => (await hand.wait(slow, 0)).state !== 'running');
    expect(await hand.wait(slow, 0)).toMatchObject({ state: 'timeout', errorCode: 'TIMEOUT' });
    // The one that waited has not worked meanwhile, and hears that the other was stopped.
    await hand.until(async () => (await hand.wait(asks, 0)).state === 'ok');
    expect(JSON.parse((await hand.wait(asks, 0)).reply!)).toMatchObject({ status: 'error' });
  });

  it('has no limit where the setting is 0', async () => {
    const hand = await open({
      config: config({ timeoutSeconds: 0 }),
      script: [{ steps: [{ say: 'at last', sleepMs: 90_000_000 }] }],
    });
    const run = await hand.say('think', { from: 'slow' });
    await hand.until(async () => (await hand.wait(run, 0)).state === 'running');
    await hand.settled();
    hand.clock.jump(89_000_000);
    await hand.clock.advance(0);
    expect(await hand.wait(run, 0)).toMatchObject({ state: 'running' });
    await hand.clock.until(async () => (await hand.wait(run, 0)).state === 'ok');
  });
});
