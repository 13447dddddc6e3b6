// Send policy: session override, then any matching deny, then any matching allow, then the default.
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { ChatTypeWord } from '../protocol/labels.ts';
import { SendPolicy, type SendAction } from '../protocol/settings.ts';
import { decideSend, hasKeyPrefix, type SendSubject } from './send-policy.ts';
import { formatSessionKey, requestKey, requireSessionKey } from './session-key.ts';

interface Asked {
  key: string;
  channel?: string;
  chatType?: ChatTypeWord;
  override?: SendAction;
}

function subject({ key, ...known }: Asked): SendSubject {
  return { key: requireSessionKey(key, { agentId: 'main', mainKey: 'main' }), ...known };
}

const policy = (rules: unknown[], fallback?: SendAction) => SendPolicy.parse({ rules, default: fallback });
const group = { key: 'agent:main:telegram:group:-100', channel: 'telegram' };
const direct = { key: 'agent:main:main', channel: 'telegram' };
const deny = (match?: object) => ({ action: 'deny', match });
const allow = (match?: object) => ({ action: 'allow', match });

describe('decideSend', () => {
  it.each<[Asked, unknown[], SendAction, string]>([
    [group, [], 'allow', 'answers go out unless a rule says otherwise'],
    [group, [deny()], 'deny', 'a rule without a match is every session'],
    [direct, [deny({})], 'deny', 'an empty match is every session'],
    [group, [deny({ channel: 'telegram' })], 'deny', 'the channel matches'],
    [group, [deny({ channel: ' Telegram ' })], 'deny', 'a channel matches in any case'],
    [group, [deny({ channel: 'discord' })], 'allow', 'another channel'],
    [group, [deny({ surface: 'telegram' })], 'deny', '`surface` is the old name of `channel`'],
    [group, [deny({ surface: 'discord' })], 'allow', '`surface` must match too'],
    [{ key: group.key }, [deny({ channel: 'telegram' })], 'deny', 'without a destination a group is on its own channel'],
    [group, [deny({ chatType: 'group' })], 'deny', 'the key says it is a group'],
    [direct, [deny({ chatType: 'group' })], 'allow', 'a main session is not a group'],
    [direct, [deny({ chatType: 'direct' })], 'deny', 'a main session is a direct chat'],
    [direct, [deny({ chatType: 'dm' })], 'deny', '`dm` in a rule is `direct`'],
    [{ ...group, chatType: 'dm' }, [deny({ chatType: 'direct' })], 'deny', '`dm` of a destination is `direct`'],
    [{ ...group, chatType: 'channel' }, [deny({ chatType: 'group' })], 'allow', 'what is known of the destination goes before the key'],
    [{ key: 'cron:daily', channel: 'telegram' }, [deny({ chatType: 'direct' })], 'allow', 'a job is no kind of chat'],
    [group, [deny({ keyPrefix: 'agent:main:telegram:' })], 'deny', 'a prefix of the store key'],
    [group, [deny({ keyPrefix: 'telegram:group:' })], 'deny', 'a prefix of the request key'],
    [group, [deny({ keyPrefix: 'AGENT:Main:Telegram:GROUP:' })], 'deny', 'a prefix in any case'],
    [{ key: 'cron:daily' }, [deny({ keyPrefix: 'cron:' })], 'deny', 'the short form of a job key'],
    [{ key: 'telegram:direct:5' }, [deny({ channel: 'telegram' })], 'deny', 'a direct chat that names its channel is on it'],
    [{ key: 'telegram:direct:5' }, [deny({ keyPrefix: 'agent:main:telegram:dm:' })], 'deny', '`dm` in a prefix is `direct`'],
    [{ key: 'direct:5' }, [deny({ keyPrefix: 'dm:' })], 'deny', '`dm` in a prefix of the request key too'],
    [{ key: 'direct:x:dm:y' }, [deny({ keyPrefix: 'direct:x:dm:' })], 'deny', 'but an id keeps its own spelling'],
    [{ key: 'telegram:group:direct5' }, [deny({ keyPrefix: 'telegram:group:dm' })], 'allow', 'and a group id is not a kind of chat'],
    [{ key: 'discord:group:9', channel: 'telegram' }, [deny({ chatType: 'group' })], 'allow', 'the key says nothing about another channel'],
    [group, [deny({ keyPrefix: 'group:' })], 'allow', 'a prefix is not any part'],
    [group, [deny({ channel: 'telegram', chatType: 'direct' })], 'allow', 'every field given must match'],
    [group, [deny({ channel: 'telegram', chatType: 'group', keyPrefix: 'telegram:' })], 'deny', 'every field given does match'],
    [group, [allow({ chatType: 'group' }), deny({ channel: 'telegram' })], 'deny', 'a later deny beats an earlier allow'],
    [group, [deny({ channel: 'telegram' }), allow({ keyPrefix: group.key })], 'deny', 'a broad deny beats an exact allow'],
    [{ ...group, override: 'allow' }, [deny()], 'allow', 'the session itself is set to allow'],
    [{ ...group, override: 'deny' }, [allow()], 'deny', 'the session itself is set to deny'],
  ])('%j under %j is %s: %s', (asked, rules, expected) => {
    expect(decideSend(policy(rules), subject(asked)).action).toBe(expected);
  });

  it('falls back to the default, and only when no rule matches', () => {
    expect(decideSend(policy([allow({ channel: 'discord' })], 'deny'), subject(group)).action).toBe('deny');
    expect(decideSend(policy([allow({ channel: 'telegram' })], 'deny'), subject(group)).action).toBe('allow');
  });

  it('names the rule that decided and traces every rule in order', () => {
    const answer = decideSend(policy([allow(), deny({ channel: 'discord' }), deny({ chatType: 'group' })]), subject(group));
    expect(answer.why).toBe('session.sendPolicy.rules[2] says "deny": matches chat type "group"');
    expect(answer.rules.map(({ rule, effect }) => `${rule} ${effect}`)).toEqual([
      'sendPolicy.rules[0] ALLOW',
      'sendPolicy.rules[1] NOTE',
      'sendPolicy.rules[2] BLOCK',
    ]);
  });
});

