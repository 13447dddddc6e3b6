// Ending a run, in one transaction: its last entry, its waiters' results, its flows' next turns, its delivery, its lane.
import type { RunOutcome } from '../protocol/run.ts';
import type { Cut } from '../protocol/transcript.ts';
import type { Body } from '../store/contract.ts';
import type { RunRow, SessionRow } from '../store/rows.ts';
import * as calls from '../store/tables/tool-calls.ts';
import * as inputs from '../store/tables/inputs.ts';
import * as offers from '../store/tables/offers.ts';
import * as runs from '../store/tables/runs.ts';
import * as sessions from '../store/tables/sessions.ts';
import * as waits from '../store/tables/waits.ts';
import type { EntryBody } from '../store/views.ts';
import { stoppedCall } from '../wording.ts';
import { deliverReply, replyOf } from './deliver.ts';
import { appendEntry, noteRun, type Tx, type EngineCommand } from './feed.ts';
import { advanceFlows, type Kernel } from './flow.ts';
import { derivedId } from './ids.ts';
import { promote } from './queue.ts';
import { addToSession, recordResult, spentOf, tokensInUse, type Usage } from './step.ts';
import { answerWaiters } from './wait.ts';

export interface RunEnd {
  outcome: RunOutcome;
  /** The final text, or its beginning if the run was stopped. */
  text?: string | undefined;
  code?: string | undefined;
  error?: string | undefined;
  usage?: Usage | undefined;
  cut?: Cut | undefined;
  usedMs?: number | undefined;
  now: number;
}

/** What the caller has read already. */
interface Loaded {
  session?: SessionRow;
  loose?: runs.LooseEnds;
}

/** A reply may go to a channel, to another session, and into the result of a call. */
export const spoken = (text: string) => [
  { hook: 'PRE_OUTPUT' as const, text },
  { hook: 'PRE_CONTEXT_INJECTION' as const, text },
];

/** The reply exists, the waiters have it, and the next turn or delivery is there if and only if the run has ended. */
export function* endRun(t: Tx, kernel: Kernel, run: RunRow, end: RunEnd, loaded: Loaded = {}): Body<void> {
  const session = loaded.session ?? (yield* sessions.get(t, run.session_pk));
  yield* answerOpenCalls(t, run, session, end.now);
  const { state: was, parked_on: parkedOn, ready_pos: wasReady } = run;
  if (was !== 'queued') {
    session.aborted_last = end.outcome === 'aborted' ? 1 : 0;
    if (end.usage) {
      session.total_tokens = tokensInUse(session, end.usage);
      addToSession(session, end.usage);
    }
  }
  const reply = end.outcome === 'ok' ? (end.text ?? '') : '';
  const outgoing = run.deliver === 1 && reply !== '' ? replyOf(kernel.world, session, run, reply, end.now) : undefined;
  const replySeq = yield* appendReply(t, run, session, end, outgoing?.withheld ?? false);
  const error = end.error ?? null;
  const code = end.code ?? null;
  yield* runs.end(t, run.pk, {
    outcome: end.outcome,
    replySeq,
    code,
    error,
    usedMs: end.usedMs ?? 0,
    spent: end.usage ? spentOf(end.usage) : runs.nothingSpent,
    now: end.now,
  });
  if (was === 'queued') yield* inputs.aborted(t, run.pk, end.error ?? end.outcome);
  else {
    if (replySeq === null) yield* sessions.turnEnded(t, session); // otherwise appendEntry wrote it
    if (parkedOn === 'answer') yield* offers.stop(t, run.pk);
    if (run.step > 0) yield* waits.removeOf(t, run.pk);
  }
  Object.assign(run, {
    state: end.outcome,
    reply_seq: replySeq,
    error,
    error_code: code,
    ended_at: end.now,
    ready_pos: null,
    parked_on: null,
  });
  noteRun(t, session, run, end.outcome, end.now, end.error);
  const loose = loaded.loose ?? (yield* runs.looseEnds(t, run.pk));
  if (loose.waiters > 0) yield* answerWaiters(t, kernel, run, end.now);
  if (loose.head !== null && (was !== 'queued' || wasReady !== null)) yield* promote(t, run.lane);
  if (loose.flows > 0) yield* advanceFlows(t, kernel, { run, session, reply, now: end.now });
  if (outgoing) yield* deliverReply(t, kernel.world, session, outgoing);
}

/** I4. No call is left without a result, so that the next turn can be built from the transcript. Without a step there are none. */
function* answerOpenCalls(t: Tx, run: RunRow, session: SessionRow, now: number): Body<void> {
  if (run.step === 0) return;
  for (const call of yield* calls.unanswered(t, run.pk))
    yield* recordResult(
      t,
      run,
      session,
      call,
      { text: JSON.stringify({ status: 'error', error: stoppedCall }), isError: true, taint: session.taint },
      now,
    );
}

function* appendReply(t: Tx, run: RunRow, session: SessionRow, end: RunEnd, withheld: boolean): Body<number | null> {
  if (end.text === undefined || end.text === '') return null;
  const cut = end.cut === undefined ? {} : { cut: end.cut };
  const body: EntryBody = end.outcome === 'ok' ? { ...cut, ...(withheld ? { withheld } : {}) } : { aborted: true };
  const entry = {
    id: derivedId(run.id, 'end'),
    role: 'assistant' as const,
    text: end.text,
    body: Object.keys(body).length === 0 ? undefined : body,
    taint: session.taint,
    runPk: run.pk,
    step: run.step + 1,
    runId: run.id,
  };
  return yield* appendEntry(t, session, entry, end.now);
}

/** Charges a session for a model call outside of any run. */
export const chargeSession: EngineCommand<{ sessionKey: string; sessionPk: number; usage: Usage }, void> = {
  name: 'charge session',
  *body(t, { sessionKey, sessionPk, usage: { model, input, output, costMicros = 0 } }) {
    yield* t.lock(`lane:${sessionKey}`);
    if (model !== undefined) yield* sessions.charge(t, sessionPk, { input, output, costMicros });
  },
};
