// The main thread shared among clients: their work is done in pieces, one piece of each client in a turn of the event loop.

/** Whose work something is. A request has one, and what it reads carries it along. */
export interface Pace {
  /** The same for all work of one client. */
  client: object;
  /** Aborted when the client is gone or no longer wants the result. Long work checks it between statements and between slices. */
  signal: AbortSignal;
  /** Resolves when the client may go on; rejects with the reason of the signal once that is aborted. Long work pauses before each slice. */
  pause(): Promise<void>;
}

export interface PacerParts {
  /** Runs the work in the next turn of the event loop. */
  afterTick(work: () => void): void;
  /** Runs the work when everything that the present piece has started is done or waits for something else. */
  afterPiece(work: () => void): void;
  /** Milliseconds that only go forward. */
  elapsed(): number;
}

/** A websocket, or all HTTP and MCP requests with one token. */
export interface Client {
  pace(signal: AbortSignal): Pace;
}

interface Piece {
  signal: AbortSignal;
  start(): void;
  drop(reason: unknown): void;
}

interface Member {
  pieces: Piece[];
  /** It is in a queue, or its piece is running. */
  queued: boolean;
  /** Milliseconds that its pieces took lately, as of `since`. */
  used: number;
  since: number;
}

/** The share of the thread that a client may use before it waits behind those that use less. */
const freeShare = 0.05;
/** A client that has used this much beyond its share is heavy. */
const heavyMs = 2;
/** After this long a turn ends; the clients that it has not come to are first in the next. */
const turnMs = 5;

/**
 * In each turn of the event loop every light client that waits gets one piece, and after them one heavy client. So heavy clients wait
 * for each other, and a light one waits for at most one piece of one of them.
 */
export class Pacer {
  private readonly parts: PacerParts;
  private readonly light: Member[] = [];
  private readonly heavy: Member[] = [];
  private scheduled = false;
  /** What is left of the present turn: so many light clients, and perhaps a heavy one. */
  private turn = { light: 0, heavy: false, began: 0 };

  constructor(parts: PacerParts) {
    this.parts = parts;
  }

  client(): Client {
    const member: Member = { pieces: [], queued: false, used: 0, since: 0 };
    return { pace: (signal) => ({ client: member, signal, pause: () => this.pause(member, signal) }) };
  }

  private pause(member: Member, signal: AbortSignal): Promise<void> {
    return new Promise((start, drop) => {
      member.pieces.push({ signal, start, drop });
      this.enqueue(member);
    });
  }

  private enqueue(member: Member): void {
    if (member.queued || member.pieces.length === 0) return;
    member.queued = true;
    const now = this.parts.elapsed();
    member.used = Math.max(0, member.used - (now - member.since) * freeShare);
    member.since = now;
    (member.used > heavyMs ? this.heavy : this.light).push(member);
    this.schedule();
  }

  private schedule(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    this.parts.afterTick(() => {
      this.turn = { light: this.light.length, heavy: this.heavy.length > 0, began: this.parts.elapsed() };
      this.next();
    });
  }

  /** The next piece of this turn, or its end. */
  private next(): void {
    const started = this.parts.elapsed();
    if (started - this.turn.began >= turnMs) this.turn.light = 0;
    for (let member = this.take(); member; member = this.take()) {
      const piece = firstWanted(member.pieces);
      if (!piece) {
        member.queued = false;
        continue;
      }
      const served = member;
      piece.start();
      this.parts.afterPiece(() => {
        served.used += this.parts.elapsed() - started;
        served.queued = false;
        this.enqueue(served);
        this.next();
      });
      return;
    }
    this.scheduled = false;
    if (this.light.length + this.heavy.length > 0) this.schedule();
  }

  private take(): Member | undefined {
    if (this.turn.light > 0) {
      this.turn.light--;
      return this.light.shift();
    }
    if (!this.turn.heavy) return undefined;
    this.turn.heavy = false;
    return this.heavy.shift();
  }
}

/** Pieces of work that was stopped are dropped on the way. */
function firstWanted(pieces: Piece[]): Piece | undefined {
  for (let piece = pieces.shift(); piece; piece = pieces.shift()) {
    if (!piece.signal.aborted) return piece;
    piece.drop(piece.signal.reason);
  }
  return undefined;
}
