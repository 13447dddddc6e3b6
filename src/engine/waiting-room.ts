// Callers that wait for a run: any number, before, during and after it. The run is a row, so a caller can reconnect and wait again.
import type { Clock } from '../clock.ts';
import { InterlaneError } from '../errors.ts';
import type { FeedEvent } from '../protocol/event.ts';
import { isTerminal, type RunView } from '../protocol/run.ts';
import type { Store } from '../store/contract.ts';
import type { Current } from './flow.ts';
import { replyTo, runView } from './run-view.ts';
import type { Answer } from './wait.ts';

export class WaitingRoom {
  private readonly store: Store;
  private readonly clock: Clock;
  private readonly replyTo: ReturnType<typeof replyTo>;
  private readonly waiters = new Map<string, Set<() => void>>();
  private open = true;

  constructor(parts: { store: Store; clock: Clock; current: Current }) {
    this.store = parts.store;
    this.clock = parts.clock;
    this.replyTo = replyTo(parts.current);
  }

  /** Resolves pending waits with the current state of their runs. */
  close(): void {
    this.open = false;
    for (const set of this.waiters.values()) for (const wake of set) wake();
  }

  published(events: FeedEvent[]): void {
    for (const event of events)
      if (event.kind === 'run' && isTerminal(event.state)) for (const wake of this.waiters.get(event.runId) ?? []) wake();
  }

  /** For an outside session: the answer to its message, or that there is none yet. */
  async reply(runId: string, waiterPk: number, timeoutMs: number, signal: AbortSignal): Promise<{ value: Answer; taint: number }> {
    await this.wait(runId, timeoutMs, signal);
    return this.store.read(this.replyTo, { runId, waiterPk });
  }

  /** The end of the run, or its state at the timeout. */
  async wait(runId: string, timeoutMs: number, signal?: AbortSignal): Promise<RunView> {
    let over = timeoutMs <= 0;
    let wake = () => {};
    const stop = () => {
      over = true;
      wake();
    };
    const cancel = this.clock.after(Math.max(0, timeoutMs), stop);
    signal?.addEventListener('abort', stop, { once: true });
    try {
      for (let awaited = runId; ;) {
        // Listens before it looks, so that it does not miss an end in between.
        const woken = new Promise<void>((resolve) => (wake = resolve));
        const undo = this.listen(awaited, () => wake());
        try {
          const view = await this.store.read(runView, { runId });
          if (!view) throw new InterlaneError('RUN_NOT_FOUND', `run ${JSON.stringify(runId.slice(0, 100))} does not exist`);
          if (isTerminal(view.state) || over || signal?.aborted || !this.open) return { ...view, runId };
          // A merged run has ended itself; the wait continues with the run that absorbed it.
          if (view.runId === awaited) await woken;
          awaited = view.runId;
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
}
