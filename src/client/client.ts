// An address and a token → a connection: calls by method name, listeners by event name. Runs in browsers and on Node.js 20 or newer.
import { InterlaneError, isErrorCode, type ErrorCode } from '../errors.ts';
import { fromPeer } from '../protocol/compat/openclaw.ts';
import {
  protocolVersion,
  type ConnectParams,
  type ErrorShape,
  type EventFrame,
  type HelloOk,
  type ResponseFrame,
} from '../protocol/frame.ts';
import type { OperationName, Params, Results } from '../protocol/operations/all.ts';
import type { EventPayloads } from '../protocol/wire-event.ts';
import { deferred } from './deferred.ts';

export interface ConnectOptions {
  /** `http`, `https`, `ws` or `wss`. */
  url: string;
  /** A browser that is signed in needs no token: the gateway accepts its cookie. */
  token?: string | undefined;
  client: ConnectParams['client'];
  /** `tool-events` adds events of tool calls; `session-scoped-events` leaves out sessions that the client does not follow. */
  caps?: string[];
  /** Gives up connecting. It has no effect once the client is connected. */
  signal?: AbortSignal | undefined;
}

export interface CallOptions {
  /** Stops waiting for the answer. The gateway may still carry the request out. */
  signal?: AbortSignal | undefined;
  /** Receives the first of the two answers of `agent`: the message is stored and its run will start. */
  accepted?(early: Results['agent']): void;
}

type ParamsOf<M extends OperationName> =
  undefined extends Params<M> ? [params?: Params<M>, options?: CallOptions] : [params: Params<M>, options?: CallOptions];

interface Pending {
  method: string;
  options: CallOptions;
  resolve(payload: unknown): void;
  reject(error: unknown): void;
}

type Listener = (payload: unknown) => void;

export class Client {
  readonly url: string;
  hello!: HelloOk;
  /** Resolves with the reason when the connection has ended, on either side. */
  readonly closed: Promise<InterlaneError>;
  private readonly socket: WebSocket;
  private readonly pending = new Map<string, Pending>();
  private readonly listeners = new Map<string, Set<Listener>>();
  private readonly anything = new Set<() => void>();
  private readonly over = deferred<InterlaneError>();
  private lost: InterlaneError | undefined;
  private lastId = 0;

  /** Use `connect`. */
  constructor(url: string, socket: WebSocket) {
    this.url = url;
    this.closed = this.over.promise;
    this.socket = socket;
    this.socket.addEventListener('message', (event) => this.receive(String(event.data)));
    this.socket.addEventListener('close', ({ reason }) => this.end(reason === '' ? 'closed' : reason));
    let why = 'cannot connect';
    this.socket.addEventListener('open', () => (why = 'the network failed'));
    this.socket.addEventListener('error', () => this.end(why));
  }

  /** Rejects with an `InterlaneError` that carries the gateway's code; with UNAVAILABLE when the connection is lost. */
  call<M extends OperationName>(method: M, ...[params, options]: ParamsOf<M>): Promise<Results[M]> {
    return this.request(method, params, options ?? {}) as Promise<Results[M]>;
  }

  /** Adds a listener. Returns a function that removes it. */
  on<E extends keyof EventPayloads>(event: E, listener: (payload: EventPayloads[E]) => void): () => void {
    const all = this.listeners.get(event) ?? new Set();
    this.listeners.set(event, all.add(listener as Listener));
    return () => void all.delete(listener as Listener);
  }

  /** Calls the listener for every frame, as a sign of life. Returns a function that removes it. */
  onAnything(listener: () => void): () => void {
    this.anything.add(listener);
    return () => void this.anything.delete(listener);
  }

  get isClosed(): boolean {
    return this.lost !== undefined;
  }

  close(why = 'closed by the client'): void {
    this.end(why);
    this.socket.close();
  }

