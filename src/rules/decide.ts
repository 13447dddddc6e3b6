// Policy: a request of a session → ALLOW, BLOCK or REDACT, with every rule that was evaluated, in order.
import type { ErrorCode } from '../errors.ts';
import type { Effect, RuleTrace } from '../protocol/decision.ts';
import { platformId } from '../protocol/ids.ts';
import { levels, type ChatTypeWord, type HookName, type Level, type Visibility } from '../protocol/labels.ts';
import type { SessionFacts } from '../protocol/session.ts';
import type { RuleSettings } from '../protocol/settings.ts';
import { decideCrossing } from './agent-to-agent.ts';
import { agentOf, compileAgents, isKnownAgent, isSandboxed, keyContext, type AgentTable } from './agents.ts';
import { askHook, compilePolicy, findText, type FindText, type HookSubject, type Policy } from './hooks.ts';
import { decideSend } from './send-policy.ts';
import { formatSessionKey, isChatOf, keySpellings, requireSessionKey, keyChannel, type SessionKey } from './session-key.ts';
import { decideSpawn } from './spawn-policy.ts';
import { dataLevel, destinationLevel, join, mayFlow, meet } from './taint.ts';
import type { Span } from './text-patterns.ts';
import { compileToolRules, decideTool, serverOf, serversFor, type ToolAnswer, type ToolHolder, type ToolRules } from './tool-policy.ts';
import { decideVisibility, listFilter, passesFilter, scopeOf, type ListFilter, type Observer, type Viewed } from './visibility.ts';

/** Everything that decisions depend on besides the request. Built once from a config. */
export interface World {
  agents: AgentTable;
  visibility: Visibility;
  agentToAgent: RuleSettings['tools']['agentToAgent'];
  sendPolicy: RuleSettings['session']['sendPolicy'];
  /** A level that nothing recognizes counts as the highest for data, and as none for a destination. */
  channelLevels: { channels: Map<string, unknown>; default: unknown };
  policy: Policy;
  /** The verdict of text patterns. The gateway has it ready before a transaction. */
  findText: FindText;
  maxSpawnDepth: number;
  tools: ToolRules;
  /** Counts decisions that are enforced. Callers of `decide` call it; `decide` itself stays pure. */
  onDecision?(action: Request['action'], effect: Effect): void;
}

/** A session as policy sees it: its facts, with the key already parsed. */
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
  /** `to` and `chatType`: the chat there, if it is known. */
  | {
      action: 'deliver';
      caller: Party;
      channel: string;
      to?: string | undefined;
      chatType?: ChatTypeWord | undefined;
      text?: string | undefined;
    }
  | { action: 'tool' | 'result'; caller: Party; tool: string; text?: string | undefined }
  /** An operator is not a session and sees sessions up to its token's level. `sends`: its message needs an answer. */
  | { action: 'operate'; level: Level; target: Party; sends: boolean };

export interface Decision {
  effect: Effect;
  /** Operators read this reason; so does the caller, unless `hidden` is set. */
  why: string;
  code?: ErrorCode;
  /** The caller must not learn that the target exists: answer as if it did not exist. */
  hidden: boolean;
  rules: RuleTrace[];
  /** The places of the text that REDACT rules take out. */
  redactions: Span[];
}

/** The level of messages from a channel. */
export const channelLevel = (world: World, channel: string): Level => dataLevel(channelWord(world, channel));

/** The level of the channel that a key names. A chat of it, and the people there, may be known from this level on. */
export const keyLevel = (world: World, key: SessionKey): Level => {
  const channel = keyChannel(key);
  return channel === undefined ? 'PUBLIC' : channelLevel(world, channel);
};

/** An absent level is the default one. */
const channelWord = ({ channelLevels }: World, channel: string) => channelLevels.channels.get(channel) ?? channelLevels.default;

/** The ceiling of a session: its own, and its agent's as it is configured now. It limits what raises the session, and never what it sees. */
export const clearanceOf = (world: World, { key, facts }: Party): Level =>
  meet(facts.clearance ?? 'RESTRICTED', agentOf(world.agents, key.agent).clearance);

