// May this session spawn a child under that agent: depth, allowed agents, and no way out of a sandbox.
import type { ErrorCode } from '../errors.ts';
import type { RuleTrace } from '../protocol/decision.ts';
import { isIdToken } from '../protocol/ids.ts';
import { agentOf, isKnownAgent, isSandboxed, type AgentTable } from './agents.ts';
import { ownedKey, type SessionKey } from './session-key.ts';

export interface SpawnRequest {
  requester: SessionKey;
  /** The number of spawns above the requester; 0 for a session that was not spawned. */
  depth: number;
  /** The agent to spawn; by default the requester's own. */
  agentId?: string | undefined;
  runtime: 'subagent' | 'acp';
  sandbox: 'inherit' | 'require';
}

export type SpawnAnswer = { rules: RuleTrace[]; agentId: string } & ({ allowed: true } | { allowed: false; code: ErrorCode; why: string });

export function decideSpawn(agents: AgentTable, maxSpawnDepth: number, request: SpawnRequest): SpawnAnswer {
  const agentId = request.agentId?.trim().toLowerCase() ?? request.requester.agent;
  const steps: { rule: string; code: ErrorCode; refused?: string | undefined; allowed: string }[] = [
    {
      rule: 'spawn.depth',
      code: 'SPAWN_DEPTH',
      refused:
        request.depth >= maxSpawnDepth
          ? `this session is ${request.depth} deep, and agents.defaults.subagents.maxSpawnDepth is ${maxSpawnDepth}`
          : undefined,
      allowed: `the child is ${request.depth + 1} deep of at most ${maxSpawnDepth}`,
    },
    {
      rule: 'spawn.allowAgents',
      code: 'AGENT_NOT_ALLOWED',
      refused: agentRefusal(agents, request.requester.agent, agentId),
      allowed:
        agentId === request.requester.agent
          ? 'an agent may always spawn itself'
          : `subagents.allowAgents of "${request.requester.agent}" has it`,
    },
    {
      rule: 'spawn.sandbox',
      code: 'SANDBOX_REQUIRED',
      refused: sandboxRefusal(agents, request, agentId),
      allowed: 'the child is not less sandboxed than requested',
    },
  ];
  const rules = steps.map(({ rule, refused, allowed }): RuleTrace => ({
    rule,
    effect: refused ? 'BLOCK' : 'ALLOW',
    why: refused ?? allowed,
  }));
  const first = steps.find((step) => step.refused);
  return first ? { allowed: false, agentId, rules, code: first.code, why: first.refused! } : { allowed: true, agentId, rules };
}

/** The agents a session may spawn right now, its own first, as `agents_list` returns them. Agrees with `decideSpawn` on each. */
export function spawnableAgents(agents: AgentTable, maxSpawnDepth: number, request: Omit<SpawnRequest, 'agentId'>): string[] {
  const listed = allowedAgents(agents, request.requester.agent);
  return listed.filter((agentId) => decideSpawn(agents, maxSpawnDepth, { ...request, agentId }).allowed);
}

function allowedAgents(agents: AgentTable, requester: string): string[] {
  const { allowAgents } = agentOf(agents, requester);
  const others = allowAgents.includes('*') ? [...agents.byId.keys()] : allowAgents.filter((id) => isKnownAgent(agents, id));
  return [...new Set([requester, ...others])];
}

function agentRefusal(agents: AgentTable, requester: string, wanted: string): string | undefined {
  // Not normalized: a name that is not an id is a mistake, and normalizing it could start the wrong agent.
  if (!isIdToken(wanted)) return `${JSON.stringify(wanted.slice(0, 100))} is not an agent id`;
  if (wanted === requester) return undefined;
  const { allowAgents } = agentOf(agents, requester);
  if (isKnownAgent(agents, wanted) && (allowAgents.includes(wanted) || allowAgents.includes('*'))) return undefined;
  return `agent "${requester}" may not spawn "${wanted}"; it may spawn: ${allowedAgents(agents, requester).join(', ')}`;
}

function sandboxRefusal(agents: AgentTable, request: SpawnRequest, agentId: string): string | undefined {
  const requesterSandboxed = isSandboxed(agents, request.requester);
  const childSandboxed = request.runtime === 'subagent' && isSandboxed(agents, ownedKey('subagent', 'child', agentId));
  if (childSandboxed) return undefined;
  const child = request.runtime === 'acp' ? 'an ACP harness runs outside the sandbox' : `children of agent "${agentId}" are not sandboxed`;
  if (requesterSandboxed) return `the requester is sandboxed, and ${child}`;
  if (request.sandbox === 'require') return `a sandbox is required, and ${child}`;
  return undefined;
}
