// The engine: keeps lanes moving. Claims runs for free slots, hands them to a runner, wakes what is due, answers who waits.
import type { Clock } from '../clock.ts';
import { InterlaneError, reasonOf } from '../errors.ts';
import type { FeedEvent } from '../protocol/event.ts';
import { isTerminal, runClasses, type RunClass, type RunView } from '../protocol/run.ts';
import type { World } from '../rules/decide.ts';
import type { ReadQuery, Store } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import { accept, type Accepted, type AcceptArgs } from './accept.ts';
import type { Answer, Ending } from './end.ts';
import type { EngineCommand } from './feed.ts';
import { sweepFlows } from './flows.ts';
import { answerOffer, giveBack, sweepOffers, takeOffer, type Answered, type Look } from './offers.ts';
import type { Operator } from './policy.ts';
import { forgotten, purgeSome, toForget } from './retention.ts';
import { replyTo, runView } from './run-view.ts';
import type { ModelView, Runner } from './runner.ts';
import { abortRun, claimRuns, finishRun, recoverRuns, releaseRun, suspectCrashes, sweepWaits, type Claim } from './runs.ts';
import { sendToSession, type SendArgs, type Sent } from './send.ts';
import { closeSession, ensureSession, resetSession, sweepStops, type NewSession, type Stopping } from './sessions.ts';
import { makeTurn } from './turn.ts';

/** Text as a model makes it. `replace`: what came before in this step does not count. */
export interface Delta {
  runId: string;
  sessionKey: string;
  text: string;
  replace?: true;
}

export interface EngineParts {
  store: Store<FeedEvent>;
  clock: Clock;
  newId(): string;
  runner(session: SessionRow): Runner;
  caps: Record<RunClass, number>;
  /** How long the feed, ended runs and settled deliveries are kept; for ever without it. */
  keepMs?: number;
  /** Lets the search index, and whatever else is kept beside the store, forget sessions that were purged; false when it could not, and is asked again later. */
  forget?(sessionPks: number[]): Promise<boolean>;
  host: { bootId: string; pid: number; name: string };
  /** Told what an operator should know. */
  warn(message: string): void;
  /** What a session is answered by, for whoever looks at it; nothing where it is a script. */
  modelOf?(session: SessionRow): ModelView | undefined;
  /** Text as it is made; ephemeral. */
  onDelta?(delta: Delta): void;
}

interface Live {
  claim: Claim;
  controller: AbortController;
  startedAt: number;
  done: Promise<void>;
  /** What the turn has said since its last step; kept if it is aborted. */
  said: string;
}

class Stopped {
  readonly why: 'abort' | 'timeout' | 'shutdown';
  readonly reason: string;
  constructor(why: 'abort' | 'timeout' | 'shutdown', reason: string) {
    this.why = why;
    this.reason = reason;
  }
}

/** Timers are set again at least this often, so that a clock that jumps is noticed. */
const longestSleepMs = 5_000;
/** With nothing due, this often is enough for what only gets old. */
const idleSweepMs = 60_000;
const retryMs = 1_000;

interface Main {
  key: string;
  made: Omit<NewSession, 'id'>;
}

export class Engine {
  private readonly parts: EngineParts;
  readonly caps: Record<RunClass, number>;
  private readonly ending: Ending;
  private readonly commands: ReturnType<typeof makeCommands>;
  private readonly live = new Map<number, Live>();
  private readonly waiters = new Map<string, Set<() => void>>();
  private owner = 0;
  private running = false;
  private claiming: Promise<void> | undefined;
  private pumpAgain = false;
  private undoCommit: () => void = () => {};
  private cancelSweep: () => void = () => {};
  private forgetting: Promise<void> | undefined;

  constructor(parts: EngineParts, world: World) {
    this.parts = parts;
    this.caps = parts.caps;
    this.ending = { world, flowFailed: (id, error) => parts.warn(`exchange ${id} failed and was ended: ${reasonOf(error)}`) };
    this.commands = makeCommands(this.ending);
  }

