// The configured agents as one table: id → its settings, its own over the defaults.
import { InterlaneError } from '../errors.ts';
import { nearest } from '../nearest.ts';
import { agentId } from '../protocol/ids.ts';
import type { Level } from '../protocol/labels.ts';
import type { RuleSettings, SandboxMode, ToolList } from '../protocol/settings.ts';
import { formatSessionKey, mainKey, parseSessionKey, type KeyContext, type SessionKey } from './session-key.ts';

export interface Agent {
  id: string;
  name?: string | undefined;
  sandbox: { mode: SandboxMode; sessionToolsVisibility: 'spawned' | 'all' };
  /** Other agents it may spawn, as ids or `*`. */
  allowAgents: string[];
  tools: ToolList;
  /** The highest level that its sessions may rise to. */
  clearance: Level;
}

export interface AgentTable {
  /** Every agent there is: those of `agents.list`; without a list, `main` and the agents that bindings name. */
  byId: Map<string, Agent>;
  defaultId: string;
  unlisted: Omit<Agent, 'id'>;
  mainKey: string;
  globalOwner: string | undefined;
}

export function compileAgents(settings: Pick<RuleSettings, 'agents' | 'session' | 'bindings'>): AgentTable {
  const { defaults, list } = settings.agents;
  const unlisted = {
    sandbox: defaults.sandbox,
    allowAgents: allowedIds(defaults.subagents.allowAgents ?? []),
    tools: { deny: [] },
    clearance: defaults.clearance,
  };
  const byId = new Map<string, Agent>();
  for (const entry of list) {
    const id = agentId(entry.id);
    byId.set(id, {
      id,
      name: entry.name,
      sandbox: {
        mode: entry.sandbox.mode ?? defaults.sandbox.mode,
        sessionToolsVisibility: entry.sandbox.sessionToolsVisibility ?? defaults.sandbox.sessionToolsVisibility,
      },
      allowAgents: entry.subagents.allowAgents ? allowedIds(entry.subagents.allowAgents) : unlisted.allowAgents,
      tools: entry.tools,
      clearance: entry.clearance ?? defaults.clearance,
    });
  }
  const chosen = list.find((entry) => entry.default) ?? list[0];
  const defaultId = agentId(chosen?.id ?? 'main');
  if (list.length === 0)
    for (const id of [defaultId, ...settings.bindings.map((binding) => agentId(binding.agentId))]) byId.set(id, { id, ...unlisted });
  return {
    byId,
    defaultId,
    unlisted,
    mainKey: settings.session.mainKey,
    globalOwner: settings.session.scope === 'global' ? defaultId : undefined,
  };
}

/** The settings of the agent of a key. An agent that was removed from the config has the default settings. */
export function agentOf(table: AgentTable, id: string): Agent {
  return table.byId.get(id) ?? { id, ...table.unlisted };
}

/** False for an agent that the config never had, or that was removed from it: no session of it gets a turn. */
export function isKnownAgent(table: AgentTable, id: string): boolean {
  return table.byId.has(id);
}

/** Throws for an agent that does not exist, and names the ones that do. */
export function requireAgent(table: AgentTable, id: string): void {
  if (!isKnownAgent(table, id)) throw new InterlaneError('AGENT_NOT_FOUND', noSuchAgent(table, id));
}

/** The agent that a person means by a bare name. `main` and the configured main key are the default agent's main session, not an agent. */
export function agentNamed(ids: readonly string[], mainKey: string, name: string): string | undefined {
  const word = name.trim().toLowerCase();
  return word === 'main' || word === mainKey.toLowerCase() ? undefined : ids.find((id) => id === word);
}

/** Throws for a new session that would have the name of an agent: the bare name means that agent's main session. */
export function refuseAgentName(table: AgentTable, storeKey: string): void {
  const parsed = parseSessionKey(storeKey, keyContext(table, table.defaultId));
  if (!parsed.ok || parsed.key.shape !== 'named') return;
  const agent = agentNamed([...table.byId.keys()], table.mainKey, parsed.key.name);
  if (agent === undefined) return;
  const main = formatSessionKey(mainKey(keyContext(table, agent)));
  throw new InterlaneError(
    'SESSION_KEY_RESERVED',
    `session key ${JSON.stringify(storeKey.slice(0, 200))} is not usable: "${agent}" is an agent, whose main session is ${main}; choose another name`,
  );
}

const mostNamed = 20;

/** Why an agent does not answer, with the agents that do. */
export function noSuchAgent(table: AgentTable, id: string): string {
  const ids = [...table.byId.keys()];
  const [near] = nearest(id, ids);
  const more = ids.length > mostNamed ? `, and ${ids.length - mostNamed} more` : '';
  const hint = near === undefined ? `the config has: ${ids.slice(0, mostNamed).join(', ')}${more}` : `did you mean "${near}"?`;
  return `agent "${id}" does not exist; ${hint}`;
}

/** Why an agent that was named beside a session contradicts it; undefined if it does not. */
export const contradiction = (named: string | undefined, owner: string, what: 'key' | 'session'): string | undefined =>
  named === undefined || named === owner
    ? undefined
    : `agentId is "${named}", but the ${what} belongs to "${owner}"; leave one of them out`;

/** The context in which keys of an agent are parsed. */
export function keyContext(table: AgentTable, agent: string): KeyContext {
  return { agentId: agent, mainKey: table.mainKey, globalOwner: table.globalOwner };
}

/** Whether a key is its agent's main session itself, not a thread of it. */
export function isMain(key: SessionKey): boolean {
  return key.shape === 'main' && key.threads.length === 0;
}

/** Whether a session's tools run in a sandbox: depends on its agent's mode and on whether it is that agent's main session. */
export function isSandboxed(table: AgentTable, key: SessionKey): boolean {
  const mode = agentOf(table, key.agent).sandbox.mode;
  if (mode === 'non-main') return !isMain(key);
  return mode === 'all';
}

function allowedIds(written: string[]): string[] {
  return written.map((id) => (id.trim() === '*' ? '*' : agentId(id)));
}