describe('the laws of send policy', () => {
  const keys = ['main', 'telegram:group:-100', 'agent:work:slack:channel:c1:thread:7', 'discord:direct:5', 'cron:daily', 'notes'];
  const asked = fc.record({ key: fc.constantFrom(...keys), channel: fc.constantFrom('telegram', 'Discord', 'slack') });
  const match = fc.record(
    {
      channel: fc.constantFrom('telegram', 'discord', 'slack'),
      chatType: fc.constantFrom('direct', 'dm', 'group', 'channel'),
      keyPrefix: fc.constantFrom('agent:', 'agent:main:', 'telegram:', 'cron:', 'nobody'),
    },
    { requiredKeys: [] },
  );
  const action = fc.constantFrom<SendAction>('allow', 'deny');
  const rule = fc.record({ match, action });

  it('one matching deny, wherever it stands, beats every allow and the default', () => {
    fc.assert(
      fc.property(asked, fc.array(rule), fc.nat(), action, (who, rules, at, fallback) => {
        const withDeny = (rules as object[]).toSpliced(at % (rules.length + 1), 0, deny({ channel: who.channel }));
        expect(decideSend(policy(withDeny, fallback), subject(who)).action).toBe('deny');
      }),
    );
  });

  it('the order of rules does not matter', () => {
    const shuffled = fc
      .array(rule, { maxLength: 8 })
      .chain((rules) => fc.tuple(fc.constant(rules), fc.shuffledSubarray(rules, { minLength: rules.length })));
    fc.assert(
      fc.property(asked, shuffled, action, (who, [rules, other], fallback) => {
        expect(decideSend(policy(other, fallback), subject(who)).action).toBe(decideSend(policy(rules, fallback), subject(who)).action);
      }),
    );
  });

  it('an override is the answer, whatever the rules say', () => {
    fc.assert(
      fc.property(asked, fc.array(rule), action, action, (who, rules, fallback, override) => {
        expect(decideSend(policy(rules, fallback), subject({ ...who, override })).action).toBe(override);
      }),
    );
  });

  it('every start of the store key and of the request key is a key prefix, in any case', () => {
    const prefix = fc.tuple(fc.constantFrom(...keys), fc.boolean(), fc.nat()).chain(([text, stored, cut]) => {
      const { key } = subject({ key: text });
      const whole = stored ? formatSessionKey(key) : requestKey(key);
      return fc.tuple(fc.constant(key), fc.mixedCase(fc.constant(whole.slice(0, 1 + (cut % whole.length)))));
    });
    fc.assert(
      fc.property(prefix, ([key, start]) => {
        expect(hasKeyPrefix(start, [formatSessionKey(key), requestKey(key)])).toBe(true);
        expect(decideSend(policy([deny({ keyPrefix: start })]), { key }).action).toBe('deny');
      }),
    );
  });
});
