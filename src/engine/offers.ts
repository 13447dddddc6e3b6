// A turn that a guest answers: offered → taken → answered, offered again when its time is over. Each move is one transaction.
import { InterlaneError } from '../errors.ts';
import type { Provenance, TurnContext } from '../protocol/transcript.ts';
import type { Body } from '../store/contract.ts';
import type { EntryRow, OfferRow, RunRow, SessionRow } from '../store/rows.ts';
import * as entries from '../store/tables/entries.ts';
import * as offers from '../store/tables/offers.ts';
import * as lanes from '../store/tables/run-lanes.ts';
import * as runs from '../store/tables/runs.ts';
import type { EntryBody } from '../store/views.ts';
import { endRun, spoken } from './end.ts';
import { noteRun, type EngineCommand, type Tx } from './feed.ts';
import type { Current } from './flow.ts';
import { requireLease, type Lease } from './lease.ts';

/** A turn as a guest gets it. */
export interface OfferedTurn {
  /** Names this offer. A turn that is offered again gets a new id. */
  turnId: string;
  attempt: number;
  /** The time at which the turn is offered again, unless it was answered. */
  replyBefore: number;
  messages: { provenance: Provenance | undefined; text: string; context: TurnContext | string | undefined }[];
  /** The number of turns that wait behind it. */
  queued: number;
}

/** The content of a guest's inbox: a new turn or the one it has taken, and the turns it took that ended without its answer. */
export interface Inbox {
  turn?: OfferedTurn;
  /** A turn that it took and has not answered; `replyBefore` is when it is offered again. */
  open?: { turnId: string; replyBefore: number };
  stopped: { turnId: string; why: string }[];
  /** The level of the content. */
  taint: number;
}

export interface Answered {
  runId: string;
  /** The guest gave the same answer before. */
  repeated: boolean;
}

const sweepRows = 50;
const mostReported = 20;

const turnIdOf = (runId: string, attempt: number) => `${runId}.${attempt}`;

function readTurnId(turnId: string): { runId: string; attempt: number } | undefined {
  const read = /^(.+)\.(\d{1,9})$/s.exec(turnId);
  return read ? { runId: read[1]!, attempt: Number(read[2]) } : undefined;
}

/** I5. Gives up the slot and the lease, keeps the lane, and waits as a row. Returns false if the run is being stopped. */
export const offerRun: EngineCommand<Lease & { usedMs: number; now: number }, boolean> = {
  name: 'offer turn',
  *body(t, { usedMs, now, ...lease }) {
    const { run, session } = yield* requireLease(t, lease);
    if (run.abort_requested !== null) return false;
    yield* offers.insert(t, run.pk, run.lane);
    yield* runs.park(t, run.pk, 'answer', usedMs, null);
    noteRun(t, session, run, 'waiting', now);
    return true;
  },
};

/** A lane has at most one active turn, so there is at most one offer to take. */
export const takeOffer: EngineCommand<{ lane: string; again: boolean; replyMs: number; now: number }, Inbox> = {
  name: 'take offer',
  *body(t, { lane, again, replyMs, now }) {
    yield* t.lock(`lane:${lane}`);
    const stopped = yield* takeStopped(t, lane);
    const offer = yield* offers.openIn(t, lane);
    if (!offer) return { stopped, taint: 0 };
    const { run, session } = yield* runs.withSession(t, offer.run_pk);
    const { taint } = session;
    if (offer.state === 'taken' && !again && offer.due_at! > now)
      return { open: { turnId: turnIdOf(run.id, offer.attempt), replyBefore: offer.due_at! }, stopped, taint };
    const usedMs = offer.state === 'taken' ? spentMs(offer, now) : 0;
    const left = run.budget_ms > 0 ? Math.max(1, run.budget_ms - run.used_ms - usedMs) : Infinity;
    const due = now + Math.min(replyMs, left);
    const attempt = offer.attempt + 1;
    yield* offers.take(t, run.pk, attempt, now, due);
    yield* runs.addUsedTime(t, run.pk, usedMs);
    const inputs = yield* entries.askedOf(t, run.session_pk, run.pk);
    const queued = yield* lanes.countQueued(t, lane, 1000);
    const turn = { turnId: turnIdOf(run.id, attempt), attempt, replyBefore: due, messages: inputs.map(messageOf), queued };
    return { turn, stopped, taint };
  },
};

/** Turns that ended without an answer while a guest had them; each is reported once. */
function* takeStopped(t: Tx, lane: string): Body<Inbox['stopped']> {
  const rows = yield* offers.stoppedIn(t, lane, mostReported);
  for (const row of rows) yield* offers.removeOf(t, row.run_pk);
  return rows.map((row) => ({ turnId: turnIdOf(row.id, row.attempt), why: row.error ?? 'the turn has ended' }));
}

