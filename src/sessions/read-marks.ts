// How far an operator has read a session, for clients that show unread messages.
import type { EngineCommand } from '../engine/feed.ts';
import type { World } from '../rules/decide.ts';
import * as marks from '../store/tables/read-marks.ts';
import { existing, type OperatorArgs } from './patch.ts';

/** More unread messages are not counted. */
const mostUnread = 1_000;

export const unreadOf = (messages: number, read: number) => Math.min(Math.max(0, messages - read), mostUnread);

/** Up to a message, or up to the end. A mark never goes back. */
export const markRead = (
  current: () => { world: World },
): EngineCommand<
  OperatorArgs & { principal: string; seq?: number | undefined },
  { sessionId: string; readSeq: number; unreadCount: number }
> => ({
  name: 'mark read',
  *body(t, args) {
    const session = yield* existing(t, current().world, args);
    const end = session.next_seq - 1;
    const { principal, now } = args;
    yield* marks.raise(t, { principal, sessionPk: session.pk, seq: Math.min(args.seq ?? end, end), now });
    const [mark] = yield* marks.of(t, principal, [session.pk]);
    return { sessionId: session.id, readSeq: mark!.seq, unreadCount: unreadOf(end, mark!.seq) };
  },
});
