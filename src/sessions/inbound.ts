// Inbound message → route → session → accepted run.
import { createHash } from 'node:crypto';
import { z } from 'zod';
import { InterlaneError } from '../errors.ts';
import { levelRank } from '../levels.ts';
import type { Accepted } from '../engine/accept.ts';
import type { Engine } from '../engine/engine.ts';
import { fromChannel } from '../engine/input.ts';
import { platformId } from '../protocol/ids.ts';
import { chatType } from '../protocol/labels.ts';
import { budgetOf } from '../config/budget.ts';
import type { Config } from '../config/schema.ts';
import { Origin, type OriginIn } from '../protocol/message.ts';
import type { QueueMode } from '../protocol/run.ts';
import { channelLevel, type World } from '../rules/decide.ts';
import { route, type Routes } from '../rules/route.ts';
import { sessionKind } from '../rules/session-key.ts';
import type { Warn } from '../warn.ts';

export interface InboundMessage {
  origin: OriginIn;
  text: string;
  /** The sender's id on the channel; by default the peer of the chat. */
  sender?: string;
  /** Where the answer goes; by default to the chat of the message. Without either, it is not delivered. */
  replyTo?: string;
  mode?: QueueMode;
  /** The platform's id of the message. A message that is received twice is accepted once. */
  messageId?: string;
}

export interface InboundParts {
  /** Called at each message, so that a changed config applies from the next one on. */
  current(): { routes: Routes; world: World; config: Config };
  engine: Engine;
  now(): number;
  newId(): string;
  warn: Warn;
}

/** Resolves when the message is stored: from then on it is answered, or ends with a recorded reason. */
export function createInbound(parts: InboundParts): (message: InboundMessage) => Promise<Accepted> {
  return async (message) => {
    const { routes, world, config } = parts.current();
    // 1. which agent and session
    const origin = readOrigin(message.origin);
    const { key, sessionKey, agentId, channel, accountId } = route(routes, origin);
    // 2. the sender, and where the answer goes
    const user = `${channel}:${platformId(message.sender ?? origin.peer?.id ?? 'unknown')}`;
    const principal = `channel:${user}`;
    const to = message.replyTo ?? origin.peer?.id;
    const threadId = origin.threadId ?? origin.topicId;
    const deliveryContext =
      to === undefined
        ? undefined
        : {
            channel,
            to,
            accountId,
            ...(threadId === undefined ? {} : { threadId }),
            ...(origin.peer === undefined ? {} : { chatType: chatType(origin.peer.kind) }),
          };
    // 3. the same platform message is the same run
    const hash = () =>
      createHash('sha256')
        .update(JSON.stringify([sessionKey, message.text]))
        .digest('hex');
    const idempotency =
      message.messageId === undefined
        ? undefined
        : { principal, method: `inbound:${channel}:${accountId}`, key: message.messageId, hash: hash() };
    // 4. accept: one transaction
    const now = parts.now();
    const mode = message.mode ?? 'followup';
    const { collectMs } = config.session.queue;
    const accepted = parts.engine.accept({
      sessionKey,
      open: { id: parts.newId(), agent: agentId, kind: sessionKind(key), user, clearance: 'RESTRICTED' },
      input: fromChannel({
        runId: parts.newId(),
        text: message.text,
        channel,
        principal,
        taint: levelRank(channelLevel(world, channel)),
        mode,
        destination: deliveryContext,
        budgetMs: budgetOf(config),
        notBefore: mode === 'collect' && collectMs > 0 ? now + collectMs : undefined,
      }),
      deliveryContext,
      idempotency,
      now,
    });
    // The platform gets the refusal; the operator would never see it.
    return accepted.catch((thrown: unknown) => {
      if (thrown instanceof InterlaneError && thrown.code === 'ABOVE_CLEARANCE')
        parts.warn(`message from channel ${JSON.stringify(channel)} was refused: ${thrown.message}`, { session: sessionKey });
      throw thrown;
    });
  };
}

function readOrigin(written: OriginIn): Origin {
  const read = Origin.safeParse(written);
  if (read.success) return read.data;
  const issues = read.error.issues.slice(0, 5).map(({ path, message }) => `${z.core.toDotPath(path) || 'it'}: ${message}`);
  throw new InterlaneError('INVALID_REQUEST', `origin of the message does not fit: ${issues.join('; ')}`);
}
