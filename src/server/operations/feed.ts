// Handlers of `feed.read` and `sessions.markRead`.
import { feedAfter } from '../../events/bus.ts';
import { levelRank } from '../../levels.ts';
import { peerMessage } from '../../protocol/compat/openclaw.ts';
import type { FeedEvent } from '../../protocol/event.ts';
import type { feed as table, FeedItem } from '../../protocol/operations/feed.ts';
import { canSee, ceilingOf } from '../../rules/viewer.ts';
import { wireMessage } from '../../sessions/history.ts';
import { howManyFit, pageBytes, textBound } from '../../sessions/page-bytes.ts';
import { markRead } from '../../sessions/read-marks.ts';
import type { Context, Handlers } from './context.ts';

/** Rows of one read. */
const rowsOfRead = 100;
/** Comes before every position. */
const beginning = -1;

export function feedHandlers({ parts, world, asker, operator, need, view }: Context): Handlers<keyof typeof table> {
  const { store, cursors } = parts;
  const mark = markRead(parts.current);
  return {
    'feed.read': async ({ key, agentId, cursor, limit = 100 }, call) => {
      const named = key === undefined ? undefined : (await need(call, { session: key, agentId })).key;
      const { viewer } = view(call);
      const only = { level: levelRank(ceilingOf(viewer)), key: named };
      const events: FeedItem[] = [];
      const positions: number[] = [];
      let at = cursor === undefined ? beginning : cursors.followFrom(cursor);
      const upTo = (count: number) => ({ events: events.slice(0, count), nextCursor: cursors.now(positions[count - 1]!), hasMore: true });
      // There is more if there is another event that the caller may see; hidden ones neither end a page nor make a next one.
      for (let reads = 0, more = true; more; reads++) {
        // Between two reads others go on.
        if (reads > 0) await call.pace.pause();
        const page = await store.read(feedAfter, { cursor: at, limit: rowsOfRead, only }, call.pace);
        if (page.reset && cursor !== undefined) return { events: [], nextCursor: cursors.now(page.oldest - 1), hasMore: true, reset: true };
        if (page.reset) {
          at = page.oldest - 1;
          continue;
        }
        for (const event of page.events) {
          const { sessionKey, agentId: agent, level } = event;
          if (!canSee(world(), viewer, { key: sessionKey, agent, level })) continue;
          if (events.length === limit) return upTo(limit);
          events.push(itemOf(event, cursors.feed(event.pos)));
          positions.push(event.pos);
        }
        at = page.last;
        more = page.more;
        const fit = howManyFit(events, pageBytes, itemBound);
        if (fit < events.length) return upTo(fit);
      }
      return { events, nextCursor: cursors.now(at), hasMore: false };
    },
    'sessions.markRead': async ({ key, agentId, seq }, call) => {
      const row = await need(call, { session: key, agentId });
      const { principal } = asker(call);
      const marked = await store.write(mark, { key: row.key, principal, seq, operator: operator(call), now: parts.now() });
      return { ok: true, key: row.key, ...marked };
    },
  };
}

/** Never below the bytes of an item as JSON. */
function itemBound(item: FeedItem): number {
  if (item.kind !== 'entry') {
    const texts = Object.values(item).filter((value) => typeof value === 'string');
    return texts.reduce((sum, text) => sum + textBound(text), 512);
  }
  const { content } = item.message;
  const blocks = typeof content === 'string' ? [{ type: 'text' as const, text: content }] : content;
  // Arguments are looked at when it gets close.
  return blocks.reduce(
    (sum, block) => sum + (block.type === 'text' ? textBound(block.text) : pageBytes),
    2048 + textBound(item.sessionKey),
  );
}

function itemOf(event: FeedEvent, cursor: string): FeedItem {
  const { sessionKey, sessionId, agentId, at: ts } = event;
  const common = { cursor, sessionKey, sessionId, agentId, ts };
  const error = 'error' in event && event.error !== undefined ? { error: event.error } : {};
  switch (event.kind) {
    case 'entry': {
      const { id: messageId, seq: messageSeq, runId } = event.message;
      const message = peerMessage(wireMessage(event.message));
      return { kind: 'entry', ...common, messageId, messageSeq, ...(runId === undefined ? {} : { runId }), message };
    }
    case 'run':
      return { kind: 'run', ...common, runId: event.runId, state: event.state, ...error };
    case 'session':
      return { kind: 'session', ...common, change: event.change };
    case 'exchange': {
      const { exchangeId, state, turn, reason } = event;
      return { kind: 'exchange', ...common, exchangeId, state, turn, ...(reason === undefined ? {} : { reason }) };
    }
    case 'delivery': {
      const { deliveryId, state, channel, recipient } = event;
      return { kind: 'delivery', ...common, deliveryId, state, channel, recipient, ...error };
    }
  }
}