export function compileWorld(settings: RuleSettings): World {
  return {
    agents: compileAgents(settings),
    visibility: settings.tools.sessions.visibility,
    agentToAgent: settings.tools.agentToAgent,
    sendPolicy: settings.session.sendPolicy,
    channelLevels: {
      channels: new Map(Object.entries(settings.classification.channels).map(([channel, level]) => [platformId(channel), level])),
      default: settings.classification.default,
    },
    policy: compilePolicy(settings.policy.rules),
    findText,
    maxSpawnDepth: settings.agents.defaults.subagents.maxSpawnDepth,
    tools: compileToolRules(settings),
  };
}

/** A key without an agent belongs to `agent`, the caller's; a `spawnedBy` without one belongs to the session's own agent. */
export function partyOf(world: World, facts: SessionFacts, agent = world.agents.defaultId): Party {
  const key = requireSessionKey(facts.key, keyContext(world.agents, agent));
  const spawnedBy =
    facts.spawnedBy === undefined ? undefined : formatSessionKey(requireSessionKey(facts.spawnedBy, keyContext(world.agents, key.agent)));
  return { key, storeKey: formatSessionKey(key), facts: { ...facts, spawnedBy } };
}

/** I6. Pure: the same request in the same world always gets the same decision. */
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
      if (!isKnownAgent(world.agents, request.target.key.agent))
        verdict.block('agent', 'AGENT_NOT_FOUND', `agent "${request.target.key.agent}" is not in the config, so its sessions get no turn`);
      verdict.note('send-policy', 'an inter-session message is not delivered to a channel; its announce is, and is decided then');
      flowTo(verdict, request.caller, request.target.facts.taint, 'the target session');
      hook(verdict, world, request.caller, { hook: 'PRE_CONTEXT_INJECTION', text: request.text });
      break;
    case 'reply':
      // A reply goes back to the requester. The request decided that they may reach each other; the reply's text is decided now.
      flowTo(verdict, request.caller, request.target.facts.taint, 'the requester');
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

/** Whether a session gets a tool at all, whatever its arguments. Models are offered these tools, and `decide` starts with this check. */
export function toolFor(world: World, caller: Party, tool: string): ToolAnswer {
  return decideTool(world.tools, tool, holderOf(world, caller));
}

/** The outside servers whose tools a session may get; no other server is started for it. */
export function usableServers(world: World, caller: Party): string[] {
  return serversFor(world.tools, holderOf(world, caller));
}

function holderOf(world: World, caller: Party): ToolHolder {
  return {
    agent: agentOf(world.agents, caller.key.agent),
    orphaned: !isKnownAgent(world.agents, caller.key.agent),
    depth: depthOf(caller),
    maxSpawnDepth: world.maxSpawnDepth,
    sandboxed: isSandboxed(world.agents, caller.key),
    guest: caller.key.shape === 'guest',
    channel: speaksOn(caller).channel,
    taint: caller.facts.taint,
    clearance: clearanceOf(world, caller),
  };
}

/** The filter of a caller's lists, as plain data; agrees with `decide({ action: 'list' })` on every session. */
export interface ListScope {
  visibility: Visibility;
  why: string;
  filter: ListFilter;
  /** The levels that a listed session may have, and those that the caller's own session may have. */
  levels: Level[];
  ownLevels: readonly Level[];
}

export function listScope(world: World, caller: Party, agents: Iterable<string>): ListScope {
  const observer = observerOf(world, caller);
  return {
    ...scopeOf(world.visibility, observer),
    filter: listFilter(world.visibility, world.agentToAgent, observer, agents),
    levels: levels.filter((level) => mayFlow(level, caller.facts.taint)),
    ownLevels: levels,
  };
}

/** What a session reaches in fact: `all` needs agent-to-agent rules that allow every agent, and `some` is all that they allow. */
export type Reach = Visibility | 'some';

export function reachOf(world: World, caller: Party): Reach {
  const { visibility, filter } = listScope(world, caller, []);
  if (visibility !== 'all' || filter.agents === 'every') return visibility;
  return world.agentToAgent.enabled ? 'some' : 'agent';
}

export function inListScope(scope: ListScope, row: Party): boolean {
  const viewed = { key: row.storeKey, agent: row.key.agent, spawnedBy: row.facts.spawnedBy };
  return passesScope(scope, { ...viewed, level: knownFrom(row) });
}

