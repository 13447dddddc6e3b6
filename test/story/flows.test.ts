// Flows: a run that ends advances the flow of every input it consumed; a wait may have several targets; a step may be recorded whole.
import { describe, expect, it } from 'vitest';
import { engineByHand, type Hand } from '../harness/engine.ts';
import { noteFlow } from '../harness/flow.ts';

const usage = { input: 0, output: 0 };

async function end(hand: Hand, runId: string, text: string): Promise<void> {
  const { turn, leave } = await hand.turn(runId);
  await turn.end({ text, usage });
  leave();
  await hand.settled();
}

describe('a flow', () => {
  it('is advanced by the end of the run that consumed its input', async () => {
    const flow = noteFlow();
    await using hand = await engineByHand({ flows: [flow.flow] });
    await hand.accept('one', { flow: { kind: 'note', pk: 7 } });
    await hand.accept('other');
    await end(hand, 'one', 'done');
    await end(hand, 'other', 'also done');
    expect(flow.applied).toEqual(['7 one ok done']);
  });

  it('of an input that a run took in is advanced by that run, each exactly once', async () => {
    const flow = noteFlow();
    await using hand = await engineByHand({ flows: [flow.flow] });
    await hand.accept('first', { flow: { kind: 'note', pk: 1 } });
    const { turn, leave } = await hand.turn('first');
    await hand.accept('second', { mode: 'steer', flow: { kind: 'note', pk: 2 } });
    await hand.accept('third', { mode: 'steer' });
    expect(await turn.steer()).toBe(2);
    expect(flow.applied).toEqual([]);
    await turn.end({ text: 'for all', usage });
    leave();
    await hand.settled();
    expect(flow.applied).toEqual(['1 first ok for all', '2 first ok for all']);
  });

  it('of an input that a run without a flow took in is advanced, too', async () => {
    const flow = noteFlow();
    await using hand = await engineByHand({ flows: [flow.flow] });
    await hand.accept('plain');
    const { turn } = await hand.turn('plain');
    await hand.accept('second', { mode: 'steer', flow: { kind: 'note', pk: 2 } });
    expect(await turn.steer()).toBe(1);
    await end(hand, 'plain', 'for both');
    expect(flow.applied).toEqual(['2 plain ok for both']);
  });

  it('of an input whose run never started is advanced by its abort', async () => {
    const flow = noteFlow();
    await using hand = await engineByHand({ flows: [flow.flow] });
    await hand.accept('busy');
    await hand.turn('busy');
    await hand.accept('waiting', { flow: { kind: 'note', pk: 3 } });
    await hand.abort('waiting');
    expect(flow.applied).toEqual(['3 waiting aborted ']);
    await end(hand, 'busy', 'done');
  });

  it('that throws has failed, and its run has ended all the same', async () => {
    const flow = noteFlow({ broken: true });
    await using hand = await engineByHand({ flows: [flow.flow] });
    await hand.accept('one', { flow: { kind: 'note', pk: 9 } });
    await end(hand, 'one', 'done');
    expect(await hand.rows.runs({ id: 'one' }, 'state')).toEqual([{ state: 'ok' }]);
    expect([flow.applied, flow.failed]).toEqual([[], ['9 broken on purpose']]);
  });
});

describe('a call that waits for two runs', () => {
  it('gets both answers as one result, when the last of them has ended', async () => {
    const agents = ['a', 'b', 'c'];
    await using hand = await engineByHand({ agents, caps: { main: 3, nested: 3, subagent: 1, cron: 1 } });
    await hand.accept('asks', { agent: 'a' });
    const asking = await hand.turn('asks');
    const call = { providerId: 'call', tool: 'sessions_send', args: {}, effect: 'keyed' as const };
    const [pending] = await asking.turn.step({ text: '', calls: [call], usage });
    const { runId } = await hand.send(asking.turn, pending!, 'b', { waitMs: 60_000, maxTurns: 0 });
    await hand.accept('second', { agent: 'c' });
    await hand.rows.addWaitFor('asks', 'second');
    expect(await asking.turn.park()).toBe(true);
    asking.leave();
    await end(hand, runId, 'from b');
    expect(await hand.rows.runs({ id: 'asks' }, 'state', 'parked_on')).toEqual([{ state: 'waiting', parked_on: 'calls' }]);
    await end(hand, 'second', 'from c');
    const [result] = await hand.rows.results('asks');
    expect(JSON.parse(result!.text)).toMatchObject([{ reply: 'from b' }, { reply: 'from c' }]);
    await hand.settled();
    expect(await hand.rows.waits()).toEqual([]);
    const again = hand.turns.get('asks')!; // it was handed out anew
    await again.turn.end({ text: 'thanks', usage });
    again.leave();
  });
});

describe('a step that was carried out elsewhere', () => {
  it('is stored with the results of its calls, and nothing of it is left to do', async () => {
    await using hand = await engineByHand();
    await hand.accept('go');
    const { turn, leave } = await hand.turn('go');
    const call = (tool: string) => ({ providerId: tool, tool, args: { n: 1 }, effect: 'once' as const });
    const results = ['one', 'two'].map((text) => ({ text, isError: false, taint: 0 }));
    await turn.record({ text: 'Both.', calls: [call('x'), call('y')], usage }, results);
    expect([turn.steps, await turn.pending()]).toEqual([1, []]);
    await turn.end({ text: 'done', usage });
    leave();
    await hand.settled();
    expect(await hand.rows.transcript('agent:main:main')).toEqual([
      'user: go',
      'assistant: Both.',
      'toolResult: one',
      'toolResult: two',
      'assistant: done',
    ]);
    expect((await hand.rows.calls({}, 'state')).map(({ state }) => state)).toEqual(['done', 'done']);
  });
});
