// What a model is shown: its calls' results in the order of the calls, whichever was done first.
import { expect, it, onTestFinished } from 'vitest';
import type { Clock } from '../../src/clock.ts';
import { Config } from '../../src/config/schema.ts';
import { Engine } from '../../src/engine/engine.ts';
import type { PromptMessage } from '../../src/engine/runner.ts';
import type { FeedEvent } from '../../src/protocol/event.ts';
import { compileWorld } from '../../src/rules/decide.ts';
import { memoryStore } from '../../src/store/memory.ts';

const clock: Clock = { now: () => 1_800_000_000_000, elapsed: () => 0, after: () => () => {} };

it('results that came in another order than they were asked for are shown in the order of the calls', async () => {
  const store = memoryStore<FeedEvent>({ rerun: 0, random: () => 0 });
  const seen = Promise.withResolvers<PromptMessage[]>();
  let ids = 0;
  const engine = new Engine(
    {
      store,
      clock,
      newId: () => `id${ids++}`,
      runner: () => ({
        async run(turn) {
          for (const step of [1, 2]) {
            const calls = Array.from({ length: 12 }, (_, idx) => ({ providerId: `${idx}`, tool: 't', args: {}, effect: 'pure' as const }));
            const pending = await turn.step({ text: `step ${step}`, calls, usage: { input: 0, output: 0 } });
            for (const call of pending.toReversed())
              await turn.finishCall(call, { text: `${step}: result ${call.idx}`, isError: false, taint: 0 });
          }
          seen.resolve(await turn.prompt(200));
          await turn.end({ text: 'done', usage: { input: 0, output: 0 } });
        },
      }),
      caps: { main: 1, nested: 1, subagent: 1, cron: 1 },
      host: { bootId: 'b', pid: 1, name: 'h' },
      warn() {},
    },
    compileWorld(Config.parse({})),
  );
  onTestFinished(async () => {
    await engine.close(0);
    await store.close();
  });
  await engine.start([{ key: 'agent:main:main', made: { agent: 'main', kind: 'main' } }]);
  await engine.accept({
    sessionKey: 'agent:main:main',
    runId: 'run',
    text: 'go',
    provenance: { kind: 'user' },
    principal: 'p',
    taint: 0,
    mode: 'followup',
    class: 'main',
    deliver: false,
    now: clock.now(),
  });
  const texts = (await seen.promise).map(({ content }) => (content[0]?.type === 'text' ? content[0].text : ''));
  const results = (step: number) => Array.from({ length: 12 }, (_, idx) => `${step}: result ${idx}`);
  expect(texts).toEqual(['go', 'step 1', ...results(1), 'step 2', ...results(2)]);
});
