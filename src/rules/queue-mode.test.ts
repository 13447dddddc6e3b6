// Which inputs may become one turn: the same source, speaker and way out, next to each other, and sent to be joined.
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { queueModes, type QueueMode } from '../protocol/run.ts';
import { Provenance } from '../protocol/transcript.ts';
import { mergeKey, takeable, type QueuedInput } from './queue-mode.ts';

const queue = (text: string): QueuedInput[] =>
  text
    .split(' ')
    .filter((word) => word !== '')
    .map((word) => {
      const [mode, key] = word.split('/');
      return { mode: mode as QueueMode, mergeKey: key! };
    });

describe('how many queued inputs a turn takes in', () => {
  const turn: QueuedInput = { mode: 'followup', mergeKey: 'a' };
  it.each<['collect' | 'steer', string, number, string]>([
    ['steer', '', 0, 'nothing is queued'],
    ['steer', 'steer/a', 1, 'one that wants to join'],
    ['steer', 'steer/a steer/a steer/a', 3, 'all that want to join'],
    ['steer', 'followup/a', 0, 'a followup waits its turn'],
    ['steer', 'followup/a steer/a', 0, 'and nobody passes it'],
    ['steer', 'steer/a followup/a steer/a', 1, 'up to the first that does not want to'],
    ['steer', 'steer/b', 0, 'another speaker does not join'],
    ['steer', 'steer/a steer/b steer/a', 1, 'and is not passed'],
    ['steer', 'collect/a', 0, 'collected inputs join what is queued, not what runs'],
    ['steer', 'interrupt/a', 0, 'an interrupt is a turn of its own'],
    ['collect', 'collect/a collect/a', 2, 'collected inputs become one turn'],
    ['collect', 'collect/a steer/a', 1, 'a steer is not collected'],
    ['collect', 'followup/a collect/a', 0, 'a followup is not passed'],
  ])('%s from [%s]: %i, %s', (mode, queued, expected) => {
    expect(takeable(turn, queue(queued), mode)).toBe(expected);
  });

  const input = fc.record({ mode: fc.constantFrom(...queueModes), mergeKey: fc.constantFrom('a', 'b') });
  const mode = fc.constantFrom('collect' as const, 'steer' as const);

  it('is the longest beginning of the queue that fits, so order is kept', () => {
    fc.assert(
      fc.property(input, fc.array(input, { maxLength: 10 }), mode, (own, queued, wanted) => {
        const taken = takeable(own, queued, wanted);
        const fits = (one: QueuedInput) => one.mode === wanted && one.mergeKey === own.mergeKey;
        expect(queued.slice(0, taken).every(fits)).toBe(true);
        if (taken < queued.length) expect(fits(queued[taken]!)).toBe(false);
      }),
    );
  });

  it('never falls when more is queued behind', () => {
    fc.assert(
      fc.property(input, fc.array(input), fc.array(input), mode, (own, queued, more, wanted) => {
        expect(takeable(own, [...queued, ...more], wanted)).toBeGreaterThanOrEqual(takeable(own, queued, wanted));
      }),
    );
  });
});

describe('the merge key', () => {
  const provenance = fc.record({
    kind: fc.constantFrom(...Provenance.shape.kind.options),
    channel: fc.option(fc.string(), { nil: undefined }),
  });
  // Texts that could run into each other if they were only glued together.
  const text = fc.oneof(fc.constantFrom('', '"', ',', '","', '[', 'a', 'a","b'), fc.string());

  it('is equal exactly when kind of source, principal and destination are', () => {
    fc.assert(
      fc.property(fc.tuple(provenance, text, text), fc.tuple(provenance, text, text), (one, other) => {
        const same = one[0].kind === other[0].kind && one[1] === other[1] && one[2] === other[2];
        expect(mergeKey(...one) === mergeKey(...other)).toBe(same);
      }),
    );
  });

  it('does not depend on what else is known of the source', () => {
    const plain = mergeKey({ kind: 'inter_session' }, 'session:1', '');
    expect(mergeKey({ kind: 'inter_session', sourceSession: 'agent:a:main', sourceTool: 'sessions_send' }, 'session:1', '')).toBe(plain);
  });
});
