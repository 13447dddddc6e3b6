// Where an announce goes: the group or channel in the key, else where the session last spoke, else nowhere.
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import type { DeliveryContext } from '../protocol/session.ts';
import { announceTarget, type AnnounceTarget } from './announce-target.ts';
import { formatSessionKey, groupKey, requireSessionKey, threadKey } from './session-key.ts';

const context = { agentId: 'main', mainKey: 'main' };
const elsewhere: DeliveryContext = { channel: 'slack', to: 'U9', accountId: 'work', threadId: '17.5' };

function targetOf(key: string, recorded?: DeliveryContext): Omit<AnnounceTarget, 'why'> {
  const { why: _, ...target } = announceTarget(requireSessionKey(key, context), recorded);
  return target;
}

describe('announceTarget', () => {
  it.each<[string, DeliveryContext | undefined, object, string]>([
    ['telegram:group:-100', undefined, { channel: 'telegram', to: '-100', kind: 'group' }, 'the group in the key'],
    ['discord:channel:5', undefined, { channel: 'discord', to: '5', kind: 'channel' }, 'the channel in the key'],
    ['telegram:group:-100:topic:7', undefined, { channel: 'telegram', to: '-100', kind: 'group', threadId: '7' }, 'with its topic'],
    ['slack:channel:c1:thread:1.5', undefined, { channel: 'slack', to: 'c1', kind: 'channel', threadId: '1.5' }, 'with its thread'],
    ['x:group:1:topic:7:thread:8', undefined, { channel: 'x', to: '1', kind: 'group', threadId: '8' }, 'with the innermost thread'],
    ['matrix:group:!a:b.org', undefined, { channel: 'matrix', to: '!a:b.org', kind: 'group' }, 'colons belong to the id'],
    ['telegram:group:-100', elsewhere, { channel: 'telegram', to: '-100', kind: 'group' }, 'the key goes before the record'],
    [
      'slack:channel:c1',
      { channel: 'Slack', to: 'C1', accountId: 'work', threadId: '9' },
      { channel: 'slack', to: 'C1', kind: 'channel', accountId: 'work' },
      "the record's account and spelling, but not its thread",
    ],
    [
      'slack:channel:c1:thread:abc',
      { channel: 'slack', to: 'C2', threadId: 'ABC' },
      { channel: 'slack', to: 'c1', kind: 'channel', threadId: 'ABC' },
      'the spelling of another id is not borrowed',
    ],
    ['main', elsewhere, { ...elsewhere, kind: 'recorded' }, 'a main session speaks where it last spoke'],
    ['telegram:direct:5', elsewhere, { ...elsewhere, kind: 'recorded' }, 'so does a direct chat'],
    ['cron:daily', { channel: 'telegram', to: '5' }, { channel: 'telegram', to: '5', kind: 'recorded' }, 'so does a job'],
    ['main:thread:3', elsewhere, { ...elsewhere, kind: 'recorded' }, 'a thread of no group is not a destination'],
    ['group:5', elsewhere, { ...elsewhere, kind: 'recorded' }, 'a group of no channel is only a name'],
  ])('%s with %j goes to %j: %s', (key, recorded, expected) => {
    expect(targetOf(key, recorded)).toEqual({
      found: true,
      ...('kind' in expected && expected.kind !== 'recorded' ? { chatType: expected.kind } : {}),
      ...expected,
    });
  });

  it.each(['main', 'telegram:direct:5', 'cron:daily', 'subagent:1', 'notes'])('%s, which has not spoken yet, has no destination', (key) => {
    const target = announceTarget(requireSessionKey(key, context), undefined);
    expect(target).toEqual({ found: false, why: expect.stringMatching(/^no destination/) });
  });

  it('does not announce to a digest: a group whose id is too long for a key needs a record', () => {
    const key = formatSessionKey(groupKey({ kind: 'group', channel: 'matrix', id: 'x'.repeat(1_000) }, 'main'));
    expect(targetOf(key)).toEqual({ found: false });
    expect(targetOf(key, elsewhere)).toEqual({ found: true, ...elsewhere, kind: 'recorded' });
    const thread = formatSessionKey(
      threadKey(groupKey({ kind: 'group', channel: 'matrix', id: '1' }, 'main'), 'thread', 'x'.repeat(1_000)),
    );
    expect(targetOf(thread)).toEqual({ found: false });
  });

  it('spells every group and thread as the platform did when the session last spoke there', () => {
    const id = fc.string({ unit: 'binary', minLength: 1, maxLength: 300 }).filter((text) => text === text.trim());
    fc.assert(
      fc.property(id, id, (to, threadId) => {
        const key = threadKey(groupKey({ kind: 'group', channel: 'slack', id: to }, 'main'), 'thread', threadId);
        const recorded = { channel: 'slack', to, threadId };
        expect(targetOf(formatSessionKey(key), recorded)).toMatchObject({ found: true, ...recorded });
      }),
    );
  });
});
