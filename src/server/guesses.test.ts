import { expect, it } from 'vitest';
import { ManualClock } from '../../test/harness/clock.ts';
import { Guesses } from './guesses.ts';

it('a try that waits is refused at the close, and no timer is left', async () => {
  const clock = new ManualClock(1);
  const guesses = new Guesses(clock);
  for (let n = 0; n < 11; n++) guesses.wrong('192.0.2.1');
  expect(await guesses.mayTry('192.0.2.1')).toBe(true);
  const waits = [guesses.mayTry('192.0.2.1'), guesses.mayTry('192.0.2.1')];
  await clock.advance(1_000);
  guesses.close();
  waits.push(guesses.mayTry('192.0.2.1'));
  expect(await Promise.all(waits)).toEqual([true, false, false]);
  expect(clock.nextMs).toBe(Infinity);
});
