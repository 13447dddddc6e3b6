// Settings of a config that weaken what protects sessions from each other and from outside. Each is allowed, and each is worth a look.
import type { Config } from '../config/schema.ts';
import { levels } from '../protocol/labels.ts';
import { isLoopback } from '../server/access.ts';
import { note, type Finding } from './doctor-finding.ts';

export function checkRules(config: Config): Finding[] {
  const { tools, agents, gateway, store, mcp } = config;
  const several = agents.list.length > 1;
  const says: [boolean, string][] = [
    [
      tools.sessions.visibility === 'all',
      'tools.sessions.visibility is "all": a session sees every session that agent-to-agent rules let it reach',
    ],
    [
      tools.agentToAgent.enabled && several && tools.agentToAgent.allow.every((pattern) => pattern.trim() === '*'),
      'tools.agentToAgent lets every agent reach every other one',
    ],
    [
      agents.defaults.sandbox.sessionToolsVisibility === 'all',
      'agents.defaults.sandbox.sessionToolsVisibility is "all": a sandboxed session sees more than what it spawned',
    ],
    [
      agents.defaults.subagents.allowAgents?.includes('*') === true,
      'agents.defaults.subagents.allowAgents lets every agent spawn every other one',
    ],
    [!isLoopback(gateway.host), `gateway.host is ${gateway.host}: other machines can connect, without encryption`],
    [store.durability === 'normal', 'store.durability is "normal": a power cut can take the last acknowledged messages'],
    ...Object.entries(mcp.servers).map(([name, { accepts, level = 'PUBLIC' }]): [boolean, string] => [
      accepts !== undefined && levels.indexOf(accepts) > levels.indexOf(level),
      `mcp.servers.${name} accepts ${accepts}, and its results are ${level}: what it is told can come back at a lower level`,
    ]),
  ];
  return says.flatMap(([holds, text]) => (holds ? [note('rules', text)] : []));
}
