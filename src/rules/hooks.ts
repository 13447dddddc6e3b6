// The operator's own rules (`policy.rules`): at each hook every matching rule applies, and the strictest wins. Rules only tighten policy.
import { RE2JS } from 're2js';
import { reasonOf } from '../errors.ts';
import type { Effect, RuleTrace } from '../protocol/decision.ts';
import type { HookName, Level } from '../protocol/labels.ts';
import type { PolicyRule } from '../protocol/settings.ts';
import { matchesGlob } from './glob.ts';
import { hasKeyPrefix } from './send-policy.ts';
import { mayFlow } from './taint.ts';

interface CompiledRule {
  rule: PolicyRule;
  pattern: RE2JS | undefined;
}

export type Policy = Map<HookName, CompiledRule[]>;

/** The action that a hook checks. `text` is its content: a message, a tool's arguments as JSON, a tool's result. */
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
  redactions: RE2JS[];
}

export function compilePolicy(rules: PolicyRule[]): Policy {
  const policy: Policy = new Map();
  for (const rule of rules) {
    const pattern = rule.match.text === undefined ? undefined : RE2JS.compile(rule.match.text);
    const rulesOfHook = policy.get(rule.hook) ?? [];
    rulesOfHook.push({ rule, pattern });
    policy.set(rule.hook, rulesOfHook);
  }
  return policy;
}

export function askHook(policy: Policy, subject: HookSubject): HookAnswer {
  const answer: HookAnswer = { effect: 'ALLOW', why: `no policy rule at ${subject.hook} objects`, rules: [], redactions: [] };
  for (const { rule, pattern } of policy.get(subject.hook) ?? []) {
    const name = `policy.${rule.id}`;
    let misses: string | undefined;
    try {
      misses = mismatch(rule, pattern, subject);
    } catch (thrown) {
      // A rule that cannot be evaluated must not let anything through.
      answer.rules.push({ rule: name, effect: 'BLOCK', why: `the rule failed: ${reasonOf(thrown)}` });
      if (answer.effect !== 'BLOCK')
        Object.assign(answer, { effect: 'BLOCK', why: `policy rule "${rule.id}" failed, and a broken rule blocks` });
      continue;
    }
    if (misses) {
      answer.rules.push({ rule: name, effect: 'NOTE', why: misses });
      continue;
    }
    const why = rule.message ?? `policy rule "${rule.id}" says ${rule.effect} at ${rule.hook}`;
    answer.rules.push({ rule: name, effect: rule.effect, why });
    if (rule.effect === 'REDACT') answer.redactions.push(pattern!);
    if (rule.effect === 'BLOCK' ? answer.effect !== 'BLOCK' : answer.effect === 'ALLOW')
      Object.assign(answer, { effect: rule.effect, why });
  }
  return answer;
}

/**
 * The text without the matches of REDACT rules. Its label does not change. Every pattern reads the original text, so that
 * one rule cannot break up a match of another.
 */
export function redact(text: string, patterns: RE2JS[]): string {
  const ranges = patterns.flatMap((pattern) => findAll(pattern, text)).toSorted((a, b) => a.start - b.start);
  let result = '';
  let at = 0;
  for (const { start, end } of ranges) {
    if (start === end) continue;
    if (start >= at) result += `${text.slice(at, start)}[redacted]`;
    at = Math.max(at, end);
  }
  return result + text.slice(at);
}

/** One search is linear, but searching again after every match is not. After this many matches the rest of the text is removed. */
const mostMatches = 200;
const mostWork = 20_000_000;

function findAll(pattern: RE2JS, text: string): { start: number; end: number }[] {
  const ranges: { start: number; end: number }[] = [];
  const matcher = pattern.matcher(text);
  const most = Math.max(1, Math.min(mostMatches, Math.floor(mostWork / (text.length + 1))));
  while (matcher.find()) {
    if (ranges.length === most) return [...ranges, { start: matcher.start(), end: text.length }];
    ranges.push({ start: matcher.start(), end: matcher.end() });
  }
  return ranges;
}

function mismatch({ match }: PolicyRule, pattern: RE2JS | undefined, subject: HookSubject): string | undefined {
  if (match.tool !== undefined && !(subject.tool !== undefined && matchesGlob(match.tool, subject.tool)))
    return `tool is ${say(subject.tool)}, not "${match.tool}"`;
  if (match.channel !== undefined && !(subject.channel !== undefined && matchesGlob(match.channel, subject.channel)))
    return `channel is ${say(subject.channel)}, not "${match.channel}"`;
  if (match.agentId !== undefined && !matchesGlob(match.agentId, subject.agent))
    return `agent is "${subject.agent}", not "${match.agentId}"`;
  if (match.keyPrefix !== undefined && !hasKeyPrefix(match.keyPrefix, subject.keys)) return `key does not start with "${match.keyPrefix}"`;
  if (match.taint !== undefined && !mayFlow(match.taint, subject.taint)) return `the session is ${subject.taint}, below ${match.taint}`;
  if (pattern && subject.text === undefined) return 'there is no text to look at';
  if (pattern && !pattern.test(subject.text!)) return 'the text does not match';
  return undefined;
}

const say = (word: string | undefined) => (word === undefined ? 'not given' : `"${word}"`);
