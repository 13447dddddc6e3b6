// The exchange: one sessions_send. Send (request, run and wait) → reply-back turns → announce → delivery, each step in the transaction that
// ends the turn before it.
import type { TurnContext } from '../protocol/transcript.ts';
import { advanceExchange, isTelling, type ExchangeState, type ExchangeStep } from '../rules/exchange.ts';
import type { Body } from '../store/contract.ts';
import type { ExchangeRow, SessionRow } from '../store/rows.ts';
import * as entries from '../store/tables/entries.ts';
import * as exchanges from '../store/tables/exchanges.ts';
import * as sessions from '../store/tables/sessions.ts';
import { deliverAnnounce } from '../engine/deliver.ts';
import { noteExchange, type Tx } from '../engine/feed.ts';
import type { Flow, FlowEnd, Kernel } from '../engine/flow.ts';
import { derivedId } from '../engine/ids.ts';
import { fromSession } from '../engine/input.ts';
import { destinationOf, filterForSession } from '../engine/policy.ts';
import { enqueue } from '../engine/queue.ts';
import { announceRequest } from '../wording.ts';

/** The sweep checks a flow that did not advance for this long. */
export const flowDueMs = 3_600_000;
const sweepRows = 50;
/** Without its target nothing announces an exchange; without its requester it goes straight to the announce. */
const targetGone = 'the target session was reset or closed';

/** An exchange, its two sides, and how the turn that just ended went. */
interface Loaded {
  exchange: ExchangeRow;
  target: SessionRow;
  requester: SessionRow | undefined;
  end: FlowEnd;
  /** The reply as policy lets the other side read it; undefined if policy blocks it. */
  filtered: string | undefined;
  state: ExchangeState;
}

export const exchangeFlow: Flow<Loaded, ExchangeStep> = {
  kind: 'exchange',

  *load(t, { world }, pk, end) {
    const exchange = yield* exchanges.open(t, pk);
    if (!exchange) return undefined;
    const { session, run, reply } = end;
    const { tgt_session_pk: targetPk, req_session_pk: requesterPk } = exchange;
    // A key that nothing has finds nothing: an exchange that an operator began has no requester.
    const [target, requester] = yield* t.together(sessions.get(t, targetPk), sessions.byPk(t, requesterPk ?? 0));
    const phase = exchange.state as ExchangeState['phase'];
    if (phase === 'request' && run.reply_seq !== null) exchange.first_seq = run.reply_seq;
    if (phase !== 'announce' && run.reply_seq !== null && isTelling(reply)) {
      exchange.last_session_pk = session.pk;
      exchange.last_seq = run.reply_seq;
    }
    const other = phase === 'announce' ? undefined : session.pk === target.pk ? requester : target;
    const speaker = { session, destination: destinationOf(run) };
    const filtered = other && reply !== '' ? filterForSession(world, 'reply', speaker, other, reply).text : undefined;
    const canReplyBack = requester !== undefined && isAlive(requester) && requester.pk !== target.pk;
    const state = { phase, turn: exchange.turn, maxTurns: exchange.max_turns, canReplyBack };
    return { exchange, target, requester, end, filtered, state };
  },

  next: ({ state, end, filtered }) =>
    advanceExchange(state, { ok: end.run.state === 'ok', reply: end.reply, mayFlow: filtered !== undefined }),

  *apply(t, kernel, loaded, step) {
    const { exchange, target, requester, end } = loaded;
    switch (step.next) {
      case 'turn': {
        const speaker = step.side === 'requester' ? requester! : target;
        if (!isAlive(speaker)) return yield* finish(t, exchange, end.session, 'done', targetGone, end.now);
        const from = end.session;
        const context = { kind: 'reply', from: from.key, turn: step.turn, of: exchange.max_turns, side: step.side } as const;
        const turn = { turn: step.turn, state: 'reply', text: loaded.filtered!, context, from, taint: from.taint } as const;
        return yield* startTurn(t, exchange, speaker, turn, end);
      }
      case 'announce': {
        if (!isAlive(target)) return yield* finish(t, exchange, end.session, 'done', targetGone, end.now);
        const context = yield* announceContext(t, kernel, exchange, requester, target);
        const from = requester ?? target;
        const turn = {
          turn: exchange.max_turns + 1,
          state: 'announce',
          text: announceRequest,
          context,
          from,
          taint: target.taint,
        } as const;
        return yield* startTurn(t, exchange, target, turn, end);
      }
      case 'deliver': {
        const result = yield* deliverAnnounce(t, kernel.world, target, exchange, end.reply, end.now);
        return yield* finish(t, exchange, end.session, 'done', result === 'queued' ? 'announced' : result, end.now);
      }
      case 'end':
        return yield* finish(t, exchange, end.session, 'done', step.why, end.now);
    }
  },

  *fail(t, pk, end, why) {
    const exchange = yield* exchanges.open(t, pk);
    if (exchange) yield* finish(t, exchange, end.session, 'failed', why, end.now);
  },

  /** Overdue flows: extends one that still has an open turn, otherwise marks it failed. */
  *sweep(t, _, now) {
    const due = yield* exchanges.due(t, now, sweepRows);
    for (const exchange of due) {
      const target = yield* sessions.get(t, exchange.tgt_session_pk);
      if (yield* exchanges.hasOpenTurn(t, exchange.pk)) yield* exchanges.save(t, exchange, now + flowDueMs);
      else yield* finish(t, exchange, target, 'failed', 'nothing was left that could advance it', now);
    }
    return due.length;
  },

  *moveDue(t, byMs) {
    yield* exchanges.moveDue(t, byMs);
  },

  *openFor(t, session) {
    return (yield* exchanges.isOpenFor(t, session.pk)) ? 'an exchange' : undefined;
  },
};

