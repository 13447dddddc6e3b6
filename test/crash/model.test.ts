// A tool loop on a model service, killed before and after every commit, every outside effect and every piece of a model's answer.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { chosen, crash, eachPoint, startProvider, startReceiver, type Receiver } from './harness.ts';
import { modelScenario } from './scenarios.ts';

const directory = mkdtempSync(join(tmpdir(), 'interlane-provider-'));
let receiver: Receiver;
let provider: Receiver;
beforeAll(async () => {
  receiver = await startReceiver(directory);
  provider = await startProvider(directory);
});
afterAll(() => {
  receiver.stop();
  provider.stop();
  rmSync(directory, { recursive: true, force: true });
});

/** What comes before and after the loop is the same with a script; `exhaustive.test.ts` kills there. */
const elsewhere = /register instance|ensure session|accept|begin sending|settle delivery|delivery/;

it('a gateway that is killed all over a tool loop asks for no stored step again, acts once and ends each run once', async () => {
  const whole = await crash(receiver, modelScenario, [], { alone: true, provider });
  expect(whole.violations).toEqual([]);
  const found: string[] = [];
  const kills = new Set<string>();
  const points = whole.points.filter((point) => !elsewhere.test(point));
  await eachPoint(chosen(points), async (point) => {
    const { violations, kills: where } = await crash(receiver, modelScenario, [point], { alone: true, provider });
    for (const kill of where) kills.add(kill);
    for (const violation of violations) found.push(`killed ${point}: ${violation}`);
  });
  expect(found).toEqual([]);
  const commands = ['claim runs', 'persist step', 'start call', 'finish call', 'compact session', 'end run'];
  const expected = [
    ...commands.flatMap((name) => [`before commit of ${name}`, `after commit of ${name}`]),
    'before model',
    'after model',
    'during answer',
    'before tool',
    'after tool',
  ];
  expect(expected.filter((name) => !kills.has(name))).toEqual([]);
});

it('the checker finds a gateway that asks again for what was stored', async () => {
  const { points } = await crash(receiver, modelScenario, [], { alone: true, provider });
  const point = points.find((one) => one.startsWith('after commit of persist step'))!;
  const { violations } = await crash(receiver, modelScenario, [point], { alone: true, provider, mutant: 'forget-steps' });
  expect(violations.join('\n')).toMatch(/was asked for step 1 .* again after it was stored/);
});
