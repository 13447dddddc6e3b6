import { assert, property, string } from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { accountId, agentId, isIdToken } from './ids.ts';

const cases: [raw: string, expected: string, why: string][] = [
  ['', 'main', 'blank is the main agent'],
  ['   ', 'main', 'blank is the main agent'],
  ['Work', 'work', 'lower case'],
  ['my agent', 'my-agent', 'other characters become one dash'],
  ['  my!!  agent ', 'my-agent', 'a run of them becomes one dash'],
  ['--x--', '--x--', 'what already fits is kept'],
  ['!x!', 'x', 'dashes made at the ends are dropped'],
  ['日本', 'main', 'nothing left is blank'],
  ['a'.repeat(70), 'a'.repeat(64), 'at most 64'],
  [`${'a'.repeat(63)} b`, 'a'.repeat(63), 'no dash is left where it was cut'],
];

test.each(cases)('agent id %j becomes %j: %s', (raw, expected) => {
  expect(agentId(raw)).toBe(expected);
});

describe('ids', () => {
  it('are always safe tokens', () => {
    assert(property(string({ unit: 'binary' }), (raw) => isIdToken(agentId(raw)) && isIdToken(accountId(raw))));
  });

  it('are not changed by being read again', () => {
    assert(property(string({ unit: 'binary' }), (raw) => agentId(agentId(raw)) === agentId(raw)));
  });

  it('default to "default" for accounts', () => {
    expect(accountId('')).toBe('default');
  });
});
