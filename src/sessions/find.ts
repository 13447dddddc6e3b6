// A caller's reference → the session it means, among those that the viewer may see. Every transport finds sessions here.
import { evaluate, partyOfRow } from '../engine/policy.ts';
import { InterlaneError } from '../errors.ts';
import { levelName } from '../levels.ts';
import { agentId as agentIdOf } from '../protocol/ids.ts';
import { contradiction, keyContext } from '../rules/agents.ts';
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
import { mayRead } from '../rules/viewer.ts';
import type { Body, Reading, ReadQuery } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import { currentByIdStart, currentByLabel, life as lifeOfKey, livesBefore, livesById } from '../store/tables/session-pages.ts';
import { current as currentByKey } from '../store/tables/sessions.ts';
import type { Look } from './pages.ts';
import { similarSessions } from './similar.ts';

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

/** For a session that must exist: the error suggests similar keys, labels and ids among those that the viewer may see. */
export const requireSession = (look: Look): ReadQuery<Reference, SessionRow> => ({
  name: 'require session',
  *body(t, reference) {
    const { plan, style } = planFor(look, reference);
    const found = yield* lookUp(t, look, plan);
    const missing = found.flat().length === 0 && !plan.unusable;
    const similar = missing ? yield* similarSessions(t, look, plan, (row) => mayKnow(look, row)) : [];
    const settled = settleReference(plan, found, similar, style);
    if (!settled.ok) throw new InterlaneError(settled.code, settled.error);
    return settled.session;
  },
});

/** A session, or an earlier life of it by its number. The session id of an earlier life also names that life. */
export interface LifeReference extends Named {
  life?: number | undefined;
}

/** For reading only: nothing acts on an earlier life. */
export const findLife = (look: Look): ReadQuery<LifeReference, SessionRow | undefined> => ({
  name: 'find life',
  *body(t, { life, ...named }) {
    const session = yield* findSession(look).body(t, named);
    if (life === undefined) return session ?? (yield* earlierById(t, look, planFor(look, named).plan));
    if (!session || session.life === life) return session;
    const row = yield* lifeOfKey(t, session.key, life);
    return row && mayKnow(look, row) ? row : undefined;
  },
});

export const requireLife = (look: Look): ReadQuery<LifeReference, SessionRow> => ({
  name: 'require life',
  *body(t, { life, ...named }) {
    const found = yield* findLife(look).body(t, { life, ...named });
    if (found) return found;
    const { key } = yield* requireSession(look).body(t, named);
    throw new InterlaneError('SESSION_NOT_FOUND', `session ${JSON.stringify(key)} has no life ${life} that you may read`);
  },
});

function* earlierById(t: Reading, look: Look, { lookups }: ReferencePlan): Body<SessionRow | undefined> {
  for (const lookup of lookups) {
    if (lookup.by !== 'id') continue;
    const rows = (yield* livesById(t, lookup.id)).filter((row) => row.current === 0 && mayKnow(look, row));
    if (rows.length > 0) return exact(rows, lookup.id)[0];
  }
  return undefined;
}

/** The most lives that one page looks through, and of one statement. */
const mostLives = { scanned: 5_000, read: 200 };

/**
 * The lives of a key before a number, newest first, without those that the viewer may not see. `next` is where the next page begins; a
 * page may be shorter than its limit and still have one.
 */
export const earlierLives = (
  look: Look,
): ReadQuery<{ key: string; before: number; limit: number }, { rows: SessionRow[]; next: number | undefined }> => ({
  name: 'earlier lives',
  rows: ({ limit }) => limit,
  *body(t, { key, before, limit }) {
    const rows: SessionRow[] = [];
    let from = before;
    // One extra row tells whether there are more.
    let size = Math.min(limit + 1, mostLives.read);
    for (let scanned = 0; scanned < mostLives.scanned; size = mostLives.read) {
      const page = yield* livesBefore(t, key, from, size);
      for (const row of page) {
        if (!mayKnow(look, row)) continue;
        if (rows.length === limit) return { rows, next: rows.at(-1)?.life ?? before };
        rows.push(row);
      }
      if (page.length < size) return { rows, next: undefined };
      scanned += page.length;
      from = page.at(-1)!.life;
    }
    return { rows, next: from };
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
function* lookUp(t: Reading, look: Look, plan: ReferencePlan): Body<SessionRow[][]> {
  const answers: SessionRow[][] = [];
  for (const lookup of plan.lookups) {
    const rows = (yield* rowsFor(t, lookup)).filter((row) => mayKnow(look, row));
    const wrong = rows.length === 1 && lookup.by === 'id' ? contradiction(plan.agentId, rows[0]!.agent, 'session') : undefined;
    if (wrong !== undefined) throw new InterlaneError('INVALID_REQUEST', wrong);
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
      return exact(
        (yield* livesById(t, lookup.id)).filter((row) => row.current === 1),
        lookup.id,
      );
    case 'label':
      return yield* currentByLabel(t, lookup.label, lookup.agentId);
    case 'shortId':
      return yield* currentByIdStart(t, lookup.shortId);
  }
}

/** An id as it is written, if there is one; else those that differ in the case of letters alone. */
const exact = (rows: SessionRow[], id: string) => (rows.some((row) => row.id === id) ? rows.filter((row) => row.id === id) : rows);

/**
 * I6. Evaluates policy and counts the decision. Tools cannot reach archived sessions. Of earlier lives they reach those of their own
 * session, if what was said there is not above the session as it is now.
 */
function mayKnow({ world, viewer }: Look, row: SessionRow): boolean {
  switch (viewer.as) {
    case 'session':
      if (row.current === 0) return row.key === viewer.party.storeKey && mayRead(viewer, levelName(row.taint));
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
