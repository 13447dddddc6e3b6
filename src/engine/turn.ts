// A claimed run → the turn that a runner sees: what it may read and write, each write one transaction under the lease.
import type { Store, ReadQuery } from '../store/contract.ts';
import type { FeedEvent } from '../protocol/event.ts';
import type { CallRow, EntryRow } from '../store/rows.ts';
import { messageOf, type EntryBody } from '../store/views.ts';
import type { RunEnd } from './end.ts';
import { offerRun } from './offers.ts';
import { inCallOrder } from './call-order.ts';
import { settingsOf, type SessionSettings } from './policy.ts';
import type { PendingCall, PromptMessage, ProviderOptions, Thought, Turn } from './runner.ts';
import { absorbSteer, compactSession, finishCall, parkRun, persistStep, startCall, type Claim, type Lease } from './runs.ts';

interface TurnParts {
  store: Store<FeedEvent>;
  clock: { now(): number };
}

/** What the engine keeps of a turn, and is told about it. */
interface Hold {
  claim: Claim;
  signal: AbortSignal;
  /** Active time so far. */
  usedMs(): number;
  heard(text: string): void;
  /** What was said since the last step is tried again. */
  retracted(): void;
  /** A step was kept, with what was said before it. */
  stepped(): void;
  finish(end: Lease & RunEnd): Promise<void>;
  /** The turn has ended or is parked. */
  settled(): void;
}

export function makeTurn({ store, clock }: TurnParts, hold: Hold): Turn {
  const { run, session, runPk, epoch } = hold.claim;
  const lease = { runPk, epoch };
  let steps = run.step;
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
  return {
    runId: run.id,
    lease,
    sessionPk: session.pk,
    sessionId: session.id,
    sessionKey: session.key,
    agentId: session.agent,
    totalTokens: session.total_tokens,
    get steps() {
      return steps;
    },
    signal: hold.signal,
    prompt: (limit) => store.read(readPrompt, { sessionPk: session.pk, limit }),
    // Before the first step there can be none.
    pending: async () => (steps === 0 ? [] : pendingOf(await store.read(pendingCalls, { runPk }))),
    // What a stopped call still says comes too late.
    delta: (text) => void (hold.signal.aborted || hold.heard(text)),
    retract: () => void (hold.signal.aborted || hold.retracted()),
    settings: () => store.read(sessionSettings, { sessionPk: session.pk }),
    compact: (summary) =>
      store.write(compactSession, { ...lease, ...summary, now: clock.now() }, { urgent: true, bytes: summary.text.length }),
    step: async (step) => {
      const rows = await store.write(persistStep, { ...lease, ...step, now: clock.now() }, { urgent: true, bytes: step.text.length });
      steps++;
      hold.stepped();
      return pendingOf(rows);
    },
    startCall: (call) => store.write(startCall, { ...lease, step: call.step, idx: call.idx }, { urgent: true }),
    finishCall: (call, result) =>
      store.write(
        finishCall,
        { ...lease, step: call.step, idx: call.idx, result, now: clock.now() },
        { urgent: true, bytes: result.text.length },
      ),
    steer: async () =>
      (await store.read(hasSteer, { lane: run.lane })) ? store.write(absorbSteer, { ...lease, now: clock.now() }, { urgent: true }) : 0,
    park: async () => {
      const parked = await store.write(parkRun, { ...lease, usedMs: hold.usedMs(), now: clock.now() }, { urgent: true });
      if (parked) hold.settled();
      return parked;
    },
    offer: async () => {
      const offered = await store.write(offerRun, { ...lease, usedMs: hold.usedMs(), now: clock.now() }, { urgent: true });
      if (offered) hold.settled();
      return offered;
    },
    end: async ({ text, usage, cut }) => {
      hold.signal.throwIfAborted();
      await hold.finish({ ...lease, outcome: 'ok', text, usage, cut, usedMs: hold.usedMs(), now: clock.now() });
      hold.settled();
    },
  };
}

const pendingCalls: ReadQuery<{ runPk: number }, CallRow[]> = {
  name: 'pending calls',
  *body(t, { runPk }) {
    return yield* t.all<CallRow>(
      `SELECT * FROM tool_calls WHERE run_pk = ? AND step = (SELECT step FROM runs WHERE pk = ?) AND state != 'done' ORDER BY idx`,
      runPk,
      runPk,
    );
  },
};

const hasSteer: ReadQuery<{ lane: string }, boolean> = {
  name: 'has steer',
  *body(t, { lane }) {
    const head = yield* t.one<{ mode: string }>(
      `SELECT inputs.mode FROM runs JOIN inputs ON inputs.run_pk = runs.pk WHERE runs.lane = ? AND runs.state = 'queued' ORDER BY runs.pk LIMIT 1`,
      lane,
    );
    return head?.mode === 'steer';
  },
};

function promptMessage(row: EntryRow): PromptMessage {
  const message: PromptMessage = messageOf(row, undefined);
  if (row.body === null) return message;
  const { context, reasoning, callOptions, compacted } = JSON.parse(row.body) as EntryBody;
  if (context !== undefined) message.context = context;
  if (reasoning !== undefined) message.reasoning = reasoning as Thought[];
  if (callOptions !== undefined) message.callOptions = callOptions as (ProviderOptions | null)[];
  if (compacted !== undefined) message.summary = true;
  return message;
}

const sessionSettings: ReadQuery<{ sessionPk: number }, SessionSettings> = {
  name: 'session settings',
  *body(t, { sessionPk }) {
    return settingsOf((yield* t.one<{ settings: string }>('SELECT settings FROM sessions WHERE pk = ?', sessionPk))!);
  },
};

/** The end of a transcript as a model is to see it, oldest first; what was summed up is there as its summary. */
export const readPrompt: ReadQuery<{ sessionPk: number; limit: number }, PromptMessage[]> = {
  name: 'prompt',
  *body(t, { sessionPk, limit }) {
    const { compact_seq: at } = (yield* t.one<{ compact_seq: number | null }>('SELECT compact_seq FROM sessions WHERE pk = ?', sessionPk))!;
    const summary =
      at === null ? undefined : yield* t.one<EntryRow>('SELECT * FROM entries WHERE session_pk = ? AND seq = ?', sessionPk, at);
    const through = summary ? ((JSON.parse(summary.body!) as EntryBody).compacted?.through ?? 0) : 0;
    const rows = yield* t.all<EntryRow>(
      'SELECT * FROM entries WHERE session_pk = ? AND seq > ? ORDER BY seq DESC LIMIT ?',
      sessionPk,
      through,
      limit,
    );
    // A summary stands where what it sums up stood, and an older one is part of the newer.
    const later = rows
      .toReversed()
      .map(promptMessage)
      .filter((message) => !message.summary);
    return inCallOrder(summary ? [promptMessage(summary), ...later] : later);
  },
};
