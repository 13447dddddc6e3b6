// The main thread shared among clients: their work is done in pieces, and clients take turns with them.

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

/** A websocket, all HTTP and MCP requests with one token, or the tool calls of one session's runs. */
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
  /** What it had in one turn of the event loop. */
  had: { turn: number; pieces: number; ms: number };
}

/** The share of the thread that a client may use before it waits behind those that use less. */
const freeShare = 0.05;
/** A client that has used this much beyond its share is heavy. */
const heavyMs = 2;
/** After this long a turn ends; the clients that it has not come to are first in the next. */
const turnMs = 5;
/** What a light client may have of one turn. The piece that passes the limit is its last. */
const ofTurn = { pieces: 4, ms: 1 };

/**
 * Clients get pieces in a round: none gets a second before every light one that waits has had its first. In one turn of the event loop a
 * light client may have a few short pieces, and after all of them one heavy client has one piece. A heavy piece is paid back: while light
 * clients wait, the next comes when they have had as much time. So heavy clients wait for each other, and a light one waits for at most
 * one piece of one of them, also if it has asked for several things meanwhile.
 */
export class Pacer {
  private readonly parts: PacerParts;
  private readonly light: Member[] = [];
  private readonly heavy: Member[] = [];
  /** Light clients that have had their part of the present turn. */
  private rested: Member[] = [];
  private scheduled = false;
  private turn = { number: 0, heavy: false, began: 0 };
  /** Milliseconds of heavy pieces that light clients have not had since. */
  private debt = 0;

  constructor(parts: PacerParts) {
    this.parts = parts;
  }

  client(): Client {
    const member: Member = { pieces: [], queued: false, used: 0, since: 0, had: { turn: 0, pieces: 0, ms: 0 } };
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
      this.turn = { number: this.turn.number + 1, heavy: this.heavy.length > 0, began: this.parts.elapsed() };
      this.next();
    });
  }

  /** The next piece of this turn, or its end. */
  private next(): void {
    const started = this.parts.elapsed();
    for (let member = this.takeLight(started); member; member = this.takeLight(started))
      if (this.serve(member, started, (ms) => (this.debt = Math.max(0, this.debt - ms)))) return;
    for (let member = this.takeHeavy(); member; member = this.takeHeavy())
      if (this.serve(member, started, (ms) => (this.debt = ms))) {
        this.turn.heavy = false;
        return;
      }
    this.light.push(...this.rested);
    this.rested = [];
    this.scheduled = false;
    if (this.light.length + this.heavy.length > 0) this.schedule();
  }

  /** Returns false if nothing of what the client waits for is wanted any more. */
  private serve(member: Member, started: number, took: (ms: number) => void): boolean {
    const piece = firstWanted(member.pieces);
    if (!piece) {
      member.queued = false;
      return false;
    }
    piece.start();
    this.parts.afterPiece(() => {
      const ms = this.parts.elapsed() - started;
      const { turn, pieces, ms: before } = member.had;
      const again = turn === this.turn.number;
      member.had = { turn: this.turn.number, pieces: again ? pieces + 1 : 1, ms: again ? before + ms : ms };
      member.used += ms;
      member.queued = false;
      took(ms);
      this.enqueue(member);
      this.next();
    });
    return true;
  }

  private takeLight(now: number): Member | undefined {
    if (now - this.turn.began >= turnMs) return undefined;
    for (let member = this.light.shift(); member; member = this.light.shift()) {
      const { turn, pieces, ms } = member.had;
      if (turn !== this.turn.number || (pieces < ofTurn.pieces && ms < ofTurn.ms)) return member;
      this.rested.push(member);
    }
    return undefined;
  }

  private takeHeavy(): Member | undefined {
    const lightWaits = this.light.length + this.rested.length > 0;
    if (!this.turn.heavy || (lightWaits && this.debt > 0)) return undefined;
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
