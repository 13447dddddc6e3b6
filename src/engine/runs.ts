// The life of a run, each move one transaction: claim, step, call, park, end, release, abort, recover. Every one checks the lease.
import { InterlaneError } from '../errors.ts';
import type { RunClass } from '../protocol/run.ts';
import { resumeFirst } from '../store/counters.ts';
import type { Body } from '../store/contract.ts';
import type { CallRow, RunRow, SessionRow } from '../store/rows.ts';
import * as calls from '../store/tables/tool-calls.ts';
import * as entries from '../store/tables/entries.ts';
import * as runs from '../store/tables/runs.ts';
import * as sessions from '../store/tables/sessions.ts';
import * as waits from '../store/tables/waits.ts';
import { endRun, spoken, type RunEnd } from './end.ts';
import { appendEntry, noteRun, type EngineCommand, type Tx } from './feed.ts';
import type { Current } from './flow.ts';
import { derivedId } from './ids.ts';
import { visibleToOperator, type Operator } from './policy.ts';
import { absorb, consumeInput } from './queue.ts';
import { requireLease, requireLeaseToEnd, type Claim, type Lease } from './lease.ts';
import { addToSession, recordResult, spentOf, tokensInUse, type CallResult, type Step, type Usage } from './step.ts';

/** A run whose gateway crashed more often than this without a step in between ends instead of being tried again. */
const mostCrashes = 3;
const sweepRows = 50;

export interface ClaimArgs {
  owner: number;
  free: Record<RunClass, number>;
  /** A run that was active in two crashes is retried only while no other such run is active, so that a poison run fails alone. */
  suspectLive: boolean;
  now: number;
}

/** Takes the heads of lanes, oldest first within a class, for as many free slots as there are. */
export function claimRuns(current: Current): EngineCommand<ClaimArgs, Claim[]> {
  return {
    name: 'claim runs',
    *body(t, { owner, free, suspectLive, now }) {
      const kernel = current();
      const left = { ...free };
      const claims: Claim[] = [];
      const ready = yield* runs.ready(t, free, suspectLive ? 0 : 1, now);
      const isSuspect = ({ run }: runs.Ready) => run.crashes >= runs.suspectCrashes;
      for (const one of [...ready.filter(isSuspect), ...ready.filter((other) => !isSuspect(other))]) {
        const { run, session } = one;
        if (left[run.class] <= 0 || !(yield* t.tryLock(`lane:${run.lane}`))) continue;
        left[run.class]--;
        if (run.abort_requested !== null)
          yield* endRun(t, kernel, run, { outcome: 'aborted', code: 'ABORTED', error: run.abort_requested, now }, { session });
        else {
          const claimed = yield* claim(t, one, owner, now);
          if (claimed) claims.push(claimed);
        }
      }
      return claims;
    },
  };
}

function* claim(t: Tx, { run, session, input, behind }: runs.Ready, owner: number, now: number): Body<Claim | undefined> {
  const fresh = run.state === 'queued';
  if (!(yield* runs.claim(t, run, owner, now))) return undefined;
  if (fresh) {
    yield* consumeInput(t, session, run, input, now);
    if (input.mode === 'collect') yield* absorb(t, session, run, 'collect', now);
    noteRun(t, session, run, 'running', now);
  }
  return { runPk: run.pk, epoch: run.epoch, lane: run.lane, run, session, behind };
}

/** Stores a step before any of its calls is carried out. */
export const persistStep: EngineCommand<Lease & Step & { now: number }, CallRow[]> = {
  name: 'persist step',
  *body(t, { now, runPk, epoch, lane, ...step }) {
    const { run, session } = yield* requireLease(t, { runPk, epoch, lane });
    return yield* keepStep(t, run, session, step, now);
  },
};

