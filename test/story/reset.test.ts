// A life that ends with very much queued: none of it runs any more, all of it ends with the reason, a little at a time.
import { describe, expect, it, vi } from 'vitest';
import { closeSession, resetSession } from '../../src/engine/sessions.ts';
import { startByHand, type ByHand } from './by-hand.ts';

vi.setConfig({ testTimeout: 30_000, hookTimeout: 30_000 });

const key = 'agent:main:direct:ana';
const script = [{ when: 'slow', steps: [{ say: 'late', sleepMs: 3_600_000 }] }, { steps: [{ say: 're: {{input}}' }] }];
const nothing = { main: 0, nested: 0, subagent: 0, cron: 0 };

const queue = (hand: ByHand, count: number, mode: 'followup' | 'steer' = 'followup') =>
  Promise.all(Array.from({ length: count }, (_, index) => hand.say('ana', `old ${index}`, { mode })));

/** How many runs each commit ended. */
function endings(hand: ByHand): number[] {
  const counts: number[] = [];
  hand.gateway.store.onCommit((events) => {
    const ended = events.filter((event) => event.kind === 'run' && event.state === 'aborted').length;
    if (ended > 0) counts.push(ended);
  });
  return counts;
}

const inputs = (hand: ByHand) =>
  hand.rows<{ state: string; reason: string | null; n: number }>(
    `SELECT state, reason, count(*) AS n FROM inputs GROUP BY state, reason ORDER BY n DESC`,
  );

/** What the engine itself writes, without what it does afterwards: as if the gateway died right there. */
const ending = (hand: ByHand) => ({ world: hand.gateway.world, flowFailed: () => {} });
const onlyReset = (hand: ByHand) => hand.gateway.store.write(resetSession(ending(hand)), { key, id: 'next', now: hand.clock.now() });
const onlyClose = (hand: ByHand, to: 'archived' | 'deleted') =>
  hand.gateway.store.write(closeSession(ending(hand)), { key, to, force: true, now: hand.clock.now() });

