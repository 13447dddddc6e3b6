// Many clients in one process, the same for the gateway and for the raw server: round trips, subscribers, followers, idle connections.
import { get, type ClientRequest } from 'node:http';
import { performance } from 'node:perf_hooks';
import { WebSocket } from 'ws';
import { epochNow, type Address } from './raw-server.ts';
import { answerParent } from './talk.ts';

interface At {
  to: Address;
}

export interface TripsWish extends At {
  trips: { connections: number; inFlight: number; ms: number };
}

/** How subscribers are told: of one session, of all, or over a stream. */
export type Way = 'key' | 'all' | 'stream';

export interface FanOutWish extends At {
  fanOut: {
    way: Way;
    subscribers: number;
    messages: number;
    pace: { inFlight: number } | { perSecond: number };
    sessionKey: string;
    text: string;
  };
}

/** For the frame that came to a subscriber at `at[n]`, the number of its message is `of[n]`. */
export interface FanOutReport {
  ms: number;
  at: Float64Array;
  of: Uint32Array;
  /** The frames that the last message made. */
  frames: string[];
}

export interface IdleWish extends At {
  idle: number;
}

export type ClientsWish = TripsWish | FanOutWish | IdleWish;

export function runClients(): void {
  answerParent((wish: ClientsWish) => ('trips' in wish ? trips(wish) : 'fanOut' in wish ? fanOut(wish) : idle(wish)));
}

export const isGateway = ({ token }: Address) => token !== '';

/** Open, and welcome. */
export async function open(to: Address, path = '/'): Promise<WebSocket> {
  const ws = new WebSocket(`${to.url.replace('http', 'ws')}${path}`, { perMessageDeflate: false });
  const hello = JSON.stringify({
    type: 'req',
    id: 'connect',
    method: 'connect',
    params: {
      minProtocol: 4,
      maxProtocol: 4,
      client: { id: 'bench', version: '1', platform: 'node', mode: 'cli' },
      auth: { token: to.token },
    },
  });
  await new Promise<void>((resolve, reject) => {
    ws.once('error', reject);
    if (!isGateway(to)) ws.once('open', resolve);
    else
      ws.once('message', () => {
        ws.send(hello);
        ws.once('message', (data: Buffer) => (data.includes('"ok":true') ? resolve() : reject(new Error(data.toString('utf8')))));
      });
  });
  return ws;
}

/** One request, nothing else under way. */
function call(ws: WebSocket, method: string, params: object): Promise<string> {
  return new Promise((resolve, reject) => {
    const heard = (data: Buffer) => {
      const text = data.toString('utf8');
      if (!text.startsWith('{"type":"res","id":"call"')) return;
      ws.off('message', heard);
      if (text.includes('"ok":true')) resolve(text);
      else reject(new Error(text));
    };
    ws.on('message', heard);
    ws.send(JSON.stringify({ type: 'req', id: 'call', method, params }));
  });
}

// Round trips ---------------------------------------------------------------------------------------------------------

/** What the gateway answers to `health`, so that both carry as much. */
export const echoed = '{"type":"res","id":"000000","ok":true,"payload":{"ok":true,"ts":1700000000000,"durationMs":0}}';
export const health = '{"type":"req","id":"000000","method":"health"}';

async function trips({ to, trips: { connections, inFlight, ms } }: TripsWish): Promise<number> {
  const sockets = await Promise.all(Array.from({ length: connections }, () => open(to)));
  const text = isGateway(to) ? health : echoed;
  let done = 0;
  let over = false;
  const ended = sockets.map(
    (ws) =>
      new Promise<void>((resolve) => {
        let waiting = inFlight;
        ws.on('message', () => {
          if (over) {
            if (--waiting === 0) resolve();
            return;
          }
          done++;
          ws.send(text);
        });
        for (let n = 0; n < inFlight; n++) ws.send(text);
      }),
  );
  const started = performance.now();
  await new Promise((resolve) => setTimeout(resolve, ms));
  const perSecond = (done * 1_000) / (performance.now() - started);
  over = true;
  await Promise.all(ended);
  for (const ws of sockets) ws.terminate();
  return perSecond;
}

// Fan-out -------------------------------------------------------------------------------------------------------------

const mark = Buffer.from('"messageSeq":');

/** The number of the message that a frame tells of, or 0. */
function numberIn(frame: Buffer): number {
  const found = frame.indexOf(mark);
  if (found < 0) return 0;
  let number = 0;
  for (let n = found + mark.length; frame[n]! >= 48 && frame[n]! <= 57; n++) number = number * 10 + frame[n]! - 48;
  return number;
}

