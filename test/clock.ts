import { setImmediate as immediate } from 'node:timers/promises';
import { type Clock, systemClock } from '../src/clock.ts';
// Time for tests: made up and moved by hand, or the machine's with a wall clock that can jump.

/** How long a gateway waits for live turns when it is closed. */
export const grace = 5_000;

export interface StageClock extends Clock {
  /** A gateway is being closed: the time it gives to live turns passes at once. */
  stopping: boolean;
}

/** Nothing is ever due until a test says so. */
export class HandClock implements StageClock {
  stopping = false;
  /** Setting it lets time pass unnoticed: no timer goes off. */
  time = 1_800_000_000_000;
  private readonly timers = new Set<{ at: number; work: () => void }>();
  private readonly watchers = new Map<number, () => void>();

  now() {
    return this.time;
  }

  elapsed() {
    return this.time;
  }

  after(ms: number, work: () => void) {
    const timer = { at: this.time + ms, work };
    this.timers.add(timer);
    if (this.stopping && ms === grace) setImmediate(() => this.advance(grace));
    this.watchers.get(ms)?.();
    return () => void this.timers.delete(timer);
  }

  /** Resolves when something begins to sleep for exactly this long. */
  asleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.watchers.set(ms, resolve));
  }

  advance(ms: number): void {
    const until = this.time + ms;
    for (let work = this.next(until); work; work = this.next(until)) work();
  }

  /** Lets time pass until the promise settles: a timer may be armed only after the first jump, so time goes on in small steps. */
  async until<T>(ms: number, seen: Promise<T>): Promise<T> {
    const state = { settled: false };
    const settle = () => void (state.settled = true);
    seen.then(settle, settle);
    this.advance(ms);
    for (let steps = 0; !state.settled; steps++) {
      if (steps === 100_000) throw new Error('time passes, and nothing comes of it');
      await immediate();
      this.advance(1);
    }
    return await seen;
  }

  /** From timer to timer, so that each finds what the ones before it have brought about. */
  async pass(ms: number, meanwhile: () => Promise<void>): Promise<void> {
    const until = this.time + ms;
    for (let work = this.next(until); work; work = this.next(until)) {
      work();
      await meanwhile();
    }
  }

  /** Goes to the timer that is due first, or to the end. */
  private next(until: number): (() => void) | undefined {
    const [next] = [...this.timers].filter((timer) => timer.at <= until).toSorted((a, b) => a.at - b.at);
    if (next) this.timers.delete(next);
    this.time = next ? Math.max(this.time, next.at) : until;
    return next?.work;
  }
}

/** The gateway's own. */
export class RealClock implements StageClock {
  stopping = false;
  /** How far the wall clock has jumped. */
  jumped = 0;

  now() {
    return systemClock.now() + this.jumped;
  }

  elapsed() {
    return systemClock.elapsed();
  }

  after(ms: number, work: () => void) {
    return systemClock.after(this.stopping && ms === grace ? 0 : ms, work);
  }
}
