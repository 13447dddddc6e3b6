import * as fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { readConfig } from '../config/load.ts';
import type { Origin } from '../protocol/message.ts';
import type { Binding } from '../protocol/settings.ts';
import { compileAgents } from './agents.ts';
import { compileRoutes, nearMisses, route } from './route.ts';

const routesOf = (text: string) => {
  const { config } = readConfig(text, 'test.json5', {});
  return compileRoutes(config, compileAgents(config));
};
const dm = (id: string): Origin['peer'] => ({ kind: 'direct', id });

const routes = routesOf(`{
  agents: { list: [{ id: 'main', default: true }, { id: 'a' }, { id: 'b' }, { id: 'c' }, { id: 'd' }, { id: 'e' }, { id: 'f' }] },
  session: { dmScope: 'per-peer' },
  bindings: [
    { agentId: 'f', match: { channel: 'discord', accountId: '*' } },
    { agentId: 'e', match: { channel: 'discord' } },
    { agentId: 'd', match: { channel: 'discord', teamId: 'T' } },
    { agentId: 'c', match: { channel: 'discord', guildId: 'G' } },
    { agentId: 'a', match: { channel: 'discord', peer: { kind: 'channel', id: 'P' } } },
    { agentId: 'b', match: { channel: 'discord', peer: { kind: 'dm', id: '7' }, guildId: 'G' } },
    { agentId: 'b', match: { channel: 'slack', accountId: 'Work Space', peer: { kind: 'channel', id: 'C1' } } },
    { agentId: 'nobody', match: { channel: 'irc' } },
  ],
}`);

const cases: [why: string, origin: Origin, agent: string, matchedBy: string, key: string][] = [
  [
    'an exact peer comes first',
    { channel: 'discord', peer: { kind: 'channel', id: 'p' }, guildId: 'G', teamId: 'T' },
    'a',
    'peer',
    'agent:a:discord:channel:p',
  ],
  [
    "a thread takes its parent's binding, and its own key",
    { channel: 'discord', peer: { kind: 'channel', id: 'X' }, parentPeer: { kind: 'channel', id: 'P' }, guildId: 'G' },
    'a',
    'parentPeer',
    'agent:a:discord:channel:x',
  ],
  [
    'then the guild',
    { channel: 'discord', peer: { kind: 'channel', id: 'X' }, guildId: 'g', teamId: 'T' },
    'c',
    'guild',
    'agent:c:discord:channel:x',
  ],
  [
    'then the team',
    { channel: 'discord', peer: { kind: 'channel', id: 'X' }, guildId: 'other', teamId: 'T' },
    'd',
    'team',
    'agent:d:discord:channel:x',
  ],
  [
    'then the account, which is "default" when a binding names none',
    { channel: 'discord', peer: { kind: 'group', id: 'X' } },
    'e',
    'account',
    'agent:e:discord:group:x',
  ],
  [
    'then the channel with any account',
    { channel: 'Discord', accountId: 'second', peer: { kind: 'group', id: 'X' } },
    'f',
    'channel',
    'agent:f:discord:group:x',
  ],
  ['then the default agent', { channel: 'telegram', peer: dm('7') }, 'main', 'default', 'agent:main:direct:7'],
  ['every field a binding gives must match', { channel: 'discord', peer: dm('7'), guildId: 'other' }, 'e', 'account', 'agent:e:direct:7'],
  ['dm is direct', { channel: 'discord', peer: { kind: 'dm', id: '7' }, guildId: 'G' }, 'b', 'peer', 'agent:b:direct:7'],
  [
    'a group and a channel are different peers',
    { channel: 'discord', peer: { kind: 'group', id: 'P' } },
    'e',
    'account',
    'agent:e:discord:group:p',
  ],
  [
    'accounts are compared as ids',
    { channel: 'slack', accountId: 'work-space', peer: { kind: 'channel', id: 'c1' } },
    'b',
    'peer',
    'agent:b:slack:channel:c1',
  ],
  [
    'an agent that is not listed falls back to the default one',
    { channel: 'irc', peer: dm('x') },
    'main',
    'account',
    'agent:main:direct:x',
  ],
];

test.each(cases)('%s', (_, origin, agent, matchedBy, key) => {
  expect(route(routes, origin)).toMatchObject({ agentId: agent, matchedBy, sessionKey: key });
});

