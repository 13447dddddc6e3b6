import * as fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import type { DmScope } from '../protocol/settings.ts';
import {
  compileIdentityLinks,
  directKey,
  formatSessionKey,
  groupKey,
  idOf,
  keyChatType,
  mainKey,
  ownedKey,
  parentKey,
  parseSessionKey,
  requestKey,
  requireSessionKey,
  sessionChannel,
  sessionKind,
  threadKey,
  type KeyContext,
  type SessionKey,
} from './session-key.ts';

const context: KeyContext = { agentId: 'main', mainKey: 'main' };
const read = (text: string, given = context) => requireSessionKey(text, given);
const nobody = compileIdentityLinks({});

/** Ids made of what could be mistaken for grammar, or breaks naive encodings. */
const nastyWord = fc.constantFrom(
  'agent',
  'direct',
  'dm',
  'group',
  'channel',
  'thread',
  'topic',
  'cron',
  'hook',
  'node',
  'node-',
  'subagent',
  'acp',
  'guest',
  'main',
  'global',
  'unknown',
  ':',
  '::',
  '%',
  '%3a',
  '%25',
  '%74hread',
  '%sha256-',
  '%peer-',
  '%u200b',
  '⟦',
  '⟧',
  'alice',
  'BOB',
  ' ',
  '\u200b',
  '\ud83d',
  'İ',
  'Σ',
  '\n',
  '/',
  '7',
);
const nastyId = fc
  .oneof(
    fc.array(nastyWord, { minLength: 1, maxLength: 6 }).map((words) => words.join('')),
    fc.array(nastyWord, { minLength: 1, maxLength: 6 }).map((words) => words.join(':')),
    fc.string({ unit: 'binary', minLength: 1 }),
    fc.string({ minLength: 250, maxLength: 300 }),
  )
  .filter((id) => id.trim() !== '');
const agent = fc.constantFrom('main', 'work', 'a_b-c');
const dmScope = fc.constantFrom<DmScope>('main', 'per-peer', 'per-channel-peer', 'per-account-channel-peer');
const owned = fc.constantFrom('cron', 'hook', 'node', 'subagent', 'acp', 'guest');

const baseKey: fc.Arbitrary<SessionKey> = fc.oneof(
  agent.map((agentId) => mainKey({ ...context, agentId })),
  fc
    .record({ scope: dmScope, channel: nastyId, account: nastyId, peer: nastyId, agentId: agent })
    .map(({ agentId, ...chat }) => directKey({ ...chat, links: nobody }, { ...context, agentId })),
  fc
    .record({ kind: fc.constantFrom('group', 'channel'), channel: nastyId, id: nastyId, agentId: agent })
    .map(({ agentId, ...group }) => groupKey(group, agentId)),
  fc.record({ shape: owned, id: nastyId, agentId: agent }).map(({ shape, id, agentId }) => ownedKey(shape, id, agentId)),
);
const anyKey = fc
  .tuple(baseKey, fc.array(fc.tuple(fc.constantFrom('thread', 'topic'), nastyId), { maxLength: 3 }))
  .map(([base, threads]) => threads.reduce((key, [marker, id]) => threadKey(key, marker, id), base));

