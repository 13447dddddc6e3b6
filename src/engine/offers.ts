// A turn that somebody outside answers: offered → taken → answered, offered again when its time is over. Each move is one transaction.
import { InterlaneError } from '../errors.ts';
import type { Provenance } from '../protocol/transcript.ts';
import type { Body } from '../store/contract.ts';
import type { EntryRow, OfferRow, RunRow, SessionRow } from '../store/rows.ts';
import type { EntryBody } from '../store/views.ts';
import { endRun, type Ending } from './end.ts';
import { noteRun, type EngineCommand, type Tx } from './feed.ts';
import { held, type Lease } from './runs.ts';

/** What a guest is asked. */
interface OfferedTurn {
  /** Of this offer: when the turn is offered again it has another one. */
  turnId: string;
  attempt: number;
  /** When it is offered again, unless it was answered. */
  replyBefore: number;
  messages: { from: string; text: string; note?: string }[];
  /** Turns that wait behind it. */
  queued: number;
}

/** What a guest finds when it looks: a turn, or one it still has, and those it had that ended otherwise. */
export interface Look {
  turn?: OfferedTurn;
  /** Taken and not answered; offered again at that time. */
  open?: { turnId: string; replyBefore: number };
  stopped: { turnId: string; why: string }[];
  /** Level of what is in it. */
  taint: number;
}

export interface Answered {
  runId: string;
  /** The same answer was given before. */
  repeated: boolean;
}

const sweepRows = 50;
const toldAtOnce = 20;

const turnIdOf = (runId: string, attempt: number) => `${runId}.${attempt}`;

function readTurnId(turnId: string): { runId: string; attempt: number } | undefined {
  const read = /^(.+)\.(\d{1,9})$/s.exec(turnId);
  return read ? { runId: read[1]!, attempt: Number(read[2]) } : undefined;
}

/** I5. Gives back the slot and the lease, keeps the lane, and waits as a row. False when the run is being stopped. */
export const offerRun: EngineCommand<Lease & { usedMs: number; now: number }, boolean> = {
  name: 'offer turn',
  *body(t, { usedMs, now, ...lease }) {
    const { run, session } = yield* held(t, lease);
    if (run.abort_requested !== null) return false;
    yield* t.run('INSERT OR IGNORE INTO offers (run_pk, lane) VALUES (?,?)', run.pk, run.lane);
    yield* t.run(`UPDATE runs SET state = 'waiting', owner = NULL, used_ms = used_ms + ? WHERE pk = ?`, usedMs, run.pk);
    yield* noteRun(t, session, run, 'waiting', now);
    return true;
  },
};

