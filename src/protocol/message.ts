// An inbound message as routing sees it: its origin, never its text.
import { z } from 'zod';
import { ChatTypeWord } from './labels.ts';

const PlatformId = z.string().max(65_536).regex(/\S/, 'must not be blank');

/** A blank one is none. */
const Thread = z
  .string()
  .max(65_536)
  .transform((text) => (text.trim() === '' ? undefined : text))
  .optional();

const ChatPeer = z.strictObject({ kind: ChatTypeWord, id: PlatformId });

export const Origin = z.strictObject({
  channel: PlatformId,
  accountId: z.string().max(65_536).optional(),
  /** The chat it was written in; without one it goes to the main session of the agent that the account or the channel is bound to. */
  peer: ChatPeer.optional(),
  /** The chat a thread was opened in; its bindings apply to the thread too. */
  parentPeer: ChatPeer.optional(),
  guildId: PlatformId.optional(),
  teamId: PlatformId.optional(),
  topicId: Thread,
  threadId: Thread,
});
export type Origin = z.infer<typeof Origin>;
/** As a channel writes it. */
export type OriginIn = z.input<typeof Origin>;
