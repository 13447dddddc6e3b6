// What operators do with deliveries: list them, have one sent again, settle one whose outcome is unknown.
import { noteDelivery, type EngineCommand, type Tx } from '../engine/feed.ts';
import { visibleToOperator, type Operator } from '../engine/policy.ts';
import { InterlaneError } from '../errors.ts';
import { levelName, levelRank } from '../levels.ts';
import type { DeliveryState, DeliveryView } from '../protocol/delivery.ts';
import type { World } from '../rules/decide.ts';
import { canSee, ceilingOf, type Viewer } from '../rules/viewer.ts';
import type { Body, ReadQuery } from '../store/contract.ts';
import type { DeliveryRow, SessionRow } from '../store/rows.ts';
import * as deliveries from '../store/tables/deliveries.ts';
import * as sessions from '../store/tables/sessions.ts';
import { settle } from './deliveries.ts';

/** A list looks at no more rows that the viewer may know and then gives a cursor. Hidden rows do not count, and end no page. */
const mostScanned = 2_000;
const pageRows = 200;
const previewLength = 200;

export interface DeliveriesWish {
  sessionPk?: number | undefined;
  states?: readonly DeliveryState[] | undefined;
  before?: number | undefined;
  limit: number;
}

/** Deliveries of the sessions that a viewer may see, newest first. A page may be short and still have a next one. */
export const deliveriesPage = (look: {
  world: World;
  viewer: Viewer;
}): ReadQuery<DeliveriesWish, { deliveries: DeliveryView[]; next: number | undefined }> => ({
  name: 'deliveries page',
  rows: ({ limit }) => mostScanned + limit,
  *body(t, { sessionPk, states, before: start = Number.MAX_SAFE_INTEGER, limit }) {
    const found: DeliveryView[] = [];
    let before = start;
    for (let scanned = 0; scanned < mostScanned;) {
      const page = yield* deliveries.pageBefore(t, before, pageRows, { sessionPk, states, level: levelRank(ceilingOf(look.viewer)) });
      scanned += page.length;
      for (const row of page) {
        if (found.length === limit) return { deliveries: found, next: before };
        before = row.pk;
        const { session_key: key, session_agent: agent, session_level: level } = row;
        const isWanted = states === undefined || states.includes(row.state);
        if (isWanted && canSee(look.world, look.viewer, { key, agent, level: levelName(level) }))
          found.push(viewOf(row, { key, id: row.session_id }));
      }
      if (page.length < pageRows) return { deliveries: found, next: undefined };
    }
    return { deliveries: found, next: before };
  },
});

interface Asked {
  deliveryId: string;
  operator: Operator;
  now: number;
}

/** Fails for a delivery of a session that the operator may not see as for one that does not exist. */
function* theOne(t: Tx, world: World, { deliveryId, operator }: Asked): Body<{ delivery: DeliveryRow; session: SessionRow }> {
  const found = yield* deliveries.byId(t, deliveryId);
  if (found) yield* t.lock(`dest:${found.dest_key}`);
  const delivery = found && (yield* deliveries.byId(t, deliveryId));
  const session = delivery && visibleToOperator(world, yield* sessions.byPk(t, delivery.session_pk), operator);
  if (delivery && session) return { delivery, session };
  throw new InterlaneError(
    'DELIVERY_NOT_FOUND',
    `delivery ${JSON.stringify(deliveryId.slice(0, 100))} does not exist; see deliveries.list`,
  );
}

const settledAlready = ({ id, state }: DeliveryRow, what: string) =>
  new InterlaneError('DELIVERY_SETTLED', `delivery ${JSON.stringify(id)} is ${state}; ${what}`);

/**
 * A new attempt, queued behind the open deliveries of the destination and under the same id. The attempt evaluates policy, like any
 * other. `attempts` is the number that the operator saw: if there were more since, the request was carried out already.
 */
export const resendDelivery = (
  current: () => { world: World },
): EngineCommand<Asked & { attempts?: number | undefined }, { changed: boolean; delivery: DeliveryView }> => ({
  name: 'resend delivery',
  *body(t, { attempts, ...asked }) {
    const { delivery, session } = yield* theOne(t, current().world, asked);
    const isDone = delivery.state === 'pending' || delivery.state === 'sending' || (attempts !== undefined && delivery.attempts > attempts);
    if (isDone) return { changed: false, delivery: viewOf(delivery, session) };
    if (delivery.state === 'sent') throw settledAlready(delivery, 'what arrived is not sent again');
    if (delivery.text === '') throw settledAlready(delivery, 'its text is no longer kept; send the message again');
    const head = (yield* deliveries.isOpenAt(t, delivery.dest_key)) ? 0 : 1;
    const { now } = asked;
    yield* deliveries.queueAgain(t, delivery.pk, head, now);
    noteDelivery(t, session, delivery, 'pending', now);
    return { changed: true, delivery: viewOf({ ...delivery, state: 'pending', error: null, first_at: now }, session) };
  },
});

/** A delivery with an unknown outcome has arrived, or is given up. One that failed can be given up too: its text is deleted. */
export const settleByOperator = (
  current: () => { world: World },
): EngineCommand<Asked & { as: 'sent' | 'failed'; by: string }, { changed: boolean; delivery: DeliveryView }> => ({
  name: 'settle delivery by operator',
  *body(t, { as, by, ...asked }) {
    const { delivery, session } = yield* theOne(t, current().world, asked);
    if (delivery.state === as && delivery.text === '') return { changed: false, delivery: viewOf(delivery, session) };
    if (delivery.state !== 'unknown' && !(delivery.state === 'failed' && as === 'failed'))
      throw settledAlready(delivery, 'only a delivery with an unknown outcome can be settled');
    const error = as === 'failed' ? `settled as failed by ${by}` : undefined;
    yield* settle(t, delivery, session, { state: as, final: true, ...(error === undefined ? {} : { error }) }, asked.now);
    return { changed: true, delivery: viewOf({ ...delivery, state: as, error: error ?? null, text: '' }, session) };
  },
});

function viewOf(row: deliveries.ShownDelivery, session: { key: string; id: string }): DeliveryView {
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
