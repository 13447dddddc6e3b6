// A run by its id, as a caller who waits for it sees it.
import type { RunView } from '../protocol/run.ts';
import type { ReadQuery } from '../store/contract.ts';
import type { RunRow, SessionRow } from '../store/rows.ts';
import { usageOf } from '../store/views.ts';
import { answerTo, notYet, type Answer, type Ending } from './end.ts';

type Seen = Pick<
  RunRow,
  | 'id'
  | 'state'
  | 'class'
  | 'error'
  | 'error_code'
  | 'merged_into'
  | 'queued_at'
  | 'started_at'
  | 'ended_at'
  | 'model'
  | 'input_tokens'
  | 'output_tokens'
  | 'cost_micros'
> & {
  session_id: string;
  session_key: string;
  reply: string | null;
};

const seenBy = (
  column: 'id' | 'pk',
) => `SELECT runs.id, runs.state, runs.class, runs.error, runs.error_code, runs.merged_into, runs.queued_at, runs.started_at, runs.ended_at,
    runs.model, runs.input_tokens, runs.output_tokens, runs.cost_micros,
    sessions.id AS session_id, sessions.key AS session_key, entries.text AS reply
  FROM runs JOIN sessions ON sessions.pk = runs.session_pk
    LEFT JOIN entries ON entries.session_pk = runs.session_pk AND entries.seq = runs.reply_seq
  WHERE runs.${column} = ?`;
const seenById = seenBy('id');
const seenByPk = seenBy('pk');

/** One that was taken in by another is shown as that other one. */
export const runView: ReadQuery<{ runId: string }, RunView | undefined> = {
  name: 'run',
  *body(t, { runId }) {
    let run = yield* t.one<Seen>(seenById, runId);
    while (run && run.merged_into !== null) run = yield* t.one<Seen>(seenByPk, run.merged_into);
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

/** What a run's end is to a session that asked for it from outside. */
export const replyTo = ({ world }: Ending): ReadQuery<{ runId: string; waiterPk: number }, { value: Answer; taint: number }> => ({
  name: 'reply',
  *body(t, { runId, waiterPk }) {
    const waiter = (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', waiterPk))!;
    let run = yield* t.one<RunRow>('SELECT * FROM runs WHERE id = ?', runId);
    while (run && run.merged_into !== null) run = yield* t.one<RunRow>('SELECT * FROM runs WHERE pk = ?', run.merged_into);
    if (!run || run.ended_at === null) return { value: notYet(runId), taint: waiter.taint };
    return yield* answerTo(t, world, run, waiter);
  },
});
