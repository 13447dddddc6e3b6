// Appends entries to transcripts and events to the feed, inside a command. No other file does either.
import type { FeedEvent } from '../protocol/event.ts';
import type { RunClass, RunState } from '../protocol/run.ts';
import type { Provenance } from '../protocol/transcript.ts';
import type { Body, Command, FeedNote, Writing } from '../store/contract.ts';
import type { EntryRow, SessionRow } from '../store/rows.ts';
import * as entries from '../store/tables/entries.ts';
import * as sessions from '../store/tables/sessions.ts';
import { happened, messageOf, type EntryBody, type FeedDetail } from '../store/views.ts';

export type Tx = Writing;
export type EngineCommand<Args, R> = Command<Args, R>;

export interface NewEntry {
  id: string;
  role: EntryRow['role'];
  text: string;
  /** The parts that are not plain text, such as tool calls. */
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
  const row = yield* entries.insert(t, {
    session_pk: session.pk,
    seq,
    id: entry.id,
    run_pk: entry.runPk ?? null,
    step: entry.step ?? null,
    role: entry.role,
    taint: entry.taint,
    provenance: entry.provenance ? JSON.stringify(entry.provenance) : null,
    text: entry.text,
    body: entry.body ? JSON.stringify(entry.body) : null,
    at: now,
  });
  const risen = entry.taint > session.taint;
  session.next_seq = seq + 1;
  session.taint = Math.max(session.taint, entry.taint);
  session.level = Math.max(session.level, entry.taint);
  session.last_at = now;
  yield* sessions.appended(t, session, risen);
  t.note(noteOf(session, 'entry', row.pk, null, now), {
    ...happened(session, now),
    kind: 'entry',
    message: messageOf(row, entry.runId),
  });
  return seq;
}

export function noteRun(
  t: Tx,
  session: SessionRow,
  run: { pk: number; id: string; class: RunClass },
  state: RunState,
  now: number,
  error?: string,
): void {
  const detail = error === undefined ? undefined : { error };
  const event = { ...happened(session, now), kind: 'run' as const, runId: run.id, class: run.class, state, ...detail };
  t.note(noteOf(session, 'run', run.pk, state, now, detail), event);
}

export function noteSession(
  t: Tx,
  session: SessionRow,
  change: 'created' | 'changed' | 'reset' | 'archived' | 'deleted',
  now: number,
): void {
  t.note(noteOf(session, 'session', session.pk, change, now), { ...happened(session, now), kind: 'session', change });
}

export function noteExchange(
  t: Tx,
  session: SessionRow,
  exchange: { pk: number; id: string; turn: number },
  state: string,
  now: number,
  reason?: string,
): void {
  const detail = { turn: exchange.turn, ...(reason === undefined ? {} : { reason }) };
  const event = { ...happened(session, now), kind: 'exchange' as const, exchangeId: exchange.id, state, ...detail };
  t.note(noteOf(session, 'exchange', exchange.pk, state, now, detail), event);
}

export function noteDelivery(
  t: Tx,
  session: SessionRow,
  delivery: { pk: number; id: string; channel: string; recipient: string },
  state: string,
  now: number,
  error?: string,
): void {
  const { id: deliveryId, channel, recipient } = delivery;
  const detail = error === undefined ? undefined : { error };
  const event = { ...happened(session, now), kind: 'delivery' as const, deliveryId, state, channel, recipient, ...detail };
  t.note(noteOf(session, 'delivery', delivery.pk, state, now, detail), event);
}

/** `detail` keeps what the event says beside its row and state, because those change; a later reader of the feed gets the same event. */
function noteOf(
  session: SessionRow,
  kind: FeedEvent['kind'],
  refPk: number,
  state: string | null,
  at: number,
  detail?: FeedDetail,
): FeedNote {
  return {
    sessionPk: session.pk,
    kind,
    refPk,
    state,
    detail: detail === undefined ? null : JSON.stringify(detail),
    level: session.level,
    at,
    moves: kind === 'entry' || kind === 'session',
  };
}
