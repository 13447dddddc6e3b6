// Time for tests. The manual clock moves only when the gateway is settled; the real one can jump.
import { type Clock, systemClock } from '../../src/clock.ts';

/** Requests to the operating system that end by themselves. Bytes that nobody reads do not. */
const underWay = /^FSReq|^GetAddrInfo|ConnectWrap$/;
const turnOfLoop = () => new Promise<void>((resolve) => setImmediate(resolve));

/**
 * Counts how often the clock is used. The gateway reads it in every command, commit and timer, so a gateway that does not
 * look at the clock for many turns of the event loop, with no request to the system under way, has nothing left to do.
 */
abstract class WatchedClock {
  private uses = 0;
  private readonly quietTurns: number;

  constructor(quietTurns: number) {
    this.quietTurns = quietTurns;
  }

  protected used(): void {
    this.uses++;
  }

  /** Resolves when nothing is under way that could go on without time passing. */
  async settled(): Promise<void> {
    for (let quiet = 0; quiet < this.quietTurns;) {
      const before = this.uses;
      await turnOfLoop();
      quiet = this.uses === before ? quiet + 1 : 0;
      if (quiet === this.quietTurns && process.getActiveResourcesInfo().some((name) => underWay.test(name))) quiet = 0;
    }
  }
}

/** Says whether a promise is settled. Whoever awaits `done` hears of a failure. */
function watched<T>(happening: Promise<T>): { over: boolean; done: Promise<T> } {
  const state = { over: false, done: happening };
  const over = () => void (state.over = true);
  happening.then(over, over);
  return state;
}

interface Timer {
  at: number;
  ms: number;
  work(): void;
}

/** Nothing is due until a test says so. */
export class ManualClock extends WatchedClock implements Clock {
  private time = 1_800_000_000_000;
  /** How far the wall clock was set forward. */
  private ahead = 0;
  private readonly timers = new Set<Timer>();
  private readonly watchers = new Set<(ms: number) => void>();

  /** `quietTurns`: 1 is enough where nothing but the engine runs. */
  constructor(quietTurns = 50) {
    super(quietTurns);
  }

  now(): number {
    this.used();
    return this.time + this.ahead;
  }

  elapsed(): number {
    this.used();
    return this.time;
  }

  after(ms: number, work: () => void): () => void {
    this.used();
    const timer = { at: this.time + ms, ms, work };
    this.timers.add(timer);
    for (const look of this.watchers) look(ms);
    return () => {
      this.used();
      this.timers.delete(timer);
    };
  }

  /** Goes from timer to timer. Before each one the gateway settles, so that it finds what the ones before it have brought about. */
  async advance(ms: number): Promise<void> {
    const until = this.time + ms;
    for (;;) {
      await this.settled();
      const next = this.nextTimer();
      if (!next || next.at > until) break;
      this.timers.delete(next);
      this.time = Math.max(this.time, next.at);
      next.work();
    }
    this.time = Math.max(this.time, until);
  }

  /** Time passes, a second at a time, until it holds. */
  async until(holds: () => boolean | Promise<boolean>): Promise<void> {
    for (let seconds = 0; ; seconds++) {
      await this.settled();
      if (await holds()) return;
      if (seconds === 100_000) throw new Error('time passes, and nothing comes of it');
      await this.advance(1_000);
    }
  }

  /** Time passes, a second at a time, until the promise is settled. */
  async passing<T>(happening: Promise<T>): Promise<T> {
    const state = watched(happening);
    await this.until(() => state.over);
    return state.done;
  }

  /** Timers go off as soon as everything waits for one, until the promise is settled; but only so much time passes. */
  async hurrying<T>(happening: Promise<T>, mostMs: number): Promise<T> {
    const state = watched(happening);
    for (let left = mostMs; !state.over;) {
      await this.settled();
      const wait = Math.max(0, this.nextMs);
      if (state.over || wait > left) continue;
      left -= wait;
      await this.advance(wait);
    }
    return state.done;
  }

  /** The time changes and no timer notices, as on a machine that slept or was set. */
  jump(ms: number): void {
    this.time += ms;
  }

  /** The wall clock is set, back if it is negative; timers go off when they would have anyway. */
  setForward(ms: number): void {
    this.ahead += ms;
  }

  /** Resolves when something sleeps for exactly this long. For what comes from other processes; else `settled` is enough. */
  async sleeping(ms: number): Promise<void> {
    if (![...this.timers].some((timer) => timer.ms === ms)) await this.fallsAsleep(ms);
  }

  /** Resolves when something begins, from now on, to sleep for exactly this long. */
  fallsAsleep(ms: number): Promise<void> {
    return new Promise((resolve) => {
      const look = (begun: number) => {
        if (begun !== ms) return;
        this.watchers.delete(look);
        resolve();
      };
      this.watchers.add(look);
    });
  }

  /** How long the next timer still sleeps. */
  get nextMs(): number {
    return (this.nextTimer()?.at ?? Infinity) - this.time;
  }

  private nextTimer(): Timer | undefined {
    let first: Timer | undefined;
    for (const timer of this.timers) if (!first || timer.at < first.at) first = timer;
    return first;
  }
}

/** The machine's own. */
export class RealClock extends WatchedClock implements Clock {
  /** How far the wall clock has jumped. */
  jumped = 0;

  constructor() {
    super(50);
  }

  now(): number {
    this.used();
    return systemClock.now() + this.jumped;
  }

  elapsed(): number {
    this.used();
    return systemClock.elapsed();
  }

  after(ms: number, work: () => void): () => void {
    this.used();
    return systemClock.after(ms, work);
  }
}
