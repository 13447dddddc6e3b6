// agents_list: the agents this caller may spawn.
import { z } from 'zod';
import { agentOf, isKnownAgent } from '../rules/agents.ts';
import { spawnableAgents } from '../rules/spawn-policy.ts';
import { defineTool } from './define.ts';

export const agentsList = defineTool({
  name: 'agents_list',
  description: 'List the agents that you may spawn sessions of.',
  effect: 'pure',
  params: z.strictObject({}),
  // oxlint-disable-next-line require-await -- asynchronous by contract
  async run({ world, caller, session }) {
    const ids = spawnableAgents(world.agents, world.maxSpawnDepth, {
      requester: caller.key,
      depth: session.depth,
      runtime: 'subagent',
      sandbox: 'inherit',
    });
    const agents = ids.filter((id) => isKnownAgent(world.agents, id)).map((id) => ({ id, name: agentOf(world.agents, id).name }));
    return { value: { requester: session.agent, agents } };
  },
});
