// Operations of an operator on sessions: open, patch, send into, inject, send out. Each is one transaction that first evaluates policy.
import { createHash } from 'node:crypto';
import { levelRank } from '../levels.ts';
import type { Accepted } from '../engine/accept.ts';
import type { Engine } from '../engine/engine.ts';
import { derivedId } from '../engine/ids.ts';
import type { NewSession } from '../engine/sessions.ts';
import { fromOperator } from '../engine/input.ts';
import type { Operator } from '../engine/policy.ts';
import { InterlaneError } from '../errors.ts';
import { agentId as agentIdOf } from '../protocol/ids.ts';
import type { Level, Visibility } from '../protocol/labels.ts';
import type { QueueMode } from '../protocol/run.ts';
import type { DeliveryContext } from '../protocol/session.ts';
import { budgetOf } from '../config/budget.ts';
import type { Config } from '../config/schema.ts';
import { contradiction, keyContext, requireAgent, type AgentTable } from '../rules/agents.ts';
import { channelLevel, type World } from '../rules/decide.ts';
import { formatSessionKey, ownedKey, requireSessionKey, sessionKind, type SessionKey } from '../rules/session-key.ts';
import type { Store } from '../store/contract.ts';
import { openSession } from './open.ts';
import { patchSession, type ModelChecks, type SessionPatch } from './patch.ts';
import { injectEntry, sendDirect } from './speak.ts';

/** The caller, as authenticated by the transport. */
export interface Asker {
  /** `operator:<name of the token>`: idempotency keys are separate for each. */
  principal: string;
  level: Level;
}

export interface Spoken {
  sessionKey: string;
  /** Opens the session if it does not exist. */
  opens?: boolean | undefined;
  text: string;
  method: string;
  idempotencyKey?: string | undefined;
  mode?: QueueMode | undefined;
  deliver?: boolean | undefined;
  /** False if the send policy does not apply to the run. */
  sends?: boolean | undefined;
  budgetMs?: number | undefined;
}

export interface SessionsParts {
  current(): { world: World; models: ModelChecks; config: Config };
  store: Store;
  engine: Engine;
  now(): number;
  newId(): string;
}

/** The channel of operators' messages. */
const ownChannel = 'webchat';
/** Kinds of sessions that only their own part of the gateway opens. */
const ownedElsewhere = new Set(['cron', 'hook', 'node', 'subagent', 'acp', 'guest']);

const keyOf = (agents: AgentTable, key: string) => requireSessionKey(key, keyContext(agents, agents.defaultId));

export type Sessions = ReturnType<typeof createSessions>;

export function createSessions(parts: SessionsParts) {
  const { store, engine, current } = parts;
  const of = ({ level }: Asker, sends = false): Operator => ({ level, sends });
  /** Throws if an operator may not open a session of this key. */
  const newSession = (agents: AgentTable, key: SessionKey, asker: Asker): NewSession => {
    requireAgent(agents, key.agent);
    if (ownedElsewhere.has(key.shape))
      throw new InterlaneError('INVALID_REQUEST', `session of kind "${key.shape}" cannot be opened by hand; choose another key`);
    return { id: parts.newId(), agent: key.agent, kind: sessionKind(key), user: asker.principal, clearance: asker.level };
  };
  const commands = {
    open: openSession(current),
    patch: patchSession(current),
    inject: injectEntry(current),
    send: sendDirect(current),
  };
  return {
    /** Opens or finds a session, and applies the given settings. */
    open(
      asker: Asker,
      request: { key?: string | undefined; agentId?: string | undefined; idempotencyKey?: string | undefined; patch: SessionPatch },
    ) {
      const { agents } = current().world;
      const agent = request.agentId === undefined ? agents.defaultId : agentIdOf(request.agentId);
      // A repeated request with the same idempotency key finds the same session.
      const fresh = request.idempotencyKey === undefined ? parts.newId() : derivedId('create', asker.principal, request.idempotencyKey);
      const key = requireSessionKey(request.key ?? `dashboard:${fresh}`, keyContext(agents, agent));
      const wrong = contradiction(request.agentId && agent, key.agent, 'key');
      if (wrong !== undefined) throw new InterlaneError('INVALID_REQUEST', wrong);
      const made = newSession(agents, key, asker);
      const common = { key: formatSessionKey(key), operator: of(asker), now: parts.now() };
      return store.write(commands.open, { ...common, made, patch: request.patch }, { by: asker.principal });
    },

    /** The session of a guest, with the visibility that the operator grants. Only an admin may call this. */
    join(asker: Asker, request: { name: string; agentId?: string | undefined; see: Visibility | undefined }) {
      const { agents } = current().world;
      const agent = request.agentId === undefined ? agents.defaultId : agentIdOf(request.agentId);
      requireAgent(agents, agent);
      const key = ownedKey('guest', request.name, agent);
      const made = { id: parts.newId(), agent, kind: sessionKind(key), user: asker.principal, clearance: asker.level };
      const common = { key: formatSessionKey(key), operator: of(asker), now: parts.now() };
      return store.write(commands.open, { ...common, made, patch: { see: request.see }, revive: true }, { by: asker.principal });
    },

    patch(asker: Asker, key: string, patch: SessionPatch, expectedSessionId?: string) {
      return store.write(commands.patch, { key, patch, expectedSessionId, operator: of(asker), now: parts.now() }, { by: asker.principal });
    },

    /** A message into a session. An idempotency key becomes the run's id, so that a client knows the id before the request. */
    say(asker: Asker, spoken: Spoken): Promise<Accepted> {
      const { world, config } = current();
      const { idempotencyKey: key, method } = spoken;
      // Only a repeated message is compared, and a long one takes milliseconds to hash.
      const hash = () =>
        createHash('sha256')
          .update(JSON.stringify([spoken.sessionKey, spoken.text, spoken.mode, spoken.deliver, spoken.budgetMs]))
          .digest('hex');
      return engine.accept({
        sessionKey: spoken.sessionKey,
        open: spoken.opens ? newSession(world.agents, keyOf(world.agents, spoken.sessionKey), asker) : undefined,
        input: fromOperator({
          runId: key ?? parts.newId(),
          text: spoken.text,
          channel: ownChannel,
          principal: asker.principal,
          taint: levelRank(channelLevel(world, ownChannel)),
          mode: spoken.mode ?? 'followup',
          deliver: spoken.deliver ?? false,
          budgetMs: spoken.budgetMs ?? budgetOf(config),
        }),
        operator: of(asker, spoken.sends ?? true),
        idempotency: key === undefined ? undefined : { principal: asker.principal, method, key, hash: hash() },
        now: parts.now(),
      });
    },

    /** A message of the assistant, written by hand. */
    inject(asker: Asker, key: string, text: string, idempotencyKey: string | undefined) {
      const id = idempotencyKey === undefined ? parts.newId() : derivedId('inject', asker.principal, idempotencyKey);
      const common = { key, operator: of(asker), now: parts.now() };
      return store.write(commands.inject, { ...common, text, id }, { bytes: text.length, by: asker.principal });
    },

    /** Text to a channel, in the name of a session. */
    sendOut(asker: Asker, key: string, to: DeliveryContext, text: string, idempotencyKey: string) {
      const causeId = derivedId('send', asker.principal, idempotencyKey);
      const common = { key, operator: of(asker), now: parts.now() };
      return store.write(commands.send, { ...common, to, text, causeId }, { bytes: text.length, by: asker.principal });
    },
  };
}
