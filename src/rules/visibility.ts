// Which sessions a session may see: self < tree < agent < all, never wider than a sandbox allows.
import { visibilities, type Visibility } from '../protocol/labels.ts';
import type { AgentToAgent } from '../protocol/settings.ts';
import { decideCrossing } from './agent-to-agent.ts';

/** The session that wants to see others. */
export interface Observer {
  key: string;
  agent: string;
  sandboxed: boolean;
  /** The visibility of its agent's sandboxes. */
  sandboxVisibility: 'spawned' | 'all';
  /** The visibility that the operator granted to this one session, instead of the general setting. */
  see?: Visibility | undefined;
}

export interface Viewed {
  key: string;
  agent: string;
  spawnedBy?: string | undefined;
}

export interface Scope {
  visibility: Visibility;
  why: string;
}

/** The visibility of a session. The clamp only narrows: `self` stays `self`. */
export function scopeOf(setting: Visibility, observer: Observer): Scope {
  const visibility = observer.see ?? setting;
  const why =
    observer.see === undefined ? `tools.sessions.visibility is "${setting}"` : `the operator lets this session see "${observer.see}"`;
  const clamp = observer.sandboxed && observer.sandboxVisibility === 'spawned';
  if (clamp && visibilities.indexOf(visibility) > visibilities.indexOf('tree'))
    return { visibility: 'tree', why: `${why}, but this session is sandboxed and sees at most what it spawned` };
  return { visibility, why };
}

export function decideVisibility(setting: Visibility, observer: Observer, target: Viewed): { allowed: boolean; why: string } {
  const scope = scopeOf(setting, observer);
  if (target.key === observer.key) return { allowed: true, why: 'a session sees itself' };
  if (scope.visibility !== 'self' && target.spawnedBy === observer.key) return { allowed: true, why: 'this session spawned it' };
  if (scope.visibility === 'all') return { allowed: true, why: scope.why };
  if (scope.visibility === 'agent' && target.agent === observer.agent)
    return { allowed: true, why: `${scope.why}, and both belong to agent "${observer.agent}"` };
  return { allowed: false, why: scope.why };
}

/** A list's filter as plain data, for a store to turn into an indexed query. A row passes if it meets any one condition. */
export interface ListFilter {
  key: string;
  spawnedBy?: string;
  agents?: 'every' | string[];
}

/** The same decision as `decideVisibility` and `decideCrossing`, for a whole list at once. */
export function listFilter(setting: Visibility, crossing: AgentToAgent, observer: Observer, agents: Iterable<string>): ListFilter {
  const { visibility } = scopeOf(setting, observer);
  if (visibility === 'self') return { key: observer.key };
  if (visibility === 'tree') return { key: observer.key, spawnedBy: observer.key };
  if (visibility === 'agent') return { key: observer.key, spawnedBy: observer.key, agents: [observer.agent] };
  const everyAgent = crossing.enabled && (crossing.allow.length === 0 || crossing.allow.some((pattern) => pattern.trim() === '*'));
  const reachable = [...new Set([observer.agent, ...agents])].filter((agent) => decideCrossing(crossing, observer.agent, agent).allowed);
  return { key: observer.key, spawnedBy: observer.key, agents: everyAgent ? 'every' : reachable };
}

export function passesFilter(filter: ListFilter, row: Viewed): boolean {
  if (row.key === filter.key) return true;
  if (filter.spawnedBy !== undefined && row.spawnedBy === filter.spawnedBy) return true;
  return filter.agents === 'every' || (filter.agents?.includes(row.agent) ?? false);
}
