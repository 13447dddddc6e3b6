// `interlane deliveries`: messages on their way out, and the operator's decision about one that did not arrive.
import type { Client } from '../client/client.ts';
import type { Params } from '../protocol/operations/all.ts';
import type { DeliveryView } from '../protocol/delivery.ts';
import { sessionMeant } from './session-meant.ts';
import { answer, moment, oneLine, paint, table, type Terminal } from './terminal.ts';

export interface DeliveriesFlags {
  json?: boolean;
  state?: NonNullable<NonNullable<Params<'deliveries.list'>>['states']>;
  limit: number;
}

export async function deliveries(terminal: Terminal, client: Client, session: string | undefined, flags: DeliveriesFlags): Promise<void> {
  const found: DeliveryView[] = [];
  const key = session === undefined ? undefined : await sessionMeant(terminal, client, session);
  let cursor: string | undefined;
  do {
    const page = await client.call('deliveries.list', {
      ...(key === undefined ? {} : { key }),
      ...(flags.state === undefined ? {} : { states: flags.state }),
      ...(cursor === undefined ? {} : { cursor }),
      limit: Math.min(flags.limit - found.length, 200),
    });
    found.push(...page.deliveries);
    cursor = page.nextCursor;
  } while (cursor !== undefined && found.length < flags.limit);
  answer(terminal, flags.json, { deliveries: found, hasMore: cursor !== undefined }, () => {
    if (found.length === 0) return terminal.stdout.isTTY ? 'No deliveries.\n' : '';
    const more =
      cursor !== undefined && terminal.stdout.isTTY
        ? paint(terminal, 'gray', `There are more; see them with --limit ${flags.limit * 4}.\n`)
        : '';
    return (
      table(
        terminal,
        ['DELIVERY', 'SESSION', 'TO', 'STATE', 'ATTEMPTS', 'SINCE', 'ERROR'],
        found.map((one) => [
          one.deliveryId,
          one.sessionKey,
          `${one.channel}:${one.recipient}`,
          one.state,
          String(one.attempts),
          moment(terminal, one.since),
          one.error ?? '',
        ]),
      ) + more
    );
  });
}

export interface ResendFlags {
  json?: boolean;
  attempts?: number;
}

export async function resend(terminal: Terminal, client: Client, deliveryId: string, flags: ResendFlags): Promise<void> {
  const { changed, delivery } = await client.call('deliveries.resend', {
    deliveryId,
    ...(flags.attempts === undefined ? {} : { attempts: flags.attempts }),
  });
  decided(terminal, flags.json, changed, delivery);
}

export interface SettleFlags {
  json?: boolean;
  as: 'sent' | 'failed';
}

export async function settle(terminal: Terminal, client: Client, deliveryId: string, flags: SettleFlags): Promise<void> {
  const { changed, delivery } = await client.call('deliveries.settle', { deliveryId, as: flags.as });
  decided(terminal, flags.json, changed, delivery);
}

function decided(terminal: Terminal, json: boolean | undefined, changed: boolean, delivery: DeliveryView): void {
  answer(terminal, json, { changed, delivery }, () => {
    const { deliveryId, state, attempts } = delivery;
    return `${oneLine(deliveryId)} is ${state} after ${attempts} attempt${attempts === 1 ? '' : 's'}${changed ? '' : '; nothing changed'}\n`;
  });
}
