// The handlers of the method table. Thin: each reads its parameters, asks the session or the engine, and shapes the answer.
import { createHash } from 'node:crypto';
import type { z } from 'zod';
import type { Engine } from '../engine/engine.ts';
import { settingsOf } from '../engine/policy.ts';
import { InterlaneError, nearest } from '../errors.ts';
import { guestSentence } from '../mcp/words.ts';
import { agentId as agentIdOf } from '../protocol/ids.ts';
import type { FeedEvent } from '../protocol/event.ts';
import { methods, type MethodName, type ReadParams, type Results, type SessionsPage, type WaitAnswer } from '../protocol/method.ts';
import { isTerminal, type RunView } from '../protocol/run.ts';
import { agentOf, keyContext } from '../rules/agents.ts';
import { explainAccess, explainKey, explainRoute, explainSend, explainTools } from '../rules/explain.ts';
import type { Routes } from '../rules/route.ts';
import { formatSessionKey, mainKey } from '../rules/session-key.ts';
import {
  activeRun,
  counts,
  describeSession,
  findByLabel,
  findByShortId,
  findSession,
  historyAfter,
  historyPage,
  keyMeant,
  knownRun,
  listPage,
  requireSession,
  runsPage,
  wireMessage,
  type Named,
  type Shown,
} from '../session/overview.ts';
import type { Asker, Sessions } from '../session/sessions.ts';
import type { Store } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import { levelName, levelRank } from '../store/views.ts';
import type { Invoker } from '../tools/invoke.ts';
import { readCursor, writeCursor } from '../tools/page.ts';
import { errorShape } from './failure.ts';
import { requireLevel, requireScope, type Auth, type Caller } from './auth.ts';

/** What a connection lends to the methods that subscribe. */
export interface Subscriptions {
  all(from: number): void;
  noMore(): void;
  key(key: string, from: number): void;
  noMoreOf(key: string): void;
}

/** One call: who, until when, and how to say that it was accepted before it is done. */
export interface Call {
  caller: Caller;
  signal: AbortSignal;
  accepted?(payload: unknown): void;
  subscriptions?: Subscriptions;
}

export interface MethodsParts {
  store: Store<FeedEvent>;
  engine: Engine;
  sessions: Sessions;
  invoker: Invoker;
  shown: Omit<Shown, 'world'>;
  auth: Auth;
  now(): number;
  elapsed(): number;
  newId(): string;
  routes(): Routes;
  channels: ReadonlySet<string>;
  position(): Promise<number>;
  signInUrl(code: string): string;
  mcpUrl(): string;
  facts(): Pick<Results['status'], 'version' | 'uptimeMs' | 'pid' | 'connections' | 'store' | 'model' | 'warnings'>;
}

type Handlers = { [M in MethodName]: (params: ReadParams<M>, call: Call) => Promise<Results[M]> };
export type Methods = ReturnType<typeof createMethods>;

const defaultWaitMs = 30_000;
/** As long as a connection lives. */
const noLimitMs = 2 ** 31 - 1;

export function createMethods(parts: MethodsParts) {
  const handlers = createHandlers(parts);
  return {
    names: Object.keys(handlers) as MethodName[],
    /** The end of a run, or how it stands when the time is over. For who may read. */
    wait: handlers['agent.wait'],
    /** Looks the method up, asks whether the caller may, reads the parameters closed, and calls it. */
    async call(name: string, params: unknown, call: Call): Promise<unknown> {
      if (!Object.hasOwn(methods, name)) {
        const [near] = nearest(name, Object.keys(methods));
        throw new InterlaneError('METHOD_NOT_FOUND', `unknown method: ${name.slice(0, 128)}${near ? `; did you mean ${near}?` : ''}`);
      }
      const method = name as MethodName;
      const { scope, params: schema } = methods[method];
      if (scope !== 'session') requireScope(call.caller, scope, method);
      const read = schema.safeParse(params ?? undefined);
      if (!read.success) throw invalidParams(`invalid ${method} params`, read.error);
      return (handlers[method] as (params: unknown, call: Call) => Promise<unknown>)(read.data, call);
    },
    /** The same for a caller inside the server, with its types. */
    do<M extends MethodName>(method: M, params: z.input<(typeof methods)[M]['params']>, call: Call): Promise<Results[M]> {
      return this.call(method, params, call) as Promise<Results[M]>;
    },
  };
}

