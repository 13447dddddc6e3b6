// The facts about a session that rules use: its key, lineage, labels and channel. Never its text.
import { z } from 'zod';
import { ChatTypeWord, Level, Visibility } from './labels.ts';

export const DeliveryContext = z.strictObject({
  channel: z.string().min(1),
  to: z.string().min(1),
  accountId: z.string().optional(),
  threadId: z.string().optional(),
});
export type DeliveryContext = z.infer<typeof DeliveryContext>;

/** A chat that text goes to, with its kind. Clients get it as a `DeliveryContext`. */
export const Destination = DeliveryContext.extend({ chatType: ChatTypeWord.optional() });
export type Destination = z.infer<typeof Destination>;

export const SessionFacts = z.strictObject({
  key: z.string().min(1).max(131_072),
  /** Store key of the session that spawned this one. */
  spawnedBy: z.string().min(1).optional(),
  /** The number of spawns above this session; 0 for a session that was not spawned. */
  depth: z.int().min(0).optional(),
  taint: Level.default('PUBLIC'),
  /** The lowest level whose callers may learn that this session exists; the session's taint counts too. */
  existTaint: Level.default('PUBLIC'),
  /** The highest level that this session may rise to, as its creator's level limits it; its agent's `clearance` counts too. */
  clearance: Level.optional(),
  channel: z.string().min(1).optional(),
  chatType: ChatTypeWord.optional(),
  sendPolicy: z.enum(['allow', 'deny']).optional(),
  /** The visibility that an operator granted, instead of `tools.sessions.visibility`. */
  see: Visibility.optional(),
  /** The chat of the session's last message from a channel. */
  deliveryContext: Destination.optional(),
  /** Where the answer of the current turn goes, if the turn has a destination of its own. */
  destination: Destination.optional(),
});
export type SessionFacts = z.infer<typeof SessionFacts>;
