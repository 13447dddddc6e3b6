// The one place of the tests that knows how a gateway is made inside: its store, engine, events, outbox and tools, as narrow functions.
import { Pacer, type Pace } from '../../src/pace.ts';
import { noteExchange, type EngineCommand } from '../../src/engine/feed.ts';
import { enqueue } from '../../src/engine/queue.ts';
import { asFlow } from '../../src/engine/flow.ts';
import { exchangeFlow } from '../../src/flows/exchange.ts';
import type { AcceptArgs } from '../../src/engine/accept.ts';
import { join } from 'node:path';
import { RE2JS } from 're2js';
import { onTestFinished } from 'vitest';
import { setImmediate as tick } from 'node:timers/promises';
import { Config } from '../../src/config/schema.ts';
import { beginSending } from '../../src/delivery/deliveries.ts';
import { deliveriesPage, resendDelivery, settleByOperator, type DeliveriesWish } from '../../src/delivery/operate.ts';
import type { DeliveryView } from '../../src/protocol/delivery.ts';
import { sessionsPage } from '../../src/sessions/pages.ts';
import { partyOfRow } from '../../src/engine/policy.ts';
import { purgeSome } from '../../src/engine/retention.ts';
import { closeSession, resetSession } from '../../src/engine/sessions.ts';
import { systemClock } from '../../src/clock.ts';
import { InterlaneError } from '../../src/errors.ts';
import { Connection } from '../../src/store/sqlite/database.ts';
import { compileWorld } from '../../src/rules/decide.ts';
import type { SearchAnswer, SearchIndex } from '../../src/store/search.ts';
import { inMemory, searchName } from '../../src/store/sqlite/search-file.ts';
import { SqliteSearch } from '../../src/store/sqlite/search.ts';
import { timelineName } from '../../src/store/tables/meta.ts';
import type { Parts } from '../../src/gateway.ts';
import type { FeedEvent } from '../../src/protocol/event.ts';
import type { RunView } from '../../src/protocol/run.ts';
import { drive, writing, type Command, type ReadQuery, type Store } from '../../src/store/contract.ts';
import type { SessionRow } from '../../src/store/rows.ts';
import type { Tool } from '../../src/tools/define.ts';
import { ofTest } from '../postgres/statements.ts';
import type { Rowwise } from './rows.ts';

/** For a caller that shares the thread with nobody. */
const atOnce: Pace = { client: {}, signal: new AbortController().signal, pause: () => Promise.resolve() };

type Subscription = Parameters<Parts['bus']['subscribe']>[0];

export interface Inside {
  store(): Store;
  read<Args, R>(query: ReadQuery<Args, R>, args: Args): Promise<R>;
  write<Args, R>(command: Command<Args, R>, args: Args): Promise<R>;
  onCommit(listener: (events: FeedEvent[]) => void): () => void;
  subscribe(subscription: Subscription, cursor?: number): () => void;
  subscribers(): number;
  accept(args: AcceptArgs): ReturnType<Parts['engine']['accept']>;
  wait(runId: string, timeoutMs: number, signal?: AbortSignal): Promise<RunView>;
  abort(runId: string, reason: string): Promise<{ aborted: boolean; stopping: number[] }>;
  reset(key: string): ReturnType<Parts['engine']['reset']>;
  giveBack(lane: string, turnId: string): Promise<void>;
  closeSession(key: string, to: 'archived' | 'deleted', force: boolean): ReturnType<Parts['engine']['closeSession']>;
  toolsFor(sessionPk: number): Promise<Tool[]>;
  callAs: Parts['invoker']['callAs'];
  deliveries: {
    list(wish: Partial<DeliveriesWish>): Promise<{ deliveries: DeliveryView[]; next: number | undefined }>;
    resend(deliveryId: string, attempts?: number): Promise<{ changed: boolean; delivery: DeliveryView }>;
    settle(deliveryId: string, as: 'sent' | 'failed'): Promise<{ changed: boolean; delivery: DeliveryView }>;
  };
}

const operator = { level: 'RESTRICTED' as const, sends: false };

export function insideOf({ store, engine, bus, invoker, current }: Parts, clock: () => number): Inside {
  return {
    store: () => store,
    read: (query, args) => store.read(query, args),
    write: (command, args) => store.write(command, args),
    onCommit: (listener) => store.follow(listener),
    subscribe: (subscription, cursor) => bus.subscribe(subscription, cursor),
    subscribers: () => bus.subscribers,
    accept: (args) => engine.accept(args),
    wait: (runId, timeoutMs, signal) => engine.wait(runId, timeoutMs, signal),
    abort: (runId, reason) => engine.abort(runId, reason),
    reset: (key) => engine.reset(key),
    giveBack: (lane, turnId) => engine.giveBack(lane, turnId),
    closeSession: (key, to, force) => engine.closeSession(key, to, force),
    callAs: (sessionPk, call, pace) => invoker.callAs(sessionPk, call, pace),
    toolsFor: (sessionPk) => invoker.toolsFor(sessionPk),
    deliveries: {
      list: (wish) => store.read(deliveriesPage({ world: current().world, viewer: { as: 'system' } }), { limit: 100, ...wish }),
      resend: (deliveryId, attempts) => store.write(resendDelivery(current), { deliveryId, attempts, operator, now: clock() }),
      settle: (deliveryId, as) => store.write(settleByOperator(current), { deliveryId, as, by: 'a test', operator, now: clock() }),
    },
  };
}

