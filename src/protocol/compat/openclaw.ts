// The names of our fields for OpenClaw clients. On the wire `entry` of a message is `__openclaw`; inside it is `entry`.
import { z } from 'zod';
import { WireMessage } from '../result.ts';

const { entry, ...fields } = WireMessage.shape;

/** A message as it is on the wire. */
export const PeerMessage = z.object({ ...fields, __openclaw: entry });
export type PeerMessage = z.infer<typeof PeerMessage>;

// Both keep the order of the fields, so a message that was read and is written again has the same bytes.

export function peerMessage({ role, content, timestamp, entry, ...rest }: WireMessage): PeerMessage {
  return { role, content, timestamp, __openclaw: entry, ...rest };
}

function ownMessage({ role, content, timestamp, __openclaw, ...rest }: PeerMessage): WireMessage {
  return { role, content, timestamp, entry: __openclaw, ...rest };
}

/** The payload of a result or an event, with its messages in OpenClaw's form. */
export const toPeer = <T>(payload: T): T => withMessages(payload, 'entry', peerMessage as Change) as T;

/** The same in the other direction, for the client. */
export const fromPeer = (payload: unknown): unknown => withMessages(payload, '__openclaw', ownMessage as Change);

type Change = (message: object) => object;

function withMessages(payload: unknown, field: 'entry' | '__openclaw', change: Change): unknown {
  if (typeof payload !== 'object' || payload === null) return payload;
  const { message, messages } = payload as { message?: unknown; messages?: unknown };
  const changed = (one: unknown) => (typeof one === 'object' && one !== null && field in one ? change(one) : one);
  if (Array.isArray(messages)) return { ...payload, messages: messages.map(changed) };
  return message === undefined ? payload : { ...payload, message: changed(message) };
}
