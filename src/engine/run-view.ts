// A run by its id, as a caller that waits for it sees it.
import type { RunView } from '../protocol/run.ts';
import type { ReadQuery } from '../store/contract.ts';
import * as runs from '../store/tables/runs.ts';
import * as sessions from '../store/tables/sessions.ts';
import { usageOf } from '../store/views.ts';
import type { Current } from './flow.ts';
import { answerTo, notYet, type Answer } from './wait.ts';

/** A run that was merged into another is viewed as that other run. */
export const runView: ReadQuery<{ runId: string }, RunView | undefined> = {
  name: 'run',
  *body(t, { runId }) {
    const run = yield* runs.seen(t, runId);
    if (!run) return undefined;
    const view: RunView = {
      runId: run.id,
      sessionKey: run.session_key,
      sessionId: run.session_id,
      state: run.state,
      class: run.class,
      queuedAt: run.queued_at,
    };
    if (run.started_at !== null) view.startedAt = run.started_at;
    if (run.ended_at !== null) view.endedAt = run.ended_at;
    if (run.error !== null) view.error = run.error;
    if (run.error_code !== null) view.errorCode = run.error_code;
    if (run.reply !== null) view.reply = run.reply;
    if (run.model !== null) view.model = run.model;
    const usage = usageOf(run);
    if (usage) view.usage = usage;
    return view;
  },
};

/** The end of a run, as the answer for an outside session that sent the message. */
export const replyTo = (current: Current): ReadQuery<{ runId: string; waiterPk: number }, { value: Answer; taint: number }> => ({
  name: 'reply',
  *body(t, { runId, waiterPk }) {
    const { world } = current();
    const waiter = yield* sessions.get(t, waiterPk);
    const run = yield* runs.followed(t, runId);
    if (!run || run.ended_at === null) return { value: notYet(runId), taint: waiter.taint };
    return yield* answerTo(t, world, run, waiter);
  },
});
