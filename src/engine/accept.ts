// Accepting an input: one transaction, acknowledged after its commit. The same request sent again finds the same run.
import { InterlaneError } from '../errors.ts';
import type { Destination } from '../protocol/session.ts';
import { refuseAgentName, requireAgent } from '../rules/agents.ts';
import { keyReserved } from '../rules/session-key.ts';
import type { Body } from '../store/contract.ts';
import * as idempotency from '../store/tables/idempotency.ts';
import * as runs from '../store/tables/runs.ts';
import * as sessions from '../store/tables/sessions.ts';
import { noteSession, type EngineCommand, type Tx } from './feed.ts';
import type { Current } from './flow.ts';
import { existenceOf, requireClearance, requireOpenable, visibleToOperator, type Operator } from './policy.ts';
import { enqueue, type Input } from './queue.ts';
import { rememberDelivery, stopActive } from './sessions.ts';

export interface AcceptArgs {
  sessionKey: string;
  input: Input;
  /** Opens the session if it is missing. Routing gives this, a tool never does. */
  open?: sessions.NewSession | undefined;
  deliveryContext?: Destination | undefined;
  /** The operator that sends the input: its token must be allowed to see the session, and the send policy must allow answers. */
  operator?: Operator | undefined;
  idempotency?: idempotency.Idempotency | undefined;
  now: number;
}

export interface Accepted {
  runId: string;
  sessionId: string;
  sessionKey: string;
  agentId: string;
  /** The same request was accepted before; this is its run. */
  repeated: boolean;
  /** Runs whose stop was requested. */
  stopping: number[];
}

export function accept(current: Current): EngineCommand<AcceptArgs, Accepted> {
  return {
    name: 'accept',
    *body(t, args) {
      const kernel = current();
      yield* t.lock(`lane:${args.sessionKey}`);
      const before = args.idempotency && (yield* repeated(t, args.idempotency));
      if (before) return before;
      let session = yield* sessions.current(t, args.sessionKey);
      const isNew = !session && args.open !== undefined;
      if (!session && args.open) {
        if (args.operator) {
          refuseAgentName(kernel.world.agents, args.sessionKey);
          requireOpenable(kernel.world, args.sessionKey, args.operator);
        }
        session = yield* sessions.insert(t, args.sessionKey, args.open, existenceOf(kernel.world, args.sessionKey), args.now);
      }
      if (args.operator) {
        const seen = visibleToOperator(kernel.world, session, args.operator, args.input.destination);
        // The sender could have opened the session if the key were free.
        if (session && !seen && args.open) {
          refuseAgentName(kernel.world.agents, args.sessionKey);
          throw keyReserved(args.sessionKey);
        }
        session = seen;
      }
      if (!session) throw new InterlaneError('SESSION_NOT_FOUND', `session ${JSON.stringify(args.sessionKey)} does not exist`);
      requireAgent(kernel.world.agents, session.agent);
      requireClearance(kernel.world, session, args.input.taint, 'message');
      // I8. The label rises here and not when the turn starts: nothing of a message that waits shows below its level.
      if (session.taint < args.input.taint && (yield* sessions.raise(t, session.pk, args.input.taint)))
        session = yield* sessions.get(t, session.pk);
      if (isNew) noteSession(t, session, 'created', args.now);
      const { runId } = args.input;
      if (runId === args.idempotency?.key && (yield* runs.byId(t, runId))) throw usedKey(runId);
      if (session.state !== 'live') yield* sessions.revive(t, session);
      // Main sessions are opened at the start and new lives by a reset, so their user is the sender of the first message.
      if (session.opened_by === null) yield* sessions.setUser(t, session, args.input.principal.replace(/^channel:/, ''));
      if (args.deliveryContext) yield* rememberDelivery(t, session, args.deliveryContext);
      // Interrupt: the accepting transaction requests the stop of the active run; queued runs stay.
      const stopping = args.input.mode === 'interrupt' ? yield* stopActive(t, kernel, session, 'interrupted', args.now) : [];
      const run = yield* enqueue(t, session, args.input, args.now);
      if (args.idempotency) yield* idempotency.insert(t, args.idempotency, run.pk, args.now);
      return { runId: run.id, sessionId: session.id, sessionKey: session.key, agentId: session.agent, repeated: false, stopping };
    },
  };
}

function* repeated(t: Tx, request: idempotency.Idempotency): Body<Accepted | undefined> {
  const earlier = yield* idempotency.find(t, request);
  if (!earlier) return undefined;
  if (earlier.hash !== request.hash) throw usedKey(request.key);
  const run = yield* runs.byPk(t, earlier.run_pk);
  if (!run) {
    // An idempotency key is valid as long as its run exists.
    yield* idempotency.remove(t, request);
    return undefined;
  }
  const session = yield* sessions.get(t, run.session_pk);
  return { runId: run.id, sessionId: session.id, sessionKey: session.key, agentId: session.agent, repeated: true, stopping: [] };
}

const usedKey = (key: string) =>
  new InterlaneError(
    'IDEMPOTENCY_CONFLICT',
    `idempotency key ${JSON.stringify(key.slice(0, 100))} was used for another request; use a new one`,
  );
