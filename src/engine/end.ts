// Ending a run, in one transaction: its last entry, its waiters' results, the next turn of its exchange, its delivery, its lane.
import type { RunOutcome } from '../protocol/run.ts';
import type { Cut } from '../protocol/transcript.ts';
import type { World } from '../rules/decide.ts';
import type { Body, Reading } from '../store/contract.ts';
import type { CallRow, RunRow, SessionRow, WaitRow } from '../store/rows.ts';
import { deliverReply } from './deliver.ts';
import type { Usage } from './runner.ts';
import { advanceFlow } from './flows.ts';
import { appendEntry, noteRun, type Tx, type EngineCommand } from './feed.ts';
import { derivedId } from './ids.ts';
import { passText } from './policy.ts';
import { promote } from './queue.ts';

/** What endings depend on besides the rows. */
export interface Ending {
  world: World;
  /** Told when a flow could not be advanced; the run has ended all the same. */
  flowFailed(exchangeId: string, error: unknown): void;
}

export interface RunEnd {
  outcome: RunOutcome;
  /** The final text, or what was kept of it. */
  text?: string | undefined;
  code?: string | undefined;
  error?: string | undefined;
  usage?: Usage | undefined;
  cut?: Cut | undefined;
  usedMs?: number | undefined;
  now: number;
}

/** Results appended to waiting sessions in one transaction; the rest is taken up by the sweep. */
const mostWaiters = 50;
/** Runs that go on after a wait are claimed before new ones. */
export const resumeFirst = -(2 ** 52);

