// What the gateway under test is asked to do: one fixed scenario, and random mixed load from a seed.
import type { Op } from './worker.ts';

const message = (
  id: string,
  kind: 'direct' | 'group',
  peer: string,
  text: string,
  mode?: 'followup' | 'collect' | 'steer' | 'interrupt',
): Op => ({
  id,
  do: 'message',
  channel: 'loopback',
  kind,
  peer,
  text: `${id} ${text}`,
  ...(mode ? { mode } : {}),
});

/** A send with two reply-back turns, an announce and its delivery; a tool that acts; steering; an abort; a reset. */
export const scenario: Op[] = [
  message('m1', 'group', 'kitchen', 'hello'),
  message('m2', 'direct', 'u1', 'ask'),
  message('m3', 'direct', 'steered', 'act', 'steer'),
  message('m5', 'direct', 'u2', 'slow'),
  message('m6', 'direct', 'u2', 'behind'),
  message('m4', 'direct', 'steered', 'more', 'steer'),
  { id: 'a1', do: 'abort', of: 'm5' },
  message('m7', 'direct', 'u3', 'slow'),
  message('m8', 'direct', 'u3', 'queued'),
  { id: 'r1', do: 'reset', key: 'agent:ana:direct:u3' },
  message('m9', 'direct', 'u3', 'after'),
];

/** A loop of tools on a model, then a message for which the conversation must be summed up first. */
export const modelScenario: Op[] = [message('m1', 'direct', 'u1', 'loop'), message('m2', 'direct', 'u1', 'long')];

/** An exchange with a guest: each of its turns is offered, taken and answered. */
export const visit: Op[] = [message('m1', 'direct', 'u1', 'visit')];

/** A turn that is stopped while it sleeps. */
export const stopped: Op[] = [message('m1', 'direct', 'u1', 'nap'), { id: 'a1', do: 'abort', of: 'm1' }];

/** A send that waits. */
export const asked: Op[] = [message('m1', 'group', 'kitchen', 'hello'), message('m2', 'direct', 'u1', 'ask')];

/** Mulberry32: small, seeded, good enough to choose with. */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

export function mixedLoad(random: () => number, count: number): Op[] {
  const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!;
  const ops: Op[] = [message('m0', 'group', 'kitchen', 'hello')];
  for (let n = 1; n < count; n++) {
    const peer = pick(['u1', 'u2', 'u3', 'steered']);
    const roll = random();
    if (roll < 0.04) ops.push({ id: `r${n}`, do: 'reset', key: `agent:ana:direct:${peer}` });
    else if (roll < 0.12 && n > 3) {
      // Of the messages before it, preferably one that is still under way.
      const earlier = ops.slice(-6).filter((op) => op.do === 'message');
      ops.push(earlier.length > 0 ? { id: `a${n}`, do: 'abort', of: pick(earlier).id } : message(`m${n}`, 'direct', peer, 'nap'));
    } else if (roll < 0.5) ops.push(message(`m${n}`, 'direct', peer, pick(['ask', 'ask', 'tell', 'both', 'chain', 'visit', 'nap'])));
    else if (roll < 0.62) ops.push(message(`m${n}`, 'direct', peer, 'act'));
    else if (roll < 0.66) ops.push(message(`m${n}`, 'direct', peer, 'fail'));
    else
      ops.push(
        message(`m${n}`, pick(['direct', 'group']), pick([peer, 'kitchen']), 'hello', pick(['followup', 'collect', 'steer', 'interrupt'])),
      );
  }
  return ops;
}
