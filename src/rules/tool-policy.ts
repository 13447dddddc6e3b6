// Which tools a session gets, and why: the lists of its agent and its channel, the limits of a child, and the limits of a sandbox.
import type { ErrorCode } from '../errors.ts';
import type { RuleTrace } from '../protocol/decision.ts';
import { agentId, platformId } from '../protocol/ids.ts';
import type { Level } from '../protocol/labels.ts';
import type { RuleSettings, ToolList } from '../protocol/settings.ts';
import { guestToolNames } from '../protocol/tool.ts';
import type { Agent } from './agents.ts';
import { matchesGlob } from './glob.ts';
import { dataLevel, join, mayFlow } from './taint.ts';

/** Tools that a child gets only if the config says so: all that reach beyond its own session. */
const sessionTools = new Set([
  'sessions_list',
  'sessions_history',
  'sessions_send',
  'sessions_search',
  'session_status',
  'sessions_spawn',
  'sessions_yield',
  'subagents',
  'agents_list',
  'message',
]);
export const isSessionTool = (name: string) => sessionTools.has(name);
/** Those of them that only a session that may spawn can use. */
const spawnTools = new Set(['sessions_spawn', 'sessions_yield', 'subagents', 'agents_list']);

export interface ToolRules {
  children: ToolList;
  channels: Map<string, ToolList>;
  /** Outside tool servers: the agents that may use them, and the highest level that may be sent to them. */
  servers: Map<string, { agents: string[] | undefined; accepts: Level }>;
  /** The levels of results: of a tool, of the tools of an outside server, of any other tool. */
  levels: { tools: Map<string, unknown>; servers: Map<string, Level>; default: unknown };
}

/** A session, as far as its tools depend on it. */
export interface ToolHolder {
  agent: Agent;
  /** Its agent is not in the config: it gets no tool. */
  orphaned: boolean;
  depth: number;
  maxSpawnDepth: number;
  sandboxed: boolean;
  /** An outside harness takes its turns. */
  guest: boolean;
  channel: string | undefined;
  taint: Level;
  clearance: Level;
}

export type ToolAnswer = { tool: string; why: string; rules: RuleTrace[] } & ({ allowed: true } | { allowed: false; code: ErrorCode });

export function compileToolRules({ tools, mcp, classification }: Pick<RuleSettings, 'tools' | 'mcp' | 'classification'>): ToolRules {
  const servers = Object.entries(mcp.servers).map(([name, { agents, level, accepts }]) => {
    const ids = agents?.map((id) => (id.trim() === '*' ? '*' : agentId(id)));
    return [name, { agents: ids, accepts: accepts ?? level ?? classification.default }] as const;
  });
  return {
    children: tools.subagents.tools,
    channels: new Map(Object.entries(tools.channels).map(([channel, list]) => [platformId(channel), list])),
    servers: new Map(servers),
    levels: resultLevels(mcp.servers, classification),
  };
}

function resultLevels(servers: RuleSettings['mcp']['servers'], classification: RuleSettings['classification']): ToolRules['levels'] {
  const tools = new Map<string, unknown>();
  for (const [server, { tools: known }] of Object.entries(servers)) {
    for (const [given, { level }] of Object.entries(known)) {
      const name = platformId(outsideTool(server, given));
      // Two names at the server may become one name here; the higher level counts.
      const other = tools.get(name);
      if (level !== undefined) tools.set(name, other === undefined ? level : join(level, dataLevel(other)));
    }
  }
  for (const [name, level] of Object.entries(classification.tools)) tools.set(platformId(name), level);
  const own = Object.entries(servers).flatMap(([name, { level }]) => (level === undefined ? [] : [[name, level] as const]));
  return { tools, servers: new Map(own), default: classification.default };
}

/** The name of an outside server's tool among ours. */
export const outsideTool = (server: string, given: string) => `${server}__${given.replace(/[^a-zA-Z0-9_-]/g, '_')}`;

