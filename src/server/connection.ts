// One websocket: handshake → requests and events of protocol version 4. It serves nothing before the client has identified itself.
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { WebSocket } from 'ws';
import { InterlaneError } from '../errors.ts';
import { toPeer } from '../protocol/compat/openclaw.ts';
import {
  bufferLimit,
  frameLimits,
  mostInFlight,
  type RequestFrame,
  type ErrorShape,
  type EventName,
  type ResponseFrame,
} from '../protocol/frame.ts';
import { cookieOf } from './access.ts';
import { answerText } from './answer.ts';
import type { Pace, Pacer } from '../pace.ts';
import type { Auth, TokenEnd } from './auth.ts';
import { allows, narrowed, frameLimitOf, viewerOf, type Caller } from './rights.ts';
import type { Events } from './events.ts';
import { InFlight, type Place } from './in-flight.ts';
import type { LiveRuns, Watcher } from './live-runs.ts';
import { errorShape } from './failure.ts';
import type { Dispatch } from './dispatch.ts';
import { helloFor, readConnect, tokenRefusal, type HelloFacts } from './handshake.ts';
import { readRequest, writtenId } from './request-frame.ts';
import { ConnectionSubscriptions } from './subscriptions.ts';
import type { Report } from '../warn.ts';

export interface ConnectionParts {
  auth: Auth;
  pacer: Pacer;
  dispatch: Dispatch;
  events: Events;
  live: LiveRuns;
  now(): number;
  newId(): string;
  /** Whether the gateway can serve requests now. */
  well(): boolean;
  after(ms: number, work: () => void): () => void;
  hello(): HelloFacts;
  /** Reports an internal failure to the operator; the client never sees it. */
  report: Report;
}

const handshakeMs = 15_000;
const slowReaderMs = 30_000;
const goodbyeMs = 2_000;
/** A connection is not read for so long after each request that was refused because it asked for too much; and how long at most. */
const refusalMs = 1;
const longestPauseMs = 1_000;
/** Frames up to this many bytes wait for the end of the event loop's turn, to leave together. */
const togetherBytes = 64 * 1024;
/** Close codes: a policy refusal, too much, the service restarts. */
export const closing = { refused: 1008, protocol: 1002, restart: 1012 } as const;

/** Learns when a client has identified itself, and when the connection is over. */
interface ConnectionOwner {
  identified(): void;
  closed(): void;
}

export class Connection {
  caller: Caller | undefined;
  private readonly ws: WebSocket;
  /** The TCP socket below the websocket. */
  private readonly socket: Duplex;
  private readonly request: IncomingMessage;
  private readonly parts: ConnectionParts;
  private readonly owner: ConnectionOwner;
  private readonly controller = new AbortController();
  private readonly pace: Pace;
  /** Set by the welcome. */
  private subscriptions: ConnectionSubscriptions | undefined;
  private undoWatch = () => {};
  private cancelHandshake = () => {};
  private cancelGoodbye = () => {};
  private cancelPause = () => {};
  private seq = 0;
  private readonly inFlight = new InFlight();
  /** Requests that were refused since the connection was last read. */
  private refused = 0;
  private stranger = true;
  private connecting = false;
  private alive = true;
  private closing = false;
  /** Requests under way that may end a token. */
  private endings = 0;
  private drained: { promise: Promise<void>; resolve: () => void; cancel: () => void } | undefined;
  private gathering = false;

  constructor(ws: WebSocket, socket: Duplex, request: IncomingMessage, parts: ConnectionParts, owner: ConnectionOwner) {
    this.ws = ws;
    this.socket = socket;
    this.request = request;
    this.parts = parts;
    this.pace = parts.pacer.client().pace(this.controller.signal);
    this.owner = owner;
  }

  start(): void {
    const { ws, parts } = this;
    ws.on('message', (data: Buffer) => this.receive(data));
    ws.on('pong', () => (this.alive = true));
    ws.on('close', () => this.gone());
    // A frame that breaks the protocol closes the socket; `ws` has sent the code already.
    ws.on('error', () => {});
    this.cancelHandshake = parts.after(handshakeMs, () => this.close(closing.refused, 'no connect request in time'));
    void this.event('connect.challenge', JSON.stringify({ nonce: parts.newId(), ts: parts.now() }));
  }

  /** Sends an event with this JSON as its payload. Returns a promise only if the reader is slow; it resolves when the reader has caught up. */
  event(name: EventName, payload: string): Promise<void> | void {
    const { ws } = this;
    if (ws.readyState !== WebSocket.OPEN) return;
    const seq = this.caller ? `,"seq":${++this.seq}` : '';
    return this.send(`{"type":"event","event":"${name}"${seq},"payload":${payload}}`);
  }

  /** Sends an event only to a client that has identified itself. */
  news(name: EventName, payload: string): Promise<void> | void {
    if (this.caller) return this.event(name, payload);
  }

  tick(payload: string): void {
    if (!this.caller) return;
    if (!this.alive) return this.terminate();
    this.alive = false;
    this.ws.ping();
    void this.event('tick', payload);
  }

