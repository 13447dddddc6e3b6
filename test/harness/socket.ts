// A bare websocket that says exactly what a test wants, and bytes and requests as they are: for malformed frames and the wire itself.
import { request, type IncomingHttpHeaders } from 'node:http';
import { connect, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';
import { WebSocket } from 'ws';
import type { ErrorShape } from '../../src/protocol/frame.ts';
import type { OperationName, Params, Results } from '../../src/protocol/operations/all.ts';

export interface Frame {
  type: 'req' | 'res' | 'event';
  id?: string;
  event?: string;
  seq?: number;
  ok?: boolean;
  payload?: Record<string, unknown>;
  error?: ErrorShape;
}

/** An answer that was no. */
class Refused extends Error implements ErrorShape {
  readonly code: string;
  readonly details: { code: string } & Record<string, unknown>;

  constructor(shape: ErrorShape) {
    super(shape.message);
    this.code = shape.code;
    this.details = shape.details ?? { code: 'none' };
  }
}

export const connectParams = (token: string | undefined, more: object = {}) => ({
  minProtocol: 4,
  maxProtocol: 4,
  client: { id: 'test', version: '1', platform: 'linux', mode: 'test' },
  ...(token === undefined ? {} : { auth: { token } }),
  ...more,
});

export class Wire {
  readonly frames: Frame[] = [];
  /** Texts as they came. */
  readonly texts: string[] = [];
  readonly closed: Promise<{ code: number; reason: string }>;
  readonly socket: WebSocket;
  private readonly watchers = new Set<() => void>();
  private gone = false;
  private asked = 0;

  constructor(port: number, options: { headers?: Record<string, string>; path?: string; localAddress?: string } = {}) {
    const { path = '/', headers = {}, localAddress } = options;
    this.socket = new WebSocket(`ws://127.0.0.1:${port}${path}`, {
      headers,
      perMessageDeflate: false,
      ...(localAddress === undefined ? {} : { localAddress }),
    });
    this.socket.on('message', (data: Buffer) => {
      const text = data.toString();
      this.texts.push(text);
      this.frames.push(JSON.parse(text) as Frame);
      this.look();
    });
    this.socket.on('error', () => {});
    this.closed = new Promise((resolve) => {
      this.socket.on('close', (code, reason) => {
        this.gone = true;
        resolve({ code, reason: reason.toString() });
        this.look();
      });
    });
  }

  private look(): void {
    for (const watcher of this.watchers) watcher();
  }

  /** Opened, and challenged. */
  static async open(port: number, options?: ConstructorParameters<typeof Wire>[1]): Promise<Wire> {
    const wire = new Wire(port, options);
    onTestFinished(() => wire.end());
    await wire.event('connect.challenge');
    return wire;
  }

  static async connect(port: number, token: string | undefined, more: object = {}, headers: Record<string, string> = {}): Promise<Wire> {
    const wire = await Wire.open(port, { headers });
    await wire.hello(token, more);
    return wire;
  }

  hello(token: string | undefined, more: object = {}): Promise<Record<string, unknown>> {
    return this.answer(this.ask('connect', connectParams(token, more)));
  }

  send(data: string | Buffer): void {
    this.socket.send(data);
  }

  /** Sends a request; its id. */
  ask(method: string, params?: unknown, id = `r${++this.asked}`): string {
    this.send(JSON.stringify({ type: 'req', id, method, ...(params === undefined ? {} : { params }) }));
    return id;
  }

  /** The nth frame from the beginning that fits. */
  frame(fits: (frame: Frame) => boolean, nth = 1): Promise<Frame> {
    return new Promise((resolve, reject) => {
      const look = () => {
        const found = this.frames.filter(fits)[nth - 1];
        if (found) resolve(found);
        else if (this.gone) reject(new Error('the connection is closed'));
        else return;
        this.watchers.delete(look);
      };
      this.watchers.add(look);
      look();
    });
  }

  event(name: string, fits: (payload: Record<string, unknown>) => boolean = () => true, nth = 1): Promise<Frame> {
    return this.frame((frame) => frame.event === name && fits(frame.payload!), nth);
  }

  async answer(id: string, nth = 1): Promise<Record<string, unknown>> {
    const { ok, payload, error } = await this.frame((frame) => frame.type === 'res' && frame.id === id, nth);
    if (!ok) throw new Refused(error!);
    return payload!;
  }

  call<M extends OperationName>(method: M, params?: Params<M>): Promise<Results[M]> {
    return this.answer(this.ask(method, params)) as Promise<unknown> as Promise<Results[M]>;
  }

  /** The error of a call that must be refused, as it came. */
  async refusal(method: string, params?: unknown): Promise<ErrorShape> {
    const id = this.ask(method, params);
    const { error } = await this.frame((frame) => frame.type === 'res' && frame.id === id);
    if (!error) throw new Error(`${method} was not refused`);
    return error;
  }

  events(name: string): Record<string, unknown>[] {
    return this.frames.filter((frame) => frame.event === name).map((frame) => frame.payload!);
  }

  async end(): Promise<void> {
    if (this.gone) return;
    this.socket.close();
    await this.closed;
  }
}

export interface Reply {
  status: number;
  headers: IncomingHttpHeaders;
  body: string;
}

/** One request on a connection of its own; 101 when it became something else. */
export function http(port: number, path: string, options: { method?: string; headers?: Record<string, string>; body?: string } = {}) {
  return new Promise<Reply>((resolve, reject) => {
    const { method = 'GET', headers = {}, body } = options;
    const length = body === undefined ? {} : { 'content-length': String(Buffer.byteLength(body)) };
    const asked = request({ host: '127.0.0.1', port, path, method, headers: { ...length, ...headers }, agent: false }, (response) => {
      let text = '';
      response.setEncoding('utf8').on('data', (piece: string) => (text += piece));
      response.on('end', () => resolve({ status: response.statusCode!, headers: response.headers, body: text }));
    });
    asked.on('upgrade', (response, socket) => {
      socket.destroy();
      resolve({ status: 101, headers: response.headers, body: '' });
    });
    asked.on('error', reject).end(body);
  });
}

export const upgrading = {
  connection: 'Upgrade',
  upgrade: 'websocket',
  'sec-websocket-version': '13',
  'sec-websocket-key': 'dGhlIHNhbXBsZSBub25jZQ==',
};

/** Bytes as they are; what came back until the other side closed. */
export function bytes(port: number, text: string | Buffer): Promise<string> {
  return new Promise((resolve) => {
    let heard = '';
    const socket = connect(port, '127.0.0.1', () => socket.end(text));
    socket.setEncoding('utf8').on('data', (piece: string) => (heard += piece));
    socket.on('error', () => {}).on('close', () => resolve(heard));
  });
}

/** A connection that a test reads when it wants to. */
export async function openSocket(port: number, options: { allowHalfOpen?: boolean } = {}): Promise<Socket> {
  const socket = connect({ port, host: '127.0.0.1', ...options });
  onTestFinished(() => void socket.destroy());
  await new Promise<void>((resolve) => socket.once('connect', resolve));
  return socket;
}
