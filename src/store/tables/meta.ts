// The `meta` table: facts about the store itself. `timeline` is the secret that cursors are written with; a restore ends it.
import { hash } from 'node:crypto';
import type { Body, Command, Reading, Writing } from '../contract.ts';

/** The secret of the store's timeline. A store without one begins a timeline with `fresh`. */
export const openTimeline: Command<{ fresh: string }, string> = {
  name: 'open timeline',
  *body(t, { fresh }) {
    yield* t.run(`INSERT INTO meta (key, value) VALUES ('timeline', ?) ON CONFLICT DO NOTHING`, fresh);
    return (yield* t.one<{ value: string }>(`SELECT value FROM meta WHERE key = 'timeline'`))!.value;
  },
};

/** A name of the timeline that does not give its secret away, for what is kept outside the store. */
export function* timelineName(t: Reading): Body<string> {
  const row = yield* t.one<{ value: string }>(`SELECT value FROM meta WHERE key = 'timeline'`);
  return row ? hash('sha256', `name of timeline ${row.value}`, 'base64url') : '';
}

/** The wall clock after due times were moved along with it, and the newest event then: that event has a time of the old clock. */
export function* noteClock(t: Writing, clock: { pos: number; at: number }): Body<void> {
  yield* t.run(
    `INSERT INTO meta (key, value) VALUES ('clock', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value`,
    JSON.stringify(clock),
  );
}

export function* notedClock(t: Reading): Body<{ pos: number; at: number } | undefined> {
  const row = yield* t.one<{ value: string }>(`SELECT value FROM meta WHERE key = 'clock'`);
  return row && (JSON.parse(row.value) as { pos: number; at: number });
}

/** Changes a row, to find out whether the store can. */
export const probeStore: Command<{ value: string }, void> = {
  name: 'probe store',
  *body(t, { value }) {
    yield* t.run(`INSERT INTO meta (key, value) VALUES ('probe', ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value`, value);
  },
};

/** What comes next is another history, and a cursor of the one before must not be read in it. */
export function* endTimeline(t: Writing): Body<void> {
  yield* t.run(`DELETE FROM meta WHERE key = 'timeline'`);
  yield* t.run(`INSERT INTO meta (key, value) VALUES ('from backup', '1') ON CONFLICT DO NOTHING`);
}

/** Whether this state was restored and what was open in it is not settled yet. */
export function* isRestored(t: Reading): Body<boolean> {
  return (yield* t.one(`SELECT 1 AS found FROM meta WHERE key = 'from backup'`)) !== undefined;
}

export function* restoredIsSettled(t: Writing): Body<void> {
  yield* t.run(`DELETE FROM meta WHERE key = 'from backup'`);
}
