// A presented secret → who calls, or nobody. Identity and rights come from here and from nowhere else (I7).
import { createHash, timingSafeEqual } from 'node:crypto';
import { levelName, levelRank } from '../levels.ts';
import type { EngineCommand } from '../engine/feed.ts';
import { InterlaneError } from '../errors.ts';
import type { FeedEvent } from '../protocol/event.ts';
import { scopes as allScopes, type Scope } from '../protocol/frame.ts';
import type { Level } from '../protocol/labels.ts';
import type { Operation } from '../protocol/operations/operation.ts';
import type { TokenView } from '../protocol/result.ts';
import { mayFlow } from '../rules/taint.ts';
import type { Viewer } from '../rules/viewer.ts';
import type { Body, Reading, ReadQuery, Store } from '../store/contract.ts';

export interface Caller {
  /** Of the token; connections end with it. */
  tokenId: string;
  name: string;
  kind: 'operator' | 'session';
  scopes: readonly Scope[];
  level: Level;
  /** The session this caller is, for a token bound to one. */
  sessionKey?: string;
  expiresAt?: number;
}

/** A caller as a viewer of sessions. */
export const viewerOf = ({ kind, level, sessionKey }: Caller): Viewer =>
  kind === 'session' ? { as: 'visitor', sessionKey: sessionKey ?? '' } : { as: 'operator', level };

export interface AuthParts {
  store: Store<FeedEvent>;
  now(): number;
  /** Unguessable text of so many bytes, in characters of a URL. */
  secret(bytes: number): string;
}

interface TokenRow {
  id: string;
  name: string;
  hash: string;
  kind: 'operator' | 'session' | 'browser';
  scopes: string;
  level: number;
  session_key: string | null;
  created_at: number;
  last_used_at: number | null;
  expires_at: number | null;
}

const tokenText = /^il_([0-9a-f]{16})_[\w-]{43}$/;
const signInMs = 10 * 60_000;
const browserMs = 30 * 86_400_000;
/** How often `last used` is written at most. */
const usedEveryMs = 60_000;
const failuresAllowed = 10;
const failureWindowMs = 60_000;
const mostAddresses = 10_000;

export class Auth {
  private readonly parts: AuthParts;
  /** Never stored: the token of this machine's own user, and one given in the environment. */
  private readonly fixed: { hash: Buffer; caller: Caller }[] = [];
  private signIn: { hash: Buffer; until: number; level: Level; tokenId: string | undefined } | undefined;
  /** Tokens that ended while this process lives, for whoever was being checked at that moment. */
  private readonly over = new Set<string>();
  private readonly ended = new Set<(tokenId: string) => void>();
  private readonly failures = new Map<string, { count: number; until: number }>();

  constructor(parts: AuthParts) {
    this.parts = parts;
  }

