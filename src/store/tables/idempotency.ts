// The `idempotency` table: a request that was accepted, by who made it and its key. A row lives as long as its run.
import type { Body, Reading, Writing } from '../contract.ts';

export interface Idempotency {
  principal: string;
  method: string;
  key: string;
  /** Of everything that makes the request what it is. */
  hash: string;
}

type Name = Pick<Idempotency, 'principal' | 'method' | 'key'>;

export function* find(t: Reading, { principal, method, key }: Name): Body<{ hash: string; run_pk: number } | undefined> {
  return yield* t.one<{ hash: string; run_pk: number }>(
    'SELECT hash, run_pk FROM idempotency WHERE principal = ? AND method = ? AND key = ?',
    principal,
    method,
    key,
  );
}

/** A plain INSERT: of two gateways that accept the same key at once, one is refused and looks again. */
export function* insert(t: Writing, { principal, method, key, hash }: Idempotency, runPk: number, now: number): Body<void> {
  yield* t.run(
    'INSERT INTO idempotency (principal, method, key, hash, run_pk, at) VALUES (?, ?, ?, ?, ?, ?)',
    principal,
    method,
    key,
    hash,
    runPk,
    now,
  );
}

export function* remove(t: Writing, { principal, method, key }: Name): Body<void> {
  yield* t.run('DELETE FROM idempotency WHERE principal = ? AND method = ? AND key = ?', principal, method, key);
}

export function* removeOf(t: Writing, runPk: number): Body<void> {
  yield* t.run('DELETE FROM idempotency WHERE run_pk = ?', runPk);
}
