// A presented secret → the caller, if there is one. Identity and rights come from here and from nowhere else (I7).
import { createHash, timingSafeEqual } from 'node:crypto';
import { levelName, levelRank } from '../levels.ts';
import type { EngineCommand } from '../engine/feed.ts';
import { InterlaneError, reservedName } from '../errors.ts';
import type { Scope } from '../protocol/frame.ts';
import type { Level } from '../protocol/labels.ts';
import type { TokenView } from '../protocol/result.ts';
import { mayFlow } from '../rules/taint.ts';
import type { Body, ReadQuery, Store, Writing } from '../store/contract.ts';
import * as readMarks from '../store/tables/read-marks.ts';
import * as tokens from '../store/tables/tokens.ts';
import { Guesses } from './guesses.ts';
import { principalOf, requireLevel, requireTime, type Caller } from './rights.ts';

export interface AuthParts {
  store: Store;
  now(): number;
  after(ms: number, work: () => void): () => void;
  /** Unguessable text of so many bytes, in characters of a URL. */
  secret(bytes: number): string;
}

const tokenText = /^il_([0-9a-f]{16})_[\w-]{43}$/;
const signInMs = 10 * 60_000;
const browserMs = 30 * 86_400_000;
/** A wall clock can jump, so an expiry is looked at again at least this often. */
const expiryCheckMs = 3_600_000;
/** `last used` is written at most this often. */
const usedEveryMs = 60_000;
/** The last tokens that ended. A check that began before the end of one is over long before so many others end. */
const mostOver = 10_000;
/** Tokens in a list. */
const mostTokens = 10_000;

/** `expired`: its time was over. `ended`: it was revoked or rotated, or its session was deleted. */
export type TokenEnd = 'expired' | 'ended';

export class Auth {
  private readonly parts: AuthParts;
  /** Never stored: the token of this machine's own user, and one given in the environment. */
  private readonly fixed: { hash: Buffer; caller: Caller }[] = [];
  /** The newest code that each token asked for; the gateway itself has no token. */
  private readonly signIns = new Map<string | undefined, { hash: Buffer; until: number; level: Level; expiresAt: number }>();
  /** Tokens that ended while this process lives: a check that began before may have passed. */
  private readonly over = new Set<string>();
  private readonly ended = new Set<(tokenId: string, why: TokenEnd) => void>();
  /** Tokens that were used and will expire, with the undo of their timers. */
  private readonly expiries = new Map<string, () => void>();
  /** The tokens that were used of each session. */
  private readonly bound = new Map<string, Set<string>>();
  private deletions = 0;
  private closed = false;
  private readonly guesses: Guesses;

  constructor(parts: AuthParts) {
    this.parts = parts;
    this.guesses = new Guesses(parts);
  }

  /** Makes an admin token at the first start and returns its secret, which is kept nowhere else. */
  async start(): Promise<string | undefined> {
    const { store, now } = this.parts;
    await store.write(dropExpired, { now: now() });
    if (await this.hasOperator()) return undefined;
    return (await this.create({ name: 'admin', kind: 'operator', scopes: ['operator.admin'], level: 'RESTRICTED' })).token;
  }

  hasOperator(): Promise<boolean> {
    return this.parts.store.read(anyOperator, {});
  }

  /** Accepts a secret as an admin for as long as the process lives. */
  accept(name: string, secret: string): void {
    const caller: Caller = { tokenId: `fixed:${name}`, name, kind: 'operator', scopes: ['operator.admin'], level: 'RESTRICTED' };
    this.fixed.push({ hash: digest(secret), caller });
  }

  async check(presented: string | undefined): Promise<Caller | undefined> {
    if (!isPossible(presented)) return undefined;
    const hash = digest(presented);
    const fixed = this.fixed.find((one) => timingSafeEqual(one.hash, hash));
    if (fixed) return fixed.caller;
    const id = tokenText.exec(presented)?.[1];
    const row = id === undefined ? undefined : await this.read(id);
    const now = this.parts.now();
    if (!row || !timingSafeEqual(Buffer.from(row.hash, 'hex'), hash) || isExpired(row, now)) return undefined;
    const caller = callerOf(row);
    this.watch(caller);
    // A store that cannot write must not keep operators out who want to see why.
    if (now - (row.last_used_at ?? 0) >= usedEveryMs)
      await this.parts.store.write(markUsed, { id: row.id, now }).catch((thrown: unknown) => {
        if (!(thrown instanceof InterlaneError && thrown.code === 'STORE_FAILED')) throw thrown;
      });
    return caller;
  }