/** Says where and what, in the protocol's words: `at /limit: …`, `at root: unexpected property 'x'`. */
export function invalidParams(what: string, error: z.ZodError): InterlaneError {
  const lines = error.issues.slice(0, 5).map((issue) => {
    const at = issue.path.length === 0 ? 'root' : `/${issue.path.map(String).join('/')}`;
    if (issue.code === 'unrecognized_keys') return `at ${at}: unexpected property '${issue.keys[0]!.slice(0, 100)}'`;
    return `at ${at}: ${issue.message}`;
  });
  const [first] = error.issues;
  const path = [...(first?.path ?? []), ...(first?.code === 'unrecognized_keys' ? [first.keys[0]!.slice(0, 100)] : [])]
    .map(String)
    .join('/');
  return new InterlaneError('INVALID_REQUEST', `${what}: ${lines.join('; ')}`, { details: { path: `/${path}` } });
}

function createHandlers(parts: MethodsParts): Handlers {
  const { store, engine, sessions, auth } = parts;
  const world = () => engine.world;
  const view = ({ caller }: Call) => ({ world: world(), level: caller.level, ...parts.shown });
  const asker = ({ caller }: Call): Asker => ({ principal: `operator:${caller.name}`, level: caller.level });
  const operator = ({ caller }: Call) => ({ level: caller.level, sends: false });
  const find = (call: Call, named: Named) => store.read(findSession, { ...view(call), named });
  const need = (call: Call, named: Named) => store.read(requireSession, { ...view(call), named });
  const describe = (call: Call, row: SessionRow, preview = false) => store.read(describeSession, { ...view(call), row, preview });
  const mainOf = (agent: string) => formatSessionKey(mainKey(keyContext(world().agents, agent)));

  const list = async (wish: ReadParams<'sessions.list'>, call: Call): Promise<SessionsPage> => {
    const limit = Math.min(wish.limit ?? 100, 1000);
    const offset = wish.offset ?? 0;
    const {
      sessions: rows,
      next,
      full,
    } = await store.read(listPage, {
      ...view(call),
      wish: {
        limit,
        offset,
        before: readCursor(wish.cursor),
        activeSince: wish.activeMinutes === undefined ? undefined : parts.now() - wish.activeMinutes * 60_000,
        agentId: wish.agentId,
        spawnedBy: wish.spawnedBy,
        label: wish.label,
        search: wish.search,
        kinds: wish.kinds,
        archived: wish.archived ?? false,
        preview: wish.includeLastMessage === true,
      },
    });
    const { defaultId } = world().agents;
    return {
      ts: parts.now(),
      count: rows.length,
      limitApplied: limit,
      hasMore: next !== undefined,
      // A search that has read enough for one request goes on by cursor only.
      nextOffset: full ? offset + rows.length : null,
      ...(next === undefined ? {} : { nextCursor: writeCursor(next) }),
      defaults: { defaultAgentId: defaultId, mainKey: keyContext(world().agents, defaultId).mainKey },
      sessions: rows,
    };
  };

  /** A run that was accepted just now has started; one found again by its key says how it stands. */
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

  /** A run above the caller's level is as good as missing, and so is one of another session than the one that was named. */
  const knowable = async (call: Call, runId: string, key?: string) => {
    if (await store.read(knownRun, { runId, level: call.caller.level, key })) return;
    throw new InterlaneError('RUN_NOT_FOUND', `run ${JSON.stringify(runId.slice(0, 100))} does not exist`);
  };

  /** What a run says may have risen above the caller while it was waited for. */
  const waited = async (call: Call, runId: string, timeoutMs: number) => {
    const run = await engine.wait(runId, timeoutMs, call.signal);
    await knowable(call, runId);
    return run;
  };

  const abort = async (call: Call, key: string | undefined, runId: string | undefined) => {
    if (key === undefined && runId === undefined) throw new InterlaneError('INVALID_REQUEST', 'what to stop is missing; give key or runId');
    if (runId !== undefined) await knowable(call, runId, key);
    const id = runId ?? (await store.read(activeRun, { key: key! }));
    const stopped = id === undefined ? false : (await engine.abort(id, `stopped by ${call.caller.name}`, operator(call))).aborted;
    return stopped ? id! : null;
  };

  const subscriptions = (call: Call): Subscriptions => {
    if (call.subscriptions) return call.subscriptions;
    throw new InterlaneError('INVALID_REQUEST', 'subscription needs a websocket; over HTTP use follow=1');
  };

  return {
    health: async () => {
      const before = parts.elapsed();
      await parts.position();
      return { ok: true, ts: parts.now(), durationMs: Math.round(parts.elapsed() - before) };
    },
    status: async () => ({
      ...parts.facts(),
      ...(await store.read(counts, {})),
      defaultAgentId: world().agents.defaultId,
      agents: agentIds(engine).length,
    }),
    'agents.list': async () => {
      const { agents } = world();
      const { mainKey: name, globalOwner } = keyContext(agents, agents.defaultId);
      return {
        defaultId: agents.defaultId,
        mainKey: name,
        scope: globalOwner === undefined ? 'per-sender' : 'global',
        agents: agentIds(engine).map((id) => {
          const { name: shown } = agentOf(agents, id);
          return { id, ...(shown === undefined ? {} : { name: shown }), mainSessionKey: mainOf(id) };
        }),
      };
    },

    'sessions.list': (wish, call) => list(wish, call),
    'sessions.describe': async ({ key, agentId, includeLastMessage }, call) => {
      const row = await find(call, { session: key, agentId });
      return { session: row ? await describe(call, row, includeLastMessage) : null };
    },
    'sessions.resolve': async ({ key, sessionId, label, shortId, agentId, spawnedBy, allowMissing }, call) => {
      const given = [key, sessionId, label, shortId].filter((one) => one !== undefined);
      if (given.length !== 1)
        throw new InterlaneError('INVALID_REQUEST', 'session reference needs exactly one of key, sessionId, label and shortId');
      let rows: SessionRow[];
      if (label !== undefined) rows = await store.read(findByLabel, { ...view(call), label, agentId });
      else if (shortId !== undefined) rows = await store.read(findByShortId, { ...view(call), shortId });
      else rows = [await find(call, { session: given[0]!, agentId })].filter((row) => row !== undefined);
      if (spawnedBy !== undefined) {
        const parent = await find(call, { session: spawnedBy });
        rows = rows.filter((row) => row.parent_key !== null && row.parent_key === parent?.key);
      }
      if (rows.length === 1) return { ok: true, key: rows[0]!.key, agentId: rows[0]!.agent, sessionId: rows[0]!.id };
      if (rows.length > 1) {
        const candidates = rows.slice(0, 10).map((row) => ({ key: row.key, agentId: row.agent }));
        if (allowMissing) return { ok: false, candidates };
        throw new InterlaneError('SESSION_AMBIGUOUS', `session ${JSON.stringify(given[0])} is more than one; give agentId or the key`, {
          details: { candidates },
        });
      }
      if (allowMissing) return { ok: false };
      if (key !== undefined) await need(call, { session: key, agentId });
      throw new InterlaneError('SESSION_NOT_FOUND', `session ${JSON.stringify(given[0]!.slice(0, 200))} was not found; see sessions.list`);
    },
    'sessions.preview': async ({ keys, limit = 5, maxChars = 240 }, call) => {
      const previews: Results['sessions.preview']['previews'] = [];
      for (const session of keys) {
        const row = await find(call, { session });
        if (!row) {
          previews.push({ key: session, status: 'missing', items: [] });
          continue;
        }
        const { messages } = await store.read(historyPage, { ...view(call), row, wish: { limit, includeTools: false } });
        const items = messages.map(({ role, content }) => {
          const text = content.map((block) => (block.type === 'text' ? block.text : `[${block.name}]`)).join(' ');
          return { role, text: text.length > maxChars ? `${text.slice(0, maxChars - 1)}…` : text };
        });
        previews.push({ key: row.key, status: 'ok', items });
      }
      return { ts: parts.now(), previews };
    },
    'sessions.create': async ({ key, agentId, message, idempotencyKey, ...patch }, call) => {
      const { session, created } = await sessions.open(asker(call), { key, agentId, idempotencyKey, patch });
      const entry = () => describe(call, session);
      const common = { ok: true as const, key: session.key, sessionId: session.id, created };
      if (message === undefined || message.trim() === '') return { ...common, runStarted: false, entry: await entry() };
      const spoken = { sessionKey: session.key, text: message, method: 'sessions.create', idempotencyKey };
      try {
        const { runId } = await sessions.say(asker(call), spoken);
        return { ...common, runStarted: true, runId, entry: await entry() };
      } catch (thrown) {
        // The session is there, whatever became of the message; both are told.
        if (!(thrown instanceof InterlaneError)) throw thrown;
        return { ...common, runStarted: false, runError: errorShape(thrown), entry: await entry() };
      }
    },
    'sessions.patch': async ({ key, agentId, expectedSessionId, ...patch }, call) => {
      if (patch.sendPolicy !== undefined) requireScope(call.caller, 'operator.admin', 'sendPolicy');
      const row = await need(call, { session: key, agentId });
      const { session, changed } = await sessions.patch(asker(call), row.key, patch, expectedSessionId);
      return { ok: true, key: session.key, changed, entry: await describe(call, session) };
    },
    'sessions.reset': async ({ key, agentId }, call) => {
      const row = await need(call, { session: key, agentId });
      const { session } = await engine.reset(row.key, operator(call));
      return { ok: true, key: session.key, entry: await describe(call, session) };
    },
    'sessions.delete': async ({ key, agentId, expectedSessionId, force }, call) => {
      const row = await find(call, { session: key, agentId });
      if (!row) return { ok: true, key: keyMeant(world(), { session: key, agentId }), deleted: false, archived: [] };
      if (row.kind === 'main')
        throw new InterlaneError('INVALID_REQUEST', `session ${row.key} is a main session and stays; sessions.reset empties it`);
      sameLife(row, expectedSessionId);
      await engine.closeSession(row.key, 'deleted', force ?? false, operator(call));
      return { ok: true, key: row.key, deleted: true, archived: [] };
    },
    'sessions.abort': async ({ key, runId, agentId }, call) => {
      const row = key === undefined ? undefined : await need(call, { session: key, agentId });
      const abortedRunId = await abort(call, row?.key, runId);
      return { ok: true, abortedRunId, status: abortedRunId === null ? 'no-active-run' : 'aborted' };
    },
    'sessions.send': async ({ key, agentId, message, timeoutMs, idempotencyKey }, call) => {
      const row = await need(call, { session: key, agentId });
      const spoken = { sessionKey: row.key, text: message, method: 'sessions.send', idempotencyKey, budgetMs: timeoutMs };
      return started(await sessions.say(asker(call), spoken));
    },
    'sessions.subscribe': async (wish, call) => {
      const { cursor, ...filter } = wish;
      const from = readCursor(cursor) ?? (await parts.position());
      subscriptions(call).all(from);
      const listed = Object.keys(filter).length > 0 ? { list: await list(filter, call) } : {};
      return { subscribed: true, cursor: writeCursor(from), ...listed };
    },
    'sessions.unsubscribe': async (_, call) => {
      subscriptions(call).noMore();
      return { subscribed: false };
    },
    'sessions.messages.subscribe': async ({ key, agentId, cursor }, call) => {
      const meant = (await find(call, { session: key, agentId }))?.key ?? keyMeant(world(), { session: key, agentId });
      const from = readCursor(cursor) ?? (await parts.position());
      subscriptions(call).key(meant, from);
      return { subscribed: true, key: meant, cursor: writeCursor(from) };
    },
    'sessions.messages.unsubscribe': async ({ key, agentId }, call) => {
      const meant = (await find(call, { session: key, agentId }))?.key ?? keyMeant(world(), { session: key, agentId });
      subscriptions(call).noMoreOf(meant);
      return { subscribed: false, key: meant };
    },

    'chat.history': async ({ sessionKey, agentId, sessionId, limit = 200, offset, cursor, maxChars }, call) => {
      const row = await need(call, { session: sessionKey, agentId });
      sameLife(row, sessionId);
      const sessionInfo = await describe(call, row);
      const end = row.next_seq - 1;
      if (cursor !== undefined) {
        const [id, seq] = cursor.split('.');
        const after = id === row.id.slice(0, 12) ? readCursor(seq) : undefined;
        if (after === undefined || after > end) return { kind: 'reset' };
        const { messages, more } = await store.read(historyAfter, { ...view(call), row, after, limit });
        const last = messages.at(-1)?.seq ?? after;
        return {
          kind: 'delta',
          messages: messages.map((message) => wireMessage(message, maxChars)),
          hasMore: more,
          deltaCursor: `${row.id.slice(0, 12)}.${writeCursor(last)}`,
          sessionInfo,
        };
      }
      const before = offset === undefined ? undefined : Math.max(0, row.next_seq - offset);
      const { messages, next } = await store.read(historyPage, { ...view(call), row, wish: { limit, before, includeTools: true } });
      return {
        sessionKey: row.key,
        sessionId: row.id,
        messages: messages.map((message) => wireMessage(message, maxChars)),
        hasMore: next !== undefined,
        ...(offset === undefined ? {} : { offset }),
        ...(next === undefined ? {} : { nextOffset: row.next_seq - next }),
        totalMessages: end,
        deltaCursor: `${row.id.slice(0, 12)}.${writeCursor(offset === undefined ? (messages.at(-1)?.seq ?? end) : end)}`,
        sessionInfo,
      };
    },
    'chat.send': async ({ sessionKey, agentId, sessionId, message, queueMode, deliver, timeoutMs, idempotencyKey }, call) => {
      const row = await need(call, { session: sessionKey, agentId });
      sameLife(row, sessionId);
      const spoken = {
        sessionKey: row.key,
        text: message,
        method: 'chat.send',
        idempotencyKey,
        mode: queueMode,
        deliver,
        budgetMs: timeoutMs,
      };
      return started(await sessions.say(asker(call), spoken));
    },
    'chat.abort': async ({ sessionKey, agentId, runId }, call) => {
      const row = await need(call, { session: sessionKey, agentId });
      const stopped = await abort(call, row.key, runId);
      return { ok: true, aborted: stopped !== null, runIds: stopped === null ? [] : [stopped] };
    },
    'chat.inject': async ({ sessionKey, agentId, message, label, idempotencyKey }, call) => {
      const row = await need(call, { session: sessionKey, agentId });
      const text = label === undefined ? message : `[${label}]\n\n${message}`;
      const { id, seq } = await sessions.inject(asker(call), row.key, text, idempotencyKey);
      return { ok: true, messageId: id, messageSeq: seq };
    },

    agent: async ({ message, agentId, sessionKey, sessionId, deliver, timeout, idempotencyKey }, call) => {
      const row = await need(call, { session: sessionKey ?? sessionId ?? 'main', agentId });
      sameLife(row, sessionId);
      const spoken = {
        sessionKey: row.key,
        text: message,
        method: 'agent',
        idempotencyKey,
        deliver,
        // A run whose answer goes nowhere sends nothing that a send policy could refuse.
        sends: deliver ?? false,
        budgetMs: timeout === undefined ? undefined : timeout * 1000,
      };
      const { runId } = await sessions.say(asker(call), spoken);
      const common = { runId, sessionKey: row.key, agentId: row.agent };
      const acceptedAt = parts.now();
      // Who takes only the first answer is done here; who waits for the final one gets it under the same id.
      if (!call.accepted) return { ...common, status: 'accepted', acceptedAt };
      call.accepted({ ...common, status: 'accepted', acceptedAt });
      const ended = await waited(call, runId, noLimitMs);
      const answer = waitAnswer(ended);
      return {
        ...common,
        status: answer.status,
        summary: ended.state === 'ok' ? 'completed' : (ended.error ?? ended.state),
        ...(answer.error === undefined ? {} : { error: answer.error }),
        ...(answer.errorCode === undefined ? {} : { errorCode: answer.errorCode }),
        result: {
          payloads: ended.reply ? [{ text: ended.reply, mediaUrl: null }] : [],
          meta: { durationMs: (ended.endedAt ?? parts.now()) - ended.queuedAt },
        },
      };
    },
    'agent.wait': async ({ runId, timeoutMs = defaultWaitMs }, call) => {
      await knowable(call, runId);
      return waitAnswer(await waited(call, runId, timeoutMs));
    },
    send: async ({ to, message, channel, accountId, threadId, sessionKey, agentId, idempotencyKey }, call) => {
      const row = await need(call, { session: sessionKey ?? 'main', agentId });
      const name = channel ?? [...parts.channels][0];
      if (name === undefined || !parts.channels.has(name)) {
        const known = parts.channels.size > 0 ? `there are: ${[...parts.channels].join(', ')}` : 'none is';
        throw new InterlaneError('CHANNEL_NOT_CONFIGURED', `channel ${JSON.stringify(name ?? '')} is not configured; ${known}`);
      }
      const context = {
        channel: name,
        to,
        ...(accountId === undefined ? {} : { accountId }),
        ...(threadId === undefined ? {} : { threadId }),
      };
      const deliveryIds = await sessions.sendOut(asker(call), row.key, context, message, idempotencyKey);
      return { ok: true, status: 'queued', deliveryIds, channel: name, to };
    },

    'runs.list': async ({ key, agentId, states, limit = 100, cursor }, call) => {
      const row = key === undefined ? undefined : await need(call, { session: key, agentId });
      const wish = { sessionPk: row?.pk, states, before: readCursor(cursor), limit };
      const { runs, next } = await store.read(runsPage, { ...view(call), wish });
      return { runs, ...(next === undefined ? {} : { nextCursor: writeCursor(next) }) };
    },
    'tools.invoke': async ({ tool, args, sessionKey, idempotencyKey }, call) => {
      const { caller } = call;
      const own = caller.kind === 'session';
      if (!own) requireScope(caller, 'operator.read', 'tools.invoke');
      if (own && sessionKey !== undefined && keyMeant(world(), { session: sessionKey }) !== caller.sessionKey)
        throw new InterlaneError('MISSING_SCOPE', 'sessionKey is not the session this token is bound to; leave it out');
      // An operator looks through the eyes of a session, at what that session may see and the token's level allows.
      const bound = () => store.read(findSession, { world: world(), level: 'RESTRICTED', named: { session: caller.sessionKey! } });
      const row = own ? await bound() : await need(call, { session: sessionKey ?? 'main' });
      if (!row) throw new InterlaneError('SESSION_NOT_FOUND', `session ${caller.sessionKey!} of this token is gone; make a new token`);
      const callId = idempotencyKey === undefined ? parts.newId() : hash(`${caller.name}\n${idempotencyKey}`);
      const answer = await parts.invoker.callAs(row.pk, { tool, args, callId, readOnly: !own }, call.signal);
      // In a turn a result raises the session that reads it. Out here nothing would, so what is above the reader is withheld (I8).
      // The session may have been raised meanwhile, by a message that the call waited for.
      const level = own ? levelName(((await bound()) ?? row).taint) : caller.level;
      if (answer.taint > levelRank(level))
        throw new InterlaneError(
          'POLICY_BLOCKED',
          `result of ${tool} is ${levelName(answer.taint)}, above the ${level} of its reader; let a run read it`,
        );
      return { ok: !answer.isError, tool, result: parsed(answer.text) };
    },
    'explain.route': async (question) => explainRoute(parts.routes(), question),
    'explain.key': async (question) => explainKey(world(), question),
    'explain.send': async (question) => explainSend(world(), question),
    'explain.access': async (question, call) => {
      // What the operator granted a session is part of the answer, also when the question does not know of it.
      const { caller } = question;
      const row = caller.see === undefined ? await find(call, { session: caller.key }).catch(() => undefined) : undefined;
      const see = row && settingsOf(row).see;
      return explainAccess(world(), see === undefined ? question : { ...question, caller: { ...caller, see } });
    },
    'explain.tools': async (question) => explainTools(world(), question, parts.invoker.names()),

    'guests.join': async ({ name, agentId, see, rotate }, call) => {
      const agent = agentId === undefined ? world().agents.defaultId : agentIdOf(agentId);
      const tokenName = `guest:${agent}:${name}`;
      const joined = (await auth.list()).some((token) => token.name === tokenName);
      if (joined && !rotate)
        throw new InterlaneError(
          'TOKEN_EXISTS',
          `guest "${name}" of agent "${agent}" has joined already; choose another name, or rotate to give it a new token and end the old one`,
        );
      // Without a word from the operator a guest sees least; one that gets a new token keeps what it had.
      const { session, created } = await sessions.join(asker(call), { name, agentId, see: see ?? (joined ? undefined : 'tree') });
      const wish = { name: tokenName, kind: 'session' as const, scopes: [], level: 'PUBLIC' as const, sessionKey: session.key };
      const { token } = joined ? await auth.rotate(tokenName, call.caller.level) : await auth.create(wish);
      return {
        key: session.key,
        sessionId: session.id,
        created,
        see: settingsOf(session).see ?? world().visibility,
        token,
        tokenName,
        url: parts.mcpUrl(),
        sentence: guestSentence(session.key),
      };
    },

    'tokens.list': async () => ({ tokens: await auth.list() }),
    'tokens.create': async ({ name, scopes, level, sessionKey }, call) => {
      if (sessionKey === undefined) {
        requireLevel(call.caller.level, level ?? call.caller.level, `token "${name}"`);
        return auth.create({ name, kind: 'operator', scopes: scopes ?? ['operator.read'], level: level ?? call.caller.level });
      }
      if (scopes || level)
        throw new InterlaneError('INVALID_REQUEST', 'token bound to a session has no scopes or level of its own; leave them out');
      const row = await need(call, { session: sessionKey });
      return auth.create({ name, kind: 'session', scopes: [], level: 'PUBLIC', sessionKey: row.key });
    },
    'tokens.signIn': async (_, { caller }) => {
      const { code, expiresAt } = auth.signInCode(caller.level);
      return { url: parts.signInUrl(code), expiresAt };
    },
    'tokens.rotate': ({ name }, { caller }) => auth.rotate(name, caller.level),
    'tokens.revoke': async ({ name }, { caller }) => ({ revoked: await auth.revoke(name, caller.level), name }),
  };
}

