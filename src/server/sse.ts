// Server-sent events: text out as fast as its reader takes it. What a slow reader has not taken stays in the store, not here.
import { InterlaneError } from '../errors.ts';
import type { Auth } from './auth.ts';
import type { Caller } from './rights.ts';

export interface StreamsParts {
  auth: Auth;
  now(): number;
  after(ms: number, work: () => void): () => void;
}

/** The wire below a stream. */
export interface Wire {
  /** Aborted when the client is gone or the gateway stops. */
  signal: AbortSignal;
  /** Ends the connection at once, also when the client does not read. */
  drop(): void;
}

const keepaliveMs = 15_000;
const slowReaderMs = 30_000;
/** Bytes that may wait for a reader, beside one more event. */
const bufferBytes = 64 * 1024;

/** Streams of one token. */
const mostStreams = 500;

/** All streams that are open: kept alive together, ended with their token or with the gateway. */
export class Streams {
  private readonly parts: StreamsParts;
  private readonly open = new Map<Stream, Caller>();
  private readonly undoEnd: () => void;
  private cancelTick: (() => void) | undefined;
  private closed = false;

  constructor(parts: StreamsParts) {
    this.parts = parts;
    this.undoEnd = parts.auth.onEnd((tokenId) => {
      for (const [stream, caller] of this.open) if (caller.tokenId === tokenId) stream.end();
    });
  }

  get size(): number {
    return this.open.size;
  }

  start(caller: Caller, wire: Wire): Stream {
    const { parts } = this;
    const own = [...this.open.values()].filter(({ tokenId }) => tokenId === caller.tokenId).length;
    if (own >= mostStreams)
      throw new InterlaneError('BUSY', `token "${caller.name}" follows ${mostStreams} sessions already; end some, or use the websocket`);
    const stream = new Stream(parts, wire);
    this.open.set(stream, caller);
    stream.onEnd(() => void this.open.delete(stream));
    if (this.closed) stream.end();
    this.cancelTick ??= this.tick();
    return stream;
  }

  close(): void {
    this.closed = true;
    this.undoEnd();
    this.cancelTick?.();
    for (const stream of this.open.keys()) stream.end();
  }

  private tick(): () => void {
    return this.parts.after(keepaliveMs, () => {
      for (const stream of this.open.keys()) stream.keepAlive();
      this.cancelTick = this.open.size > 0 && !this.closed ? this.tick() : undefined;
    });
  }
}

export class Stream {
  readonly body: ReadableStream<Uint8Array>;
  ended = false;
  /** The id of the last event that this reader need not get again: it was sent, or the reader does not want it. */
  place: (() => string) | undefined;
  private readonly parts: Pick<StreamsParts, 'after'>;
  private readonly wire: Wire;
  private controller!: ReadableStreamDefaultController<Uint8Array>;
  private room: { promise: Promise<void>; resolve: () => void; cancel: () => void } | undefined;
  private readonly undos: (() => void)[] = [];
  /** What has not left yet, and its bytes. */
  private readonly gathered: Buffer[] = [];
  private waiting = 0;

  constructor(parts: Pick<StreamsParts, 'after'>, wire: Wire) {
    this.parts = parts;
    this.wire = wire;
    this.body = new ReadableStream<Uint8Array>(
      {
        start: (controller) => void (this.controller = controller),
        pull: () => this.taken(),
        cancel: () => this.end(),
      },
      { highWaterMark: bufferBytes, size: (chunk) => chunk.byteLength },
    );
    const gone = () => this.end();
    wire.signal.addEventListener('abort', gone, { once: true });
    this.onEnd(() => wire.signal.removeEventListener('abort', gone));
    void this.write(Buffer.from('retry: 1000\n\n'));
    if (wire.signal.aborted) this.end();
  }

  /** Returns a promise only if the reader is slow; it resolves when the reader has caught up or is gone. */
  send(event: string, data: string, id?: string): Promise<void> | void {
    return this.tell(eventText(event, data, id));
  }

  /** `send` for an event that was already made into text, for many readers. */
  tell(written: Buffer): Promise<void> | void {
    return this.write(written);
  }

  /** A comment, and the place in the feed: a reader of a quiet session comes back near the end of it. */
  keepAlive(): void {
    if (!this.room) void this.write(Buffer.from(`: keepalive\n${this.place ? `id: ${this.place()}\n` : ''}\n`));
  }

  onEnd(undo: () => void): void {
    if (this.ended) undo();
    else this.undos.push(undo);
  }

  end(): void {
    if (this.ended) return;
    try {
      this.flush();
      this.controller.close();
    } catch {
      // cancelled by its reader
    }
    this.ended = true;
    // A client that does not read would not notice the end of the stream either.
    if (this.room) this.wire.drop();
    this.taken();
    for (const undo of this.undos.splice(0)) undo();
  }

  /** A chunk costs more than an event, so all events of one turn of the event loop leave together at its end. */
  private write(text: Buffer): Promise<void> | void {
    if (this.ended) return;
    if (this.gathered.push(text) === 1) process.nextTick(this.flush);
    this.waiting += text.byteLength;
    if (this.controller.desiredSize! > this.waiting) return;
    this.flush();
    if (this.controller.desiredSize! > 0) return;
    if (!this.room) {
      const { promise, resolve } = Promise.withResolvers<void>();
      this.room = { promise, resolve, cancel: this.parts.after(slowReaderMs, () => this.end()) };
    }
    return this.room.promise;
  }

  private readonly flush = () => {
    if (this.gathered.length === 0 || this.ended) return;
    const all = this.gathered.splice(0);
    this.waiting = 0;
    this.controller.enqueue(all.length === 1 ? all[0]! : Buffer.concat(all));
  };

  private taken(): void {
    this.room?.cancel();
    this.room?.resolve();
    this.room = undefined;
  }
}

/** An event as text on the wire. */
export function eventText(event: string, data: string, id?: string): Buffer {
  return Buffer.from(`event: ${event}\n${id === undefined ? '' : `id: ${id}\n`}data: ${data}\n\n`);
}
