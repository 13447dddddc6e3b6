// Operations on deliveries: what is on its way out, and what an operator decides about it.
import { z } from 'zod';
import { DeliveryView, deliveryStates } from '../delivery.ts';
import { agent, Cursor, Id, Key } from './fields.ts';
import type { Operations } from './operation.ts';

const ListParams = z.strictObject({
  key: Key.optional(),
  ...agent,
  states: z.array(z.enum(deliveryStates)).min(1).optional(),
  limit: z.int().min(1).max(200).optional(),
  cursor: Cursor.optional(),
});
const DeliveriesPage = z.object({ deliveries: z.array(DeliveryView), nextCursor: z.string().exactOptional() });

const Resend = z.strictObject({ attempts: z.int().min(0).optional().describe('the attempts that you saw; a repeated request sends once') });
const Settle = z.strictObject({ as: z.enum(['sent', 'failed']) });
/** `changed` is false if the request was carried out before. */
const Decided = z.object({ ok: z.literal(true), changed: z.boolean(), delivery: DeliveryView });

export const deliveries = {
  'deliveries.list': {
    scope: 'operator.read',
    about: 'messages to channels, newest first',
    params: ListParams.default({}),
    result: DeliveriesPage,
    http: { 'GET /deliveries': { query: ListParams, answers: { 200: DeliveriesPage } } },
  },
  'deliveries.resend': {
    scope: 'operator.write',
    about: 'send a message again that failed or whose outcome is unknown',
    params: Resend.extend({ deliveryId: Id }),
    result: Decided,
    http: { 'POST /deliveries/{id}/resend': { body: Resend, answers: { 200: Decided } } },
  },
  'deliveries.settle': {
    scope: 'operator.write',
    about: 'settle a message whose outcome is unknown: it arrived, or it is given up',
    params: Settle.extend({ deliveryId: Id }),
    result: Decided,
    http: { 'POST /deliveries/{id}/settle': { body: Settle, answers: { 200: Decided } } },
  },
} as const satisfies Operations;
