// Keeps lanes moving: claims runs for free slots, hands each to its runner, and writes exactly one end for it.
import type { Clock } from '../clock.ts';
import { InterlaneError, reasonOf } from '../errors.ts';
import { levelName } from '../levels.ts';
import type { FeedEvent } from '../protocol/event.ts';
import type { Level } from '../protocol/labels.ts';
import { runClasses, type RunClass } from '../protocol/run.ts';
import type { Store } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import { suspectCrashes } from '../store/tables/runs.ts';
import type { Current } from './flow.ts';
import type { Claim } from './lease.ts';
import type { Runner } from './runner.ts';
import { claimRuns, finishRun, releaseRun } from './runs.ts';
import { makeTurn } from './turn.ts';
import type { Report, Warn } from '../warn.ts';

/** Text while a model writes it. `replace`: the earlier text of this step is void, and another attempt at the step begins. */
export interface Delta {
  runId: string;
  sessionKey: string;
  /** The step that is being written; its entry will have the same number. */
  step: number;
  /** From 1 on, in this gateway. */
  attempt: number;
  /** Where the text begins in the text of the step. */
  offset: number;
  text: string;
  replace?: true;
}

/** A run that goes on here after it was parked, or after a restart. */
export interface Resumed {
  runId: string;
  sessionKey: string;
  agentId: string;
  level: Level;
  startedAt: number;
  /** How often it was taken up before. */
  earlier: number;
}

export interface SchedulerParts {
  store: Store;
  clock: Clock;
  current: Current;
  runner(session: SessionRow): Runner;
  caps: Record<RunClass, number>;
  warn: Warn;
  /** `what` is a sentence about a failure that no caller waits for. */
  failed: Report;
  /** Text while a model writes it; ephemeral. */
  onDelta?(delta: Delta): void;
  onResumed?(run: Resumed): void;
}

interface Live {
  claim: Claim;
  controller: AbortController;
  startedAt: number;
  done: Promise<void>;
  /** Text since the last step; stored if the turn is stopped. */
  streamed: string;
  /** Whether an input was queued behind it in its lane. */
  behind: boolean;
  /** Whether its end or its wait is committed, so that it needs no slot. */
  over: boolean;
}

class Stopped {
  readonly why: 'abort' | 'timeout' | 'shutdown';
  readonly reason: string;
  constructor(why: 'abort' | 'timeout' | 'shutdown', reason: string) {
    this.why = why;
    this.reason = reason;
  }
}

const retryMs = 1_000;
const longestRetryMs = 5_000;

export class Scheduler {
  private readonly parts: SchedulerParts;
  private readonly claim: ReturnType<typeof claimRuns>;
  private readonly finishRun: ReturnType<typeof finishRun>;
  private readonly live = new Map<number, Live>();
  private readonly lanes = new Map<string, Live>();
  /** Lanes in which something was queued since the claim under way began. */
  private readonly queuedMeanwhile = new Set<string>();
  private owner = 0;
  private running = false;
  private claiming: Promise<void> | undefined;
  private pumpAgain = false;

  constructor(parts: SchedulerParts) {
    this.parts = parts;
    this.claim = claimRuns(parts.current);
    this.finishRun = finishRun(parts.current);
  }

  start(owner: number): void {
    this.owner = owner;
    this.running = true;
    this.pump();
  }

  /** Stops claiming, lets live turns finish for a while, and releases the rest to the queue. */
  async close(graceMs: number): Promise<void> {
    this.running = false;
    await this.claiming; // its runs are released like the others
    const turns = [...this.live.values()];
    const cancel = this.parts.clock.after(graceMs, () => {
      for (const { controller } of turns) controller.abort(new Stopped('shutdown', 'the gateway is stopping'));
    });
    await Promise.all(turns.map((turn) => turn.done));
    cancel();
  }

  /** Whether no work is left that could progress by itself. */
  get idle(): boolean {
    return this.live.size === 0 && this.claiming === undefined;
  }

  published(events: FeedEvent[]): void {
    let ready = false;
    for (const event of events) {
      // The event of a claim makes no run ready.
      if (event.kind !== 'run' || event.state === 'running') continue;
      ready = true;
      const live = this.lanes.get(event.sessionKey);
      if (event.state === 'queued') {
        if (live) live.behind = true;
        // A claim under way may begin a turn in this lane, and cannot have seen this run behind it.
        if (this.claiming) this.queuedMeanwhile.add(event.sessionKey);
      } else if (live?.claim.run.id === event.runId) live.over = true; // its slot is free from here on
    }
    if (ready) this.pump();
  }

  /** Interrupts those of the stopped runs that are live in this gateway. */
  stop(runPks: number[]): void {
    for (const pk of runPks) this.live.get(pk)?.controller.abort(new Stopped('abort', 'aborted'));
  }

  /** One claim at a time; runs that become ready in the meantime are claimed next. */
  pump(): void {
    if (!this.running) return;
    if (this.claiming) {
      this.pumpAgain = true;
      return;
    }
    const free = this.freeSlots();
    if (runClasses.every((runClass) => free[runClass] <= 0)) return;
    const suspectLive = [...this.live.values()].some(({ claim, over }) => !over && claim.run.crashes >= suspectCrashes);
    const args = { owner: this.owner, free, suspectLive, now: this.parts.clock.now() };
    this.queuedMeanwhile.clear();
    this.claiming = this.parts.store
      .write(this.claim, args, { urgent: true })
      .then((claims) => {
        for (const claim of claims) this.begin(claim);
      })
      .catch((thrown: unknown) => {
        if (!this.running) return;
        this.parts.failed('runs could not be claimed', thrown);
        this.parts.clock.after(retryMs, () => this.pump());
      })
      .finally(() => {
        this.claiming = undefined;
        if (!this.pumpAgain) return;
        this.pumpAgain = false;
        this.pump();
      });
  }

