import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../test/harness/clock.ts';
import { Stream } from './sse.ts';

function open() {
  const clock = new ManualClock();
  const controller = new AbortController();
  let drops = 0;
  const stream = new Stream(clock, { signal: controller.signal, drop: () => void drops++ });
  let undone = 0;
  stream.onEnd(() => void undone++);
  return { clock, controller, stream, drops: () => drops, undone: () => undone };
}

const big = 'x'.repeat(70_000);

describe('an event stream', () => {
  it('takes what fits at once and makes whoever writes more wait until its reader has read', async () => {
    const { stream, clock, drops } = open();
    expect(stream.send('a', '1', 'id')).toBeUndefined();
    let caughtUp = false;
    const waiting = Promise.resolve(stream.send('a', big)).then(() => (caughtUp = true));
    await Promise.resolve();
    expect(caughtUp).toBe(false);
    const reader = stream.body.getReader();
    const all = `retry: 1000\n\nevent: a\nid: id\ndata: 1\n\nevent: a\ndata: ${big}\n\n`;
    let text = '';
    while (text.length < all.length) text += Buffer.from((await reader.read()).value!).toString();
    await waiting;
    expect(text).toBe(all);
    await clock.advance(60_000);
    expect([stream.ended, drops()]).toEqual([false, 0]);
  });

  it('is cut off when nobody reads for long, and whoever waits is let go', async () => {
    const { stream, clock, drops, undone } = open();
    const waiting = stream.send('a', big);
    await clock.advance(29_999);
    expect(stream.ended).toBe(false);
    await clock.advance(1);
    await waiting;
    expect([stream.ended, drops(), undone()]).toEqual([true, 1, 1]);
    expect(stream.send('a', '1')).toBeUndefined();
  });

  it.each([
    ['its reader cancels', ({ stream }: ReturnType<typeof open>) => void stream.body.cancel()],
    ['the connection is gone', ({ controller }: ReturnType<typeof open>) => controller.abort()],
    ['it is ended twice', ({ stream }: ReturnType<typeof open>) => void [stream.end(), stream.end()]],
  ])('ends once when %s', (_, happens) => {
    const opened = open();
    happens(opened);
    expect([opened.stream.ended, opened.undone(), opened.drops()]).toEqual([true, 1, 0]);
    let late = false;
    opened.stream.onEnd(() => (late = true));
    expect(late).toBe(true);
  });
});
