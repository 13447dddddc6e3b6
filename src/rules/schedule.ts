// When work is due: `every 10m`, `cron 0 9 * * 1 Europe/Berlin`, `at 2026-12-24T18:00:00+01:00` → the next time after a given one.
import { Cron } from 'croner';
import { parseDuration } from '../durations.ts';

export type Schedule =
  | { kind: 'every'; everyMs: number }
  | { kind: 'cron'; expression: string; timeZone: string }
  | { kind: 'at'; atMs: number };

export type ParsedSchedule = { ok: true; schedule: Schedule } | { ok: false; why: string };

const dayMs = 24 * 3_600_000;
/** A wall-clock time without an offset is read in the time zone that follows it, else in `timeZone`. */
export function parseSchedule(text: string, timeZone = 'UTC'): ParsedSchedule {
  const words = text.trim().split(/\s+/);
  const kind = words.shift()?.toLowerCase();
  if (kind === 'every') return parseEvery(words);
  if (kind === 'cron') return parseCron(words, timeZone);
  if (kind === 'at') return parseAt(words, timeZone);
  return fail(`schedule ${quote(text)} must begin with "every", "cron" or "at"; for example "every 10m"`);
}

function parseEvery(words: string[]): ParsedSchedule {
  const everyMs = words.length === 1 ? parseDuration(words[0]!.toLowerCase()) : undefined;
  if (everyMs === undefined)
    return fail(
      `duration ${quote(words.join(' '))} is not valid; write a number and a unit (ms, s, m, h, d, w), for example "10m" or "1h30m"`,
    );
  if (everyMs < 1_000) return fail('schedule "every" must be at least 1s apart');
  return { ok: true, schedule: { kind: 'every', everyMs } };
}

function parseCron(words: string[], timeZone: string): ParsedSchedule {
  const last = words.at(-1) ?? '';
  const named = /[a-z]{2}/i.test(last) && (last.includes('/') || isTimeZone(last));
  const zone = named ? last : timeZone;
  const expression = (named ? words.slice(0, -1) : words).join(' ');
  const fields = named ? words.length - 1 : words.length;
  if (!isTimeZone(zone)) return fail(`time zone ${quote(zone)} is not known; write one like "Europe/Berlin" or "UTC"`);
  if (fields !== 5 && fields !== 6)
    return fail(`cron ${quote(expression)} has ${fields} fields; it needs 5 (minute hour day month weekday), or 6 with seconds first`);
  try {
    const cron = new Cron(expression, { timezone: zone });
    if (!cron.nextRun(new Date(0))) return fail(`cron ${quote(expression)} never comes due`);
  } catch (thrown) {
    return fail(
      `cron ${quote(expression)} is not valid: ${thrown instanceof Error ? thrown.message.replace(/^CronPattern: /, '') : String(thrown)}`,
    );
  }
  return { ok: true, schedule: { kind: 'cron', expression, timeZone: zone } };
}

function parseAt(words: string[], timeZone: string): ParsedSchedule {
  const [date = '', ...rest] = words
    .join(' ')
    .replace(/^(\d{4}-\d{2}-\d{2}) (\d)/, '$1T$2')
    .split(' ');
  const shape = /^(\d{4}-\d{2}-\d{2})T(\d{2}:\d{2}(?::\d{2})?)(z|[+-]\d{2}:?\d{2})?$/i.exec(date);
  const example = 'for example "at 2026-12-24 18:00 Europe/Berlin"';
  if (!shape || rest.length > 1) return fail(`time ${quote(words.join(' '))} is not a date and time; ${example}`);
  const [, day, clock, offset] = shape;
  const time = clock!.length === 5 ? `${clock}:00` : clock!;
  const zone = rest[0] ?? timeZone;
  if (offset && rest.length > 0) return fail(`time ${quote(words.join(' '))} has both an offset and a time zone; give one`);
  if (!isTimeZone(zone)) return fail(`time zone ${quote(zone)} is not known; write one like "Europe/Berlin" or "UTC"`);
  // Date rolls 31 February over to March, but it is surely a mistake, so it is an error here.
  const written = new Date(`${day}T${time}Z`);
  if (Number.isNaN(written.getTime()) || written.getUTCFullYear() < 1970 || !written.toISOString().startsWith(`${day}T${time}`))
    return fail(`time ${quote(words.join(' '))} does not exist; ${example}`);
  if (offset) {
    const atMs = new Date(`${day}T${time}${offset.toUpperCase()}`).getTime();
    return Number.isNaN(atMs) ? fail(`offset ${quote(offset)} does not exist; ${example}`) : { ok: true, schedule: { kind: 'at', atMs } };
  }

  const atMs = instant(`${day}T${time}`, zone);
  // When clocks go forward an hour is left out; a time in it never comes.
  if (atMs === undefined) return fail(`time ${quote(words.join(' '))} does not exist in ${zone}: clocks go forward then`);
  return { ok: true, schedule: { kind: 'at', atMs } };
}

/**
 * The next due time strictly after `afterMs`, or undefined when there is none. `every` counts from `anchorMs`, so that a late
 * or missed run does not move the ones after it.
 */
export function nextDue(schedule: Schedule, afterMs: number, anchorMs: number): number | undefined {
  switch (schedule.kind) {
    case 'every': {
      const periods = Math.floor((afterMs - anchorMs) / schedule.everyMs) + 1;
      return anchorMs + Math.max(1, periods) * schedule.everyMs;
    }
    case 'at':
      return schedule.atMs > afterMs ? schedule.atMs : undefined;
    case 'cron':
      return new Cron(schedule.expression, { timezone: schedule.timeZone }).nextRun(new Date(afterMs))?.getTime();
  }
}

function isTimeZone(name: string): boolean {
  try {
    return new Intl.DateTimeFormat('en', { timeZone: name }).resolvedOptions().timeZone !== '';
  } catch {
    return false;
  }
}

/** The moment of a local time in a zone: the first of two when clocks go back, none when they skip it. */
function instant(wallTime: string, timeZone: string): number | undefined {
  const written = Date.parse(`${wallTime}Z`);
  for (const near of [written - dayMs, written + dayMs]) {
    const offset = clockAt(near, timeZone) - near;
    if (clockAt(written - offset, timeZone) === written) return written - offset;
  }
  return undefined;
}

/** The local time of a zone at a moment, as if it were UTC. */
function clockAt(ms: number, timeZone: string): number {
  const local = new Intl.DateTimeFormat('sv-SE', { timeZone, dateStyle: 'short', timeStyle: 'medium' }).format(ms);
  return Date.parse(`${local.replace(/\s+/, 'T')}Z`);
}

function fail(why: string): ParsedSchedule {
  return { ok: false, why };
}

const quote = (text: string) => JSON.stringify(text.slice(0, 200));