describe('routing', () => {
  it('warns at load about an agent that is not listed', () => {
    expect(routes.findings).toMatchObject([{ path: ['bindings', 7, 'agentId'] }]);
  });

  it('keeps a sanitised agent id when there is no list of agents', () => {
    const free = routesOf(`{ bindings: [{ agentId: 'My Agent', match: { channel: 'irc' } }] }`);
    expect(route(free, { channel: 'irc', peer: dm('x') })).toMatchObject({ agentId: 'my-agent', sessionKey: 'agent:my-agent:main' });
    expect(free.findings).toEqual([]);
  });

  it('takes the first binding of the config inside a tier', () => {
    const two = routesOf(`{ bindings: [
      { agentId: 'one', match: { channel: 'irc', accountId: '*', guildId: 'g' } },
      { agentId: 'two', match: { channel: 'irc', guildId: 'g' } },
    ] }`);
    expect(route(two, { channel: 'irc', guildId: 'g', peer: dm('x') })).toMatchObject({ agentId: 'one', binding: 0 });
  });

  it('opens a session for a topic and for a thread, and names the session they hang from', () => {
    const made = route(routes, { channel: 'telegram', peer: { kind: 'group', id: '-100' }, topicId: '7', threadId: '9' });
    expect(made).toMatchObject({
      sessionKey: 'agent:main:telegram:group:-100:topic:7:thread:9',
      parentSessionKey: 'agent:main:telegram:group:-100:topic:7',
    });
  });

  it('puts all direct chats into one session of the default agent when the scope is global', () => {
    const global = routesOf(`{ session: { scope: 'global' }, bindings: [{ agentId: 'work', match: { channel: 'irc' } }] }`);
    expect(route(global, { channel: 'irc', peer: dm('x') })).toMatchObject({
      agentId: 'main',
      sessionKey: 'agent:main:main',
      matchedBy: 'default',
    });
    expect(route(global, { channel: 'irc', peer: { kind: 'group', id: 'x' } })).toMatchObject({
      agentId: 'work',
      sessionKey: 'agent:work:irc:group:x',
    });
  });

  it('warns about a binding that can never match', () => {
    const twice = routesOf(
      `{ bindings: [{ agentId: 'a', match: { channel: 'irc' } }, { agentId: 'b', match: { channel: 'IRC', accountId: 'default' } }] }`,
    );
    expect(twice.findings).toMatchObject([{ path: ['bindings', 1], says: expect.stringContaining('bindings[0]') }]);
  });

  it('names bindings that fail on the account or the kind of peer only, and those that lose', () => {
    const given = routesOf(`{ bindings: [
      { agentId: 'a', match: { channel: 'irc' } },
      { agentId: 'b', match: { channel: 'irc', peer: { kind: 'group', id: '77' } } },
      { agentId: 'c', match: { channel: 'irc', accountId: '*' } },
      { agentId: 'd', match: { channel: 'irc', peer: { kind: 'group', id: '78' } } },
    ] }`);
    const why = (origin: Origin) => nearMisses(given, origin, route(given, origin).binding).map((miss) => `${miss.rule} ${miss.why}`);
    expect(why({ channel: 'irc', accountId: 'work', peer: { kind: 'channel', id: '77' } })).toEqual([
      'bindings[0] does not match: account is "work", not "default", which a binding without accountId means',
    ]);
    expect(why({ channel: 'irc', peer: { kind: 'channel', id: '77' } })).toEqual([
      'bindings[1] does not match: peer is "channel:77", not "group:77"',
      'bindings[2] matches too, but what was taken is more exact or comes first',
    ]);
  });

  it('says when an account id is not used as it was written', () => {
    expect(route(routes, { channel: 'irc', accountId: '日本', peer: dm('x') }).rules[0]).toMatchObject({
      rule: 'account',
      why: 'accountId "日本" is used as "default"',
    });
  });

  it('asks its index at most 24 times, whatever the number of bindings', () => {
    const bindings = Array.from({ length: 10_000 }, (_, n) => ({
      agentId: 'a',
      match: {
        channel: 'irc',
        ...(n % 2 ? { accountId: '*' } : {}),
        ...(n % 3 ? { peer: dm(`${n}`) } : {}),
        ...(n % 5 ? { guildId: `${n}` } : {}),
        ...(n % 7 ? { teamId: `${n}` } : {}),
      },
    }));
    const many = routesOf(JSON.stringify({ bindings }));
    const entry = many.channels.get('irc')!;
    let asked = 0;
    const counting = new Map(entry.first);
    counting.get = (place) => {
      asked++;
      return entry.first.get(place);
    };
    many.channels.set('irc', { ...entry, first: counting });
    route(many, { channel: 'irc', accountId: 'none', peer: dm('none'), parentPeer: dm('none'), guildId: 'none', teamId: 'none' });
    expect(asked).toBeGreaterThan(10);
    expect(asked).toBeLessThanOrEqual(24);
  });

  it('says for each tier why it did or did not decide, and which bindings nearly matched', () => {
    const origin: Origin = { channel: 'slack', peer: { kind: 'channel', id: 'C1' } };
    expect(route(routes, origin).rules.map(({ rule, effect }) => `${rule} ${effect}`)).toEqual([
      'binding.peer NOTE',
      'binding.parentPeer NOTE',
      'binding.guild NOTE',
      'binding.team NOTE',
      'binding.account NOTE',
      'binding.channel NOTE',
      'agent.default ALLOW',
      'session.key ALLOW',
    ]);
    expect(nearMisses(routes, origin, undefined)).toEqual([
      { rule: 'bindings[6]', effect: 'NOTE', why: 'does not match: account is "default", not "work-space"' },
    ]);
  });
});

