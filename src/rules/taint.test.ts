// The lattice of labels: `join` is a semilattice, `mayFlow` its order, and what we do not know is never a way out.
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { levels } from '../protocol/labels.ts';
import { dataLevel, destinationLevel, join, joinAll, mayFlow } from './taint.ts';

const level = fc.constantFrom(...levels);

describe('the order of levels', () => {
  it('is PUBLIC < INTERNAL < CONFIDENTIAL < RESTRICTED', () => {
    expect(levels).toEqual(['PUBLIC', 'INTERNAL', 'CONFIDENTIAL', 'RESTRICTED']);
    const reachable = levels.map((from) => levels.filter((to) => mayFlow(from, to)));
    expect(reachable).toEqual([levels, levels.slice(1), levels.slice(2), levels.slice(3)]);
  });
});

it('joinAll is the join of all, and PUBLIC of nothing', () => {
  expect(joinAll([])).toBe('PUBLIC');
  fc.assert(
    fc.property(level, level, level, (a, b, c) => {
      expect(joinAll([a, b, c])).toBe(join(a, join(b, c)));
    }),
  );
});

describe('join', () => {
  it('does not depend on the order of its two sides', () => {
    fc.assert(
      fc.property(level, level, (a, b) => {
        expect(join(a, b)).toBe(join(b, a));
      }),
    );
  });

  it('does not depend on how several things are grouped', () => {
    fc.assert(
      fc.property(level, level, level, (a, b, c) => {
        expect(join(join(a, b), c)).toBe(join(a, join(b, c)));
      }),
    );
  });

  it('of a level with itself is that level, and PUBLIC adds nothing', () => {
    fc.assert(
      fc.property(level, (a) => {
        expect(join(a, a)).toBe(a);
        expect(join(a, 'PUBLIC')).toBe(a);
      }),
    );
  });

  it('never lies below one of its sides, and nothing lower is above both', () => {
    fc.assert(
      fc.property(level, level, level, (a, b, bound) => {
        expect(mayFlow(a, join(a, b)) && mayFlow(b, join(a, b))).toBe(true);
        expect(mayFlow(join(a, b), bound)).toBe(mayFlow(a, bound) && mayFlow(b, bound));
      }),
    );
  });

  it('never falls when one side rises', () => {
    fc.assert(
      fc.property(level, level, level, (a, b, c) => {
        const [low, high] = mayFlow(a, b) ? [a, b] : [b, a];
        expect(mayFlow(join(low, c), join(high, c))).toBe(true);
      }),
    );
  });
});

describe('a label', () => {
  it('that we know is itself, on data and on a destination', () => {
    for (const known of levels) expect([dataLevel(known), destinationLevel(known)]).toEqual([known, known]);
  });

  it.each<[unknown, string]>([
    ['SECRET', 'a word of another vocabulary'],
    ['public', 'another case is another word'],
    [' PUBLIC', 'with a space'],
    ['', 'empty'],
    [undefined, 'none'],
    [null, 'null'],
    [0, 'a rank instead of a name'],
    [['PUBLIC'], 'a list'],
    ['constructor', 'a name every object has'],
  ])('that we do not know (%j: %s) is RESTRICTED on data and no level on a destination', (label) => {
    expect(dataLevel(label)).toBe('RESTRICTED');
    expect(destinationLevel(label)).toBeUndefined();
  });

  it('of any other value can neither lower data nor open a destination', () => {
    const unknown = fc.anything().filter((value) => !levels.some((known) => known === value));
    fc.assert(
      fc.property(unknown, level, (label, known) => {
        expect(join(dataLevel(label), known)).toBe('RESTRICTED');
        expect(destinationLevel(label)).toBeUndefined();
      }),
    );
  });
});