  /** Stops reading, serving and following at once, however long the other side takes to close. */
  close(code: number, reason: string): void {
    this.closing = true;
    this.ws.close(code, closeReason(reason));
    this.release();
    // A client that does not close its side keeps no socket of ours.
    this.cancelGoodbye();
    this.cancelGoodbye = this.parts.after(goodbyeMs, () => this.terminate());
  }

  /** Rejects new requests, but lets a caller that rotated its own token receive the reply with the new secret. */
  tokenEnded(why: TokenEnd): void {
    this.closing = true;
    if (this.endings === 0) this.close(closing.refused, `token ${why}`);
  }

  terminate(): void {
    this.ws.terminate();
  }

  /** A system call costs more than a frame, so all frames of one turn of the event loop leave together at its end. */
  private send(text: string): Promise<void> | void {
    if (!this.gathering) {
      this.gathering = true;
      this.socket.cork();
      process.nextTick(this.flush);
    }
    this.ws.send(text, this.sent);
    const waiting = this.ws.bufferedAmount;
    if (waiting > togetherBytes) this.flush();
    if (waiting > bufferLimit) return this.slow();
  }

  private readonly flush = () => {
    if (!this.gathering) return;
    this.gathering = false;
    this.socket.uncork();
  };

  private readonly sent = () => {
    if (!this.drained || this.ws.bufferedAmount > bufferLimit / 2) return;
    this.drained.cancel();
    this.drained.resolve();
    this.drained = undefined;
  };

  /** Unsent events stay in the store. A client that does not read for long is disconnected and comes back with its cursor. */
  private slow(): Promise<void> {
    if (!this.drained) {
      const { promise, resolve } = Promise.withResolvers<void>();
      const cancel = this.parts.after(slowReaderMs, () => {
        this.close(closing.refused, 'slow consumer: subscribe again with the last cursor');
        this.terminate();
      });
      this.drained = { promise, resolve, cancel };
    }
    // Live events are not in the store, so the buffer for them has a limit.
    if (this.ws.bufferedAmount > mostBuffered) this.terminate();
    return this.drained.promise;
  }

  /** Ends everything that this connection asked for. */
  private release(): void {
    this.controller.abort(new InterlaneError('UNAVAILABLE', 'connection is gone'));
    this.cancelHandshake();
    this.cancelPause();
    this.ws.resume();
    this.undoWatch();
    this.subscriptions?.close();
  }

  private gone(): void {
    this.release();
    this.cancelGoodbye();
    this.drained?.cancel();
    this.drained?.resolve();
    this.drained = undefined;
    if (this.stranger) this.owner.identified();
    this.stranger = false;
    this.owner.closed();
  }

  private receive(data: Buffer): void {
    // `ws` hands over frames until the other side has closed too.
    if (this.closing) return;
    if (this.caller) void this.serve(this.caller, data);
    else this.greet(data);
  }

  /** The first frame. */
  private greet(data: Buffer): void {
    const read = readRequest(data);
    if (read.ok) {
      void this.connect(read.request);
      return;
    }
    this.fail(read.id, read.error);
    this.close(closing.refused, 'invalid handshake');
  }

  /** Frames are read when it is the turn of this connection, and what waits for that has the limits of one connection. */
  private async serve(caller: Caller, data: Buffer): Promise<void> {
    const place = this.inFlight.enter(data.length, frameLimitOf(caller));
    if (!place) {
      this.refuse(data);
      return;
    }
    try {
      await this.pace.pause().finally(place.read);
      if (!this.closing) await this.answer(caller, data, place);
    } catch {
      // The connection is gone, and its requests with it.
    } finally {
      place.leave();
    }
  }

  /** Refusing takes time as well, so a connection that asked for too much is not read for a moment: the longer, the more was refused. */
  private refuse(data: Buffer): void {
    const most = `${mostInFlight} unanswered requests, and one frame's worth of unread bytes`;
    this.fail(writtenId(data), new InterlaneError('BUSY', `connection is busy: it may have ${most}; wait for answers`));
    this.refused++;
    if (this.ws.isPaused) return;
    this.ws.pause();
    this.pauseFor(refusalMs);
  }

  /** What had arrived before the pause is refused during it, and makes it longer. */
  private pauseFor(ms: number): void {
    this.cancelPause = this.parts.after(ms, () => {
      const { refused } = this;
      this.refused = 0;
      if (refused > 0) this.pauseFor(Math.min(refused * refusalMs, longestPauseMs));
      else this.ws.resume();
    });
  }