  /** At the first start there is nobody yet: an admin token is made, and its secret is only ever in this answer. */
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
    if (presented === undefined || presented === '' || presented.length > 1024) return undefined;
    const hash = digest(presented);
    for (const one of this.fixed) if (timingSafeEqual(one.hash, hash)) return one.caller;
    const id = tokenText.exec(presented)?.[1];
    const row = id === undefined ? undefined : await this.parts.store.read(tokenById, { id });
    const now = this.parts.now();
    if (!row || !timingSafeEqual(Buffer.from(row.hash, 'hex'), hash) || (row.expires_at !== null && row.expires_at <= now))
      return undefined;
    if (now - (row.last_used_at ?? 0) >= usedEveryMs) await this.parts.store.write(markUsed, { id: row.id, now });
    return callerOf(row);
  }

  /** Whether a caller's token has ended since it was checked. */
  isOver(caller: Caller): boolean {
    return this.over.has(caller.tokenId);
  }

  /** After a wrong secret: whether this address has given too many lately. A right one is never asked about this. */
  failed(address: string): 'wrong' | 'too many' {
    const now = this.parts.now();
    if (this.failures.size >= mostAddresses) {
      for (const [key, { until }] of this.failures) if (until <= now) this.failures.delete(key);
      if (this.failures.size >= mostAddresses) this.failures.delete(this.failures.keys().next().value!);
    }
    const known = this.failures.get(address);
    const entry = known && known.until > now ? known : { count: 0, until: now + failureWindowMs };
    entry.count++;
    this.failures.set(address, entry);
    return entry.count > failuresAllowed ? 'too many' : 'wrong';
  }

  async create(wish: {
    name: string;
    kind: TokenRow['kind'];
    scopes: Scope[];
    level: Level;
    sessionKey?: string;
    expiresAt?: number;
  }): Promise<{ token: string; view: TokenView }> {
    if (this.fixed.some(({ caller }) => caller.name === wish.name)) throw taken(wish.name);
    const { id, token, hash } = this.make();
    const row: TokenRow = {
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
    await this.parts.store.write(insertToken, row);
    return { token, view: viewOf(row) };
  }

  /** A new secret under the same name; whoever came with the old one is gone. */
  async rotate(name: string, by: Level): Promise<{ token: string; view: TokenView }> {
    const { id, token, hash } = this.make();
    const { old, row } = await this.parts.store.write(replaceToken, { name, id, hash, by, now: this.parts.now() });
    this.end(old);
    return { token, view: viewOf(row) };
  }

  async revoke(name: string, by: Level): Promise<boolean> {
    const id = await this.parts.store.write(deleteToken, { name, by });
    if (id !== undefined) this.end(id);
    return id !== undefined;
  }

  async list(by: Level): Promise<TokenView[]> {
    return (await this.parts.store.read(tokensFor, { by })).map(viewOf);
  }

  has(name: string): Promise<boolean> {
    return this.parts.store.read(tokenNamed, { name });
  }

  /** Hears which tokens have ended, to end what came with them. Returns the undo. */
  onEnd(listener: (tokenId: string) => void): () => void {
    this.ended.add(listener);
    return () => void this.ended.delete(listener);
  }

  /** A code that signs one browser in, once, up to a level. A newer one takes its place; it ends with the token that asked for it. */
  signInCode(level: Level = 'RESTRICTED', tokenId?: string): { code: string; expiresAt: number } {
    const code = this.parts.secret(24);
    this.signIn = { hash: digest(code), until: this.parts.now() + signInMs, level, tokenId };
    return { code, expiresAt: this.signIn.until };
  }

  /** The secret for the browser's cookie, or nothing for a code that is wrong, old or used. */
  async redeem(code: string): Promise<{ token: string; maxAgeSeconds: number } | undefined> {
    const { signIn } = this;
    if (!signIn || signIn.until <= this.parts.now() || !timingSafeEqual(signIn.hash, digest(code))) return undefined;
    this.signIn = undefined;
    const { token } = await this.create({
      name: `browser-${this.parts
        .secret(6)
        .toLowerCase()
        .replaceAll(/[^a-z0-9]/g, '0')}`,
      kind: 'browser',
      scopes: ['operator.admin'],
      level: signIn.level,
      expiresAt: this.parts.now() + browserMs,
    });
    return { token, maxAgeSeconds: browserMs / 1000 };
  }

  private end(tokenId: string): void {
    this.over.add(tokenId);
    if (this.signIn?.tokenId === tokenId) this.signIn = undefined;
    for (const listener of this.ended) listener(tokenId);
  }

  private make(): { id: string; token: string; hash: string } {
    const id = digest(this.parts.secret(16)).toString('hex').slice(0, 16);
    const token = `il_${id}_${this.parts.secret(32)}`;
    return { id, token, hash: digest(token).toString('hex') };
  }
}

/** `admin` may do everything, `write` may also read. */
export function allows(caller: Caller, scope: Scope): boolean {
  const height = (one: Scope) => allScopes.indexOf(one);
  return caller.kind === 'operator' && caller.scopes.some((own) => height(own) >= height(scope));
}

/** Whether a caller has the right of an operation. */
export const mayCall = (caller: Caller, scope: Operation['scope']) => scope === 'session' || allows(caller, scope);

export function requireScope(caller: Caller, scope: Scope, what: string): void {
  if (allows(caller, scope)) return;
  const why =
    caller.kind === 'session' ? 'a token bound to a session may only call tools' : `token "${caller.name}" has ${caller.scopes.join(', ')}`;
  throw new InterlaneError('MISSING_SCOPE', `${what} needs ${scope}; ${why}`, {
    details: { missingScope: scope, requiredScopes: [scope] },
  });
}

/** Nobody gives, or takes away, what is above them. */
export function requireLevel(own: Level, wanted: Level, what: string): void {
  if (mayFlow(wanted, own)) return;
  throw new InterlaneError('MISSING_SCOPE', `${what} reads ${wanted}, above the ${own} of this token; use a token of that level`);
}

