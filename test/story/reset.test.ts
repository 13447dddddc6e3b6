// A life that ends with very much queued: none of it runs any more, all of it ends with the reason, a little at a time.
import { describe, expect, it, vi } from 'vitest';
import { testGateway, type TestGateway, type TestOptions } from '../harness/gateway.ts';
import { onlyClose, onlyReset } from '../harness/inside.ts';

vi.setConfig({ testTimeout: 30_000, hookTimeout: 30_000 });

const open = (options: TestOptions = {}) => testGateway({ config: { session: { dmScope: 'per-peer' } }, ...options });
const key = 'agent:main:direct:ana';
const script = [{ when: 'slow', steps: [{ say: 'late', sleepMs: 3_600_000 }] }, { steps: [{ say: 're: {{input}}' }] }];
const nothing = { main: 0, nested: 0, subagent: 0, cron: 0 };
const everything = { main: 8, nested: 8, subagent: 8, cron: 8 };

const queue = (hand: TestGateway, count: number, mode: 'followup' | 'steer' = 'followup') =>
  Promise.all(Array.from({ length: count }, (_, index) => hand.say(`old ${index}`, { from: 'ana', mode })));

/** How many runs each commit ended. */
function endings(hand: TestGateway): number[] {
  const counts: number[] = [];
  hand.inside.onCommit((events) => {
    const ended = events.filter((event) => event.kind === 'run' && event.state === 'aborted').length;
    if (ended > 0) counts.push(ended);
  });
  return counts;
}

/** How many inputs ended so. */
const ended = async (hand: TestGateway, reason: string) => (await hand.rows.inputs({ state: 'aborted', reason })).length;
const oldWords = async (hand: TestGateway) => (await hand.rows.entries()).filter(({ text }) => text.startsWith('old '));
const running = async (hand: TestGateway) => (await hand.rows.runs({ state: 'running' })).length;
const ready = async (hand: TestGateway) => (await hand.rows.runs()).filter((run) => run.ready_pos !== null);

describe('a reset with very much queued', () => {
  it.each(['idle', 'busy'])('ends it 50 at a time in a lane that is %s, and then answers the next life', async (lane) => {
    const hand = await open({ script, ...(lane === 'idle' ? { caps: { ...nothing, main: 1 } } : {}) });
    // Another session holds the only slot, or a turn of the session itself is under way.
    const slow = await hand.say('slow', { from: lane === 'idle' ? 'other' : 'ana' });
    const old = await queue(hand, 500);
    const counts = endings(hand);
    await hand.reset(key);
    const next = await hand.say('new', { from: 'ana' });
    if (lane === 'idle') await hand.abort(slow, 'enough');
    expect(await hand.wait(next)).toMatchObject({ state: 'ok', reply: 're: new' });
    expect(Math.max(...counts)).toBeLessThanOrEqual(51); // and the turn that was asked to stop
    expect(await hand.wait(old.at(-1)!, 0)).toMatchObject({ state: 'aborted', error: 'reset' });
    expect(await ended(hand, 'reset')).toBe(500);
    expect(await oldWords(hand)).toEqual([]);
    expect(await hand.rows.stops()).toEqual([]);
  });

  it('is not taken in by the turn that is being stopped', async () => {
    const steps = [{ calls: [{ tool: 'agents_list' }], sleepMs: 10 }, { say: 'late' }];
    const hand = await open({ script: [{ when: 'two steps', steps }] });
    await hand.say('two steps', { from: 'ana' });
    await hand.until(async () => (await running(hand)) === 1);
    await queue(hand, 120, 'steer');
    await onlyReset(hand, key);
    // The turn has not heard of it yet and comes to the end of a step.
    await hand.clock.advance(10);
    await hand.until(async () => (await running(hand)) === 0);
    await hand.clock.advance(60_000);
    await hand.finished();
    expect(await ended(hand, 'reset')).toBe(120);
  });

  it('goes on after a crash in between, and nothing of it runs before or after', async () => {
    const hand = await open({ script, caps: nothing });
    await queue(hand, 230);
    await onlyReset(hand, key);
    expect(await hand.rows.runs({ state: 'queued' })).toHaveLength(180);
    expect(await ready(hand)).toEqual([]);
    const next = await hand.say('new', { from: 'ana' });
    expect(await ready(hand)).toEqual([]);

    const again = await hand.restart({ caps: everything });
    expect(await again.wait(next)).toMatchObject({ state: 'ok', reply: 're: new' });
    expect(await ended(again, 'reset')).toBe(230);
    expect(await oldWords(again)).toEqual([]);
  });

  it('twice keeps the reason of each, and the last life answers', async () => {
    const hand = await open({ script, caps: nothing });
    await queue(hand, 130);
    await onlyReset(hand, key);
    await queue(hand, 70);
    await onlyClose(hand, key, 'deleted');
    const next = await hand.say('new', { from: 'ana' });
    const again = await hand.restart({ caps: everything });
    const told = new Map<string, number>();
    again.inside.subscribe(
      {
        wants: (event) => event.kind === 'run' && event.state === 'aborted',
        deliver: (event) => void (event.kind === 'run' && told.set(event.error!, (told.get(event.error!) ?? 0) + 1)),
        reset() {},
        failed() {},
      },
      0,
    );
    expect(await again.wait(next)).toMatchObject({ state: 'ok' });
    await again.until(() => (told.get('reset') ?? 0) === 130);
    expect(await oldWords(again)).toEqual([]);
  });

  it('does not count against what the next life may queue', async () => {
    const hand = await open({ script, caps: nothing });
    await queue(hand, 60);
    await hand.rows.addQueued(9_940);
    await expect(hand.say('one too many', { from: 'ana' })).rejects.toMatchObject({ code: 'QUEUE_FULL' });
    await onlyReset(hand, key);
    await hand.say('new', { from: 'ana' });
  });
});

describe('an archive with very much queued', () => {
  it('ends what was there, and not what brings the session back', async () => {
    const hand = await open({ script, caps: nothing });
    await queue(hand, 120);
    await onlyClose(hand, key, 'archived');
    const back = await hand.say('back', { from: 'ana' });
    const again = await hand.restart({ caps: everything });
    expect(await again.wait(back)).toMatchObject({ state: 'ok', reply: 're: back' });
    expect(await ended(again, 'archived')).toBe(120);
  });
});
