// Where an announce goes: to the group or channel in the session's key, else to the chat of its last message, else nowhere.
import type { Destination } from '../protocol/session.ts';
import { idOf, type SessionKey } from './session-key.ts';

export type AnnounceTarget =
  | (Destination & { found: true; kind: 'group' | 'channel' | 'recorded'; why: string })
  | { found: false; why: string };

export function announceTarget(key: SessionKey, recorded: Destination | undefined): AnnounceTarget {
  if (key.shape === 'group' || key.shape === 'channel') {
    const channel = idOf(key.channel);
    const to = idOf(key.peer);
    const thread = key.threads.at(-1);
    const threadId = thread && idOf(thread.id);
    const known = channel !== undefined && to !== undefined && (!thread || threadId !== undefined);
    // A key has no account: it comes from the record, if that is about the same channel. A platform may care about the
    // case of its ids, which a key does not keep, so the record's own spelling of the same id is preferred.
    if (known) {
      const same = recorded?.channel.toLowerCase() === channel ? recorded : undefined;
      const target: AnnounceTarget = {
        found: true,
        channel,
        kind: key.shape,
        chatType: key.shape,
        to: spelling(same?.to, to),
        why: `the session key names the ${key.shape}`,
      };
      if (same?.accountId !== undefined) target.accountId = same.accountId;
      if (threadId !== undefined) target.threadId = spelling(same?.threadId, threadId);
      return target;
    }
  }
  if (!recorded)
    return { found: false, why: 'no destination: the key names no group or channel, and the session has not spoken on a channel yet' };
  const target: AnnounceTarget = {
    found: true,
    channel: recorded.channel,
    to: recorded.to,
    kind: 'recorded',
    why: 'the session last spoke there',
  };
  if (recorded.accountId !== undefined) target.accountId = recorded.accountId;
  if (recorded.threadId !== undefined) target.threadId = recorded.threadId;
  if (recorded.chatType !== undefined) target.chatType = recorded.chatType;
  return target;
}

function spelling(recorded: string | undefined, id: string): string {
  return recorded !== undefined && recorded.toLowerCase() === id ? recorded : id;
}
