// What goes wrong around a gateway that lives: a broken flow, a stolen lease, a second gateway, a clock that jumps, too much at once.
import { describe, expect, it, onTestFinished } from 'vitest';
import type { FeedEvent } from '../../src/protocol/event.ts';
import { testGateway, type ConfigText, type ScriptText, type TestGateway, type TestOptions } from '../harness/gateway.ts';
import { rewriteQueries } from '../harness/inside.ts';
import { countRuns, meddle } from '../harness/rows.ts';

const config: ConfigText = {
  agents: { list: [{ id: 'a', default: true }, { id: 'b' }] },
  session: { dmScope: 'per-peer' },
  tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } },
};
const script: ScriptText = [
  {
    agent: 'a',
    when: 'ask',
    steps: [
      { calls: [{ tool: 'sessions_send', args: { sessionKey: 'agent:b:main', message: 'q', timeoutSeconds: 60 } }] },
      { say: '{{result}}' },
    ],
  },
  { when: 'slow', steps: [{ say: 'late', sleepMs: 50 }] },
  { steps: [{ say: 'reply' }] },
];

const start = (more: TestOptions = {}) => testGateway({ config, script, clock: 'real', ...more });
const next = (gateway: TestGateway, wanted: (event: FeedEvent) => boolean) => gateway.event(wanted);

describe('a flow that cannot be advanced', () => {
  it('does not keep its run from ending, is failed, and is told to the operator', async () => {
    const gateway = await start();
    meddle(gateway.stateDir, 'no reply turns');
    const failed = next(gateway, (event) => event.kind === 'exchange' && event.state === 'failed');
    const runId = await gateway.say('ask');
    expect(await gateway.wait(runId)).toMatchObject({ state: 'ok', reply: expect.stringContaining('"status":"ok"') });
    expect(await failed).toMatchObject({ reason: expect.stringContaining('broken on purpose') });
    expect(gateway.warnings.join()).toContain('broken on purpose');
  });
});

/** A run in the middle of its turn, whose lease another gateway takes. */
const stolen = async (gateway: TestGateway) => {
  const running = next(gateway, (event) => event.kind === 'run' && event.state === 'running');
  const runId = await gateway.say('slow');
  await running;
  meddle(gateway.stateDir, 'steal runs');
  return runId;
};

describe('a stale holder', () => {
  it('cannot write: another gateway took the run, so its end is refused and nothing of it is kept', async () => {
    const gateway = await start();
    const runId = await stolen(gateway);
    const other = await gateway.say('slow', { from: 'q' });
    await gateway.wait(other);
    expect(await gateway.wait(runId, 0)).toMatchObject({ state: 'running' });
    // The next start finds it as it was, and brings it to its one end.
    const again = await gateway.restart();
    expect(await again.wait(runId)).toMatchObject({ state: 'ok', reply: 'late' });
  });
});

describe('the check of the lease', () => {
  it('is what refuses a stale holder: without it the stale end is kept', async () => {
    onTestFinished(rewriteQueries('runs.pk = ? AND runs.epoch = ?', 'runs.pk = ? AND ? > 0'));
    const gateway = await start();
    const runId = await stolen(gateway);
    expect(await gateway.wait(runId)).toMatchObject({ state: 'ok', reply: 'late' });
  });
});

describe('a second gateway on the same state', () => {
  it('is refused and names the first', async () => {
    const gateway = await start();
    await expect(start({ stateDir: gateway.stateDir })).rejects.toMatchObject({
      code: 'STATE_IN_USE',
      message: expect.stringContaining(`process ${process.pid}`),
    });
    const runId = await gateway.say('hello');
    expect(await gateway.wait(runId)).toMatchObject({ state: 'ok' });
  });
});

describe('a clock that jumps', () => {
  it.each([-86_400_000, 86_400_000])('by %d ms loses nothing: runs, waits and exchanges end as ever', async (jump) => {
    const gateway = await start();
    const over = next(gateway, (event) => event.kind === 'exchange' && event.state === 'done');
    const asking = next(gateway, (event) => event.kind === 'run' && event.state === 'waiting');
    const runId = await gateway.say('ask');
    await asking;
    gateway.realClock.jumped = jump;
    const later = await gateway.say('hello', { from: 'q' });
    expect(await gateway.wait(later)).toMatchObject({ state: 'ok' });
    expect(await gateway.wait(runId)).toMatchObject({ state: 'ok' });
    expect(await over).toMatchObject({ kind: 'exchange' });
  });
});

describe('100,000 inputs at once', () => {
  it('are taken or refused as BUSY, and every one that was taken is there', async () => {
    const gateway = await start({ caps: { main: 0, nested: 0, subagent: 0, cron: 0 } });
    let busy = 0;
    let other = 0;
    const taken = await Promise.all(
      Array.from({ length: 100_000 }, (_, n) =>
        gateway.say('x', { from: `p${n % 500}` }).then(
          () => 1,
          (error: { code?: string }) => {
            if (error.code === 'BUSY') busy++;
            else other++;
            return 0;
          },
        ),
      ),
    );
    expect(other).toBe(0);
    expect(busy).toBeGreaterThan(50_000);
    const accepted = taken.filter((one) => one === 1).length;
    expect(accepted).toBeGreaterThan(9_000);
    await gateway.close();
    expect(countRuns(gateway.stateDir)).toBe(accepted);
  }, 60_000);
});
