import { createHash } from 'node:crypto';
import * as fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { Cursors } from './cursor.ts';

/** Different at each call, and the same in each run of the tests. */
function chance(): (bytes: number) => Buffer {
  let calls = 0;
  return (bytes) => createHash('sha256').update(String(calls++)).digest().subarray(0, bytes);
}

const cursors = new Cursors('a secret', chance());
const largest = 2 ** 48 - 1;
const position = fc.oneof(fc.nat(1_000), fc.integer({ min: 0, max: largest }));

interface Way {
  kind: string;
  /** Kinds that read each other, at least as far as to say whose they are. */
  reads: string;
  write(from: Cursors, at: number): string;
  read(by: Cursors, text: string): unknown;
}

const thrown = (work: () => unknown): unknown => {
  try {
    return work();
  } catch (error) {
    return (error as { code: string }).code;
  }
};

const list = (kind: 'sessions' | 'runs'): Way => ({
  kind,
  reads: kind,
  write: (from, at) => from.page(kind, at),
  read: (by, text) => thrown(() => by.pagePosition(kind, text)),
});
const place = (kind: 'older' | 'newer', session: string): Way => ({
  kind: `${kind} in ${session}`,
  reads: kind,
  write: (from, at) => from.place(kind, session, at),
  read: (by, text) => by.seqOf(kind, session, text),
});
const feed: Way = { kind: 'feed', reads: 'feed', write: (from, at) => from.feed(at), read: (by, text) => by.feedPosition(text) };
const now: Way = { ...feed, kind: 'now', write: (from, at) => from.now(at) };
const ways = [feed, now, list('sessions'), list('runs'), place('older', 'one'), place('newer', 'one'), place('older', 'two')];

/** What the kinds answer to a text that none of them wrote. */
const isRefused = (answer: unknown) => answer === undefined || answer === 'INVALID_REQUEST';

describe.each(ways)('a cursor of the kind $kind', ({ write, read }) => {
  it('is read as the position it was written for', () => {
    fc.assert(
      fc.property(position, (at) => {
        expect(read(cursors, write(cursors, at))).toBe(at);
      }),
    );
  });

  it('is still read by a gateway that was started again', () => {
    expect(read(new Cursors('a secret', chance()), write(cursors, 7))).toBe(7);
  });

  it('means nothing on another timeline', () => {
    const other = new Cursors('another secret', chance());
    fc.assert(
      fc.property(position, (at) => {
        expect(read(other, write(cursors, at))).toSatisfy(isRefused);
      }),
    );
  });

  it('means nothing after any change of one character', () => {
    const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_';
    const text = write(cursors, 123_456);
    for (let index = 0; index < text.length; index++)
      for (const letter of alphabet) {
        const changed = text.slice(0, index) + letter + text.slice(index + 1);
        if (changed !== text) expect(read(cursors, changed)).toSatisfy(isRefused);
      }
    for (const changed of [text.slice(1), text.slice(0, -1), `${text}A`, `A${text}`, `${text}=`, ` ${text}`, `${text}\n`, text + text])
      expect(read(cursors, changed)).toSatisfy(isRefused);
  });

  it('cannot be made up', () => {
    const bytes = fc.uint8Array({ minLength: 16, maxLength: 24 }).map((made) => Buffer.from(made).toString('base64url'));
    fc.assert(
      fc.property(fc.oneof(fc.string(), bytes), (text) => {
        expect(read(cursors, text)).toSatisfy(isRefused);
      }),
    );
    for (const old of ['', '0', '1', 'zz', 'a1b2c3', '0190a1b2c3d4.5', '.', 'x.1']) expect(read(cursors, old)).toSatisfy(isRefused);
  });

  it('shows nothing of its position', () => {
    const adjacent = Array.from({ length: 2_000 }, (_, at) => Buffer.from(write(cursors, at), 'base64url'));
    let same = 0;
    for (const [index, bytes] of adjacent.entries()) {
      const next = adjacent[index + 1];
      if (next) for (let bit = 0; bit < bytes.length * 8; bit++) same += Number(bitOf(bytes, bit) === bitOf(next, bit));
    }
    // As many bits agree as of two random texts: half.
    expect(same / (adjacent[0]!.length * 8 * (adjacent.length - 1))).toBeCloseTo(0.5, 2);
    const texts = adjacent.map((bytes) => bytes.toString('base64url'));
    expect(new Set(texts).size).toBe(texts.length);
    // In the order of their texts, no run of positions rises for long.
    const order = texts.map((text, at) => ({ text, at })).toSorted((a, b) => (a.text < b.text ? -1 : 1));
    const rising = order.filter(({ at }, index) => index > 0 && at > order[index - 1]!.at).length;
    expect(Math.abs(rising / order.length - 0.5)).toBeLessThan(0.1);
  });
});

const bitOf = (bytes: Buffer, bit: number) => (bytes[bit >> 3]! >> (bit & 7)) & 1;

test('a cursor of one kind is not one of another', () => {
  for (const from of ways)
    for (const to of ways) {
      if (from.reads === to.reads) continue;
      expect(to.read(cursors, from.write(cursors, 5))).toSatisfy(isRefused);
    }
});

test('a place in another transcript is told from a text that is none', () => {
  const text = cursors.place('older', 'one', 5);
  expect(cursors.seqOf('older', 'one', text)).toBe(5);
  expect(cursors.seqOf('older', 'two', text)).toBe('elsewhere');
  expect(cursors.seqOf('newer', 'one', text)).toBeUndefined();
  expect(cursors.seqOf('older', 'one', 'nonsense')).toBeUndefined();
});

test('the block of a place "now" is not a cursor without its salt, nor with another', () => {
  const bytes = Buffer.from(cursors.now(5), 'base64url');
  expect(cursors.feedPosition(bytes.subarray(8).toString('base64url'))).toBeUndefined();
  const other = Buffer.from(cursors.now(5), 'base64url');
  expect(cursors.feedPosition(Buffer.concat([other.subarray(0, 8), bytes.subarray(8)]).toString('base64url'))).toBeUndefined();
});

test('two places "now" do not tell whether something happened between them', () => {
  const [first, second] = [cursors.now(5), cursors.now(5)];
  expect(first).not.toBe(second);
  expect([first, second].map((text) => cursors.followFrom(text))).toEqual([5, 5]);
  expect(cursors.feed(5)).toBe(cursors.feed(5));
});

test('following from a cursor that is not ours begins before everything', () => {
  expect(cursors.followFrom('zzzz')).toBeLessThan(0);
});

test('a list without a cursor begins at its start', () => {
  expect(cursors.pagePosition('sessions', undefined)).toBeUndefined();
});
