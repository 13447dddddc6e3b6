// A message from one session to another: policy, loop and cycle checks, the target's run, the exchange and the wait, in one transaction.
import { InterlaneError } from '../errors.ts';
import type { Body } from '../store/contract.ts';
import type { ExchangeRow, RunRow, SessionRow } from '../store/rows.ts';
import { requestContext } from './contexts.ts';
import type { Ending } from './end.ts';
import { noteExchange, type EngineCommand, type Tx } from './feed.ts';
import { flowDueMs } from './flows.ts';
import { derivedId } from './ids.ts';
import { passText } from './policy.ts';
import { insertRun } from './queue.ts';

/** The calling run and which of its tool calls this is; or a session that is driven from outside, and a name for the call. */
export type SendOrigin = { runPk: number; epoch: number; step: number; idx: number } | { sessionPk: number; callId: string };

export interface SendArgs {
  from: SendOrigin;
  targetSessionPk: number;
  text: string;
  /** 0: do not wait. */
  waitMs: number;
  maxTurns: number;
  now: number;
}

export interface Sent {
  runId: string;
  waiting: boolean;
}

const mostHops = 12;
const pairWindowMs = 60_000;
const pairLimit = 30;

/** Keyed by the call: done again after a crash, it finds what it did before. */
export function sendToSession(ending: Ending): EngineCommand<SendArgs, Sent> {
  return {
    name: 'send to session',
    *body(t, args) {
      const { run, caller, exchangeId, ...chain } = yield* senderOf(t, args.from);
      if (yield* t.one<ExchangeRow>('SELECT * FROM exchanges WHERE id = ?', exchangeId))
        return { runId: derivedId(exchangeId, 0), waiting: false };
      const target = yield* t.one<SessionRow>(
        `SELECT * FROM sessions WHERE pk = ? AND current = 1 AND state = 'live'`,
        args.targetSessionPk,
      );
      if (!target) throw new InterlaneError('SESSION_NOT_FOUND', 'session was reset or closed a moment ago; see sessions_list');
      const { decision, text } = passText(ending.world, 'send', caller, target, args.text);
      if (text === undefined)
        throw new InterlaneError(
          decision.code ?? 'POLICY_BLOCKED',
          decision.hidden ? 'session was not found among the sessions you can see' : `message was not sent: ${decision.why}`,
        );
      const hop = chain.hop + 1;
      yield* refuseLoops(t, hop, caller, target, args);

      const { lastId: exchangePk } = yield* t.run(
        `INSERT INTO exchanges (id, req_session_pk, tgt_session_pk, origin_run_pk, origin_step, origin_idx, state, max_turns, hop, due_at, at)
         VALUES (?,?,?,?,?,?,'request',?,?,?,?)`,
        exchangeId,
        caller.pk,
        target.pk,
        run?.pk ?? null,
        run?.step ?? null,
        run?.idx ?? null,
        args.maxTurns,
        hop,
        args.now + flowDueMs,
        args.now,
      );
      const made = yield* insertRun(t, target, {
        runId: derivedId(exchangeId, 0),
        text,
        context: requestContext(caller.key),
        provenance: { kind: 'inter_session', sourceSession: caller.key, sourceTool: 'sessions_send' },
        principal: `session:${caller.id}`,
        taint: caller.taint,
        mode: 'followup',
        class: 'nested',
        deliver: false,
        cause: 'exchange',
        causePk: exchangePk,
        rootPk: chain.rootPk,
        hop,
        budgetMs: run?.budget_ms,
        now: args.now,
      });
      yield* t.run('INSERT INTO exchange_turns (exchange_pk, turn, run_pk) VALUES (?,0,?)', exchangePk, made.pk);
      yield* noteExchange(t, target, { pk: exchangePk, id: exchangeId, turn: 0 }, 'request', args.now);
      // Only a run can be parked; whoever calls from outside waits for the run itself.
      const waiting = run !== undefined && args.waitMs > 0;
      if (waiting) {
        yield* t.run(
          'INSERT INTO waits (run_pk, step, idx, lane, target_run_pk, target_lane, due_at) VALUES (?,?,?,?,?,?,?)',
          run.pk,
          run.step,
          run.idx,
          run.lane,
          made.pk,
          made.lane,
          args.now + args.waitMs,
        );
        yield* t.run(`UPDATE tool_calls SET state = 'waiting' WHERE run_pk = ? AND step = ? AND idx = ?`, run.pk, run.step, run.idx);
      }
      return { runId: made.id, waiting };
    },
  };
}

