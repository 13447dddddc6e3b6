// Ending a run, in one transaction: its last entry, its waiters' results, the next turn of its exchange, its delivery, its lane.
import type { RunOutcome } from '../protocol/run.ts';
import type { World } from '../rules/decide.ts';
import type { Body } from '../store/contract.ts';
import type { CallRow, RunRow, SessionRow, WaitRow } from '../store/rows.ts';
import { deliverReply } from './deliver.ts';
import { advanceFlow } from './flows.ts';
import { appendEntry, noteRun, type Tx } from './feed.ts';
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
  tokens?: number | undefined;
  usedMs?: number | undefined;
  now: number;
}

/** Results appended to waiting sessions in one transaction; the rest is taken up by the sweep. */
const mostWaiters = 50;
/** Runs that go on after a wait are claimed before new ones. */
export const resumeFirst = -(2 ** 52);

/** The reply exists, the waiters have it, and the next turn or delivery is there if and only if the run has ended. */
export function* endRun(t: Tx, ending: Ending, run: RunRow, end: RunEnd): Body<void> {
  const session = (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', run.session_pk))!;
  // I4. No call is left without a result, so that the next turn can be built from the transcript.
  const unanswered =
    run.state === 'queued'
      ? []
      : yield* t.all<CallRow>(`SELECT * FROM tool_calls WHERE run_pk = ? AND state != 'done' ORDER BY step, idx`, run.pk);
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
  let replySeq: number | null = null;
  if (end.text !== undefined && end.text !== '') {
    const body = end.outcome === 'ok' ? undefined : { aborted: true as const };
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
    end.tokens ?? 0,
    end.usedMs ?? 0,
    end.now,
    run.pk,
  );
  yield* t.run(`UPDATE inputs SET state = 'aborted', reason = ? WHERE run_pk = ? AND state = 'queued'`, end.error ?? end.outcome, run.pk);
  if (run.state !== 'queued') {
    yield* t.run(
      'UPDATE sessions SET aborted_last = ?, total_tokens = total_tokens + ? WHERE pk = ?',
      end.outcome === 'aborted' ? 1 : 0,
      end.tokens ?? 0,
      session.pk,
    );
    yield* t.run('DELETE FROM waits WHERE run_pk = ?', run.pk);
  }
  const ended: RunRow = { ...run, state: end.outcome, reply_seq: replySeq, error: end.error ?? null, error_code: end.code ?? null };
  const pos = yield* noteRun(t, session, run, end.outcome, end.now, end.error);
  yield* answerWaiters(t, ending, ended, end.now);
  if (run.state !== 'queued' || run.ready_pos !== null) yield* promote(t, run.lane, pos);
  const reply = end.outcome === 'ok' ? (end.text ?? '') : '';
  if (run.cause === 'exchange') yield* advanceFlow(t, ending, ended, session, reply, end.now);
  else if (run.deliver === 1 && reply !== '') yield* deliverReply(t, ending.world, session, run, reply, end.now);
}

/** Gives each waiting call its result. Bounded; what is left over is found again by the sweep. */
export function* answerWaiters(t: Tx, ending: Ending, ended: RunRow, now: number): Body<number> {
  const waits = yield* t.all<WaitRow>('SELECT * FROM waits WHERE target_run_pk = ? ORDER BY pk LIMIT ?', ended.pk, mostWaiters);
  if (waits.length === 0) return 0;
  const target = (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', ended.session_pk))!;
  const reply =
    ended.reply_seq === null
      ? ''
      : (yield* t.one<{ text: string }>('SELECT text FROM entries WHERE session_pk = ? AND seq = ?', target.pk, ended.reply_seq))!.text;
  for (const wait of waits) {
    const run = (yield* t.one<RunRow>('SELECT * FROM runs WHERE pk = ?', wait.run_pk))!;
    const waiter = (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', run.session_pk))!;
    // The target may have taken in more than the waiter may know since it was asked, so what it says is asked about now.
    const passed = passText(ending.world, 'reply', target, waiter, reply).text;
    const answer =
      passed === undefined
        ? { runId: ended.id, status: 'error', error: 'the session finished, but its reply may not be passed on' }
        : ended.state === 'ok'
          ? { runId: ended.id, status: 'ok', reply: passed }
          : { runId: ended.id, status: 'error', error: ended.error ?? `the run ended: ${ended.state}` };
    yield* answerWait(t, wait, run, waiter, answer, passed === undefined ? waiter.taint : target.taint, now);
  }
  // Those left over are due now, so the sweep takes them next.
  if (waits.length === mostWaiters) yield* t.run('UPDATE waits SET due_at = 0 WHERE target_run_pk = ?', ended.pk);
  return waits.length;
}

/** Settles one wait: the result becomes an entry, and the run goes on when this was the last one it waited for. */
export function* answerWait(
  t: Tx,
  wait: WaitRow,
  run: RunRow,
  waiter: SessionRow,
  answer: Record<string, unknown>,
  taint: number,
  now: number,
): Body<void> {
  yield* t.run('DELETE FROM waits WHERE pk = ?', wait.pk);
  const call = (yield* t.one<CallRow>(
    'SELECT * FROM tool_calls WHERE run_pk = ? AND step = ? AND idx = ?',
    wait.run_pk,
    wait.step,
    wait.idx,
  ))!;
  yield* recordResult(t, run, waiter, call, { text: JSON.stringify(answer), isError: answer['status'] === 'error', taint }, now);
  if (run.state !== 'waiting') return;
  const more = yield* t.one('SELECT 1 FROM waits WHERE run_pk = ?', run.pk);
  if (!more) yield* t.run('UPDATE runs SET ready_pos = ? WHERE pk = ?', resumeFirst + waiter.last_pos, run.pk);
}

export interface CallResult {
  text: string;
  isError: boolean;
  taint: number;
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