const keys: [text: string, expected: object, kind: string, chat: string | undefined][] = [
  ['agent:main:main', { agent: 'main', shape: 'main' }, 'main', 'direct'],
  ['main', { agent: 'main', shape: 'main' }, 'main', 'direct'],
  ['AGENT:Work:MAIN', { agent: 'work', shape: 'main' }, 'main', 'direct'],
  ['agent:main:direct:alice', { shape: 'direct', peer: 'alice' }, 'other', 'direct'],
  ['agent:main:dm:alice', { shape: 'direct', peer: 'alice' }, 'other', 'direct'],
  ['agent:main:telegram:dm:42', { shape: 'direct', channel: 'telegram', peer: '42' }, 'other', 'direct'],
  ['agent:main:telegram:work:direct:42', { shape: 'direct', channel: 'telegram', account: 'work', peer: '42' }, 'other', 'direct'],
  ['agent:main:whatsapp:group:123@g.us', { shape: 'group', channel: 'whatsapp', peer: '123@g.us' }, 'group', 'group'],
  ['agent:main:matrix:channel:!room:example.org', { shape: 'channel', channel: 'matrix', peer: '!room:example.org' }, 'group', 'channel'],
  ['discord:group:9', { agent: 'main', shape: 'group', channel: 'discord' }, 'group', 'group'],
  ['agent:main:slack:channel:c1:thread:1700.5', { shape: 'channel', threads: [{ marker: 'thread', id: '1700.5' }] }, 'group', 'channel'],
  ['agent:main:telegram:group:-100:topic:7', { shape: 'group', peer: '-100', threads: [{ marker: 'topic', id: '7' }] }, 'group', 'group'],
  ['agent:main:main:thread:5', { shape: 'main', threads: [{ marker: 'thread', id: '5' }] }, 'other', 'direct'],
  ['cron:nightly', { agent: 'main', shape: 'cron', id: 'nightly' }, 'cron', undefined],
  ['agent:work:cron:nightly:run:1', { agent: 'work', shape: 'cron', id: 'nightly:run:1' }, 'cron', undefined],
  ['hook:0f3a', { shape: 'hook', id: '0f3a' }, 'hook', undefined],
  ['node-phone', { shape: 'node', id: 'phone' }, 'node', undefined],
  ['node:phone', { shape: 'node', id: 'phone' }, 'node', undefined],
  ['subagent:1b', { agent: 'main', shape: 'subagent', id: '1b' }, 'other', undefined],
  ['agent:main:acp:1b', { shape: 'acp', id: '1b' }, 'other', undefined],
  ['agent:main:guest:claude', { shape: 'guest', id: 'claude' }, 'other', undefined],
  ['agent:main:My Project', { shape: 'named', name: 'my project' }, 'other', undefined],
  ['notes:2026', { shape: 'named', name: 'notes:2026' }, 'other', undefined],
];

test.each(keys)('%j is read by position', (text, expected, kind, chat) => {
  const key = read(text);
  expect(key).toMatchObject(expected);
  expect(sessionKind(key)).toBe(kind);
  expect(keyChatType(key)).toBe(chat);
});

const refused: [text: string, code: string, why: RegExp][] = [
  ['', 'SESSION_KEY_INVALID', /empty/],
  ['agent:main', 'SESSION_KEY_INVALID', /nothing follows/],
  ['agent:main:', 'SESSION_KEY_INVALID', /nothing follows/],
  ['agent::main', 'SESSION_KEY_INVALID', /not an agent id/],
  ['agent:my agent:main', 'SESSION_KEY_INVALID', /not an agent id/],
  ['agent:main:agent:work:main', 'SESSION_KEY_INVALID', /do not nest/],
  ['agent:main:direct', 'SESSION_KEY_INVALID', /followed by an id/],
  ['agent:main:direct: ', 'SESSION_KEY_INVALID', /followed by an id/],
  ['telegram:group', 'SESSION_KEY_INVALID', /followed by an id/],
  ['telegram:work:direct', 'SESSION_KEY_INVALID', /followed by an id/],
  ['cron:', 'SESSION_KEY_INVALID', /followed by an id/],
  ['node-', 'SESSION_KEY_INVALID', /followed by an id/],
  ['main:thread: ', 'SESSION_KEY_INVALID', /blank/],
  ['global', 'SESSION_KEY_RESERVED', /reserved/],
  ['Unknown', 'SESSION_KEY_RESERVED', /reserved/],
  ['agent:main:global', 'SESSION_KEY_RESERVED', /reserved/],
];

test.each(refused)('%j is refused', (text, code, why) => {
  const parsed = parseSessionKey(text, context);
  expect(parsed).toMatchObject({ ok: false, code });
  expect(!parsed.ok && parsed.why).toMatch(why);
});

const poses: [peer: string, scope: DmScope][] = [
  'x:group:1',
  'bob:thread:5',
  'bob:thread',
  'thread:5',
  'agent:work:main',
  'direct:bob',
  ':',
  'a:topic:1:thread:2',
].flatMap((peer) =>
  (['per-peer', 'per-channel-peer', 'per-account-channel-peer'] as const).map((scope): [string, DmScope] => [peer, scope]),
);

test.each(poses)('a peer called %j is nothing but that peer (%s)', (peer, scope) => {
  const key = directKey({ scope, channel: 'irc', account: 'default', peer, links: nobody }, context);
  const again = read(formatSessionKey(key));
  expect(again).toEqual(key);
  expect(again).toMatchObject({ shape: 'direct', threads: [] });
  expect(idOf((again as { peer: string }).peer)).toBe(peer);
});