/** The reply exists, the waiters have it, and the next turn or delivery is there if and only if the run has ended. */
export function* endRun(t: Tx, ending: Ending, run: RunRow, end: RunEnd, held?: SessionRow): Body<void> {
  const session = held ?? (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', run.session_pk))!;
  // I4. No call is left without a result, so that the next turn can be built from the transcript. Without a step there are none.
  const unanswered =
    run.step === 0 ? [] : yield* t.all<CallRow>(`SELECT * FROM tool_calls WHERE run_pk = ? AND state != 'done' ORDER BY step, idx`, run.pk);
  for (const call of unanswered)
    yield* recordResult(
      t,
      run,
      session,
      call,
      {
        text: JSON.stringify({ status: 'error', error: 'the turn was stopped before this was done; its outcome is not known' }),
        isError: true,
        taint: session.taint,
      },
      end.now,
    );
  const was = run.state;
  if (was !== 'queued') {
    session.aborted_last = end.outcome === 'aborted' ? 1 : 0;
    if (end.usage) session.total_tokens = tokensInUse(session, end.usage);
  }
  let replySeq: number | null = null;
  if (end.text !== undefined && end.text !== '') {
    const body = end.outcome !== 'ok' ? { aborted: true as const } : end.cut === undefined ? undefined : { cut: end.cut };
    replySeq = yield* appendEntry(
      t,
      session,
      {
        id: derivedId(run.id, 'end'),
        role: 'assistant',
        text: end.text,
        body,
        taint: session.taint,
        runPk: run.pk,
        step: run.step + 1,
        runId: run.id,
      },
      end.now,
    );
  }
  yield* t.run(
    `UPDATE runs SET state = ?, ready_pos = NULL, owner = NULL, reply_seq = ?, error_code = ?, error = ?, tokens = tokens + ?, used_ms = used_ms + ?, ended_at = ? WHERE pk = ?`,
    end.outcome,
    end.outcome === 'ok' ? replySeq : null,
    end.code ?? null,
    end.error ?? null,
    spent(end.usage),
    end.usedMs ?? 0,
    end.now,
    run.pk,
  );
  if (end.usage) yield* addUsage(t, run, session, end.usage);
  if (was === 'queued')
    yield* t.run(`UPDATE inputs SET state = 'aborted', reason = ? WHERE run_pk = ? AND state = 'queued'`, end.error ?? end.outcome, run.pk);
  else {
    // An entry has taken them along.
    if (replySeq === null)
      yield* t.run(
        'UPDATE sessions SET aborted_last = ?, total_tokens = ? WHERE pk = ?',
        session.aborted_last,
        session.total_tokens,
        session.pk,
      );
    if (run.step > 0) yield* t.run('DELETE FROM waits WHERE run_pk = ?', run.pk);
    else if (was === 'waiting') yield* closeOffer(t, run.pk);
  }
  const ended = Object.assign(run, { state: end.outcome, reply_seq: replySeq, error: end.error ?? null, error_code: end.code ?? null });
  const pos = yield* noteRun(t, session, run, end.outcome, end.now, end.error);
  yield* answerWaiters(t, ending, ended, end.now);
  if (was !== 'queued' || run.ready_pos !== null) yield* promote(t, run.lane, pos);
  const reply = end.outcome === 'ok' ? (end.text ?? '') : '';
  if (run.cause === 'exchange') yield* advanceFlow(t, ending, ended, session, reply, end.now);
  else if (run.deliver === 1 && reply !== '') yield* deliverReply(t, ending.world, session, run, reply, end.now);
}

/** A guest that has the turn is told at its next look that there is nothing to answer any more. */
function* closeOffer(t: Tx, runPk: number): Body<void> {
  yield* t.run(`DELETE FROM offers WHERE run_pk = ? AND state = 'open'`, runPk);
  yield* t.run(`UPDATE offers SET state = 'stopped', due_at = NULL WHERE run_pk = ?`, runPk);
}

const spent = (usage: Usage | undefined) => (usage ? usage.input + usage.output : 0);

/** A model says how much it has read; the scripted one only adds up what it said. */
export function tokensInUse(session: SessionRow, usage: Usage): number {
  return usage.model === undefined ? session.total_tokens + usage.output : usage.input + usage.output;
}

/** What real models cost, on the run and on the session. */
export function* addUsage(t: Tx, run: RunRow, session: SessionRow, usage: Usage): Body<void> {
  if (usage.model === undefined) return;
  const { model, input, output, costMicros = 0 } = usage;
  yield* t.run(
    'UPDATE runs SET model = ?, input_tokens = input_tokens + ?, output_tokens = output_tokens + ?, cost_micros = cost_micros + ? WHERE pk = ?',
    model,
    input,
    output,
    costMicros,
    run.pk,
  );
  yield* t.run(
    'UPDATE sessions SET input_tokens = input_tokens + ?, output_tokens = output_tokens + ?, cost_micros = cost_micros + ?, system_sent = 1 WHERE pk = ?',
    input,
    output,
    costMicros,
    session.pk,
  );
}

/** What a model cost that was asked for a session outside of any run. */
export const chargeSession: EngineCommand<{ sessionPk: number; usage: Usage }, void> = {
  name: 'charge session',
  *body(t, { sessionPk, usage: { model, input, output, costMicros = 0 } }) {
    if (model === undefined) return;
    yield* t.run(
      'UPDATE sessions SET input_tokens = input_tokens + ?, output_tokens = output_tokens + ?, cost_micros = cost_micros + ? WHERE pk = ?',
      input,
      output,
      costMicros,
      sessionPk,
    );
  },
};

/** Gives each waiting call its result. Bounded; what is left over is found again by the sweep. */
export function* answerWaiters(t: Tx, ending: Ending, ended: RunRow, now: number): Body<number> {
  const waits = yield* t.all<WaitRow>('SELECT * FROM waits WHERE target_run_pk = ? ORDER BY pk LIMIT ?', ended.pk, mostWaiters);
  if (waits.length === 0) return 0;
  for (const wait of waits) {
    const run = (yield* t.one<RunRow>('SELECT * FROM runs WHERE pk = ?', wait.run_pk))!;
    const waiter = (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', run.session_pk))!;
    const { value, taint } = yield* answerTo(t, ending.world, ended, waiter);
    yield* answerWait(t, wait, run, waiter, value, taint, now);
  }
  // Those left over are due now, so the sweep takes them next.
  if (waits.length === mostWaiters) yield* t.run('UPDATE waits SET due_at = 0 WHERE target_run_pk = ?', ended.pk);
  return waits.length;
}

export type Answer = { runId: string; status: 'ok'; reply: string } | { runId: string; status: 'error' | 'timeout'; error: string };

/** What a run's end is to the session that waited for it. */
export function* answerTo(t: Reading, world: World, ended: RunRow, waiter: SessionRow): Body<{ value: Answer; taint: number }> {
  const target = (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', ended.session_pk))!;
  const reply =
    ended.reply_seq === null
      ? ''
      : (yield* t.one<{ text: string }>('SELECT text FROM entries WHERE session_pk = ? AND seq = ?', target.pk, ended.reply_seq))!.text;
  // The target may have taken in more than the waiter may know since it was asked, so what it says is asked about now.
  const passed = passText(world, 'reply', target, waiter, reply).text;
  const runId = ended.id;
  if (passed === undefined)
    return { value: { runId, status: 'error', error: 'the session finished, but its reply may not be passed on' }, taint: waiter.taint };
  if (ended.state === 'ok') return { value: { runId, status: 'ok', reply: passed }, taint: target.taint };
  return { value: { runId, status: 'error', error: ended.error ?? `the run ended: ${ended.state}` }, taint: target.taint };
}

/** What a wait that is over hears while the run goes on. */
export const notYet = (runId: string): Answer => ({
  runId,
  status: 'timeout',
  error: 'no reply yet; the run goes on. Ask again with session_status or sessions_history, and do not send the message again',
});

/** Settles one wait: the result becomes an entry, and the run goes on when this was the last one it waited for. */
export function* answerWait(t: Tx, wait: WaitRow, run: RunRow, waiter: SessionRow, answer: Answer, taint: number, now: number): Body<void> {
  yield* t.run('DELETE FROM waits WHERE pk = ?', wait.pk);
  const call = (yield* t.one<CallRow>(
    'SELECT * FROM tool_calls WHERE run_pk = ? AND step = ? AND idx = ?',
    wait.run_pk,
    wait.step,
    wait.idx,
  ))!;
  yield* recordResult(t, run, waiter, call, { text: JSON.stringify(answer), isError: answer.status === 'error', taint }, now);
  if (run.state !== 'waiting') return;
  const more = yield* t.one('SELECT 1 FROM waits WHERE run_pk = ?', run.pk);
  if (!more) yield* t.run('UPDATE runs SET ready_pos = ? WHERE pk = ?', resumeFirst + waiter.last_pos, run.pk);
}

export interface CallResult {
  text: string;
  isError: boolean;
  taint: number;
  /** What the call cost, if it asked a model. */
  usage?: Usage | undefined;
}

export function* recordResult(t: Tx, run: RunRow, session: SessionRow, call: CallRow, result: CallResult, now: number): Body<void> {
  const seq = yield* appendEntry(
    t,
    session,
    {
      id: derivedId(run.id, call.step, call.idx, 'result'),
      role: 'toolResult',
      text: result.text,
      body: { toolCallId: `${call.step}.${call.idx}`, toolName: call.tool, isError: result.isError },
      taint: result.taint,
      runPk: run.pk,
      step: call.step,
      runId: run.id,
    },
    now,
  );
  yield* t.run(
    `UPDATE tool_calls SET state = 'done', result_seq = ? WHERE run_pk = ? AND step = ? AND idx = ?`,
    seq,
    run.pk,
    call.step,
    call.idx,
  );
}
