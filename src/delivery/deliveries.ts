// Deliveries as rows, each move one transaction: take a head, settle it, and what an operator may say of one.
import { nextHead } from '../engine/deliver.ts';
import { noteDelivery, type EngineCommand, type Tx } from '../engine/feed.ts';
import { passOut } from '../engine/policy.ts';
import { InterlaneError } from '../errors.ts';
import type { DeliveryState, DeliveryView } from '../protocol/delivery.ts';
import type { World } from '../rules/decide.ts';
import type { Body, ReadQuery } from '../store/contract.ts';
import type { DeliveryRow, SessionRow } from '../store/rows.ts';

const listLimit = 100;
const previewLength = 200;

/** Takes heads of destinations that are due. Policy is asked again here: it may have changed since the text was queued. */
export function beginSending(world: World): EngineCommand<{ now: number; limit: number }, { taken: DeliveryRow[]; blocked: boolean }> {
  return {
    name: 'begin sending',
    *body(t, { now, limit }) {
      const due = yield* t.all<DeliveryRow>(
        `SELECT * FROM deliveries INDEXED BY deliveries_due WHERE state = 'pending' AND head = 1 AND due_at <= ? ORDER BY due_at LIMIT ?`,
        now,
        limit,
      );
      const taken: DeliveryRow[] = [];
      for (const delivery of due) {
        const session = (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', delivery.session_pk))!;
        const { decision, text } = passOut(world, { ...session, taint: delivery.taint }, delivery.channel, delivery.text);
        if (text === undefined) {
          yield* t.run(`UPDATE deliveries SET state = 'dead', error = ?, text = '', head = 0 WHERE pk = ?`, decision.why, delivery.pk);
          yield* nextHead(t, delivery.dest_key);
          yield* noteDelivery(t, session, delivery, 'dead', now, decision.why);
          continue;
        }
        const attempts = delivery.attempts + 1;
        // Time without an attempt (a stop, a head before it) does not count towards giving up.
        const firstAt = delivery.attempts === 0 ? now : delivery.first_at;
        yield* t.run(
          `UPDATE deliveries SET state = 'sending', attempts = ?, text = ?, first_at = ? WHERE pk = ?`,
          attempts,
          text,
          firstAt,
          delivery.pk,
        );
        taken.push({ ...delivery, state: 'sending', attempts, text, first_at: firstAt });
      }
      return { taken, blocked: taken.length < due.length };
    },
  };
}

export interface Settlement {
  state: DeliveryState;
  error?: string;
  platformId?: string;
  /** When to try again. */
  dueAt?: number;
}

export const settleDelivery: EngineCommand<Settlement & { pk: number; attempts: number; now: number }, void> = {
  name: 'settle delivery',
  *body(t, { pk, attempts, now, ...settled }) {
    const delivery = yield* t.one<DeliveryRow>(
      `SELECT * FROM deliveries WHERE pk = ? AND state = 'sending' AND attempts = ?`,
      pk,
      attempts,
    );
    if (delivery) yield* settle(t, delivery, settled, now);
  },
};

/** The text lives here until it is settled; nobody knows of an `unknown` one, so it is kept for who may send it again. */
function* settle(t: Tx, delivery: DeliveryRow, { state, error, platformId, dueAt }: Settlement, now: number): Body<SessionRow> {
  const session = (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', delivery.session_pk))!;
  yield* t.run(
    'UPDATE deliveries SET state = ?, error = ?, platform_id = ?, due_at = ?, text = ?, head = ? WHERE pk = ?',
    state,
    error ?? null,
    platformId ?? null,
    dueAt ?? delivery.due_at,
    state === 'pending' || state === 'unknown' ? delivery.text : '',
    state === 'pending' ? delivery.head : 0,
    delivery.pk,
  );
  if (delivery.head === 1 && state !== 'pending') yield* nextHead(t, delivery.dest_key);
  yield* noteDelivery(t, session, delivery, state === 'pending' ? 'retrying' : state, now, error);
  return session;
}

export const orphanSending: EngineCommand<{ now: number }, number> = {
  name: 'orphan sending',
  *body(t, { now }) {
    const orphans = yield* t.all<DeliveryRow>(`SELECT * FROM deliveries WHERE state = 'sending' LIMIT 50`);
    for (const delivery of orphans) {
      const session = (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', delivery.session_pk))!;
      const error = 'the gateway stopped while this was being sent; whether it arrived is not known';
      yield* t.run(`UPDATE deliveries SET state = 'unknown', error = ?, head = 0 WHERE pk = ?`, error, delivery.pk);
      yield* nextHead(t, delivery.dest_key);
      yield* noteDelivery(t, session, delivery, 'unknown', now, error);
    }
    return orphans.length;
  },
};

export const nextPending: ReadQuery<object, number | undefined> = {
  name: 'next pending',
  *body(t) {
    const head = yield* t.one<{ due_at: number }>(
      `SELECT due_at FROM deliveries WHERE state = 'pending' AND head = 1 ORDER BY due_at LIMIT 1`,
    );
    return head?.due_at;
  },
};

// What an operator does -------------------------------------------------------------------------------------------------

function* unknownOne(t: Tx, deliveryId: string): Body<DeliveryRow> {
  const delivery = yield* t.one<DeliveryRow>('SELECT * FROM deliveries WHERE id = ?', deliveryId);
  const name = `delivery ${JSON.stringify(deliveryId.slice(0, 100))}`;
  if (!delivery) throw new InterlaneError('DELIVERY_NOT_FOUND', `${name} does not exist`);
  if (delivery.state !== 'unknown')
    throw new InterlaneError(
      'DELIVERY_SETTLED',
      `${name} is ${delivery.state}; only one whose outcome is unknown can be sent again or settled`,
    );
  return delivery;
}

/** Its turn comes after what is open for its destination now. Policy is asked at the attempt, as for any other. */
export const resendDelivery: EngineCommand<{ deliveryId: string; now: number }, DeliveryView> = {
  name: 'resend delivery',
  *body(t, { deliveryId, now }) {
    const delivery = yield* unknownOne(t, deliveryId);
    const session = (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', delivery.session_pk))!;
    const open = yield* t.one(`SELECT 1 FROM deliveries WHERE dest_key = ? AND state IN ('pending', 'sending')`, delivery.dest_key);
    const head = open ? 0 : 1;
    yield* t.run(
      `UPDATE deliveries SET state = 'pending', error = NULL, head = ?, due_at = ?, first_at = ? WHERE pk = ?`,
      head,
      now,
      now,
      delivery.pk,
    );
    yield* noteDelivery(t, session, delivery, 'pending', now);
    return viewOf({ ...delivery, state: 'pending', error: null, head, due_at: now, first_at: now }, session);
  },
};

export const settleUnknown: EngineCommand<{ deliveryId: string; as: 'sent' | 'failed'; now: number }, DeliveryView> = {
  name: 'settle unknown delivery',
  *body(t, { deliveryId, as, now }) {
    const delivery = yield* unknownOne(t, deliveryId);
    const error = as === 'failed' ? 'settled as failed by an operator' : undefined;
    const session = yield* settle(t, delivery, { state: as, ...(error === undefined ? {} : { error }) }, now);
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
    const rows = yield* t.all<DeliveryRow>(
      'SELECT * FROM deliveries WHERE state = ? AND pk < ? ORDER BY pk DESC LIMIT ?',
      state,
      before,
      most + 1,
    );
    const deliveries: DeliveryView[] = [];
    for (const row of rows.slice(0, most))
      deliveries.push(viewOf(row, (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', row.session_pk))!));
    return rows.length > most ? { deliveries, next: rows[most - 1]!.pk } : { deliveries };
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