const taken = (name: string) =>
  new InterlaneError('TOKEN_EXISTS', `token "${name}" exists already; choose another name, rotate it or revoke it`);

const digest = (text: string) => createHash('sha256').update(text).digest();

function callerOf(row: TokenRow): Caller {
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

function viewOf(row: TokenRow): TokenView {
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

// The table of tokens -------------------------------------------------------------------------------------------------

const tokenById: ReadQuery<{ id: string }, TokenRow | undefined> = {
  name: 'token',
  *body(t, { id }) {
    return yield* t.one<TokenRow>('SELECT * FROM tokens WHERE id = ?', id);
  },
};

/** Whoever has the token of a session is that session, so a token is known to those who may know its session. */
function* mayKnow(t: Reading, row: TokenRow, by: Level): Body<boolean> {
  if (row.session_key === null) return true;
  const session = yield* t.one<{ level: number }>('SELECT level FROM sessions WHERE key = ? AND current = 1', row.session_key);
  return mayFlow(levelName(session?.level ?? 0), by);
}

const tokensFor: ReadQuery<{ by: Level }, TokenRow[]> = {
  name: 'tokens',
  *body(t, { by }) {
    const known: TokenRow[] = [];
    for (const row of yield* t.all<TokenRow>('SELECT * FROM tokens ORDER BY name LIMIT 10000'))
      if (yield* mayKnow(t, row, by)) known.push(row);
    return known;
  },
};

const tokenNamed: ReadQuery<{ name: string }, boolean> = {
  name: 'token by name',
  *body(t, { name }) {
    return (yield* t.one('SELECT 1 FROM tokens WHERE name = ?', name)) !== undefined;
  },
};

const anyOperator: ReadQuery<object, boolean> = {
  name: 'any operator',
  *body(t) {
    return (yield* t.one(`SELECT 1 FROM tokens WHERE kind = 'operator' LIMIT 1`)) !== undefined;
  },
};

const insertToken: EngineCommand<TokenRow, void> = {
  name: 'create token',
  *body(t, row) {
    if (yield* t.one('SELECT 1 FROM tokens WHERE name = ?', row.name)) throw taken(row.name);
    yield* t.run(
      'INSERT INTO tokens (id, name, hash, kind, scopes, level, session_key, created_at, expires_at) VALUES (?,?,?,?,?,?,?,?,?)',
      row.id,
      row.name,
      row.hash,
      row.kind,
      row.scopes,
      row.level,
      row.session_key,
      row.created_at,
      row.expires_at,
    );
  },
};

const replaceToken: EngineCommand<{ name: string; id: string; hash: string; by: Level; now: number }, { old: string; row: TokenRow }> = {
  name: 'rotate token',
  *body(t, { name, id, hash, by, now }) {
    const row = yield* t.one<TokenRow>('SELECT * FROM tokens WHERE name = ?', name);
    if (!row || !(yield* mayKnow(t, row, by)))
      throw new InterlaneError('TOKEN_NOT_FOUND', `token ${JSON.stringify(name)} does not exist; tokens.list shows those that do`);
    requireLevel(by, levelName(row.level), `token "${name}"`);
    yield* t.run('UPDATE tokens SET id = ?, hash = ?, created_at = ?, last_used_at = NULL WHERE name = ?', id, hash, now, name);
    return { old: row.id, row: { ...row, id, hash, created_at: now, last_used_at: null } };
  },
};

const deleteToken: EngineCommand<{ name: string; by: Level }, string | undefined> = {
  name: 'revoke token',
  *body(t, { name, by }) {
    const row = yield* t.one<TokenRow>('SELECT * FROM tokens WHERE name = ?', name);
    if (!row || !(yield* mayKnow(t, row, by))) return undefined;
    requireLevel(by, levelName(row.level), `token "${name}"`);
    yield* t.run('DELETE FROM tokens WHERE name = ?', name);
    return row.id;
  },
};

const markUsed: EngineCommand<{ id: string; now: number }, void> = {
  name: 'token used',
  *body(t, { id, now }) {
    yield* t.run('UPDATE tokens SET last_used_at = ? WHERE id = ?', now, id);
  },
};

const dropExpired: EngineCommand<{ now: number }, void> = {
  name: 'drop expired tokens',
  *body(t, { now }) {
    yield* t.run('DELETE FROM tokens WHERE expires_at IS NOT NULL AND expires_at <= ?', now);
  },
};
