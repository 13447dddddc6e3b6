// Events, decisions and commits → counters and histograms for Prometheus. A label never is a session, a user or a text.
import { Exposition } from './exposition.ts';
import type { FeedEvent } from '../protocol/event.ts';
import { isTerminal, runClasses } from '../protocol/run.ts';
import type { World } from '../rules/decide.ts';
import { counts } from '../sessions/runs.ts';
import type { ReadQuery, Store } from '../store/contract.ts';
import { oldest as oldestDelivery } from '../store/tables/deliveries.ts';
import { oldest as oldestOffer } from '../store/tables/offers.ts';
import { queuedByClass } from '../store/tables/run-pages.ts';
import { nextDue as dueTimes, type NextDue } from '../store/tables/runs.ts';
import { oldest as oldestWait } from '../store/tables/waits.ts';
import type { LoopDelay } from './loop-delay.ts';

/** Sources of values that are read at each request. */
export interface Levels {
  store: Store;
  now(): number;
  loop: LoopDelay;
  /** Whether the search index can be written. */
  searchable(): boolean;
  /** How many events the slowest subscriber is behind. */
  lag(): number;
  connections(): Record<'ws' | 'sse', number>;
}

export class Metrics {
  private readonly exposition = new Exposition();
  /** When runs that wait for their turn were queued. */
  private readonly queued = new Map<string, number>();

  private readonly runs = this.exposition.counter('interlane_runs_total', 'Runs that ended.');
  private readonly laneWait = this.exposition.histogram(
    'interlane_lane_wait_seconds',
    'From queued to started.',
    [0.001, 0.005, 0.02, 0.1, 0.5, 2, 10, 60, 600],
  );
  private readonly decisions = this.exposition.counter('interlane_decisions_total', 'Policy decisions.');
  private readonly deliveries = this.exposition.counter('interlane_deliveries_total', 'States that outbound messages have reached.');
  private readonly commitTime = this.exposition.histogram(
    'interlane_store_commit_seconds',
    'A commit, from its first command on.',
    [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.2, 1],
  );
  private readonly commitFailures = this.exposition.counter('interlane_store_failures_total', 'Commits that failed as a whole.');
  private readonly commitSize = this.exposition.histogram(
    'interlane_store_commit_commands',
    'Commands that shared a commit.',
    [1, 2, 4, 8, 16, 32, 64, 128, 256],
  );

  /** Counts policy decisions. */
  readonly countDecision: NonNullable<World['onDecision']> = (action, effect) => this.decisions.inc({ action, effect });

  /** Counts commits of the store. */
  readonly countCommit = ({ commands, ms, failed }: { commands: number; ms: number; failed: boolean }) => {
    if (failed) {
      this.commitFailures.inc({});
      return;
    }
    this.commitTime.observe({}, ms / 1000);
    this.commitSize.observe({}, commands);
  };

  /** Counts events of the store. */
  readonly countEvents = (events: FeedEvent[]) => {
    for (const event of events) {
      if (event.kind === 'run') this.countRun(event);
      else if (event.kind === 'delivery') this.deliveries.inc({ state: event.state });
    }
  };

  watch({ store, now, loop, searchable, lag, connections }: Levels): void {
    this.exposition.gauge('interlane_queue_depth', 'Runs that wait for their turn.', async (set) => {
      const depths = await store.read(queueDepths, {});
      for (const name of runClasses) set({ class: name }, depths.find((row) => row.class === name)?.n ?? 0);
    });
    this.exposition.gauge('interlane_runs', 'Runs that have not ended.', async (set) => {
      for (const [state, n] of Object.entries((await store.read(counts, {})).runs)) set({ state }, n);
    });
    this.exposition.gauge('interlane_deliveries', 'Outbound messages that are not settled, or were given up.', async (set) => {
      for (const [state, n] of Object.entries((await store.read(counts, {})).deliveries)) set({ state }, n);
    });
    this.exposition.gauge(
      'interlane_oldest_seconds',
      'Age of the oldest that waits: a delivery, a call, a turn for a guest.',
      async (set) => {
        const time = now();
        for (const { what, state, at } of await store.read(oldest, {}))
          set({ what, state }, at === undefined ? 0 : Math.max(0, time - at) / 1000);
      },
    );
    this.exposition.gauge('interlane_sweep_lag_seconds', 'How long the first due time has passed without a sweep.', async (set) => {
      const time = now();
      const { wait, offer, flow } = await store.read(nextDue, { now: time });
      set({}, Math.max(0, ...[wait, offer, flow].map((at) => (at === null ? 0 : time - at))) / 1000);
    });
    this.exposition.gauge('interlane_event_loop_delay_seconds', 'How late the event loop was since the last look.', (set) => {
      for (const [quantile, seconds] of Object.entries(loop.look())) set({ quantile }, seconds);
    });
    this.exposition.gauge('interlane_wal_bytes', 'Log of the store that is not in its file yet.', (set) => set({}, store.load().walBytes));
    this.exposition.gauge('interlane_reader_queue', 'Long reads that wait for the reader thread, or are under way there.', (set) => {
      for (const [state, n] of Object.entries(store.load().reads)) set({ state }, n);
    });
    this.exposition.gauge('interlane_search_index_up', '1 if the search index can be written.', (set) => set({}, searchable() ? 1 : 0));
    this.exposition.gauge('interlane_event_lag', 'Events that the slowest subscriber is behind.', (set) => set({}, lag()));
    this.exposition.gauge('interlane_connections', 'Connections that are open.', (set) => {
      for (const [door, n] of Object.entries(connections())) set({ door }, n);
    });
    this.exposition.gauge('interlane_memory_bytes', 'Memory of the process.', (set) => {
      const { rss, heapUsed, external } = process.memoryUsage();
      for (const [kind, bytes] of Object.entries({ resident: rss, heap: heapUsed, external })) set({ kind }, bytes);
    });
  }

  async text(): Promise<{ type: string; body: string }> {
    return { type: 'text/plain; version=0.0.4; charset=utf-8', body: await this.exposition.text() };
  }

  private countRun({ runId, class: name, state, at }: FeedEvent & { kind: 'run' }): void {
    if (state === 'queued') return void this.queued.set(runId, at);
    const since = this.queued.get(runId);
    this.queued.delete(runId);
    if (isTerminal(state)) this.runs.inc({ class: name, outcome: state });
    else if (since !== undefined) this.laneWait.observe({ class: name }, Math.max(0, at - since) / 1000);
  }
}

const queueDepths: ReadQuery<object, { class: string; n: number }[]> = { name: 'queue depths', body: queuedByClass };
const nextDue: ReadQuery<{ now: number }, NextDue> = { name: 'next due', body: (t, { now }) => dueTimes(t, now) };

interface Oldest {
  what: 'delivery' | 'wait' | 'offer';
  state: string;
  at: number | undefined;
}

const oldest: ReadQuery<object, Oldest[]> = {
  name: 'oldest',
  *body(t) {
    const found: Oldest[] = [];
    for (const state of ['pending', 'sending', 'unknown'] as const)
      found.push({ what: 'delivery', state, at: yield* oldestDelivery(t, state) });
    found.push({ what: 'wait', state: 'open', at: yield* oldestWait(t) });
    for (const state of ['open', 'taken'] as const) found.push({ what: 'offer', state, at: yield* oldestOffer(t, state) });
    return found;
  },
};
