// What an operator does to sessions: open, patch, speak into, inject, send out. Each is one transaction that first asks whether it may.
import { createHash } from 'node:crypto';
import { levelRank } from '../levels.ts';
import { revive, type Accepted } from '../engine/accept.ts';
import { deliverDirect } from '../engine/deliver.ts';
import type { Engine } from '../engine/engine.ts';
import { appendEntry, noteSession, type EngineCommand, type Tx } from '../engine/feed.ts';
import { derivedId } from '../engine/ids.ts';
import { overseen, settingsOf, type Operator, type SessionSettings } from '../engine/policy.ts';
import { openSession, sessionByKey } from '../engine/sessions.ts';
import { InterlaneError } from '../errors.ts';
import type { FeedEvent } from '../protocol/event.ts';
import { agentId as agentIdOf } from '../protocol/ids.ts';
import type { Level, Visibility } from '../protocol/labels.ts';
import type { QueueMode } from '../protocol/run.ts';
import type { DeliveryContext } from '../protocol/session.ts';
import { isKnownAgent, keyContext } from '../rules/agents.ts';
import type { World } from '../rules/decide.ts';
import { formatSessionKey, ownedKey, requireSessionKey, sessionKind } from '../rules/session-key.ts';
import type { Body, Store } from '../store/contract.ts';
import type { DeliveryRow, EntryRow, SessionRow } from '../store/rows.ts';

/** Who asks, as the transport knows them. */
export interface Asker {
  /** `operator:<name of the token>`: idempotency keys are theirs alone. */
  principal: string;
  level: Level;
}

/** `null` clears, absent leaves as it is. */
export interface SessionPatch {
  label?: string | null | undefined;
  displayName?: string | null | undefined;
  sendPolicy?: 'allow' | 'deny' | null | undefined;
  model?: string | null | undefined;
  thinkingLevel?: string | null | undefined;
  verboseLevel?: string | null | undefined;
  authProfile?: string | null | undefined;
  see?: Visibility | undefined;
}

/** What is known of models here. */
interface ModelChecks {
  /** The service that a session's model is at. */
  providerOf(agentId: string, model: string | undefined): string | undefined;
  /** Refuses a model or a profile that a session cannot be set to. */
  check(agentId: string, settings: SessionSettings): void;
}

export interface Spoken {
  sessionKey: string;
  text: string;
  method: string;
  idempotencyKey?: string | undefined;
  mode?: QueueMode | undefined;
  deliver?: boolean | undefined;
  /** False for a run that a send policy has nothing to say about. */
  sends?: boolean | undefined;
  budgetMs?: number | undefined;
}

export interface SessionsParts {
  store: Store<FeedEvent>;
  engine: Engine;
  now(): number;
  newId(): string;
  /** Level of what comes from a channel; unlisted is PUBLIC. */
  channelLevel(channel: string): Level;
  /** Working time of a run that is given none; 0 is no limit. */
  budgetMs(): number;
  models: ModelChecks;
}

/** What operators say comes in on this channel. */
const ownChannel = 'webchat';
/** Shapes that only their own part of the gateway opens. */
const ownedElsewhere = new Set(['cron', 'hook', 'node', 'subagent', 'acp', 'guest']);

export type Sessions = ReturnType<typeof createSessions>;

