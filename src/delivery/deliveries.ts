// Deliveries as rows, each move one transaction: take a head, settle it, and an operator's decision on one whose outcome is unknown.
import { deliverNotice, isWithheld } from '../engine/deliver.ts';
import { noteDelivery, type EngineCommand, type Tx } from '../engine/feed.ts';
import type { Current } from '../engine/flow.ts';
import { filterForChannel } from '../engine/policy.ts';
import { InterlaneError } from '../errors.ts';
import type { DeliveryState, DeliveryView } from '../protocol/delivery.ts';
import type { Body, ReadQuery } from '../store/contract.ts';
import type { DeliveryRow, SessionRow } from '../store/rows.ts';
import * as deliveries from '../store/tables/deliveries.ts';
import * as sessions from '../store/tables/sessions.ts';

const listLimit = 100;
const previewLength = 200;
const orphansAtOnce = 50;

/** Takes heads of destinations that are due. Evaluates policy again: it may have changed since the text was queued. */
export function beginSending(
  current: Current,
): EngineCommand<{ owner: number; now: number; limit: number }, { taken: DeliveryRow[]; blocked: boolean }> {
  return {
    name: 'begin sending',
    *body(t, { owner, now, limit }) {
      const { world } = current();
      const taken: DeliveryRow[] = [];
      let blocked = false;
      for (const delivery of yield* deliveries.dueHeads(t, now, limit)) {
        if (!(yield* t.tryLock(`dest:${delivery.dest_key}`))) continue;
        const session = yield* sessions.get(t, delivery.session_pk);
        const { channel, recipient: to, chat_type: chatType } = delivery;
        const at = { channel, to, ...(chatType === null ? {} : { chatType }) };
        const { decision, text } = filterForChannel(world, { ...session, taint: delivery.taint }, at, delivery.text);
        if (text === undefined) {
          yield* settle(t, delivery, session, { state: 'dead', error: decision.why }, now);
          if (delivery.cause === 'reply' && isWithheld(decision)) {
            const place = { accountId: delivery.account ?? undefined, threadId: delivery.thread ?? undefined };
            yield* deliverNotice(t, world, session, { ...at, ...place, cause: 'reply', causePk: delivery.cause_pk, now });
          }
          blocked = true;
          continue;
        }
        const attempts = delivery.attempts + 1;
        // Time without an attempt (a stopped gateway, an earlier message) does not count towards giving up.
        const firstAt = delivery.attempts === 0 ? now : delivery.first_at;
        if (yield* deliveries.sending(t, delivery.pk, { attempts, text, firstAt, owner }))
          taken.push({ ...delivery, state: 'sending', attempts, text, first_at: firstAt, owner });
      }
      return { taken, blocked };
    },
  };
}

/** The texts that `beginSending` evaluates policy on. */
export const dueTexts: ReadQuery<{ now: number; limit: number }, string[]> = {
  name: 'due texts',
  *body(t, { now, limit }) {
    return (yield* deliveries.dueHeads(t, now, limit)).map(({ text }) => text);
  },
};

export interface Settlement {
  state: DeliveryState;
  error?: string;
  platformId?: string;
  /** When to try again. */
  dueAt?: number;
}

export const settleDelivery: EngineCommand<Settlement & { pk: number; destKey: string; attempts: number; now: number }, void> = {
  name: 'settle delivery',
  *body(t, { pk, destKey, attempts, now, ...settled }) {
    yield* t.lock(`dest:${destKey}`);
    const delivery = yield* deliveries.underWay(t, pk, attempts);
    if (delivery) yield* settle(t, delivery, yield* sessions.get(t, delivery.session_pk), settled, now);
  },
};

/** Deletes the text of a settled delivery. A delivery with an unknown outcome keeps it, because an operator may send it again. */
function* settle(t: Tx, delivery: DeliveryRow, session: SessionRow, settled: Settlement, now: number): Body<void> {
  const { state, error, platformId, dueAt } = settled;
  yield* deliveries.settle(t, delivery.pk, {
    state,
    error: error ?? null,
    platformId: platformId ?? null,
    dueAt: dueAt ?? delivery.due_at,
    text: state === 'pending' || state === 'unknown' ? delivery.text : '',
    head: state === 'pending' ? delivery.head : 0,
  });
  if (delivery.head === 1 && state !== 'pending') yield* deliveries.nextHead(t, delivery.dest_key);
  noteDelivery(t, session, delivery, state === 'pending' ? 'retrying' : state, now, error);
}

