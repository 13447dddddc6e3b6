import { expect, it } from 'vitest';
import { start } from './child.ts';

it('a subscriber passes over a page of the feed of which nothing is left', { timeout: 120_000 }, async () => {
  const child = start(process.execPath, ['test/process/late-subscriber.ts']);
  await child.printed('forgotten');
  // In the child nothing else gets a turn once it goes round, so it is stopped from here.
  const limit = setTimeout(() => child.child.kill('SIGKILL'), 60_000);
  const { status, signal, stdout } = await child.finished.finally(() => clearTimeout(limit));
  expect([status, signal, stdout]).toEqual([0, null, 'forgotten\nheard\n']);
});
