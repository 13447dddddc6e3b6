// Slots, steering and due times when several things happen in one commit: what became free or ready is never forgotten.
import { describe, expect, it } from 'vitest';
import { engineByHand, type Hand } from '../harness/engine.ts';

const usage = { input: 0, output: 0 };
const caps = { main: 2, nested: 2, subagent: 1, cron: 1 };

async function end(hand: Hand, runId: string): Promise<void> {
  const { turn, leave } = hand.turns.get(runId)!;
  await turn.end({ text: `${runId} is done`, usage });
  leave();
}

describe.each(['memory', 'sqlite'] as const)('on a store in %s', (store) => {
  it('a slot that frees in the commit that makes two runs ready is used at once', async () => {
    await using hand = await engineByHand({ store, agents: ['a', 'b'], caps });
    await hand.accept('x', { agent: 'a' });
    await hand.turn('x');
    await hand.accept('y', { agent: 'a' });
    await Promise.all([end(hand, 'x'), hand.accept('z', { agent: 'b' })]);
    await hand.settled();
    expect([...hand.turns.keys()].toSorted()).toEqual(['y', 'z']);
    for (const runId of ['y', 'z']) await end(hand, runId);
  });

  it('all slots are refilled when all turns end together', async () => {
    const agents = Array.from({ length: 12 }, (_, n) => `a${n}`);
    await using hand = await engineByHand({ store, agents, caps: { ...caps, main: 4 } });
    await Promise.all(agents.map((agent) => hand.accept(agent, { agent })));
    for (let round = 0; round < 3; round++) {
      await hand.settled();
      const now = [...hand.turns.keys()];
      expect(now).toHaveLength(4);
      await Promise.all(now.map((runId) => end(hand, runId)));
    }
    await hand.settled();
    expect(await hand.rows.runs({ state: 'ok' })).toHaveLength(12);
  });

  it('a message that steers is taken by the turn that is being claimed at that moment', async () => {
    await using hand = await engineByHand({ store });
    const first = hand.accept('first');
    await first;
    await hand.accept('second', { mode: 'steer' });
    const { turn } = await hand.turn('first');
    expect(await turn.steer()).toBe(1);
    await end(hand, 'first');
    await hand.settled();
    expect(await hand.rows.runs({ id: 'second' }, 'state', 'merged_into')).toEqual([{ state: 'ok', merged_into: 1 }]);
  });

  it('a turn that took something in looks at the session as it is then', async () => {
    await using hand = await engineByHand({ store });
    await hand.accept('first');
    const { turn } = await hand.turn('first');
    await hand.accept('second', { mode: 'steer', taint: 2 });
    await turn.steer();
    expect((await turn.look(10)).session.taint).toBe(2);
    await end(hand, 'first');
  });

  it('two runs that may not start yet start each at its time', async () => {
    await using hand = await engineByHand({ store, agents: ['a', 'b'], caps });
    const now = hand.clock.now();
    await hand.accept('early', { agent: 'a', notBefore: now + 1_000 });
    await hand.accept('late', { agent: 'b', notBefore: now + 1_500 });
    await hand.clock.advance(1_000);
    expect([...hand.turns.keys()]).toEqual(['early']);
    await hand.clock.advance(500);
    expect([...hand.turns.keys()].toSorted()).toEqual(['early', 'late']);
    for (const runId of ['early', 'late']) await end(hand, runId);
  });

  it('a run that waits for one which was taken in gets the answer of the run that took it in', async () => {
    await using hand = await engineByHand({ store, agents: ['a', 'b'], caps });
    await hand.accept('target', { agent: 'b' });
    const target = await hand.turn('target');
    await hand.accept('steered', { agent: 'b', mode: 'steer' });
    await hand.accept('asks', { agent: 'a' });
    const asking = await hand.turn('asks');
    const call = { providerId: 'call', tool: 'wait', args: {}, effect: 'keyed' as const };
    await asking.turn.step({ text: '', calls: [call], usage });
    await hand.rows.addWaitFor('asks', 'steered');
    expect(await asking.turn.park()).toBe(true);
    asking.leave();
    expect(await target.turn.steer()).toBe(1);
    await end(hand, 'target');
    await hand.settled();
    const [result] = await hand.rows.results('asks');
    expect(JSON.parse(result!.text)).toMatchObject({ status: 'ok', reply: 'target is done' });
    await end(hand, 'asks');
  });

  it('an offer is not made by a run that was asked to stop', async () => {
    await using hand = await engineByHand({ store, deaf: true });
    await hand.accept('first');
    const { turn, leave } = await hand.turn('first');
    await hand.abort('first');
    expect(await turn.offer()).toBe(false);
    leave();
    await hand.settled();
    expect(await hand.rows.offers()).toEqual([]);
  });
});
