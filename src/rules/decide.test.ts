import * as fc from 'fast-check';
import { describe, expect, it, test } from 'vitest';
import { readConfig } from '../config/load.ts';
import { levels, visibilities } from '../protocol/labels.ts';
import { SessionFacts } from '../protocol/session.ts';
import { channelLevel, compileWorld, decide, inListScope, listScope, partyOf, type Request, type World } from './decide.ts';
import { redact } from './text-patterns.ts';

/** Without a list of agents, a binding makes "work" one. */
const worldOf = (text: string) => {
  const { config } = readConfig(text, 'test.json5', {});
  return compileWorld({ ...config, bindings: [{ agentId: 'work', match: { channel: 'irc' } }] });
};
const party = (world: World, facts: object) => partyOf(world, SessionFacts.parse(facts));
const open = worldOf(`{ tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } } }`);
const main = party(open, { key: 'agent:main:main' });

type Facts = Record<string, unknown>;
const ask = (world: World, action: 'list' | 'read' | 'status' | 'send', caller: Facts, target: Facts) =>
  decide({ action, caller: party(world, caller), target: party(world, target) }, world);

const cases: [
  why: string,
  world: World,
  action: 'read' | 'send',
  caller: Facts,
  target: Facts,
  effect: string,
  code: string | undefined,
  hidden: boolean,
][] = [
  [
    'a session reads itself',
    worldOf('{}'),
    'read',
    { key: 'main', taint: 'PUBLIC' },
    { key: 'main', existTaint: 'RESTRICTED' },
    'ALLOW',
    undefined,
    false,
  ],
  [
    'by default a session does not see its neighbour',
    worldOf('{}'),
    'read',
    { key: 'main' },
    { key: 'telegram:group:1' },
    'BLOCK',
    'SESSION_NOT_FOUND',
    true,
  ],
  [
    'by default a session sees what it spawned',
    worldOf('{}'),
    'read',
    { key: 'main' },
    { key: 'subagent:1', spawnedBy: 'main' },
    'ALLOW',
    undefined,
    false,
  ],
  [
    'its own child under another agent needs no agent-to-agent',
    worldOf('{}'),
    'send',
    { key: 'main' },
    { key: 'agent:work:subagent:1', spawnedBy: 'agent:main:main' },
    'ALLOW',
    undefined,
    false,
  ],
  [
    'another agent is out of reach unless enabled',
    worldOf(`{ tools: { sessions: { visibility: 'all' } } }`),
    'read',
    { key: 'main' },
    { key: 'agent:work:main' },
    'BLOCK',
    'SESSION_NOT_FOUND',
    true,
  ],
  [
    'nobody reads up',
    open,
    'read',
    { key: 'main', taint: 'INTERNAL' },
    { key: 'agent:work:main', taint: 'CONFIDENTIAL' },
    'BLOCK',
    'SESSION_NOT_FOUND',
    true,
  ],
  [
    'a session opened by a higher one is hidden, whatever it holds',
    open,
    'read',
    { key: 'main' },
    { key: 'agent:work:x', existTaint: 'INTERNAL' },
    'BLOCK',
    'SESSION_NOT_FOUND',
    true,
  ],
  ['reading down is fine', open, 'read', { key: 'main', taint: 'CONFIDENTIAL' }, { key: 'agent:work:main' }, 'ALLOW', undefined, false],
  [
    'nobody writes down, and hears why',
    open,
    'send',
    { key: 'main', taint: 'CONFIDENTIAL' },
    { key: 'agent:work:main' },
    'BLOCK',
    'WRITE_DOWN',
    false,
  ],
  [
    'sending up would show that something is there',
    open,
    'send',
    { key: 'main' },
    { key: 'agent:work:main', taint: 'INTERNAL' },
    'BLOCK',
    'SESSION_NOT_FOUND',
    true,
  ],
  [
    'equals send to each other',
    open,
    'send',
    { key: 'main', taint: 'INTERNAL' },
    { key: 'agent:work:main', taint: 'INTERNAL' },
    'ALLOW',
    undefined,
    false,
  ],
  ['nobody sends to itself', open, 'send', { key: 'main' }, { key: 'agent:main:main' }, 'BLOCK', 'SEND_TO_SELF', false],
  [
    'a send policy does not stop a message between sessions',
    worldOf(`{ session: { sendPolicy: { default: 'deny' } }, tools: { sessions: { visibility: 'agent' } } }`),
    'send',
    { key: 'main' },
    { key: 'x' },
    'ALLOW',
    undefined,
    false,
  ],
];

test.each(cases)('%s', (_, world, action, caller, target, effect, code, hidden) => {
  const decision = ask(world, action, caller, target);
  expect({ effect: decision.effect, code: decision.code, hidden: decision.hidden }).toEqual({ effect, code, hidden });
});

