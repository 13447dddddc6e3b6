// The transcript of a session over HTTP: pages backwards from the end, and a stream that goes on from a page without a gap.
import type { z } from 'zod';
import type { Cursors } from '../cursor.ts';
import { InterlaneError } from '../errors.ts';
import type { Bus } from '../events/bus.ts';
import type { FeedEvent } from '../protocol/event.ts';
import { peerMessage } from '../protocol/compat/openclaw.ts';
import { historyLimits, type HistoryPage } from '../protocol/operations/chat.ts';
import type { World } from '../rules/decide.ts';
import type { Pace } from '../pace.ts';
import { canSee, type Viewer } from '../rules/viewer.ts';
import { requireLife, requireSession } from '../sessions/find.ts';
import { historyPage, pageBefore, wireMessage, type HistoryPage as Page, type HistoryWish } from '../sessions/history.ts';
import { pageBytes } from '../sessions/page-bytes.ts';
import type { Look } from '../sessions/pages.ts';
import type { ReadQuery, Store } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import { feedEnd } from './events.ts';
import type { LiveRuns, Watcher } from './live-runs.ts';
import { eventText, type Stream } from './sse.ts';
import type { Report } from '../warn.ts';

export interface HistoryParts {
  store: Store;
  bus: Bus;
  live: LiveRuns;
  cursors: Cursors;
  world(): World;
  report: Report;
}

export interface Wish {
  limit?: number | undefined;
  cursor?: string | undefined;
  includeTools?: boolean | undefined;
}

export type History = ReturnType<typeof createHistory>;

export function createHistory(parts: HistoryParts) {
  const { store, bus, live, cursors } = parts;
  const lookOf = (viewer: Viewer): Look => ({ world: parts.world(), viewer });
  /** Each is written once, however many follow. */
  const texts = new WeakMap<FeedEvent, Buffer>();
  const textOf = (event: FeedEvent): Buffer => {
    let text = texts.get(event);
    if (!text) texts.set(event, (text = eventOf(event, cursors.feed(event.pos))));
    return text;
  };
  /** The messages are in the answer twice. */
  const wishOf = (row: SessionRow, { limit = historyLimits.default, cursor, includeTools = false }: Wish): HistoryWish => {
    const before = pageBefore(cursors, row, cursor);
    return { sessionPk: row.pk, limit: Math.min(limit, historyLimits.most), includeTools, runIds: true, before, bytes: pageBytes / 2 };
  };
  const written = (row: SessionRow, page: Page) =>
    pageText(row, page, page.next === undefined ? undefined : cursors.place('older', row.id, page.next));
  /** I9. The position in the feed and the page are read together, so a reader that follows from there misses and repeats nothing. */
  const snapshot = (look: Look): ReadQuery<{ key: string; wish: Wish }, { position: number; row: SessionRow; page: Page }> => ({
    name: 'history snapshot',
    rows: ({ wish }) => wish.limit ?? historyLimits.default,
    *body(t, { key, wish }) {
      const position = yield* feedEnd.body(t, {});
      const row = yield* requireSession(look).body(t, { session: key });
      return { position, row, page: yield* historyPage(look.viewer).body(t, wishOf(row, wish)) };
    },
  });
  return {
    /** The session that the text of a path means. */
    find: (viewer: Viewer, session: string, pace: Pace) => store.read(requireSession(lookOf(viewer)), { session }, pace),

    /** The same, or an earlier life of it. */
    findLife: (viewer: Viewer, session: string, life: number | undefined, pace: Pace) =>
      store.read(requireLife(lookOf(viewer)), { session, life }, pace),

    async page(viewer: Viewer, row: SessionRow, wish: Wish, pace: Pace): Promise<string> {
      return written(row, await store.read(historyPage(viewer), wishOf(row, wish), pace));
    },

    /** Follows a key across its lives: from a page of its end, or from where the reader was when it went away. */
    follow(viewer: Viewer, key: string, wish: Wish, lastEventId: string | undefined, stream: Stream, pace: Pace): void {
      let unsubscribe = () => {};
      let unwatch = () => {};
      let passed = 0;
      stream.onEnd(() => {
        unsubscribe();
        unwatch();
      });

      const begin = async () => {
        const { position, row, page } = await store.read(snapshot(lookOf(viewer)), { key, wish }, pace);
        await stream.send('history', written(row, page), cursors.now(position));
        listen(position);
      };
      const startOver = async () => {
        await stream.send('reset', JSON.stringify({ sessionKey: key, reason: 'what came after Last-Event-ID is not known; read again' }));
        await begin();
      };
      const over = (error: unknown) => {
        if (!stream.ended && !(error instanceof InterlaneError)) parts.report('event stream', error);
        stream.end();
      };

      const wants = (event: FeedEvent) => {
        const wanted =
          event.sessionKey === key &&
          canSee(parts.world(), viewer, { key, agent: event.agentId, level: event.level }) &&
          (event.kind === 'entry'
            ? wish.includeTools === true || event.message.role !== 'toolResult'
            : event.kind === 'session' && event.change !== 'changed');
        passed = event.pos;
        return wanted;
      };
      const deliver = (event: FeedEvent) => stream.tell(textOf(event));
      const listen = (from: number) => {
        if (stream.ended) return;
        passed = from;
        stream.place = () => cursors.now(passed);
        const reader = bus.follow(
          {
            wants,
            deliver,
            reset: () => {
              reader.leave();
              unwatch();
              startOver().catch(over);
            },
            failed: over,
          },
          from,
        );
        unsubscribe = () => reader.leave();
        reader.whenCurrent(watch);
      };
      /** Live text comes after the messages before it. It has no id: a reader that comes back gets it again. */
      const watch = () => {
        if (stream.ended) return;
        const watcher: Watcher = { viewer, watches: (one) => one === key, wants: 'chat', send: (event, text) => stream.send(event, text) };
        unwatch = live.watch(watcher);
        void live.tellSoFar(watcher, key);
      };

      if (lastEventId === undefined) begin().catch(over);
      else {
        const from = cursors.feedPosition(lastEventId);
        if (from === undefined) startOver().catch(over);
        else listen(from);
      }
    },
  };
}

/** A message, or that the key got another life. */
function eventOf(event: FeedEvent, id: string): Buffer {
  const { sessionKey, sessionId } = event;
  if (event.kind !== 'entry')
    return eventText('session', JSON.stringify({ sessionKey, sessionId, change: event.kind === 'session' ? event.change : 'changed' }), id);
  const { id: messageId, seq: messageSeq } = event.message;
  return eventText(
    'message',
    JSON.stringify({ sessionKey, sessionId, message: peerMessage(wireMessage(event.message)), messageId, messageSeq }),
    id,
  );
}

function pageText(row: SessionRow, { messages }: Page, nextCursor: string | undefined): string {
  const page: z.infer<typeof HistoryPage> = {
    sessionKey: row.key,
    sessionId: row.id,
    items: [],
    messages: [],
    hasMore: nextCursor !== undefined,
    ...(nextCursor === undefined ? {} : { nextCursor }),
  };
  // Existing readers take `items` or `messages`, so the list is sent under both names; it is made into text once.
  const list = JSON.stringify(messages.map((message) => peerMessage(wireMessage(message))));
  return JSON.stringify(page).replace('"items":[],"messages":[]', () => `"items":${list},"messages":${list}`);
}
