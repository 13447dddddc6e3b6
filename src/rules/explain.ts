// One question → the full answer of the rules, computed by the same functions that decide.
import type { z } from 'zod';
import type { Explanation, RuleTrace } from '../protocol/decision.ts';
import type { ExplainAccess, ExplainKey, ExplainRoute, ExplainSend, ExplainTools } from '../protocol/explain.ts';
import { agentId as agentIdOf } from '../protocol/ids.ts';
import { guestToolNames, toolNames } from '../protocol/tool.ts';
import { isKnownAgent, isSandboxed, keyContext, noSuchAgent } from './agents.ts';
import { announceTarget } from './announce-target.ts';
import { decide, inListScope, listScope, partyOf, speaksOn, toolFor, type Decision, type Party, type World } from './decide.ts';
import { redact } from './text-patterns.ts';
import { nearMisses, route, type Routes } from './route.ts';
import {
  formatSessionKey,
  idOf,
  keyChannel,
  keyChatType,
  parentKey,
  requestKey,
  requireSessionKey,
  sessionChannel,
  sessionKind,
} from './session-key.ts';

/** Whether a session is stored; undefined where that cannot be known. */
type Exists = boolean | undefined;

export function explainRoute(routes: Routes, origin: z.infer<typeof ExplainRoute>, exists: Exists): Explanation {
  const { rules, agentId, sessionKey, mainSessionKey, parentSessionKey, channel, accountId, matchedBy, binding } = route(routes, origin);
  return {
    answer: `agent "${agentId}" answers, in session ${sessionKey}`,
    facts: { agentId, sessionKey, mainSessionKey, parentSessionKey, channel, accountId, matchedBy, binding, exists },
    rules: [...rules, ...nearMisses(routes, origin, binding), ...noted(exists === false && `the message opens session ${sessionKey}`)],
  };
}

export function explainKey(world: World, { key: text, agentId }: z.infer<typeof ExplainKey>, exists: Exists): Explanation {
  const context = keyContext(world.agents, agentId === undefined ? world.agents.defaultId : agentIdOf(agentId));
  const key = requireSessionKey(text, context);
  const parent = parentKey(key);
  const own = 'peer' in key ? key.peer : 'id' in key ? key.id : undefined;
  const sessionKey = formatSessionKey(key);
  return {
    answer: `${sessionKey} is ${article(key.shape)} session of agent "${key.agent}"`,
    facts: {
      sessionKey,
      requestKey: requestKey(key),
      agentId: key.agent,
      shape: key.shape,
      kind: sessionKind(key),
      chatType: keyChatType(key),
      channel: keyChannel(key) ?? sessionChannel(key, {}),
      accountId: 'account' in key && key.account !== undefined ? idOf(key.account) : undefined,
      id: own === undefined ? undefined : (idOf(own) ?? '(too long: the key contains its digest)'),
      thread: key.threads.map((thread) => `${thread.marker} ${idOf(thread.id) ?? '(digest)'}`).join(', ') || undefined,
      parentSessionKey: parent && formatSessionKey(parent),
      sandboxed: isSandboxed(world.agents, key),
      exists,
    },
    rules: [
      {
        rule: 'session.key',
        effect: 'ALLOW',
        why:
          sessionKey === text.trim()
            ? 'the key is already in its full form'
            : `"${text.trim().slice(0, 200)}" is read as a key of agent "${key.agent}"`,
      },
      ...presence(world, { key, storeKey: sessionKey }, exists, 'session'),
    ],
  };
}

export function explainSend(world: World, question: z.infer<typeof ExplainSend>, exists: Exists): Explanation {
  const caller = partyOf(world, question.session);
  const first = presence(world, caller, exists, 'session');
  const { agent } = caller.key;
  if (!isKnownAgent(world.agents, agent)) {
    const why = noSuchAgent(world.agents, agent);
    return {
      answer: `BLOCK text of ${caller.storeKey}: ${why}`,
      facts: { effect: 'BLOCK', code: 'AGENT_NOT_FOUND', channel: question.channel, exists },
      rules: first.map((rule) => (rule.rule === 'agent' ? { ...rule, effect: 'BLOCK' } : rule)),
    };
  }
  const target = announceTarget(caller.key, caller.facts.deliveryContext);
  const at = question.channel === undefined && target.found ? target : undefined;
  const channel = question.channel ?? at?.channel ?? speaksOn(caller).channel;
  if (channel === undefined) {
    return {
      answer: `text of ${caller.storeKey} has no destination`,
      facts: { destination: 'none' },
      rules: [...first, { rule: 'destination', effect: 'NOTE', why: target.why }],
    };
  }
  const chatType = question.chatType ?? at?.chatType;
  const decision = decide({ action: 'deliver', caller, channel, to: at?.to, chatType, text: question.text }, world);
  const thread = at?.threadId === undefined ? '' : ` (thread ${at.threadId})`;
  const to = at ? { announceTo: `${at.to}${thread}`, announceWhy: at.why } : {};
  const what = `text of ${caller.storeKey} to channel "${channel}"`;
  return explainDecision(withFirst(first, decision), what, question.text, { channel, ...to, exists });
}