describe('a session key', () => {
  it('round-trips: format, then parse, gives the same key', () => {
    fc.assert(
      fc.property(anyKey, (key) => {
        expect(read(formatSessionKey(key))).toEqual(key);
      }),
    );
  });

  it('round-trips through its request key under the same agent', () => {
    fc.assert(
      fc.property(anyKey, (key) => {
        expect(read(requestKey(key), { ...context, agentId: key.agent })).toEqual(key);
      }),
    );
  });

  it('is normalised once: what is typed in any way has one canonical text, which is kept', () => {
    const typed = fc.oneof(
      nastyId,
      fc.tuple(fc.constantFrom('agent:main', 'telegram:group', 'direct', 'a:b:dm'), nastyId).map((parts) => parts.join(':')),
    );
    fc.assert(
      fc.property(typed, (text) => {
        const parsed = parseSessionKey(text, context);
        if (!parsed.ok) return;
        const canonical = formatSessionKey(parsed.key);
        expect(parseSessionKey(canonical, context)).toEqual(parsed);
      }),
    );
  });

  it('keeps the id it was made from, up to case, outer space and length', () => {
    fc.assert(
      fc.property(nastyId, (id) => {
        const key = ownedKey('hook', id, 'main') as { id: string };
        const back = idOf(key.id);
        if (back !== undefined) expect(back).toBe(id.trim().toLowerCase());
        else expect(id.length).toBeGreaterThan(40);
      }),
    );
  });

  it('has no control or invisible characters, no brackets of the gateway and a bounded length, whatever the id', () => {
    fc.assert(
      fc.property(fc.oneof(nastyId, fc.string({ unit: 'binary', minLength: 9_000, maxLength: 10_000 })), (id) => {
        fc.pre(id.trim() !== '');
        const text = formatSessionKey(groupKey({ kind: 'group', channel: 'irc', id }, 'main'));
        expect(text.length).toBeLessThan(400);
        expect(text).not.toMatch(/[\p{Cc}\u200b\u202e\ufeff⟦⟧]/u);
        expect(text.isWellFormed()).toBe(true);
      }),
      { numRuns: 100 },
    );
  });

  it('differs for two long ids that differ in one character, also from an id that spells a digest', () => {
    const long = 'x'.repeat(10_000);
    const text = (id: string) => formatSessionKey(ownedKey('cron', id, 'main'));
    const digest = text(long).split(':').at(-1)!;
    expect(new Set([text(long), text(`${long}y`), text(digest)]).size).toBe(3);
    expect(formatSessionKey(read(`cron:${long}`))).toBe(text(long));
  });

  it('is never shared by two different peers unless the scope or an identity link says so', () => {
    const peer = fc.record({
      channel: fc.oneof(fc.constantFrom('telegram', 'cron', 'direct', 'node-x', 'unknown'), nastyId),
      account: fc.constantFrom('default', 'direct', 'thread'),
      peer: nastyId,
    });
    const links = compileIdentityLinks({ alice: ['telegram:111', 'discord:222'], 'bob:thread:5': ['irc:b'] });
    fc.assert(
      fc.property(dmScope, peer, peer, (scope, one, two) => {
        fc.pre(scope !== 'main');
        const same = (read: (chat: typeof one) => string) => read(one) === read(two);
        const id = (chat: typeof one) => chat.peer.trim().toLowerCase();
        const expected =
          same(id) &&
          (scope === 'per-peer' || same((chat) => chat.channel.trim().toLowerCase())) &&
          (scope !== 'per-account-channel-peer' || same((chat) => chat.account));
        const key = (chat: typeof one) => formatSessionKey(directKey({ ...chat, scope, links }, context));
        expect(key(one) === key(two)).toBe(expected);
      }),
    );
  });

  it('cannot be made from a blank id', () => {
    expect(() => ownedKey('cron', '  ', 'main')).toThrow(/blank id/);
  });
});

describe('with another main key and named sessions, a key', () => {
  const word = fc.constantFrom('home', 'main', 'group5', 'x', 'notes', 'direct-line');
  it('round-trips all the same', () => {
    fc.assert(
      fc.property(word, fc.oneof(word, nastyId), (mainName, typed) => {
        const given = { agentId: 'work', mainKey: mainName };
        const parsed = parseSessionKey(typed, given);
        if (!parsed.ok) return;
        expect(parseSessionKey(formatSessionKey(parsed.key), given)).toEqual(parsed);
        expect(parsed.key.shape === 'main' && parsed.key.threads.length === 0).toBe(
          formatSessionKey(parsed.key) === `agent:work:${mainName}`,
        );
      }),
    );
  });
});

