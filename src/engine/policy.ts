// Rows → policy: a command's request, about the rows that it has just read in its own transaction.
import { levelName, levelRank } from '../levels.ts';
import { InterlaneError } from '../errors.ts';
import { platformId } from '../protocol/ids.ts';
import type { Level, Visibility } from '../protocol/labels.ts';
import type { Destination, SessionFacts } from '../protocol/session.ts';
import {
  channelLevel,
  clearanceOf,
  decide,
  keyLevel,
  partyOf,
  type Decision,
  type Party,
  type Request,
  type World,
} from '../rules/decide.ts';
import { keyContext } from '../rules/agents.ts';
import { keyChatType, keyReserved, requireSessionKey } from '../rules/session-key.ts';
import { mayFlow } from '../rules/taint.ts';
import { redact, type TextForm } from '../rules/text-patterns.ts';
import { refusal } from '../wording.ts';
import type { RunRow, SessionRow } from '../store/rows.ts';

/** Evaluates policy and records the decision metric. The caller enforces the decision. */
export function evaluate(request: Request, world: World): Decision {
  const decision = decide(request, world);
  world.onDecision?.(request.action, decision.effect);
  return decision;
}

export interface SessionSettings {
  sendPolicy?: 'allow' | 'deny';
  displayName?: string;
  channel?: string;
  model?: string;
  thinkingLevel?: string;
  verboseLevel?: string;
  /** The name of the provider's key to use. */
  authProfile?: string;
  /** The visibility that an operator granted; the session cannot set it itself. */
  see?: Visibility;
}

export const settingsOf = (session: Pick<SessionRow, 'settings'>) => JSON.parse(session.settings) as SessionSettings;
/** The source of a setting; undefined if the session does not set it. */
export const byUser = (value: string | undefined) => (value === undefined ? undefined : ('user' as const));
export const deliveryOf = (session: Pick<SessionRow, 'delivery'>) =>
  session.delivery === null ? undefined : (JSON.parse(session.delivery) as Destination);
/** The destination of the run itself; undefined if its answer goes where the session speaks. */
export const destinationOf = (run: Pick<RunRow, 'destination'>) =>
  run.destination === null ? undefined : (JSON.parse(run.destination) as Destination);

/** `destination`: where the answer of the turn in question goes, if it has a destination of its own. */
export function partyOfRow(world: World, session: SessionRow, destination?: Destination): Party {
  const { sendPolicy, channel, see } = settingsOf(session);
  const facts: SessionFacts = {
    key: session.key,
    depth: session.depth,
    taint: levelName(session.taint),
    existTaint: levelName(session.exist_taint),
    clearance: levelName(session.clearance),
  };
  if (session.parent_key !== null) facts.spawnedBy = session.parent_key;
  if (sendPolicy !== undefined) facts.sendPolicy = sendPolicy;
  if (channel !== undefined) facts.channel = channel;
  if (see !== undefined) facts.see = see;
  const delivery = deliveryOf(session);
  if (delivery) facts.deliveryContext = delivery;
  if (destination) facts.destination = destination;
  const party = partyOf(world, facts);
  // Channels write into it, so an operator who was there first does not limit it.
  if (keyChatType(party.key) !== undefined) party.facts.clearance = 'RESTRICTED';
  return party;
}

/** The rank of the level from which on a session of this key may be known, whatever it has read. */
export const existenceOf = (world: World, key: string): number =>
  levelRank(keyLevel(world, requireSessionKey(key, keyContext(world.agents, world.agents.defaultId))));

/** Throws if an operator may not open a session of this key, because it is a chat of a channel above the operator. */
export function requireOpenable(world: World, key: string, { level }: Operator): void {
  if (existenceOf(world, key) > levelRank(level)) throw keyReserved(key);
}

/**
 * What the next life of a session takes along. A label, a display name and a pin may be words of the old life, so they stay behind if the
 * new life may be known at a lower level; so does a channel above that level.
 */
export function namesForNextLife(
  world: World,
  old: SessionRow,
  level: number,
): Pick<SessionRow, 'label' | 'pinned' | 'settings' | 'delivery'> {
  if (level >= old.level) return old;
  const { displayName: _, channel, ...kept } = settingsOf(old);
  const isKnown = (name: string | undefined) => name !== undefined && levelRank(channelLevel(world, platformId(name))) <= level;
  return {
    label: null,
    pinned: 0,
    settings: JSON.stringify({ ...kept, ...(isKnown(channel) ? { channel } : {}) }),
    delivery: isKnown(deliveryOf(old)?.channel) ? old.delivery : null,
  };
}

/** Throws if text of this level would raise the session beyond its clearance. */
export function requireClearance(world: World, session: SessionRow, taint: number, what: string): void {
  const clearance = clearanceOf(world, partyOfRow(world, session));
  if (taint <= session.taint || mayFlow(levelName(taint), clearance)) return;
  throw new InterlaneError(
    'ABOVE_CLEARANCE',
    `${what} is ${levelName(taint)}, above the clearance ${clearance} of session ${JSON.stringify(session.key)}; use a session with a higher clearance`,
  );
}

/** A caller authenticated by an operator token: its level, and whether it sends a message that needs an answer. */
export interface Operator {
  level: Level;
  sends: boolean;
}

/** The session if the operator may see it. Returns undefined if it is above the token's level; throws on any other denial. */
export function visibleToOperator(
  world: World,
  session: SessionRow | undefined,
  operator: Operator,
  destination?: Destination,
): SessionRow | undefined {
  if (!session) return undefined;
  const decision = evaluate({ action: 'operate', target: partyOfRow(world, session, destination), ...operator }, world);
  if (decision.effect !== 'BLOCK') return session;
  if (decision.hidden) return undefined;
  throw new InterlaneError(decision.code ?? 'POLICY_BLOCKED', `session ${JSON.stringify(session.key)}: ${decision.why}`);
}

/** A session that speaks, in a turn with a destination of its own or not. */
export interface Speaker {
  session: SessionRow;
  destination?: Destination | undefined;
}

/** The text as policy lets it go from one session to another; undefined if policy blocks it. */
export function filterForSession(world: World, action: 'send' | 'reply', from: Speaker, to: SessionRow, text: string): Filtered {
  const caller = partyOfRow(world, from.session, from.destination);
  return filter(evaluate({ action, caller, target: partyOfRow(world, to), text }, world), text);
}

/** The text as policy lets it go from a session to a chat; undefined if policy blocks it. */
export function filterForChannel(
  world: World,
  from: SessionRow,
  at: Pick<Destination, 'channel' | 'to' | 'chatType'>,
  text: string,
): Filtered {
  const { channel, to, chatType } = at;
  return filter(evaluate({ action: 'deliver', caller: partyOfRow(world, from), channel, to, chatType, text }, world), text);
}

export interface Filtered {
  decision: Decision;
  text: string | undefined;
}

/** The code and the words that a caller gets instead of a result that policy blocks. */
export function withheldResult(tool: string, { code, why }: Decision): [code: string, error: string] {
  return [code ?? 'POLICY_BLOCKED', refusal.result(tool, why)];
}

/** The result of a call as policy lets its caller read it; undefined if policy blocks it. */
export function filterResult(world: World, caller: Party, tool: string, text: string): Filtered {
  return filter(evaluate({ action: 'result', caller, tool, text }, world), text, 'result');
}

function filter(decision: Decision, text: string, form: TextForm = 'message'): Filtered {
  if (decision.effect === 'BLOCK') return { decision, text: undefined };
  return { decision, text: decision.effect === 'REDACT' ? redact(text, decision.redactions, form) : text };
}