  /**
   * The caller, or why there is none. Only wrong secrets are slowed down and refused, by address: a right one passes at once, whatever
   * others try from the same address. That tells a guesser nothing that the answer does not tell.
   */
  async identify(presented: string | undefined, address: string): Promise<Caller | 'wrong' | 'too many'> {
    if (!isPossible(presented)) return 'wrong';
    const caller = await this.check(presented);
    if (caller) return caller;
    return (await this.guesses.mayTry(address)) ? this.guesses.wrong(address) : 'too many';
  }

  /** A session that was deleted takes its tokens along, also those whose rows were read a moment before. */
  private async read(id: string): Promise<tokens.TokenRow | undefined> {
    for (;;) {
      const { deletions } = this;
      const row = await this.parts.store.read(byId, { id });
      if (!row || row.session_key === null || deletions === this.deletions) return row;
    }
  }

  /** From now on its connections end with it. */
  private watch({ tokenId, sessionKey, expiresAt }: Caller): void {
    if (sessionKey !== undefined) this.bound.set(sessionKey, (this.bound.get(sessionKey) ?? new Set()).add(tokenId));
    if (this.closed || expiresAt === undefined || this.expiries.has(tokenId)) return;
    const arm = () => {
      const left = expiresAt - this.parts.now();
      if (left > 0) this.expiries.set(tokenId, this.parts.after(Math.min(left, expiryCheckMs), arm));
      else this.end(tokenId, 'expired');
    };
    arm();
  }

  /** The key may be used again, by a session that these tokens have nothing to do with. */
  sessionDeleted(sessionKey: string): void {
    this.deletions++;
    for (const tokenId of this.bound.get(sessionKey) ?? []) this.end(tokenId, 'ended');
    this.bound.delete(sessionKey);
  }

  /** Tries that wait for their turn are refused now. */
  stopWaits(): void {
    this.guesses.close();
  }

  close(): void {
    this.closed = true;
    this.stopWaits();
    for (const cancel of this.expiries.values()) cancel();
    this.expiries.clear();
  }

  /** Whether a caller's token has ended since it was checked. */
  isOver(caller: Pick<Caller, 'tokenId'>): boolean {
    return this.over.has(caller.tokenId);
  }

  async create(wish: {
    name: string;
    kind: tokens.TokenRow['kind'];
    scopes: Scope[];
    level: Level;
    sessionKey?: string;
    expiresAt?: number | undefined;
    /** The level of the caller that asks for it; the gateway itself has the highest. */
    by?: Level;
  }): Promise<{ token: string; view: TokenView }> {
    if (this.fixed.some(({ caller }) => caller.name === wish.name)) throw reservedName('token', wish.name);
    const { id, token, hash } = this.make();
    const row: tokens.TokenRow = {
      id,
      name: wish.name,
      hash,
      kind: wish.kind,
      scopes: wish.scopes.join(' '),
      level: levelRank(wish.level),
      session_key: wish.sessionKey ?? null,
      created_at: this.parts.now(),
      last_used_at: null,
      expires_at: wish.expiresAt ?? null,
    };
    await this.parts.store.write(create, { row, by: wish.by ?? 'RESTRICTED' });
    return { token, view: viewOf(row) };
  }

  /** Puts a new secret under the same name and ends the connections that came with the old one. */
  async rotate(name: string, by: Pick<Caller, 'level' | 'expiresAt'>): Promise<{ token: string; view: TokenView }> {
    const { id, token, hash } = this.make();
    const { level, expiresAt } = by;
    const { old, row } = await this.parts.store.write(rotate, { name, id, hash, by: level, until: expiresAt, now: this.parts.now() });
    this.end(old, 'ended');
    return { token, view: viewOf(row) };
  }

