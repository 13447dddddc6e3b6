// An address and a token → a connection that is called by the method table and heard by event name. Runs in Node and in browsers.
import { InterlaneError, isErrorCode, type ErrorCode } from '../errors.ts';
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

export interface ConnectOptions {
  /** `http`, `https`, `ws` or `wss`. */
  url: string;
  /** A browser that is signed in needs none: its cookie is enough. */
  token?: string | undefined;
  client: ConnectParams['client'];
  /** What more to be told: `tool-events`; or less: `session-scoped-events`. */
  caps?: string[];
  /** Until the connection is there. */
  signal?: AbortSignal | undefined;
}

export interface CallOptions {
  /** Stops waiting for the answer; what was asked for may happen all the same. */
  signal?: AbortSignal | undefined;
  /** The first of the two answers of `agent`: it is safe, and it runs. */
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

type Heard = (payload: unknown) => void;

export class Client {
  readonly url: string;
  hello!: HelloOk;
  /** Resolves with the reason when the connection is over, whoever ended it. */
  readonly closed: Promise<InterlaneError>;
  private readonly socket: WebSocket;
  private readonly pending = new Map<string, Pending>();
  private readonly listeners = new Map<string, Set<Heard>>();
  private readonly anything = new Set<() => void>();
  private readonly over = Promise.withResolvers<InterlaneError>();
  private lost: InterlaneError | undefined;
  private lastId = 0;

  /** Use `connect`. */
  constructor(url: string) {
    this.url = url;
    this.closed = this.over.promise;
    this.socket = new WebSocket(url);
    this.socket.addEventListener('message', (event) => this.heard(String(event.data)));
    this.socket.addEventListener('close', ({ reason }) => this.end(reason === '' ? 'it was closed' : reason));
    let why = 'it cannot be reached';
    this.socket.addEventListener('open', () => (why = 'it broke'));
    this.socket.addEventListener('error', () => this.end(why));
  }

  /** Rejects with an `InterlaneError` that carries the gateway's code; with UNAVAILABLE when the connection is lost. */
  call<M extends OperationName>(method: M, ...[params, options]: ParamsOf<M>): Promise<Results[M]> {
    return this.request(method, params, options ?? {}) as Promise<Results[M]>;
  }

  /** Hears an event. Returns the undo. */
  on<E extends keyof EventPayloads>(event: E, listener: (payload: EventPayloads[E]) => void): () => void {
    const all = this.listeners.get(event) ?? new Set();
    this.listeners.set(event, all.add(listener as Heard));
    return () => void all.delete(listener as Heard);
  }

  /** Told of every frame: a sign of life. Returns the undo. */
  onAnything(listener: () => void): () => void {
    this.anything.add(listener);
    return () => void this.anything.delete(listener);
  }

  /** Whether the connection is over. */
  get isClosed(): boolean {
    return this.lost !== undefined;
  }

  close(why = 'it was closed here'): void {
    this.end(why);
    this.socket.close();
  }

  request(method: string, params: unknown, options: CallOptions = {}): Promise<unknown> {
    const { signal } = options;
    if (this.lost) return Promise.reject(this.lost);
    if (signal?.aborted) return Promise.reject(signal.reason as Error);
    const id = String(++this.lastId);
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    const stop = () => {
      this.pending.delete(id);
      reject(signal!.reason as Error);
    };
    signal?.addEventListener('abort', stop, { once: true });
    this.pending.set(id, { method, options, resolve, reject });
    this.socket.send(JSON.stringify({ type: 'req', id, method, params }));
    return promise.finally(() => signal?.removeEventListener('abort', stop));
  }

  private heard(text: string): void {
    if (this.lost) return;
    const frame = JSON.parse(text) as EventFrame | ResponseFrame;
    for (const listener of this.anything) listener();
    if (frame.type === 'event') {
      for (const listener of this.listeners.get(frame.event) ?? []) listener(frame.payload);
      return;
    }
    const asked = this.pending.get(frame.id);
    if (!asked) return;
    if (frame.ok && asked.method === 'agent' && (frame.payload as Results['agent']).status === 'accepted') {
      asked.options.accepted?.(frame.payload as Results['agent']);
      return;
    }
    this.pending.delete(frame.id);
    if (frame.ok) asked.resolve(frame.payload);
    else asked.reject(errorOf(frame.error));
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
  const client = new Client(websocketUrl(options.url));
  const stop = () => client.close(signal!.reason instanceof Error ? signal!.reason.message : 'it took too long');
  signal?.addEventListener('abort', stop, { once: true });
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

/** The gateway speaks first. */
async function challenged(client: Client): Promise<void> {
  let undo = () => {};
  const asked = new Promise<undefined>((resolve) => (undo = client.on('connect.challenge', () => resolve(undefined))));
  const lost = await Promise.race([asked, client.closed]);
  undo();
  if (lost) throw lost;
}

function websocketUrl(text: string): string {
  const url = URL.parse(text);
  if (!url || !/^(https?|wss?):$/.test(url.protocol))
    throw new InterlaneError('USAGE', `address ${JSON.stringify(text.slice(0, 200))} is not one; write it as http://127.0.0.1:4683`);
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
