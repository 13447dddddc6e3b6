// What a caller may do: scopes of operators, levels, and the session that a token is bound to.
import { InterlaneError } from '../errors.ts';
import { frameLimits, scopes as allScopes, type Scope } from '../protocol/frame.ts';
import type { Level } from '../protocol/labels.ts';
import type { Operation } from '../protocol/operations/operation.ts';
import { mayFlow } from '../rules/taint.ts';
import type { Viewer } from '../rules/viewer.ts';

export interface Caller {
  /** Of the token; connections end with it. */
  tokenId: string;
  name: string;
  kind: 'operator' | 'session';
  scopes: readonly Scope[];
  /** Its connection asked for less than its token allows. */
  asksLess?: boolean;
  /** The highest level that the caller reads, and for a session's token the highest that its calls raise the session to. */
  level: Level;
  /** The session this caller is, for a token bound to one. */
  sessionKey?: string;
  expiresAt?: number;
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
  const own = caller.scopes.join(', ') || 'no scopes';
  const why =
    caller.kind === 'session'
      ? 'a token bound to a session may only call tools'
      : caller.asksLess
        ? `this connection asked for ${own} only; connect with more scopes`
        : `token "${caller.name}" has ${own}`;
  throw new InterlaneError('MISSING_SCOPE', `${what} needs ${scope}; ${why}`, {
    details: { missingScope: scope, requiredScopes: [scope] },
  });
}

/** A caller neither gives nor takes away a token above its own level. */
export function requireLevel(own: Level, wanted: Level, what: string): void {
  if (mayFlow(wanted, own)) return;
  throw new InterlaneError('MISSING_SCOPE', `${what} reads ${wanted}, above the ${own} of this token; use a token of that level`);
}

/** The most bytes of one frame or body of this caller. */
export function frameLimitOf(caller: Caller): number {
  if (caller.kind === 'session') return frameLimits.session;
  return allows(caller, 'operator.admin') ? frameLimits.admin : frameLimits.operator;
}

/** Facts about all sessions are for callers who may see all sessions. */
export const seesEverything = ({ level }: Caller): boolean => mayFlow('RESTRICTED', level);

export function requireEverything(caller: Caller, why: string): void {
  if (!seesEverything(caller)) throw new InterlaneError('MISSING_SCOPE', `${why} a token of level RESTRICTED`);
}

/** A caller whose token expires gives no token that outlives it. */
export function requireTime(own: number | undefined, wanted: number | undefined, what: string): void {
  if (own === undefined || (wanted !== undefined && wanted <= own)) return;
  throw new InterlaneError('MISSING_SCOPE', `${what} would outlive the token that asks for it; use a token that lasts as long`);
}

/** A connection may ask for less than its token allows, never for more. */
export function narrowed(caller: Caller, requested: readonly string[] | undefined): Caller {
  if (requested === undefined || caller.kind === 'session') return caller;
  const highest = allScopes.findLast((scope) => requested.includes(scope));
  if (highest !== undefined && !allows(caller, highest)) return caller;
  const less: Caller = { ...caller, scopes: highest === undefined ? [] : [highest] };
  return caller.scopes.every((scope) => allows(less, scope)) ? less : { ...less, asksLess: true };
}

/** A caller as a viewer of sessions. */
export const viewerOf = ({ kind, level, sessionKey }: Caller): Viewer =>
  kind === 'session' ? { as: 'visitor', sessionKey: sessionKey ?? '', level } : { as: 'operator', level };

/** What an operator did is recorded under the name of its token. */
export const principalOf = (tokenName: string) => `operator:${tokenName}`;