  get world(): World {
    return this.ending.world;
  }

  /** Rules that hold from the next transaction on. The main sessions of new agents are opened. */
  async follow(world: World, mains: Main[]): Promise<void> {
    this.ending.world = world;
    await this.openMains(mains);
  }

  private async openMains(mains: Main[]): Promise<void> {
    const { store, clock, newId } = this.parts;
    for (const { key, made } of mains) await store.write(ensureSession, { key, made: { ...made, id: newId() }, now: clock.now() });
  }

  modelOf(session: SessionRow): ModelView | undefined {
    return this.parts.modelOf?.(session);
  }

  /** The caller holds the state's lock, so every run that still says "running" belongs to a gateway that is dead. */
  async start(mains: Main[]): Promise<void> {
    const { store, clock, host } = this.parts;
    this.owner = await store.write(registerInstance, { ...host, now: clock.now() }, { urgent: true });
    while ((await store.write(this.commands.recover, { owner: this.owner, now: clock.now() }, { urgent: true })) > 0);
    await this.openMains(mains);
    this.undoCommit = store.onCommit((events) => this.heard(events));
    this.running = true;
    this.pump();
    this.sweep();
  }

  /** Stops taking work, lets live turns finish for a while, and hands the rest back to the queue. */
  async close(graceMs: number): Promise<void> {
    this.running = false;
    this.cancelSweep();
    await this.claiming; // what it claims is let go like the others
    const turns = [...this.live.values()];
    const cancel = this.parts.clock.after(graceMs, () => {
      for (const { controller } of turns) controller.abort(new Stopped('shutdown', 'the gateway is stopping'));
    });
    await Promise.all(turns.map((turn) => turn.done));
    cancel();
    for (const set of this.waiters.values()) for (const wake of set) wake();
    this.undoCommit();
  }

  async accept(args: AcceptArgs): Promise<Accepted> {
    const accepted = await this.stopAfter(this.parts.store.write(this.commands.accept, args, { bytes: args.text.length }));
    if (args.notBefore !== undefined) this.sweep();
    return accepted;
  }

  abort(runId: string, reason: string, operator?: Operator): Promise<{ aborted: boolean; stopping: number[] }> {
    const { store, clock } = this.parts;
    return this.stopAfter(store.write(this.commands.abort, { runId, reason, now: clock.now(), operator }, { urgent: true }));
  }

  reset(key: string, operator?: Operator): Promise<Stopping & { session: SessionRow }> {
    const { store, newId, clock } = this.parts;
    return this.stopAfter(store.write(this.commands.reset, { key, id: newId(), now: clock.now(), operator }));
  }

  closeSession(key: string, to: 'archived' | 'deleted', force: boolean, operator?: Operator): Promise<Stopping> {
    const { store, clock } = this.parts;
    return this.stopAfter(store.write(this.commands.closeSession, { key, to, force, now: clock.now(), operator }));
  }

  send(args: SendArgs): Promise<Sent> {
    return this.parts.store.write(this.commands.send, args, { bytes: args.text.length });
  }

  /** For a session that is driven from outside: the answer to what it sent, or that there is none yet. */
  async reply(runId: string, waiterPk: number, timeoutMs: number, signal: AbortSignal): Promise<{ value: Answer; taint: number }> {
    await this.wait(runId, timeoutMs, signal);
    return this.parts.store.read(replyTo(this.ending), { runId, waiterPk });
  }

  /** For a guest: the turn that waits for it, if there is one, and what has become of those it had. */
  async look(lane: string, wish: { again: boolean; replyMs: number }): Promise<Look> {
    const look = await this.parts.store.write(takeOffer, { lane, ...wish, now: this.parts.clock.now() }, { urgent: true });
    if (look.turn) this.sweep(); // its deadline may be the next thing that is due
    return look;
  }