function messageOf(row: EntryRow): OfferedTurn['messages'][number] {
  const provenance = row.provenance === null ? undefined : (JSON.parse(row.provenance) as Provenance);
  const { context } = row.body === null ? {} : (JSON.parse(row.body) as EntryBody);
  return { provenance, text: row.text, context };
}

/** Returns a turn whose response never reached the guest; the next call of inbox takes it. */
export const giveBack: EngineCommand<{ lane: string; turnId: string; now: number }, void> = {
  name: 'give turn back',
  *body(t, { lane, turnId, now }) {
    yield* t.lock(`lane:${lane}`);
    const { runId, attempt } = readTurnId(turnId)!;
    const found = yield* runs.byId(t, runId);
    if (!found || found.lane !== lane) return;
    const { run, session } = yield* runs.withSession(t, found.pk);
    yield* reopen(t, run, session, attempt, 0, now);
  },
};

function* reopen(t: Tx, run: RunRow, session: SessionRow, attempt: number, usedMs: number, now: number): Body<void> {
  if (!(yield* offers.reopen(t, run.pk, attempt))) return;
  yield* runs.addUsedTime(t, run.pk, usedMs);
  noteRun(t, session, run, 'waiting', now);
}

/** I2. One transaction stores the answer and ends the turn. A repeated answer is recognized, and a guest cannot answer for another. */
export function answerOffer(current: Current): EngineCommand<{ lane: string; turnId: string; text: string; now: number }, Answered> {
  return {
    name: 'answer turn',
    texts: ({ text }) => spoken(text),
    *body(t, { lane, turnId, text, now }) {
      const kernel = current();
      yield* t.lock(`lane:${lane}`);
      const read = readTurnId(turnId);
      const run = read && (yield* runs.byId(t, read.runId));
      const quoted = JSON.stringify(turnId.slice(0, 200));
      if (!read || run?.lane !== lane)
        throw new InterlaneError('TURN_NOT_OPEN', `turn ${quoted} does not belong to this session; use the turnId that inbox returned`);
      const offer = yield* offers.ofRun(t, run.pk);
      if (offer?.state === 'stopped') yield* offers.removeOf(t, run.pk); // this call tells the guest
      if (run.ended_at !== null) return yield* answeredBefore(t, run, text, quoted);
      if (!offer || read.attempt > offer.attempt || read.attempt < 1)
        throw new InterlaneError('TURN_NOT_OPEN', `turn ${quoted} was not offered; use the turnId that inbox returned`);
      // Accept late replies unless the turn was reassigned.
      if (read.attempt !== offer.attempt)
        throw new InterlaneError(
          'TURN_NOT_OPEN',
          `turn ${quoted} was taken again as ${JSON.stringify(turnIdOf(run.id, offer.attempt))}, because its time was over or inbox was called with again; this answer was discarded, call inbox`,
        );
      yield* offers.removeOf(t, run.pk);
      yield* endRun(t, kernel, run, { outcome: 'ok', text, usedMs: offer.state === 'taken' ? spentMs(offer, now) : 0, now });
      return { runId: run.id, repeated: false };
    },
  };
}

function* answeredBefore(t: Tx, run: RunRow, text: string, quoted: string): Body<Answered> {
  if (run.state !== 'ok')
    throw new InterlaneError(
      'TURN_NOT_OPEN',
      `turn ${quoted} was stopped: ${run.error ?? run.state}; this answer was discarded, call inbox`,
    );
  if ((yield* entries.textAt(t, run.session_pk, run.reply_seq)) === text) return { runId: run.id, repeated: true };
  throw new InterlaneError('TURN_NOT_OPEN', `turn ${quoted} already has an answer; this one was discarded, call inbox`);
}

/** Overdue offers: the turn is offered again, or times out if its budget is used up. */
export function sweepOffers(current: Current): EngineCommand<{ now: number }, number> {
  return {
    name: 'sweep offers',
    *body(t, { now }) {
      const kernel = current();
      let swept = 0;
      for (const offer of yield* offers.due(t, now, sweepRows)) {
        if (!(yield* t.tryLock(`lane:${offer.lane}`))) continue;
        swept++;
        const { run, session } = yield* runs.withSession(t, offer.run_pk);
        const usedMs = spentMs(offer, now);
        if (run.budget_ms > 0 && run.used_ms + usedMs >= run.budget_ms)
          yield* endRun(t, kernel, run, {
            outcome: 'timeout',
            code: 'TIMEOUT',
            error: `the run took longer than ${run.budget_ms} ms`,
            usedMs,
            now,
          });
        else yield* reopen(t, run, session, offer.attempt, usedMs, now);
      }
      return swept;
    },
  };
}

/** The time that a guest has spent on it. Time after the deadline, such as the gateway's own downtime, does not count. */
const spentMs = (offer: OfferRow, now: number) => Math.max(0, Math.min(now, offer.due_at ?? now) - (offer.taken_at ?? now));
