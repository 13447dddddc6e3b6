// Hostile clients in a process of their own, the same for the gateway and for the raw server: pipelined reads and large frames, for so long.
import { once } from 'node:events';
import { WebSocket } from 'ws';
import { open } from './clients.ts';
import { longKey } from './data.ts';
import type { Address } from './raw-server.ts';
import { answerParent } from './talk.ts';

/** Each kind of harm, by its name in the table. */
export const harms = {
  'sessions.list with search and offset, 200 pipelined': { token: 'reader' },
  'sessions.list of 1,000 rows, 200 pipelined': { token: 'reader' },
  'sessions.preview of one key × 100, 200 pipelined': { token: 'reader' },
  'sessions_history, 100 pipelined': { token: 'session' },
  'nested arrays, 24 MB, then 1 MB each': { token: 'session' },
  'objects of 1.6 million keys, then of 100,000': { token: 'session' },
  'flat strings, 24 MB, then 1 MB each': { token: 'session' },
  'sessions_search of a frequent word, 60 pipelined': { token: 'session' },
  'frames of 19,900 unknown keys, 30 pipelined': { token: 'reader' },
  'sessions.send of 900 kB, 4 pipelined': { token: 'writer' },
} as const satisfies Record<string, { token: 'reader' | 'session' | 'writer' }>;
export type Harm = keyof typeof harms;

export interface HostileWish {
  to: Address;
  harm: Harm;
  connections: number;
  ms: number;
  /** A session with large messages. */
  largeKey: string;
}

export interface HostileReport {
  sent: number;
  answered: number;
}

export function runHostile(): void {
  answerParent(async (wish: HostileWish): Promise<HostileReport> => {
    const over = new AbortController();
    const report = { sent: 0, answered: 0 };
    const work = Array.from({ length: wish.connections }, () => harm(wish, over.signal, report).catch(() => {}));
    setTimeout(() => over.abort(), wish.ms);
    await Promise.all(work);
    return report;
  });
}

const request = (method: string, params: object) => JSON.stringify({ type: 'req', id: 'x', method, params });
/** A frame that asks for little, with something large in it. */
const framed = (value: string) => `{"type":"req","id":"x","method":"health","params":${value}}`;
const nested = (bytes: number) => framed('['.repeat(bytes / 2) + ']'.repeat(bytes / 2));
const keys = (count: number) => framed(`{${Array.from({ length: count }, (_, n) => `"k${n}":1`).join(',')}}`);
const flat = (bytes: number) => framed(`"${'x'.repeat(bytes)}"`);

async function harm({ to, harm: kind, largeKey }: HostileWish, over: AbortSignal, report: HostileReport): Promise<void> {
  const megabyte = 1_000_000;
  switch (kind) {
    case 'sessions.list with search and offset, 200 pipelined':
      return pipelined(to, request('sessions.list', { search: 'telegram', offset: 1_000, limit: 1_000 }), 200, over, report);
    case 'sessions.list of 1,000 rows, 200 pipelined':
      return pipelined(to, request('sessions.list', { limit: 1_000 }), 200, over, report);
    case 'sessions.preview of one key × 100, 200 pipelined':
      return pipelined(to, request('sessions.preview', { keys: Array(100).fill(largeKey), limit: 50 }), 200, over, report);
    case 'sessions_history, 100 pipelined':
      return pipelined(
        to,
        request('tools.invoke', { tool: 'sessions_history', args: { sessionKey: longKey(1), limit: 1_000 } }),
        100,
        over,
        report,
      );
    case 'nested arrays, 24 MB, then 1 MB each':
      return large(to, nested(24 * megabyte), nested(megabyte), over, report);
    case 'objects of 1.6 million keys, then of 100,000':
      return large(to, keys(1_600_000), keys(95_000), over, report);
    case 'sessions_search of a frequent word, 60 pipelined':
      return pipelined(to, request('tools.invoke', { tool: 'sessions_search', args: { query: 'message' } }), 60, over, report);
    case 'frames of 19,900 unknown keys, 30 pipelined':
      return pipelined(to, keys(19_900), 30, over, report);
    case 'sessions.send of 900 kB, 4 pipelined':
      return pipelined(to, request('sessions.send', { key: longKey(2), message: 'x'.repeat(900_000) }), 4, over, report);
    default:
      return large(to, flat(24 * megabyte), flat(megabyte), over, report);
  }
}

/** So many under way on one connection, until the time is over; each answer makes room for the next. Leaves without a goodbye. */
async function pipelined(to: Address, text: string, inFlight: number, over: AbortSignal, report: HostileReport): Promise<void> {
  const ws = await open(to);
  const send = () => {
    report.sent++;
    ws.send(text);
  };
  ws.on('error', () => {});
  ws.on('message', () => {
    report.answered++;
    if (ws.readyState === WebSocket.OPEN) send();
  });
  for (let n = 0; n < inFlight; n++) send();
  await Promise.race([ended(over), once(ws, 'close')]);
  ws.terminate();
}

/** The large frame first, and on a new connection those that are as large as they may be, eight under way. */
async function large(to: Address, first: string, then: string, over: AbortSignal, report: HostileReport): Promise<void> {
  const ws = await open(to);
  ws.on('error', () => {});
  report.sent++;
  ws.send(first);
  await Promise.race([ended(over), once(ws, 'close'), once(ws, 'message')]);
  ws.terminate();
  while (!over.aborted) await pipelined(to, then, 8, over, report);
}

const ended = (over: AbortSignal) => (over.aborted ? Promise.resolve() : once(over, 'abort'));
