// What one connection follows: all sessions, or some of them by key.
import { InterlaneError } from '../errors.ts';
import type { EventName } from '../protocol/frame.ts';
import type { Viewer } from '../rules/viewer.ts';
import type { Events, Followed } from './events.ts';
import type { Subscriptions } from './operations/context.ts';

const mostFollowed = 1_000;

export interface Following {
  events: Events;
  viewer: Viewer;
  send(event: EventName, payload: string): Promise<void> | void;
  failed(error: unknown): void;
  /** Aborted when the connection is over: the operation that subscribes may end after it. */
  signal: AbortSignal;
}

export class ConnectionSubscriptions implements Subscriptions {
  private readonly parts: Following;
  private readonly followed: Followed = new Map();
  private unfollowAll: (() => void) | undefined;

  constructor(parts: Following) {
    this.parts = parts;
  }

  /** Whether events of this session are wanted. */
  includes(key: string): boolean {
    return this.unfollowAll !== undefined || this.followed.has(key);
  }

  all(from: number): void {
    const { events, viewer, send, failed, signal } = this.parts;
    signal.throwIfAborted();
    this.unfollowAll?.();
    this.unfollowAll = events.followAll(viewer, this.followed, send, from, failed);
  }

  noMore(): void {
    this.unfollowAll?.();
    this.unfollowAll = undefined;
  }

  key(key: string, from: number): void {
    const { events, viewer, send, failed, signal } = this.parts;
    signal.throwIfAborted();
    if (!this.followed.has(key) && this.followed.size >= mostFollowed)
      throw new InterlaneError(
        'INVALID_REQUEST',
        `connection follows ${mostFollowed} sessions already; use sessions.subscribe for all of them`,
      );
    this.followed.get(key)?.undo();
    this.followed.set(key, { from, undo: events.followKey(viewer, key, send, from, failed) });
  }

  noMoreOf(key: string): void {
    this.followed.get(key)?.undo();
    this.followed.delete(key);
  }

  close(): void {
    this.noMore();
    for (const { undo } of this.followed.values()) undo();
    this.followed.clear();
  }
}