/** The level of a tool's results. */
export function toolLevel(rules: ToolRules, tool: string): Level {
  const { levels } = rules;
  const server = serverOf(rules, tool);
  const ofServer = server === undefined ? undefined : levels.servers.get(server);
  return dataLevel(levels.tools.get(platformId(tool)) ?? ofServer ?? levels.default);
}

/** The outside server a tool belongs to: `server__tool`. */
export function serverOf({ servers }: ToolRules, tool: string): string | undefined {
  const cut = tool.indexOf('__');
  const name = tool.slice(0, Math.max(0, cut));
  return servers.has(name) ? name : undefined;
}

/** Every gate is evaluated, so that the trace shows each obstacle; the first refusal is the reason. */
export function decideTool(rules: ToolRules, tool: string, holder: ToolHolder): ToolAnswer {
  const gates = guestToolNames.includes(tool) ? [forGuest(holder)] : gatesOf(rules, tool, holder);
  if (holder.orphaned) gates.unshift(forOrphan(holder));
  gates.push(...withinClearance(toolLevel(rules, tool), holder));
  const trace = gates.map(({ rule, refused, why }): RuleTrace => ({ rule, effect: refused ? 'BLOCK' : 'ALLOW', why }));
  const first = gates.find((gate) => gate.refused);
  if (first) return { tool, allowed: false, code: first.code ?? 'TOOL_NOT_ALLOWED', why: first.why, rules: trace };
  return { tool, allowed: true, why: gates.map((gate) => gate.why).join('; '), rules: trace };
}

const forOrphan = ({ agent }: ToolHolder): Gate => ({
  rule: 'agent',
  refused: true,
  code: 'AGENT_NOT_FOUND',
  why: `agent "${agent.id}" is not in the config, so its sessions get no tools`,
});

/** A result raises the session that reads it, so a tool whose results are above the session's clearance is refused before it acts. */
function withinClearance(level: Level, { clearance }: ToolHolder): Gate[] {
  if (level === 'PUBLIC') return [];
  const refused = !mayFlow(level, clearance);
  const why = `its results are ${level}, and the clearance of this caller is ${clearance}`;
  return [{ rule: 'clearance', refused, why, code: 'ABOVE_CLEARANCE' }];
}

/** A guest cannot answer without these tools, so no list applies to them: its token is the permission. */
const forGuest = ({ guest }: ToolHolder): Gate => ({
  rule: 'guest.tools',
  refused: !guest,
  why: guest ? 'a guest takes its turns with it' : 'only a guest takes its turns itself',
});

function gatesOf(rules: ToolRules, tool: string, holder: ToolHolder): Gate[] {
  const { agent, depth, channel } = holder;
  const gates: Gate[] = [byList('agent.tools', agent.tools, `tools of agent "${agent.id}"`, tool)];
  const there = channelList(rules, holder);
  if (there) gates.push(byList('channel.tools', there, `tools.channels.${channel!}`, tool));
  if (depth > 0) gates.push(...forChild(rules.children, tool, holder));
  if (holder.guest) gates.push(asGuest(tool, holder));
  const server = serverOf(rules, tool);
  if (server !== undefined) gates.push(...forOutside(rules, server, tool, holder));
  return gates;
}

/** The servers of which a session could get some tool, before their tools are known. */
export function serversFor(rules: ToolRules, holder: ToolHolder): string[] {
  if (holder.orphaned) return [];
  const lists = [holder.agent.tools, channelList(rules, holder), holder.depth > 0 ? rules.children : undefined];
  return [...rules.servers.keys()].filter((server) => {
    const prefix = `${server}__`.toLowerCase();
    const some = ({ allow, deny }: ToolList) =>
      !deny.some((one) => coversAll(one, prefix)) && (!allow || allow.some((one) => mayMatch(one, prefix)));
    const { agents, accepts } = rules.servers.get(server)!;
    return (
      lists.every((list) => !list || some(list)) &&
      (!agents || agents.includes(holder.agent.id) || agents.includes('*')) &&
      (!holder.sandboxed || holder.agent.tools.allow !== undefined) &&
      mayFlow(holder.taint, accepts)
    );
  });
}

