// Writing to the feed and to transcripts, inside a command: the only place that appends entries and numbers events.
import type { FeedEvent } from '../protocol/event.ts';
import type { RunClass, RunState } from '../protocol/run.ts';
import type { Provenance } from '../protocol/transcript.ts';
import type { Body, Command, Writing } from '../store/contract.ts';
import type { EntryRow, SessionRow } from '../store/rows.ts';
import { happened, messageOf, type EntryBody, type FeedDetail } from '../store/views.ts';

export type Tx = Writing<FeedEvent>;
export type EngineCommand<Args, R> = Command<Args, R, FeedEvent>;

export interface NewEntry {
  id: string;
  role: EntryRow['role'];
  text: string;
  /** What is not plain text: tool calls, whose result it is. */
  body?: EntryBody | undefined;
  taint: number;
  provenance?: Provenance | undefined;
  runPk?: number | undefined;
  step?: number | undefined;
  runId?: string | undefined;
}

/** I4. The next `seq` of the session, without a gap: the counter and the entry are written together. I8: taint only rises. */
export function* appendEntry(t: Tx, session: SessionRow, entry: NewEntry, now: number): Body<number> {
  const seq = session.next_seq;
  const body = entry.body ? JSON.stringify(entry.body) : null;
  const provenance = entry.provenance ? JSON.stringify(entry.provenance) : null;
  const { lastId } = yield* t.run(
    'INSERT INTO entries (session_pk, seq, id, run_pk, step, role, taint, provenance, text, body, at) VALUES (?,?,?,?,?,?,?,?,?,?,?)',
    session.pk,
    seq,
    entry.id,
    entry.runPk ?? null,
    entry.step ?? null,
    entry.role,
    entry.taint,
    provenance,
    entry.text,
    body,
    now,
  );
  const risen = entry.taint > session.taint;
  session.next_seq = seq + 1;
  session.taint = Math.max(session.taint, entry.taint);
  session.level = Math.max(session.level, entry.taint);
  session.last_at = now;
  const pos = yield* addFeed(t, session, 'entry', lastId, null, now);
  session.last_pos = pos;
  yield* t.run(
    `UPDATE sessions SET next_seq = ?, taint = ?, level = ?, last_pos = ?, last_at = ?, policy_rev = policy_rev + ?, aborted_last = ?, total_tokens = ? WHERE pk = ?`,
    session.next_seq,
    session.taint,
    session.level,
    pos,
    now,
    risen ? 1 : 0,
    session.aborted_last,
    session.total_tokens,
    session.pk,
  );
  const row: EntryRow = {
    pk: lastId,
    session_pk: session.pk,
    seq,
    id: entry.id,
    run_pk: entry.runPk ?? null,
    step: entry.step ?? null,
    role: entry.role,
    taint: entry.taint,
    provenance,
    text: entry.text,
    body,
    at: now,
  };
  t.emit({ ...happened(session, pos, now), kind: 'entry', message: messageOf(row, entry.runId) });
  return seq;
}

export function* noteRun(
  t: Tx,
  session: SessionRow,
  run: { pk: number; id: string; class: RunClass },
  state: RunState,
  now: number,
  error?: string,
): Body<number> {
  const detail = error === undefined ? undefined : { error };
  const pos = yield* addFeed(t, session, 'run', run.pk, state, now, detail);
  t.emit({ ...happened(session, pos, now), kind: 'run', runId: run.id, class: run.class, state, ...detail });
  return pos;
}

export function* noteSession(
  t: Tx,
  session: SessionRow,
  change: 'created' | 'changed' | 'reset' | 'archived' | 'deleted',
  now: number,
): Body<number> {
  const pos = yield* addFeed(t, session, 'session', session.pk, change, now);
  session.last_pos = pos;
  yield* t.run('UPDATE sessions SET last_pos = ? WHERE pk = ?', pos, session.pk);
  t.emit({ ...happened(session, pos, now), kind: 'session', change });
  return pos;
}

export function* noteExchange(
  t: Tx,
  session: SessionRow,
  exchange: { pk: number; id: string; turn: number },
  state: string,
  now: number,
  reason?: string,
): Body<void> {
  const detail = { turn: exchange.turn, ...(reason === undefined ? {} : { reason }) };
  const pos = yield* addFeed(t, session, 'exchange', exchange.pk, state, now, detail);
  t.emit({ ...happened(session, pos, now), kind: 'exchange', exchangeId: exchange.id, state, ...detail });
}

export function* noteDelivery(
  t: Tx,
  session: SessionRow,
  delivery: { pk: number; id: string; channel: string; recipient: string },
  state: string,
  now: number,
  error?: string,
): Body<void> {
  const { id: deliveryId, channel, recipient } = delivery;
  const detail = error === undefined ? undefined : { error };
  const pos = yield* addFeed(t, session, 'delivery', delivery.pk, state, now, detail);
  t.emit({ ...happened(session, pos, now), kind: 'delivery', deliveryId, state, channel, recipient, ...detail });
}

/** `detail` is what the event says beside its row and state, which move on; who reads the feed later is told the same. */
function* addFeed(
  t: Tx,
  session: SessionRow,
  kind: string,
  ref: number,
  state: string | null,
  now: number,
  detail?: FeedDetail,
): Body<number> {
  const { lastId } = yield* t.run(
    'INSERT INTO feed (session_pk, kind, ref_pk, state, detail, level, at) VALUES (?,?,?,?,?,?,?)',
    session.pk,
    kind,
    ref,
    state,
    detail === undefined ? null : JSON.stringify(detail),
    session.level,
    now,
  );
  return lastId;
}
