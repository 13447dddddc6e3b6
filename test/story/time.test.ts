// What settings say about time: how long a turn that collects waits for more, and how long a run may work.
import { describe, expect, it } from 'vitest';
import { startByHand } from './by-hand.ts';

const config = (more: { collectMs?: number; timeoutSeconds?: number }) => ({
  session: { dmScope: 'per-peer' as const, queue: { collectMs: more.collectMs ?? 0 } },
  agents: { list: [{ id: 'ana', default: true }, { id: 'bo' }], defaults: { timeoutSeconds: more.timeoutSeconds ?? 3_600 } },
  tools: { sessions: { visibility: 'all' as const }, agentToAgent: { enabled: true } },
});

describe('a turn that collects', () => {
  it('waits for more as long as the setting says, and then takes in all that came', async () => {
    const hand = await startByHand({ config: config({ collectMs: 500 }), script: [{ steps: [{ say: 'heard' }] }] });
    const first = await hand.say('you', 'one', { mode: 'collect' });
    hand.clock.advance(300);
    const second = await hand.say('you', 'two', { mode: 'collect' });
    hand.clock.advance(199);
    for (let looks = 0; looks < 50; looks++) await hand.rows('SELECT 1');
    expect(await hand.gateway.engine.wait(first, 0)).toMatchObject({ state: 'queued' });
    await hand.inTime(async () => (await hand.gateway.engine.wait(first, 0)).state === 'ok');
    expect(await hand.gateway.engine.wait(second, 0)).toMatchObject({ state: 'ok', reply: 'heard' });
    expect(await hand.rows('SELECT role, text FROM entries ORDER BY pk')).toEqual([
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
      const hand = await startByHand({ config: config({ collectMs }) });
      const run = await hand.say('you', 'one', { mode });
      expect(await hand.gateway.engine.wait(run, 3_600_000)).toMatchObject({ state: 'ok' });
    }
  });

  it('still waits after a restart', async () => {
    const hand = await startByHand({ config: config({ collectMs: 60_000 }) });
    const until = hand.clock.now() + 60_000;
    const run = await hand.say('you', 'one', { mode: 'collect' });
    await hand.close();
    const again = await startByHand({ config: config({ collectMs: 60_000 }), stateDir: hand.stateDir, clock: hand.clock });
    for (let looks = 0; looks < 50; looks++) await again.rows('SELECT 1');
    expect(await again.gateway.engine.wait(run, 0)).toMatchObject({ state: 'queued' });
    await again.inTime(async () => (await again.gateway.engine.wait(run, 0)).state === 'ok');
    const [started] = await again.rows<{ started_at: number }>('SELECT started_at FROM runs');
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
    const hand = await startByHand({ config: config({ timeoutSeconds: 60 }), script });
    const slow = await hand.say('slow', 'think');
    const asks = await hand.say('asks', 'ask');
    await hand.until(async () => (await hand.gateway.engine.wait(asks, 0)).state === 'waiting');
    await hand.until(async () => (await hand.rows(`SELECT 1 FROM runs WHERE state = 'running'`)).length === 2);
    hand.clock.advance(59_999);
    for (let looks = 0; looks < 50; looks++) await hand.rows('SELECT 1');
    expect(await hand.gateway.engine.wait(slow, 0)).toMatchObject({ state: 'running' });
    await hand.inTime(async () => (await hand.gateway.engine.wait(slow, 0)).state !== 'running');
    expect(await hand.gateway.engine.wait(slow, 0)).toMatchObject({ state: 'timeout', errorCode: 'TIMEOUT' });
    // The one that waited has not worked meanwhile, and hears that the other was stopped.
    await hand.until(async () => (await hand.gateway.engine.wait(asks, 0)).state === 'ok');
    expect((await hand.gateway.engine.wait(asks, 0)).reply).toContain('longer than 60000 ms');
  });

  it('has no limit where the setting is 0', async () => {
    const hand = await startByHand({
      config: config({ timeoutSeconds: 0 }),
      script: [{ steps: [{ say: 'at last', sleepMs: 90_000_000 }] }],
    });
    const run = await hand.say('slow', 'think');
    await hand.until(async () => (await hand.gateway.engine.wait(run, 0)).state === 'running');
    await hand.until(() => hand.clock.asleep().count > 2);
    hand.clock.advance(89_000_000);
    expect(await hand.gateway.engine.wait(run, 0)).toMatchObject({ state: 'running' });
    await hand.inTime(async () => (await hand.gateway.engine.wait(run, 0)).state === 'ok');
  });
});
