// A claimed run → the turn that a runner gets. Each write is one transaction under the lease.
import type { Clock } from '../clock.ts';
import type { Body, Reading, ReadQuery, Store } from '../store/contract.ts';
import type { CallRow, EntryRow, SessionRow } from '../store/rows.ts';
import * as calls from '../store/tables/tool-calls.ts';
import * as entries from '../store/tables/entries.ts';
import { entriesBefore, entryRows, whole } from '../store/tables/entry-pages.ts';
import * as lanes from '../store/tables/run-lanes.ts';
import * as sessions from '../store/tables/sessions.ts';
import { messageOf, type EntryBody } from '../store/views.ts';
import type { RunEnd } from './end.ts';
import { offerRun } from './offers.ts';
import { inCallOrder } from './call-order.ts';
import { destinationOf, settingsOf } from './policy.ts';
import type { PendingCall, PromptMessage, Turn } from './runner.ts';
import type { ProviderOptions, Thought } from './step.ts';
import type { Claim, Lease } from './lease.ts';
import { absorbSteer, compactSession, finishCall, parkRun, persistStep, recordStep, startCall } from './runs.ts';

interface TurnParts {
  store: Store;
  clock: Pick<Clock, 'now'>;
}

/** The scheduler's state of a turn. */
interface TurnState {
  claim: Claim;
  signal: AbortSignal;
  /** Active time so far. */
  usedMs(): number;
  /** Whether an input was queued behind it in its lane. */
  behind(): boolean;
  /** Text since the last step; stored if the turn is stopped. */
  live: { add(text: string): void; drop(): void; keep(): void };
  end(end: Lease & RunEnd): Promise<void>;
}

export function makeTurn({ store, clock }: TurnParts, { claim, signal, usedMs, behind, live, end }: TurnState): Turn {
  const { run, runPk, epoch, lane } = claim;
  const lease = { runPk, epoch, lane };
  let steps = run.step;
  // The first look uses the row that the claim has read, unless the turn has written something since.
  let fresh: SessionRow | undefined = claim.session;
  const write: Store['write'] = (command, args, options) => {
    fresh = undefined;
    return store.write(command, args, options);
  };
  const pendingOf = (rows: CallRow[]): PendingCall[] =>
    rows.map((row) => ({
      step: row.step,
      idx: row.idx,
      tool: row.tool,
      args: JSON.parse(row.args) as Record<string, unknown>,
      effect: row.effect,
      state: row.state,
      key: `${run.id}/${row.step}/${row.idx}`,
    }));
  const { session } = claim;
  const urgent = (bytes = 0) => ({ urgent: true, bytes });
  return {
    runId: run.id,
    lease,
    sessionPk: session.pk,
    sessionId: session.id,
    sessionKey: session.key,
    agentId: session.agent,
    destination: destinationOf(run),
    settings: settingsOf(session),
    totalTokens: session.total_tokens,
    get steps() {
      return steps;
    },
    signal,
    look: async (limit) => {
      const loaded = fresh;
      fresh = undefined;
      return store.read(lookAt(loaded), { sessionPk: session.pk, limit });
    },
    // Before the first step there are no calls.
    pending: async () => (steps === 0 ? [] : pendingOf(await store.read(pendingCalls, { runPk, step: steps }))),
    // Ignores a result that comes after the stop.
    delta: (text) => void (signal.aborted || live.add(text)),
    retract: () => void (signal.aborted || live.drop()),
    compact: (summary) => write(compactSession, { ...lease, ...summary, now: clock.now() }, urgent(summary.text.length)),
    step: async (step) => {
      const rows = await write(persistStep, { ...lease, ...step, now: clock.now() }, urgent(step.text.length));
      steps++;
      live.keep();
      return pendingOf(rows);
    },
    record: async (step, results) => {
      await write(recordStep, { ...lease, ...step, results, now: clock.now() }, urgent(step.text.length));
      steps++;
      live.keep();
    },
    startCall: (call) => write(startCall, { ...lease, step: call.step, idx: call.idx }, urgent()),
    finishCall: (call, result) =>
      write(finishCall, { ...lease, step: call.step, idx: call.idx, result, now: clock.now() }, urgent(result.text.length)),
    steer: async () => {
      if (!behind() || !(await store.read(steerWaits, { lane }))) return 0;
      return write(absorbSteer, { ...lease, now: clock.now() }, urgent());
    },
    park: () => write(parkRun, { ...lease, usedMs: usedMs(), now: clock.now() }, urgent()),
    offer: () => write(offerRun, { ...lease, usedMs: usedMs(), now: clock.now() }, urgent()),
    end: ({ text, usage, cut }) => {
      signal.throwIfAborted();
      return end({ ...lease, outcome: 'ok', text, usage, cut, usedMs: usedMs(), now: clock.now() });
    },
  };
}

const pendingCalls: ReadQuery<{ runPk: number; step: number }, CallRow[]> = {
  name: 'pending calls',
  *body(t, { runPk, step }) {
    return yield* calls.open(t, runPk, step);
  },
};

const steerWaits: ReadQuery<{ lane: string }, boolean> = {
  name: 'steer waits',
  *body(t, { lane }) {
    return yield* lanes.steerWaits(t, lane);
  },
};

function promptMessage(row: EntryRow): PromptMessage {
  const message: PromptMessage = messageOf(row, undefined);
  if (row.body === null) return message;
  const { context, reasoning, callOptions } = JSON.parse(row.body) as EntryBody;
  if (context !== undefined) message.context = context;
  if (reasoning !== undefined) message.reasoning = reasoning as Thought[];
  if (callOptions !== undefined) message.callOptions = callOptions as (ProviderOptions | null)[];
  return message;
}

/** The session as it is now, and the end of its transcript. */
function lookAt(loaded: SessionRow | undefined): ReadQuery<{ sessionPk: number; limit: number }, Awaited<ReturnType<Turn['look']>>> {
  return {
    name: 'look',
    rows: ({ limit }) => Math.min(limit, loaded ? loaded.next_seq - (loaded.compact_seq ?? 0) : 0),
    *body(t, { sessionPk, limit }) {
      const session = loaded ?? (yield* sessions.get(t, sessionPk));
      return { session, settings: settingsOf(session), prompt: yield* promptOf(t, session, limit) };
    },
  };
}

/** The end of a transcript as a model reads it, oldest first. */
export const readPrompt: ReadQuery<{ sessionPk: number; limit: number }, PromptMessage[]> = {
  name: 'prompt',
  rows: ({ limit }) => limit,
  *body(t, { sessionPk, limit }) {
    return yield* promptOf(t, yield* sessions.get(t, sessionPk), limit);
  },
};

/** A summary replaces the entries that it sums up; a newer summary includes the older one. */
function* promptOf(t: Reading, { pk, compact_seq: at }: SessionRow, limit: number): Body<PromptMessage[]> {
  const summary = at === null ? undefined : yield* entries.bySeq(t, pk, at);
  const through = summary ? ((JSON.parse(summary.body!) as EntryBody).compacted?.through ?? 0) : 0;
  const later: PromptMessage[] = [];
  for (let before = Number.MAX_SAFE_INTEGER, left = limit; left > 0;) {
    const page = yield* entriesBefore(t, pk, before, Math.min(left, entryRows), through);
    for (const row of yield* whole(t, page)) {
      const message = promptMessage(row);
      if (!message.summary) later.push(message);
    }
    if (page.length < Math.min(left, entryRows)) break;
    left -= page.length;
    before = page.at(-1)!.seq;
  }
  if (summary) later.push(promptMessage(summary));
  return inCallOrder(later.toReversed());
}
