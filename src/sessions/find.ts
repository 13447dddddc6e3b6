// A caller's reference → the session it means, among those that the viewer may see. Every transport finds sessions here.
import { evaluate, partyOfRow } from '../engine/policy.ts';
import { InterlaneError } from '../errors.ts';
import { levelName } from '../levels.ts';
import { agentId as agentIdOf } from '../protocol/ids.ts';
import { keyContext } from '../rules/agents.ts';
import type { World } from '../rules/decide.ts';
import {
  operatorReferences,
  planReference,
  settleReference,
  toolReferences,
  type Lookup,
  type Reference,
  type ReferencePlan,
  type ReferenceStyle,
} from '../rules/reference.ts';
import { formatSessionKey, requireSessionKey } from '../rules/session-key.ts';
import { mayFlow } from '../rules/taint.ts';
import type { Viewer } from '../rules/viewer.ts';
import type { Body, Reading, ReadQuery } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import { currentById, currentByIdStart, currentByLabel } from '../store/tables/session-pages.ts';
import { current as currentByKey } from '../store/tables/sessions.ts';
import { sessionsPage, type Look } from './pages.ts';

/** The visible sessions that a reference may mean; none if there is no such session. */
export const candidates = (look: Look): ReadQuery<Reference, SessionRow[]> => ({
  name: 'session candidates',
  *body(t, reference) {
    const { plan } = planFor(look, reference);
    const found = yield* lookUp(t, look, plan);
    const hits = found.find((rows) => rows.length > 0) ?? [];
    if (hits.length === 0 && plan.unusable) throw new InterlaneError(plan.unusable.code, plan.unusable.error);
    return hits;
  },
});

/** A key in any spelling, or a session id. */
export type Named = Pick<Reference, 'session' | 'agentId'>;

/** The session that a key or a session id means; undefined if there is no visible one. */
export const findSession = (look: Look): ReadQuery<Named, SessionRow | undefined> => ({
  name: 'find session',
  *body(t, reference) {
    return (yield* candidates(look).body(t, reference))[0];
  },
});

/** For a session that must exist: the error suggests similar keys among those that the viewer may see. */
export const requireSession = (look: Look): ReadQuery<Reference, SessionRow> => ({
  name: 'require session',
  *body(t, reference) {
    const { plan, style } = planFor(look, reference);
    const found = yield* lookUp(t, look, plan);
    const missing = found.flat().length === 0 && !plan.unusable;
    const known = missing ? (yield* sessionsPage(look).body(t, { limit: 200 })).rows.map((row) => row.key) : [];
    const settled = settleReference(plan, found, known, style);
    if (!settled.ok) throw new InterlaneError(settled.code, settled.error);
    return settled.session;
  },
});

/** The store key that an operator means, whether or not there is such a session. */
export function keyMeant(world: World, { session, agentId }: { session: string; agentId?: string | undefined }): string {
  const context = keyContext(world.agents, agentId === undefined ? world.agents.defaultId : agentIdOf(agentId));
  return formatSessionKey(requireSessionKey(session, context));
}

function planFor({ world, viewer }: Look, reference: Reference): { plan: ReferencePlan; style: ReferenceStyle } {
  const style = viewer.as === 'session' ? toolReferences : operatorReferences;
  const agent = viewer.as === 'session' ? viewer.party.key.agent : world.agents.defaultId;
  const planned = planReference(reference, agent, world.agents, style);
  if (!planned.ok) throw new InterlaneError(planned.code, planned.error);
  return { plan: planned.plan, style };
}

/** The results of each look-up of a plan, without hidden sessions. */
function* lookUp(t: Reading, { world, viewer }: Look, plan: ReferencePlan): Body<SessionRow[][]> {
  const answers: SessionRow[][] = [];
  for (const lookup of plan.lookups) {
    const rows = (yield* rowsFor(t, lookup)).filter((row) => mayKnow(world, viewer, row));
    answers.push(rows);
    if (rows.length > 0) break;
  }
  return answers;
}

function* rowsFor(t: Reading, lookup: Lookup): Body<SessionRow[]> {
  const only = (row: SessionRow | undefined) => (row ? [row] : []);
  switch (lookup.by) {
    case 'key':
      return only(yield* currentByKey(t, lookup.key));
    case 'id':
      return only(yield* currentById(t, lookup.id));
    case 'label':
      return yield* currentByLabel(t, lookup.label, lookup.agentId);
    case 'shortId':
      return yield* currentByIdStart(t, lookup.shortId);
  }
}

/** I6. Evaluates policy and counts the decision. Tools cannot reach archived sessions. */
function mayKnow(world: World, viewer: Viewer, row: SessionRow): boolean {
  switch (viewer.as) {
    case 'session':
      return (
        row.state === 'live' && evaluate({ action: 'list', caller: viewer.party, target: partyOfRow(world, row) }, world).effect === 'ALLOW'
      );
    case 'operator':
      return evaluate({ action: 'operate', target: partyOfRow(world, row), level: viewer.level, sends: false }, world).effect === 'ALLOW';
    case 'visitor':
      return row.key === viewer.sessionKey && mayFlow(levelName(row.level), viewer.level);
    case 'system':
      return true;
  }
}
