// Accepting an input: one transaction that is acknowledged after its commit, and is the same run when it is sent again.
import { InterlaneError } from '../errors.ts';
import type { DeliveryContext } from '../protocol/session.ts';
import type { Body } from '../store/contract.ts';
import type { RunRow, SessionRow } from '../store/rows.ts';
import type { EngineCommand, Tx } from './feed.ts';
import type { Ending } from './end.ts';
import { overseen, type Operator } from './policy.ts';
import { insertRun, type NewRun } from './queue.ts';
import { openSession, rememberDelivery, sessionByKey, stopActive, type NewSession } from './sessions.ts';

interface Idempotency {
  principal: string;
  method: string;
  key: string;
  /** Of everything that makes the request what it is. */
  hash: string;
}

export interface AcceptArgs extends Omit<NewRun, 'cause' | 'causePk'> {
  sessionKey: string;
  /** Given where a missing session is to be opened: by routing, never by a tool. */
  open?: NewSession | undefined;
  deliveryContext?: DeliveryContext | undefined;
  /** Asked by an operator: the session must be one its token may know, and its send policy must allow answers. */
  operator?: Operator | undefined;
  idempotency?: Idempotency | undefined;
}

export interface Accepted {
  runId: string;
  sessionId: string;
  sessionKey: string;
  /** The same request was accepted before; this is its run. */
  repeated: boolean;
  /** Runs that were asked to stop. */
  stopping: number[];
}

export function accept(ending: Ending): EngineCommand<AcceptArgs, Accepted> {
  return {
    name: 'accept',
    *body(t, args) {
      const before = yield* repeated(t, args.idempotency);
      if (before) return before;
      let session = yield* sessionByKey(t, args.sessionKey);
      if (!session && args.open) session = yield* openSession(t, args.sessionKey, args.open, args.now);
      if (args.operator) session = overseen(ending.world, session, args.operator);
      if (!session) throw new InterlaneError('SESSION_NOT_FOUND', `session ${JSON.stringify(args.sessionKey)} does not exist`);
      if (args.runId === args.idempotency?.key && (yield* t.one('SELECT 1 FROM runs WHERE id = ?', args.runId))) throw usedKey(args.runId);
      if (session.state !== 'live') yield* revive(t, session);
      if (args.deliveryContext) yield* rememberDelivery(t, session, args.deliveryContext);
      // Interrupt: the active run is told to stop in the accepting transaction; what is queued stays.
      const stopping = args.mode === 'interrupt' ? yield* stopActive(t, ending, session, 'interrupted', args.now) : [];
      const run = yield* insertRun(t, session, { ...args, cause: 'input' });
      yield* remember(t, args.idempotency, run.pk, args.now);
      return { runId: run.id, sessionId: session.id, sessionKey: session.key, repeated: false, stopping };
    },
  };
}

function* repeated(t: Tx, idempotency: Idempotency | undefined): Body<Accepted | undefined> {
  if (!idempotency) return undefined;
  const { principal, method, key, hash } = idempotency;
  const seen = yield* t.one<{ hash: string; run_pk: number }>(
    'SELECT hash, run_pk FROM idempotency WHERE principal = ? AND method = ? AND key = ?',
    principal,
    method,
    key,
  );
  if (!seen) return undefined;
  if (seen.hash !== hash) throw usedKey(key);
  const run = yield* t.one<RunRow>('SELECT * FROM runs WHERE pk = ?', seen.run_pk);
  if (!run) return undefined; // a key is valid as long as its run
  const session = (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', run.session_pk))!;
  return { runId: run.id, sessionId: session.id, sessionKey: session.key, repeated: true, stopping: [] };
}

const usedKey = (key: string) =>
  new InterlaneError(
    'IDEMPOTENCY_CONFLICT',
    `idempotency key ${JSON.stringify(key.slice(0, 100))} was used for another request; use a new one`,
  );

function* remember(t: Tx, idempotency: Idempotency | undefined, runPk: number, now: number): Body<void> {
  if (!idempotency) return;
  const { principal, method, key, hash } = idempotency;
  yield* t.run(
    'INSERT OR REPLACE INTO idempotency (principal, method, key, hash, run_pk, at) VALUES (?,?,?,?,?,?)',
    principal,
    method,
    key,
    hash,
    runPk,
    now,
  );
}

/** An archived session that somebody speaks to is live again. */
export function* revive(t: Tx, session: SessionRow): Body<void> {
  session.state = 'live';
  yield* t.run(`UPDATE sessions SET state = 'live', archive_at = NULL, policy_rev = policy_rev + 1 WHERE pk = ?`, session.pk);
}
