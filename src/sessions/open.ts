// Opens a session for an operator: finds the existing one of the key or creates it, and applies the given settings to either.
import type { EngineCommand } from '../engine/feed.ts';
import { openSession as insertSession, type NewSession } from '../engine/sessions.ts';
import { existenceOf, requireOpenable, visibleToOperator } from '../engine/policy.ts';
import { refuseAgentName } from '../rules/agents.ts';
import { keyReserved } from '../rules/session-key.ts';
import type { SessionRow } from '../store/rows.ts';
import { current as currentLife, revive } from '../store/tables/sessions.ts';
import { change, type OperatorArgs, type Current, type SessionPatch } from './patch.ts';

export const openSession = (
  current: Current,
): EngineCommand<
  OperatorArgs & { made: NewSession; patch: SessionPatch; revive?: boolean },
  { session: SessionRow; created: boolean }
> => ({
  name: 'open session',
  *body(t, args) {
    const { world, models } = current();
    yield* t.lock(`lane:${args.key}`);
    const there = yield* currentLife(t, args.key);
    const seen = there && visibleToOperator(world, there, args.operator);
    if (!seen) refuseAgentName(world.agents, args.key);
    if (there && !seen) throw keyReserved(args.key);
    if (!there) requireOpenable(world, args.key, args.operator);
    const session = there ?? (yield* insertSession(t, args.key, args.made, existenceOf(world, args.key), args.now));
    if (args.revive && session.state === 'archived') yield* revive(t, session);
    yield* change(t, { world, models }, session, args);
    return { session, created: !there };
  },
});
