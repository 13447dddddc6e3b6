// The operator's rules: every one that matches counts, the strictest wins, and a broken one blocks.
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { PolicyRule } from '../protocol/settings.ts';
import { askHook, compilePolicy, type HookSubject } from './hooks.ts';
import { redact } from './text-patterns.ts';

const rule = (effect: 'BLOCK' | 'REDACT', match: object = {}, more: object = {}) =>
  PolicyRule.parse({ id: `${effect} ${JSON.stringify(match)}`, hook: 'PRE_OUTPUT', match, effect, ...more });

const subject: HookSubject = {
  hook: 'PRE_OUTPUT',
  agent: 'work',
  keys: ['agent:work:telegram:group:5', 'telegram:group:5'],
  taint: 'CONFIDENTIAL',
  tool: 'sessions_send',
  channel: 'telegram',
  text: 'the code is 4711',
};

const ask = (rules: PolicyRule[], about: Partial<HookSubject> = {}) => askHook(compilePolicy(rules), { ...subject, ...about });
/** A rule that no schema has checked and that fails when it is asked. */
const broken: PolicyRule = { ...rule('REDACT', { text: 'x' }), id: 'broken', match: { tool: 5 as unknown as string, text: 'x' } };

describe('a policy rule', () => {
  it.each<[object, string, string]>([
    [{}, 'BLOCK', 'an empty match is always'],
    [{ tool: 'sessions_*' }, 'BLOCK', 'a tool with a star'],
    [{ tool: 'sessions' }, 'ALLOW', 'a tool is matched whole'],
    [{ channel: 'Telegram' }, 'BLOCK', 'a channel in any case'],
    [{ channel: 'discord' }, 'ALLOW', 'another channel'],
    [{ agentId: 'w*' }, 'BLOCK', 'an agent with a star'],
    [{ agentId: 'home' }, 'ALLOW', 'another agent'],
    [{ keyPrefix: 'agent:work:' }, 'BLOCK', 'the store key'],
    [{ keyPrefix: 'Telegram:Group:' }, 'BLOCK', 'the request key, in any case'],
    [{ keyPrefix: 'group:' }, 'ALLOW', 'not a start of the key'],
    [{ taint: 'INTERNAL' }, 'BLOCK', 'the session is above that level'],
    [{ taint: 'CONFIDENTIAL' }, 'BLOCK', 'the session is at that level'],
    [{ taint: 'RESTRICTED' }, 'ALLOW', 'the session is below that level'],
    [{ text: '[0-9]{4}' }, 'BLOCK', 'found in the text'],
    [{ text: '^[0-9]{4}$' }, 'ALLOW', 'not the whole text'],
    [{ text: '4711', channel: 'discord' }, 'ALLOW', 'every field given must match'],
    [{ text: '4711', channel: 'telegram', agentId: 'work' }, 'BLOCK', 'every field given does match'],
  ])('that blocks %j says %s: %s', (match, expected) => {
    expect(ask([rule('BLOCK', match)]).effect).toBe(expected);
  });

  it.each([{ tool: '*' }, { channel: '*' }, { text: '.' }])('about %j has nothing to say where there is none', (match) => {
    expect(ask([rule('BLOCK', match)], { tool: undefined, channel: undefined, text: undefined }).effect).toBe('ALLOW');
  });

  it('is asked at its own hook only', () => {
    expect(ask([rule('BLOCK', {}, { hook: 'PRE_TOOL_CALL' })])).toMatchObject({ effect: 'ALLOW', rules: [] });
  });

  it('gives its own message as the reason', () => {
    expect(ask([rule('BLOCK', {}, { message: 'ask Ana first' })]).why).toBe('ask Ana first');
  });

  it('that fails blocks, wherever it stands', () => {
    for (const rules of [[broken], [broken, rule('REDACT', { text: '4711' })], [rule('REDACT', { text: '4711' }), broken]]) {
      const answer = ask(rules);
      expect(answer.effect).toBe('BLOCK');
      expect(answer.rules).toContainEqual({ rule: 'policy.broken', effect: 'BLOCK', why: expect.stringMatching(/^the rule failed: /) });
    }
  });
});

