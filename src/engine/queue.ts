// The lane of a session: putting a run into it, letting its head be claimed, and one turn taking in what is queued behind it.
import { InterlaneError } from '../errors.ts';
import type { QueueMode, RunClass } from '../protocol/run.ts';
import type { DeliveryContext } from '../protocol/session.ts';
import type { Provenance } from '../protocol/transcript.ts';
import { mergeKey, takeable } from '../rules/queue-mode.ts';
import type { Body } from '../store/contract.ts';
import type { InputRow, RunRow, SessionRow } from '../store/rows.ts';
import { appendEntry, noteRun, type Tx } from './feed.ts';
import { derivedId } from './ids.ts';

export interface NewRun {
  runId: string;
  text: string;
  /** What the turn is told beside the text: how it came about and what may be answered. */
  context?: string | undefined;
  provenance: Provenance;
  principal: string;
  taint: number;
  mode: QueueMode;
  class: RunClass;
  deliver: boolean;
  /** Where the answer goes. Only inputs with the same way out become one turn. */
  destination?: DeliveryContext | undefined;
  cause: RunRow['cause'];
  causePk?: number | undefined;
  rootPk?: number | undefined;
  hop?: number | undefined;
  /** Working time; 0 or none is no limit. What a run asks of others may take as long as it may itself. */
  budgetMs?: number | undefined;
  notBefore?: number | undefined;
  now: number;
}

/** Inputs that may wait in one lane. At the cap a new one is refused before it is acknowledged; none is ever dropped. */
const laneCap = 10_000;

const laneNow = `SELECT (SELECT count(*) FROM (SELECT 1 FROM runs WHERE lane = ? AND state = 'queued' LIMIT ${laneCap})) AS queued,
    EXISTS (SELECT 1 FROM runs WHERE lane = ? AND state IN ('running', 'waiting')) AS active, (SELECT seq FROM sqlite_sequence WHERE name = 'feed') AS pos`;

export function* insertRun(t: Tx, session: SessionRow, made: NewRun): Body<{ pk: number; id: string; lane: string }> {
  const lane = session.key;
  const { queued, active, pos } = (yield* t.one<{ queued: number; active: number; pos: number | null }>(laneNow, lane, lane))!;
  if (queued >= laneCap && (yield* waiting(t, lane)) >= laneCap)
    throw new InterlaneError('QUEUE_FULL', `session ${JSON.stringify(lane)} has ${laneCap} inputs waiting; try again later`);
  const head = queued === 0 && active === 0;
  const { lastId: pk } = yield* t.run(
    `INSERT INTO runs (id, session_pk, lane, class, ready_pos, cause, cause_pk, deliver, destination, root_pk, hop, budget_ms, not_before, queued_at) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)`,
    made.runId,
    session.pk,
    lane,
    made.class,
    head ? (pos ?? 0) + 1 : null,
    made.cause,
    made.causePk ?? null,
    made.deliver ? 1 : 0,
    made.destination === undefined ? null : JSON.stringify(made.destination),
    made.rootPk ?? null,
    made.hop ?? 0,
    made.budgetMs ?? 0,
    made.notBefore ?? null,
    made.now,
  );
  yield* t.run(
    'INSERT INTO inputs (session_pk, run_pk, mode, principal, taint, provenance, merge_key, text, context, at) VALUES (?,?,?,?,?,?,?,?,?,?)',
    session.pk,
    pk,
    made.mode,
    made.principal,
    made.taint,
    JSON.stringify(made.provenance),
    mergeKey(made.provenance, made.principal, JSON.stringify(made.destination ?? null)),
    made.text,
    made.context ?? null,
    made.now,
  );
  yield* noteRun(t, session, { pk, id: made.runId, class: made.class }, 'queued', made.now);
  return { pk, id: made.runId, lane };
}