export const orphanSending: EngineCommand<{ owner: number; now: number }, number> = {
  name: 'orphan sending',
  *body(t, { owner, now }) {
    const orphans = yield* deliveries.orphans(t, owner, orphansAtOnce);
    yield* t.lock(...new Set(orphans.map((delivery) => `dest:${delivery.dest_key}` as const)));
    for (const delivery of orphans) {
      const session = yield* sessions.get(t, delivery.session_pk);
      const error = 'the gateway stopped while sending this; it may or may not have arrived';
      yield* deliveries.unknown(t, delivery.pk, error);
      yield* deliveries.nextHead(t, delivery.dest_key);
      noteDelivery(t, session, delivery, 'unknown', now, error);
    }
    return orphans.length;
  },
};

export const nextPending: ReadQuery<object, number | undefined> = {
  name: 'next pending',
  *body(t) {
    return yield* deliveries.nextDue(t);
  },
};

// Operators' decisions --------------------------------------------------------------------------------------------------

function* unknownOne(t: Tx, deliveryId: string): Body<DeliveryRow> {
  const found = yield* deliveries.byId(t, deliveryId);
  if (found) yield* t.lock(`dest:${found.dest_key}`);
  const delivery = found && (yield* deliveries.byId(t, deliveryId));
  const name = `delivery ${JSON.stringify(deliveryId.slice(0, 100))}`;
  if (!delivery) throw new InterlaneError('DELIVERY_NOT_FOUND', `${name} does not exist`);
  if (delivery.state !== 'unknown')
    throw new InterlaneError(
      'DELIVERY_SETTLED',
      `${name} is ${delivery.state}; only a delivery with an unknown outcome can be sent again or settled`,
    );
  return delivery;
}

/** It is queued behind the open deliveries of its destination. The attempt evaluates policy, like any other. */
export const resendDelivery: EngineCommand<{ deliveryId: string; now: number }, DeliveryView> = {
  name: 'resend delivery',
  *body(t, { deliveryId, now }) {
    const delivery = yield* unknownOne(t, deliveryId);
    const session = yield* sessions.get(t, delivery.session_pk);
    const head = (yield* deliveries.isOpenAt(t, delivery.dest_key)) ? 0 : 1;
    yield* deliveries.queueAgain(t, delivery.pk, head, now);
    noteDelivery(t, session, delivery, 'pending', now);
    return viewOf({ ...delivery, state: 'pending', error: null, head, due_at: now, first_at: now }, session);
  },
};

export const settleUnknown: EngineCommand<{ deliveryId: string; as: 'sent' | 'failed'; now: number }, DeliveryView> = {
  name: 'settle unknown delivery',
  *body(t, { deliveryId, as, now }) {
    const delivery = yield* unknownOne(t, deliveryId);
    const session = yield* sessions.get(t, delivery.session_pk);
    const error = as === 'failed' ? 'settled as failed by an operator' : undefined;
    yield* settle(t, delivery, session, { state: as, ...(error === undefined ? {} : { error }) }, now);
    return viewOf({ ...delivery, state: as, error: error ?? null, text: '' }, session);
  },
};

export const listDeliveries: ReadQuery<
  { state: DeliveryState; before?: number; limit?: number },
  { deliveries: DeliveryView[]; next?: number }
> = {
  name: 'list deliveries',
  *body(t, { state, before = Number.MAX_SAFE_INTEGER, limit = listLimit }) {
    const most = Math.min(Math.max(Math.floor(limit), 1), listLimit);
    const rows = yield* deliveries.inState(t, state, before, most + 1);
    const views: DeliveryView[] = [];
    for (const row of rows.slice(0, most)) views.push(viewOf(row, yield* sessions.get(t, row.session_pk)));
    return rows.length > most ? { deliveries: views, next: rows[most - 1]!.pk } : { deliveries: views };
  },
};

function viewOf(row: DeliveryRow, session: SessionRow): DeliveryView {
  const view: DeliveryView = {
    deliveryId: row.id,
    sessionKey: session.key,
    sessionId: session.id,
    channel: row.channel,
    recipient: row.recipient,
    state: row.state,
    attempts: row.attempts,
    since: row.first_at,
  };
  if (row.account !== null) view.account = row.account;
  if (row.thread !== null) view.thread = row.thread;
  if (row.error !== null) view.error = row.error;
  if (row.platform_id !== null) view.platformId = row.platform_id;
  if (row.text !== '') view.preview = row.text.slice(0, previewLength);
  return view;
}