describe('delivery', () => {
  const deliver = (world: World, caller: Facts, more: Partial<Request> = {}) =>
    decide({ action: 'deliver', caller: party(world, caller), channel: 'discord', ...more } as Request, world);

  it('is stopped by the send policy, also for a session that may be read', () => {
    const world = worldOf(`{ session: { sendPolicy: { rules: [{ match: { channel: 'discord', chatType: 'group' }, action: 'deny' }] } } }`);
    expect(deliver(world, { key: 'discord:group:1' })).toMatchObject({ effect: 'BLOCK', code: 'SEND_POLICY_DENIED' });
    expect(deliver(world, { key: 'discord:direct:1' })).toMatchObject({ effect: 'ALLOW' });
    expect(deliver(world, { key: 'discord:group:1', sendPolicy: 'allow' })).toMatchObject({ effect: 'ALLOW' });
  });

  it('never goes down: a channel nobody classified is PUBLIC', () => {
    const world = worldOf(`{ classification: { channels: { Discord: 'INTERNAL' } } }`);
    expect(deliver(world, { key: 'main', taint: 'INTERNAL' })).toMatchObject({ effect: 'ALLOW' });
    expect(deliver(world, { key: 'main', taint: 'CONFIDENTIAL' })).toMatchObject({ effect: 'BLOCK', code: 'WRITE_DOWN' });
    expect(deliver(world, { key: 'main', taint: 'INTERNAL' }, { channel: 'irc' })).toMatchObject({ effect: 'BLOCK', code: 'WRITE_DOWN' });
  });

  it('is blocked when the level of the destination is not known', () => {
    const world = { ...open, channelLevels: { channels: new Map([['discord', 'SECRET']]), default: 'PUBLIC' } };
    expect(channelLevel(world, 'discord')).toBe('RESTRICTED');
    expect(deliver(world, { key: 'main' })).toMatchObject({ effect: 'BLOCK', code: 'WRITE_DOWN' });
  });

  it('passes without what a REDACT rule takes out, and a rule can only tighten', () => {
    const world = worldOf(`{ policy: { rules: [{ id: 'cards', hook: 'PRE_OUTPUT', match: { text: '[0-9]{16}' }, effect: 'REDACT' }] } }`);
    const decision = deliver(world, { key: 'main' }, { text: 'card 1234567812345678.' });
    expect(decision.effect).toBe('REDACT');
    expect(redact('card 1234567812345678.', decision.redactions)).toBe('card [redacted].');
    expect(deliver(world, { key: 'main', taint: 'RESTRICTED' }, { text: 'card 1234567812345678.' })).toMatchObject({
      effect: 'BLOCK',
      redactions: [],
    });
  });
});

describe('a spawn', () => {
  it('is refused to children by default, with the reason', () => {
    const decision = decide(
      { action: 'spawn', caller: party(open, { key: 'subagent:1', depth: 1, spawnedBy: 'main' }), runtime: 'subagent', sandbox: 'inherit' },
      open,
    );
    expect(decision).toMatchObject({ effect: 'BLOCK', code: 'SPAWN_DEPTH', hidden: false });
    expect(decision.why).toMatch(/maxSpawnDepth is 1/);
  });
});

describe('a session that was spawned', () => {
  it.each([{ key: 'subagent:1' }, { key: 'acp:1' }, { key: 'x', spawnedBy: 'main' }])(
    'is at least one deep, also when nobody recorded it: %j',
    (facts) => {
      expect(decide({ action: 'spawn', caller: party(open, facts), runtime: 'subagent', sandbox: 'inherit' }, open)).toMatchObject({
        code: 'SPAWN_DEPTH',
      });
    },
  );
});

describe('a key prefix', () => {
  it.each(['agent:work:main', 'agent:work:', 'main'])(
    '%j finds the main session also when it is called otherwise or shared',
    (keyPrefix) => {
      for (const session of [{ mainKey: 'hub' }, { scope: 'global' }]) {
        const world = worldOf(
          JSON.stringify({
            agents: { list: [{ id: 'work' }] },
            session: { ...session, sendPolicy: { rules: [{ match: { keyPrefix }, action: 'deny' }] } },
          }),
        );
        expect(decide({ action: 'deliver', caller: party(world, { key: 'main' }), channel: 'irc' }, world)).toMatchObject({
          code: 'SEND_POLICY_DENIED',
        });
      }
    },
  );
});

