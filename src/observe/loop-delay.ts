// How late the event loop is: how long a request may wait before anything looks at it.
import { monitorEventLoopDelay } from 'node:perf_hooks';

const resolutionMs = 20;

export interface LoopDelay {
  /** Seconds by quantile, since the last look. */
  look(): Record<'0.5' | '0.99' | '1', number>;
  close(): void;
}

export function watchLoop(): LoopDelay {
  const delays = monitorEventLoopDelay({ resolution: resolutionMs });
  delays.enable();
  // A timer that is on time counts as its own interval.
  const late = (nanoseconds: number) => Math.max(0, (Number.isFinite(nanoseconds) ? nanoseconds : 0) / 1e9 - resolutionMs / 1000);
  return {
    look() {
      const seen = {
        '0.5': late(delays.percentile(50)),
        '0.99': late(delays.percentile(99)),
        '1': delays.count === 0 ? 0 : late(delays.max),
      };
      delays.reset();
      return seen;
    },
    close: () => void delays.disable(),
  };
}
