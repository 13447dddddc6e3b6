// What happened → the events of the protocol. Each is written once, whoever and however many hear it.
import type { Cursors } from '../cursor.ts';
import { peerMessage } from '../protocol/compat/openclaw.ts';
import type { FeedEvent } from '../protocol/event.ts';
import type { EventName } from '../protocol/frame.ts';
import type { Level } from '../protocol/labels.ts';
import { isTerminal } from '../protocol/run.ts';
import type { Bus, Follower } from '../events/bus.ts';
import type { World } from '../rules/decide.ts';
import { canSee, type Viewer } from '../rules/viewer.ts';
import type { LiveFacts } from '../sessions/describe.ts';
import { wireMessage } from '../sessions/history.ts';
import { currentRow, currentUse } from '../sessions/list.ts';
import type { ReadQuery, Store } from '../store/contract.ts';
import { latest } from '../store/tables/feed.ts';

interface Written {
  /** Of the session when this was written, which may be later than the event: the row in it is of that moment. */
  level: Level;
  /** `session.message`. */
  message?: string;
  /** `sessions.changed`. */
  changed?: string;
}

/** The parts of an event that a connection wants: the message itself, and what it changed in the list of sessions. */
export interface Wanted {
  message: boolean;
  changed: boolean;
}

/** An event on its way to one connection: its payload as text. The promise is there when the reader is slow. */
export type Send = (event: EventName, payload: string) => Promise<void> | void;

export interface EventsParts {
  store: Store;
  bus: Bus;
  cursors: Cursors;
  world(): World;
  liveFacts: LiveFacts;
  now(): number;
  /** Runs work after a while; returns the undo. */
  after(ms: number, work: () => void): () => void;
  failed(error: unknown): void;
}

/** What one connection follows. */
export interface Following {
  wanted(event: FeedEvent): Wanted | undefined;
  send: Send;
  /** The feed begins after this position; events before it are lost. */
  reset(oldest: number): void;
  failed(error: unknown): void;
}

export class Events {
  private readonly parts: EventsParts;
  /** For those who follow everything, and for those who only want messages. */
  private readonly written = { all: new WeakMap<FeedEvent, Promise<Written>>(), messages: new WeakMap<FeedEvent, Promise<Written>>() };

  constructor(parts: EventsParts) {
    this.parts = parts;
  }

  /** Where the feed is now: a subscriber that starts here misses nothing that comes. */
  position(): Promise<number> {
    return this.parts.store.read(feedEnd, {});
  }

  /** The events that a viewer wants and may see, from a position on. */
  follow(viewer: Viewer, follow: Following, from: number): Follower {
    const { wanted, send, reset, failed } = follow;
    return this.parts.bus.follow(
      {
        wants: (event) => wanted(event) !== undefined && this.sees(viewer, event, event.level),
        deliver: async (event) => {
          const wants = wanted(event);
          if (!wants) return;
          const { message, changed, level } = await this.write(wants.changed ? 'all' : 'messages', event);
          if (!this.sees(viewer, event, level)) return;
          if (wants.message && message !== undefined) await send('session.message', message);
          if (wants.changed && changed !== undefined) await send('sessions.changed', changed);
        },
        reset,
        failed,
      },
      from,
    );
  }

  /** Events were missed, of this session or of all: the client has to read again. */
  resync(sessionKey: string | undefined): string {
    return JSON.stringify({ ...(sessionKey === undefined ? {} : { sessionKey }), reason: 'resync', ts: this.parts.now() });
  }

  private sees(viewer: Viewer, { sessionKey: key, agentId: agent }: FeedEvent, level: Level): boolean {
    return canSee(this.parts.world(), viewer, { key, agent, level });
  }

  private write(kind: 'all' | 'messages', event: FeedEvent): Promise<Written> {
    let made = this.written[kind].get(event);
    if (!made) this.written[kind].set(event, (made = kind === 'all' ? this.compose(event) : this.message(event)));
    return made;
  }

  /** Without the row of the session, which takes half a dozen queries. */
  private async message(event: FeedEvent): Promise<Written> {
    if (event.kind !== 'entry') return { level: event.level };
    const { level = event.level, totalTokens } = (await this.parts.store.read(currentUse, { sessionId: event.sessionId })) ?? {};
    return { level, message: JSON.stringify(this.messagePayload(event, totalTokens)) };
  }

  private async compose(event: FeedEvent): Promise<Written> {
    const common = this.commonPayload(event);
    if (event.kind === 'exchange' || event.kind === 'delivery' || (event.kind === 'run' && !isTerminal(event.state)))
      return { level: event.level };
    const { session, level = event.level } = (await this.row(event.sessionId)) ?? {};
    switch (event.kind) {
      case 'entry':
        return {
          level,
          message: JSON.stringify(this.messagePayload(event, session?.totalTokens)),
          changed: JSON.stringify({ ...common, phase: 'message', ...idsOf(event), session }),
        };
      case 'run': {
        const { runId, state, error } = event;
        return { level, changed: JSON.stringify({ ...common, phase: 'end', runId, state, error, session }) };
      }
      case 'session': {
        const reason = { created: 'create', changed: 'patch', reset: 'reset', archived: 'archive', deleted: 'delete' }[event.change];
        return { level, changed: JSON.stringify({ ...common, reason, ...(event.change === 'deleted' ? {} : { session }) }) };
      }
    }
  }

  private row(sessionId: string) {
    return this.parts.store.read(currentRow(this.parts.world(), this.parts.liveFacts), { sessionId });
  }

  private commonPayload({ sessionKey, agentId, sessionId, at, pos }: FeedEvent) {
    return { sessionKey, agentId, sessionId, ts: at, cursor: this.parts.cursors.feed(pos) };
  }

  private messagePayload(event: FeedEvent & { kind: 'entry' }, totalTokens: number | undefined) {
    const usage = totalTokens === undefined ? {} : { usage: { totalTokens } };
    return { ...this.commonPayload(event), ...idsOf(event), message: peerMessage(wireMessage(event.message)), ...usage };
  }
}

function idsOf({ message: { id, seq, runId } }: FeedEvent & { kind: 'entry' }) {
  return { messageId: id, messageSeq: seq, ...(runId === undefined ? {} : { runId }) };
}

export const feedEnd: ReadQuery<object, number> = {
  name: 'feed end',
  *body(t) {
    return yield* latest(t);
  },
};
