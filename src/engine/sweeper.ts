// Handles due rows: stopped queues, waits, offers, flows, retention. Sleeps until the next deadline.
import type { Clock } from '../clock.ts';
import type { FeedEvent } from '../protocol/event.ts';
import type { ReadQuery, Store } from '../store/contract.ts';
import * as runs from '../store/tables/runs.ts';
import type { EngineCommand } from './feed.ts';
import type { Current } from './flow.ts';
import { sweepOffers } from './offers.ts';
import type { Purged } from '../store/tables/forgets.ts';
import { forgotten, purgeSome, toForget } from './retention.ts';
import { sweepStops } from './sessions.ts';
import { sweepWaits } from './wait.ts';
import type { Report } from '../warn.ts';

export interface SweeperParts {
  store: Store;
  clock: Clock;
  current: Current;
  /** How long the feed, ended runs and settled deliveries are kept; without it, for ever. */
  keepMs?: number;
  /** Deletes purged sessions from the search index and other data beside the store. False: try again later. */
  forget?(purged: Purged[]): Promise<boolean>;
  /** `what` is a sentence about a failure that no caller waits for. */
  failed: Report;
  /** Called when a run may have become ready. */
  ready(): void;
}

/** Timers are set again at least this often, so that the sweeper notices a clock that jumps. */
const longestSleepMs = 5_000;
/** The interval for retention when nothing else is due. */
const idleSweepMs = 60_000;

export class Sweeper {
  private readonly parts: SweeperParts;
  private readonly commands: EngineCommand<{ now: number }, number>[];
  private running = false;
  private cancel: () => void = () => {};
  private forgetting: Promise<void> | undefined;

  constructor(parts: SweeperParts) {
    this.parts = parts;
    const { current } = parts;
    this.commands = [sweepStops(current), sweepWaits(current), sweepOffers(current), sweepFlows(current)];
  }

  start(): void {
    this.running = true;
    this.sweep();
  }

  close(): void {
    this.running = false;
    this.cancel();
  }

  published(events: FeedEvent[]): void {
    if (events.some((event) => event.kind === 'run' && event.state === 'waiting')) this.sweep();
  }

  /** Call when a deadline may have changed: the sweeper looks again now. */
  sweep(): void {
    if (!this.running) return;
    this.cancel();
    const { clock, failed } = this.parts;
    this.turn().catch((thrown: unknown) => {
      if (!this.running) return;
      failed('sweep failed', thrown);
      this.cancel = clock.after(longestSleepMs, () => this.sweep());
    });
  }

  private async turn(): Promise<void> {
    const { store, clock, keepMs, ready } = this.parts;
    for (const command of this.commands) while ((await store.write(command, { now: clock.now() }, { urgent: true })) > 0) ready();
    while ((await store.write(purgeSome, { now: clock.now(), keepMs: keepMs ?? null }, { urgent: true })) > 0);
    this.forget();
    const next = await store.read(nextDue, { now: clock.now() });
    if (!this.running) return;
    if (next.startable_now === 1) ready();
    const due = Math.min(...[next.wait, next.offer, next.flow, next.startable].map((at) => at ?? Infinity));
    const most = due === Infinity ? idleSweepMs : longestSleepMs;
    this.cancel();
    this.cancel = clock.after(Math.min(Math.max(due - clock.now(), 1), most), () => this.sweep());
  }

  /** Runs beside the sweep and never delays it: the index deletes at its own pace. */
  private forget(): void {
    const { store, failed, forget = async () => true } = this.parts;
    const work = async () => {
      for (;;) {
        const purged = await store.read(toForget, {});
        if (purged.length === 0 || !(await forget(purged))) return;
        await store.write(forgotten, { sessionPks: purged.map(({ pk }) => pk) });
      }
    };
    this.forgetting ??= work()
      .catch((thrown: unknown) => this.running && failed('search index could not delete purged sessions yet', thrown))
      .then(() => (this.forgetting = undefined));
  }
}

function sweepFlows(current: Current): EngineCommand<{ now: number }, number> {
  return {
    name: 'sweep flows',
    *body(t, { now }) {
      const kernel = current();
      let swept = 0;
      for (const flow of kernel.flows.values()) swept += yield* flow.sweep(t, kernel, now);
      return swept;
    },
  };
}

const nextDue: ReadQuery<{ now: number }, runs.NextDue> = {
  name: 'next due',
  *body(t, { now }) {
    return yield* runs.nextDue(t, now);
  },
};
