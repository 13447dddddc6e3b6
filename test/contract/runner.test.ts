// What every runner promises the engine: a turn ends or is parked, exactly once, whatever happens to it in between.
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Runner } from '../../src/engine/runner.ts';
import { guestRunner } from '../../src/runtimes/guest/guest.ts';
import { modelRunner } from '../../src/runtimes/model/loop.ts';
import { Script, scriptedModel } from '../../src/runtimes/scripted/scripted.ts';
import { sleep } from '../../src/clock.ts';
import type { Invoker } from '../../src/tools/invoke.ts';
import type { ManualClock } from '../harness/clock.ts';
import { engineByHand, type Hand } from '../harness/engine.ts';

interface Implementation {
  name: string;
  runner(clock: ManualClock): Runner;
  /** Whatever has to happen outside until somebody works on the turn. */
  begin(hand: Hand): Promise<unknown>;
  /** Whatever has to happen outside until the turn that is under way is answered with `re:` and its text. */
  answer(hand: Hand): Promise<void>;
}

const thinkingMs = 5_000;

/** Knows one tool, which does what it is asked at once. */
const invoker: Invoker = {
  names: () => ['note'],
  knows: (name) => name === 'note',
  toolsFor: () => Promise.resolve([]),
  async invoke(turn, call) {
    if (call.state === 'planned') await turn.startCall(call);
    await turn.finishCall(call, { text: `noted in step ${call.step}`, isError: false, taint: 0 });
    return 'done';
  },
  callAs: () => Promise.reject(new Error('nobody calls from outside')),
};

const loop: Implementation = {
  name: 'the model loop',
  runner: (clock) => {
    const steps = [{ calls: [{ tool: 'note' }] }, { sleepMs: thinkingMs, say: 're: {{input}}' }];
    const script = Script.parse([{ steps }]);
    return modelRunner(scriptedModel({ script, sleep: (ms, signal) => sleep(clock, ms, signal) }), invoker);
  },
  begin: (hand) => hand.settled(),
  answer: (hand) => hand.clock.advance(thinkingMs),
};

const guest: Implementation = {
  name: 'a guest',
  runner: () => guestRunner,
  async begin(hand) {
    await hand.settled();
    await hand.look();
  },
  async answer(hand) {
    await hand.settled();
    const { turn } = await hand.look();
    await hand.answer(turn!.turnId, `re: ${turn!.messages.at(-1)!.text}`);
    await hand.settled();
  },
};

describe.each([loop, guest])('$name', ({ runner, begin, answer }) => {
  const open = async () => {
    const hand = await engineByHand({ runner });
    onTestFinished(() => hand.close());
    return hand;
  };
  const ends = async (hand: Hand, runId: string) =>
    (await hand.rows.runHistory()).filter(([id, state]) => id === runId && !['queued', 'running', 'waiting'].includes(state));
  const said = async (hand: Hand) => (await hand.rows.entries({ role: 'assistant' })).map(({ text }) => text).filter((text) => text !== '');

  it('ends a turn once, with its answer', async () => {
    const hand = await open();
    await hand.accept('one');
    await answer(hand);
    expect(await hand.wait('one', 0)).toMatchObject({ state: 'ok', reply: 're: one' });
    expect(await ends(hand, 'one')).toEqual([['one', 'ok']]);
    expect(await said(hand)).toEqual(['re: one']);
  });

  it('is under way, or parked, until it is answered; it never ends a turn by returning', async () => {
    const hand = await open();
    await hand.accept('one');
    await hand.settled();
    expect(['running', 'waiting']).toContain((await hand.wait('one', 0)).state);
    await answer(hand);
    expect((await hand.wait('one', 0)).state).toBe('ok');
  });

  it('takes the turns of a lane one after the other', async () => {
    const hand = await open();
    for (const runId of ['one', 'two', 'three']) await hand.accept(runId);
    for (const [runId, behind] of [
      ['one', 'two'],
      ['two', 'three'],
    ] as const) {
      await hand.settled();
      expect((await hand.wait(behind, 0)).state).toBe('queued');
      await answer(hand);
      expect(await hand.wait(runId, 0)).toMatchObject({ state: 'ok', reply: `re: ${runId}` });
    }
    await answer(hand);
    expect(await said(hand)).toEqual(['re: one', 're: two', 're: three']);
  });

  it('stops where it is when its turn is aborted, and says nothing after that', async () => {
    const hand = await open();
    await hand.accept('one');
    await hand.settled();
    expect(await hand.abort('one')).toMatchObject({ aborted: true });
    await hand.clock.advance(2 * thinkingMs);
    expect(await hand.wait('one', 0)).toMatchObject({ state: 'aborted', errorCode: 'ABORTED' });
    expect(await ends(hand, 'one')).toEqual([['one', 'aborted']]);
    expect(await said(hand)).toEqual([]);
    await hand.accept('two');
    await answer(hand);
    expect(await hand.wait('two', 0)).toMatchObject({ state: 'ok' });
  });

  it('is ended by the time of its run', async () => {
    const hand = await open();
    await hand.accept('one', { budgetMs: thinkingMs - 1 });
    await begin(hand);
    await hand.clock.advance(thinkingMs - 2);
    expect(['running', 'waiting']).toContain((await hand.wait('one', 0)).state);
    await hand.clock.advance(1);
    await hand.settled();
    expect(await hand.wait('one', 0)).toMatchObject({ state: 'timeout', errorCode: 'TIMEOUT' });
    expect(await ends(hand, 'one')).toEqual([['one', 'timeout']]);
  });

  it('goes on where it was after a restart, and nothing of it happens twice', async () => {
    const hand = await open();
    await hand.accept('one');
    await hand.settled();
    const before = await hand.rows.entries();
    await hand.restart();
    await answer(hand);
    expect(await hand.wait('one', 0)).toMatchObject({ state: 'ok', reply: 're: one' });
    const after = await hand.rows.entries();
    expect(after.slice(0, before.length)).toEqual(before);
    expect(after).toHaveLength(before.length + 1);
    expect(await ends(hand, 'one')).toEqual([['one', 'ok']]);
  });
});
