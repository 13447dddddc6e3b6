// What a model is shown: its calls' results in the order of the calls, whichever was done first.
import { expect, it } from 'vitest';
import { engineByHand } from '../harness/engine.ts';

it('results that came in another order than they were asked for are shown in the order of the calls', async () => {
  await using hand = await engineByHand();
  await hand.accept('go');
  const { turn, leave } = await hand.turn('go');
  for (const step of [1, 2]) {
    const calls = Array.from({ length: 12 }, (_, idx) => ({ providerId: `${idx}`, tool: 't', args: {}, effect: 'pure' as const }));
    const pending = await turn.step({ text: `step ${step}`, calls, usage: { input: 0, output: 0 } });
    for (const call of pending.toReversed()) await turn.finishCall(call, { text: `${step}: result ${call.idx}`, isError: false, taint: 0 });
  }
  const texts = (await turn.look(200)).prompt.map(({ content }) => (content[0]?.type === 'text' ? content[0].text : ''));
  await turn.end({ text: 'done', usage: { input: 0, output: 0 } });
  leave();
  const results = (step: number) => Array.from({ length: 12 }, (_, idx) => `${step}: result ${idx}`);
  expect(texts).toEqual(['go', 'step 1', ...results(1), 'step 2', ...results(2)]);
});