/** Stores a step that was carried out elsewhere: its calls and their results together. */
export const recordStep: EngineCommand<Lease & Step & { results: CallResult[]; now: number }, void> = {
  name: 'record step',
  *body(t, { now, runPk, epoch, lane, results, ...step }) {
    const { run, session } = yield* requireLease(t, { runPk, epoch, lane });
    const kept = yield* keepStep(t, run, session, step, now);
    for (const [index, call] of kept.entries()) yield* recordResult(t, run, session, call, results[index]!, now);
  },
};

function* keepStep(t: Tx, run: RunRow, session: SessionRow, made: Step, now: number): Body<CallRow[]> {
  const { text, usage, reasoning, cut } = made;
  const step = run.step + 1;
  const body = {
    calls: made.calls.map((call, idx) => ({ id: `${step}.${idx}`, name: call.tool, arguments: call.args })),
    ...(reasoning ? { reasoning } : {}),
    ...(cut === undefined ? {} : { cut }),
    ...(made.calls.some((call) => call.providerOptions) ? { callOptions: made.calls.map((call) => call.providerOptions ?? null) } : {}),
  };
  session.total_tokens = tokensInUse(session, usage);
  addToSession(session, usage);
  const id = derivedId(run.id, step);
  yield* appendEntry(t, session, { id, role: 'assistant', text, body, taint: session.taint, runPk: run.pk, step, runId: run.id }, now);
  yield* runs.stepped(t, run.pk, step, spentOf(usage));
  const kept: CallRow[] = [];
  for (const [idx, call] of made.calls.entries()) {
    const { providerId: provider_id, tool, effect } = call;
    kept.push(yield* calls.insert(t, { run_pk: run.pk, step, idx, provider_id, tool, args: JSON.stringify(call.args), effect }));
  }
  return kept;
}

/** The model's own summary becomes an entry that prompts begin with from now on. It carries the session's taint. */
export const compactSession: EngineCommand<Lease & { text: string; through: number; usage: Usage; now: number }, void> = {
  name: 'compact session',
  *body(t, { text, through, usage, now, ...lease }) {
    const { run, session } = yield* requireLease(t, lease);
    const id = derivedId(run.id, 'compact', through);
    if (yield* entries.byId(t, id)) return;
    // The next step tells how many tokens are in use beside the summary; until then the conversation counts as short.
    session.total_tokens = usage.output;
    session.compact_seq = session.next_seq;
    addToSession(session, usage);
    const entry = {
      id,
      role: 'user' as const,
      text,
      body: { compacted: { through } },
      taint: session.taint,
      provenance: { kind: 'system' as const },
      runPk: run.pk,
      runId: run.id,
    };
    yield* appendEntry(t, session, entry, now);
    yield* runs.stepped(t, run.pk, run.step, spentOf(usage));
  },
};

/** Committed before the tool acts, so that recovery knows that the tool may have acted. */
export const startCall: EngineCommand<Lease & { step: number; idx: number }, void> = {
  name: 'start call',
  *body(t, { step, idx, ...lease }) {
    yield* requireLease(t, lease);
    yield* calls.started(t, lease.runPk, step, idx);
  },
};

export const finishCall: EngineCommand<Lease & { step: number; idx: number; result: CallResult; now: number }, void> = {
  name: 'finish call',
  *body(t, { step, idx, result, now, ...lease }) {
    const { run, session } = yield* requireLease(t, lease);
    const call = yield* calls.get(t, run.pk, step, idx);
    if (call.state === 'done') return;
    if (result.usage) addToSession(session, result.usage);
    yield* recordResult(t, run, session, call, result, now);
    if (result.usage) yield* runs.stepped(t, run.pk, run.step, spentOf(result.usage));
  },
};

/** I5. Gives up the slot and the lease while calls wait. Returns false if they have all got results in the meantime. */
export const parkRun: EngineCommand<Lease & { usedMs: number; now: number }, boolean> = {
  name: 'park run',
  *body(t, { usedMs, now, ...lease }) {
    const { run, session } = yield* requireLease(t, lease);
    if (run.abort_requested !== null) return false; // it is being stopped, so it is not parked
    if (!(yield* waits.anyOf(t, run.pk))) return false;
    yield* runs.park(t, run.pk, 'calls', usedMs, null);
    noteRun(t, session, run, 'waiting', now);
    return true;
  },
};