export function createSessions(parts: SessionsParts) {
  const { store, engine } = parts;
  const of = ({ level }: Asker, sends = false): Operator => ({ level, sends });
  return {
    /** Opens a session, or finds it; what is given is set either way. */
    open(
      asker: Asker,
      wish: { key?: string | undefined; agentId?: string | undefined; idempotencyKey?: string | undefined; patch: SessionPatch },
    ) {
      const { agents } = engine.world;
      const agent = wish.agentId === undefined ? agents.defaultId : agentIdOf(wish.agentId);
      // Asked again with the same idempotency key, it is the same session.
      const fresh = wish.idempotencyKey === undefined ? parts.newId() : derivedId('create', asker.principal, wish.idempotencyKey);
      const key = requireSessionKey(wish.key ?? `dashboard:${fresh}`, keyContext(agents, agent));
      if (wish.agentId !== undefined && key.agent !== agent)
        throw new InterlaneError('INVALID_REQUEST', `agentId is "${agent}", but the key belongs to "${key.agent}"; leave one of them out`);
      if (!isKnownAgent(agents, key.agent))
        throw new InterlaneError('AGENT_NOT_FOUND', `agent "${key.agent}" is not in agents.list; agents.list shows who is`);
      if (ownedElsewhere.has(key.shape))
        throw new InterlaneError('INVALID_REQUEST', `session of kind "${key.shape}" cannot be opened by hand; choose another key`);
      const made = { id: parts.newId(), agent: key.agent, kind: sessionKind(key), user: asker.principal };
      return store.write(openPatched, {
        world: engine.world,
        models: parts.models,
        key: formatSessionKey(key),
        made,
        patch: wish.patch,
        operator: of(asker),
        now: parts.now(),
      });
    },

    /** The session of a guest, with what the operator lets it see; only ever called for an admin. */
    join(asker: Asker, wish: { name: string; agentId?: string | undefined; see: Visibility | undefined }) {
      const { agents } = engine.world;
      const agent = wish.agentId === undefined ? agents.defaultId : agentIdOf(wish.agentId);
      if (!isKnownAgent(agents, agent))
        throw new InterlaneError('AGENT_NOT_FOUND', `agent "${agent}" is not in agents.list; agents.list shows who is`);
      const key = ownedKey('guest', wish.name, agent);
      const made = { id: parts.newId(), agent, kind: sessionKind(key), user: asker.principal };
      const asked = { world: engine.world, models: parts.models, key: formatSessionKey(key), operator: of(asker), now: parts.now() };
      return store.write(openPatched, { ...asked, made, patch: { see: wish.see }, revive: true });
    },

    patch(asker: Asker, key: string, patch: SessionPatch, expectedSessionId?: string) {
      return store.write(patchExisting, {
        world: engine.world,
        models: parts.models,
        key,
        patch,
        expectedSessionId,
        operator: of(asker),
        now: parts.now(),
      });
    },

    /** A message into a session. With an idempotency key that key is the run's id, so that a client knows it before it asks. */
    say(asker: Asker, spoken: Spoken): Promise<Accepted> {
      const { idempotencyKey: key, method } = spoken;
      const hash = createHash('sha256')
        .update(JSON.stringify([spoken.sessionKey, spoken.text, spoken.mode, spoken.deliver, spoken.budgetMs]))
        .digest('hex');
      return engine.accept({
        sessionKey: spoken.sessionKey,
        runId: key ?? parts.newId(),
        text: spoken.text,
        provenance: { kind: 'user', channel: ownChannel },
        principal: asker.principal,
        taint: levelRank(parts.channelLevel(ownChannel)),
        mode: spoken.mode ?? 'followup',
        class: 'main',
        deliver: spoken.deliver ?? false,
        budgetMs: spoken.budgetMs ?? parts.budgetMs(),
        operator: of(asker, spoken.sends ?? true),
        idempotency: key === undefined ? undefined : { principal: asker.principal, method, key, hash },
        now: parts.now(),
      });
    },

    /** A message of the assistant, written by hand. */
    inject(asker: Asker, key: string, text: string, idempotencyKey: string | undefined) {
      const id = idempotencyKey === undefined ? parts.newId() : derivedId('inject', asker.principal, idempotencyKey);
      return store.write(
        injectEntry,
        { world: engine.world, key, text, id, operator: of(asker), now: parts.now() },
        { bytes: text.length },
      );
    },

    /** Text to a channel, in the name of a session. */
    sendOut(asker: Asker, key: string, to: DeliveryContext, text: string, idempotencyKey: string) {
      const causeId = derivedId('send', asker.principal, idempotencyKey);
      return store.write(
        sendDirect,
        { world: engine.world, key, to, text, causeId, operator: of(asker), now: parts.now() },
        { bytes: text.length },
      );
    },
  };
}

interface Asked {
  world: World;
  key: string;
  operator: Operator;
  now: number;
}

interface Patching extends Asked {
  models: ModelChecks;
  patch: SessionPatch;
}

function* existing(t: Tx, { world, key, operator }: Asked): Body<SessionRow> {
  const session = overseen(world, yield* sessionByKey(t, key), operator);
  if (!session) throw new InterlaneError('SESSION_NOT_FOUND', `session ${JSON.stringify(key)} was not found; see sessions.list`);
  return session;
}

