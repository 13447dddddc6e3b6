// A delivery as an operator sees it: one outbound message and its state.
import { z } from 'zod';

export const deliveryStates = ['pending', 'sending', 'sent', 'failed', 'unknown', 'dead'] as const;
export type DeliveryState = (typeof deliveryStates)[number];

export const DeliveryView = z.object({
  deliveryId: z.string(),
  sessionKey: z.string(),
  sessionId: z.string(),
  channel: z.string(),
  account: z.string().exactOptional(),
  recipient: z.string(),
  thread: z.string().exactOptional(),
  state: z.enum(deliveryStates),
  attempts: z.int(),
  error: z.string().exactOptional(),
  platformId: z.string().exactOptional(),
  /** When it was queued, first tried, or requested again. */
  since: z.int(),
  /** The beginning of the text, as long as it can be sent again. */
  preview: z.string().exactOptional(),
});
export type DeliveryView = z.infer<typeof DeliveryView>;