  /** Nobody heard of the turn that was taken. */
  giveBack(turnId: string): Promise<void> {
    return this.parts.store.write(giveBack, { turnId, now: this.parts.clock.now() }, { urgent: true });
  }

  /** A guest's answer ends its turn. */
  answer(lane: string, turnId: string, text: string): Promise<Answered> {
    const args = { lane, turnId, text, now: this.parts.clock.now() };
    return this.parts.store.write(this.commands.answerOffer, args, { urgent: true, bytes: text.length });
  }

  /** The run's end, or what it is doing when the time is over. For any number of callers, before, during and after. */
  async wait(runId: string, timeoutMs: number, signal?: AbortSignal): Promise<RunView> {
    let over = timeoutMs <= 0;
    let wake = () => {};
    const cancel = this.parts.clock.after(Math.max(0, timeoutMs), () => {
      over = true;
      wake();
    });
    const stop = () => {
      over = true;
      wake();
    };
    signal?.addEventListener('abort', stop, { once: true });
    try {
      for (let heard = runId; ;) {
        // Listening starts before looking, so that an end in between is not missed.
        const woken = new Promise<void>((resolve) => (wake = resolve));
        const undo = this.listen(heard, () => wake());
        try {
          const view = await this.parts.store.read(runView, { runId });
          if (!view) throw new InterlaneError('RUN_NOT_FOUND', `run ${JSON.stringify(runId.slice(0, 100))} does not exist`);
          if (isTerminal(view.state) || over || signal?.aborted || !this.running) return { ...view, runId };
          // A run that was taken in by another has ended itself; the other one is waited for.
          if (view.runId === heard) await woken;
          heard = view.runId;
        } finally {
          undo();
        }
      }
    } finally {
      cancel();
      signal?.removeEventListener('abort', stop);
    }
  }

  private listen(runId: string, wake: () => void): () => void {
    const set = this.waiters.get(runId) ?? new Set();
    this.waiters.set(runId, set.add(wake));
    return () => {
      set.delete(wake);
      if (set.size === 0) this.waiters.delete(runId);
    };
  }

  private heard(events: FeedEvent[]): void {
    let work = false;
    for (const event of events) {
      if (event.kind !== 'run' || event.state === 'running') continue; // a claim's own news makes nothing ready
      work = true;
      if (isTerminal(event.state)) for (const wake of this.waiters.get(event.runId) ?? []) wake();
    }
    if (work) this.pump();
    if (events.some((event) => event.kind === 'run' && event.state === 'waiting')) this.sweep();
  }

  private async stopAfter<R extends { stopping: number[]; more?: boolean }>(written: Promise<R>): Promise<R> {
    const result = await written;
    if (result.more) this.sweep();
    for (const pk of result.stopping) this.live.get(pk)?.controller.abort(new Stopped('abort', 'aborted'));
    return result;
  }

  /** One claim at a time; what becomes ready meanwhile is claimed next. */
  private pump(): void {
    if (!this.running) return;
    if (this.claiming) {
      this.pumpAgain = true;
      return;
    }
    const free = this.freeSlots();
    if (runClasses.every((runClass) => free[runClass] <= 0)) return;
    const suspectLive = [...this.live.values()].some(({ claim }) => claim.run.crashes >= suspectCrashes);
    this.claiming = this.parts.store
      .write(this.commands.claim, { owner: this.owner, free, suspectLive, now: this.parts.clock.now() }, { urgent: true })
      .then((claims) => {
        for (const claim of claims) this.begin(claim);
      })
      .catch((thrown: unknown) => {
        if (!this.running) return;
        this.parts.warn(`runs could not be claimed: ${reasonOf(thrown)}`);
        this.parts.clock.after(retryMs, () => this.pump());
      })
      .finally(() => {
        this.claiming = undefined;
        if (this.pumpAgain) {
          this.pumpAgain = false;
          this.pump();
        }
      });
  }

