// What an operator sets on a session: its label, and the settings that its turns run with. Each change is one transaction.
import { noteSession, type EngineCommand, type Tx } from '../engine/feed.ts';
import { overseen, settingsOf, type Operator, type SessionSettings } from '../engine/policy.ts';
import { InterlaneError } from '../errors.ts';
import type { Visibility } from '../protocol/labels.ts';
import type { World } from '../rules/decide.ts';
import type { Body } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import { currentByLabel } from '../store/tables/session-pages.ts';
import { current as currentByKey } from '../store/tables/sessions.ts';
import { writeSettings } from '../store/tables/sessions.ts';

/** What is known of models here. */
export interface ModelChecks {
  /** The service that a session's model is at. */
  providerOf(agentId: string, model: string | undefined): string | undefined;
  /** Refuses a model or a profile that a session cannot be set to. */
  check(agentId: string, settings: SessionSettings): void;
}

/** What commands on sessions depend on beside their arguments. A body calls it once, first. */
export type Current = () => { world: World; models: ModelChecks };

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

/** What every command of an operator on a session says. */
export interface Asked {
  key: string;
  operator: Operator;
  now: number;
}

export const patchSession = (
  current: Current,
): EngineCommand<Asked & { patch: SessionPatch; expectedSessionId: string | undefined }, { session: SessionRow; changed: boolean }> => ({
  name: 'patch session',
  *body(t, args) {
    const { world, models } = current();
    const session = yield* existing(t, world, args);
    if (args.expectedSessionId !== undefined && args.expectedSessionId !== session.id)
      throw new InterlaneError('SESSION_CHANGED', `session ${JSON.stringify(args.key)} was reset meanwhile; look at it again`);
    return { session, changed: yield* change(t, models, session, args.patch, args.now) };
  },
});

/** A session that the operator may know. */
export function* existing(t: Tx, world: World, { key, operator }: Pick<Asked, 'key' | 'operator'>): Body<SessionRow> {
  yield* t.lock(`lane:${key}`);
  const session = overseen(world, yield* currentByKey(t, key), operator);
  if (!session) throw new InterlaneError('SESSION_NOT_FOUND', `session ${JSON.stringify(key)} was not found; see sessions.list`);
  return session;
}

/** All or nothing; answers whether anything is different now. */
export function* change(t: Tx, models: ModelChecks, session: SessionRow, patch: SessionPatch, now: number): Body<boolean> {
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
  if (newLabel !== null && newLabel !== session.label && (yield* currentByLabel(t, newLabel, agent)).length > 0)
    throw new InterlaneError('LABEL_IN_USE', `label ${JSON.stringify(newLabel)} is already in use by a session of agent "${agent}"`);
  session.settings = written;
  session.label = newLabel;
  session.last_at = now;
  yield* writeSettings(t, session);
  noteSession(t, session, 'changed', now);
  return true;
}
