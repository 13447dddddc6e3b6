import { expect, it } from 'vitest';
import { Pacer, type Client } from './pace.ts';

/** A pacer whose turns and time pass by hand. A piece is done when its microtasks are. */
function byHand() {
  const turns: (() => void)[] = [];
  let time = 0;
  const pacer = new Pacer({
    afterTick: (work) => void turns.push(work),
    afterPiece: (work) => queueMicrotask(() => process.nextTick(work)),
    elapsed: () => time,
  });
  const done: string[] = [];
  const work = (client: Client, name: string, pieces: number, { ms = 0, signal = new AbortController().signal } = {}) => {
    const pace = client.pace(signal);
    const one = async (n: number) => {
      try {
        await pace.pause();
        time += ms;
        done.push(`${name}${n}`);
      } catch (reason) {
        done.push(`${name}${n} ${String(reason)}`);
      }
    };
    for (let n = 1; n <= pieces; n++) void one(n);
  };
  /** What is done in the next turn of the event loop. */
  const turn = async () => {
    const before = done.length;
    turns.shift()?.();
    await new Promise<void>((resolve) => setImmediate(resolve));
    return done.slice(before).join(' ');
  };
  return { pacer, work, turn, turns, pass: (ms: number) => (time += ms) };
}

it('does pieces in a round, and no more than four of a client in a turn', async () => {
  const { pacer, work, turn, turns } = byHand();
  work(pacer.client(), 'a', 6);
  work(pacer.client(), 'b', 1);
  work(pacer.client(), 'c', 2);
  expect([await turn(), await turn()]).toEqual(['a1 b1 c1 a2 c2 a3 a4', 'a5 a6']);
  expect(turns).toEqual([]);
});

it('ends the part of a client in a turn after a millisecond, and serves the others on', async () => {
  const { pacer, work, turn } = byHand();
  work(pacer.client(), 'a', 3, { ms: 0.6 });
  work(pacer.client(), 'b', 3, { ms: 0.1 });
  expect([await turn(), await turn()]).toEqual(['a1 b1 a2 b2 b3', 'a3']);
});

it('gives light clients that wait as much time as a heavy one had, before it goes on', async () => {
  const { pacer, work, turn } = byHand();
  const heavy = pacer.client();
  work(heavy, 'x', 4, { ms: 6 });
  expect([await turn(), await turn()]).toEqual(['x1', 'x2']);
  for (const name of 'ab') work(pacer.client(), name, 5, { ms: 1 });
  // Two turns of lights have not paid for the piece of 6 ms yet; the third has.
  expect([await turn(), await turn(), await turn()]).toEqual(['a1 b1', 'a2 b2', 'a3 b3 x3']);
});

it('lets heavy clients wait for each other, and nobody else for more than one of them', async () => {
  const { pacer, work, turn } = byHand();
  const heavy = Array.from({ length: 3 }, () => pacer.client());
  for (const [n, client] of heavy.entries()) work(client, 'xyz'[n]!, 3, { ms: 4 });
  // Nothing is known of them yet, but a turn ends when it has taken too long.
  expect([await turn(), await turn()]).toEqual(['x1 y1', 'z1 x2']);
  const light = pacer.client();
  work(light, 'a', 5);
  expect([await turn(), await turn(), await turn(), await turn()]).toEqual(['a1 a2 a3 a4', 'a5 y2', 'z2', 'x3']);
});

it('forgets what a client used in time', async () => {
  const { pacer, work, turn, pass } = byHand();
  const client = pacer.client();
  work(client, 'x', 1, { ms: 10 });
  await turn();
  work(client, 'x', 1, { ms: 0 });
  work(pacer.client(), 'a', 1);
  expect(await turn()).toBe('a1 x1');
  pass(160);
  work(client, 'x', 1);
  work(pacer.client(), 'a', 1);
  expect(await turn()).toBe('x1 a1');
});

it('drops the work of a client that is gone, without a turn for each piece', async () => {
  const { pacer, work, turn, turns } = byHand();
  const gone = new AbortController();
  work(pacer.client(), 'a', 3, { signal: gone.signal });
  work(pacer.client(), 'b', 1);
  gone.abort('gone');
  expect(await turn()).toBe('a1 gone a2 gone a3 gone b1');
  expect(turns).toEqual([]);
});
