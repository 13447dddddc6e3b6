// A list holds what single reads allow, also after resets, for agents nobody configured, and when the clock was set back.
import { expect, it } from 'vitest';
import { Config } from '../../src/config/schema.ts';
import { listSessions, scopeOfCaller } from '../../src/engine/lists.ts';
import { partyOfRow } from '../../src/engine/policy.ts';
import { compileWorld } from '../../src/rules/decide.ts';
import type { SessionRow } from '../../src/store/rows.ts';
import { startByHand, type ByHand } from './by-hand.ts';

const call = (when: string, tool: string, args: object) => ({
  when,
  steps: [{ calls: [{ tool, args: { ...args } }] }, { say: '{{result}}' }],
});

interface Listed {
  sessions: { key: string }[];
  nextCursor?: string;
}

async function ask<T = Listed>(hand: ByHand, peer: string, text: string): Promise<T> {
  const { reply } = await hand.gateway.engine.wait(await hand.say(peer, text), 3_600_000);
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
  const hand = await startByHand({ script });
  for (const peer of ['parent', 'child']) await hand.gateway.engine.wait(await hand.say(peer, 'hello'), 3_600_000);
  await hand.sql(`UPDATE sessions SET depth = 1, parent_key = 'agent:main:direct:parent' WHERE key = ?`, child);
  for (const life of ['first', 'second', 'third']) {
    if (life !== 'first') await hand.gateway.engine.reset('agent:main:direct:parent');
    expect([life, keysOf(await ask(hand, 'parent', 'list')).toSorted()]).toEqual([life, [child, 'agent:main:direct:parent']]);
    expect(keysOf(await ask(hand, 'parent', 'list others'))).toContain(child);
    expect(await ask<object>(hand, 'parent', 'read')).toMatchObject({ sessionKey: child });
  }
  // A child that was reset is still one.
  await hand.gateway.engine.reset(child);
  expect(keysOf(await ask(hand, 'parent', 'list'))).toContain(child);
  expect(await ask<object>(hand, 'parent', 'read')).toMatchObject({ sessionKey: child, messages: [] });
});

it('what was active lately is found behind what was active when the clock was set back', async () => {
  const hand = await startByHand({
    config: { session: { dmScope: 'per-peer' }, tools: { sessions: { visibility: 'agent' } } },
    script: [call('^\\nlist$', 'sessions_list', { activeMinutes: 10 }), { steps: [{ say: 'ok' }] }],
  });
  const hello = async (peer: string) => void (await hand.gateway.engine.wait(await hand.say(peer, 'hello'), 3_600_000));
  await hello('lately');
  hand.clock.time -= 86_400_000;
  for (const peer of ['a', 'b', 'c']) await hello(peer);
  hand.clock.time += 86_400_000;
  expect(keysOf(await ask(hand, 'me', 'list')).toSorted()).toEqual(['agent:main:direct:lately', 'agent:main:direct:me', 'agent:main:main']);
});

it('a page of a filtered list looks through so many rows and no more, and its cursor leads on', async () => {
  const hand = await startByHand();
  await hand.gateway.engine.wait(await hand.say('deep', 'hello'), 3_600_000);
  await hand.sql(
    `WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < 12000)
     INSERT INTO sessions (id, key, life, current, agent, kind, created_at, last_pos, last_at)
     SELECT 'old' || n, 'agent:main:old-' || n, 1, 1, 'main', 'other', 0, 1000000 + n, 0 FROM n`,
  );
  const [me] = await hand.rows<SessionRow>(`SELECT * FROM sessions WHERE key = 'agent:main:main'`);
  const world = compileWorld(Config.parse({ tools: { sessions: { visibility: 'agent' } } }));
  const scope = await hand.gateway.store.read(scopeOfCaller, { world, caller: partyOfRow(world, me!) });
  const seen: string[] = [];
  let pages = 0;
  let before: number | undefined;
  do {
    const page = await hand.gateway.store.read(listSessions, { scope, callerPk: me!.pk, activeSince: 1, before, limit: 3 });
    seen.push(...page.rows.map(({ key }) => key));
    before = page.next;
    pages++;
  } while (before !== undefined);
  expect(seen).toEqual(['agent:main:direct:deep', 'agent:main:main']);
  expect(pages).toBe(3);
});

it.each([
  [['main', 'gh*'], true],
  [['*', 'x'], true],
  [['m*', '*st'], true],
  [['main', 'x*'], false],
])('an agent that is not configured is listed if and only if it can be read (allow %j)', async (allow, reached) => {
  const key = 'agent:ghost:main';
  const hand = await startByHand({
    config: { session: { dmScope: 'per-peer' }, tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true, allow } } },
    script: [
      call('^\\nlist$', 'sessions_list', {}),
      call('^\\nread$', 'sessions_history', { sessionKey: key }),
      { steps: [{ say: 'ok' }] },
    ],
  });
  const accepted = await hand.gateway.engine.accept({
    sessionKey: key,
    open: { id: 'ghost', agent: 'ghost', kind: 'main' },
    runId: 'ghost',
    text: 'hello',
    provenance: { kind: 'user' },
    principal: 'operator',
    taint: 0,
    mode: 'followup',
    class: 'main',
    deliver: false,
    now: hand.clock.now(),
  });
  await hand.gateway.engine.wait(accepted.runId, 3_600_000);
  expect(keysOf(await ask(hand, 'me', 'list')).includes(key)).toBe(reached);
  expect(await ask<{ code?: string }>(hand, 'me', 'read')).toMatchObject(reached ? { sessionKey: key } : { code: 'SESSION_NOT_FOUND' });
});