const channelList = ({ channels }: ToolRules, { channel }: ToolHolder) => (channel === undefined ? undefined : channels.get(channel));

/** Whether a pattern can match some name with this prefix. */
function mayMatch(pattern: string, prefix: string): boolean {
  const [head = '', ...rest] = pattern.trim().toLowerCase().split('*');
  return head.startsWith(prefix) || (rest.length > 0 && prefix.startsWith(head));
}

/** Whether a pattern matches every name with this prefix. */
function coversAll(pattern: string, prefix: string): boolean {
  const text = pattern.trim().toLowerCase();
  return text.indexOf('*') === text.length - 1 && prefix.startsWith(text.slice(0, -1));
}

interface Gate {
  rule: string;
  refused: boolean;
  why: string;
  code?: ErrorCode;
}

function byList(rule: string, { allow, deny }: ToolList, setting: string, tool: string): Gate {
  const denied = deny.find((pattern) => matchesGlob(pattern, tool));
  if (denied !== undefined) return { rule, refused: true, why: `deny of ${setting} has "${denied}"` };
  if (allow === undefined) return { rule, refused: false, why: `${setting} are not limited` };
  const allowed = allow.find((pattern) => matchesGlob(pattern, tool));
  return allowed === undefined
    ? { rule, refused: true, why: `allow of ${setting} does not have it` }
    : { rule, refused: false, why: `allow of ${setting} has "${allowed}"` };
}

/** A harness has its own tools. Our tools beside the session tools run with the operator's rights, so the config must name them. */
function asGuest(tool: string, { agent }: ToolHolder): Gate {
  const named = agent.tools.allow !== undefined;
  const refused = !sessionTools.has(tool) && !named;
  return {
    rule: 'guest.tools',
    refused,
    why: refused
      ? `a guest has the session tools; tools.allow of agent "${agent.id}" can name more`
      : 'a guest has the session tools and what its agent is allowed',
  };
}

function forChild(list: ToolList, tool: string, { depth, maxSpawnDepth }: ToolHolder): Gate[] {
  const rule = 'subagent.tools';
  const reaching = list.allow === undefined && sessionTools.has(tool);
  const listed: Gate = reaching
    ? { rule, refused: true, why: 'a spawned session has no session tools unless tools.subagents.tools.allow names them' }
    : byList(rule, list, 'tools.subagents.tools', tool);
  if (!spawnTools.has(tool)) return [listed];
  const deep = depth >= maxSpawnDepth;
  const why = `this session is ${depth} deep, and agents.defaults.subagents.maxSpawnDepth is ${maxSpawnDepth}`;
  return [listed, { rule: 'spawn.depth', refused: deep, why, code: 'SPAWN_DEPTH' }];
}

function forOutside(rules: ToolRules, server: string, tool: string, { agent, sandboxed, taint }: ToolHolder): Gate[] {
  const { agents, accepts } = rules.servers.get(server)!;
  const setting = `mcp.servers.${server}`;
  const gates: Gate[] = [];
  if (agents) {
    const named = agents.includes(agent.id) || agents.includes('*');
    gates.push({ rule: 'mcp.agents', refused: !named, why: `${setting}.agents ${named ? 'has' : 'does not have'} "${agent.id}"` });
  }
  if (sandboxed) {
    // The server runs outside with the rights of its own process: a way out of the sandbox, unless the config allows it.
    const chosen = agent.tools.allow?.some((pattern) => matchesGlob(pattern, tool)) ?? false;
    const why = `this session is sandboxed, and a tool of an outside server ${chosen ? 'is named in' : 'must be named in'} allow of its agent`;
    gates.push({ rule: 'sandbox.tools', refused: !chosen, why });
  }
  const why = `this session is ${taint}, and ${setting} accepts ${accepts}`;
  gates.push({ rule: 'taint.write', refused: !mayFlow(taint, accepts), why, code: 'WRITE_DOWN' });
  return gates;
}
