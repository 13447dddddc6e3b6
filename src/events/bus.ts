// After each commit the bus hands its events to subscribers, in order. A subscriber that missed some reads them from the feed first.
import { setImmediate as tick } from 'node:timers/promises';
import type { FeedEvent } from '../protocol/event.ts';
import type { RunState } from '../protocol/run.ts';
import type { TranscriptMessage } from '../protocol/transcript.ts';
import { InterlaneError } from '../errors.ts';
import type { Body, Reading, ReadQuery, Store } from '../store/contract.ts';
import * as deliveries from '../store/tables/deliveries.ts';
import * as entries from '../store/tables/entries.ts';
import * as exchanges from '../store/tables/exchanges.ts';
import * as feed from '../store/tables/feed.ts';
import * as runs from '../store/tables/runs.ts';
import * as sessions from '../store/tables/sessions.ts';
import { windowKeys } from '../store/windows.ts';
import { happened, messageOf, type FeedDetail } from '../store/views.ts';

interface Subscription {
  /** Filters events. Called for each event, with its current level. */
  wants(event: FeedEvent): boolean;
  /** Awaited, so that the bus buffers nothing for a slow reader: it continues from the store when it is ready. */
  deliver(event: FeedEvent): Promise<void> | void;
  /** The cursor is older than the feed, which begins after `oldest`: start over from the current state. */
  reset(oldest: number): void;
  /** `deliver` or the store failed; the subscription is over. */
  failed(error: unknown): void;
}

/** The most events in one hand-over; a subscriber that falls further behind reads pages from the store. */
const pageSize = 200;
/** A page of the feed ends after this many characters of messages. */
const pageChars = 1_000_000;

/** A subscriber's place in the feed. */
export interface Follower {
  /** The position of the last event that was handed over. */
  readonly position: number;
  /** Reads again from just after this position. An event that is being delivered is completed first. */
  rewind(to: number): void;
  /** Calls back as soon as every event that is committed by then was handed over. */
  whenCurrent(work: () => void): void;
  leave(): void;
}

export interface Bus {
  /** From just after `cursor` (or from now on), each event once and in order. Returns the undo. */
  subscribe(subscription: Subscription, cursor?: number): () => void;
  /** `subscribe` for a subscriber that may want earlier events later. */
  follow(subscription: Subscription, cursor: number): Follower;
  /** The number of subscribers. */
  readonly subscribers: number;
  /** How many events the slowest subscriber is behind. */
  lag(): number;
  close(): void;
}

export function createBus(store: Store): Bus {
  const readers = new Set<Reader>();
  let latest = 0;
  const undo = store.follow((events) => {
    latest = events.at(-1)!.pos;
    for (const reader of readers) reader.offer(events);
  });
  const begin = (subscription: Subscription, cursor: number | undefined): Follower => {
    const reader = new Reader(store, subscription, cursor, () => readers.delete(reader));
    readers.add(reader);
    reader.start();
    return reader;
  };
  return {
    subscribe(subscription, cursor) {
      const reader = begin(subscription, cursor);
      return () => reader.leave();
    },
    follow: begin,
    get subscribers() {
      return readers.size;
    },
    lag() {
      let most = 0;
      for (const reader of readers) most = Math.max(most, reader.lag(latest));
      return most;
    },
    close() {
      undo();
      for (const reader of readers) reader.closed = true;
      readers.clear();
    },
  };
}

/** A subscriber is a cursor. It takes live events only if they follow the cursor directly; otherwise it reads the store. */
class Reader implements Follower {
  closed = false;
  private readonly store: Store;
  private readonly subscription: Subscription;
  private readonly left: () => void;
  private cursor: number | undefined;
  private live: FeedEvent[] = [];
  private behind = false;
  /** Events were committed since the store was last read. */
  private missed = false;
  private busy = false;
  /** Counts rewinds: events that were read before one are not handed over after it. */
  private turn = 0;
  private waiting: (() => void)[] = [];

  constructor(store: Store, subscription: Subscription, cursor: number | undefined, left: () => void) {
    this.store = store;
    this.subscription = subscription;
    this.cursor = cursor;
    this.left = left;
  }

  start(): void {
    this.behind = this.cursor !== undefined;
    if (this.behind) void this.work();
  }

  leave(): void {
    this.closed = true;
    this.waiting = [];
    this.left();
  }

  get position(): number {
    return this.cursor ?? 0;
  }

  rewind(to: number): void {
    this.turn++;
    this.cursor = to;
    this.live = [];
    this.behind = true;
    void this.work();
  }

  whenCurrent(work: () => void): void {
    if (!this.busy && !this.behind && this.live.length === 0) work();
    else this.waiting.push(work);
  }

  offer(events: FeedEvent[]): void {
    if (this.closed) return;
    if (this.behind || this.live.length + events.length > pageSize) {
      // Missing events are not kept in memory; they are read from the store, after the cursor.
      this.behind = true;
      this.missed = true;
      if (this.cursor === undefined) this.cursor = (this.live[0] ?? events[0]!).pos - 1;
      this.live = [];
    } else this.live.push(...events);
    void this.work();
  }

  lag(latest: number): number {
    return this.behind ? Math.max(0, latest - (this.cursor ?? latest)) : this.live.length;
  }