describe('a reset with very much queued', () => {
  it.each(['idle', 'busy'])('ends it 50 at a time in a lane that is %s, and then answers the next life', async (lane) => {
    const hand = await startByHand({ script, ...(lane === 'idle' ? { caps: { ...nothing, main: 1 } } : {}) });
    // Another session holds the only slot, or a turn of the session itself is under way.
    const slow = await hand.say(lane === 'idle' ? 'other' : 'ana', 'slow');
    const old = await queue(hand, 500);
    const counts = endings(hand);
    await hand.gateway.engine.reset(key);
    const next = await hand.say('ana', 'new');
    if (lane === 'idle') await hand.gateway.engine.abort(slow, 'enough');
    expect(await hand.gateway.engine.wait(next, 3_600_000)).toMatchObject({ state: 'ok', reply: 're: new' });
    expect(Math.max(...counts)).toBeLessThanOrEqual(51); // and the turn that was asked to stop
    expect(await hand.gateway.engine.wait(old.at(-1)!, 0)).toMatchObject({ state: 'aborted', error: 'reset' });
    expect((await inputs(hand))[0]).toEqual({ state: 'aborted', reason: 'reset', n: 500 });
    expect(await hand.rows(`SELECT 1 FROM entries WHERE text LIKE 'old %'`)).toEqual([]);
    expect(await hand.rows('SELECT * FROM stops')).toEqual([]);
  });

  it('is not taken in by the turn that is being stopped', async () => {
    const steps = [{ calls: [{ tool: 'agents_list' }], sleepMs: 10 }, { say: 'late' }];
    const hand = await startByHand({ script: [{ when: 'two steps', steps }] });
    await hand.say('ana', 'two steps');
    await hand.until(async () => (await hand.rows(`SELECT 1 FROM runs WHERE state = 'running'`)).length === 1);
    await queue(hand, 120, 'steer');
    await onlyReset(hand);
    // The turn has not heard of it yet and comes to the end of a step.
    hand.clock.advance(10);
    await hand.until(async () => (await hand.rows(`SELECT 1 FROM runs WHERE state = 'running'`)).length === 0);
    hand.clock.advance(60_000);
    await hand.until(async () => (await hand.rows('SELECT 1 FROM runs WHERE ended_at IS NULL')).length === 0);
    expect((await inputs(hand))[0]).toEqual({ state: 'aborted', reason: 'reset', n: 120 });
  });

  it('goes on after a crash in between, and nothing of it runs before or after', async () => {
    const hand = await startByHand({ script, caps: nothing });
    await queue(hand, 230);
    await onlyReset(hand);
    expect(await hand.rows(`SELECT count(*) AS n FROM runs WHERE state = 'queued'`)).toEqual([{ n: 180 }]);
    expect(await hand.rows('SELECT 1 FROM runs WHERE ready_pos IS NOT NULL')).toEqual([]);
    const next = await hand.say('ana', 'new');
    expect(await hand.rows('SELECT 1 FROM runs WHERE ready_pos IS NOT NULL')).toEqual([]);
    await hand.close();

    const again = await startByHand({ script, stateDir: hand.stateDir });
    expect(await again.gateway.engine.wait(next, 3_600_000)).toMatchObject({ state: 'ok', reply: 're: new' });
    expect((await inputs(again))[0]).toEqual({ state: 'aborted', reason: 'reset', n: 230 });
    expect(await again.rows(`SELECT 1 FROM entries WHERE text LIKE 'old %'`)).toEqual([]);
  });

  it('twice keeps the reason of each, and the last life answers', async () => {
    const hand = await startByHand({ script, caps: nothing });
    await queue(hand, 130);
    await onlyReset(hand);
    await queue(hand, 70);
    await onlyClose(hand, 'deleted');
    const next = await hand.say('ana', 'new');
    await hand.close();
    const again = await startByHand({ script, stateDir: hand.stateDir });
    const told = new Map<string, number>();
    again.gateway.bus.subscribe(
      {
        wants: (event) => event.kind === 'run' && event.state === 'aborted',
        deliver: (event) => void (event.kind === 'run' && told.set(event.error!, (told.get(event.error!) ?? 0) + 1)),
        reset() {},
        failed() {},
      },
      0,
    );
    expect(await again.gateway.engine.wait(next, 3_600_000)).toMatchObject({ state: 'ok' });
    await again.until(() => (told.get('reset') ?? 0) === 130);
    expect(await again.rows(`SELECT 1 FROM entries WHERE text LIKE 'old %'`)).toEqual([]);
  });

  it('does not count against what the next life may queue', async () => {
    const hand = await startByHand({ script, caps: nothing });
    await queue(hand, 60);
    await hand.sql(
      `WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 9940)
       INSERT INTO runs (id, session_pk, lane, class, cause, deliver, queued_at) SELECT 'many' || n, session_pk, lane, class, cause, deliver, queued_at
       FROM n, (SELECT * FROM runs ORDER BY pk LIMIT 1)`,
    );
    await expect(hand.say('ana', 'one too many')).rejects.toMatchObject({ code: 'QUEUE_FULL' });
    await onlyReset(hand);
    await hand.say('ana', 'new');
  });
});

describe('an archive with very much queued', () => {
  it('ends what was there, and not what brings the session back', async () => {
    const hand = await startByHand({ script, caps: nothing });
    await queue(hand, 120);
    await onlyClose(hand, 'archived');
    const back = await hand.say('ana', 'back');
    await hand.close();
    const again = await startByHand({ script, stateDir: hand.stateDir });
    expect(await again.gateway.engine.wait(back, 3_600_000)).toMatchObject({ state: 'ok', reply: 're: back' });
    expect((await inputs(again))[0]).toEqual({ state: 'aborted', reason: 'archived', n: 120 });
  });
});
