// The contract of outbound delivery on a channel: one message → one outcome.

export interface Outbound {
  /** The same for the same message, also when it is tried again: a platform that dedupes may use it. */
  id: string;
  account?: string;
  recipient: string;
  thread?: string;
  text: string;
}

/**
 * `sent`: the platform has the message. `refused`: it does not, and another attempt will not help. `retry`: it does not,
 * and a later attempt may help. `unknown`: it may or may not have the message, which is never sent again automatically.
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
