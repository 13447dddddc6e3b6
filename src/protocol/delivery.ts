// A delivery as an operator sees it: one outbound message and its state.
export type DeliveryState = 'pending' | 'sending' | 'sent' | 'failed' | 'unknown' | 'dead';

export interface DeliveryView {
  deliveryId: string;
  sessionKey: string;
  sessionId: string;
  channel: string;
  account?: string;
  recipient: string;
  thread?: string;
  state: DeliveryState;
  attempts: number;
  error?: string;
  platformId?: string;
  /** When it was queued, first tried, or requested again. */
  since: number;
  /** The beginning of the text; empty once it is settled. */
  preview?: string;
}
