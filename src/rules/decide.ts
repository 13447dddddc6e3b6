// The one door: what a session asks to do → ALLOW, BLOCK or REDACT, with every rule that was asked, in order.
import type { RE2JS } from 're2js';
import type { ErrorCode } from '../errors.ts';
import type { Effect, RuleTrace } from '../protocol/decision.ts';
import { platformId } from '../protocol/ids.ts';
import { levels, type ChatTypeWord, type HookName, type Level, type Visibility } from '../protocol/labels.ts';
import type { SessionFacts } from '../protocol/session.ts';
import type { RuleSettings } from '../protocol/settings.ts';
import { decideCrossing } from './agent-to-agent.ts';
import { agentOf, compileAgents, isSandboxed, keyContext, type AgentTable } from './agents.ts';
import { askHook, compilePolicy, type HookSubject, type Policy } from './hooks.ts';
import { decideSend } from './send-policy.ts';
import { formatSessionKey, keySpellings, requireSessionKey, keyChannel, type SessionKey } from './session-key.ts';
import { decideSpawn } from './spawn-policy.ts';
import { destinationLevel, join, mayFlow } from './taint.ts';
import { compileToolRules, decideTool, serverOf, serversFor, type ToolAnswer, type ToolHolder, type ToolRules } from './tool-policy.ts';
import { decideVisibility, listFilter, passesFilter, scopeOf, type ListFilter, type Observer, type Viewed } from './visibility.ts';

/** Everything decisions depend on besides the request; made once from a config. */
export interface World {
  agents: AgentTable;
  visibility: Visibility;
  agentToAgent: RuleSettings['tools']['agentToAgent'];
  sendPolicy: RuleSettings['session']['sendPolicy'];
  channelLevels: Map<string, unknown>;
  policy: Policy;
  maxSpawnDepth: number;
  tools: ToolRules;
  /** Told of what is decided in earnest, by whoever asked. `decide` itself never calls it and stays pure. */
  decided?(action: Request['action'], effect: Effect): void;
}

/** A session as the door sees it: its facts, with the key already read. */
export interface Party {
  key: SessionKey;
  storeKey: string;
  facts: SessionFacts;
}

export type Request =
  | { action: 'list' | 'read' | 'status'; caller: Party; target: Party }
  | { action: 'send' | 'reply'; caller: Party; target: Party; text?: string | undefined }
  | {
      action: 'spawn';
      caller: Party;
      agentId?: string | undefined;
      runtime: 'subagent' | 'acp';
      sandbox: 'inherit' | 'require';
      text?: string | undefined;
    }
  | { action: 'deliver'; caller: Party; channel: string; chatType?: ChatTypeWord | undefined; text?: string | undefined }
  | { action: 'tool' | 'result'; caller: Party; tool: string; text?: string | undefined }
  /** An operator, who is no session: sees what is not above the level of its token. `sends`: with a message to be answered. */
  | { action: 'operate'; level: Level; target: Party; sends: boolean };

export interface Decision {
  effect: Effect;
  /** For the operator, and for the caller unless `hidden`. */
  why: string;
  code?: ErrorCode;
  /** The caller must not learn that the target exists: answer as if it did not. */
  hidden: boolean;
  rules: RuleTrace[];
  redactions: RE2JS[];
}

/** The level of what comes from a channel; one without an entry is PUBLIC. */
export const channelLevel = (world: World, channel: string) => (world.channelLevels.get(channel) ?? 'PUBLIC') as Level;

export function compileWorld(settings: RuleSettings): World {
  return {
    agents: compileAgents(settings),
    visibility: settings.tools.sessions.visibility,
    agentToAgent: settings.tools.agentToAgent,
    sendPolicy: settings.session.sendPolicy,
    channelLevels: new Map(Object.entries(settings.classification.channels).map(([channel, level]) => [platformId(channel), level])),
    policy: compilePolicy(settings.policy.rules),
    maxSpawnDepth: settings.agents.defaults.subagents.maxSpawnDepth,
    tools: compileToolRules(settings),
  };
}

