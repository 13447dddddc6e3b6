// The operator's own rules (`policy.rules`): at each hook every matching rule applies, and the strictest wins. Rules only tighten policy.
import { RE2JS } from 're2js';
import { reasonOf } from '../errors.ts';
import type { Effect, RuleTrace } from '../protocol/decision.ts';
import type { HookName, Level } from '../protocol/labels.ts';
import type { PolicyRule } from '../protocol/settings.ts';
import { matchesGlob } from './glob.ts';
import { hasKeyPrefix } from './send-policy.ts';
import { mayFlow } from './taint.ts';
import { findPatterns, type Found, type Span, type TextForm } from './text-patterns.ts';

interface CompiledRule {
  rule: PolicyRule;
  pattern: RE2JS | undefined;
}

/** The rules of each hook. Another config makes another one: a verdict about a text belongs to the policy that it was computed with. */
export type Policy = ReadonlyMap<HookName, readonly CompiledRule[]>;

/** Where the patterns of a hook's rules are in a text, in the order of the rules. */
export type FindText = (policy: Policy, hook: HookName, text: string) => readonly Found[];

/** At other hooks the text is a message. */
const forms: Partial<Record<HookName, TextForm>> = { PRE_TOOL_CALL: 'arguments', MCP_TOOL_CALL: 'arguments', POST_TOOL_RESPONSE: 'result' };

/** The work that a verdict costs: what to search for, and how. Undefined if no rule of the hook has a pattern. */
export function searchOf(policy: Policy, hook: HookName): { patterns: (RE2JS | undefined)[]; form: TextForm } | undefined {
  const patterns = (policy.get(hook) ?? []).map(({ pattern }) => pattern);
  return patterns.some((pattern) => pattern !== undefined) ? { patterns, form: forms[hook] ?? 'message' } : undefined;
}

/** The verdict on the spot. The gateway computes it before a transaction that needs it. */
export const findText: FindText = (policy, hook, text) => {
  const search = searchOf(policy, hook);
  return search ? findPatterns(search.patterns, text, search.form) : [];
};

/** The action that a hook checks. `text`: a message, a tool's arguments as JSON, a tool's result. */
export interface HookSubject {
  hook: HookName;
  agent: string;
  keys: string[];
  taint: Level;
  tool?: string | undefined;
  channel?: string | undefined;
  text?: string | undefined;
}

export interface HookAnswer {
  effect: Effect;
  why: string;
  rules: RuleTrace[];
  redactions: Span[];
}

export function compilePolicy(rules: PolicyRule[]): Policy {
  const policy = new Map<HookName, CompiledRule[]>();
  for (const rule of rules) {
    const pattern = rule.match.text === undefined ? undefined : RE2JS.compile(rule.match.text);
    const rulesOfHook = policy.get(rule.hook) ?? [];
    rulesOfHook.push({ rule, pattern });
    policy.set(rule.hook, rulesOfHook);
  }
  return policy;
}

export function askHook(policy: Policy, subject: HookSubject, find: FindText = findText): HookAnswer {
  const answer: HookAnswer = { effect: 'ALLOW', why: `no policy rule at ${subject.hook} objects`, rules: [], redactions: [] };
  const broken = (id: string, reason: string) => {
    // A rule that cannot be evaluated must not let anything through.
    answer.rules.push({ rule: `policy.${id}`, effect: 'BLOCK', why: `the rule failed: ${reason}` });
    if (answer.effect !== 'BLOCK') Object.assign(answer, { effect: 'BLOCK', why: `policy rule "${id}" failed, and a broken rule blocks` });
  };
  let found: readonly Found[] | undefined;
  for (const [index, { rule, pattern }] of (policy.get(subject.hook) ?? []).entries()) {
    const name = `policy.${rule.id}`;
    let misses: string | undefined;
    try {
      misses = mismatch(rule, subject);
    } catch (thrown) {
      broken(rule.id, reasonOf(thrown));
      continue;
    }
    let spans: Span[] = [];
    if (pattern && misses === undefined) {
      const there = subject.text === undefined ? undefined : (found ??= find(policy, subject.hook, subject.text))[index];
      if (there && 'failed' in there) {
        broken(rule.id, there.failed);
        continue;
      }
      if (!there) misses = subject.text === undefined ? 'there is no text to look at' : 'the text does not match';
      else spans = there;
    }
    if (misses !== undefined) {
      answer.rules.push({ rule: name, effect: 'NOTE', why: misses });
      continue;
    }
    const why = rule.message ?? `policy rule "${rule.id}" says ${rule.effect} at ${rule.hook}`;
    answer.rules.push({ rule: name, effect: rule.effect, why });
    if (rule.effect === 'REDACT') answer.redactions.push(...spans);
    if (rule.effect === 'BLOCK' ? answer.effect !== 'BLOCK' : answer.effect === 'ALLOW')
      Object.assign(answer, { effect: rule.effect, why });
  }
  return answer;
}

function mismatch({ match }: PolicyRule, subject: HookSubject): string | undefined {
  if (match.tool !== undefined && !(subject.tool !== undefined && matchesGlob(match.tool, subject.tool)))
    return `tool is ${say(subject.tool)}, not "${match.tool}"`;
  if (match.channel !== undefined && !(subject.channel !== undefined && matchesGlob(match.channel, subject.channel)))
    return `channel is ${say(subject.channel)}, not "${match.channel}"`;
  if (match.agentId !== undefined && !matchesGlob(match.agentId, subject.agent))
    return `agent is "${subject.agent}", not "${match.agentId}"`;
  if (match.keyPrefix !== undefined && !hasKeyPrefix(match.keyPrefix, subject.keys)) return `key does not start with "${match.keyPrefix}"`;
  if (match.taint !== undefined && !mayFlow(match.taint, subject.taint)) return `the session is ${subject.taint}, below ${match.taint}`;
  return undefined;
}

const say = (word: string | undefined) => (word === undefined ? 'not given' : `"${word}"`);