  private freeSlots(): Record<RunClass, number> {
    const free = { ...this.parts.caps };
    for (const { claim } of this.live.values()) free[claim.run.class]--;
    return free;
  }

  private begin(claim: Claim): void {
    const controller = new AbortController();
    const live: Live = { claim, controller, startedAt: this.parts.clock.elapsed(), done: Promise.resolve(), said: '' };
    this.live.set(claim.runPk, live);
    live.done = this.takeTurn(live).finally(() => {
      if (this.live.get(claim.runPk) === live) this.live.delete(claim.runPk);
      this.pump();
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
    let settled = false;
    const turn = makeTurn(this.parts, {
      claim,
      signal: controller.signal,
      usedMs: () => this.used(live),
      heard: (text) => {
        live.said += text;
        this.parts.onDelta?.({ runId: run.id, sessionKey: claim.session.key, text });
      },
      retracted: () => {
        if (live.said === '') return;
        live.said = '';
        this.parts.onDelta?.({ runId: run.id, sessionKey: claim.session.key, text: '', replace: true });
      },
      stepped: () => (live.said = ''),
      finish: (end) => this.finish(end),
      settled: () => (settled = true),
    });
    try {
      await this.parts.runner(claim.session).run(turn);
      if (!settled) throw new Error('the runner stopped without ending the turn');
    } catch (thrown) {
      if (!settled) await this.settle(live, thrown);
    } finally {
      stopClock();
    }
  }

  private async settle(live: Live, thrown: unknown): Promise<void> {
    const { claim, controller } = live;
    const stopped = controller.signal.aborted && controller.signal.reason instanceof Stopped ? controller.signal.reason : undefined;
    const common = { runPk: claim.runPk, epoch: claim.epoch, now: this.parts.clock.now(), usedMs: this.used(live) };
    try {
      if (thrown instanceof InterlaneError && thrown.code === 'LEASE_LOST') return;
      if (stopped?.why === 'shutdown') await this.parts.store.write(releaseRun, common, { urgent: true });
      else if (stopped?.why === 'abort')
        await this.finish({ ...common, outcome: 'aborted', text: live.said, code: 'ABORTED', error: stopped.reason });
      else if (stopped?.why === 'timeout')
        await this.finish({ ...common, outcome: 'timeout', text: live.said, code: 'TIMEOUT', error: stopped.reason });
      else
        await this.finish({
          ...common,
          outcome: 'error',
          code: thrown instanceof InterlaneError ? thrown.code : 'RUN_FAILED',
          error: reasonOf(thrown),
        });
    } catch (failed) {
      if (failed instanceof InterlaneError && failed.code === 'LEASE_LOST') return;
      // The row still says "running": the next start recovers it.
      this.parts.warn(`run ${claim.run.id} could not be ended: ${reasonOf(failed)}`);
    }
  }

  /** A disk that is full for a moment does not leave a lane blocked: the end is written as soon as it can be. */
  private async finish(end: Parameters<typeof this.commands.finish.body>[1]): Promise<void> {
    for (let wait = retryMs; ; wait = Math.min(wait * 2, longestSleepMs)) {
      try {
        return await this.parts.store.write(this.commands.finish, end, { urgent: true, bytes: end.text?.length ?? 0 });
      } catch (thrown) {
        if (!(thrown instanceof InterlaneError && thrown.code === 'STORE_FAILED' && this.running)) throw thrown;
        this.parts.warn(`run could not be ended yet: ${thrown.message}`);
        await new Promise<void>((resolve) => this.parts.clock.after(wait, resolve));
      }
    }
  }

  private used(live: Live): number {
    return Math.max(0, Math.round(this.parts.clock.elapsed() - live.startedAt));
  }

  /** Looks at what is due, then sleeps until the next thing is. */
  private sweep(): void {
    if (!this.running) return;
    this.cancelSweep();
    const { store, clock } = this.parts;
    const turn = async () => {
      while ((await store.write(this.commands.sweepStops, { now: clock.now() }, { urgent: true })) > 0) this.pump(); // a lane may go on
      while ((await store.write(this.commands.sweepWaits, { now: clock.now() }, { urgent: true })) > 0) this.pump(); // whoever was answered goes on
      while ((await store.write(this.commands.sweepOffers, { now: clock.now() }, { urgent: true })) > 0);
      while ((await store.write(sweepFlows, { now: clock.now() }, { urgent: true })) > 0);
      while ((await store.write(purgeSome, { now: clock.now(), keepMs: this.parts.keepMs ?? Infinity }, { urgent: true })) > 0);
      this.forget();
      const next = await store.read(nextDue, {});
      if (!this.running) return;
      if (next.startable !== null && next.startable <= clock.now()) this.pump();
      const due = Math.min(
        next.flow ?? Infinity,
        next.wait ?? Infinity,
        next.offer ?? Infinity,
        next.startable !== null && next.startable > clock.now() ? next.startable : Infinity,
      );
      this.cancelSweep();
      this.cancelSweep = clock.after(Math.min(Math.max(due - clock.now(), 1), due === Infinity ? idleSweepMs : longestSleepMs), () =>
        this.sweep(),
      );
    };
    turn().catch((thrown: unknown) => {
      if (!this.running) return;
      this.parts.warn(`waits could not be looked through: ${reasonOf(thrown)}`);
      this.cancelSweep = clock.after(longestSleepMs, () => this.sweep());
    });
  }

  /** Beside the sweep, which nothing may hold up: the index works through this at its own pace. */
  private forget(): void {
    const { store, warn, forget = async () => true } = this.parts;
    const work = async () => {
      for (;;) {
        const sessionPks = await store.read(toForget, {});
        if (sessionPks.length === 0 || !(await forget(sessionPks))) return;
        await store.write(forgotten, { sessionPks });
      }
    };
    this.forgetting ??= work()
      .catch((thrown: unknown) => this.running && warn(`search index could not forget what was deleted yet: ${reasonOf(thrown)}`))
      .then(() => (this.forgetting = undefined));
  }
}

function makeCommands(ending: Ending) {
  return {
    accept: accept(ending),
    claim: claimRuns(ending),
    finish: finishRun(ending),
    abort: abortRun(ending),
    recover: recoverRuns(ending),
    send: sendToSession(ending),
    reset: resetSession(ending),
    closeSession: closeSession(ending),
    sweepWaits: sweepWaits(ending),
    sweepStops: sweepStops(ending),
    answerOffer: answerOffer(ending),
    sweepOffers: sweepOffers(ending),
  };
}

const registerInstance: EngineCommand<{ bootId: string; name: string; pid: number; now: number }, number> = {
  name: 'register instance',
  *body(t, { bootId, name, pid, now }) {
    return (yield* t.run('INSERT INTO instances (boot_id, host, pid, started_at) VALUES (?,?,?,?)', bootId, name, pid, now)).lastId;
  },
};

const nextDue: ReadQuery<object, { wait: number | null; offer: number | null; flow: number | null; startable: number | null }> = {
  name: 'next due',
  *body(t) {
    const wait = yield* t.one<{ at: number }>('SELECT due_at AS at FROM waits ORDER BY due_at LIMIT 1');
    const offer = yield* t.one<{ at: number }>('SELECT due_at AS at FROM offers WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1');
    const startable = yield* t.one<{ at: number }>(
      'SELECT not_before AS at FROM runs WHERE not_before IS NOT NULL AND ready_pos IS NOT NULL ORDER BY not_before LIMIT 1',
    );
    const flow = yield* t.one<{ at: number }>('SELECT due_at AS at FROM exchanges WHERE due_at IS NOT NULL ORDER BY due_at LIMIT 1');
    return { wait: wait?.at ?? null, offer: offer?.at ?? null, flow: flow?.at ?? null, startable: startable?.at ?? null };
  },
};
