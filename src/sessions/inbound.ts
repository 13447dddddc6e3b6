// Inbound message → route → session → accepted run.
import { createHash } from 'node:crypto';
import { levelRank } from '../levels.ts';
import type { Accepted } from '../engine/accept.ts';
import type { Engine } from '../engine/engine.ts';
import { fromChannel } from '../engine/input.ts';
import { platformId } from '../protocol/ids.ts';
import type { Level } from '../protocol/labels.ts';
import type { Origin } from '../protocol/message.ts';
import type { QueueMode } from '../protocol/run.ts';
import { route, type Routes } from '../rules/route.ts';
import { sessionKind } from '../rules/session-key.ts';

export interface InboundMessage {
  origin: Origin;
  text: string;
  /** Who wrote it, as the channel knows them; the peer itself in a direct chat. */
  sender?: string;
  /** Where an answer goes; without it the chat the message came from. */
  replyTo?: string;
  mode?: QueueMode;
  /** The platform's id of the message, so that one delivered twice is one message. */
  messageId?: string;
}

/** Settings are asked for at each message, so that a changed config holds from the next one on. */
export interface InboundParts {
  routes: Routes;
  engine: Engine;
  now(): number;
  newId(): string;
  /** Level of what comes from a channel; unlisted is PUBLIC. */
  channelLevel(channel: string): Level;
  /** How long a turn that collects waits for more. */
  collectMs: number;
  /** Working time of a run; 0 is no limit. */
  budgetMs: number;
}

/** Resolves when the message is safe: from then on it is answered, or ends with a recorded reason. */
export function createInbound(parts: InboundParts): (message: InboundMessage) => Promise<Accepted> {
  return (message) => {
    // 1. which agent and session
    const { key, sessionKey, agentId, channel, accountId } = route(parts.routes, message.origin);
    // 2. who speaks, and where the answer goes
    const sender = message.sender ?? message.origin.peer.id;
    const principal = `channel:${channel}:${platformId(sender)}`;
    const to = message.replyTo ?? message.origin.peer.id;
    const threadId = message.origin.threadId ?? message.origin.topicId;
    const deliveryContext = { channel, to, accountId, ...(threadId === undefined ? {} : { threadId }) };
    // 3. the same platform message is the same run
    const hash = createHash('sha256')
      .update(JSON.stringify([sessionKey, message.text]))
      .digest('hex');
    const idempotency =
      message.messageId === undefined ? undefined : { principal, method: `inbound:${channel}:${accountId}`, key: message.messageId, hash };
    // 4. accept: one transaction
    const now = parts.now();
    const mode = message.mode ?? 'followup';
    return parts.engine.accept({
      sessionKey,
      open: { id: parts.newId(), agent: agentId, kind: sessionKind(key), user: `${channel}:${platformId(sender)}` },
      input: fromChannel({
        runId: parts.newId(),
        text: message.text,
        channel,
        principal,
        taint: levelRank(parts.channelLevel(channel)),
        mode,
        destination: deliveryContext,
        budgetMs: parts.budgetMs,
        notBefore: mode === 'collect' && parts.collectMs > 0 ? now + parts.collectMs : undefined,
      }),
      deliveryContext,
      idempotency,
      now,
    });
  };
}
