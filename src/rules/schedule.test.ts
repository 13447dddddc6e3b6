// Schedules: strict durations, cron by the wall clock of its time zone, one point in time; the next due time is always later.
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { nextDue, parseSchedule, type Schedule } from './schedule.ts';

const minute = 60_000;
const hour = 60 * minute;

function read(text: string, timeZone?: string): Schedule {
  const parsed = parseSchedule(text, timeZone);
  if (!parsed.ok) throw new Error(parsed.why);
  return parsed.schedule;
}

/** The next due times after a moment, one after the other. */
function dueTimes(schedule: Schedule, after: string, count: number): string[] {
  const times: string[] = [];
  for (let at: number | undefined = Date.parse(after); times.length < count;) {
    at = nextDue(schedule, at, 0);
    if (at === undefined) break;
    times.push(new Date(at).toISOString().replace(':00.000Z', 'Z'));
  }
  return times;
}

describe('parseSchedule', () => {
  it.each<[string, Schedule, string]>([
    ['every 10m', { kind: 'every', everyMs: 10 * minute }, 'a period'],
    [' EVERY  1H30M ', { kind: 'every', everyMs: 90 * minute }, 'case and space do not count'],
    ['cron 0 9 * * 1 Europe/Berlin', { kind: 'cron', expression: '0 9 * * 1', timeZone: 'Europe/Berlin' }, 'with its time zone'],
    ['cron 0 9 * * mon', { kind: 'cron', expression: '0 9 * * mon', timeZone: 'Asia/Tokyo' }, 'without one, in the given zone'],
    ['cron 30 0 9 * * *', { kind: 'cron', expression: '30 0 9 * * *', timeZone: 'Asia/Tokyo' }, 'six fields begin with seconds'],
    ['at 2026-12-24T18:00:00+01:00', { kind: 'at', atMs: Date.UTC(2026, 11, 24, 17) }, 'with an offset'],
    ['at 2026-12-24T17:00Z', { kind: 'at', atMs: Date.UTC(2026, 11, 24, 17) }, 'without seconds'],
    ['at 2026-12-24 18:00 Europe/Berlin', { kind: 'at', atMs: Date.UTC(2026, 11, 24, 17) }, 'by a wall clock in winter'],
    ['at 2026-07-01 18:00 Europe/Berlin', { kind: 'at', atMs: Date.UTC(2026, 6, 1, 16) }, 'by a wall clock in summer'],
    ['at 2026-10-25 02:30 Europe/Berlin', { kind: 'at', atMs: Date.UTC(2026, 9, 25, 0, 30) }, 'the first of two when clocks go back'],
    ['cron 0 9 * * 1 GMT', { kind: 'cron', expression: '0 9 * * 1', timeZone: 'GMT' }, 'a zone without a slash'],
    ['at 2026-12-24 18:00', { kind: 'at', atMs: Date.UTC(2026, 11, 24, 9) }, 'without a zone, in the given one'],
  ])('reads %j as %j: %s', (text, expected) => {
    expect(read(text, 'Asia/Tokyo')).toEqual(expected);
  });

  it.each([
    ['', 'empty'],
    ['10m', 'no kind'],
    ['hourly', 'an unknown kind'],
    ['every', 'no duration'],
    ['every 10', 'no unit'],
    ['every 10m banana', 'more than a duration'],
    ['every 500ms', 'closer than a second'],
    ['cron', 'no fields'],
    ['cron * * * *', 'four fields'],
    ['cron 0 0 9 * * * 2026', 'seven fields'],
    ['cron 61 * * * *', 'no such minute'],
    ['cron 0 0 30 2 *', 'a day that never comes'],
    ['cron 0 9 * * 1 Mars/Olympus', 'no such time zone'],
    ['at', 'no time'],
    ['at tomorrow', 'not a date'],
    ['at 2026-12-24', 'no time of day'],
    ['at 2026-02-31 10:00', 'no such day'],
    ['at 2026-12-24 24:30', 'no such hour'],
    ['at 2026-12-24 18:00 Mars/Olympus', 'no such time zone'],
    ['at 2026-12-24T18:00Z Europe/Berlin', 'an offset and a time zone'],
    ['at 2026-12-24T18:00Z or later', 'more than a time'],
    ['at 2026-12-24T18:00:00+99:99', 'no such offset'],
    ['at 0099-01-01 00:00', 'long ago'],
    ['at 2026-03-29 02:30 Europe/Berlin', 'an hour that summer time leaves out'],
  ])('refuses %j: %s', (text) => {
    expect(parseSchedule(text)).toEqual({ ok: false, why: expect.stringMatching(/./) });
  });
});

