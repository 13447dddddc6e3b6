// The configured agents as one table: id → its settings, its own over the defaults.
import { agentId } from '../protocol/ids.ts';
import type { RuleSettings, SandboxMode, ToolList } from '../protocol/settings.ts';
import type { KeyContext, SessionKey } from './session-key.ts';

export interface Agent {
  id: string;
  name?: string | undefined;
  sandbox: { mode: SandboxMode; sessionToolsVisibility: 'spawned' | 'all' };
  /** Other agents it may spawn, as ids or `*`. */
  allowAgents: string[];
  tools: ToolList;
}

export interface AgentTable {
  /** Empty when `agents.list` is empty: then any id is an agent with the default settings. */
  byId: Map<string, Agent>;
  defaultId: string;
  unlisted: Omit<Agent, 'id'>;
  mainKey: string;
  globalOwner: string | undefined;
}

export function compileAgents(settings: Pick<RuleSettings, 'agents' | 'session'>): AgentTable {
  const { defaults, list } = settings.agents;
  const unlisted = { sandbox: defaults.sandbox, allowAgents: allowedIds(defaults.subagents.allowAgents ?? []), tools: { deny: [] } };
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
    });
  }
  const chosen = list.find((entry) => entry.default) ?? list[0];
  const defaultId = agentId(chosen?.id ?? 'main');
  return {
    byId,
    defaultId,
    unlisted,
    mainKey: settings.session.mainKey,
    globalOwner: settings.session.scope === 'global' ? defaultId : undefined,
  };
}

/** The settings of an agent that a key or a binding names. */
export function agentOf(table: AgentTable, id: string): Agent {
  return table.byId.get(id) ?? { id, ...table.unlisted };
}

/** False only for an id that a written `agents.list` does not have. */
export function isKnownAgent(table: AgentTable, id: string): boolean {
  return table.byId.size === 0 || table.byId.has(id);
}

/** The context in which keys of an agent are parsed. */
export function keyContext(table: AgentTable, agent: string): KeyContext {
  return { agentId: agent, mainKey: table.mainKey, globalOwner: table.globalOwner };
}

/** Whether a key is its agent's main session itself, not a thread of it. */
export function isMain(key: SessionKey): boolean {
  return (key.shape === 'main' || key.shape === 'global') && key.threads.length === 0;
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