/** Rows by SQL, for `rows.ts` alone. */
export function rowwise(store: Pick<Store, 'read' | 'write'>): Rowwise {
  return {
    all: <T>(sql: string, ...params: (string | number | null | Uint8Array)[]) =>
      store.read({ name: 'test', body: (t) => t.all<T>(ofTest(sql), ...params) }, {}),
    run: async (sql, ...params) => void (await store.write({ name: 'test', body: (t) => t.run(ofTest(sql), ...params) }, {})),
  };
}

/** What a tool answers to a session that is driven from outside, without a turn. */
export async function callAs(gw: Has, key: string, tool: string, args: Record<string, unknown>): Promise<string> {
  const { pk } = await sessionOf(gw, key);
  return (await gw.inside.callAs(pk, { tool, args, callId: tool, by: 'session', ceiling: 'RESTRICTED' }, atOnce)).text;
}

async function sessionOf(gw: Has, key: string): Promise<SessionRow> {
  const query = 'SELECT * FROM sessions WHERE key = ? AND current = 1';
  return (await gw.inside.read({ name: 'session', body: (t) => t.one<SessionRow>(query, key) }, {}))!;
}

/** The tools that a session gets, by name. */
export async function toolsOf(gw: Has, key: string): Promise<Map<string, Tool>> {
  const { pk } = await sessionOf(gw, key);
  return new Map((await gw.inside.toolsFor(pk)).map((tool) => [tool.name, tool]));
}

/** The next write of this name fails, as if the disk were full for a moment. Answers whether it has failed. */
export function failWrite(gw: Has, name: string): () => boolean {
  const store = gw.inside.store();
  const { write } = store;
  let failed = false;
  store.write = (command, args, options) => {
    if (failed || command.name !== name) return write.call(store, command, args, options) as ReturnType<typeof write<typeof args, never>>;
    failed = true;
    return Promise.reject(new InterlaneError('STORE_FAILED', 'the disk is full'));
  };
  return () => failed;
}

/** From now on SQLite refuses every change as it does on a full disk: nothing of the transaction is kept. Returns the undo. */
export function fillDisk(): () => void {
  const { answer } = Connection.prototype;
  Connection.prototype.answer = function (this: Connection, query) {
    if (!/^(INSERT|UPDATE|DELETE)/.test(query.sql)) return answer.call(this, query);
    if (this.database.isTransaction) this.database.exec('ROLLBACK');
    throw Object.assign(new Error('database or disk is full'), { errcode: 13 });
  };
  const undo = () => {
    Connection.prototype.answer = answer;
  };
  onTestFinished(undo);
  return undo;
}

/** Changes every query of every store that contains the text. Returns the undo. */
export function rewriteQueries(text: string, by: string): () => void {
  const { answer } = Connection.prototype;
  Connection.prototype.answer = function (this: Connection, query) {
    return answer.call(this, { ...query, sql: query.sql.replace(text, by) });
  };
  return () => {
    Connection.prototype.answer = answer;
  };
}

/** The statements of every store from here on, without those that only begin and end transactions. */
export function countStatements(): { since(): string[] } {
  const { answer } = Connection.prototype;
  const seen: string[] = [];
  Connection.prototype.answer = function (this: Connection, query) {
    if (!/^(BEGIN|COMMIT|ROLLBACK|SAVEPOINT|RELEASE)\b/.test(query.sql)) seen.push(query.sql);
    return answer.call(this, query);
  };
  onTestFinished(() => void (Connection.prototype.answer = answer));
  return { since: () => seen.splice(0, Infinity) };
}

/** Counts the clients that pacers make from here on. */
export function countClients(): { made: number } {
  const counted = { made: 0 };
  const { client } = Pacer.prototype;
  Pacer.prototype.client = function (this: Pacer) {
    counted.made++;
    return client.call(this);
  };
  onTestFinished(() => void (Pacer.prototype.client = client));
  return counted;
}

/** Counts searches of text patterns from here on: all on this thread, and those while a store has a transaction open. */
export function countSearches(): { all: number; inTransactions: number } {
  const counted = { all: 0, inTransactions: 0 };
  const open = new Set<Connection>();
  const { answer } = Connection.prototype;
  Connection.prototype.answer = function (this: Connection, query) {
    if (query.sql.startsWith('BEGIN')) open.add(this);
    if (/^(COMMIT|ROLLBACK$)/.test(query.sql)) open.delete(this);
    return answer.call(this, query);
  };
  const { matcher } = RE2JS.prototype;
  RE2JS.prototype.matcher = function (this: RE2JS, text) {
    counted.all++;
    if (open.size > 0) counted.inTransactions++;
    return matcher.call(this, text);
  };
  onTestFinished(() => {
    Connection.prototype.answer = answer;
    RE2JS.prototype.matcher = matcher;
  });
  return counted;
}