export function explainAccess(
  world: World,
  question: z.infer<typeof ExplainAccess>,
  exists: { caller: Exists; target: Exists },
): Explanation {
  const caller = partyOf(world, question.caller);
  const target = partyOf(world, question.target, caller.key.agent);
  const decided = decide({ action: question.action, caller, target, text: question.text }, world);
  const first = [
    ...presence(world, caller, exists.caller, 'caller'),
    ...(exists.target === false ? [] : presence(world, target, exists.target, 'target')),
  ];
  const decision = withFirst(first, exists.target === false ? missing(decided, world, target) : decided);
  const scope = listScope(world, caller, [caller.key.agent, target.key.agent]);
  return explainDecision(decision, `${caller.storeKey} to ${question.action} ${target.storeKey}`, question.text, {
    callerExists: exists.caller,
    targetExists: exists.target,
    callerSandboxed: isSandboxed(world.agents, caller.key),
    callerSees: scope.visibility,
    targetIsListed: exists.target !== false && inListScope(scope, target),
    toldToCaller: decision.hidden ? 'only that no such session was found' : undefined,
  });
}

/** One line for each tool, or every rule about one tool. */
export function explainTools(
  world: World,
  { session, tool }: z.infer<typeof ExplainTools>,
  names: Iterable<string>,
  exists: Exists,
): Explanation {
  const caller = partyOf(world, session);
  // Guest tools are listed only for guests.
  const listed = [...names].filter((name) => caller.key.shape === 'guest' || !guestToolNames.includes(name));
  const answers = (tool === undefined ? listed : [tool]).map((name) => toolFor(world, caller, name));
  const given = answers.filter((one) => one.allowed).map((one) => one.tool);
  return {
    answer: `${caller.storeKey} gets ${tool === undefined ? `${given.length} of ${answers.length} tools` : `${given.length === 1 ? '' : 'not '}${tool}`}`,
    facts: { sandboxed: isSandboxed(world.agents, caller.key), tools: given.join(', ') || 'none', exists },
    rules: [
      ...presence(world, caller, exists, 'session'),
      ...(tool === undefined
        ? answers.map(({ tool: rule, allowed, why }): RuleTrace => ({ rule, effect: allowed ? 'ALLOW' : 'BLOCK', why }))
        : answers.flatMap(({ rules }) => rules)),
    ],
  };
}

/** The tools that are known without a running gateway: the built-in ones, and one pattern for each outside server. */
export function toolNamesOf(world: World): string[] {
  return [...toolNames, ...guestToolNames, ...[...world.tools.servers.keys()].map((server) => `${server}__*`)];
}

/** What the answer assumes: a session that is not stored, an agent that is not configured. */
function presence(world: World, party: Pick<Party, 'key' | 'storeKey'>, exists: Exists, rule: string): RuleTrace[] {
  return [
    ...noted(exists === false && `session ${party.storeKey} does not exist; the answer is for a new one with these facts`, rule),
    ...noted(
      !isKnownAgent(world.agents, party.key.agent) && `${noSuchAgent(world.agents, party.key.agent)} (its sessions get no turn)`,
      'agent',
    ),
  ];
}

const noted = (why: string | false, rule = 'session'): RuleTrace[] => (why === false ? [] : [{ rule, effect: 'NOTE', why }]);

const withFirst = (first: RuleTrace[], decision: Decision): Decision => ({ ...decision, rules: [...first, ...decision.rules] });

/** A session that does not exist is not found, whatever the rules would say of it. */
function missing(decided: Decision, world: World, { key, storeKey }: Party): Decision {
  const agent = isKnownAgent(world.agents, key.agent) ? '' : `; ${noSuchAgent(world.agents, key.agent)}`;
  const why = `session ${storeKey} does not exist${agent}`;
  const rules: RuleTrace[] = [{ rule: 'target', effect: 'BLOCK', why }, ...decided.rules];
  return { ...decided, effect: 'BLOCK', code: 'SESSION_NOT_FOUND', why, hidden: true, rules, redactions: [] };
}

function explainDecision(decision: Decision, what: string, text: string | undefined, facts: Explanation['facts']): Explanation {
  const answer = decision.effect === 'BLOCK' ? `BLOCK ${what}: ${decision.why}` : `${decision.effect} ${what}`;
  const redacted = decision.effect === 'REDACT' && text !== undefined ? redact(text, decision.redactions) : undefined;
  return { answer, facts: { effect: decision.effect, code: decision.code, ...facts, redactedText: redacted }, rules: decision.rules };
}

const article = (shape: string) => (/^[aeiou]/.test(shape) ? `an ${shape}` : shape === 'main' ? `the ${shape}` : `a ${shape}`);
