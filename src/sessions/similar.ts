// A reference that found nothing → similar keys, labels and ids that the viewer may see, each read from a short stretch of an index.
import { levelRank } from '../levels.ts';
import { nearest } from '../nearest.ts';
import { keyContext } from '../rules/agents.ts';
import type { ListScope } from '../rules/decide.ts';
import type { ReferencePlan } from '../rules/reference.ts';
import { requestKey, requireSessionKey } from '../rules/session-key.ts';
import type { Body, Reading } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import { agentsWithSessions, likeId, newestSessions, nextToKey, nextToLabel } from '../store/tables/session-pages.ts';
import { scopeOf, type Look } from './pages.ts';

const mostSuggested = 3;
/** The children of a session that are compared; the agents that a misspelt agent may mean, and those whose labels are compared. */
const mostChildren = 50;
const mostAgents = 8;
/** A typo in the first characters of an id is not found: nearly all ids differ there. */
const idStart = 6;

/** Every query selects by what the viewer may see, so hidden sessions change neither the suggestions nor their cost. */
export function* similarSessions(
  t: Reading,
  look: Look,
  { written, lookups }: ReferencePlan,
  mayKnow: (row: SessionRow) => boolean,
): Body<string[]> {
  const { world, viewer } = look;
  const scope = yield* scopeOf(t, look);
  const own = viewer.as === 'session' ? viewer.party.key.agent : world.agents.defaultId;
  const shownKey = ({ key }: SessionRow) => key;
  const family = yield* familyOf(t, scope);
  const found = new Set<string>();
  const compare = (text: string, rows: SessionRow[], textOf: (row: SessionRow) => string | null, shown: (row: SessionRow) => string) => {
    const byText = new Map<string, string>();
    for (const row of rows) if (mayKnow(row) && textOf(row) !== null) byText.set(textOf(row)!, shown(row));
    for (const near of nearest(text, byText.keys(), mostSuggested)) found.add(byText.get(near)!);
  };
  for (const lookup of lookups) {
    switch (lookup.by) {
      case 'key': {
        const meant = requireSessionKey(lookup.key, keyContext(world.agents, own));
        const rows = [...family, ...(yield* keysNear(t, scope, meant.agent, requestKey(meant)))];
        const nameOf = (row: SessionRow) => requestKey(requireSessionKey(row.key, keyContext(world.agents, row.agent)));
        // The agent that two keys have in common says nothing about how similar they are.
        compare(
          requestKey(meant),
          rows.filter(({ agent }) => agent === meant.agent),
          nameOf,
          shownKey,
        );
        compare(
          lookup.key,
          rows.filter(({ agent }) => agent !== meant.agent),
          ({ key }) => key,
          shownKey,
        );
        // A label is not a key, but its session may be the one that is meant.
        compare(written, yield* labelsNear(t, scope, family, own, written), ({ label }) => label, shownKey);
        break;
      }
      case 'label':
        compare(
          lookup.label,
          yield* labelsNear(t, scope, family, own, lookup.label, lookup.agentId),
          ({ label }) => label,
          ({ label }) => label!,
        );
        break;
      case 'id':
        if (lookup.id.length > idStart && !lookup.id.includes(':'))
          compare(
            lookup.id,
            yield* likeId(t, lookup.id.slice(0, idStart), ceiling(scope)),
            ({ id }) => id,
            ({ id }) => id,
          );
        break;
      case 'shortId':
    }
  }
  return [...found].slice(0, mostSuggested);
}

const ceiling = ({ levels }: ListScope) => levelRank(levels.at(-1)!);

/** The viewer's own session and those that it spawned. */
function* familyOf(t: Reading, { filter, levels }: ListScope): Body<SessionRow[]> {
  const { key, spawnedBy } = filter;
  const ranges = [
    ...(key === '' ? [] : [{ state: 'live' as const, key }]),
    ...(spawnedBy === undefined ? [] : levels.map((level) => ({ state: 'live' as const, spawnedBy, level: levelRank(level) }))),
  ];
  return ranges.length === 0 ? [] : yield* newestSessions(t, ranges, Number.MAX_SAFE_INTEGER, mostChildren);
}

/** Sessions of the agent that was meant, or of agents with a similar name, whose keys are next to the one that was meant. */
function* keysNear(t: Reading, { filter, levels }: ListScope, agent: string, name: string): Body<SessionRow[]> {
  if (filter.agents === undefined) return [];
  const known = filter.agents === 'every' ? yield* agentsWithSessions(t) : filter.agents;
  const rows: SessionRow[] = [];
  for (const one of nearest(agent, known, mostAgents))
    for (const level of levels) rows.push(...(yield* nextToKey(t, `agent:${one}:${name}`, one, levelRank(level))));
  return rows;
}

function* labelsNear(t: Reading, scope: ListScope, family: SessionRow[], own: string, label: string, agentId?: string): Body<SessionRow[]> {
  const { agents } = scope.filter;
  const rows = family.filter((row) => agentId === undefined || row.agent === agentId);
  const reachable = agents === 'every' ? [agentId] : agentId === undefined ? [own, ...(agents ?? [])].slice(0, mostAgents) : [agentId];
  // Capitals come before all small letters in the order of labels.
  const starts = new Set([label, label.toLowerCase(), label.charAt(0).toUpperCase() + label.slice(1).toLowerCase()]);
  for (const agent of new Set(reachable)) {
    if (agents === undefined || (agents !== 'every' && !agents.includes(agent!))) continue;
    for (const start of starts) rows.push(...(yield* nextToLabel(t, start, agent, ceiling(scope))));
  }
  return rows;
}
