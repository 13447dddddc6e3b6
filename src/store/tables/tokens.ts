// The only SQL on `tokens`: who may connect, with the hash of each secret. Joins `sessions`, for the level of the session a token is bound to.
import type { Body, Reading, Writing } from '../contract.ts';

export interface TokenRow {
  id: string;
  name: string;
  /** Of the secret, in hex. */
  hash: string;
  kind: 'operator' | 'session' | 'browser';
  /** Separated by spaces. */
  scopes: string;
  level: number;
  session_key: string | null;
  created_at: number;
  last_used_at: number | null;
  expires_at: number | null;
}

/** With the level of the session it is bound to, while there is one. */
export type BoundTokenRow = TokenRow & { session_level: number | null };

/** Joins: sessions. */
const bound = `SELECT tokens.*, sessions.level AS session_level
  FROM tokens LEFT JOIN sessions ON sessions.key = tokens.session_key AND sessions.current = 1`;

export function byId(t: Reading, id: string): Body<TokenRow | undefined> {
  return t.one<TokenRow>('SELECT * FROM tokens WHERE id = ?', id);
}

export function byName(t: Reading, name: string): Body<BoundTokenRow | undefined> {
  return t.one<BoundTokenRow>(`${bound} WHERE tokens.name = ?`, name);
}

/** In the order of their names. */
export function inOrder(t: Reading, limit: number): Body<BoundTokenRow[]> {
  return t.all<BoundTokenRow>(`${bound} ORDER BY tokens.name LIMIT ?`, limit);
}

export function* anyOperator(t: Reading): Body<boolean> {
  return (yield* t.one(`SELECT id FROM tokens WHERE kind = 'operator' ORDER BY id LIMIT 1`)) !== undefined;
}

export function* insert(t: Writing, row: TokenRow): Body<void> {
  yield* t.run(
    'INSERT INTO tokens (id, name, hash, kind, scopes, level, session_key, created_at, last_used_at, expires_at) VALUES (?,?,?,?,?,?,?,?,?,?)',
    row.id,
    row.name,
    row.hash,
    row.kind,
    row.scopes,
    row.level,
    row.session_key,
    row.created_at,
    row.last_used_at,
    row.expires_at,
  );
}

/** Puts another secret, and with it another id, under the same name. */
export function* replaceSecret(t: Writing, name: string, secret: { id: string; hash: string }, now: number): Body<void> {
  yield* t.run('UPDATE tokens SET id = ?, hash = ?, created_at = ?, last_used_at = NULL WHERE name = ?', secret.id, secret.hash, now, name);
}

export function* remove(t: Writing, name: string): Body<void> {
  yield* t.run('DELETE FROM tokens WHERE name = ?', name);
}

/** The tokens of a session that is deleted. */
export function* removeBoundTo(t: Writing, sessionKey: string): Body<void> {
  yield* t.run('DELETE FROM tokens WHERE session_key = ?', sessionKey);
}

export function* markUsed(t: Writing, id: string, now: number): Body<void> {
  yield* t.run('UPDATE tokens SET last_used_at = ? WHERE id = ?', now, id);
}

/** Returns their names. */
export function* removeExpired(t: Writing, now: number): Body<string[]> {
  const gone = yield* t.all<{ name: string }>('DELETE FROM tokens WHERE expires_at IS NOT NULL AND expires_at <= ? RETURNING name', now);
  return gone.map(({ name }) => name);
}
