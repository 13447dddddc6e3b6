// Handlers of `sessions.*`: find, list, open, patch, close, send into, subscribe to.
import { InterlaneError } from '../../errors.ts';
import type { ReadParams } from '../../protocol/operations/all.ts';
import { largestOffset, type sessions as table } from '../../protocol/operations/sessions.ts';
import type { SessionsPage } from '../../protocol/result.ts';
import { isKnownAgent, keyContext } from '../../rules/agents.ts';
import { candidates, earlierLives, findLife, keyMeant, requireLife } from '../../sessions/find.ts';
import { describeSessions, listSessions } from '../../sessions/list.ts';
import { previewSessions } from '../../sessions/preview.ts';
import { errorShape } from '../failure.ts';
import { requireScope } from '../rights.ts';
import { sameLife, type Call, type Context, type Handlers } from './context.ts';

export function sessionHandlers(context: Context): Handlers<keyof typeof table> {
  const { parts, world, asker, operator, find, need, describe, started, abort, subscriptions, view } = context;
  const { store, engine, sessions, cursors } = context.parts;
  const list = async (wish: ReadParams<'sessions.list'>, call: Call): Promise<SessionsPage> => {
    if (wish.cursor !== undefined && wish.sortBy === 'lastInteractionAt')
      throw new InterlaneError('INVALID_REQUEST', 'cursor pages in the order of updatedAt; with sortBy "lastInteractionAt" give offset');
    const limit = Math.min(wish.limit ?? 100, 1000);
    const offset = wish.offset ?? 0;
    const {
      sessions: rows,
      next,
      full,
      total,
    } = await store.read(
      listSessions(view(call)),
      {
        limit,
        skip: offset,
        before: cursors.pagePosition('sessions', wish.cursor),
        activeSince: wish.activeMinutes === undefined ? undefined : parts.now() - wish.activeMinutes * 60_000,
        agentId: wish.agentId,
        spawnedBy: wish.spawnedBy,
        label: wish.label,
        search: wish.search,
        kinds: wish.kinds,
        archived: wish.archived,
        pinned: wish.pinned,
        pinnedFirst: true,
        preview: wish.includeLastMessage === true,
        reader: wish.includeUnread === true ? asker(call).principal : undefined,
        sortBy: wish.sortBy,
      },
      call.pace,
    );
    const { defaultId } = world().agents;
    return {
      ts: parts.now(),
      count: rows.length,
      ...(total === undefined ? {} : { totalCount: total }),
      limitApplied: limit,
      hasMore: next !== undefined || full,
      // A search that has read enough for one request goes on by cursor only, and so does a list that is far down.
      nextOffset: full && offset + rows.length <= largestOffset ? offset + rows.length : null,
      ...(next === undefined ? {} : { nextCursor: cursors.page('sessions', next) }),
      defaults: { defaultAgentId: defaultId, mainKey: keyContext(world().agents, defaultId).mainKey },
      sessions: rows,
    };
  };

  /** A cursor that cannot be read is answered as it came: following from it resets again. */
  const start = async (cursor: string | undefined) => {
    if (cursor !== undefined) return { from: cursors.followFrom(cursor), cursor };
    const from = await parts.position();
    return { from, cursor: cursors.now(from) };
  };

  return {
    'sessions.list': (wish, call) => list(wish, call),
    'sessions.describe': async ({ key, agentId, life, includeLastMessage, includeUnread }, call) => {
      const row = await store.read(findLife(view(call)), { session: key, agentId, life }, call.pace);
      return { session: row ? await describe(call, row, includeLastMessage, includeUnread) : null };
    },
    'sessions.lives': async ({ key, agentId, limit = 100, before }, call) => {
      const named = await store.read(requireLife(view(call)), { session: key, agentId }, call.pace);
      const row = named.current === 1 ? named : ((await find(call, { session: named.key })) ?? named);
      const newest = before === undefined ? [row] : [];
      const wish = { key: row.key, before: before ?? row.life, limit: limit - newest.length };
      const { rows: older, next } = await store.read(earlierLives(view(call)), wish, call.pace);
      const lives = await store.read(describeSessions(view(call)), { rows: [...newest, ...older] }, call.pace);
      return { key: row.key, lives, ...(next === undefined ? {} : { nextBefore: next }) };
    },
    'sessions.resolve': async ({ key, sessionId, label, shortId, agentId, spawnedBy, allowMissing }, call) => {
      const given = [key, sessionId, label, shortId].filter((one) => one !== undefined);
      if (given.length !== 1)
        throw new InterlaneError('INVALID_REQUEST', 'session reference needs exactly one of key, sessionId, label and shortId');
      let rows = await store.read(candidates(view(call)), { session: key ?? sessionId, label, shortId, agentId }, call.pace);
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
      // Its error suggests similar sessions.
      if (key !== undefined || spawnedBy === undefined) await need(call, { session: key ?? sessionId, label, shortId, agentId });
      throw new InterlaneError('SESSION_NOT_FOUND', `session ${JSON.stringify(given[0]!.slice(0, 200))} was not found; see sessions.list`);
    },
    'sessions.preview': async ({ keys, limit = 5, maxChars = 240 }, call) => ({
      ts: parts.now(),
      ...(await store.read(previewSessions(view(call)), { keys, limit, maxChars }, call.pace)),
    }),
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
        // The session exists whether or not the message was accepted, so the answer says both.
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
      if (row.kind === 'main' && isKnownAgent(world().agents, row.agent))
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
      const { cursor: given, ...filter } = wish;
      const { from, cursor } = await start(given);
      subscriptions(call).all(from);
      const listed = Object.keys(filter).length > 0 ? { list: await list(filter, call) } : {};
      return { subscribed: true, cursor, ...listed };
    },
    'sessions.unsubscribe': async (_, call) => {
      subscriptions(call).noMore();
      return { subscribed: false };
    },
    'sessions.messages.subscribe': async ({ key, agentId, cursor: given }, call) => {
      const meant = (await find(call, { session: key, agentId }))?.key ?? keyMeant(world(), { session: key, agentId });
      const { from, cursor } = await start(given);
      subscriptions(call).key(meant, from);
      return { subscribed: true, key: meant, cursor };
    },
    'sessions.messages.unsubscribe': async ({ key, agentId }, call) => {
      const meant = (await find(call, { session: key, agentId }))?.key ?? keyMeant(world(), { session: key, agentId });
      subscriptions(call).noMoreOf(meant);
      return { subscribed: false, key: meant };
    },
  };
}