/** A lane has at most one turn under way, so there is at most one offer to take. */
export const takeOffer: EngineCommand<{ lane: string; again: boolean; replyMs: number; now: number }, Look> = {
  name: 'take offer',
  *body(t, { lane, again, replyMs, now }) {
    const stopped = yield* tell(t, lane);
    const offer = yield* t.one<OfferRow>(`SELECT * FROM offers WHERE lane = ? AND state IN ('open', 'taken')`, lane);
    if (!offer) return { stopped, taint: 0 };
    const run = (yield* t.one<RunRow>('SELECT * FROM runs WHERE pk = ?', offer.run_pk))!;
    const { taint } = (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', run.session_pk))!;
    if (offer.state === 'taken' && !again && offer.due_at! > now)
      return { open: { turnId: turnIdOf(run.id, offer.attempt), replyBefore: offer.due_at! }, stopped, taint };
    const usedMs = offer.state === 'taken' ? heldMs(offer, now) : 0;
    const left = run.budget_ms > 0 ? Math.max(1, run.budget_ms - run.used_ms - usedMs) : Infinity;
    const due = now + Math.min(replyMs, left);
    const attempt = offer.attempt + 1;
    yield* t.run(
      `UPDATE offers SET state = 'taken', attempt = ?, taken_at = ?, due_at = ? WHERE run_pk = ?`,
      attempt,
      now,
      due,
      offer.run_pk,
    );
    if (usedMs > 0) yield* t.run('UPDATE runs SET used_ms = used_ms + ? WHERE pk = ?', usedMs, run.pk);
    const entries = yield* t.all<EntryRow>(
      `SELECT * FROM entries WHERE session_pk = ? AND run_pk = ? AND role = 'user' ORDER BY seq`,
      run.session_pk,
      run.pk,
    );
    const { queued } = (yield* t.one<{ queued: number }>(
      `SELECT count(*) AS queued FROM (SELECT 1 FROM runs WHERE lane = ? AND state = 'queued' LIMIT 1000)`,
      lane,
    ))!;
    const turn = { turnId: turnIdOf(run.id, attempt), attempt, replyBefore: due, messages: entries.map(messageOf), queued };
    return { turn, stopped, taint };
  },
};

/** What ended otherwise while a guest had it; each is told once. */
function* tell(t: Tx, lane: string): Body<Look['stopped']> {
  const rows = yield* t.all<OfferRow & { id: string; error: string | null }>(
    `SELECT offers.*, runs.id, runs.error FROM offers JOIN runs ON runs.pk = offers.run_pk
     WHERE offers.lane = ? AND offers.state = 'stopped' ORDER BY offers.run_pk LIMIT ?`,
    lane,
    toldAtOnce,
  );
  for (const row of rows) yield* t.run('DELETE FROM offers WHERE run_pk = ?', row.run_pk);
  return rows.map((row) => ({ turnId: turnIdOf(row.id, row.attempt), why: row.error ?? 'it ended' }));
}

function messageOf(row: EntryRow): OfferedTurn['messages'][number] {
  const from = row.provenance === null ? undefined : (JSON.parse(row.provenance) as Provenance);
  const { context } = row.body === null ? {} : (JSON.parse(row.body) as EntryBody);
  const sender = from?.sourceSession ?? (from?.kind === 'user' ? `a person on ${from.channel ?? 'an unknown channel'}` : 'the gateway');
  return { from: sender, text: row.text, ...(context === undefined ? {} : { note: context }) };
}

/** Whoever took it is gone and never heard of it: the next one who looks gets it. */
export const giveBack: EngineCommand<{ turnId: string; now: number }, void> = {
  name: 'give turn back',
  *body(t, { turnId, now }) {
    const { runId, attempt } = readTurnId(turnId)!;
    const run = yield* t.one<RunRow>('SELECT * FROM runs WHERE id = ?', runId);
    if (run) yield* reopen(t, run, attempt, 0, now);
  },
};

function* reopen(t: Tx, run: RunRow, attempt: number, usedMs: number, now: number): Body<void> {
  const { changes } = yield* t.run(
    `UPDATE offers SET state = 'open', due_at = NULL WHERE run_pk = ? AND attempt = ? AND state = 'taken'`,
    run.pk,
    attempt,
  );
  if (changes === 0) return;
  if (usedMs > 0) yield* t.run('UPDATE runs SET used_ms = used_ms + ? WHERE pk = ?', usedMs, run.pk);
  const session = (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', run.session_pk))!;
  yield* noteRun(t, session, run, 'waiting', now);
}

/** I2. The answer and the end of the turn are one transaction; given twice it is found again, and nobody answers for another. */
export function answerOffer(ending: Ending): EngineCommand<{ lane: string; turnId: string; text: string; now: number }, Answered> {
  return {
    name: 'answer turn',
    *body(t, { lane, turnId, text, now }) {
      const read = readTurnId(turnId);
      const run = read && (yield* t.one<RunRow>('SELECT * FROM runs WHERE id = ? AND lane = ?', read.runId, lane));
      const shown = JSON.stringify(turnId.slice(0, 200));
      if (!run) throw new InterlaneError('TURN_NOT_OPEN', `turn ${shown} is not one of this session; use the turnId that inbox gave`);
      const offer = yield* t.one<OfferRow>('SELECT * FROM offers WHERE run_pk = ?', run.pk);
      if (offer?.state === 'stopped') yield* t.run('DELETE FROM offers WHERE run_pk = ?', run.pk); // it is told here
      if (run.ended_at !== null) return yield* answeredBefore(t, run, text, shown);
      if (!offer || read.attempt > offer.attempt || read.attempt < 1)
        throw new InterlaneError('TURN_NOT_OPEN', `turn ${shown} was not offered; use the turnId that inbox gave`);
      // Late is good enough while nobody else has it.
      if (read.attempt !== offer.attempt)
        throw new InterlaneError(
          'TURN_NOT_OPEN',
          `turn ${shown} took too long and was given out again as ${JSON.stringify(turnIdOf(run.id, offer.attempt))}; this answer was not taken, call inbox`,
        );
      yield* t.run('DELETE FROM offers WHERE run_pk = ?', run.pk);
      yield* endRun(t, ending, run, { outcome: 'ok', text, usedMs: offer.state === 'taken' ? heldMs(offer, now) : 0, now });
      return { runId: run.id, repeated: false };
    },
  };
}

function* answeredBefore(t: Tx, run: RunRow, text: string, shown: string): Body<Answered> {
  if (run.state !== 'ok')
    throw new InterlaneError(
      'TURN_NOT_OPEN',
      `turn ${shown} was stopped: ${run.error ?? run.state}; this answer was not taken, call inbox`,
    );
  const said =
    run.reply_seq === null
      ? ''
      : (yield* t.one<{ text: string }>('SELECT text FROM entries WHERE session_pk = ? AND seq = ?', run.session_pk, run.reply_seq))?.text;
  if (said === text) return { runId: run.id, repeated: true };
  throw new InterlaneError('TURN_NOT_OPEN', `turn ${shown} was answered already; this answer was not taken, call inbox`);
}

/** Offers whose time is over: the turn is offered again, or ends when it has used up its time. */
export function sweepOffers(ending: Ending): EngineCommand<{ now: number }, number> {
  return {
    name: 'sweep offers',
    *body(t, { now }) {
      const due = yield* t.all<OfferRow>('SELECT * FROM offers WHERE due_at <= ? ORDER BY due_at LIMIT ?', now, sweepRows);
      for (const offer of due) {
        const run = (yield* t.one<RunRow>('SELECT * FROM runs WHERE pk = ?', offer.run_pk))!;
        const usedMs = heldMs(offer, now);
        if (run.budget_ms > 0 && run.used_ms + usedMs >= run.budget_ms)
          yield* endRun(t, ending, run, {
            outcome: 'timeout',
            code: 'TIMEOUT',
            error: `the run took longer than ${run.budget_ms} ms`,
            usedMs,
            now,
          });
        else yield* reopen(t, run, offer.attempt, usedMs, now);
      }
      return due.length;
    },
  };
}

/** Time a guest had it; what is past its deadline, such as the gateway's own downtime, does not count. */
const heldMs = (offer: OfferRow, now: number) => Math.max(0, Math.min(now, offer.due_at ?? now) - (offer.taken_at ?? now));
