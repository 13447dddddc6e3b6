// An inbound message as routing sees it: its origin, never its text.
import { z } from 'zod';
import { ChatTypeWord } from './labels.ts';

const PlatformId = z.string().max(65_536).regex(/\S/, 'must not be blank');

const ChatPeer = z.strictObject({ kind: ChatTypeWord, id: PlatformId });

export const Origin = z.strictObject({
  channel: PlatformId,
  accountId: z.string().max(65_536).optional(),
  peer: ChatPeer,
  /** The chat a thread was opened in; its bindings apply to the thread too. */
  parentPeer: ChatPeer.optional(),
  guildId: PlatformId.optional(),
  teamId: PlatformId.optional(),
  topicId: PlatformId.optional(),
  threadId: PlatformId.optional(),
});
export type Origin = z.infer<typeof Origin>;
