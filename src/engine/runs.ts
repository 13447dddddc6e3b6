// The life of a run, each move one transaction: claim, step, call, park, end, release, abort, recover. Every one checks the lease.
import { InterlaneError } from '../errors.ts';
import { runClasses, type RunClass } from '../protocol/run.ts';
import type { Cut } from '../protocol/transcript.ts';
import type { Body } from '../store/contract.ts';
import type { CallRow, RunRow, SessionRow, WaitRow } from '../store/rows.ts';
import {
  addUsage,
  answerWait,
  answerWaiters,
  endRun,
  notYet,
  tokensInUse,
  recordResult,
  resumeFirst,
  type CallResult,
  type Ending,
  type RunEnd,
} from './end.ts';
import { appendEntry, noteRun, type EngineCommand, type Tx } from './feed.ts';
import { derivedId } from './ids.ts';
import type { ProviderOptions, Thought, Usage } from './runner.ts';
import { overseen, type Operator } from './policy.ts';
import { absorb, consumeInput, inputOf } from './queue.ts';

/** A run that crashed its gateway more often than this is ended instead of tried again. */
const mostCrashes = 3;
/** From this many on it may be the run that kills. */
export const suspectCrashes = 2;
const sweepRows = 50;

/** Who may write for a run: the gateway that claimed it last. */
export interface Lease {
  runPk: number;
  epoch: number;
}

export interface Claim extends Lease {
  run: RunRow;
  session: SessionRow;
}