// A second, plain reading of the rules: look at every binding in every tier.
function naive(bindings: Binding[], origin: Origin): { agentId: string; matchedBy: string } {
  const account = origin.accountId ?? 'default';
  const same = (a: Origin['peer'] | undefined, b: Origin['peer'] | undefined) =>
    !!a && !!b && a.id === b.id && a.kind.replace('dm', 'direct') === b.kind.replace('dm', 'direct');
  const rest = ({ match }: Binding, peer: Origin['peer'] | undefined) =>
    match.channel === origin.channel &&
    (match.accountId === '*' || (match.accountId ?? 'default') === account) &&
    (!match.peer || same(match.peer, peer)) &&
    (match.guildId === undefined || match.guildId === origin.guildId) &&
    (match.teamId === undefined || match.teamId === origin.teamId);
  const tiers: [string, (binding: Binding) => boolean][] = [
    ['peer', (b) => !!b.match.peer && rest(b, origin.peer)],
    ['parentPeer', (b) => !!b.match.peer && rest(b, origin.parentPeer)],
    ['guild', (b) => !b.match.peer && b.match.guildId !== undefined && rest(b, undefined)],
    ['team', (b) => !b.match.peer && b.match.guildId === undefined && b.match.teamId !== undefined && rest(b, undefined)],
    [
      'account',
      (b) =>
        !b.match.peer && b.match.guildId === undefined && b.match.teamId === undefined && b.match.accountId !== '*' && rest(b, undefined),
    ],
    [
      'channel',
      (b) =>
        !b.match.peer && b.match.guildId === undefined && b.match.teamId === undefined && b.match.accountId === '*' && rest(b, undefined),
    ],
  ];
  for (const [tier, matches] of tiers) {
    const found = bindings.find(matches);
    if (found) return { agentId: found.agentId, matchedBy: tier };
  }
  return { agentId: 'main', matchedBy: 'default' };
}

it('equals a naive reference implementation on random configs', () => {
  const word = fc.constantFrom('x', 'y');
  const peer = fc.record({ kind: fc.constantFrom('direct', 'dm', 'group', 'channel'), id: word });
  const channel = fc.constantFrom('irc', 'slack');
  const match = fc.record(
    { channel, accountId: fc.constantFrom('*', 'default', 'w'), peer, guildId: word, teamId: word },
    { requiredKeys: ['channel'] },
  );
  const origin = fc.record(
    { channel, peer, accountId: fc.constantFrom('default', 'w'), parentPeer: peer, guildId: word, teamId: word },
    { requiredKeys: ['channel', 'peer'] },
  );
  const bindings = fc
    .array(fc.record({ match }), { maxLength: 40 })
    .map((list) => list.map((binding, index) => ({ ...binding, agentId: `a${index}` })));
  fc.assert(
    fc.property(bindings, fc.array(origin, { minLength: 1, maxLength: 10 }), (list, origins) => {
      const { config } = readConfig(JSON.stringify({ bindings: list }), 'test.json5', {});
      const compiled = compileRoutes(config, compileAgents(config));
      for (const one of origins) expect(route(compiled, one)).toMatchObject(naive(list, one));
    }),
  );
});
