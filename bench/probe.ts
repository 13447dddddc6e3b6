// Another client in a process of its own: how long it waits for `health`, and for messages to be acknowledged.
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import type { WebSocket } from 'ws';
import { echoed, health, isGateway, open } from './clients.ts';
import type { Address } from './raw-server.ts';
import { answerParent } from './talk.ts';

export type ProbeWish =
  | { to: Address; health: { everyMs: number; ms: number } }
  | { to: Address; sends: { keys: string[]; connections: number; ms: number; pace: { inFlight: number } | { perSecond: number } } };

/** Milliseconds of each answer, in the order of the answers. */
export interface ProbeReport {
  waits: Float64Array;
  ms: number;
}

export function runProbe(): void {
  answerParent((wish: ProbeWish) => ('health' in wish ? probeHealth(wish.to, wish.health) : sendMessages(wish.to, wish.sends)));
}

/** Asks at fixed times, whether or not the answers before have come. */
async function probeHealth(to: Address, { everyMs, ms }: { everyMs: number; ms: number }): Promise<ProbeReport> {
  const ws = await open(to);
  const client = new Asking(ws);
  const text = isGateway(to) ? health : echoed;
  const started = performance.now();
  for (let at = 0; at < ms; at += everyMs) {
    await sleep(Math.max(0, started + at - performance.now()));
    void client.ask((id) => text.replace('000000', id));
  }
  await client.quiet();
  ws.terminate();
  return { waits: Float64Array.from(client.waits), ms: performance.now() - started };
}

async function sendMessages(
  to: Address,
  { keys, connections, ms, pace }: Extract<ProbeWish, { sends: object }>['sends'],
): Promise<ProbeReport> {
  const clients = await Promise.all(Array.from({ length: connections }, async () => new Asking(await open(to))));
  let n = 0;
  const message = 'x'.repeat(300);
  const send = (client: Asking) =>
    client.ask((id) => JSON.stringify({ type: 'req', id, method: 'sessions.send', params: { key: keys[n++ % keys.length], message } }));
  const started = performance.now();
  const left = () => started + ms - performance.now();
  if ('inFlight' in pace) {
    const worker = async (client: Asking) => {
      while (left() > 0) await send(client);
    };
    await Promise.all(clients.flatMap((client) => Array.from({ length: pace.inFlight / connections }, () => worker(client))));
  } else {
    for (let sent = 0; left() > 0; sent++) {
      const due = started + (sent * 1_000) / pace.perSecond - performance.now();
      if (due > 1) await sleep(due);
      void send(clients[sent % connections]!);
    }
  }
  await Promise.all(clients.map((client) => client.quiet()));
  for (const client of clients) client.ws.terminate();
  return { waits: Float64Array.from(clients.flatMap(({ waits }) => waits)), ms: performance.now() - started };
}

/** A websocket with requests under way, each timed. */
class Asking {
  readonly ws: WebSocket;
  readonly waits: number[] = [];
  private readonly open = new Map<string, { since: number; resolve(): void }>();
  private asked = 0;

  constructor(ws: WebSocket) {
    this.ws = ws;
    ws.on('message', (data: Buffer) => {
      const id = /"id":"(\d{6,})"/.exec(data.toString('utf8', 0, 60))?.[1] ?? '';
      const one = this.open.get(id);
      if (!one) return;
      this.open.delete(id);
      this.waits.push(performance.now() - one.since);
      one.resolve();
    });
  }

  ask(textOf: (id: string) => string): Promise<void> {
    const id = String(++this.asked).padStart(6, '0');
    return new Promise((resolve) => {
      this.open.set(id, { since: performance.now(), resolve });
      this.ws.send(textOf(id));
    });
  }

  async quiet(): Promise<void> {
    while (this.open.size > 0 && this.ws.readyState === this.ws.OPEN) await sleep(5);
  }
}