const openPatched: EngineCommand<
  Patching & { made: Parameters<typeof openSession>[2]; revive?: boolean },
  { session: SessionRow; created: boolean }
> = {
  name: 'open session',
  *body(t, args) {
    const there = yield* sessionByKey(t, args.key);
    // A session above the caller's level is not told from a missing one, and cannot be opened a second time.
    const session = there ? yield* existing(t, args) : yield* openSession(t, args.key, args.made, args.now);
    if (args.revive && session.state === 'archived') yield* revive(t, session);
    yield* change(t, session, args);
    return { session, created: !there };
  },
};

const patchExisting: EngineCommand<Patching & { expectedSessionId: string | undefined }, { session: SessionRow; changed: boolean }> = {
  name: 'patch session',
  *body(t, args) {
    const session = yield* existing(t, args);
    if (args.expectedSessionId !== undefined && args.expectedSessionId !== session.id)
      throw new InterlaneError('SESSION_CHANGED', `session ${JSON.stringify(args.key)} was reset meanwhile; look at it again`);
    return { session, changed: yield* change(t, session, args) };
  },
};

/** All or nothing; answers whether anything is different now. */
function* change(t: Tx, session: SessionRow, { models, patch, now }: Patching): Body<boolean> {
  const { label, ...rest } = patch;
  const before = settingsOf(session);
  const settings: Record<string, unknown> & SessionSettings = { ...before };
  for (const [name, value] of Object.entries(rest)) {
    if (value === null) delete settings[name];
    else if (value !== undefined) settings[name] = value;
  }
  const { agent } = session;
  // A profile is a key of one service; another one's model has no use for it.
  const moved = patch.model !== undefined && models.providerOf(agent, before.model) !== models.providerOf(agent, settings.model);
  if (moved && patch.authProfile === undefined) delete settings.authProfile;
  if (patch.model || patch.authProfile) models.check(agent, settings);
  const written = JSON.stringify(settings satisfies SessionSettings);
  const newLabel = label === undefined ? session.label : label;
  if (written === session.settings && newLabel === session.label) return false;
  if (newLabel !== null && newLabel !== session.label) {
    const other = yield* t.one<{ key: string }>(
      'SELECT key FROM sessions WHERE agent = ? AND label = ? AND current = 1',
      session.agent,
      newLabel,
    );
    if (other)
      throw new InterlaneError(
        'LABEL_IN_USE',
        `label ${JSON.stringify(newLabel)} is already in use by a session of agent "${session.agent}"`,
      );
  }
  session.settings = written;
  session.label = newLabel;
  session.last_at = now;
  yield* t.run(
    'UPDATE sessions SET settings = ?, label = ?, last_at = ?, policy_rev = policy_rev + 1 WHERE pk = ?',
    written,
    newLabel,
    now,
    session.pk,
  );
  yield* noteSession(t, session, 'changed', now);
  return true;
}

const injectEntry: EngineCommand<Asked & { text: string; id: string }, { id: string; seq: number }> = {
  name: 'inject',
  *body(t, args) {
    const session = yield* existing(t, args);
    const before = yield* t.one<EntryRow>('SELECT * FROM entries WHERE id = ?', args.id);
    if (before && (before.session_pk !== session.pk || before.text !== args.text)) throw usedBefore();
    if (before) return { id: args.id, seq: before.seq };
    const entry = { id: args.id, role: 'assistant' as const, text: args.text, taint: session.taint };
    return { id: args.id, seq: yield* appendEntry(t, session, entry, args.now) };
  },
};

const sendDirect: EngineCommand<Asked & { to: DeliveryContext; text: string; causeId: string }, string[]> = {
  name: 'send',
  *body(t, args) {
    const session = yield* existing(t, args);
    const hash = createHash('sha256')
      .update(JSON.stringify([args.key, args.to.channel, args.to.accountId, args.to.to, args.to.threadId, args.text]))
      .digest('hex');
    const before = yield* t.one<DeliveryRow>('SELECT * FROM deliveries WHERE id = ?', derivedId('send', args.causeId, 0));
    if (before && before.hash !== hash) throw usedBefore();
    return yield* deliverDirect(t, args.world, session, { ...args.to, causeId: args.causeId, hash, text: args.text, now: args.now });
  },
};

const usedBefore = () => new InterlaneError('IDEMPOTENCY_CONFLICT', 'idempotency key was used for another message; use a new one');
