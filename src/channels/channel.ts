// The contract of a channel's way out: one message, one answer that says what is known.

export interface Outbound {
  /** The same for the same message, also when it is tried again: a platform that dedupes may use it. */
  id: string;
  account?: string;
  recipient: string;
  thread?: string;
  text: string;
}

/**
 * `sent`: the platform has it. `refused`: it certainly does not, and trying again will not help. `retry`: it certainly does not,
 * and trying later may help. `unknown`: nobody knows; it is never sent again in silence.
 */
export type SendOutcome =
  | { outcome: 'sent'; platformId?: string }
  | { outcome: 'refused'; error: string }
  | { outcome: 'unknown'; error: string }
  | { outcome: 'retry'; error: string; afterMs?: number };

export interface Channel {
  name: string;
  send(message: Outbound, signal: AbortSignal): Promise<SendOutcome>;
}
