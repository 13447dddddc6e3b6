// The exchange, advanced by the transaction that ends one of its runs: the pure reducer's step becomes rows.
import { reasonOf } from '../errors.ts';
import { advanceExchange, isTelling, type ExchangeState } from '../rules/exchange.ts';
import type { Body } from '../store/contract.ts';
import type { ExchangeRow, RunRow, SessionRow } from '../store/rows.ts';
import { announceContext, replyContext } from './contexts.ts';
import { deliverAnnounce } from './deliver.ts';
import type { Ending } from './end.ts';
import { noteExchange, type EngineCommand, type Tx } from './feed.ts';
import { derivedId } from './ids.ts';
import { passText } from './policy.ts';
import { insertRun } from './queue.ts';

/** A flow that nothing advances is looked at again after this long. */
export const flowDueMs = 3_600_000;
/** Without its target an exchange has nobody to announce it; without its requester it goes straight to the announce. */
const targetGone = 'the target session was reset or closed';

/** Runs in its own savepoint: if it throws, the run still ends, and the flow is `failed`. */
export function* advanceFlow(t: Tx, ending: Ending, run: RunRow, session: SessionRow, reply: string, now: number): Body<void> {
  const exchange = yield* t.one<ExchangeRow>('SELECT * FROM exchanges WHERE pk = ? AND end_reason IS NULL', run.cause_pk);
  if (!exchange) return;
  const advanced = yield* t.attempt(advance(t, ending, exchange, run, session, reply, now));
  if (advanced.ok) return;
  yield* finish(t, exchange, session, 'failed', reasonOf(advanced.error), now);
  ending.flowFailed(exchange.id, advanced.error);
}

