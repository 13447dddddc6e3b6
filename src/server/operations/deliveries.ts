// Handlers of `deliveries.*`: list, resend, settle.
import { deliveriesPage, resendDelivery, settleByOperator } from '../../delivery/operate.ts';
import type { deliveries as table } from '../../protocol/operations/deliveries.ts';
import type { Context, Handlers } from './context.ts';

export function deliveryHandlers({ parts, need, operator, view }: Context): Handlers<keyof typeof table> {
  const { store, cursors } = parts;
  const resend = resendDelivery(parts.current);
  const settle = settleByOperator(parts.current);
  return {
    'deliveries.list': async ({ key, agentId, states, limit = 100, cursor }, call) => {
      const row = key === undefined ? undefined : await need(call, { session: key, agentId });
      const wish = { sessionPk: row?.pk, states, limit, before: cursors.pagePosition('deliveries', cursor) };
      const { deliveries, next } = await store.read(deliveriesPage(view(call)), wish, call.pace);
      return { deliveries, ...(next === undefined ? {} : { nextCursor: cursors.page('deliveries', next) }) };
    },
    'deliveries.resend': async ({ deliveryId, attempts }, call) => ({
      ok: true,
      ...(await store.write(resend, { deliveryId, attempts, operator: operator(call), now: parts.now() })),
    }),
    'deliveries.settle': async ({ deliveryId, as }, call) => ({
      ok: true,
      ...(await store.write(settle, { deliveryId, as, by: call.caller.name, operator: operator(call), now: parts.now() })),
    }),
  };
}
