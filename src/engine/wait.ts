// Waits: each waiting call is a row. The end of its target, or its timeout, gives it a result and lets its run continue.
import type { Body, Reading } from '../store/contract.ts';
import type { RunRow, SessionRow, WaitRow } from '../store/rows.ts';
import { resumeFirst } from '../store/counters.ts';
import * as calls from '../store/tables/tool-calls.ts';
import * as entries from '../store/tables/entries.ts';
import * as lanes from '../store/tables/run-lanes.ts';
import * as runs from '../store/tables/runs.ts';
import * as sessions from '../store/tables/sessions.ts';
import * as waits from '../store/tables/waits.ts';
import type { World } from '../rules/decide.ts';
import { noReplyYet, withheldReply } from '../wording.ts';
import { recordResult } from './step.ts';
import type { EngineCommand, Tx } from './feed.ts';
import type { Current, Kernel } from './flow.ts';
import { destinationOf, filterForSession, filterResult, partyOfRow, withheldResult } from './policy.ts';

export type Answer = { runId: string; status: 'ok'; reply: string } | { runId: string; status: 'error' | 'timeout'; error: string };

/** Results appended to waiting sessions in one transaction; the sweep handles the rest. */
const mostWaiters = 50;
const sweepRows = 50;

/** Gives each waiting call its result. Bounded; the sweep handles the rest. */
export function* answerWaiters(t: Tx, kernel: Kernel, ended: RunRow, now: number): Body<void> {
  const waiting = yield* waits.forTarget(t, 'run', ended.pk, mostWaiters);
  yield* t.lock(...waiting.map((wait) => `lane:${wait.lane}` as const));
  for (const wait of waiting) {
    const { run, session } = yield* runs.withSession(t, wait.run_pk);
    const { value, taint } = yield* answerTo(t, kernel.world, ended, session);
    yield* answerWait(t, kernel.world, wait, { run, session }, value, taint, now);
  }
  if (waiting.length === mostWaiters) yield* waits.makeDue(t, 'run', ended.pk);
}

/** The end of a run, as the answer for the session that waited for it. */
export function* answerTo(t: Reading, world: World, ended: RunRow, waiter: SessionRow): Body<{ value: Answer; taint: number }> {
  const target = yield* sessions.get(t, ended.session_pk);
  const reply = yield* entries.textAt(t, target.pk, ended.reply_seq);
  // The target's taint may have risen since the message was sent, so policy decides about the reply now.
  const filtered = filterForSession(world, 'reply', { session: target, destination: destinationOf(ended) }, waiter, reply).text;
  const runId = ended.id;
  if (filtered === undefined) return { value: { runId, status: 'error', error: withheldReply }, taint: waiter.taint };
  if (ended.state === 'ok') return { value: { runId, status: 'ok', reply: filtered }, taint: target.taint };
  return { value: { runId, status: 'error', error: ended.error ?? `the run ended: ${ended.state}` }, taint: target.taint };
}

/** The result of a wait that timed out while the run continues. */
export const notYet = (runId: string): Answer => ({ runId, status: 'timeout', error: noReplyYet });

/** Settles one wait. When it was the call's last one the result becomes an entry, and the run continues if it has no other waits. */
function* answerWait(
  t: Tx,
  world: World,
  wait: WaitRow,
  { run, session: waiter }: { run: RunRow; session: SessionRow },
  answer: Answer,
  taint: number,
  now: number,
): Body<void> {
  const others = yield* waits.besides(t, wait);
  if (others.some((other) => other.answer === null)) {
    yield* waits.keepAnswer(t, wait.pk, JSON.stringify({ answer, taint }));
    return;
  }
  yield* waits.removeCall(t, wait);
  const kept = others.map((other) => JSON.parse(other.answer!) as { answer: Answer; taint: number });
  const all = [...kept, { answer, taint }];
  const call = yield* calls.get(t, wait.run_pk, wait.step, wait.idx);
  const given = JSON.stringify(all.length === 1 ? answer : all.map((one) => one.answer));
  const filtered = filterResult(world, partyOfRow(world, waiter, destinationOf(run)), call.tool, given);
  const [code, error] = withheldResult(call.tool, filtered.decision);
  const result = {
    text: filtered.text ?? JSON.stringify({ status: 'error', code, error }),
    isError: filtered.text === undefined || all.some((one) => one.answer.status === 'error'),
    taint: Math.max(...all.map((one) => one.taint)),
  };
  yield* recordResult(t, run, waiter, call, result, now);
  if (run.state === 'waiting' && !(yield* waits.anyOf(t, run.pk))) yield* lanes.setReady(t, run.pk, resumeFirst + (yield* t.next('ready')));
}

/** Overdue waits, including those that the end of a run with very many waiters left over. */
export const sweepWaits = (current: Current): EngineCommand<{ now: number }, number> => ({
  name: 'sweep waits',
  *body(t, { now }) {
    const kernel = current();
    const due = yield* waits.due(t, now, sweepRows);
    let answered = 0;
    for (const wait of due) {
      if (!(yield* t.tryLock(`lane:${wait.lane}`))) continue;
      answered++;
      const target = yield* runs.get(t, wait.target_pk);
      const { run, session } = yield* runs.withSession(t, wait.run_pk);
      const { value, taint } =
        target.ended_at === null ? { value: notYet(target.id), taint: session.taint } : yield* answerTo(t, kernel.world, target, session);
      yield* answerWait(t, kernel.world, wait, { run, session }, value, taint, now);
    }
    return answered;
  },
});