  async revoke(name: string, by: Level): Promise<boolean> {
    const id = await this.parts.store.write(revoke, { name, by });
    if (id !== undefined) this.end(id, 'ended');
    return id !== undefined;
  }

  async list(by: Level): Promise<TokenView[]> {
    const now = this.parts.now();
    return (await this.parts.store.read(knownTo, { by })).filter((row) => !isExpired(row, now)).map(viewOf);
  }

  /** Whether there is a token of this name; `hidden` if the caller may not know of it. */
  has(name: string, by: Level): Promise<boolean | 'hidden'> {
    return this.parts.store.read(isNamed, { name, by, now: this.parts.now() });
  }

  /** Calls the listener with each token that ends. Returns the undo. */
  onEnd(listener: (tokenId: string, why: TokenEnd) => void): () => void {
    this.ended.add(listener);
    return () => void this.ended.delete(listener);
  }

  /**
   * Makes a code that signs one browser in, once, with at most the level and the time of the token that asked for it. A newer code
   * of the same token replaces it, and it ends with that token.
   */
  signInCode(by?: Caller): { code: string; expiresAt: number } {
    const code = this.parts.secret(24);
    const { level = 'RESTRICTED', tokenId, expiresAt = Infinity } = by ?? {};
    const until = this.parts.now() + signInMs;
    this.signIns.set(tokenId, { hash: digest(code), until, level, expiresAt });
    return { code, expiresAt: until };
  }

  /** The secret for the browser's cookie, or nothing for a code that is wrong, old or used. */
  async redeem(code: string): Promise<{ token: string; maxAgeSeconds: number } | undefined> {
    const now = this.parts.now();
    const hash = digest(code);
    const [tokenId, signIn] = [...this.signIns].find(([, one]) => timingSafeEqual(one.hash, hash)) ?? [];
    if (!signIn) return undefined;
    this.signIns.delete(tokenId);
    if (signIn.until <= now) return undefined;
    const expiresAt = Math.min(now + browserMs, signIn.expiresAt);
    const { token } = await this.create({
      name: `browser-${this.parts
        .secret(6)
        .toLowerCase()
        .replaceAll(/[^a-z0-9]/g, '0')}`,
      kind: 'browser',
      scopes: ['operator.admin'],
      level: signIn.level,
      expiresAt,
    });
    return { token, maxAgeSeconds: Math.floor((expiresAt - now) / 1000) };
  }

  private end(tokenId: string, why: TokenEnd): void {
    this.over.add(tokenId);
    if (this.over.size > mostOver) this.over.delete(this.over.keys().next().value!);
    for (const [key, ids] of this.bound) if (ids.delete(tokenId) && ids.size === 0) this.bound.delete(key);
    this.expiries.get(tokenId)?.();
    this.expiries.delete(tokenId);
    this.signIns.delete(tokenId);
    for (const listener of this.ended) listener(tokenId, why);
  }

  private make(): { id: string; token: string; hash: string } {
    const id = digest(this.parts.secret(16)).toString('hex').slice(0, 16);
    const token = `il_${id}_${this.parts.secret(32)}`;
    return { id, token, hash: digest(token).toString('hex') };
  }
}

const taken = (name: string) =>
  new InterlaneError('TOKEN_EXISTS', `token "${name}" exists already; choose another name, rotate it or revoke it`);

const isExpired = (row: tokens.TokenRow, now: number) => row.expires_at !== null && row.expires_at <= now;
const isPossible = (presented: string | undefined): presented is string =>
  presented !== undefined && presented !== '' && presented.length <= 1024;

const digest = (text: string) => createHash('sha256').update(text).digest();

function callerOf(row: tokens.TokenRow): Caller {
  return {
    tokenId: row.id,
    name: row.name,
    kind: row.kind === 'session' ? 'session' : 'operator',
    scopes: row.scopes === '' ? [] : (row.scopes.split(' ') as Scope[]),
    level: levelName(row.level),
    ...(row.session_key === null ? {} : { sessionKey: row.session_key }),
    ...(row.expires_at === null ? {} : { expiresAt: row.expires_at }),
  };
}

