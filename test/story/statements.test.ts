// What a list costs: statements on the store, counted while real requests go through the door.
import { expect, it, vi } from 'vitest';
import type { Body, Store } from '../../src/store/contract.ts';
import { RealClock } from '../clock.ts';
import { openDoor, Wire } from './door.ts';

// Nothing here depends on how long it takes.
vi.setConfig({ testTimeout: 60_000 });

/** Counts the statements of every read from here on; what the engine does meanwhile is writes. */
function countStatements(store: Store): { since(): string[] } {
  const seen: string[] = [];
  function* counted<R>(body: Body<R>): Body<R> {
    let step = body.next();
    while (!step.done) {
      for (const ask of [step.value].flat()) if ('sql' in ask) seen.push(ask.sql);
      let answer: unknown;
      try {
        answer = yield step.value;
      } catch (thrown) {
        step = body.throw(thrown);
        continue;
      }
      step = body.next(answer);
    }
    return step.value;
  }
  const read = store.read.bind(store);
  store.read = (query, args) => read({ name: query.name, body: (t, given) => counted(query.body(t, given)) }, args);
  return { since: () => seen.splice(0, Infinity) };
}

const kinds = ['main', 'group', 'cron', 'hook', 'node', 'other'];

/** 60 sessions of every level and kind, some spawned by others, some archived, each with a message and a run. */
async function openCrowd(config: object = {}) {
  const door = await openDoor(new RealClock(), {
    agents: { list: ['main', 'a1', 'a2', 'a3'].map((id) => ({ id })) },
    ...config,
  });
  const { store } = door.stage.gateway;
  await store.write(
    {
      name: 'a crowd',
      *body(t) {
        for (let n = 0; n < 60; n++) {
          const key = `agent:a${n % 4}:crowd-${n}`;
          yield* t.run(
            `INSERT INTO sessions (id, key, life, current, agent, kind, label, parent_key, taint, level, state, created_at, last_at, last_pos, next_seq, settings)
             VALUES (?,?,1,1,?,?,?,?,?,?,?,1,1,?,2,?)`,
            `crowd-${n}`,
            key,
            `a${n % 4}`,
            kinds[n % 6]!,
            n % 9 === 0 ? `label ${n}` : null,
            n % 5 === 0 ? 'agent:main:main' : n % 7 === 0 ? 'agent:a3:crowd-3' : null,
            n % 4,
            n % 4,
            n % 11 === 0 ? 'archived' : 'live',
            1_000_000 + n,
            JSON.stringify(n % 3 === 0 ? { displayName: `crowd ${n}`, thinkingLevel: 'low' } : {}),
          );
          yield* t.run(
            `INSERT INTO entries (session_pk, seq, id, role, taint, text, at) SELECT pk, 1, ?, 'user', ?, ?, 1 FROM sessions WHERE key = ?`,
            `entry-${n}`,
            n % 4,
            `message ${n}`,
            key,
          );
          yield* t.run(
            `INSERT INTO runs (id, session_pk, lane, class, deliver, queued_at, state, started_at, ended_at)
             SELECT ?, pk, key, 'main', 0, 1, ?, 1, ? FROM sessions WHERE key = ?`,
            `run-${n}`,
            n % 13 === 0 ? 'waiting' : n % 2 === 0 ? 'ok' : 'error',
            n % 13 === 0 ? null : 1,
            key,
          );
        }
      },
    },
    {},
  );
  const wire = await Wire.connect(door.port, door.admin);
  return { wire, statements: countStatements(store) };
}

it.each<[wish: object, rows: number]>([
  [{ limit: 50 }, 50],
  [{ limit: 50, includeLastMessage: true }, 50],
  [{ limit: 50, includeLastMessage: true, archived: 'all' }, 50],
  [{ limit: 50, kinds, includeLastMessage: true }, 50],
  [{ limit: 30, offset: 20, search: 'crowd' }, 30],
  [{ limit: 50, spawnedBy: 'agent:main:main' }, 10],
  [{ limit: 50, agentId: 'a2', archived: 'all' }, 16],
])('sessions.list %j takes at most 12 statements for %i rows', async (wish, rows) => {
  const { wire, statements } = await openCrowd();
  statements.since();
  const { sessions } = await wire.call('sessions.list', wish);
  const made = statements.since();
  console.log(`sessions.list ${JSON.stringify(wish)}: ${made.length} statements for ${sessions.length} rows`);
  expect(sessions).toHaveLength(rows);
  expect(made.length).toBeLessThanOrEqual(12);
});

it.each<[visibility: string, agentToAgent: object]>([
  ['tree', {}],
  ['agent', {}],
  ['all', { agentToAgent: { enabled: true } }],
  ['all', { agentToAgent: { enabled: true, allow: ['main', 'a*'] } }],
])('sessions_list of a session that sees "%s" (%j) takes at most 12 statements', async (visibility, crossing) => {
  const { wire, statements } = await openCrowd({ tools: { sessions: { visibility }, ...crossing } });
  statements.since();
  const args = { limit: 50, messageLimit: 0, kinds };
  const { ok, result } = await wire.call('tools.invoke', { tool: 'sessions_list', args });
  const made = statements.since();
  console.log(`sessions_list, ${visibility}: ${made.length} statements for ${(result as { count: number }).count} rows`);
  expect(ok).toBe(true);
  expect(made.length).toBeLessThanOrEqual(12);
});

it('a page of history takes a few statements, however many runs its messages belong to', async () => {
  const { wire, statements } = await openCrowd();
  for (let n = 0; n < 30; n++) {
    const { runId } = await wire.call('chat.send', { sessionKey: 'main', message: `hello ${n}`, idempotencyKey: `key-${n}` });
    await wire.call('agent.wait', { runId, timeoutMs: 30_000 });
  }
  statements.since();
  const { messages } = (await wire.call('chat.history', { sessionKey: 'main' })) as { messages: { __openclaw: { runId?: string } }[] };
  const made = statements.since();
  console.log(`chat.history: ${made.length} statements for ${messages.length} messages`);
  expect(new Set(messages.map((message) => message.__openclaw.runId)).size).toBe(30);
  expect(made.length).toBeLessThanOrEqual(8);
});

it('a list shows each session as sessions.describe does', async () => {
  const { wire } = await openCrowd();
  const { sessions } = await wire.call('sessions.list', { includeLastMessage: true, archived: 'all' });
  expect(sessions).toHaveLength(64);
  for (const listed of sessions) {
    const { session } = await wire.call('sessions.describe', { key: listed.key, includeLastMessage: true });
    expect(session).toEqual(listed);
  }
});
