// Deliveries as rows, each move one transaction: take a head, settle it, find those that a gateway left behind.
import { deliverNotice, isWithheld } from '../engine/deliver.ts';
import { noteDelivery, type EngineCommand, type Tx } from '../engine/feed.ts';
import type { Current } from '../engine/flow.ts';
import { filterForChannel } from '../engine/policy.ts';
import type { DeliveryState } from '../protocol/delivery.ts';
import type { Body, ReadQuery } from '../store/contract.ts';
import type { DeliveryRow, SessionRow } from '../store/rows.ts';
import * as deliveries from '../store/tables/deliveries.ts';
import { isRestored, restoredIsSettled } from '../store/tables/meta.ts';
import * as sessions from '../store/tables/sessions.ts';
import * as calls from '../store/tables/tool-calls.ts';

const orphansAtOnce = 50;
/** A message that cannot be sent blocks later ones for at most this long. */
const giveUpMs = 10 * 60_000;

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
          yield* settle(t, delivery, session, { state: 'dead', error: decision.why, final: true }, now);
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
  /** The wait before the next attempt. */
  afterMs?: number;
  /** Nobody may send it again. */
  final?: true;
}

export const settleDelivery: EngineCommand<Settlement & { pk: number; destKey: string; attempts: number; now: number }, void> = {
  name: 'settle delivery',
  *body(t, { pk, destKey, attempts, now, ...settled }) {
    yield* t.lock(`dest:${destKey}`);
    const delivery = yield* deliveries.underWay(t, pk, attempts);
    if (!delivery) return;
    // The row and not what the outbox remembers: a clock jump during the attempt moves the time in the row.
    const late = settled.state === 'pending' && now - delivery.first_at > giveUpMs;
    const outcome: Settlement = late ? { state: 'dead', error: `given up after ${attempts} attempts: ${settled.error}` } : settled;
    yield* settle(t, delivery, yield* sessions.get(t, delivery.session_pk), outcome, now);
  },
};

/** Deletes the text of a delivery that is over. One that failed or has an unknown outcome keeps it: an operator may send it again. */
export function* settle(t: Tx, delivery: DeliveryRow, session: SessionRow, settled: Settlement, now: number): Body<void> {
  const { state, error, platformId, afterMs, final } = settled;
  yield* deliveries.settle(t, delivery.pk, {
    state,
    error: error ?? null,
    platformId: platformId ?? null,
    dueAt: afterMs === undefined ? delivery.due_at : now + afterMs,
    text: state === 'sent' || final ? '' : delivery.text,
    head: state === 'pending' ? delivery.head : 0,
  });
  if (delivery.head === 1 && state !== 'pending') yield* deliveries.nextHead(t, delivery.dest_key);
  noteDelivery(t, session, delivery, state === 'pending' ? 'retrying' : state, now, error);
}

export const orphanSending: EngineCommand<{ owner: number; now: number }, number> = {
  name: 'orphan sending',
  *body(t, { owner, now }) {
    const orphans = yield* deliveries.orphans(t, owner, orphansAtOnce);
    yield* giveUp(t, orphans, 'the gateway stopped while sending this; it may or may not have arrived', now);
    return orphans.length;
  },
};

/** In a restored state: what was open when the backup was made may have been sent or called after it. Call again until it returns 0. */
export const doubtRestored: EngineCommand<{ now: number }, number> = {
  name: 'doubt restored',
  *body(t, { now }) {
    if (!(yield* isRestored(t))) return 0;
    yield* calls.assumeStarted(t);
    const open = yield* deliveries.someOpen(t, orphansAtOnce);
    yield* giveUp(t, open, 'this was pending in the backup that was restored; it may have been sent after the backup was made', now);
    if (open.length === 0) yield* restoredIsSettled(t);
    return open.length;
  },
};

/** Its outcome is unknown, and an operator decides what becomes of it. */
function* giveUp(t: Tx, open: DeliveryRow[], error: string, now: number): Body<void> {
  yield* t.lock(...new Set(open.map((delivery) => `dest:${delivery.dest_key}` as const)));
  for (const delivery of open) {
    const session = yield* sessions.get(t, delivery.session_pk);
    yield* deliveries.unknown(t, delivery.pk, error);
    yield* deliveries.nextHead(t, delivery.dest_key);
    noteDelivery(t, session, delivery, 'unknown', now, error);
  }
}

export const nextPending: ReadQuery<object, number | undefined> = {
  name: 'next pending',
  *body(t) {
    return yield* deliveries.nextDue(t);
  },
};
