// The one place of the tests that knows how a gateway is made inside: its store, engine, events, outbox and tools, as narrow functions.
import { noteExchange, type EngineCommand } from '../../src/engine/feed.ts';
import { insertRun } from '../../src/engine/queue.ts';
import type { AcceptArgs } from '../../src/engine/accept.ts';
import type { Gateway } from '../../src/gateway.ts';
import type { FeedEvent } from '../../src/protocol/event.ts';
import type { RunView } from '../../src/protocol/run.ts';
import type { Command, ReadQuery, Store } from '../../src/store/contract.ts';
import type { SessionRow } from '../../src/store/rows.ts';
import type { Rowwise } from './rows.ts';

export type Subscription = Parameters<Gateway['bus']['subscribe']>[0];

export interface Inside {
  read<Args, R>(query: ReadQuery<Args, R>, args: Args): Promise<R>;
  write<Args, R>(command: Command<Args, R, FeedEvent>, args: Args): Promise<R>;
  onCommit(listener: (events: FeedEvent[]) => void): () => void;
  subscribe(subscription: Subscription, cursor?: number): () => void;
  subscribers(): number;
  accept(args: AcceptArgs): ReturnType<Gateway['engine']['accept']>;
  wait(runId: string, timeoutMs: number, signal?: AbortSignal): Promise<RunView>;
  abort(runId: string, reason: string): Promise<{ aborted: boolean; stopping: number[] }>;
  reset(key: string): ReturnType<Gateway['engine']['reset']>;
  closeSession(key: string, to: 'archived' | 'deleted', force: boolean): ReturnType<Gateway['engine']['closeSession']>;
  deliveries: Pick<Gateway['outbox'], 'list' | 'resend' | 'settle'>;
}

export function insideOf(gateway: Gateway): Inside {
  const { store, engine, bus, outbox } = gateway;
  return {
    read: (query, args) => store.read(query, args),
    write: (command, args) => store.write(command, args),
    onCommit: (listener) => store.onCommit(listener),
    subscribe: (subscription, cursor) => bus.subscribe(subscription, cursor),
    subscribers: () => bus.subscribers,
    accept: (args) => engine.accept(args),
    wait: (runId, timeoutMs, signal) => engine.wait(runId, timeoutMs, signal),
    abort: (runId, reason) => engine.abort(runId, reason),
    reset: (key) => engine.reset(key),
    closeSession: (key, to, force) => engine.closeSession(key, to, force),
    deliveries: outbox,
  };
}

/** Rows by SQL, for `rows.ts` alone. */
export function rowwise(store: Pick<Store<FeedEvent>, 'read' | 'write'>): Rowwise {
  return {
    all: <T>(sql: string, ...params: (string | number | null | Uint8Array)[]) =>
      store.read({ name: 'test', body: (t) => t.all<T>(sql, ...params) }, {}),
    run: async (sql, ...params) => void (await store.write({ name: 'test', body: (t) => t.run(sql, ...params) }, {})),
  };
}

interface Has {
  inside: Inside;
  now(): number;
}

/** An exchange that no session began: a message into a session that comes from an operator. */
export function operatorSends(gw: Has, key: string, text: string): Promise<void> {
  const command: EngineCommand<{ now: number }, void> = {
    name: 'operator sends',
    *body(t, { now }) {
      const target = (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE key = ? AND current = 1', key))!;
      const { lastId: pk } = yield* t.run(
        `INSERT INTO exchanges (id, tgt_session_pk, state, max_turns, hop, at) VALUES ('by-hand', ?, 'request', 5, 1, ?)`,
        target.pk,
        now,
      );
      const run = yield* insertRun(t, target, {
        runId: 'by-hand-0',
        text,
        provenance: { kind: 'system' },
        principal: 'operator',
        taint: 0,
        mode: 'followup',
        class: 'nested',
        deliver: false,
        cause: 'exchange',
        causePk: pk,
        now,
      });
      yield* t.run('INSERT INTO exchange_turns (exchange_pk, turn, run_pk) VALUES (?,0,?)', pk, run.pk);
      yield* noteExchange(t, target, { pk, id: 'by-hand', turn: 0 }, 'request', now);
    },
  };
  return gw.inside.write(command, { now: gw.now() });
}