function* advance(t: Tx, ending: Ending, exchange: ExchangeRow, run: RunRow, session: SessionRow, reply: string, now: number): Body<void> {
  const target = (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', exchange.tgt_session_pk))!;
  const requester =
    exchange.req_session_pk === null ? undefined : yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', exchange.req_session_pk);
  const phase = exchange.state as ExchangeState['phase'];
  const other = phase === 'announce' ? undefined : session.pk === target.pk ? requester : target;
  const passed = other && reply !== '' ? passText(ending.world, 'reply', session, other, reply).text : undefined;
  const canReplyBack = requester !== undefined && isAlive(requester) && requester.pk !== target.pk;
  const step = advanceExchange(
    { phase, turn: exchange.turn, maxTurns: exchange.max_turns, canReplyBack },
    { ok: run.state === 'ok', reply, mayFlow: passed !== undefined },
  );

  if (phase === 'request' && run.reply_seq !== null) exchange.first_seq = run.reply_seq;
  if (phase !== 'announce' && run.reply_seq !== null && isTelling(reply)) {
    exchange.last_session_pk = session.pk;
    exchange.last_seq = run.reply_seq;
  }
  switch (step.next) {
    case 'turn': {
      const speaker = step.side === 'requester' ? requester! : target;
      if (!isAlive(speaker)) return yield* finish(t, exchange, session, 'done', targetGone, now);
      yield* startTurn(t, exchange, speaker, {
        turn: step.turn,
        state: 'reply',
        text: passed!,
        context: replyContext(session.key, step.turn, exchange.max_turns),
        from: session,
        kind: 'inter_session',
        run,
        now,
      });
      return;
    }
    case 'announce': {
      if (!isAlive(target)) return yield* finish(t, exchange, session, 'done', targetGone, now);
      const context = yield* announceText(t, ending, exchange, requester, target);
      yield* startTurn(t, exchange, target, {
        turn: exchange.max_turns + 1,
        state: 'announce',
        text: 'Announce the result.',
        context,
        from: requester ?? target,
        kind: 'announce',
        run,
        now,
      });
      return;
    }
    case 'deliver': {
      const result = yield* deliverAnnounce(t, ending.world, target, exchange, reply, now);
      return yield* finish(t, exchange, session, 'done', result === 'queued' ? 'announced' : result, now);
    }
    case 'end':
      return yield* finish(t, exchange, session, 'done', step.why, now);
  }
}

interface Turn {
  turn: number;
  state: 'reply' | 'announce';
  text: string;
  context: string;
  from: SessionRow;
  kind: 'inter_session' | 'announce';
  run: RunRow;
  now: number;
}

/** I2. The turn's run id comes from the exchange and the turn, and the pair is unique: a turn cannot be taken twice. */
function* startTurn(t: Tx, exchange: ExchangeRow, speaker: SessionRow, turn: Turn): Body<void> {
  const next = yield* insertRun(t, speaker, {
    runId: derivedId(exchange.id, turn.turn),
    text: turn.text,
    context: turn.context,
    provenance: { kind: turn.kind, sourceSession: turn.from.key, sourceTool: 'sessions_send' },
    principal: `session:${turn.from.id}`,
    taint: turn.kind === 'announce' ? speaker.taint : turn.from.taint,
    mode: 'followup',
    class: 'nested',
    deliver: false,
    cause: 'exchange',
    causePk: exchange.pk,
    rootPk: turn.run.root_pk ?? turn.run.pk,
    hop: exchange.hop,
    budgetMs: turn.run.budget_ms,
    now: turn.now,
  });
  yield* t.run('INSERT INTO exchange_turns (exchange_pk, turn, run_pk) VALUES (?,?,?)', exchange.pk, turn.turn, next.pk);
  exchange.turn = turn.turn;
  exchange.state = turn.state;
  yield* save(t, exchange, turn.now + flowDueMs);
  yield* noteExchange(t, speaker, exchange, turn.state, turn.now);
}

function* announceText(t: Tx, ending: Ending, exchange: ExchangeRow, requester: SessionRow | undefined, target: SessionRow): Body<string> {
  const textAt = function* (sessionPk: number, seq: number): Body<string> {
    return (yield* t.one<{ text: string }>('SELECT text FROM entries WHERE session_pk = ? AND seq = ?', sessionPk, seq))?.text ?? '';
  };
  const request = yield* t.one<{ entry_seq: number | null }>(
    'SELECT entry_seq FROM inputs JOIN exchange_turns USING (run_pk) WHERE exchange_pk = ? AND turn = 0',
    exchange.pk,
  );
  const asked = request?.entry_seq ?? null;
  const firstReply = exchange.first_seq === null ? '' : yield* textAt(target.pk, exchange.first_seq);
  let latestReply: string | undefined;
  if (
    exchange.last_session_pk !== null &&
    exchange.last_seq !== null &&
    !(exchange.last_session_pk === target.pk && exchange.last_seq === exchange.first_seq)
  ) {
    latestReply = yield* textAt(exchange.last_session_pk, exchange.last_seq);
    // The requester's last word has not been in the target's session yet, so carrying it there is asked like any reply.
    if (requester && exchange.last_session_pk === requester.pk)
      latestReply = passText(ending.world, 'reply', requester, target, latestReply).text;
  }
  return announceContext({
    from: requester?.key ?? 'the operator',
    request: asked === null ? '' : yield* textAt(target.pk, asked),
    firstReply,
    latestReply,
  });
}

function* finish(t: Tx, exchange: ExchangeRow, session: SessionRow, state: 'done' | 'failed', reason: string, now: number): Body<void> {
  exchange.state = state;
  exchange.end_reason = reason;
  yield* save(t, exchange, null);
  yield* noteExchange(t, session, exchange, state, now, reason);
}

function* save(t: Tx, exchange: ExchangeRow, dueAt: number | null): Body<void> {
  yield* t.run(
    'UPDATE exchanges SET state = ?, turn = ?, first_seq = ?, last_session_pk = ?, last_seq = ?, end_reason = ?, due_at = ?, version = version + 1 WHERE pk = ?',
    exchange.state,
    exchange.turn,
    exchange.first_seq,
    exchange.last_session_pk,
    exchange.last_seq,
    exchange.end_reason,
    dueAt,
    exchange.pk,
  );
}

/** A flow whose time is over: one that still has a turn to come is given more, one that has none is ended and said to have failed. */
export const sweepFlows: EngineCommand<{ now: number }, number> = {
  name: 'sweep flows',
  *body(t, { now }) {
    const due = yield* t.all<ExchangeRow>('SELECT * FROM exchanges WHERE due_at <= ? ORDER BY due_at LIMIT 50', now);
    for (const exchange of due) {
      const open = yield* t.one(
        'SELECT 1 FROM exchange_turns JOIN runs ON runs.pk = run_pk WHERE exchange_pk = ? AND ended_at IS NULL',
        exchange.pk,
      );
      const target = (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', exchange.tgt_session_pk))!;
      if (open) yield* t.run('UPDATE exchanges SET due_at = ? WHERE pk = ?', now + flowDueMs, exchange.pk);
      else yield* finish(t, exchange, target, 'failed', 'nothing was left that could advance it', now);
    }
    return due.length;
  },
};

const isAlive = (session: SessionRow) => session.current === 1 && session.state === 'live';
