// Places for strangers, shared by address: the one that has the most gives way to a newcomer, its oldest first.
import { isIPv4, isIPv6 } from 'node:net';

/** Whose an address is: one for IPv4, the network of a host for IPv6, where a host has many. */
export function holderOf(address: string): string {
  const mapped = /^::ffff:(\d+\.\d+\.\d+\.\d+)$/i.exec(address)?.[1] ?? address;
  if (isIPv4(mapped) || !isIPv6(mapped)) return mapped;
  const [head = '', tail] = mapped.split('%')[0]!.split('::');
  const front = head === '' ? [] : head.split(':');
  const back = tail === undefined || tail === '' ? [] : tail.split(':');
  const zeros = tail === undefined ? [] : Array<string>(Math.max(0, 8 - front.length - back.length)).fill('0');
  return `${[...front, ...zeros, ...back].slice(0, 4).join(':')}::/64`;
}

interface Place {
  holder: string;
  evict(): void;
}

export class Shares {
  private readonly most: number;
  /** Oldest first, of all and of each holder. */
  private readonly places = new Set<Place>();
  private readonly holders = new Map<string, Set<Place>>();

  constructor(most: number) {
    this.most = most;
  }

  /**
   * Takes a place and returns how to leave it. A holder may have as many as are free: half if it is alone, a third if two want all.
   * Beyond that its own oldest place is evicted; if there are more holders than places, the oldest of all.
   */
  take(address: string, evict: () => void): () => void {
    const holder = holderOf(address);
    const own = this.holders.get(holder);
    const free = this.most - this.places.size;
    const [oldest] = own && own.size >= free ? own : free < 1 ? this.places : [];
    if (oldest) {
      this.leave(oldest);
      oldest.evict();
    }
    const place = { holder, evict };
    this.places.add(place);
    const mine = this.holders.get(holder);
    if (mine) mine.add(place);
    else this.holders.set(holder, new Set([place]));
    return () => this.leave(place);
  }

  private leave(place: Place): void {
    this.places.delete(place);
    const own = this.holders.get(place.holder);
    own?.delete(place);
    if (own?.size === 0) this.holders.delete(place.holder);
  }
}
