// May this session's text leave for its channel: session override, then any deny, then any allow, then the default.
import type { RuleTrace } from '../protocol/decision.ts';
import { platformId } from '../protocol/ids.ts';
import { chatType, type ChatType, type ChatTypeWord } from '../protocol/labels.ts';
import type { SendAction, SendPolicy, SendPolicyRule } from '../protocol/settings.ts';
import { keyChannel, keyChatType, keySpellings, type SessionKey } from './session-key.ts';

export interface SendSubject {
  key: SessionKey;
  /** Where the text would go; by default the session's own channel. */
  channel?: string | undefined;
  /** Without one, the kind of chat in the key; `unknown` matches no kind. */
  chatType?: ChatTypeWord | 'unknown' | undefined;
  /** The session's own setting, by `sessions.patch` or `/send on|off|inherit`. */
  override?: SendAction | undefined;
}

export interface SendAnswer {
  action: SendAction;
  why: string;
  rules: RuleTrace[];
}

export function decideSend(policy: SendPolicy, subject: SendSubject): SendAnswer {
  if (subject.override) {
    const why = `the session itself is set to "${subject.override}"`;
    return { action: subject.override, why, rules: [trace('session', subject.override, why)] };
  }
  const facts = {
    channel: platformId(subject.channel ?? keyChannel(subject.key) ?? 'unknown'),
    chatType: subject.chatType === undefined ? ownChat(subject) : subject.chatType === 'unknown' ? undefined : chatType(subject.chatType),
    keys: keySpellings(subject.key),
  };
  const rules: RuleTrace[] = [];
  let allowed: string | undefined;
  let denied: string | undefined;
  for (const [index, rule] of policy.rules.entries()) {
    const name = `rules[${index}]`;
    const misses = mismatch(rule.match, facts);
    rules.push(misses ? { rule: `sendPolicy.${name}`, effect: 'NOTE', why: misses } : trace(name, rule.action, describe(rule.match)));
    if (misses) continue;
    const why = `session.sendPolicy.${name} says "${rule.action}": ${describe(rule.match)}`;
    if (rule.action === 'deny') denied ??= why;
    else allowed ??= why;
  }
  if (denied) return { action: 'deny', why: denied, rules };
  if (allowed) return { action: 'allow', why: allowed, rules };
  const why = `no rule matches, and session.sendPolicy.default is "${policy.default}"`;
  rules.push(trace('default', policy.default, why));
  return { action: policy.default, why, rules };
}

/** The key tells the kind of chat only for its own channel. */
function ownChat({ key, channel }: SendSubject): ChatType | undefined {
  const own = keyChannel(key);
  return channel === undefined || own === undefined || own === platformId(channel) ? keyChatType(key) : undefined;
}

function trace(name: string, action: SendAction, why: string): RuleTrace {
  return { rule: `sendPolicy.${name}`, effect: action === 'deny' ? 'BLOCK' : 'ALLOW', why };
}

type Match = SendPolicyRule['match'];

/** The first field that does not match, in words; undefined when all do. */
function mismatch(match: Match, facts: { channel: string; chatType: ChatType | undefined; keys: string[] }): string | undefined {
  const channel = match.channel ?? match.surface;
  if (channel !== undefined && platformId(channel) !== facts.channel) return `channel is "${facts.channel}", not "${platformId(channel)}"`;
  if (match.chatType !== undefined && chatType(match.chatType) !== facts.chatType) {
    return `chat type is ${facts.chatType ? `"${facts.chatType}"` : 'unknown'}, not "${chatType(match.chatType)}"`;
  }
  if (match.keyPrefix !== undefined && !hasKeyPrefix(match.keyPrefix, facts.keys))
    return `key does not start with "${match.keyPrefix.trim()}"`;
  return undefined;
}

/** A prefix is tried against every spelling of the key, in any case. */
export function hasKeyPrefix(prefix: string, keys: string[]): boolean {
  const wanted = platformId(prefix);
  return keys.some((key) => key.startsWith(wanted));
}

function describe(match: Match): string {
  const channel = match.channel ?? match.surface;
  const parts = [
    channel === undefined ? undefined : `channel "${platformId(channel)}"`,
    match.chatType === undefined ? undefined : `chat type "${chatType(match.chatType)}"`,
    match.keyPrefix === undefined ? undefined : `key prefix "${match.keyPrefix.trim()}"`,
  ].filter((part) => part !== undefined);
  return parts.length === 0 ? 'it matches every session' : `matches ${parts.join(', ')}`;
}
