// An operator's text in the name of a session: a message written into its transcript, or text sent to a channel.
import { createHash } from 'node:crypto';
import { deliverDirect } from '../engine/deliver.ts';
import type { EngineCommand } from '../engine/feed.ts';
import { derivedId } from '../engine/ids.ts';
import { inject } from '../engine/step.ts';
import { InterlaneError } from '../errors.ts';
import type { DeliveryContext } from '../protocol/session.ts';
import { byId as deliveryById } from '../store/tables/deliveries.ts';
import { byId as entryById } from '../store/tables/entries.ts';
import { byId as injectionById } from '../store/tables/injections.ts';
import { existing, type OperatorArgs, type Current } from './patch.ts';

/** A message of the assistant, written by hand. It has no `seq` yet while it waits for the results of open calls. */
export const injectEntry = (
  current: Current,
): EngineCommand<OperatorArgs & { text: string; id: string }, { id: string; seq: number | undefined }> => ({
  name: 'inject',
  *body(t, args) {
    const { world } = current();
    const session = yield* existing(t, world, args);
    const { id, text } = args;
    const entry = yield* entryById(t, id);
    const before = entry ?? (yield* injectionById(t, id));
    if (before && (before.session_pk !== session.pk || before.text !== text)) throw usedBefore();
    return { id, seq: before ? entry?.seq : yield* inject(t, session, { id, text }, args.now) };
  },
});

/** Text to a channel. Returns the ids of its deliveries. */
export const sendDirect = (
  current: Current,
): EngineCommand<OperatorArgs & { to: DeliveryContext; text: string; causeId: string }, string[]> => ({
  name: 'send',
  texts: ({ text }) => [{ hook: 'PRE_OUTPUT', text }],
  *body(t, args) {
    const { world } = current();
    const session = yield* existing(t, world, args);
    const hash = createHash('sha256')
      .update(JSON.stringify([args.key, args.to.channel, args.to.accountId, args.to.to, args.to.threadId, args.text]))
      .digest('hex');
    const before = yield* deliveryById(t, derivedId('send', args.causeId, 0));
    if (before && before.hash !== hash) throw usedBefore();
    return yield* deliverDirect(t, world, session, { ...args.to, causeId: args.causeId, hash, text: args.text, now: args.now });
  },
});

const usedBefore = () => new InterlaneError('IDEMPOTENCY_CONFLICT', 'idempotency key was used for another message; use a new one');