describe('a tool call', () => {
  it('is stopped by a rule of the operator, whose message is the reason', () => {
    const world = worldOf(
      `{ policy: { rules: [{ id: 'no-shell', hook: 'PRE_TOOL_CALL', match: { tool: 'shell_*' }, effect: 'BLOCK', message: 'no shell here' }] } }`,
    );
    expect(decide({ action: 'tool', caller: main, tool: 'shell_run' }, world)).toMatchObject({
      effect: 'BLOCK',
      code: 'POLICY_BLOCKED',
      why: 'no shell here',
    });
    expect(decide({ action: 'tool', caller: main, tool: 'files_read' }, world)).toMatchObject({ effect: 'ALLOW' });
  });
});

describe('a policy rule for a channel', () => {
  const world = worldOf(`{ policy: { rules: [{ id: 'x', hook: 'PRE_TOOL_CALL', match: { channel: 'telegram' }, effect: 'BLOCK' }] } }`);
  it.each([
    { key: 'telegram:group:1' },
    { key: 'telegram:direct:1' },
    { key: 'telegram:acc:direct:1' },
    { key: 'main', channel: 'telegram' },
    { key: 'main', deliveryContext: { channel: 'telegram', to: '1' } },
  ])('holds for a session that speaks there: %j', (facts) => {
    expect(decide({ action: 'tool', caller: party(world, facts), tool: 'x' }, world).effect).toBe('BLOCK');
  });
});

describe('a reply', () => {
  const reply = (from: Facts, to: Facts) =>
    decide({ action: 'reply', caller: party(open, from), target: party(open, to) }, worldOf('{}')).effect;

  it('goes back to who asked, whether or not they can be seen, but never down', () => {
    expect(reply({ key: 'agent:work:main' }, { key: 'main' })).toBe('ALLOW');
    expect(reply({ key: 'agent:work:main', taint: 'INTERNAL' }, { key: 'main' })).toBe('BLOCK');
  });
});

describe('the trace', () => {
  it('lists every gate in order, also after the first refusal', () => {
    const decision = ask(worldOf('{}'), 'send', { key: 'main', taint: 'INTERNAL' }, { key: 'agent:work:main' });
    expect(decision.rules.map(({ rule, effect }) => `${rule} ${effect}`)).toEqual([
      'visibility BLOCK',
      'agent-to-agent BLOCK',
      'taint.read ALLOW',
      'send-policy NOTE',
      'taint.write BLOCK',
      'policy.PRE_CONTEXT_INJECTION NOTE',
    ]);
  });
});

const world = fc
  .record({
    visibility: fc.constantFrom('self', 'tree', 'agent', 'all'),
    enabled: fc.boolean(),
    allow: fc.subarray(['main', 'work', 'w*', '*']),
    mode: fc.constantFrom('off', 'non-main', 'all'),
    spawned: fc.constantFrom('spawned', 'all'),
  })
  .map((given) =>
    worldOf(
      JSON.stringify({
        tools: { sessions: { visibility: given.visibility }, agentToAgent: { enabled: given.enabled, allow: given.allow } },
        agents: { defaults: { sandbox: { mode: given.mode, sessionToolsVisibility: given.spawned } } },
      }),
    ),
  );
const key = fc.constantFrom(
  'agent:main:main',
  'agent:main:x',
  'agent:work:main',
  'agent:work:x',
  'agent:other:main',
  'agent:main:subagent:1',
  'agent:work:subagent:2',
);
const facts = fc.record(
  {
    key,
    spawnedBy: key,
    taint: fc.constantFrom(...levels),
    existTaint: fc.constantFrom(...levels),
    see: fc.constantFrom(...visibilities),
  },
  { requiredKeys: ['key'] },
);

describe('for every pair of sessions', () => {
  it('what a list shows is exactly what can be read, and the reverse', () => {
    fc.assert(
      fc.property(world, facts, facts, (given, one, two) => {
        const caller = party(given, one);
        const target = party(given, two);
        const listed = inListScope(listScope(given, caller, ['main', 'work', 'other']), target);
        for (const action of ['list', 'read', 'status'] as const)
          expect(decide({ action, caller, target }, given).effect === 'ALLOW').toBe(listed);
      }),
    );
  });

  it('a send that is allowed goes to a session that is listed, at the same level', () => {
    fc.assert(
      fc.property(world, facts, facts, (given, one, two) => {
        const caller = party(given, one);
        const target = party(given, two);
        const sent = decide({ action: 'send', caller, target }, given);
        const seen = decide({ action: 'list', caller, target }, given);
        if (sent.effect === 'ALLOW') {
          expect(seen.effect).toBe('ALLOW');
          expect(caller.facts.taint).toBe(target.facts.taint);
        }
        if (seen.effect === 'BLOCK') expect(sent).toMatchObject({ effect: 'BLOCK', code: 'SESSION_NOT_FOUND', hidden: true });
      }),
    );
  });
});
