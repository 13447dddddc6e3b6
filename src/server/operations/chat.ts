// Handlers of `chat.*`, `agent`, `send` and runs: messages in, history out, waits for the end of runs.
import { InterlaneError } from '../../errors.ts';
import type { chat as table } from '../../protocol/operations/chat.ts';
import type { WaitAnswer } from '../../protocol/result.ts';
import { isTerminal, type RunView } from '../../protocol/run.ts';
import { historyAfter, historyPage, wireMessage } from '../../sessions/history.ts';
import { runsPage } from '../../sessions/runs.ts';
import { sameLife, type Context, type Handlers } from './context.ts';

const defaultWaitMs = 30_000;
/** As long as a connection lives. */
const noLimitMs = 2 ** 31 - 1;

export function chatHandlers(context: Context): Handlers<keyof typeof table> {
  const { parts, asker, need, needLife, foundOrNew, describe, started, knowable, waited, abort, view } = context;
  const { store, sessions, cursors } = context.parts;
  return {
    'chat.history': async ({ sessionKey, agentId, sessionId, life, limit = 200, offset, cursor, maxChars }, call) => {
      const row = await needLife(call, { session: sessionKey, agentId, life });
      sameLife(row, sessionId);
      const sessionInfo = await describe(call, row);
      const end = row.next_seq - 1;
      // One character more tells whether a text is cut.
      const chars = maxChars === undefined ? undefined : maxChars + 1;
      if (cursor !== undefined) {
        const after = cursors.seqOf('newer', row.id, cursor);
        if (typeof after !== 'number' || after > end) return { kind: 'reset' };
        const { messages, more } = await store.read(historyAfter(view(call).viewer), { sessionPk: row.pk, after, limit, chars }, call.pace);
        const last = messages.at(-1)?.seq ?? after;
        return {
          kind: 'delta',
          messages: messages.map((message) => wireMessage(message, maxChars)),
          hasMore: more,
          deltaCursor: cursors.place('newer', row.id, last),
          sessionInfo,
        };
      }
      const before = offset === undefined ? undefined : Math.max(0, row.next_seq - offset);
      const page = { sessionPk: row.pk, limit, before, includeTools: true, runIds: true, chars };
      const { messages, next } = await store.read(historyPage(view(call).viewer), page, call.pace);
      return {
        sessionKey: row.key,
        sessionId: row.id,
        messages: messages.map((message) => wireMessage(message, maxChars)),
        hasMore: next !== undefined,
        ...(offset === undefined ? {} : { offset }),
        ...(next === undefined ? {} : { nextOffset: row.next_seq - next }),
        totalMessages: end,
        deltaCursor: cursors.place('newer', row.id, offset === undefined ? (messages.at(-1)?.seq ?? end) : end),
        sessionInfo,
      };
    },
    'chat.send': async ({ sessionKey, agentId, sessionId, message, queueMode, deliver, timeoutMs, idempotencyKey }, call) => {
      const spoken = {
        ...(await foundOrNew(call, { session: sessionKey, agentId }, sessionId)),
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
      return { ok: true, messageId: id, ...(seq === undefined ? {} : { messageSeq: seq }) };
    },

    agent: async ({ message, agentId, sessionKey, sessionId, deliver, timeout, idempotencyKey }, call) => {
      const spoken = {
        ...(await foundOrNew(call, { session: sessionKey ?? sessionId ?? 'main', agentId }, sessionId)),
        text: message,
        method: 'agent',
        idempotencyKey,
        deliver,
        // A run whose answer goes nowhere sends nothing that a send policy could refuse.
        sends: deliver ?? false,
        budgetMs: timeout === undefined ? undefined : timeout * 1000,
      };
      const { runId, agentId: agent } = await sessions.say(asker(call), spoken);
      const common = { runId, sessionKey: spoken.sessionKey, agentId: agent };
      const acceptedAt = parts.now();
      // A caller that takes one answer gets this one; a connection gets the final one too, under the same id.
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
        const known = [...parts.channels].join(', ');
        const what = name === undefined ? 'no channel is configured yet' : `channel ${JSON.stringify(name)} is not configured`;
        throw new InterlaneError('CHANNEL_NOT_CONFIGURED', known === '' ? what : `${what}; there are: ${known}`);
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
      const wish = { sessionPk: row?.pk, states, before: cursors.pagePosition('runs', cursor), limit };
      const { runs, next } = await store.read(runsPage(view(call)), wish, call.pace);
      return { runs, ...(next === undefined ? {} : { nextCursor: cursors.page('runs', next) }) };
    },
  };
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