/** I3. Every write of a run passes here first; a stale holder's is refused. */
export function* held(t: Tx, lease: Lease): Body<{ run: RunRow; session: SessionRow }> {
  const run = yield* t.one<RunRow>(`SELECT * FROM runs WHERE pk = ? AND epoch = ? AND state = 'running'`, lease.runPk, lease.epoch);
  if (!run) throw new InterlaneError('LEASE_LOST', 'run is no longer held by this gateway');
  return { run, session: (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', run.session_pk))! };
}

export interface ClaimArgs {
  owner: number;
  free: Record<RunClass, number>;
  /** A run that was under way in two crashes is tried again only while no other such run is, so that one poison run does not take others with it. */
  suspectLive: boolean;
  now: number;
}

/** Takes the heads of lanes, oldest first within a class, for as many free slots as there are. */
export function claimRuns(ending: Ending): EngineCommand<ClaimArgs, Claim[]> {
  return {
    name: 'claim runs',
    *body(t, { owner, free, suspectLive, now }) {
      const claims: Claim[] = [];
      // Hardly ever is there one, so it is asked once for all classes.
      const anySuspect =
        !suspectLive && (yield* t.one(`SELECT 1 FROM runs WHERE ready_pos IS NOT NULL AND crashes >= ${suspectCrashes} LIMIT 1`));
      let suspects = anySuspect ? 1 : 0;
      for (const runClass of runClasses) {
        if (free[runClass] <= 0) continue;
        const ready = yield* t.all<RunRow>(
          `SELECT * FROM runs WHERE class = ? AND ready_pos IS NOT NULL AND (not_before IS NULL OR not_before <= ?) AND crashes < ${suspectCrashes} ORDER BY ready_pos LIMIT ?`,
          runClass,
          now,
          free[runClass],
        );
        const suspect =
          suspects === 0
            ? []
            : yield* t.all<RunRow>(
                `SELECT * FROM runs WHERE class = ? AND ready_pos IS NOT NULL AND crashes >= ${suspectCrashes} ORDER BY ready_pos LIMIT 1`,
                runClass,
              );
        suspects -= suspect.length;
        for (const run of [...suspect, ...ready].slice(0, free[runClass])) {
          if (run.abort_requested !== null)
            yield* endRun(t, ending, run, { outcome: 'aborted', code: 'ABORTED', error: run.abort_requested, now });
          else claims.push(yield* claim(t, run, owner, now));
        }
      }
      return claims;
    },
  };
}

function* claim(t: Tx, run: RunRow, owner: number, now: number): Body<Claim> {
  const session = (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', run.session_pk))!;
  const epoch = run.epoch + 1;
  yield* t.run(
    `UPDATE runs SET state = 'running', ready_pos = NULL, owner = ?, epoch = ?, started_at = coalesce(started_at, ?) WHERE pk = ?`,
    owner,
    epoch,
    now,
    run.pk,
  );
  const fresh = run.state === 'queued';
  Object.assign(run, { state: 'running', ready_pos: null, owner, epoch });
  if (fresh) {
    const input = yield* inputOf(t, run.pk);
    yield* consumeInput(t, session, run, input, now);
    if (input.mode === 'collect') yield* absorb(t, session, run, 'collect', now);
    yield* noteRun(t, session, run, 'running', now);
  }
  return { runPk: run.pk, epoch, run, session };
}

export interface PlannedCall {
  providerId: string;
  tool: string;
  args: Record<string, unknown>;
  effect: CallRow['effect'];
  providerOptions?: ProviderOptions | undefined;
}

/** The assistant's words and all its calls, before any of them is carried out. */
export const persistStep: EngineCommand<
  Lease & { text: string; calls: PlannedCall[]; usage: Usage; reasoning?: Thought[] | undefined; cut?: Cut | undefined; now: number },
  CallRow[]
> = {
  name: 'persist step',
  *body(t, { text, calls, usage, reasoning, cut, now, ...lease }) {
    const { run, session } = yield* held(t, lease);
    const step = run.step + 1;
    const body = {
      calls: calls.map((call, idx) => ({ id: `${step}.${idx}`, name: call.tool, arguments: call.args })),
      ...(reasoning ? { reasoning } : {}),
      ...(cut === undefined ? {} : { cut }),
      ...(calls.some((call) => call.providerOptions) ? { callOptions: calls.map((call) => call.providerOptions ?? null) } : {}),
    };
    session.total_tokens = tokensInUse(session, usage);
    yield* appendEntry(
      t,
      session,
      { id: derivedId(run.id, step), role: 'assistant', text, body, taint: session.taint, runPk: run.pk, step, runId: run.id },
      now,
    );
    yield* t.run('UPDATE runs SET step = ?, tokens = tokens + ? WHERE pk = ?', step, usage.input + usage.output, run.pk);
    yield* addUsage(t, run, session, usage);
    for (const [idx, call] of calls.entries()) {
      yield* t.run(
        'INSERT INTO tool_calls (run_pk, step, idx, provider_id, tool, args, effect) VALUES (?,?,?,?,?,?,?)',
        run.pk,
        step,
        idx,
        call.providerId,
        call.tool,
        JSON.stringify(call.args),
        call.effect,
      );
    }
    return yield* t.all<CallRow>('SELECT * FROM tool_calls WHERE run_pk = ? AND step = ? ORDER BY idx', run.pk, step);
  },
};

/** The model's own summary becomes an entry that prompts begin with from now on. It carries the session's taint. */
export const compactSession: EngineCommand<Lease & { text: string; through: number; usage: Usage; now: number }, void> = {
  name: 'compact session',
  *body(t, { text, through, usage, now, ...lease }) {
    const { run, session } = yield* held(t, lease);
    const id = derivedId(run.id, 'compact', through);
    if (yield* t.one('SELECT 1 FROM entries WHERE id = ?', id)) return;
    // How much is kept beside the summary is known after the next step; until then the conversation counts as short.
    session.total_tokens = usage.output;
    const seq = yield* appendEntry(
      t,
      session,
      {
        id,
        role: 'user',
        text,
        body: { compacted: { through } },
        taint: session.taint,
        provenance: { kind: 'system' },
        runPk: run.pk,
        runId: run.id,
      },
      now,
    );
    yield* t.run('UPDATE sessions SET compact_seq = ? WHERE pk = ?', seq, session.pk);
    yield* t.run('UPDATE runs SET tokens = tokens + ? WHERE pk = ?', usage.input + usage.output, run.pk);
    yield* addUsage(t, run, session, usage);
  },
};

/** Committed before the tool acts, so that a crash afterwards is known to have been possible. */
export const startCall: EngineCommand<Lease & { step: number; idx: number }, void> = {
  name: 'start call',
  *body(t, { step, idx, ...lease }) {
    yield* held(t, lease);
    yield* t.run(
      `UPDATE tool_calls SET state = 'started' WHERE run_pk = ? AND step = ? AND idx = ? AND state = 'planned'`,
      lease.runPk,
      step,
      idx,
    );
  },
};

export const finishCall: EngineCommand<Lease & { step: number; idx: number; result: CallResult; now: number }, void> = {
  name: 'finish call',
  *body(t, { step, idx, result, now, ...lease }) {
    const { run, session } = yield* held(t, lease);
    const call = (yield* t.one<CallRow>('SELECT * FROM tool_calls WHERE run_pk = ? AND step = ? AND idx = ?', run.pk, step, idx))!;
    if (call.state === 'done') return;
    yield* recordResult(t, run, session, call, result, now);
    if (!result.usage) return;
    yield* t.run('UPDATE runs SET tokens = tokens + ? WHERE pk = ?', result.usage.input + result.usage.output, run.pk);
    yield* addUsage(t, run, session, result.usage);
  },
};

/** I5. Gives back the slot and the lease while calls wait; answers false when they have all been answered meanwhile. */
export const parkRun: EngineCommand<Lease & { usedMs: number; now: number }, boolean> = {
  name: 'park run',
  *body(t, { usedMs, now, ...lease }) {
    const { run, session } = yield* held(t, lease);
    if (run.abort_requested !== null) return false; // it is stopped, not parked
    const waiting = yield* t.one('SELECT 1 FROM waits WHERE run_pk = ?', run.pk);
    if (!waiting) return false;
    yield* t.run(`UPDATE runs SET state = 'waiting', owner = NULL, used_ms = used_ms + ? WHERE pk = ?`, usedMs, run.pk);
    yield* noteRun(t, session, run, 'waiting', now);
    return true;
  },
};

/** At a step boundary: what was queued to steer this turn becomes part of it. */
export const absorbSteer: EngineCommand<Lease & { now: number }, number> = {
  name: 'absorb steer',
  *body(t, { now, ...lease }) {
    const { run, session } = yield* held(t, lease);
    return yield* absorb(t, session, run, 'steer', now);
  },
};

export function finishRun(ending: Ending): EngineCommand<Lease & RunEnd, void> {
  return {
    name: 'end run',
    *body(t, { runPk, epoch, ...end }) {
      const { run, session } = yield* held(t, { runPk, epoch });
      // Whoever asked for a stop was told that it stops; an end that was already on its way does not change that.
      const stopped = (end.outcome === 'ok' || end.outcome === 'aborted') && run.abort_requested !== null;
      yield* endRun(t, ending, run, stopped ? { ...end, outcome: 'aborted', code: 'ABORTED', error: run.abort_requested! } : end, session);
    },
  };
}

/** Hands a run back at shutdown. Not a crash: it goes on where it was, at the next start. */
export const releaseRun: EngineCommand<Lease & { usedMs: number }, void> = {
  name: 'release run',
  *body(t, { usedMs, ...lease }) {
    const { run, session } = yield* held(t, lease);
    yield* t.run(
      `UPDATE runs SET state = 'waiting', owner = NULL, ready_pos = ?, used_ms = used_ms + ? WHERE pk = ?`,
      resumeFirst + session.last_pos,
      usedMs,
      run.pk,
    );
  },
};

/** Asks a run to stop: at once where nothing is under way, else by a flag that recovery honours too. */
export function abortRun(
  ending: Ending,
): EngineCommand<
  { runId: string; reason: string; now: number; operator?: Operator | undefined },
  { aborted: boolean; stopping: number[] }
> {
  return {
    name: 'abort run',
    *body(t, { runId, reason, now, operator }) {
      let run = yield* t.one<RunRow>('SELECT * FROM runs WHERE id = ?', runId);
      while (run && run.merged_into !== null) run = yield* t.one<RunRow>('SELECT * FROM runs WHERE pk = ?', run.merged_into);
      const session = run && operator ? (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', run.session_pk))! : undefined;
      if (!run || (operator && !overseen(ending.world, session, operator)))
        throw new InterlaneError('RUN_NOT_FOUND', `run ${JSON.stringify(runId.slice(0, 100))} does not exist`);
      if (run.ended_at !== null) return { aborted: false, stopping: [] };
      if (run.state === 'running') {
        yield* t.run('UPDATE runs SET abort_requested = ? WHERE pk = ?', reason, run.pk);
        return { aborted: true, stopping: [run.pk] };
      }
      yield* endRun(t, ending, run, { outcome: 'aborted', code: 'ABORTED', error: reason, now });
      return { aborted: true, stopping: [] };
    },
  };
}

/** At start: this gateway has the state's lock, so whatever was running belongs to a dead one. Bounded; call until it says 0. */
export function recoverRuns(ending: Ending): EngineCommand<{ owner: number; now: number }, number> {
  return {
    name: 'recover runs',
    *body(t, { owner, now }) {
      const orphans = yield* t.all<RunRow>(`SELECT * FROM runs WHERE state = 'running' AND owner != ? LIMIT ?`, owner, sweepRows);
      for (const run of orphans) {
        const crashes = run.crashes + 1;
        yield* t.run(
          `UPDATE runs SET state = 'waiting', owner = NULL, epoch = epoch + 1, crashes = ?, ready_pos = ? WHERE pk = ?`,
          crashes,
          resumeFirst + run.pk,
          run.pk,
        );
        const orphan = { ...run, state: 'waiting' as const, crashes };
        if (run.abort_requested !== null)
          yield* endRun(t, ending, orphan, { outcome: 'aborted', code: 'ABORTED', error: run.abort_requested, now });
        else if (crashes > mostCrashes)
          yield* endRun(t, ending, orphan, {
            outcome: 'error',
            code: 'POISON',
            error: `the gateway died ${crashes} times during this run, so it is not tried again`,
            now,
          });
      }
      return orphans.length;
    },
  };
}

/** Waits whose time is over, among them those that an ending with very many waiters left for later. */
export const sweepWaits = (ending: Ending): EngineCommand<{ now: number }, number> => ({
  name: 'sweep waits',
  *body(t, { now }) {
    const due = yield* t.all<WaitRow>('SELECT * FROM waits WHERE due_at <= ? ORDER BY due_at LIMIT ?', now, sweepRows);
    for (const wait of due) {
      const target = (yield* t.one<RunRow>('SELECT * FROM runs WHERE pk = ?', wait.target_run_pk))!;
      if (target.ended_at !== null) {
        yield* answerWaiters(t, ending, target, now);
        continue;
      }
      const run = (yield* t.one<RunRow>('SELECT * FROM runs WHERE pk = ?', wait.run_pk))!;
      const waiter = (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', run.session_pk))!;
      yield* answerWait(t, wait, run, waiter, notYet(target.id), waiter.taint, now);
    }
    return due.length;
  },
});
