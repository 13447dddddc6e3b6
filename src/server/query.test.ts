import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { InterlaneError } from '../errors.ts';
import { readQuery } from './query.ts';

const schema = z.strictObject({
  limit: z.int().min(1).optional(),
  follow: z.boolean().optional(),
  archived: z.union([z.boolean(), z.literal('all')]).optional(),
  kinds: z.array(z.enum(['main', 'group'])).optional(),
  label: z.string().optional(),
});
const read = (query: string) => readQuery(schema, new URLSearchParams(query));

describe('a query', () => {
  it.each([
    ['', {}],
    ['limit=7', { limit: 7 }],
    ['follow=1', { follow: true }],
    ['follow=false', { follow: false }],
    ['archived=true', { archived: true }],
    ['archived=all', { archived: 'all' }],
    ['kinds=main,group', { kinds: ['main', 'group'] }],
    ['kinds=main&kinds=group', { kinds: ['main', 'group'] }],
    ['label=7', { label: '7' }],
    ['label=true', { label: 'true' }],
    ['label=a%20b,c', { label: 'a b,c' }],
  ])('%s means %j', (query, meant) => {
    expect(read(query)).toEqual(meant);
  });

  it.each([
    ['limit=', 'no number'],
    ['limit=0x10', 'no number'],
    ['limit=-1', 'no number'],
    ['limit=1.5', 'not whole'],
    ['limit=1&limit=2', 'two where one is meant'],
    ['follow=yes', 'no switch'],
    ['kinds=', 'no kind'],
    ['constructor=1', 'not a field'],
    ['__proto__=1', 'not a field'],
  ])('%s is refused: %s', (query) => {
    expect(() => read(query)).toThrow(InterlaneError);
  });
});
