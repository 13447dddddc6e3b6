// A viewer reads or follows sessions. The same rules say what it may see in lists, histories, runs and events.
import { levels, type Level } from '../protocol/labels.ts';
import { listScope, passesScope, type ListScope, type Party, type World } from './decide.ts';
import { mayFlow } from './taint.ts';
import type { Viewed } from './visibility.ts';

export type Viewer =
  /** A session that uses its tools: visibility, agent-to-agent rules and its own taint decide. */
  | { as: 'session'; party: Party }
  /** A caller with an operator's token: sees every session up to the token's level. */
  | { as: 'operator'; level: Level }
  /** A caller whose token is bound to one session: sees that session and no other, up to the token's level. */
  | { as: 'visitor'; sessionKey: string; level: Level }
  /** The gateway itself: sees everything. */
  | { as: 'system' };

/** Something that a viewer may see: its level, and the session it belongs to. */
export interface Fact extends Viewed {
  level: Level;
}

/** I6. Agrees with `decide` on every session, and with `scopeFor` on every list. */
export function canSee(world: World, viewer: Viewer, fact: Fact): boolean {
  switch (viewer.as) {
    case 'session':
      return passesScope(listScope(world, viewer.party, [fact.agent]), fact);
    case 'operator':
      return mayFlow(fact.level, viewer.level);
    case 'visitor':
      return fact.key === viewer.sessionKey && mayFlow(fact.level, viewer.level);
    case 'system':
      return true;
  }
}

/** The highest level that a viewer reads inside a session it may see. */
export function ceilingOf(viewer: Viewer): Level {
  switch (viewer.as) {
    case 'session':
      return viewer.party.facts.taint;
    case 'operator':
    case 'visitor':
      return viewer.level;
    case 'system':
      return 'RESTRICTED';
  }
}

/** Whether a viewer reads data of this level, in a session that it may see. */
export const mayRead = (viewer: Viewer, level: Level): boolean => mayFlow(level, ceilingOf(viewer));

/** The filter of a viewer's lists. `agents`: the agents that have a session, for patterns to choose from. */
export function scopeFor(world: World, viewer: Viewer, agents: Iterable<string>): ListScope {
  if (viewer.as === 'session') return listScope(world, viewer.party, agents);
  const readable = levels.filter((level) => mayRead(viewer, level));
  const reading = { levels: readable, ownLevels: readable };
  if (viewer.as === 'visitor')
    return { visibility: 'self', why: 'the token is bound to this session', filter: { key: viewer.sessionKey }, ...reading };
  const why = `an operator sees every session up to ${ceilingOf(viewer)}`;
  return { visibility: 'all', why, filter: { key: '', agents: 'every' }, ...reading };
}

/** Whether `scopeFor` needs the list of agents. */
export function scopeNeedsAgents(world: World, viewer: Viewer): boolean {
  if (viewer.as !== 'session' || !world.agentToAgent.enabled) return false;
  const { visibility, filter } = listScope(world, viewer.party, []);
  return visibility === 'all' && filter.agents !== 'every';
}