interface Sender {
  run: SendingRun | undefined;
  caller: SessionRow;
  exchangeId: string;
  /** How far it is from what started it, and what that was. */
  hop: number;
  rootPk: number | undefined;
}

interface SendingRun {
  pk: number;
  lane: string;
  budget_ms: number;
  step: number;
  idx: number;
}

/** I3. A run sends only while this gateway holds it. The exchange's id comes from the call, so that doing it again finds it. */
function* senderOf(t: Tx, from: SendOrigin): Body<Sender> {
  if ('callId' in from) {
    const caller = yield* t.one<SessionRow>(`SELECT * FROM sessions WHERE pk = ? AND current = 1 AND state = 'live'`, from.sessionPk);
    if (!caller) throw new InterlaneError('SESSION_NOT_FOUND', 'session of the caller was reset or closed');
    // What a guest sends while it has a turn was started by that turn, so that guests cannot send in circles for ever.
    const turn = yield* t.one<RunRow>(
      `SELECT runs.* FROM offers JOIN runs ON runs.pk = offers.run_pk WHERE offers.lane = ? AND offers.state = 'taken'`,
      caller.key,
    );
    return { run: undefined, caller, exchangeId: derivedId(caller.id, 'call', from.callId, 'exchange'), ...chainOf(turn) };
  }
  const { runPk, epoch, step, idx } = from;
  const run = yield* t.one<RunRow>(`SELECT * FROM runs WHERE pk = ? AND epoch = ? AND state = 'running'`, runPk, epoch);
  if (!run) throw new InterlaneError('LEASE_LOST', 'run is no longer held by this gateway');
  const caller = (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE pk = ?', run.session_pk))!;
  return { run: { ...run, step, idx }, caller, exchangeId: derivedId(run.id, step, idx, 'exchange'), ...chainOf(run) };
}

const chainOf = (run: RunRow | undefined) => ({ hop: run?.hop ?? 0, rootPk: run?.root_pk ?? run?.pk });

function* refuseLoops(t: Tx, hop: number, caller: SessionRow, target: SessionRow, args: SendArgs): Body<void> {
  if (hop > mostHops)
    throw new InterlaneError(
      'LOOP_LIMIT',
      `message was not sent: it is ${hop} messages away from what started it, and at most ${mostHops} are allowed`,
    );
  const recent = yield* t.one<{ n: number }>(
    'SELECT count(*) AS n FROM (SELECT 1 FROM exchanges WHERE req_session_pk = ? AND tgt_session_pk = ? AND at > ? LIMIT ?)',
    caller.pk,
    target.pk,
    args.now - pairWindowMs,
    pairLimit,
  );
  if (recent!.n >= pairLimit)
    throw new InterlaneError(
      'LOOP_LIMIT',
      `message was not sent: ${pairLimit} messages went to this session in the last minute; wait a little`,
    );
  if (args.waitMs > 0 && (yield* waitsFor(t, target.key, caller.key))) {
    throw new InterlaneError(
      'CYCLIC_WAIT',
      'message was not sent: that session is waiting for this one, so waiting for it would never end; send with timeoutSeconds 0',
    );
  }
}

/** Whether a session, or one it waits for, waits for another. Edges are between lanes, so a run queued behind a live one counts. */
function* waitsFor(t: Tx, from: string, to: string): Body<boolean> {
  const seen = new Set<string>();
  const next = [from];
  while (next.length > 0) {
    const lane = next.pop()!;
    if (lane === to) return true;
    if (seen.has(lane)) continue;
    seen.add(lane);
    const edges = yield* t.all<{ target_lane: string }>('SELECT target_lane FROM waits WHERE lane = ?', lane);
    next.push(...edges.map((edge) => edge.target_lane));
  }
  return false;
}