/** Who names the life of a session it means is told when that is over. */
function sameLife(row: SessionRow, sessionId: string | undefined): void {
  if (sessionId !== undefined && sessionId !== row.id)
    throw new InterlaneError('SESSION_CHANGED', `session ${JSON.stringify(row.key)} was reset meanwhile; look at it again`);
}

/** What a tool answers is JSON, or plain text. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}

function waitAnswer(run: RunView): WaitAnswer {
  const { runId, state, sessionKey, startedAt, endedAt, error, errorCode, reply, model, usage } = run;
  return {
    runId,
    status: !isTerminal(state) ? 'timeout' : state === 'ok' ? 'ok' : 'error',
    state,
    sessionKey,
    ...(startedAt === undefined ? {} : { startedAt }),
    ...(endedAt === undefined ? {} : { endedAt }),
    ...(error === undefined ? {} : { error }),
    ...(errorCode === undefined ? {} : { errorCode }),
    ...(model === undefined ? {} : { model }),
    ...(usage === undefined ? {} : { usage }),
    ...(reply === undefined ? {} : { terminalReply: { text: reply } }),
  };
}

const agentIds = (engine: Engine) => [...new Set([engine.world.agents.defaultId, ...engine.world.agents.byId.keys()])];
const hash = (text: string) => createHash('sha256').update(text).digest('base64url').slice(0, 22);