  request(method: string, params: unknown, options: CallOptions = {}): Promise<unknown> {
    const { signal } = options;
    if (this.lost) return Promise.reject(this.lost);
    if (signal?.aborted) return Promise.reject(signal.reason as Error);
    const id = String(++this.lastId);
    const { promise, resolve, reject } = deferred<unknown>();
    const stop = () => {
      this.pending.delete(id);
      reject(signal!.reason as Error);
    };
    signal?.addEventListener('abort', stop, { once: true });
    this.pending.set(id, { method, options, resolve, reject });
    this.socket.send(JSON.stringify({ type: 'req', id, method, params }));
    return promise.finally(() => signal?.removeEventListener('abort', stop));
  }

  private receive(text: string): void {
    if (this.lost) return;
    const frame = JSON.parse(text) as EventFrame | ResponseFrame;
    for (const listener of this.anything) listener();
    if (frame.type === 'event') {
      const payload = fromPeer(frame.payload);
      for (const listener of this.listeners.get(frame.event) ?? []) listener(payload);
      return;
    }
    const call = this.pending.get(frame.id);
    if (!call) return;
    if (frame.ok && call.method === 'agent' && (frame.payload as Results['agent']).status === 'accepted') {
      call.options.accepted?.(frame.payload as Results['agent']);
      return;
    }
    this.pending.delete(frame.id);
    if (frame.ok) call.resolve(fromPeer(frame.payload));
    else call.reject(errorOf(frame.error));
  }

  private end(why: string): void {
    if (this.lost) return;
    this.lost = new InterlaneError('UNAVAILABLE', `connection to ${this.url} is lost: ${why}`);
    for (const { reject } of this.pending.values()) reject(this.lost);
    this.pending.clear();
    this.over.resolve(this.lost);
  }
}

/** Resolves when the gateway has said hello. */
export async function connect(options: ConnectOptions): Promise<Client> {
  const { token, client: self, caps, signal } = options;
  signal?.throwIfAborted();
  const url = websocketUrl(options.url);
  const Socket = await socketClass();
  // In one step: a socket that fails at once has its listeners by then.
  const client = new Client(url, new Socket(url));
  const stop = () => client.close(signal!.reason instanceof Error ? signal!.reason.message : 'it took too long');
  signal?.addEventListener('abort', stop, { once: true });
  if (signal?.aborted) stop();
  try {
    await challenged(client);
    client.hello = (await client.request('connect', {
      minProtocol: protocolVersion,
      maxProtocol: protocolVersion,
      client: self,
      ...(caps ? { caps } : {}),
      ...(token === undefined ? {} : { auth: { token } }),
    })) as HelloOk;
    return client;
  } catch (thrown) {
    client.close();
    throw thrown;
  } finally {
    signal?.removeEventListener('abort', stop);
  }
}

/** `ws` is loaded only where the runtime has no WebSocket, as Node.js 20. */
async function socketClass(): Promise<typeof WebSocket> {
  const { WebSocket: own } = globalThis as { WebSocket?: typeof WebSocket };
  return own ?? ((await import('ws')).WebSocket as unknown as typeof WebSocket);
}

/** The gateway sends the first frame. */
async function challenged(client: Client): Promise<void> {
  let undo = () => {};
  const challenge = new Promise<undefined>((resolve) => (undo = client.on('connect.challenge', () => resolve(undefined))));
  const lost = await Promise.race([challenge, client.closed]);
  undo();
  if (lost) throw lost;
}

function websocketUrl(text: string): string {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  if (!url || !/^(https?|wss?):$/.test(url.protocol))
    throw new InterlaneError('USAGE', `${JSON.stringify(text.slice(0, 200))} is not a valid URL; write it as http://127.0.0.1:4683`);
  url.protocol = url.protocol.replace('http', 'ws');
  url.hash = '';
  return url.href;
}

/** Codes of the handshake that mean the same to a caller as one that every door has. */
const handshake: Record<string, ErrorCode> = {
  AUTH_TOKEN_MISSING: 'UNAUTHORIZED',
  AUTH_TOKEN_MISMATCH: 'UNAUTHORIZED',
  PROTOCOL_MISMATCH: 'USAGE',
};

function errorOf({ message, details = { code: 'INTERNAL' } }: ErrorShape): InterlaneError {
  const { code } = details;
  const known = handshake[code] ?? (isErrorCode(code) ? code : 'UNAVAILABLE');
  return new InterlaneError(known, message, { details });
}
