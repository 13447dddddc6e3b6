// The lane of a session: enqueues an input, makes the head claimable, and lets one turn absorb inputs that are queued behind it.
import { InterlaneError } from '../errors.ts';
import type { QueueMode, RunClass } from '../protocol/run.ts';
import type { Destination } from '../protocol/session.ts';
import type { Provenance, TurnContext } from '../protocol/transcript.ts';
import { mergeKey, takeable } from '../rules/queue-mode.ts';
import type { Body } from '../store/contract.ts';
import type { InputRow, RunRow, SessionRow } from '../store/rows.ts';
import * as inputs from '../store/tables/inputs.ts';
import * as lanes from '../store/tables/run-lanes.ts';
import * as runs from '../store/tables/runs.ts';
import * as waits from '../store/tables/waits.ts';
import { appendEntry, noteRun, type Tx } from './feed.ts';
import { derivedId } from './ids.ts';

/** A request for a turn. The constructors in input.ts make it. */
export interface Input {
  runId: string;
  text: string;
  /** How a message between sessions came about. */
  context?: TurnContext | undefined;
  provenance: Provenance;
  principal: string;
  taint: number;
  mode: QueueMode;
  class: RunClass;
  deliver: boolean;
  /** Where the answer goes. Only inputs with the same destination become one turn. */
  destination?: Destination | undefined;
  /** The flow that the end of its run advances. */
  flow?: { kind: string; pk: number } | undefined;
  /** The run that started the chain, and the number of messages between them. */
  chain?: { rootPk: number | undefined; hop: number } | undefined;
  /** Working time; 0 or none is no limit. Runs that a run starts in other sessions get the same budget. */
  budgetMs?: number | undefined;
  notBefore?: number | undefined;
}

/** The most inputs that may wait in one lane. At the cap a new input is refused before it is acknowledged; none is ever dropped. */
const laneCap = 10_000;

/** The only way into a lane: writes the input and its run, which is ready at once if the lane is free. */
export function* enqueue(t: Tx, session: SessionRow, input: Input, now: number): Body<{ pk: number; id: string; lane: string }> {
  const lane = session.key;
  yield* t.lock(`lane:${lane}`);
  const before = yield* lanes.laneNow(t, lane);
  const pk = yield* lanes.insert(t, {
    id: input.runId,
    sessionPk: session.pk,
    lane,
    class: input.class,
    readyPos: before.oldest === null && !before.active ? yield* t.next('ready') : null, // I3
    deliver: input.deliver,
    destination: input.destination === undefined ? null : JSON.stringify(input.destination),
    rootPk: input.chain?.rootPk ?? null,
    hop: input.chain?.hop ?? 0,
    budgetMs: input.budgetMs ?? 0,
    notBefore: input.notBefore ?? null,
    now,
  });
  if (before.oldest !== null && (yield* isFull(t, lane, before.oldest, pk)))
    throw new InterlaneError('QUEUE_FULL', `session ${JSON.stringify(lane)} has ${laneCap} inputs waiting; try again later`);
  yield* inputs.insert(t, {
    session_pk: session.pk,
    run_pk: pk,
    mode: input.mode,
    principal: input.principal,
    taint: input.taint,
    provenance: JSON.stringify(input.provenance),
    merge_key: mergeKey(input.provenance, input.principal, JSON.stringify(input.destination ?? null)),
    text: input.text,
    context: input.context === undefined ? null : JSON.stringify(input.context),
    at: now,
    flow: input.flow?.kind ?? null,
    flow_pk: input.flow?.pk ?? null,
  });
  noteRun(t, session, { pk, id: input.runId, class: input.class }, 'queued', now);
  return { pk, id: input.runId, lane };
}

/** Keys rise, so a lane whose oldest queued run is near the newest cannot be full; only then its queue is counted. */
function* isFull(t: Tx, lane: string, oldest: number, newest: number): Body<boolean> {
  return newest - oldest >= laneCap && (yield* lanes.queuedIn(t, lane, laneCap + 1)) > laneCap;
}

/** I3. Only the head of a lane can be claimed, and only while nothing in the lane is active. */
export function* promote(t: Tx, lane: string): Body<void> {
  const head = yield* lanes.headOf(t, lane);
  if (!head || head.ready_pos !== null || head.stopped !== 0) return;
  if (yield* lanes.activeIn(t, lane)) return;
  yield* lanes.setReady(t, head.pk, yield* t.next('ready'));
}

/** An input becomes an entry when its turn takes it, so that a tool call is never split from its result. */
export function* consumeInput(t: Tx, session: SessionRow, run: { pk: number; id: string }, input: InputRow, now: number): Body<void> {
  const provenance = JSON.parse(input.provenance) as Provenance;
  const body = input.context === null ? undefined : { context: readContext(input.context) };
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
  yield* inputs.consumed(t, input.pk, run.pk, seq);
}

/** Schema 3 and older stored the words themselves, which start with "[". */
const readContext = (text: string) => (text.startsWith('{') ? (JSON.parse(text) as TurnContext) : text);

/** Lets a turn absorb the queued inputs that may join it. Their runs end `ok`, merged into this run, whose end advances their flows. */
export function* absorb(t: Tx, session: SessionRow, run: RunRow, mode: 'collect' | 'steer', now: number): Body<number> {
  if (run.abort_requested !== null) return 0; // it is being stopped, and would never answer the inputs
  const queued = yield* lanes.behind(t, run, 50);
  const own = yield* inputs.ofRun(t, run.pk);
  const taken = queued.slice(
    0,
    takeable(
      { mode: own.mode, mergeKey: own.merge_key },
      queued.map((one) => ({ mode: one.mode, mergeKey: one.merge_key })),
      mode,
    ),
  );
  for (const other of taken) {
    yield* consumeInput(t, session, run, yield* inputs.ofRun(t, other.pk), now);
    yield* runs.mergedInto(t, other.pk, run.pk, now);
    yield* waits.retarget(t, other.pk, run.pk);
    noteRun(t, session, other, 'ok', now);
  }
  return taken.length;
}
