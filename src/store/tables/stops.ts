// The `stops` table: what was queued in a lane up to a run ends with a reason, a few at a time; none of it starts any more.
import type { Body, Reading, Writing } from '../contract.ts';
import type { StopRow } from '../rows.ts';

export function* insert(t: Writing, stop: StopRow): Body<void> {
  yield* t.run('INSERT INTO stops (lane, upto, reason) VALUES (?, ?, ?) ON CONFLICT DO NOTHING', stop.lane, stop.upto, stop.reason);
}

/** The oldest stop of a lane. */
export function firstIn(t: Reading, lane: string): Body<StopRow | undefined> {
  return t.one<StopRow>('SELECT * FROM stops WHERE lane = ? ORDER BY upto LIMIT 1', lane);
}

export function first(t: Reading): Body<StopRow | undefined> {
  return t.one<StopRow>('SELECT * FROM stops ORDER BY lane, upto LIMIT 1');
}

export function* remove(t: Writing, stop: StopRow): Body<void> {
  yield* t.run('DELETE FROM stops WHERE lane = ? AND upto = ?', stop.lane, stop.upto);
}
