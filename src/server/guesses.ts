// Wrong tokens, counted by address: after some in a minute, each further try of that address waits for its turn in a line.
import { holderOf } from './shares.ts';

interface Guesser {
  count: number;
  until: number;
  /** When the next try of this address may be made. */
  next: number;
}

const allowed = 10;
const windowMs = 60_000;
const eachMs = 1_000;
/** A longer line is refused at once. It is shorter than the time for a handshake. */
const longestWaitMs = 10_000;
const mostAddresses = 10_000;

export class Guesses {
  private readonly parts: { now(): number; after(ms: number, work: () => void): () => void };
  private readonly guessers = new Map<string, Guesser>();
  private readonly waiting = new Set<() => void>();
  private closed = false;

  constructor(parts: Guesses['parts']) {
    this.parts = parts;
  }

  /** Resolves when an address may try a secret that could be guessed; false when too many of its tries wait already. */
  async mayTry(address: string): Promise<boolean> {
    const now = this.parts.now();
    const guesser = this.guessers.get(holderOf(address));
    if (!guesser || guesser.until <= now || guesser.count <= allowed) return true;
    const wait = Math.max(0, guesser.next - now);
    if (wait > longestWaitMs) return false;
    guesser.next = now + wait + eachMs;
    return wait === 0 || this.turn(wait);
  }

  /** Ends the waits: no try is made any more. */
  close(): void {
    this.closed = true;
    for (const stop of this.waiting) stop();
  }

  private turn(waitMs: number): Promise<boolean> {
    if (this.closed) return Promise.resolve(false);
    return new Promise((resolve) => {
      const end = (may: boolean) => {
        this.waiting.delete(stop);
        resolve(may);
      };
      const cancel = this.parts.after(waitMs, () => end(true));
      const stop = () => {
        cancel();
        end(false);
      };
      this.waiting.add(stop);
    });
  }

  /** Counts a wrong secret, and says whether its address gave too many lately. */
  wrong(address: string): 'wrong' | 'too many' {
    const now = this.parts.now();
    const holder = holderOf(address);
    const known = this.guessers.get(holder);
    const guesser = known && known.until > now ? known : { count: 0, until: now + windowMs, next: 0 };
    guesser.count++;
    // Those who guessed last are remembered.
    this.guessers.delete(holder);
    this.guessers.set(holder, guesser);
    if (this.guessers.size > mostAddresses) this.guessers.delete(this.guessers.keys().next().value!);
    return guesser.count > allowed ? 'too many' : 'wrong';
  }
}
