// What the handlers of all operations share: the caller's view, sessions by name, runs that the caller may know.
import type { Cursors } from '../../cursor.ts';
import type { Engine } from '../../engine/engine.ts';
import type { Verdicts } from '../../engine/verdicts.ts';
import { InterlaneError } from '../../errors.ts';
import type { OperationName, ReadParams, Results } from '../../protocol/operations/all.ts';
import { isTerminal } from '../../protocol/run.ts';
import { keyContext } from '../../rules/agents.ts';
import type { World } from '../../rules/decide.ts';
import type { Reference } from '../../rules/reference.ts';
import type { Routes } from '../../rules/route.ts';
import { formatSessionKey, mainKey } from '../../rules/session-key.ts';
import type { LiveFacts } from '../../sessions/describe.ts';
import { findSession, keyMeant, requireLife, requireSession, type LifeReference, type Named } from '../../sessions/find.ts';
import { describeSession } from '../../sessions/list.ts';
import { activeRun, knownRun } from '../../sessions/runs.ts';
import type { Asker, Sessions } from '../../sessions/sessions.ts';
import type { Store } from '../../store/contract.ts';
import type { SessionRow } from '../../store/rows.ts';
import type { Invoker } from '../../tools/invoke.ts';
import type { Pace } from '../../pace.ts';
import type { Auth } from '../auth.ts';
import { principalOf, viewerOf, type Caller } from '../rights.ts';

/** What a connection lends to the operations that subscribe. */
export interface Subscriptions {
  all(from: number): void;
  noMore(): void;
  key(key: string, from: number): void;
  noMoreOf(key: string): void;
}

/** One call: its caller, what ends its waits, the pace of its reads, and how to answer that it was accepted before it is done. */
export interface Call {
  caller: Caller;
  signal: AbortSignal;
  pace: Pace;
  accepted?(payload: unknown): void;
  /** The call waits for a run from now on. Throws if its connection has too many waits. */
  waits?(): void;
  subscriptions?: Subscriptions;
}

export interface OperationParts {
  store: Store;
  cursors: Cursors;
  engine: Engine;
  sessions: Sessions;
  invoker: Invoker;
  /** Rules on text are evaluated through it. */
  verdicts: Pick<Verdicts, 'run'>;
  liveFacts: LiveFacts;
  auth: Auth;
  now(): number;
  elapsed(): number;
  newId(): string;
  current(): { world: World; routes: Routes };
  channels: ReadonlySet<string>;
  position(): Promise<number>;
  signInUrl(code: string): string;
  mcpUrl(): string;
  facts(): Pick<Results['status'], 'version' | 'uptimeMs' | 'pid' | 'connections' | 'store' | 'model' | 'config' | 'warnings'>;
}

/** Handlers of some of the operations: exactly one for each. */
export type Handlers<M extends OperationName> = { [N in M]: (params: ReadParams<N>, call: Call) => Promise<Results[N]> };

/** What every handler works with: who calls, what they may see, and the few things that several operations do alike. */
export type Context = ReturnType<typeof createContext>;

export function createContext(parts: OperationParts) {
  const { store, engine } = parts;
  const world = () => parts.current().world;
  const view = ({ caller }: Call) => ({ world: world(), viewer: viewerOf(caller), ...parts.liveFacts });
  const asker = ({ caller }: Call): Asker => ({ principal: principalOf(caller.name), level: caller.level });
  const operator = ({ caller }: Call) => ({ level: caller.level, sends: false });
  const find = (call: Call, reference: Named) => store.read(findSession(view(call)), reference, call.pace);
  const need = (call: Call, reference: Reference) => store.read(requireSession(view(call)), reference, call.pace);
  const needLife = (call: Call, reference: LifeReference) => store.read(requireLife(view(call)), reference, call.pace);
  /**
   * The session of a message that an operator sends, which may be a new one: a well-formed key opens its session. A session id never
   * does, because it names a session that existed.
   */
  const foundOrNew = async (call: Call, reference: Named & { session: string }, sessionId: string | undefined) => {
    const row = await find(call, reference);
    const isNew = !row && sessionId === undefined && !sessionIdShape.test(reference.session.trim());
    if (isNew) return { sessionKey: keyMeant(world(), reference), opens: true };
    const { key } = sameLife(row ?? (await need(call, reference)), sessionId);
    return { sessionKey: key };
  };
  const describe = (call: Call, row: SessionRow, preview = false, unread = false) =>
    store.read(describeSession(view(call)), { row, preview, reader: unread ? asker(call).principal : undefined }, call.pace);
  const mainOf = (agent: string) => formatSessionKey(mainKey(keyContext(world().agents, agent)));

  /** `started` for a run that was accepted now; the present state for one that a repeated idempotency key found. */
  const started = async (accepted: { runId: string; sessionKey: string; repeated: boolean }) => {
    const { runId, sessionKey, repeated } = accepted;
    if (!repeated) return { runId, sessionKey, status: 'started' as const };
    const { state } = await engine.wait(runId, 0);
    return {
      runId,
      sessionKey,
      status: !isTerminal(state) ? ('in_flight' as const) : state === 'ok' ? ('ok' as const) : ('error' as const),
    };
  };

  /** Fails as for a missing run if the run is above the caller's level, or of another session than the one that was named. */
  const knowable = async (call: Call, runId: string, key?: string) => {
    if (await store.read(knownRun(view(call)), { runId, key }, call.pace)) return;
    throw new InterlaneError('RUN_NOT_FOUND', `run ${JSON.stringify(runId.slice(0, 100))} does not exist`);
  };

  /** Checks again after the wait: the level of the session may have risen above the caller's meanwhile. */
  const waited = async (call: Call, runId: string, timeoutMs: number) => {
    call.waits?.();
    const run = await engine.wait(runId, timeoutMs, call.signal);
    await knowable(call, runId);
    return run;
  };

  const abort = async (call: Call, key: string | undefined, runId: string | undefined) => {
    if (key === undefined && runId === undefined) throw new InterlaneError('INVALID_REQUEST', 'what to stop is missing; give key or runId');
    if (runId !== undefined) await knowable(call, runId, key);
    const id = runId ?? (await store.read(activeRun, { key: key! }, call.pace));
    const stopped = id === undefined ? false : (await engine.abort(id, `stopped by ${call.caller.name}`, operator(call))).aborted;
    return stopped ? id! : null;
  };

  const subscriptions = (call: Call): Subscriptions => {
    if (call.subscriptions) return call.subscriptions;
    throw new InterlaneError('INVALID_REQUEST', 'subscription needs a websocket; over HTTP use follow=1');
  };

  return {
    parts,
    world,
    view,
    asker,
    operator,
    find,
    need,
    needLife,
    foundOrNew,
    describe,
    mainOf,
    started,
    knowable,
    waited,
    abort,
    subscriptions,
  };
}

/** Fails if the session was reset since the caller saw this session id. */
export function sameLife(row: SessionRow, sessionId: string | undefined): SessionRow {
  if (sessionId !== undefined && sessionId.toLowerCase() !== row.id.toLowerCase())
    throw new InterlaneError('SESSION_CHANGED', `session ${JSON.stringify(row.key)} was reset meanwhile; look at it again`);
  return row;
}

/** A session id without its key. */
const sessionIdShape = /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/i;