describe('several policy rules', () => {
  const match = fc.constantFrom(
    { text: '4711' },
    { text: 'absent' },
    { text: 'code', channel: 'telegram' },
    { text: 'code', agentId: 'home' },
  );
  const anyRule = fc.oneof(
    fc.record({ effect: fc.constantFrom<'BLOCK' | 'REDACT'>('BLOCK', 'REDACT'), match }).map(({ effect, match }) => rule(effect, match)),
    fc.constant(broken),
  );

  it('give BLOCK over REDACT over ALLOW in any order, and all of them are in the trace', () => {
    fc.assert(
      fc.property(fc.array(anyRule, { maxLength: 6 }), (rules) => {
        const alone = new Set(rules.map((each) => ask([each]).effect));
        const strictest = (['BLOCK', 'REDACT', 'ALLOW'] as const).find((effect) => alone.has(effect)) ?? 'ALLOW';
        const answer = ask(rules);
        expect(answer.effect).toBe(strictest);
        expect(ask(rules.toReversed()).effect).toBe(strictest);
        expect(answer.rules.map((trace) => trace.rule)).toEqual(rules.map((each) => `policy.${each.id}`));
      }),
    );
  });

  it('only tighten: one more never makes the answer milder', () => {
    const strictness = { ALLOW: 0, REDACT: 1, BLOCK: 2 };
    fc.assert(
      fc.property(fc.array(anyRule, { maxLength: 5 }), anyRule, (rules, more) => {
        expect(strictness[ask([...rules, more]).effect]).toBeGreaterThanOrEqual(strictness[ask(rules).effect]);
      }),
    );
  });
});

describe('redact', () => {
  it('takes out the rest of a text in which a pattern is found too often, instead of searching on and on', () => {
    const text = 'a'.repeat(50_000);
    expect(redacted(text, '[ab]+c|a')).toBe('[redacted]'.repeat(201));
  });

  const redacted = (text: string, ...patterns: string[]) =>
    redact(
      text,
      ask(
        patterns.map((pattern) => rule('REDACT', { text: pattern })),
        { text },
      ).redactions,
    );

  it.each<[string, string[], string, string]>([
    ['the code is 4711', ['[0-9]+'], 'the code is [redacted]', 'what the pattern found'],
    ['4711 and 4712', ['[0-9]+'], '[redacted] and [redacted]', 'every place'],
    ['pin 4711, key abc', ['[0-9]+', 'abc'], 'pin [redacted], key [redacted]', 'what every rule found'],
    ['x secret-hunter2', ['secret', 'secret-\\w+'], 'x [redacted]', 'one rule does not break up what another finds'],
    ['a b', ['\\b'], 'a b', 'an empty find takes nothing out'],
    ['Pin PIN', ['(?i)pin'], '[redacted] [redacted]', 'flags are part of the pattern'],
    ['nothing here', ['[0-9]+'], 'nothing here', 'nothing was found'],
    ['cost: $1 $& $$', ['cost'], '[redacted]: $1 $& $$', 'the rest stays as it is'],
  ])('of %j by %j is %j: %s', (text, patterns, expected) => {
    expect(redacted(text, ...patterns)).toBe(expected);
  });

  it('leaves nothing of what a rule looks for', () => {
    fc.assert(
      fc.property(fc.string({ unit: fc.constantFrom('4', '7', ' ', 'x', '$', '\n') }), (text) => {
        expect(redacted(text, '[0-9]+')).not.toMatch(/[0-9]/);
      }),
    );
  });
});

describe('a pattern', () => {
  it.each(['(a+)+$', '(a|aa)+$', '(.*)*b', '([a-z]+)*[0-9]'])('%s comes to an end on a long text that it does not match', (pattern) => {
    const text = `${'a'.repeat(50_000)}!`;
    const answer = ask([rule('BLOCK', { text: pattern })], { text });
    expect(answer.effect).toBe('ALLOW');
  });

  it.each(['(', '(?=a)', '(a)\\1'])('%s is not one of RE2 and is refused with its rule', (pattern) => {
    expect(() => rule('BLOCK', { text: pattern })).toThrow('RE2');
  });

  it.each([undefined, 'a*', '^'])('of a rule that redacts must be there and find something: %j does not', (text) => {
    expect(() => rule('REDACT', { text })).toThrow('match.text');
  });
});