it('refuses nested marks and text that is no key at all, without effort', () => {
  expect(formatSessionKey(read(`direct:${'%peer-'.repeat(3)}ana`))).toBe('agent:main:direct:%peer-%25peer-%25peer-ana');
  expect(parseSessionKey('x'.repeat(200_000), context)).toMatchObject({ ok: false });
});

describe('identity links', () => {
  const links = compileIdentityLinks({ Ana: ['Telegram:111', 'discord:222'], bea: ['telegram:111'] });
  const key = (channel: string, peer: string, scope: DmScope = 'per-peer') =>
    formatSessionKey(directKey({ scope, channel, account: 'default', peer, links }, context));

  it('give one person one session on several channels', () => {
    expect(key('telegram', '111')).toBe('agent:main:direct:ana');
    expect(key('discord', '222')).toBe('agent:main:direct:ana');
  });

  it('take the first person listed for an id', () => {
    expect(key('telegram', '111')).toBe('agent:main:direct:ana');
  });

  it('look at the real channel: an id that spells another channel is not linked', () => {
    expect(key('irc', 'telegram:111')).toBe('agent:main:direct:telegram:111');
    expect(key('telegram', '222')).toBe('agent:main:direct:222');
  });

  it('cannot be taken over by a peer who is called like a linked person', () => {
    expect(key('irc', 'ANA')).not.toBe(key('telegram', '111'));
    expect(formatSessionKey(read(key('irc', 'ana')))).toBe(key('irc', 'ana'));
  });

  it('do not matter when direct chats share the main session', () => {
    expect(key('telegram', '111', 'main')).toBe('agent:main:main');
  });
});

describe('the parent of a thread', () => {
  it('is the key without its last thread or topic', () => {
    const key = read('agent:main:telegram:group:-100:topic:7:thread:9');
    const parent = parentKey(key)!;
    expect(formatSessionKey(parent)).toBe('agent:main:telegram:group:-100:topic:7');
    expect(formatSessionKey(parentKey(parent)!)).toBe('agent:main:telegram:group:-100');
    expect(parentKey(read('main'))).toBeUndefined();
  });

  it('undoes threadKey for every key', () => {
    fc.assert(
      fc.property(anyKey, nastyId, (key, id) => {
        expect(parentKey(threadKey(key, 'thread', id))).toEqual(key);
      }),
    );
  });
});

describe('the main session', () => {
  it('can have another name, and is still reached as main', () => {
    const home = { agentId: 'work', mainKey: 'home' };
    expect(formatSessionKey(mainKey(home))).toBe('agent:work:home');
    for (const text of ['main', 'home', 'agent:work:main', 'agent:work:home'])
      expect(formatSessionKey(read(text, home))).toBe('agent:work:home');
  });

  it('of the default agent is meant by "global" when all direct chats are one, and by nothing else then', () => {
    const global = { agentId: 'work', mainKey: 'main', globalOwner: 'work' };
    for (const text of ['main', 'agent:work:main', 'global']) expect(formatSessionKey(read(text, global))).toBe('agent:work:main');
    expect(sessionKind(read('main', global))).toBe('main');
    expect(formatSessionKey(read('agent:other:main', global))).toBe('agent:other:main');
  });
});

const channels: [key: string, known: { channel?: string; lastChannel?: string }, expected: string][] = [
  ['agent:main:telegram:group:1', { channel: 'telegram', lastChannel: 'discord' }, 'telegram'],
  ['agent:main:telegram:group:1', {}, 'telegram'],
  ['agent:main:main', { channel: 'x', lastChannel: 'discord' }, 'discord'],
  ['agent:main:telegram:direct:1', { lastChannel: 'telegram' }, 'telegram'],
  ['agent:main:main', {}, 'unknown'],
  ['cron:x', { lastChannel: 'telegram' }, 'internal'],
  ['hook:x', {}, 'internal'],
  ['node-x', { channel: 'telegram' }, 'internal'],
  ['subagent:x', {}, 'unknown'],
];

test.each(channels)('the channel of %s with %j is %s', (text, known, expected) => {
  expect(sessionChannel(read(text), known)).toBe(expected);
});
