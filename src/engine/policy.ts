// Rows → the policy door: what a command asks, about the rows it has just read in its own transaction.
import { InterlaneError } from '../errors.ts';
import type { Level } from '../protocol/labels.ts';
import type { SessionFacts } from '../protocol/session.ts';
import type { DeliveryContext } from '../protocol/session.ts';
import { decide, partyOf, type Decision, type Party, type Request, type World } from '../rules/decide.ts';
import { redact } from '../rules/hooks.ts';
import type { Body, Reading } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import { levelName } from '../store/views.ts';

/** Asks the door in earnest: what it says is counted, and is then done or refused. */
export function ask(request: Request, world: World): Decision {
  const decision = decide(request, world);
  world.decided?.(request.action, decision.effect);
  return decision;
}

export interface SessionSettings {
  sendPolicy?: 'allow' | 'deny';
  displayName?: string;
  channel?: string;
  model?: string;
  thinkingLevel?: string;
  verboseLevel?: string;
}

export const settingsOf = (session: Pick<SessionRow, 'settings'>) => JSON.parse(session.settings) as SessionSettings;
export const deliveryOf = (session: Pick<SessionRow, 'delivery'>) =>
  session.delivery === null ? undefined : (JSON.parse(session.delivery) as DeliveryContext);

function partyOfRow(world: World, session: SessionRow, parentKey: string | undefined): Party {
  const { sendPolicy, channel } = settingsOf(session);
  const facts: SessionFacts = {
    key: session.key,
    depth: session.depth,
    taint: levelName(session.taint),
    existTaint: levelName(session.exist_taint),
  };
  if (parentKey !== undefined) facts.spawnedBy = parentKey;
  if (sendPolicy !== undefined) facts.sendPolicy = sendPolicy;
  if (channel !== undefined) facts.channel = channel;
  return partyOf(world, facts);
}

export function* loadParty(t: Reading, world: World, session: SessionRow): Body<Party> {
  const parent =
    session.parent_pk === null ? undefined : yield* t.one<{ key: string }>('SELECT key FROM sessions WHERE pk = ?', session.parent_pk);
  return partyOfRow(world, session, parent?.key);
}

/** Whoever is not a session: what its token may know, and whether it wants an answer. */
export interface Operator {
  level: Level;
  sends: boolean;
}

/** A session as an operator may know it: one above the level of its token is as good as missing. Throws what else refuses. */
export function* overseen(t: Reading, world: World, session: SessionRow | undefined, operator: Operator): Body<SessionRow | undefined> {
  if (!session) return undefined;
  const decision = ask({ action: 'operate', target: yield* loadParty(t, world, session), ...operator }, world);
  if (decision.effect !== 'BLOCK') return session;
  if (decision.hidden) return undefined;
  throw new InterlaneError(decision.code ?? 'POLICY_BLOCKED', `session ${JSON.stringify(session.key)}: ${decision.why}`);
}

/** May this text pass from one session to another, and what of it. Undefined when it may not. */
export function* passText(
  t: Reading,
  world: World,
  action: 'send' | 'reply',
  from: SessionRow,
  to: SessionRow,
  text: string,
): Body<{ decision: Decision; text: string | undefined }> {
  const caller = yield* loadParty(t, world, from);
  const target = yield* loadParty(t, world, to);
  return passed(ask({ action, caller, target, text }, world), text);
}

/** May this text leave a session for a channel, and what of it. */
export function* passOut(
  t: Reading,
  world: World,
  from: SessionRow,
  channel: string,
  text: string,
): Body<{ decision: Decision; text: string | undefined }> {
  const caller = yield* loadParty(t, world, from);
  return passed(ask({ action: 'deliver', caller, channel, text }, world), text);
}

function passed(decision: Decision, text: string) {
  if (decision.effect === 'BLOCK') return { decision, text: undefined };
  return { decision, text: decision.effect === 'REDACT' ? redact(text, decision.redactions) : text };
}