/** What a reset has already stopped does not count against the next life, though some of it is still there. */
function* waiting(t: Tx, lane: string): Body<number> {
  const { n } = (yield* t.one<{ n: number }>(
    `SELECT count(*) AS n FROM (SELECT 1 FROM runs WHERE lane = ? AND state = 'queued'
       AND pk > (SELECT coalesce(max(upto), 0) FROM stops WHERE stops.lane = ?) LIMIT ?)`,
    lane,
    lane,
    laneCap,
  ))!;
  return n;
}

/** I3. Only the head of a lane can be claimed, and only while nothing in the lane is active. */
export function* promote(t: Tx, lane: string, pos: number): Body<void> {
  const head = yield* t.one<{ pk: number; ready_pos: number | null; stopped: number }>(
    `SELECT pk, ready_pos, EXISTS (SELECT 1 FROM stops WHERE stops.lane = runs.lane AND upto >= runs.pk) AS stopped
     FROM runs WHERE lane = ? AND state = 'queued' ORDER BY pk LIMIT 1`,
    lane,
  );
  if (!head || head.ready_pos !== null || head.stopped !== 0) return;
  const busy = yield* t.one(`SELECT 1 FROM runs WHERE lane = ? AND state IN ('running', 'waiting')`, lane);
  if (!busy) yield* t.run('UPDATE runs SET ready_pos = ? WHERE pk = ?', pos, head.pk);
}

export function* inputOf(t: Tx, runPk: number): Body<InputRow> {
  return (yield* t.one<InputRow>('SELECT * FROM inputs WHERE run_pk = ?', runPk))!;
}

/** An input becomes an entry when its turn takes it, so that a tool call is never split from its result. */
export function* consumeInput(t: Tx, session: SessionRow, run: { pk: number; id: string }, input: InputRow, now: number): Body<void> {
  const provenance = JSON.parse(input.provenance) as Provenance;
  const body = input.context === null ? undefined : { context: input.context };
  const entry = {
    id: derivedId(run.id, 'input', input.pk),
    role: 'user' as const,
    text: input.text,
    body,
    taint: input.taint,
    provenance,
    runPk: run.pk,
    runId: run.id,
  };
  const seq = yield* appendEntry(t, session, entry, now);
  // From here on the text lives in the transcript only.
  yield* t.run(`UPDATE inputs SET state = 'consumed', entry_seq = ?, text = '', context = NULL WHERE pk = ?`, seq, input.pk);
}

/** Takes in what is queued behind a turn and may join it. Each of those runs ends `ok`, merged into this one. */
export function* absorb(t: Tx, session: SessionRow, run: RunRow, mode: 'collect' | 'steer', now: number): Body<number> {
  if (run.abort_requested !== null) return 0; // it is being stopped, and what it took in would never be answered
  const queued = yield* t.all<RunRow & { mode: QueueMode; merge_key: string }>(
    `SELECT runs.*, inputs.mode, inputs.merge_key FROM runs JOIN inputs ON inputs.run_pk = runs.pk WHERE runs.lane = ? AND runs.state = 'queued' AND runs.session_pk = ? ORDER BY runs.pk LIMIT 50`,
    run.lane,
    run.session_pk,
  );
  const own = yield* inputOf(t, run.pk);
  const taken = queued.slice(
    0,
    takeable(
      { mode: own.mode, mergeKey: own.merge_key },
      queued.map((one) => ({ mode: one.mode, mergeKey: one.merge_key })),
      mode,
    ),
  );
  for (const other of taken) {
    yield* consumeInput(t, session, run, yield* inputOf(t, other.pk), now);
    yield* t.run(`UPDATE runs SET state = 'ok', ready_pos = NULL, merged_into = ?, ended_at = ? WHERE pk = ?`, run.pk, now, other.pk);
    yield* t.run('UPDATE waits SET target_run_pk = ? WHERE target_run_pk = ?', run.pk, other.pk);
    yield* noteRun(t, session, other, 'ok', now);
  }
  return taken.length;
}