interface Turn {
  turn: number;
  state: 'reply' | 'announce';
  text: string;
  context: TurnContext;
  from: SessionRow;
  taint: number;
}

/** I2. The turn's run id comes from the exchange and the turn, and the pair is unique: a turn cannot be taken twice. */
function* startTurn(t: Tx, exchange: ExchangeRow, speaker: SessionRow, turn: Turn, { run, now }: FlowEnd): Body<void> {
  const input = fromSession({
    runId: derivedId(exchange.id, turn.turn),
    text: turn.text,
    context: turn.context,
    from: turn.from,
    kind: turn.state === 'announce' ? 'announce' : 'inter_session',
    taint: turn.taint,
    flow: { kind: 'exchange', pk: exchange.pk },
    chain: { rootPk: run.root_pk ?? run.pk, hop: exchange.hop },
    budgetMs: run.budget_ms,
  });
  const next = yield* enqueue(t, speaker, input, now);
  yield* exchanges.addTurn(t, exchange.pk, turn.turn, next.pk);
  exchange.turn = turn.turn;
  exchange.state = turn.state;
  yield* exchanges.save(t, exchange, now + flowDueMs);
  noteExchange(t, speaker, exchange, turn.state, now);
}

function* announceContext(
  t: Tx,
  { world }: Kernel,
  exchange: ExchangeRow,
  requester: SessionRow | undefined,
  target: SessionRow,
): Body<TurnContext> {
  const asked = yield* exchanges.requestSeq(t, exchange.pk);
  const [request, firstReply] = yield* t.together(entries.textAt(t, target.pk, asked), entries.textAt(t, target.pk, exchange.first_seq));
  const saidLast = exchange.last_session_pk;
  let latestReply: string | undefined;
  if (saidLast !== null && !(saidLast === target.pk && exchange.last_seq === exchange.first_seq)) {
    latestReply = yield* entries.textAt(t, saidLast, exchange.last_seq);
    // The requester's last reply was never in the target's session, so it needs a decision like any reply.
    if (requester && saidLast === requester.pk)
      latestReply = filterForSession(world, 'reply', { session: requester }, target, latestReply).text;
  }
  return {
    kind: 'announce',
    ...(requester && { from: requester.key }),
    request,
    firstReply,
    ...(latestReply !== undefined && { latestReply }),
  };
}

function* finish(t: Tx, exchange: ExchangeRow, session: SessionRow, state: 'done' | 'failed', reason: string, now: number): Body<void> {
  exchange.state = state;
  exchange.end_reason = reason;
  yield* exchanges.save(t, exchange, null);
  noteExchange(t, session, exchange, state, now, reason);
}

const isAlive = (session: SessionRow) => session.current === 1 && session.state === 'live';