function viewOf(row: tokens.TokenRow): TokenView {
  const { scopes, level, sessionKey, expiresAt } = callerOf(row);
  return {
    name: row.name,
    kind: row.kind,
    scopes: [...scopes],
    level,
    createdAt: row.created_at,
    ...(sessionKey === undefined ? {} : { sessionKey }),
    ...(row.last_used_at === null ? {} : { lastUsedAt: row.last_used_at }),
    ...(expiresAt === undefined ? {} : { expiresAt }),
  };
}

// Queries and commands -----------------------------------------------------------------------------------------------

/** A caller with the token of a session is that session, so a token may be known at the level of its session. */
const mayKnow = (row: tokens.BoundTokenRow, by: Level) => mayFlow(levelName(row.session_level ?? 0), by);

const byId: ReadQuery<{ id: string }, tokens.TokenRow | undefined> = {
  name: 'token',
  body: (t, { id }) => tokens.byId(t, id),
};

const knownTo: ReadQuery<{ by: Level }, tokens.TokenRow[]> = {
  name: 'tokens',
  *body(t, { by }) {
    return (yield* tokens.inOrder(t, mostTokens)).filter((row) => mayKnow(row, by));
  },
};

const isNamed: ReadQuery<{ name: string; by: Level; now: number }, boolean | 'hidden'> = {
  name: 'token by name',
  *body(t, { name, by, now }) {
    const row = yield* tokens.byName(t, name);
    return row === undefined || isExpired(row, now) ? false : mayKnow(row, by) || 'hidden';
  },
};

const anyOperator: ReadQuery<object, boolean> = { name: 'any operator', body: (t) => tokens.anyOperator(t) };

const create: EngineCommand<{ row: tokens.TokenRow; by: Level }, void> = {
  name: 'create token',
  *body(t, { row, by }) {
    yield* removeExpired(t, row.created_at);
    const other = yield* tokens.byName(t, row.name);
    if (other) throw mayKnow(other, by) ? taken(row.name) : reservedName('token', row.name);
    yield* tokens.insert(t, row);
  },
};

const rotate: EngineCommand<
  { name: string; id: string; hash: string; by: Level; until: number | undefined; now: number },
  { old: string; row: tokens.TokenRow }
> = {
  name: 'rotate token',
  *body(t, { name, id, hash, by, until, now }) {
    const row = yield* tokens.byName(t, name);
    if (!row || !mayKnow(row, by))
      throw new InterlaneError('TOKEN_NOT_FOUND', `token ${JSON.stringify(name)} does not exist; tokens.list shows those that do`);
    if (isExpired(row, now))
      throw new InterlaneError(
        'TOKEN_NOT_FOUND',
        `token ${JSON.stringify(name)} has expired; to make another of that name, use tokens.create`,
      );
    requireLevel(by, levelName(row.level), `token "${name}"`);
    requireTime(until, row.expires_at ?? undefined, `token "${name}"`);
    yield* tokens.replaceSecret(t, name, { id, hash }, now);
    return { old: row.id, row: { ...row, id, hash, created_at: now, last_used_at: null } };
  },
};

const revoke: EngineCommand<{ name: string; by: Level }, string | undefined> = {
  name: 'revoke token',
  *body(t, { name, by }) {
    const row = yield* tokens.byName(t, name);
    if (!row || !mayKnow(row, by)) return undefined;
    requireLevel(by, levelName(row.level), `token "${name}"`);
    yield* tokens.remove(t, name);
    yield* readMarks.removeBy(t, principalOf(name));
    return row.id;
  },
};

const markUsed: EngineCommand<{ id: string; now: number }, void> = {
  name: 'token used',
  body: (t, { id, now }) => tokens.markUsed(t, id, now),
};

const dropExpired: EngineCommand<{ now: number }, void> = {
  name: 'drop expired tokens',
  body: (t, { now }) => removeExpired(t, now),
};

/** With what they have read: the next token of the name is another reader. */
function* removeExpired(t: Writing, now: number): Body<void> {
  for (const name of yield* tokens.removeExpired(t, now)) yield* readMarks.removeBy(t, principalOf(name));
}
