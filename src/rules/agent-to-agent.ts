// May one agent's session reach another agent's: off until enabled, then both agents must be on the list, if there is one.
import type { AgentToAgent } from '../protocol/settings.ts';
import { matchesGlob } from './glob.ts';

export function decideCrossing(setting: AgentToAgent, from: string, to: string): { allowed: boolean; why: string } {
  if (from === to) return { allowed: true, why: 'both sessions belong to the same agent' };
  if (!setting.enabled) return { allowed: false, why: 'tools.agentToAgent.enabled is false, so agents do not reach each other' };
  if (setting.allow.length === 0) return { allowed: true, why: 'tools.agentToAgent is enabled for every agent' };
  for (const agent of [from, to]) {
    if (!isListed(setting, agent)) return { allowed: false, why: `tools.agentToAgent.allow has no pattern for agent "${agent}"` };
  }
  return { allowed: true, why: 'tools.agentToAgent.allow lists both agents' };
}

function isListed(setting: AgentToAgent, agent: string): boolean {
  return setting.allow.some((pattern) => matchesGlob(pattern, agent));
}