/** A key without an agent belongs to `agent`, the one who speaks of it; `spawnedBy` without one, to the session's own. */
export function partyOf(world: World, facts: SessionFacts, agent = world.agents.defaultId): Party {
  const key = requireSessionKey(facts.key, keyContext(world.agents, agent));
  const spawnedBy =
    facts.spawnedBy === undefined ? undefined : formatSessionKey(requireSessionKey(facts.spawnedBy, keyContext(world.agents, key.agent)));
  return { key, storeKey: formatSessionKey(key), facts: { ...facts, spawnedBy } };
}

/** I6. Pure: the same request in the same world has the same answer, wherever it is asked. */
export function decide(request: Request, world: World): Decision {
  const verdict = new Verdict();
  switch (request.action) {
    case 'list':
    case 'read':
    case 'status':
      reach(verdict, world, request.caller, request.target);
      break;
    case 'send':
      if (request.caller.storeKey === request.target.storeKey)
        verdict.block('send.self', 'SEND_TO_SELF', 'a session does not send to itself');
      reach(verdict, world, request.caller, request.target);
      verdict.note('send-policy', 'an inter-session message is not delivered to a channel; its announce is, and is asked then');
      flowTo(verdict, request.caller, request.target.facts.taint, 'the target session');
      hook(verdict, world, request.caller, { hook: 'PRE_CONTEXT_INJECTION', text: request.text });
      break;
    case 'reply':
      // An answer goes to who asked: reaching them was decided then, and only what it carries is asked now.
      flowTo(verdict, request.caller, request.target.facts.taint, 'the session that asked');
      hook(verdict, world, request.caller, { hook: 'PRE_CONTEXT_INJECTION', text: request.text });
      break;
    case 'spawn':
      spawn(verdict, world, request);
      hook(verdict, world, request.caller, { hook: 'AGENT_INVOCATION', text: request.text });
      break;
    case 'deliver':
      deliver(verdict, world, request);
      break;
    case 'operate':
      operate(verdict, world, request);
      break;
    case 'tool': {
      const given = toolFor(world, request.caller, request.tool);
      verdict.include(given.rules, given.allowed ? undefined : given);
      if (serverOf(world.tools, request.tool))
        hook(verdict, world, request.caller, { hook: 'MCP_TOOL_CALL', tool: request.tool, text: request.text });
      hook(verdict, world, request.caller, { hook: 'PRE_TOOL_CALL', tool: request.tool, text: request.text });
      break;
    }
    case 'result':
      hook(verdict, world, request.caller, { hook: 'POST_TOOL_RESPONSE', tool: request.tool, text: request.text });
      break;
  }
  return verdict.decision();
}

/** Whether a session gets a tool at all, whatever it is called with: what a model is offered, and what `decide` begins with. */
export function toolFor(world: World, caller: Party, tool: string): ToolAnswer {
  return decideTool(world.tools, tool, holderOf(world, caller));
}

/** The outside servers of which a session may get a tool; no other one is started for it. */
export function usableServers(world: World, caller: Party): string[] {
  return serversFor(world.tools, holderOf(world, caller));
}

function holderOf(world: World, caller: Party): ToolHolder {
  return {
    agent: agentOf(world.agents, caller.key.agent),
    depth: depthOf(caller),
    maxSpawnDepth: world.maxSpawnDepth,
    sandboxed: isSandboxed(world.agents, caller.key),
    guest: caller.key.shape === 'guest',
    channel: speaksOn(caller),
    taint: caller.facts.taint,
  };
}

/** What a caller's lists are cut to, as plain data; agrees with `decide({ action: 'list' })` on every session. */
export interface ListScope {
  visibility: Visibility;
  why: string;
  filter: ListFilter;
  /** Levels a listed session may have; the caller itself is always listed. */
  levels: Level[];
}