  private async work(): Promise<void> {
    if (this.busy) return;
    this.busy = true;
    try {
      while (!this.closed && (this.behind || this.live.length > 0)) {
        if (this.behind) {
          await this.readPage();
          await tick(); // a subscriber that is far behind lets others go on between its pages
        } else await this.handOver(this.live.splice(0));
      }
    } catch (thrown) {
      if (!this.closed) {
        this.leave();
        this.subscription.failed(thrown);
      }
    } finally {
      this.busy = false;
    }
    if (!this.closed) for (const work of this.waiting.splice(0)) work();
  }

  private async readPage(): Promise<void> {
    this.missed = false;
    const { turn } = this;
    const page = await this.store.read(feedAfter, { cursor: this.cursor ?? 0, limit: pageSize });
    if (turn !== this.turn) return;
    if (page.reset) {
      this.cursor = page.oldest - 1;
      this.subscription.reset(this.cursor);
      return;
    }
    // Cleared before the hand-over: later commits arrive live. Events that were committed during the read are read next.
    if (!page.more && !this.missed) this.behind = false;
    await this.handOver(page.events);
    if (turn === this.turn) this.cursor = Math.max(this.cursor ?? 0, page.last);
  }

  private async handOver(events: FeedEvent[]): Promise<void> {
    const { turn } = this;
    for (const event of events) {
      if (this.closed || turn !== this.turn) return;
      if (this.cursor !== undefined && event.pos <= this.cursor) continue;
      this.cursor = event.pos;
      if (!this.subscription.wants(event)) continue;
      const slow = this.subscription.deliver(event);
      if (slow) await slow;
    }
  }
}

/** Events after a position, in their order. `oldest` is the first one that is kept. `only`: those of sessions up to a level, or of one of them. */
export const feedAfter: ReadQuery<
  { cursor: number; limit: number; only?: { level: number; key?: string | undefined } | undefined },
  { events: FeedEvent[]; reset: boolean; oldest: number; last: number; more: boolean }
> = {
  name: 'feed',
  *body(t, { cursor, limit, only }) {
    const [latest, first] = yield* t.together(feed.latest(t), feed.oldest(t));
    const oldest = first ?? latest + 1;
    // The cursor is older than the feed, or from another database: the missed events are unknown.
    if (cursor + 1 < oldest || cursor > latest) return { events: [], reset: true, oldest, last: cursor, more: false };
    const upTo = only === undefined ? latest : Math.min(latest, Math.max(cursor, oldest - 1) + windowKeys);
    const rows = only === undefined ? yield* feed.after(t, cursor, limit) : yield* feed.within(t, { after: cursor, upTo, ...only }, limit);
    const events: FeedEvent[] = [];
    let chars = 0;
    for (const row of rows) {
      const event = yield* eventOf(t, row);
      if (event) events.push(event);
      if (event?.kind === 'entry') chars += lengthOf(event.message);
      if (chars > pageChars) return { events, reset: false, oldest, last: row.pos, more: true };
    }
    const isFull = rows.length === limit;
    if (only !== undefined && !isFull) return { events, reset: false, oldest, last: upTo, more: upTo < latest };
    return { events, reset: false, oldest, last: rows.at(-1)?.pos ?? cursor, more: isFull };
  },
};

const lengthOf = ({ content }: TranscriptMessage) =>
  content.reduce((sum, block) => sum + (block.type === 'text' ? block.text.length : 0), 0);

/** The event as it was published; undefined if its subject has been deleted and purged. */
function* eventOf(t: Reading, row: feed.FeedRow): Body<FeedEvent | undefined> {
  const session = yield* sessions.byPk(t, row.session_pk);
  if (!session) return undefined;
  const common = { pos: row.pos, ...happened(session, row.at) };
  const { turn = 0, reason, error } = row.detail === null ? {} : (JSON.parse(row.detail) as FeedDetail);
  const failed = error === undefined ? {} : { error };
  switch (row.kind) {
    case 'entry': {
      const entry = yield* entries.withRun(t, row.ref_pk);
      return entry && { ...common, kind: 'entry', message: messageOf(entry, entry.run_id ?? undefined) };
    }
    case 'run': {
      const run = yield* runs.byPk(t, row.ref_pk);
      return run && { ...common, kind: 'run', runId: run.id, class: run.class, state: row.state as RunState, ...failed };
    }
    case 'session':
      return { ...common, kind: 'session', change: row.state as 'changed' };
    case 'exchange': {
      const exchange = yield* exchanges.byPk(t, row.ref_pk);
      const why = reason === undefined ? {} : { reason };
      return exchange && { ...common, kind: 'exchange', exchangeId: exchange.id, state: row.state!, turn, ...why };
    }
    case 'delivery': {
      const delivery = yield* deliveries.byPk(t, row.ref_pk);
      if (!delivery) return undefined;
      const { id: deliveryId, channel, recipient } = delivery;
      return { ...common, kind: 'delivery', deliveryId, state: row.state!, channel, recipient, ...failed };
    }
    default:
      throw new InterlaneError('INTERNAL', `feed has an event of an unknown kind: ${JSON.stringify(row.kind)}`);
  }
}