/** The same, for a session whose facts are known only as far as lists depend on them. */
export function passesScope(scope: ListScope, viewed: Viewed & { level: Level }): boolean {
  return passesFilter(scope.filter, viewed) && (viewed.key === scope.filter.key ? scope.ownLevels : scope.levels).includes(viewed.level);
}

// The gates, in the order of the trace -------------------------------------------------------------------------------

function reach(verdict: Verdict, world: World, caller: Party, target: Party): void {
  if (depthOf(caller) > 0)
    verdict.note(
      'subagent.tools',
      'a spawned session has no session tools unless tools.subagents.tools gives it some; this rule applies if it has any',
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

/** No write-down: text of a session carries the session's taint. */
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
    chatType: request.chatType ?? chatTypeAt(caller, channel, request.to),
    override: caller.facts.sendPolicy,
  });
  verdict.include(sending.rules, sending.action === 'allow' ? undefined : { code: 'SEND_POLICY_DENIED', why: sending.why });
  flowTo(verdict, caller, destinationLevel(channelWord(world, channel)), `channel "${channel}"`);
  hook(verdict, world, caller, { hook: 'PRE_OUTPUT', channel, text });
}

function operate(verdict: Verdict, world: World, { level, target, sends }: Request & { action: 'operate' }): void {
  const known = knownFrom(target);
  verdict.gate('operator.level', mayFlow(known, level), 'SESSION_NOT_FOUND', `the session is ${known}, the token reads ${level}`, 'hides');
  if (!sends) return;
  const { action, why, rules } = decideSend(world.sendPolicy, {
    key: target.key,
    ...speaksOn(target),
    override: target.facts.sendPolicy,
  });
  verdict.include(rules, action === 'allow' ? undefined : { code: 'SEND_POLICY_DENIED', why: `send blocked by session policy: ${why}` });
}

function hook(verdict: Verdict, world: World, caller: Party, what: Pick<HookSubject, 'hook' | 'tool' | 'channel' | 'text'>): void {
  const channel = what.channel ?? speaksOn(caller).channel;
  const subject = { agent: caller.key.agent, keys: keySpellings(caller.key), taint: caller.facts.taint, ...what, channel };
  const answer = askHook(world.policy, subject, world.findText);
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

/** Where the text of a session goes: to the turn's own destination, else to the session's record, its last chat, or the chat in its key. */
export function speaksOn({ key, facts }: Party): { channel?: string; chatType?: ChatTypeWord | undefined } {
  const own = facts.destination ?? facts.deliveryContext;
  const named = (facts.destination ? undefined : facts.channel) ?? own?.channel ?? keyChannel(key);
  if (named === undefined) return {};
  const channel = platformId(named);
  const known = own && platformId(own.channel) === channel ? own.chatType : undefined;
  return { channel, chatType: known ?? (facts.destination ? undefined : facts.chatType) };
}

/** The kind of chat that a text goes to. A chat that is not the session's own has none that we know. */
function chatTypeAt(caller: Party, channel: string, to: string | undefined): ChatTypeWord | 'unknown' | undefined {
  const { key, facts } = caller;
  const same = [facts.destination, facts.deliveryContext].find(
    (chat) => chat && platformId(chat.channel) === channel && (to === undefined || chat.to === to),
  );
  if (same?.chatType !== undefined) return same.chatType;
  if (same || to === undefined) return speaksOn(caller).channel === channel ? speaksOn(caller).chatType : undefined;
  return isChatOf(key, channel, to) ? undefined : 'unknown';
}

/** How deep a session is. A spawned session is never treated as one that was not spawned, even if its record is incomplete. */
function depthOf({ key, facts }: Party): number {
  const spawned = key.shape === 'subagent' || key.shape === 'acp' || facts.spawnedBy !== undefined;
  return Math.max(facts.depth ?? 0, spawned ? 1 : 0);
}

/** The lowest level whose callers may learn that the session exists. */
function knownFrom(session: Party): Level {
  return join(session.facts.taint, session.facts.existTaint);
}

/** Collects the verdict of every gate. All gates are evaluated, so that the trace shows each obstacle; the first refusal gives the code. */
class Verdict {
  private readonly rules: RuleTrace[] = [];
  private refused: { code: ErrorCode; why: string } | undefined;
  private hidden = false;
  private readonly redactions: Span[] = [];

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