export function listScope(world: World, caller: Party, agents: Iterable<string>): ListScope {
  const observer = observerOf(world, caller);
  return {
    ...scopeOf(world.visibility, observer),
    filter: listFilter(world.visibility, world.agentToAgent, observer, agents),
    levels: levels.filter((level) => mayFlow(level, caller.facts.taint)),
  };
}

export function inListScope(scope: ListScope, row: Party): boolean {
  const viewed = { key: row.storeKey, agent: row.key.agent, spawnedBy: row.facts.spawnedBy };
  return passesScope(scope, { ...viewed, level: knownFrom(row) });
}

/** The same for a session of which only the facts that lists depend on are known. */
export function passesScope(scope: ListScope, viewed: Viewed & { level: Level }): boolean {
  return passesFilter(scope.filter, viewed) && (viewed.key === scope.filter.key || scope.levels.includes(viewed.level));
}

// The gates, in the order of the trace -------------------------------------------------------------------------------

function reach(verdict: Verdict, world: World, caller: Party, target: Party): void {
  if (depthOf(caller) > 0)
    verdict.note(
      'subagent.tools',
      'a spawned session has no session tools unless tools.subagents.tools gives it some; this is what holds if it has',
    );
  const own = caller.storeKey === target.storeKey;
  const viewed = { key: target.storeKey, agent: target.key.agent, spawnedBy: target.facts.spawnedBy };
  const seen = decideVisibility(world.visibility, observerOf(world, caller), viewed);
  verdict.gate('visibility', seen.allowed, 'SESSION_NOT_FOUND', seen.why, 'hides');
  const child = viewed.spawnedBy === caller.storeKey;
  const crossing = child
    ? { allowed: true, why: 'a session reaches the ones it spawned; crossing was decided at the spawn' }
    : decideCrossing(world.agentToAgent, caller.key.agent, target.key.agent);
  verdict.gate('agent-to-agent', crossing.allowed, 'SESSION_NOT_FOUND', crossing.why, 'hides');
  const level = knownFrom(target);
  const below = own || mayFlow(level, caller.facts.taint);
  verdict.gate('taint.read', below, 'SESSION_NOT_FOUND', `the target is ${level}, the caller is ${caller.facts.taint}`, 'hides');
}

/** Never write down: what a session says carries its taint. */
function flowTo(verdict: Verdict, from: Party, to: Level | undefined, what: string): void {
  const why = to === undefined ? `${what} has no known level` : `the caller is ${from.facts.taint}, ${what} is ${to}`;
  verdict.gate('taint.write', to !== undefined && mayFlow(from.facts.taint, to), 'WRITE_DOWN', why);
}

function spawn(verdict: Verdict, world: World, request: Request & { action: 'spawn' }): void {
  const { caller, agentId, runtime, sandbox } = request;
  const answer = decideSpawn(world.agents, world.maxSpawnDepth, {
    requester: caller.key,
    depth: depthOf(caller),
    agentId,
    runtime,
    sandbox,
  });
  verdict.include(answer.rules, answer.allowed ? undefined : answer);
}

function deliver(verdict: Verdict, world: World, request: Request & { action: 'deliver' }): void {
  const { caller, text } = request;
  const channel = platformId(request.channel);
  const sending = decideSend(world.sendPolicy, {
    key: caller.key,
    channel,
    chatType: request.chatType ?? (speaksOn(caller) === channel ? caller.facts.chatType : undefined),
    override: caller.facts.sendPolicy,
  });
  verdict.include(sending.rules, sending.action === 'allow' ? undefined : { code: 'SEND_POLICY_DENIED', why: sending.why });
  flowTo(verdict, caller, destinationLevel(world.channelLevels.get(channel) ?? 'PUBLIC'), `channel "${channel}"`);
  hook(verdict, world, caller, { hook: 'PRE_OUTPUT', channel, text });
}

