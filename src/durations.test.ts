import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { parseDuration } from './durations.ts';

const minute = 60_000;
const hour = 60 * minute;

describe('parseDuration', () => {
  it.each([
    ['90s', 90_000],
    ['10m', 10 * minute],
    ['1h30m', 90 * minute],
    ['1.5h', 90 * minute],
    ['1w2d3h4m5s6ms', (9 * 24 + 3) * hour + 4 * minute + 5_006],
    ['250ms', 250],
  ])('reads %j as %i ms', (text, expected) => {
    expect(parseDuration(text)).toBe(expected);
  });

  it.each([
    ['', 'empty'],
    ['10', 'no unit'],
    ['m', 'no number'],
    ['-5m', 'negative'],
    ['+5m', 'signed'],
    ['0s', 'no time at all'],
    ['10m banana', 'more than a duration'],
    ['10m 30s', 'a space inside'],
    [' 10m', 'a space before'],
    ['30m1h', 'largest unit first'],
    ['1h1h', 'each unit once'],
    ['10x', 'an unknown unit'],
    ['10mo', 'a letter too many'],
    ['1e3s', 'another way to write numbers'],
    ['.5h', 'no digit before the point'],
    ['1,5h', 'a comma'],
    ['99999999w', 'longer than ten years'],
  ])('refuses %j: %s', (text) => {
    expect(parseDuration(text)).toBeUndefined();
  });

  it('adds up its parts', () => {
    fc.assert(
      fc.property(fc.nat(100), fc.nat(100), fc.integer({ min: 1, max: 100 }), (h, m, s) => {
        expect(parseDuration(`${h}h${m}m${s}s`)).toBe(h * hour + m * minute + s * 1_000);
      }),
    );
  });
});
