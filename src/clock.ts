// Time as a value that is passed in: wall time, elapsed time, timers.

export interface Clock {
  /** Wall time in milliseconds. */
  now(): number;
  /** Milliseconds that only go forward. */
  elapsed(): number;
  /** Runs the work once after a delay. Returns the undo. */
  after(ms: number, work: () => void): () => void;
}

/** The longest delay a timer takes. Longer delays fire early; callers re-check the clock. */
const longestTimerMs = 2 ** 31 - 1;

export const systemClock: Clock = {
  now: () => Date.now(),
  elapsed: () => performance.now(),
  after(ms, work) {
    const timer = setTimeout(work, Math.min(ms, longestTimerMs));
    return () => clearTimeout(timer);
  },
};

/** Wall time and elapsed time part by more than this only if the clock was set or the machine slept. */
export const jumpMs = 5_000;

/** Calls `jumped` at the first look at wall time after a jump, before the caller gets the new time. */
export function watchJumps(clock: Clock, jumped: (ms: number) => void): Clock {
  let offset = clock.now() - clock.elapsed();
  return {
    now() {
      const now = clock.now();
      const ms = now - clock.elapsed() - offset;
      offset += ms;
      if (Math.abs(ms) > jumpMs) jumped(Math.round(ms));
      return now;
    },
    elapsed: () => clock.elapsed(),
    after: (ms, work) => clock.after(ms, work),
  };
}

/** Resolves after the delay; rejects with the signal's reason when it is aborted first. */
export function sleep(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      cancel();
      reject(signal.reason as Error);
    };
    const cancel = clock.after(ms, () => {
      signal.removeEventListener('abort', stop);
      resolve();
    });
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop, { once: true });
  });
}
