// The walks of docs/design.md name code that exists, and the longest one stays short enough to read.
import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { linesOf, walksOf } from './hops.ts';

const walks = walksOf(readFileSync('docs/design.md', 'utf8'));
const sum = (name: string) => walks.get(name)!.reduce((total, hop) => total + Number(linesOf(hop)), 0);

describe('the walks of docs/design.md', () => {
  it('are the four', () => {
    expect([...walks.keys()]).toEqual([
      'A chat message over the websocket',
      'A `sessions_send` that waits, with reply-back and announce',
      "A guest's turn",
      'A follow over HTTP',
    ]);
  });

  it.each([...walks])('%s: every hop is there', (_, hops) => {
    expect(hops.map(linesOf).filter((lines) => typeof lines === 'string')).toEqual([]);
  });

  it('explain a sessions_send in at most 1,800 lines', () => {
    expect(sum('A `sessions_send` that waits, with reply-back and announce')).toBeLessThanOrEqual(1_800);
  });
});

describe('a hop', () => {
  it('that names a file or a declaration which is not there is found', () => {
    expect(linesOf({ file: 'src/nowhere.ts', names: [] })).toBe('src/nowhere.ts does not exist');
    expect(linesOf({ file: 'src/engine/queue.ts', names: ['nothing'] })).toBe('src/engine/queue.ts has no nothing');
  });

  it('is counted from its first to its last line', () => {
    expect(linesOf({ file: 'src/engine/ids.ts', names: ['derivedId'] })).toBe(3);
  });
});