describe('nextDue', () => {
  it.each([
    ['0 9 * * *', '2026-03-27T12:00Z', ['2026-03-28T08:00Z', '2026-03-29T07:00Z'], 'the wall clock counts when summer begins'],
    ['0 9 * * *', '2026-10-23T12:00Z', ['2026-10-24T07:00Z', '2026-10-25T08:00Z'], 'and when it ends'],
    ['30 2 * * *', '2026-10-24T12:00Z', ['2026-10-25T00:30Z', '2026-10-26T01:30Z'], 'an hour that comes twice is due once'],
    [
      '0 * * * *',
      '2026-10-24T23:30Z',
      ['2026-10-25T00:00Z', '2026-10-25T01:00Z', '2026-10-25T02:00Z'],
      'every hour is, also both of those',
    ],
    ['0 9 * * 1', '2026-11-16T08:00Z', ['2026-11-23T08:00Z'], 'the due time itself is not after itself'],
  ])('of cron %s in Berlin after %s is %j: %s', (expression, after, expected) => {
    expect(dueTimes(read(`cron ${expression} Europe/Berlin`), after, expected.length)).toEqual(expected);
  });

  it('of a time that the clock skips in spring still comes once that day', () => {
    const times = dueTimes(read('cron 30 2 * * * Europe/Berlin'), '2026-03-28T12:00Z', 3);
    expect(times.map((time) => time.slice(0, 10))).toEqual(['2026-03-29', '2026-03-30', '2026-03-31']);
  });

  it('of a point in time is that point, until it has come', () => {
    const schedule = read('at 2026-12-24T18:00Z');
    const at = Date.UTC(2026, 11, 24, 18);
    expect([at - 1, at, at + 1].map((after) => nextDue(schedule, after, 0))).toEqual([at, undefined, undefined]);
  });

  it('of a cron is strictly after, and nothing is due in between', () => {
    const expression = fc.constantFrom('*/30 * * * *', '30 2 * * *', '0 9 * * 1', '15 0,12 1 * *', '*/20 * * * * *');
    const zone = fc.constantFrom('UTC', 'Europe/Berlin', 'America/New_York', 'Australia/Lord_Howe', 'Asia/Kathmandu');
    const time = fc.integer({ min: Date.UTC(2026, 0), max: Date.UTC(2028, 0) });
    fc.assert(
      fc.property(expression, zone, time, (fields, timeZone, after) => {
        const schedule = read(`cron ${fields} ${timeZone}`);
        const due = nextDue(schedule, after, 0)!;
        expect(due).toBeGreaterThan(after);
        expect(nextDue(schedule, Math.max(after, due - 1), 0)).toBe(due);
      }),
    );
  });

  it('of a period is the next point of the grid that its anchor began, however late the last run was', () => {
    const time = fc.integer({ min: 0, max: Date.UTC(2100, 0) });
    const everyMs = fc.integer({ min: 1_000, max: 400 * 24 * hour });
    fc.assert(
      fc.property(everyMs, time, time, (period, anchor, after) => {
        const due = nextDue({ kind: 'every', everyMs: period }, after, anchor)!;
        expect(due).toBeGreaterThan(after);
        expect((due - anchor) % period).toBe(0);
        expect(due - period).toBeLessThanOrEqual(Math.max(after, anchor));
      }),
    );
  });
});
