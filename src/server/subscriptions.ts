// What one connection follows: all sessions, or some of them by key. One reader serves all of it, so each event is sent once and in order.
import type { Follower } from '../events/bus.ts';
import { InterlaneError } from '../errors.ts';
import type { FeedEvent } from '../protocol/event.ts';
import type { EventName } from '../protocol/frame.ts';
import type { Viewer } from '../rules/viewer.ts';
import type { Events, Wanted } from './events.ts';
import type { Subscriptions } from './operations/context.ts';

const mostFollowed = 1_000;

export interface SubscriptionsParts {
  events: Events;
  viewer: Viewer;
  send(event: EventName, payload: string): Promise<void> | void;
  /** Sends the text so far of the steps that are being written, of one session or of all. */
  tellSoFar(key: string | undefined): void;
  failed(error: unknown): void;
  /** Aborted when the connection is over: the operation that subscribes may end after it. */
  signal: AbortSignal;
}

/** A subscription has the events after `from`. Those up to `upto` were sent before the reader went back for another subscription. */
interface Followed {
  from: number;
  upto: number;
}

export class ConnectionSubscriptions implements Subscriptions {
  private readonly parts: SubscriptionsParts;
  private readonly keys = new Map<string, Followed>();
  private everything: Followed | undefined;
  private reader: Follower | undefined;

  constructor(parts: SubscriptionsParts) {
    this.parts = parts;
  }

  /** Whether events of this session are wanted. */
  includes(key: string): boolean {
    return this.everything !== undefined || this.keys.has(key);
  }

  all(from: number): void {
    this.everything = this.begin(this.everything, from);
    this.tellSoFar(undefined);
  }

  noMore(): void {
    this.everything = undefined;
    this.rest();
  }

  key(key: string, from: number): void {
    if (!this.keys.has(key) && this.keys.size >= mostFollowed)
      throw new InterlaneError(
        'INVALID_REQUEST',
        `connection follows ${mostFollowed} sessions already; use sessions.subscribe for all of them`,
      );
    this.keys.set(key, this.begin(this.keys.get(key), from));
    this.tellSoFar(key);
  }

  noMoreOf(key: string): void {
    this.keys.delete(key);
    this.rest();
  }

  close(): void {
    this.everything = undefined;
    this.keys.clear();
    this.rest();
  }

  /** A repeated subscription continues, unless it asks for events before the reader's place. */
  private begin(present: Followed | undefined, from: number): Followed {
    const { events, viewer, send, failed, signal } = this.parts;
    signal.throwIfAborted();
    const { reader } = this;
    if (!reader) {
      const reset = (oldest: number) => this.reset(oldest);
      this.reader = events.follow(viewer, { wanted: (event) => this.wanted(event), send, reset, failed }, from);
    } else if (from < reader.position) {
      for (const one of this.followed()) one.upto = Math.max(one.upto, reader.position);
      reader.rewind(from);
    } else if (present) return present;
    return { from, upto: from };
  }

  /** The text so far comes after the messages before it. */
  private tellSoFar(key: string | undefined): void {
    this.reader?.whenCurrent(() => this.parts.tellSoFar(key));
  }

  private rest(): void {
    if (this.everything || this.keys.size > 0) return;
    this.reader?.leave();
    this.reader = undefined;
  }

  private followed(): Followed[] {
    return [...(this.everything ? [this.everything] : []), ...this.keys.values()];
  }

  private wanted({ pos, kind, sessionKey }: FeedEvent): Wanted | undefined {
    const { everything } = this;
    const one = kind === 'entry' ? this.keys.get(sessionKey) : undefined;
    const changed = isNew(everything, pos);
    if (!changed && !isNew(one, pos)) return undefined;
    const message = !wasSent(everything, pos) && !wasSent(one, pos);
    return message || changed ? { message, changed } : undefined;
  }

  private reset(oldest: number): void {
    const lost = (one: Followed | undefined) => one !== undefined && one.upto < oldest;
    const resync = (key?: string) => void this.parts.send('sessions.changed', this.parts.events.resync(key));
    if (lost(this.everything)) resync();
    for (const [key, one] of this.keys) if (lost(one)) resync(key);
  }
}

const isNew = (one: Followed | undefined, pos: number) => one !== undefined && pos > one.upto;
const wasSent = (one: Followed | undefined, pos: number) => one !== undefined && pos > one.from && pos <= one.upto;
