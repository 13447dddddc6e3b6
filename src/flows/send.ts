// A message from one session to another: policy, loop and cycle checks, the target's run, the exchange and the wait, in one transaction.
import { noteExchange, type EngineCommand, type Tx } from '../engine/feed.ts';
import type { Current } from '../engine/flow.ts';
import { derivedId } from '../engine/ids.ts';
import { fromSession } from '../engine/input.ts';
import { destinationOf, filterForSession } from '../engine/policy.ts';
import { enqueue } from '../engine/queue.ts';
import { requireLease, type Lease } from '../engine/lease.ts';
import { InterlaneError } from '../errors.ts';
import type { Destination } from '../protocol/session.ts';
import type { Body } from '../store/contract.ts';
import type { RunRow, SessionRow } from '../store/rows.ts';
import * as calls from '../store/tables/tool-calls.ts';
import * as exchanges from '../store/tables/exchanges.ts';
import * as offers from '../store/tables/offers.ts';
import * as runs from '../store/tables/runs.ts';
import * as sessions from '../store/tables/sessions.ts';
import * as waits from '../store/tables/waits.ts';
import { flowDueMs } from './exchange.ts';

/** The calling run and the place of this call in it; or an outside session and an id of the call. */
export type SendOrigin = (Lease & { step: number; idx: number }) | { sessionPk: number; callId: string };

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

/** Keyed by the call: repeated after a crash, it finds its first result. */
export function sendToSession(current: Current): EngineCommand<SendArgs, Sent> {
  return {
    name: 'send to session',
    texts: ({ text }) => [{ hook: 'PRE_CONTEXT_INJECTION', text }],
    *body(t, args) {
      const { world } = current();
      if (args.waitMs > 0) yield* t.lock('waits');
      const { run, caller, destination, exchangeId, ...chain } = yield* senderOf(t, args.from);
      const runId = derivedId(exchangeId, 0);
      if (yield* exchanges.byId(t, exchangeId)) return { runId, waiting: false };
      const target = yield* sessions.live(t, args.targetSessionPk);
      if (!target) throw new InterlaneError('SESSION_NOT_FOUND', 'session was reset or closed a moment ago; see sessions_list');
      yield* t.lock(`lane:${target.key}`);
      const { decision, text } = filterForSession(world, 'send', { session: caller, destination }, target, args.text);
      if (text === undefined)
        throw new InterlaneError(
          decision.code ?? 'POLICY_BLOCKED',
          decision.hidden ? 'session was not found among the sessions you can see' : `message was not sent: ${decision.why}`,
        );
      const hop = chain.hop + 1;
      yield* refuseLoops(t, hop, caller, target, args);

      const exchange = yield* exchanges.insert(t, {
        id: exchangeId,
        requesterPk: caller.pk,
        targetPk: target.pk,
        origin: run && { runPk: run.pk, step: run.step, idx: run.idx },
        maxTurns: args.maxTurns,
        hop,
        dueAt: args.now + flowDueMs,
        now: args.now,
      });
      const input = fromSession({
        runId,
        text,
        context: { kind: 'request', from: caller.key },
        from: caller,
        kind: 'inter_session',
        taint: caller.taint,
        flow: { kind: 'exchange', pk: exchange.pk },
        chain: { rootPk: chain.rootPk, hop },
        budgetMs: run?.budget_ms,
      });
      const made = yield* enqueue(t, target, input, args.now);
      yield* exchanges.addTurn(t, exchange.pk, 0, made.pk);
      noteExchange(t, target, exchange, 'request', args.now);
      // Only a run can be parked; an outside caller waits for the run itself.
      if (run === undefined || args.waitMs === 0) return { runId, waiting: false };
      yield* waits.insert(t, {
        run_pk: run.pk,
        step: run.step,
        idx: run.idx,
        lane: run.lane,
        target_kind: 'run',
        target_pk: made.pk,
        target_lane: made.lane,
        due_at: args.now + args.waitMs,
      });
      yield* calls.waiting(t, run.pk, run.step, run.idx);
      return { runId, waiting: true };
    },
  };
}

interface Sender {
  run: (Pick<RunRow, 'pk' | 'lane' | 'budget_ms'> & { step: number; idx: number }) | undefined;
  caller: SessionRow;
  /** Of the turn that sends it. */
  destination: Destination | undefined;
  exchangeId: string;
  /** The number of messages since the run that started the chain, and that run. */
  hop: number;
  rootPk: number | undefined;
}

/** I3. A run sends only while this gateway has its lease. The exchange's id is derived from the call, so that a repeated call finds it. */
function* senderOf(t: Tx, from: SendOrigin): Body<Sender> {
  if ('callId' in from) {
    const caller = yield* sessions.live(t, from.sessionPk);
    if (!caller) throw new InterlaneError('SESSION_NOT_FOUND', 'session of the caller was reset or closed');
    // A message that a guest sends during a turn belongs to that turn's chain, so that guests cannot send in circles for ever.
    const offer = yield* offers.openIn(t, caller.key);
    const turn = offer?.state === 'taken' ? yield* runs.get(t, offer.run_pk) : undefined;
    return { run: undefined, caller, exchangeId: derivedId(caller.id, 'call', from.callId, 'exchange'), ...chainOf(turn) };
  }
  const { step, idx, ...lease } = from;
  const { run, session: caller } = yield* requireLease(t, lease);
  return { run: { ...run, step, idx }, caller, exchangeId: derivedId(run.id, step, idx, 'exchange'), ...chainOf(run) };
}

const chainOf = (run: RunRow | undefined) => ({
  hop: run?.hop ?? 0,
  rootPk: run?.root_pk ?? run?.pk,
  destination: run && destinationOf(run),
});

function* refuseLoops(t: Tx, hop: number, caller: SessionRow, target: SessionRow, args: SendArgs): Body<void> {
  if (hop > mostHops)
    throw new InterlaneError(
      'LOOP_LIMIT',
      `message was not sent: its chain of messages is ${hop} long, and at most ${mostHops} are allowed; answer without sending`,
    );
  if ((yield* exchanges.recentBetween(t, caller.pk, target.pk, args.now - pairWindowMs, pairLimit)) >= pairLimit)
    throw new InterlaneError(
      'LOOP_LIMIT',
      `message was not sent: you sent ${pairLimit} messages to this session in the last minute; wait a minute`,
    );
  if (args.waitMs > 0 && (yield* waitsFor(t, target.key, caller.key)))
    throw new InterlaneError(
      'CYCLIC_WAIT',
      'message was not sent: that session waits for this one, so this wait would never end; send with timeoutSeconds 0',
    );
}

/** Whether a session waits for another, directly or through the sessions it waits for. */
function* waitsFor(t: Tx, from: string, to: string): Body<boolean> {
  const seen = new Set<string>();
  const next = [from];
  while (next.length > 0) {
    const lane = next.pop()!;
    if (lane === to) return true;
    if (seen.has(lane)) continue;
    seen.add(lane);
    next.push(...(yield* waits.targetsOf(t, lane)));
  }
  return false;
}