/** At a step boundary: inputs that were queued to steer this turn become part of it. */
export const absorbSteer: EngineCommand<Lease & { now: number }, number> = {
  name: 'absorb steer',
  *body(t, { now, ...lease }) {
    const { run, session } = yield* requireLease(t, lease);
    return yield* absorb(t, session, run, 'steer', now);
  },
};

export function finishRun(current: Current): EngineCommand<Lease & RunEnd, void> {
  return {
    name: 'end run',
    texts: ({ outcome, text }) => (outcome === 'ok' && text ? spoken(text) : []),
    *body(t, { runPk, epoch, lane, ...end }) {
      const kernel = current();
      const { run, ...loaded } = yield* requireLeaseToEnd(t, { runPk, epoch, lane });
      // An acknowledged abort wins over a concurrent success.
      const stopped = (end.outcome === 'ok' || end.outcome === 'aborted') && run.abort_requested !== null;
      yield* endRun(t, kernel, run, stopped ? { ...end, outcome: 'aborted', code: 'ABORTED', error: run.abort_requested! } : end, loaded);
    },
  };
}

/** Releases a run at shutdown. It does not count as a crash; the run resumes at the next start. */
export const releaseRun: EngineCommand<Lease & { usedMs: number }, void> = {
  name: 'release run',
  *body(t, { usedMs, ...lease }) {
    const { run } = yield* requireLease(t, lease);
    yield* runs.park(t, run.pk, 'slot', usedMs, resumeFirst + (yield* t.next('ready')));
  },
};

/** Stops a run: at once if it is not running, otherwise by a flag that recovery respects too. */
export function abortRun(
  current: Current,
): EngineCommand<
  { runId: string; reason: string; now: number; operator?: Operator | undefined },
  { aborted: boolean; stopping: number[] }
> {
  return {
    name: 'abort run',
    *body(t, { runId, reason, now, operator }) {
      const kernel = current();
      const found = yield* runs.followed(t, runId);
      if (found) yield* t.lock(`lane:${found.lane}`);
      const session = found && operator ? yield* sessions.get(t, found.session_pk) : undefined;
      if (!found || (operator && !visibleToOperator(kernel.world, session, operator)))
        throw new InterlaneError('RUN_NOT_FOUND', `run ${JSON.stringify(runId.slice(0, 100))} does not exist`);
      // Another command may have changed it before this one got the lock.
      const run = yield* runs.get(t, found.pk);
      if (run.ended_at !== null) return { aborted: false, stopping: [] };
      if (run.state === 'running') {
        yield* runs.requestAbort(t, run.pk, reason);
        return { aborted: true, stopping: [run.pk] };
      }
      yield* endRun(t, kernel, run, { outcome: 'aborted', code: 'ABORTED', error: reason, now });
      return { aborted: true, stopping: [] };
    },
  };
}

/** At start this gateway has the state's lock, so "running" runs belong to a dead one. Bounded; call again until it returns 0. */
export function recoverRuns(current: Current): EngineCommand<{ owner: number; now: number }, number> {
  return {
    name: 'recover runs',
    *body(t, { owner, now }) {
      const kernel = current();
      const orphans = yield* runs.orphans(t, owner, sweepRows);
      yield* t.lock(...orphans.map((run) => `lane:${run.lane}` as const));
      for (const run of orphans) {
        yield* runs.recover(t, run, resumeFirst + (yield* t.next('ready')));
        if (run.abort_requested !== null)
          yield* endRun(t, kernel, run, { outcome: 'aborted', code: 'ABORTED', error: run.abort_requested, now });
        else if (run.crashes > mostCrashes)
          yield* endRun(t, kernel, run, {
            outcome: 'error',
            code: 'POISON',
            error: `the gateway died ${run.crashes} times at the same step of this run, so it is not retried`,
            now,
          });
      }
      return orphans.length;
    },
  };
}