  private async answer(caller: Caller, data: Buffer, { waits }: Place): Promise<void> {
    const read = readRequest(data);
    if (!read.ok) {
      this.fail(read.id, read.error);
      return;
    }
    const { id, method, params } = read.request;
    if (method === 'connect') {
      this.fail(id, new InterlaneError('INVALID_REQUEST', 'connect was done already'));
      return;
    }
    const ending = method === 'tokens.rotate' || method === 'tokens.revoke' ? 1 : 0;
    this.endings += ending;
    try {
      const payload = await this.parts.dispatch.call(method, params, {
        caller,
        signal: this.controller.signal,
        pace: this.pace,
        accepted: (early) => this.respond(id, { ok: true, payload: early }),
        waits,
        subscriptions: this.subscriptions!,
      });
      // A client that asks faster than it reads waits for its answers, so that they do not pile up here.
      while (this.drained) await this.drained.promise;
      this.respond(id, { ok: true, payload: toPeer(payload) }, method);
    } catch (thrown) {
      if (!this.controller.signal.aborted) this.fail(id, thrown, method, params);
    } finally {
      this.endings -= ending;
      if (this.closing && ending === 1) this.close(closing.refused, 'token ended');
    }
  }

  // The handshake -----------------------------------------------------------------------------------------------------

  private async connect({ id, method, params }: RequestFrame): Promise<void> {
    if (this.connecting) return;
    this.connecting = true;
    const refuse = (error: InterlaneError) => {
      this.fail(id, error);
      this.close(error.code === 'PROTOCOL_MISMATCH' ? closing.protocol : closing.refused, error.message);
    };
    const asked = readConnect(method, params);
    if (asked instanceof InterlaneError) return refuse(asked);
    const { auth, caps = [], scopes } = asked;
    try {
      const presented = auth?.token ?? auth?.password ?? cookieOf(this.request.headers.cookie, this.request.socket.localPort);
      const address = this.request.socket.remoteAddress ?? '';
      const caller = presented === undefined ? 'wrong' : await this.parts.auth.identify(presented, address);
      if (this.closing || this.ws.readyState !== WebSocket.OPEN) return;
      // No await between this check and the welcome: from the welcome on, the connection hears when its token ends.
      if (typeof caller === 'string') return refuse(tokenRefusal(presented, caller));
      if (this.parts.auth.isOver(caller)) return refuse(tokenRefusal(presented, 'wrong'));
      this.welcome(id, narrowed(caller, scopes), caps);
    } catch (thrown) {
      this.fail(id, thrown, 'connect');
      this.close(1013, 'try again');
    }
  }

  private welcome(id: string, caller: Caller, caps: string[]): void {
    const { parts, ws } = this;
    this.cancelHandshake();
    this.caller = caller;
    this.stranger = false;
    this.owner.identified();
    const isScoped = caps.includes('session-scoped-events');
    allowFrames(ws, frameLimitOf(caller));
    const viewer = viewerOf(caller);
    const send: Watcher['send'] = (event, payload) => this.event(event, payload);
    const watcher: Watcher = {
      viewer,
      watches: (key) => !isScoped || subscriptions.includes(key),
      wants: caps.includes('tool-events') ? 'tools' : 'agent',
      send,
    };
    const subscriptions = new ConnectionSubscriptions({
      events: parts.events,
      viewer,
      send,
      tellSoFar: (key) => void parts.live.tellSoFar(watcher, key),
      failed: (error) => {
        parts.report('subscription', error);
        this.close(1011, 'subscription failed: subscribe again with the last cursor');
      },
      signal: this.controller.signal,
    });
    this.subscriptions = subscriptions;
    this.respond(id, { ok: true, payload: helloFor(caller, parts.dispatch.usableBy(caller), parts.well(), parts.hello()) });
    if (allows(caller, 'operator.read')) this.undoWatch = parts.live.watch(watcher);
  }

  private fail(id: string, thrown: unknown, method?: string, params?: unknown): void {
    if (method !== undefined && !(thrown instanceof InterlaneError))
      this.parts.report(method, thrown, { request: id, session: namedIn(params) });
    this.respond(id, { ok: false, error: errorShape(thrown) });
  }

  private respond(id: string, answer: { ok: true; payload: unknown } | { ok: false; error: ErrorShape }, method = 'a request'): void {
    if (this.ws.readyState !== WebSocket.OPEN) return;
    const frame: ResponseFrame = { type: 'res', id, ...answer };
    void this.send(answerText(frame, method));
  }
}

/** The largest answer, and live events beside it. */
const mostBuffered = frameLimits.admin + 4 * bufferLimit;

/** The session that a request names, for the log. */
function namedIn(params: unknown): string | undefined {
  const { sessionKey, key } = (params ?? {}) as { sessionKey?: unknown; key?: unknown };
  const named = sessionKey ?? key;
  return typeof named === 'string' ? named.slice(0, 512) : undefined;
}

/** Cuts the text to what fits into a close frame. */
function closeReason(text: string): string {
  let reason = text.slice(0, 120);
  while (Buffer.byteLength(reason) > 120) reason = reason.slice(0, -1);
  return reason;
}

/** `ws` has one limit for the life of a socket, and ours follows the token from the welcome on. Relies on a private field of `ws`; a test covers it. */
function allowFrames(ws: WebSocket, bytes: number): void {
  const { _receiver: receiver } = ws as unknown as { _receiver?: { _maxPayload: number } };
  // oxlint-disable-next-line no-underscore-dangle
  if (receiver) receiver._maxPayload = bytes;
}
