// A list holds what single reads allow, also after resets, for agents nobody configured, and when the clock was set back.
import { expect, it } from 'vitest';
import { testGateway, type ConfigText, type TestGateway, type TestOptions } from '../harness/gateway.ts';
import { listPages } from '../harness/inside.ts';

const open = (options: TestOptions = {}) => testGateway({ config: { session: { dmScope: 'per-peer' } }, ...options });

const call = (when: string, tool: string, args: object) => ({
  when,
  steps: [{ calls: [{ tool, args: { ...args } }] }, { say: '{{result}}' }],
});

interface Listed {
  sessions: { key: string }[];
  nextCursor?: string;
}

async function ask<T = Listed>(hand: TestGateway, peer: string, text: string): Promise<T> {
  const { reply } = await hand.wait(await hand.say(text, { from: peer }));
  return JSON.parse(reply!) as T;
}

const keysOf = ({ sessions }: Listed) => sessions.map(({ key }) => key);

it('a tree still holds its children after the session it hangs from was reset', async () => {
  const child = 'agent:main:direct:child';
  const script = [
    call('^\\nlist$', 'sessions_list', {}),
    call('^\\nlist others$', 'sessions_list', { kinds: ['other'] }),
    call('^\\nread$', 'sessions_history', { sessionKey: child }),
    { steps: [{ say: 'pineapple' }] },
  ];
  const hand = await open({ script });
  for (const peer of ['parent', 'child']) await hand.wait(await hand.say('hello', { from: peer }));
  await hand.rows.setSession(child, { depth: 1, parent_key: 'agent:main:direct:parent' });
  for (const life of ['first', 'second', 'third']) {
    if (life !== 'first') await hand.reset('agent:main:direct:parent');
    expect([life, keysOf(await ask(hand, 'parent', 'list')).toSorted()]).toEqual([life, [child, 'agent:main:direct:parent']]);
    expect(keysOf(await ask(hand, 'parent', 'list others'))).toContain(child);
    expect(await ask<object>(hand, 'parent', 'read')).toMatchObject({ sessionKey: child });
  }
  // A child that was reset is still one.
  await hand.reset(child);
  expect(keysOf(await ask(hand, 'parent', 'list'))).toContain(child);
  expect(await ask<object>(hand, 'parent', 'read')).toMatchObject({ sessionKey: child, messages: [] });
});

it('what was active lately is found behind what was active when the clock was set back', async () => {
  const hand = await open({
    config: { session: { dmScope: 'per-peer' }, tools: { sessions: { visibility: 'agent' } } },
    script: [call('^\\nlist$', 'sessions_list', { activeMinutes: 10 }), { steps: [{ say: 'ok' }] }],
  });
  const hello = async (peer: string) => void (await hand.wait(await hand.say('hello', { from: peer })));
  await hello('lately');
  hand.clock.jump(-86_400_000);
  for (const peer of ['a', 'b', 'c']) await hello(peer);
  hand.clock.jump(86_400_000);
  expect(keysOf(await ask(hand, 'me', 'list')).toSorted()).toEqual(['agent:main:direct:lately', 'agent:main:direct:me', 'agent:main:main']);
});

it('a page of a filtered list looks through so many rows and no more, and its cursor leads on', async () => {
  const hand = await open();
  await hand.wait(await hand.say('hello', { from: 'deep' }));
  await hand.rows.addOldSessions(12_000);
  const pages = await listPages(hand, 'agent:main:main', { tools: { sessions: { visibility: 'agent' } } }, 3);
  expect(pages.flat()).toEqual(['agent:main:direct:deep', 'agent:main:main']);
  expect(pages).toHaveLength(3);
});

it.each([
  [['main', 'gh*'], true],
  [['*', 'x'], true],
  [['m*', '*st'], true],
  [['main', 'x*'], false],
])('an agent that is not configured is listed if and only if it can be read (allow %j)', async (allow, reached) => {
  const key = 'agent:ghost:main';
  const rules: ConfigText = {
    session: { dmScope: 'per-peer' },
    tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true, allow } },
  };
  const hand = await open({
    config: { ...rules, agents: { list: [{ id: 'main' }, { id: 'ghost' }] } },
    script: [
      call('^\\nlist$', 'sessions_list', {}),
      call('^\\nread$', 'sessions_history', { sessionKey: key }),
      { steps: [{ say: 'ok' }] },
    ],
  });
  await hand.accept('ghost', {
    sessionKey: key,
    open: { id: 'ghost', agent: 'ghost', kind: 'main', clearance: 'RESTRICTED' },
    text: 'hello',
  });
  await hand.wait('ghost');
  await hand.reload(rules);
  expect(keysOf(await ask(hand, 'me', 'list')).includes(key)).toBe(reached);
  expect(await ask<{ code?: string }>(hand, 'me', 'read')).toMatchObject(reached ? { sessionKey: key } : { code: 'SESSION_NOT_FOUND' });
});
