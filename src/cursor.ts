// Places as text: position, kind and session → one encrypted block → base64url. Only the timeline that wrote a cursor can read it.
import { createCipheriv, createDecipheriv, createHash, hkdfSync, type Cipheriv, type Decipheriv } from 'node:crypto';
import { InterlaneError } from './errors.ts';

/** What a position counts. A cursor of one kind cannot be read as another. The numbers are part of the format. */
const kinds = { feed: 1, sessions: 2, runs: 3, older: 4, newer: 5, now: 6, deliveries: 7 } as const;
type Kind = Exclude<keyof typeof kinds, 'now'>;
/** Pages of a list. */
type ListKind = 'sessions' | 'runs' | 'deliveries';
/** In a transcript: the page before a message, or the messages after one. */
type PlaceKind = 'older' | 'newer';

/** Comes before every position, so following from here begins with a reset. */
const unknownPosition = -1;

// The block: position (6 bytes), kind (1), session (6, or zeros), zeros (3). The key is known here alone, so a text that was not
// written with it decrypts to noise: ten bytes must be right by chance, 2^-80. So it is for `now`: position, kind, a zero, salt (8),
// after the same salt in the clear.
const blockBytes = 16;
const at = { kind: 6, session: 7, zeros: 13, salt: 8 } as const;
const none = Buffer.alloc(at.zeros - at.session);
const saltBytes = blockBytes - at.salt;
/** The last character has two bits of the block; the others must be zero, or several texts would mean the same. */
const shape = /^[\w-]{21}[AQgw]$/;
const saltedShape = /^[\w-]{32}$/;

/**
 * The cursors of one timeline, which is a history of the store that no restore has interrupted. `secret` belongs to the timeline;
 * `chance` gives so many random bytes.
 */
export class Cursors {
  private readonly seal: Cipheriv;
  private readonly unseal: Decipheriv;
  private readonly chance: (bytes: number) => Buffer;
  private readonly block = Buffer.alloc(blockBytes);

  constructor(secret: string, chance: (bytes: number) => Buffer) {
    const key = Buffer.from(hkdfSync('sha256', secret, '', 'interlane cursors', 16));
    this.chance = chance;
    // One block at a time, and each block is different, so this mode hides everything but equality.
    this.seal = createCipheriv('aes-128-ecb', key, null).setAutoPadding(false);
    this.unseal = createDecipheriv('aes-128-ecb', key, null).setAutoPadding(false);
  }

  /** The place of an event in the feed. The same event has the same cursor. */
  feed(position: number): string {
    return this.write('feed', position, none);
  }

  /**
   * A place in the feed that is not the place of an event which the reader may see. No two are the same, so they do not tell
   * whether something happened between them.
   */
  now(position: number): string {
    const { block } = this;
    const salt = this.chance(saltBytes);
    block.writeUIntBE(position, 0, at.kind);
    block[at.kind] = kinds.now;
    block[at.session] = 0;
    salt.copy(block, at.salt);
    return Buffer.concat([salt, this.seal.update(block)]).toString('base64url');
  }

  /** The position to follow from. A cursor that is not ours gives one that begins with a reset. */
  followFrom(cursor: string): number {
    return this.feedPosition(cursor) ?? unknownPosition;
  }

  feedPosition(cursor: string): number | undefined {
    if (saltedShape.test(cursor)) return this.readNow(Buffer.from(cursor, 'base64url'));
    const found = this.read('feed', cursor);
    return found?.session.equals(none) ? found.position : undefined;
  }

  /** Where a page of a list ended. */
  page(kind: ListKind, position: number): string {
    return this.write(kind, position, none);
  }

  pagePosition(kind: ListKind, cursor: string | undefined): number | undefined {
    if (cursor === undefined) return undefined;
    const found = this.read(kind, cursor);
    if (!found?.session.equals(none)) throw unreadable();
    return found.position;
  }

  /** A place in the transcript of one life of a key: after a reset the same numbers mean other messages. */
  place(kind: PlaceKind, sessionId: string, seq: number): string {
    return this.write(kind, seq, lifeOf(sessionId));
  }

  /** The seq of a place, or `elsewhere` if the place is in another transcript. */
  seqOf(kind: PlaceKind, sessionId: string, cursor: string): number | 'elsewhere' | undefined {
    const found = this.read(kind, cursor);
    if (!found) return undefined;
    return found.session.equals(lifeOf(sessionId)) ? found.position : 'elsewhere';
  }

  private write(kind: Kind, position: number, session: Buffer): string {
    const { block } = this;
    block.writeUIntBE(position, 0, at.kind);
    block[at.kind] = kinds[kind];
    session.copy(block, at.session);
    block.fill(0, at.zeros);
    return this.seal.update(block).toString('base64url');
  }

  private readNow(text: Buffer): number | undefined {
    const block = this.unseal.update(text.subarray(saltBytes));
    const ours = block[at.kind] === kinds.now && block[at.session] === 0 && block.subarray(at.salt).equals(text.subarray(0, saltBytes));
    return ours ? block.readUIntBE(0, at.kind) : undefined;
  }

  private read(kind: Kind, text: string): { position: number; session: Buffer } | undefined {
    if (!shape.test(text)) return undefined;
    const block = this.unseal.update(Buffer.from(text, 'base64url'));
    if (block[at.kind] !== kinds[kind] || block.readUIntBE(at.zeros, blockBytes - at.zeros) !== 0) return undefined;
    return { position: block.readUIntBE(0, at.kind), session: block.subarray(at.session, at.zeros) };
  }
}

export const unreadable = () =>
  new InterlaneError('INVALID_REQUEST', 'cursor is not valid here; use the nextCursor of the page before, unchanged, or start without one');

const lifeOf = (sessionId: string) => createHash('sha256').update(sessionId).digest().subarray(0, none.length);
