// Globs: `*` is any text, everything else is itself, from the first character to the last.
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { matchesGlob } from './glob.ts';

describe('matchesGlob', () => {
  it.each([
    ['work', 'work', true, 'a plain word is itself'],
    ['work', 'works', false, 'anchored at the end'],
    ['work', 'homework', false, 'anchored at the start'],
    ['Work', 'wORK', true, 'case does not count'],
    [' work ', 'work', true, 'space around a pattern does not count'],
    ['*', '', true, 'a star may be nothing'],
    ['*', 'anything at all', true, 'a star may be everything'],
    ['work*', 'work', true, 'a star at the end may be nothing'],
    ['work*', 'work-2', true, 'a prefix'],
    ['*-bot', 'night-bot', true, 'a suffix'],
    ['a*a', 'a', false, 'one letter is not both ends'],
    ['ab*ba', 'aba', false, 'the ends do not overlap'],
    ['a*b*c', 'a-b-b-c', true, 'several stars'],
    ['a*b*c', 'a-c-b', false, 'pieces keep their order'],
    ['*ab*ab*', 'xab', false, 'each piece takes its own text'],
    ['a*bc*c', 'abc', false, 'a piece does not overlap the end'],
    ['**', 'x', true, 'two stars are one'],
    ['a.c', 'abc', false, 'a dot is a dot'],
    ['a?c', 'abc', false, 'a question mark is a question mark'],
    ['[ab]', 'a', false, 'brackets are brackets'],
    ['a*c', 'a\nc', true, 'a star crosses lines'],
  ])('%j against %j is %j: %s', (pattern, text, expected) => {
    expect(matchesGlob(pattern, text)).toBe(expected);
  });

  const text = fc.string({ unit: fc.constantFrom('a', 'B', '.'), maxLength: 8 });
  const pattern = fc.string({ unit: fc.constantFrom('a', 'b', '.', '*', '*'), maxLength: 8 });

  it('says what an anchored regular expression with `.*` for every star says', () => {
    fc.assert(
      fc.property(pattern, text, (glob, subject) => {
        const model = new RegExp(`^${glob.replaceAll('.', '\\.').replaceAll('*', '[^]*')}$`, 'i');
        expect(matchesGlob(glob, subject)).toBe(model.test(subject));
      }),
    );
  });

  it('matches a text after any piece of it became a star', () => {
    fc.assert(
      fc.property(text, text, text, (head, middle, tail) => {
        expect(matchesGlob(`${head}*${tail}`, head + middle + tail)).toBe(true);
      }),
    );
  });

  it('reads a long text against many stars to the end', () => {
    expect(matchesGlob('*a'.repeat(100) + '*b', 'a'.repeat(50_000))).toBe(false);
  });
});