  private freeSlots(): Record<RunClass, number> {
    const free = { ...this.parts.caps };
    for (const { claim, over } of this.live.values()) if (!over) free[claim.run.class]--;
    return free;
  }

  private begin(claim: Claim): void {
    const live: Live = {
      claim,
      controller: new AbortController(),
      startedAt: this.parts.clock.elapsed(),
      done: Promise.resolve(),
      streamed: '',
      behind: claim.behind || this.queuedMeanwhile.has(claim.lane),
      over: false,
    };
    this.live.set(claim.runPk, live);
    this.lanes.set(claim.lane, live);
    const { run, session, epoch } = claim;
    if (epoch > 1)
      this.parts.onResumed?.({
        runId: run.id,
        sessionKey: session.key,
        agentId: session.agent,
        level: levelName(session.level),
        startedAt: run.started_at ?? this.parts.clock.now(),
        earlier: epoch - 1,
      });
    live.done = this.takeTurn(live).finally(() => {
      if (this.live.get(claim.runPk) === live) this.live.delete(claim.runPk);
      if (this.lanes.get(claim.lane) === live) this.lanes.delete(claim.lane);
      // A turn whose end or wait was published has freed its slot already.
      if (!live.over) this.pump();
    });
  }

  /** A run fails as data: whatever the runner does, exactly one end is written, unless the lease is gone. */
  private async takeTurn(live: Live): Promise<void> {
    const { claim, controller } = live;
    const { run } = claim;
    const left = run.budget_ms - run.used_ms;
    const stopClock =
      run.budget_ms > 0
        ? this.parts.clock.after(Math.max(0, left), () =>
            controller.abort(new Stopped('timeout', `the run took longer than ${run.budget_ms} ms`)),
          )
        : () => {};
    let attempt = 1;
    const tell = (text: string, replace?: true) => {
      const place = { step: turn.steps + 1, attempt, offset: live.streamed.length };
      this.parts.onDelta?.({ runId: run.id, sessionKey: claim.session.key, ...place, text, ...(replace ? { replace } : {}) });
    };
    let ended = false;
    const turn = makeTurn(this.parts, {
      claim,
      signal: controller.signal,
      usedMs: () => this.used(live),
      behind: () => live.behind,
      live: {
        add: (text) => {
          tell(text);
          live.streamed += text;
        },
        drop: () => {
          if (live.streamed === '') return;
          live.streamed = '';
          attempt++;
          tell('', true);
        },
        keep: () => {
          live.streamed = '';
          attempt = 1;
        },
      },
      end: async (end) => {
        await this.finish(claim, end);
        ended = true;
      },
    });
    try {
      const how = await this.parts.runner(claim.session).run(turn);
      if (how === 'ended' && !ended) throw new Error('the runner stopped without ending the turn');
    } catch (thrown) {
      if (!ended) await this.settle(live, thrown);
    } finally {
      stopClock();
    }
  }

  private async settle(live: Live, thrown: unknown): Promise<void> {
    const { claim, controller } = live;
    const { runPk, epoch, lane } = claim;
    const stopped = controller.signal.aborted && controller.signal.reason instanceof Stopped ? controller.signal.reason : undefined;
    const common = { runPk, epoch, lane, now: this.parts.clock.now(), usedMs: this.used(live) };
    try {
      if (isLost(thrown)) return;
      if (stopped?.why === 'shutdown') await this.parts.store.write(releaseRun, common, { urgent: true });
      else if (stopped?.why === 'abort')
        await this.finish(claim, { ...common, outcome: 'aborted', text: live.streamed, code: 'ABORTED', error: stopped.reason });
      else if (stopped?.why === 'timeout')
        await this.finish(claim, { ...common, outcome: 'timeout', text: live.streamed, code: 'TIMEOUT', error: stopped.reason });
      else {
        const code = thrown instanceof InterlaneError ? thrown.code : 'RUN_FAILED';
        await this.finish(claim, { ...common, outcome: 'error', code, error: reasonOf(thrown) });
      }
    } catch (failed) {
      if (isLost(failed)) return;
      // The row is still "running", so the next start recovers it.
      this.parts.failed(`run ${claim.run.id} could not be ended`, failed, aboutRun(claim));
    }
  }

  /** Retries the write of the end, so that a disk that is full for a moment does not block a lane. */
  private async finish(claim: Claim, end: Parameters<typeof this.finishRun.body>[1]): Promise<void> {
    for (let wait = retryMs; ; wait = Math.min(wait * 2, longestRetryMs)) {
      try {
        return await this.parts.store.write(this.finishRun, end, { urgent: true, bytes: end.text?.length ?? 0 });
      } catch (thrown) {
        if (!(thrown instanceof InterlaneError && thrown.code === 'STORE_FAILED' && this.running)) throw thrown;
        this.parts.failed('run could not be ended yet', thrown, aboutRun(claim));
        await new Promise<void>((resolve) => this.parts.clock.after(wait, resolve));
      }
    }
  }

  private used(live: Live): number {
    return Math.max(0, Math.round(this.parts.clock.elapsed() - live.startedAt));
  }
}

const aboutRun = ({ run, session }: Claim) => ({ run: run.id, session: session.key });
const isLost = (thrown: unknown) => thrown instanceof InterlaneError && thrown.code === 'LEASE_LOST';