function operate(verdict: Verdict, world: World, { level, target, sends }: Request & { action: 'operate' }): void {
  const known = knownFrom(target);
  verdict.gate('operator.level', mayFlow(known, level), 'SESSION_NOT_FOUND', `the session is ${known}, the token reads ${level}`, 'hides');
  if (!sends) return;
  const { action, why, rules } = decideSend(world.sendPolicy, {
    key: target.key,
    channel: speaksOn(target),
    chatType: target.facts.chatType,
    override: target.facts.sendPolicy,
  });
  verdict.include(rules, action === 'allow' ? undefined : { code: 'SEND_POLICY_DENIED', why: `send blocked by session policy: ${why}` });
}

function hook(verdict: Verdict, world: World, caller: Party, what: Pick<HookSubject, 'hook' | 'tool' | 'channel' | 'text'>): void {
  const channel = what.channel ?? speaksOn(caller);
  const answer = askHook(world.policy, {
    agent: caller.key.agent,
    keys: keySpellings(caller.key),
    taint: caller.facts.taint,
    ...what,
    channel,
  });
  verdict.policy(what.hook, answer);
}

function observerOf(world: World, caller: Party): Observer {
  const { agent } = caller.key;
  return {
    key: caller.storeKey,
    agent,
    sandboxed: isSandboxed(world.agents, caller.key),
    sandboxVisibility: agentOf(world.agents, agent).sandbox.sessionToolsVisibility,
    see: caller.facts.see,
  };
}

/** The channel a session is known to speak on: its record, its key, or where it last spoke. */
export function speaksOn({ key, facts }: Party): string | undefined {
  return facts.channel ?? keyChannel(key) ?? facts.deliveryContext?.channel;
}

/** How deep a session is. One that was spawned is never taken for one that was not, whatever its record lacks. */
function depthOf({ key, facts }: Party): number {
  const spawned = key.shape === 'subagent' || key.shape === 'acp' || facts.spawnedBy !== undefined;
  return Math.max(facts.depth ?? 0, spawned ? 1 : 0);
}

/** The level from which a session may be known at all. */
function knownFrom(session: Party): Level {
  return join(session.facts.taint, session.facts.existTaint);
}

/** Collects what every gate says. All of them are asked, so the trace shows each obstacle; the first one gives the code. */
class Verdict {
  private readonly rules: RuleTrace[] = [];
  private refused: { code: ErrorCode; why: string } | undefined;
  private hidden = false;
  private redactions: RE2JS[] = [];

  gate(rule: string, allowed: boolean, code: ErrorCode, why: string, hides?: 'hides'): void {
    if (allowed) this.rules.push({ rule, effect: 'ALLOW', why });
    else this.block(rule, code, why, hides);
  }

  block(rule: string, code: ErrorCode, why: string, hides?: 'hides'): void {
    this.include([{ rule, effect: 'BLOCK', why }], { code, why });
    if (hides) this.hidden = true;
  }

  note(rule: string, why: string): void {
    this.rules.push({ rule, effect: 'NOTE', why });
  }

  include(rules: RuleTrace[], refused: { code: ErrorCode; why: string } | undefined): void {
    this.rules.push(...rules);
    this.refused ??= refused && { code: refused.code, why: refused.why };
  }

  policy(name: HookName, answer: ReturnType<typeof askHook>): void {
    this.include(answer.rules, answer.effect === 'BLOCK' ? { code: 'POLICY_BLOCKED', why: answer.why } : undefined);
    if (answer.rules.length === 0) this.note(`policy.${name}`, 'there is no rule for this hook');
    this.redactions.push(...answer.redactions);
  }

  decision(): Decision {
    const common = { rules: this.rules, hidden: this.hidden, redactions: this.refused ? [] : this.redactions };
    if (this.refused)
      return { ...common, effect: 'BLOCK', code: this.hidden ? 'SESSION_NOT_FOUND' : this.refused.code, why: this.refused.why };
    const redacts = this.redactions.length > 0;
    return {
      ...common,
      effect: redacts ? 'REDACT' : 'ALLOW',
      why: redacts ? 'allowed without what policy rules take out' : 'every rule allows it',
    };
  }
}
