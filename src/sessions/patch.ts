// An operator's changes to a session: its label, its pin and the settings of its turns. Each change is one transaction.
import { noteSession, type EngineCommand, type Tx } from '../engine/feed.ts';
import { visibleToOperator, settingsOf, type Operator, type SessionSettings } from '../engine/policy.ts';
import { InterlaneError, reservedName } from '../errors.ts';
import { reservedKeys } from '../protocol/key-words.ts';
import type { Visibility } from '../protocol/labels.ts';
import type { World } from '../rules/decide.ts';
import type { Body } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import { currentByLabel } from '../store/tables/session-pages.ts';
import { current as currentByKey } from '../store/tables/sessions.ts';
import { writeSettings } from '../store/tables/sessions.ts';

/** Facts about models. */
export interface ModelChecks {
  /** The provider of a session's model. */
  providerOf(agentId: string, model: string | undefined): string | undefined;
  /** Throws for a model or a profile that cannot be set on a session. */
  check(agentId: string, settings: SessionSettings): void;
}

/** The dependencies of commands on sessions beside their arguments. A body calls it once, first. */
export type Current = () => { world: World; models: ModelChecks };

/** `null` clears a setting; an absent field changes nothing. */
export interface SessionPatch {
  label?: string | null | undefined;
  displayName?: string | null | undefined;
  sendPolicy?: 'allow' | 'deny' | null | undefined;
  model?: string | null | undefined;
  thinkingLevel?: string | null | undefined;
  verboseLevel?: string | null | undefined;
  authProfile?: string | null | undefined;
  pinned?: boolean | null | undefined;
  see?: Visibility | undefined;
}

/** The arguments of every operator command on a session. */
export interface OperatorArgs {
  key: string;
  operator: Operator;
  now: number;
}

export const patchSession = (
  current: Current,
): EngineCommand<
  OperatorArgs & { patch: SessionPatch; expectedSessionId: string | undefined },
  { session: SessionRow; changed: boolean }
> => ({
  name: 'patch session',
  *body(t, args) {
    const { world, models } = current();
    const session = yield* existing(t, world, args);
    if (args.expectedSessionId !== undefined && args.expectedSessionId.toLowerCase() !== session.id.toLowerCase())
      throw new InterlaneError('SESSION_CHANGED', `session ${JSON.stringify(args.key)} was reset in the meantime; read it again`);
    return { session, changed: yield* change(t, { world, models }, session, args) };
  },
});

/** Throws if the operator may not see the session. */
export function* existing(t: Tx, world: World, { key, operator }: Pick<OperatorArgs, 'key' | 'operator'>): Body<SessionRow> {
  yield* t.lock(`lane:${key}`);
  const session = visibleToOperator(world, yield* currentByKey(t, key), operator);
  if (!session) throw new InterlaneError('SESSION_NOT_FOUND', `session ${JSON.stringify(key)} was not found; see sessions.list`);
  return session;
}

/** All or nothing. Returns whether anything changed. */
export function* change(
  t: Tx,
  { world, models }: ReturnType<Current>,
  session: SessionRow,
  { patch, operator, now }: Pick<OperatorArgs, 'operator' | 'now'> & { patch: SessionPatch },
): Body<boolean> {
  const { label, pinned, ...rest } = patch;
  const before = settingsOf(session);
  const settings: Record<string, unknown> & SessionSettings = { ...before };
  for (const [name, value] of Object.entries(rest)) {
    if (value === null) delete settings[name];
    else if (value !== undefined) settings[name] = value;
  }
  const { agent } = session;
  // A profile is a key of one provider; a model of another provider cannot use it.
  const moved = patch.model !== undefined && models.providerOf(agent, before.model) !== models.providerOf(agent, settings.model);
  if (moved && patch.authProfile === undefined) delete settings.authProfile;
  if (patch.model || patch.authProfile) models.check(agent, settings);
  const written = JSON.stringify(settings satisfies SessionSettings);
  const newLabel = label === undefined ? session.label : label;
  const newPin = pinned === undefined ? session.pinned : pinned ? 1 : 0;
  if (written === session.settings && newLabel === session.label && newPin === session.pinned) return false;
  if (newLabel !== null && newLabel !== session.label) {
    const [holder] = yield* currentByLabel(t, newLabel, agent);
    if (reservedKeys.has(newLabel.trim().toLowerCase()) || (holder && !visibleToOperator(world, holder, { ...operator, sends: false })))
      throw reservedName('label', newLabel);
    if (holder)
      throw new InterlaneError('LABEL_IN_USE', `label ${JSON.stringify(newLabel)} is already in use by a session of agent "${agent}"`);
  }
  session.settings = written;
  session.label = newLabel;
  session.pinned = newPin;
  session.last_at = now;
  yield* writeSettings(t, session);
  noteSession(t, session, 'changed', now);
  return true;
}