/** How the store finds what is due to be sent. */
export async function planOfDue(inside: Inside): Promise<string[]> {
  const asked: string[] = [];
  drive(beginSending(() => kernel).body(writing([]), { owner: 1, now: 0, limit: 16 }), (ask) => {
    if ('sql' in ask) asked.push(ask.sql);
    return [];
  });
  const plans = asked.map((sql) =>
    inside.write({ name: 'plan', body: (t) => t.all<{ detail: string }>(ofTest(`EXPLAIN QUERY PLAN ${sql}`), 0, 16) }, {}),
  );
  return (await Promise.all(plans)).flat().map(({ detail }) => detail);
}

/** What a session is shown of a list whose filter passes nearly nothing, page by page: keys. */
export async function listPages(gw: Has, key: string, config: Parameters<typeof Config.parse>[0], limit: number): Promise<string[][]> {
  const world = compileWorld(Config.parse(config));
  const me = await sessionOf(gw, key);
  const look = { world, viewer: { as: 'session' as const, party: partyOfRow(world, me) } };
  const pages: string[][] = [];
  let before: number | undefined;
  do {
    const page = await gw.inside.read(sessionsPage(look), { activeSince: 1, before, limit });
    pages.push(page.rows.map((row) => row.key));
    before = page.next;
  } while (before !== undefined);
  return pages;
}

/** The files of the search index. */
export const indexFiles = (stateDir: string) => ['', '-wal'].map((end) => join(stateDir, searchName + end));

/** A search index over a gateway's store, beside the one that the gateway has. */
export interface OpenIndex extends AsyncDisposable {
  index: SearchIndex;
  /** Resolves when everything that is committed can be found. */
  catchUp(): Promise<void>;
  find(text: string, readable?: (sessionKey: string) => boolean, limit?: number): Promise<SearchAnswer>;
}

/** `file`: the gateway's own file. `thread`: the same, written and asked by threads alone. */
export type IndexKind = 'file' | 'thread' | 'memory';

export function openIndex({ inside, stateDir }: Has & { stateDir: string }, kind: IndexKind = 'file'): OpenIndex {
  const failures: unknown[] = [];
  const index: SearchIndex = new SqliteSearch({
    store: inside.store(),
    path: kind === 'memory' ? inMemory : join(stateDir, searchName),
    failed: (error) => failures.push(error),
    recovered: () => {},
    after: (ms, work) => systemClock.after(ms, work),
    timeline: timelineName,
    ...(kind === 'thread' ? { threadAfter: -1, readerAfter: -1 } : {}),
  });
  return {
    index,
    async catchUp() {
      for (;;) {
        index.wake();
        const { indexedTo, latest } = await index.progress();
        if (failures.length > 0) throw failures[0];
        if (indexedTo === latest) return;
        await tick();
      }
    },
    find: (text, readable = () => true, limit = 20) =>
      index.search({ text, limit, readable: (entry) => (readable(entry.sessionKey) ? entry.text : undefined) }),
    [Symbol.asyncDispose]: () => index.close(),
  };
}

const kernel = { world: compileWorld(Config.parse({})), flows: new Map([['exchange', asFlow(exchangeFlow)]]) };

/** What a reset writes, without what follows it: as if the gateway died right there. */
export const onlyReset = (gw: Has, key: string) =>
  gw.inside.write(
    resetSession(() => kernel),
    { key, id: 'next', now: gw.now() },
  );

/** The same for an archive or a delete. */
export const onlyClose = (gw: Has, key: string, to: 'archived' | 'deleted') =>
  gw.inside.write(
    closeSession(() => kernel),
    { key, to, force: true, now: gw.now() },
  );

/** Purges everything that may go, now. */
export async function purge(gw: Has, { now = gw.now(), keepMs = Infinity }: { now?: number; keepMs?: number } = {}): Promise<void> {
  while ((await gw.inside.write(purgeSome, { now, keepMs: keepMs === Infinity ? null : keepMs })) > 0);
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
      const { pk } = (yield* t.one<{ pk: number }>(
        `INSERT INTO exchanges (id, tgt_session_pk, state, max_turns, hop, at) VALUES ('by-hand', ?, 'request', 5, 1, ?) RETURNING pk`,
        target.pk,
        now,
      ))!;
      const input = {
        runId: 'by-hand-0',
        text,
        provenance: { kind: 'system' as const },
        principal: 'operator',
        taint: 0,
        mode: 'followup' as const,
        class: 'nested' as const,
        deliver: false,
        flow: { kind: 'exchange', pk },
      };
      const run = yield* enqueue(t, target, input, now);
      yield* t.run('INSERT INTO exchange_turns (exchange_pk, turn, run_pk) VALUES (?,0,?)', pk, run.pk);
      noteExchange(t, target, { pk, id: 'by-hand', turn: 0 }, 'request', now);
    },
  };
  return gw.inside.write(command, { now: gw.now() });
}