async function fanOut({ to, fanOut: wish }: FanOutWish): Promise<FanOutReport> {
  const { way, subscribers, messages, pace, sessionKey, text } = wish;
  const publisher = await open(to);
  if (isGateway(to)) await call(publisher, 'sessions.create', { key: sessionKey });
  const framesEach = way === 'all' ? 2 : 1;
  const at = new Float64Array(messages * subscribers * framesEach);
  const of = new Uint32Array(at.length);
  const missing = new Uint32Array(messages + 1).fill(subscribers * framesEach);
  const all = Promise.withResolvers<void>();
  const frames: string[] = [];
  let heard = 0;
  let next = 1;
  const publish = () => {
    if (next > messages) return;
    const n = next++;
    publisher.send(
      isGateway(to)
        ? `{"type":"req","id":"p${n}","method":"chat.inject","params":{"sessionKey":"${sessionKey}","message":"${text}"}}`
        : `{"type":"req","id":"p${n}","publish":${n},"params":{"sessionKey":"${sessionKey}","message":"${text}"}}`,
    );
  };
  const told = (frame: Buffer) => {
    const n = numberIn(frame);
    if (n === 0) return;
    at[heard] = epochNow();
    of[heard] = n;
    heard++;
    if (n === messages && frames.length < framesEach) frames.push(frame.toString('utf8'));
    if (--missing[n]! === 0 && 'inFlight' in pace) publish();
    if (heard === at.length) all.resolve();
  };
  const leave = await (way === 'stream' ? follow(to, wish, told) : subscribe(to, wish, told));
  publisher.on('message', (data: Buffer) => void (data.includes('"ok":false') && all.reject(new Error(data.toString('utf8')))));
  const started = performance.now();
  let timer: NodeJS.Timeout | undefined;
  if ('inFlight' in pace) for (let n = 0; n < pace.inFlight; n++) publish();
  else timer = setInterval(publish, 1_000 / pace.perSecond);
  await all.promise;
  clearInterval(timer);
  const ms = performance.now() - started;
  leave();
  publisher.terminate();
  return { ms, at, of, frames };
}

async function subscribe(to: Address, { way, subscribers, sessionKey }: FanOutWish['fanOut'], told: (frame: Buffer) => void) {
  const sockets = await Promise.all(Array.from({ length: subscribers }, () => open(to, '/subscribe')));
  const method = way === 'all' ? 'sessions.subscribe' : 'sessions.messages.subscribe';
  if (isGateway(to)) for (const ws of sockets) await call(ws, method, way === 'all' ? {} : { key: sessionKey });
  for (const ws of sockets) ws.on('message', told);
  return () => {
    for (const ws of sockets) ws.terminate();
  };
}

async function follow(to: Address, { subscribers, sessionKey }: FanOutWish['fanOut'], told: (frame: Buffer) => void) {
  const path = `/sessions/${encodeURIComponent(sessionKey)}/history?follow=1`;
  const requests: ClientRequest[] = [];
  const one = () =>
    new Promise<void>((resolve, reject) => {
      const asked = get(`${to.url}${path}`, { agent: false, headers: { authorization: `Bearer ${to.token}` } }, (response) => {
        if (response.statusCode !== 200) reject(new Error(`${path} was answered with ${response.statusCode}`));
        let rest: Buffer = Buffer.alloc(0);
        response.on('data', (chunk: Buffer) => {
          const data = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
          let from = 0;
          for (let end = data.indexOf('\n\n'); end >= 0; end = data.indexOf('\n\n', from)) {
            const event = data.subarray(from, end + 2);
            from = end + 2;
            if (event.includes('event: history') || !isGateway(to)) resolve();
            told(event);
          }
          rest = data.subarray(from);
        });
        response.on('error', () => {});
      });
      asked.on('error', reject);
      requests.push(asked);
    });
  await Promise.all(Array.from({ length: subscribers }, one));
  return () => {
    for (const asked of requests) asked.destroy();
  };
}

// Idle connections ----------------------------------------------------------------------------------------------------

async function idle({ to, idle: count }: IdleWish): Promise<number> {
  for (let opened = 0; opened < count;) {
    const some = Math.min(100, count - opened);
    await Promise.all(Array.from({ length: some }, () => open(to)));
    opened += some;
  }
  return count;
}
