// What text rules find: decoded text, however it was written; and what is left after they took it out.
import * as fc from 'fast-check';
import { RE2JS } from 're2js';
import { describe, expect, it } from 'vitest';
import { findPatterns, redact, type TextForm } from './text-patterns.ts';

const ssn = '\\b\\d{3}-\\d{2}-\\d{4}\\b';
const find = (pattern: string, value: unknown, form: TextForm) => {
  const [found] = findPatterns([RE2JS.compile(pattern)], typeof value === 'string' ? value : JSON.stringify(value), form);
  if (found && 'failed' in found) throw new Error(found.failed);
  return found;
};
const redacted = (pattern: string, value: unknown) => {
  const text = typeof value === 'string' ? value : JSON.stringify(value);
  return redact(text, find(pattern, text, 'result') ?? [], 'result');
};
/** A JSON text with every character of its strings escaped. */
const escaped = (value: unknown): string => JSON.stringify(value, (_, one: unknown) => one).replace(/[0-9]/g, (digit) => `\\u003${digit}`);

describe('a pattern', () => {
  it.each<[string, unknown, string]>([
    [ssn, { a: 'id\n123-45-6789' }, 'after a newline'],
    ['say "no"', { a: 'say "no"' }, 'with quotes'],
    ['C:\\\\temp', { a: 'C:\\temp' }, 'with a backslash'],
    ['^secret$', { a: [{ b: { c: ['x', 'secret'] } }] }, 'at any depth, as a whole string'],
    [ssn, { '123-45-6789': true }, 'in the name of a field'],
    ['^4711$', { pin: 4711 }, 'in a number'],
    [ssn, { body: JSON.stringify({ deep: JSON.stringify(['123-45-6789']) }).replaceAll('1', '\\u0031') }, 'in JSON inside of a string'],
    [ssn, { body: JSON.stringify(JSON.stringify('123-45-6789')).replaceAll('1', '\\u0031') }, 'in a JSON string inside of a string'],
    [ssn, { body: 'id\\n123-45-6789' }, 'after a written-out newline'],
    [ssn, { body: '123\u201145\u22126789' }, 'with other dashes'],
    ['"pin":4711', { pin: 4711 }, 'in the JSON itself'],
  ])('%s is found in arguments and results: %#, %s', (pattern, value) => {
    for (const form of ['arguments', 'result'] as const) expect(find(pattern, value, form)).toBeDefined();
  });

  it.each<[string, unknown, string]>([
    [ssn, ['123-45-', '6789'], 'the parts of a list'],
    [ssn, { a: '123', b: { c: '-45-', d: 6789 } }, 'the fields of an object'],
    [ssn, { '123-45-': '6789' }, 'a name and its value'],
    ['rm -rf', { argv: ['rm', '-rf', '/'] }, 'the words of a command'],
  ])('%s is found across strings in arguments alone: %#, %s', (pattern, value) => {
    expect(find(pattern, value, 'arguments')).toBeDefined();
    expect(find(pattern, value, 'result')).toBeUndefined();
  });

  it('is found deeper than anything reads, or the text does not pass', () => {
    const deep = (depth: number) => `${'['.repeat(depth)}"123-45-6789"${']'.repeat(depth)}`;
    expect(find(ssn, deep(500), 'result')).toBeDefined();
    expect(findPatterns([RE2JS.compile(ssn)], deep(500_000), 'result')[0]).toBeDefined();
  });

  it.each<[string, string, string]>([
    ['pin 47\u200b11', '[redacted]', 'with an invisible character'],
    ['pin ４７１１', '[redacted]', 'in full-width digits'],
    ['pin 4711 … done', 'pin [redacted] … done', 'beside characters that have another form'],
    ['4711 and 47\u200b11', '[redacted]', 'and a hidden one beside it'],
  ])('of a number takes %j out, %j is left: %s', (text, expected) => {
    expect(redact(text, find('4711', text, 'message') ?? [])).toBe(expected);
  });

  it('reads a message as it is, also one that looks like JSON', () => {
    expect(find('\\\\u0031', '{"a":"\\u0031"}', 'message')).toBeDefined();
    expect(find('^1$', '{"a":"\\u0031"}', 'message')).toBeUndefined();
  });

  it('finds in every value what it finds in a string, however that is escaped and wherever it is', () => {
    const secret = fc.constantFrom('123-45-6789', 'x 123-45-6789', '123-45-6789\n');
    const around = (inner: fc.Arbitrary<unknown>) =>
      fc.oneof(
        inner.map((value) => [value, 'other']),
        inner.map((value) => ({ name: value, more: null })),
        inner.map((value) => ({ other: [true, value] })),
      );
    const placed = fc
      .nat(4)
      .chain((depth) => Array.from({ length: depth }).reduce<fc.Arbitrary<unknown>>((inner) => around(inner), secret));
    fc.assert(
      fc.property(placed, (value) => {
        if (typeof value === 'string') return;
        for (const text of [JSON.stringify(value), escaped(value)]) {
          expect(find(ssn, text, 'arguments')).toBeDefined();
          expect(JSON.stringify(JSON.parse(redacted(ssn, text)))).not.toMatch(/6789/);
        }
      }),
    );
  });
});

describe('a redacted result', () => {
  it.each<[string, unknown, unknown, string]>([
    [ssn, { a: 'id\n123-45-6789.', b: 'fine' }, { a: 'id\n[redacted].', b: 'fine' }, 'only the place, and the rest stays as it was'],
    ['4711', { pin: 4711, ok: true, none: null }, { pin: '[redacted]', ok: true, none: null }, 'a number becomes a text'],
    ['key.', { key1: 1, key2: 2 }, { '[redacted]': 1, '[redacted] 2': 2 }, 'two names stay two'],
    [ssn, { body: '{"n":"\\u0031\\u0032\\u0033-45-6789"}' }, { body: '[redacted]' }, 'a string that hides it in escapes goes as a whole'],
  ])('by %s of %j is %j: %s', (pattern, value, expected) => {
    expect(JSON.parse(redacted(pattern, value))).toEqual(expected);
  });

  it('goes as a whole if the pattern is about its JSON', () => {
    expect(redacted('"a":"x"', { a: 'x' })).toBe('[redacted]');
  });

  it('that is no JSON is a text', () => {
    expect(redacted(ssn, 'it is 123-45-6789.')).toBe('it is [redacted].');
  });
});
