// One question → the full answer of the rules, computed by the same functions that decide.
import type { z } from 'zod';
import type { Explanation } from '../protocol/decision.ts';
import type { ExplainAccess, ExplainKey, ExplainRoute, ExplainSend, ExplainTools } from '../protocol/explain.ts';
import { agentId as agentIdOf } from '../protocol/ids.ts';
import { guestToolNames, toolNames } from '../protocol/tool.ts';
import { isKnownAgent, isSandboxed, keyContext } from './agents.ts';
import { announceTarget } from './announce-target.ts';
import { decide, inListScope, listScope, partyOf, speaksOn, toolFor, type Decision, type World } from './decide.ts';
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

export function explainRoute(routes: Routes, origin: z.infer<typeof ExplainRoute>): Explanation {
  const { rules, agentId, sessionKey, mainSessionKey, parentSessionKey, channel, accountId, matchedBy, binding } = route(routes, origin);
  return {
    answer: `agent "${agentId}" answers, in session ${sessionKey}`,
    facts: { agentId, sessionKey, mainSessionKey, parentSessionKey, channel, accountId, matchedBy, binding },
    rules: [...rules, ...nearMisses(routes, origin, binding)],
  };
}

export function explainKey(world: World, { key: text, agentId }: z.infer<typeof ExplainKey>): Explanation {
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
      ...(isKnownAgent(world.agents, key.agent)
        ? []
        : [{ rule: 'agent', effect: 'NOTE' as const, why: `agents.list has no "${key.agent}"` }]),
    ],
  };
}

export function explainSend(world: World, question: z.infer<typeof ExplainSend>): Explanation {
  const caller = partyOf(world, question.session);
  const target = announceTarget(caller.key, caller.facts.deliveryContext);
  const at = question.channel === undefined && target.found ? target : undefined;
  const channel = question.channel ?? at?.channel ?? speaksOn(caller).channel;
  if (channel === undefined) {
    return {
      answer: `text of ${caller.storeKey} has no destination`,
      facts: { destination: 'none' },
      rules: [{ rule: 'destination', effect: 'NOTE', why: target.why }],
    };
  }
  const chatType = question.chatType ?? at?.chatType;
  const decision = decide({ action: 'deliver', caller, channel, to: at?.to, chatType, text: question.text }, world);
  const thread = at?.threadId === undefined ? '' : ` (thread ${at.threadId})`;
  const to = at ? { announceTo: `${at.to}${thread}`, announceWhy: at.why } : {};
  return explainDecision(decision, `text of ${caller.storeKey} to channel "${channel}"`, question.text, { channel, ...to });
}

export function explainAccess(world: World, question: z.infer<typeof ExplainAccess>): Explanation {
  const caller = partyOf(world, question.caller);
  const target = partyOf(world, question.target, caller.key.agent);
  const decision = decide({ action: question.action, caller, target, text: question.text }, world);
  const scope = listScope(world, caller, [caller.key.agent, target.key.agent]);
  return explainDecision(decision, `${caller.storeKey} to ${question.action} ${target.storeKey}`, question.text, {
    callerSandboxed: isSandboxed(world.agents, caller.key),
    callerSees: scope.visibility,
    targetIsListed: inListScope(scope, target),
    toldToCaller: decision.hidden ? 'only that no such session was found' : undefined,
  });
}

/** One line for each tool, or every rule about one tool. */
export function explainTools(world: World, { session, tool }: z.infer<typeof ExplainTools>, names: Iterable<string>): Explanation {
  const caller = partyOf(world, session);
  // Guest tools are listed only for guests.
  const listed = [...names].filter((name) => caller.key.shape === 'guest' || !guestToolNames.includes(name));
  const answers = (tool === undefined ? listed : [tool]).map((name) => toolFor(world, caller, name));
  const given = answers.filter((one) => one.allowed).map((one) => one.tool);
  return {
    answer: `${caller.storeKey} gets ${tool === undefined ? `${given.length} of ${answers.length} tools` : `${given.length === 1 ? '' : 'not '}${tool}`}`,
    facts: { sandboxed: isSandboxed(world.agents, caller.key), tools: given.join(', ') || 'none' },
    rules:
      tool === undefined
        ? answers.map(({ tool: rule, allowed, why }) => ({ rule, effect: allowed ? 'ALLOW' : 'BLOCK', why }))
        : answers.flatMap(({ rules }) => rules),
  };
}

/** The tools that are known without a running gateway: the built-in ones, and one pattern for each outside server. */
export function toolNamesOf(world: World): string[] {
  return [...toolNames, ...guestToolNames, ...[...world.tools.servers.keys()].map((server) => `${server}__*`)];
}

function explainDecision(decision: Decision, what: string, text: string | undefined, facts: Explanation['facts']): Explanation {
  const answer = decision.effect === 'BLOCK' ? `BLOCK ${what}: ${decision.why}` : `${decision.effect} ${what}`;
  const redacted = decision.effect === 'REDACT' && text !== undefined ? redact(text, decision.redactions) : undefined;
  return { answer, facts: { effect: decision.effect, code: decision.code, ...facts, redactedText: redacted }, rules: decision.rules };
}

const article = (shape: string) =>
  /^[aeiou]/.test(shape) ? `an ${shape}` : shape === 'main' || shape === 'global' ? `the ${shape}` : `a ${shape}`;
