// What may be forgotten: everything of a deleted session, and the traces of work that ended long ago. In small transactions.
import type { Body, ReadQuery } from '../store/contract.ts';
import { nextHead } from './deliver.ts';
import type { EngineCommand, Tx } from './feed.ts';

const rowsAtOnce = 200;

/** Removes a little of what is due and answers how much; call until it says 0. Never touches a run with something open. */
export const purgeSome: EngineCommand<{ now: number; keepMs: number }, number> = {
  name: 'purge',
  *body(t, { now, keepMs }) {
    const gone = yield* t.one<{ pk: number }>(
      `SELECT pk FROM sessions WHERE state = 'deleted' AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.session_pk = sessions.pk AND ended_at IS NULL)
       AND NOT EXISTS (SELECT 1 FROM exchanges WHERE tgt_session_pk = sessions.pk AND end_reason IS NULL)
       AND NOT EXISTS (SELECT 1 FROM deliveries WHERE deliveries.session_pk = sessions.pk AND deliveries.state = 'sending') ORDER BY pk LIMIT 1`,
    );
    const purged = gone ? yield* purgeSession(t, gone.pk) : 0;
    if (purged > 0 || keepMs === Infinity) return purged;
    const before = now - keepMs;
    return (
      (yield* purgeFeed(t, before)) +
      (yield* purgeRuns(t, before)) +
      (yield* purgeExchanges(t, before)) +
      (yield* purgeDeliveries(t, before))
    );
  },
};

/** A deleted session's text goes first; its row goes last, when nothing points to it any more. */
function* purgeSession(t: Tx, pk: number): Body<number> {
  for (const table of ['entries', 'feed']) {
    const column = table === 'feed' ? 'pos' : 'pk';
    const { changes } = yield* t.run(
      `DELETE FROM ${table} WHERE ${column} IN (SELECT ${column} FROM ${table} WHERE session_pk = ? LIMIT ?)`,
      pk,
      rowsAtOnce,
    );
    if (changes > 0) return changes;
  }
  const deliveries = yield* t.all<{ pk: number; dest_key: string; head: number }>(
    'SELECT pk, dest_key, head FROM deliveries WHERE session_pk = ? LIMIT ?',
    pk,
    rowsAtOnce,
  );
  for (const delivery of deliveries) {
    yield* t.run('DELETE FROM deliveries WHERE pk = ?', delivery.pk);
    if (delivery.head === 1) yield* nextHead(t, delivery.dest_key);
  }
  if (deliveries.length > 0) return deliveries.length;
  const runs = yield* t.all<{ pk: number }>('SELECT pk FROM runs WHERE session_pk = ? LIMIT ?', pk, rowsAtOnce);
  if (runs.length > 0) return yield* forgetRuns(t, runs);
  const { changes } = yield* t.run(
    'DELETE FROM exchanges WHERE pk IN (SELECT pk FROM exchanges WHERE tgt_session_pk = ? LIMIT ?)',
    pk,
    rowsAtOnce,
  );
  if (changes > 0) return changes;
  yield* t.run('INSERT INTO forgets (session_pk) VALUES (?)', pk);
  return (yield* t.run('DELETE FROM sessions WHERE pk = ?', pk)).changes;
}

/** Purged sessions whose words are still in the search index, a few at a time. */
export const toForget: ReadQuery<object, number[]> = {
  name: 'to forget',
  *body(t) {
    const rows = yield* t.all<{ session_pk: number }>('SELECT session_pk FROM forgets ORDER BY session_pk LIMIT ?', rowsAtOnce);
    return rows.map((row) => row.session_pk);
  },
};

/** Written after the index has let go of them, so that a crash before only means that it is asked again. */
export const forgotten: EngineCommand<{ sessionPks: number[] }, void> = {
  name: 'forgotten',
  *body(t, { sessionPks }) {
    for (const pk of sessionPks) yield* t.run('DELETE FROM forgets WHERE session_pk = ?', pk);
  },
};

/** Oldest first, so that a cursor that is too old is seen to be: what is left is always the end of the feed. */
function* purgeFeed(t: Tx, before: number): Body<number> {
  const newest = yield* t.one<{ pos: number }>('SELECT max(pos) AS pos FROM feed');
  const old = yield* t.all<{ pos: number; at: number }>('SELECT pos, at FROM feed ORDER BY pos LIMIT ?', rowsAtOnce);
  const stop = old.findIndex((row) => row.at >= before || row.pos === newest?.pos);
  const last = (stop < 0 ? old : old.slice(0, stop)).at(-1);
  return last ? (yield* t.run('DELETE FROM feed WHERE pos <= ?', last.pos)).changes : 0;
}

/** An idempotency key stays valid as long as its run, so they go together. */
function* purgeRuns(t: Tx, before: number): Body<number> {
  const old = yield* t.all<{ pk: number }>(
    `SELECT pk FROM runs WHERE ended_at < ?
     AND NOT EXISTS (SELECT 1 FROM exchanges JOIN exchange_turns ON exchange_pk = exchanges.pk WHERE exchange_turns.run_pk = runs.pk AND end_reason IS NULL)
     AND NOT EXISTS (SELECT 1 FROM waits WHERE target_run_pk = runs.pk)
     ORDER BY ended_at LIMIT ?`,
    before,
    rowsAtOnce,
  );
  return yield* forgetRuns(t, old);
}

function* forgetRuns(t: Tx, runs: { pk: number }[]): Body<number> {
  for (const { pk } of runs) {
    for (const table of ['tool_calls', 'idempotency', 'inputs', 'exchange_turns', 'offers'])
      yield* t.run(`DELETE FROM ${table} WHERE run_pk = ?`, pk);
    yield* t.run('DELETE FROM runs WHERE pk = ?', pk);
  }
  return runs.length;
}

function* purgeExchanges(t: Tx, before: number): Body<number> {
  return (yield* t.run(
    'DELETE FROM exchanges WHERE pk IN (SELECT pk FROM exchanges WHERE end_reason IS NOT NULL AND at < ? LIMIT ?)',
    before,
    rowsAtOnce,
  )).changes;
}

function* purgeDeliveries(t: Tx, before: number): Body<number> {
  const { changes } = yield* t.run(
    `DELETE FROM deliveries WHERE pk IN (SELECT pk FROM deliveries WHERE state IN ('sent', 'failed', 'dead') AND first_at < ? ORDER BY first_at LIMIT ?)`,
    before,
    rowsAtOnce,
  );
  return changes;
}
