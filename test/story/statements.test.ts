// What things cost: statements on the store, counted while real requests go through the door.
import { expect, it } from 'vitest';
import { testGateway, type ConfigText, type TestGateway } from '../harness/gateway.ts';
import { countStatements } from '../harness/inside.ts';

const kinds = ['main', 'group', 'cron', 'hook', 'node', 'other'];

/** 60 sessions of every level and kind, some spawned by others, some archived, each with a message and a run. */
async function openCrowd(config: ConfigText = {}) {
  const gw = await testGateway({ config: { agents: { list: ['main', 'a1', 'a2', 'a3'].map((id) => ({ id })) }, ...config }, listen: true });
  await gw.rows.addCrowd(60, kinds);
  await gw.call('health'); // connected
  return { gw, statements: countStatements() };
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
  const { gw, statements } = await openCrowd();
  statements.since();
  const { sessions } = await gw.call('sessions.list', wish);
  const made = statements.since();
  console.log(`sessions.list ${JSON.stringify(wish)}: ${made.length} statements for ${sessions.length} rows`);
  expect(sessions).toHaveLength(rows);
  expect(made.length).toBeLessThanOrEqual(12);
});

it.each<[visibility: 'tree' | 'agent' | 'all', agentToAgent: object]>([
  ['tree', {}],
  ['agent', {}],
  ['all', { agentToAgent: { enabled: true } }],
  ['all', { agentToAgent: { enabled: true, allow: ['main', 'a*'] } }],
])('sessions_list of a session that sees "%s" (%j) takes at most 12 statements', async (visibility, crossing) => {
  const { gw, statements } = await openCrowd({ tools: { sessions: { visibility }, ...crossing } });
  statements.since();
  const args = { limit: 50, messageLimit: 0, kinds };
  const { ok, result } = await gw.call('tools.invoke', { tool: 'sessions_list', args });
  const made = statements.since();
  console.log(`sessions_list, ${visibility}: ${made.length} statements for ${(result as { count: number }).count} rows`);
  expect(ok).toBe(true);
  expect(made.length).toBeLessThanOrEqual(12);
});

it('a page of history takes a few statements, however many runs its messages belong to', async () => {
  const { gw, statements } = await openCrowd();
  for (let n = 0; n < 30; n++) await gw.answer(`hello ${n}`);
  await gw.settled();
  statements.since();
  const page = await gw.call('chat.history', { sessionKey: 'main' });
  const made = statements.since();
  if (!('totalMessages' in page)) throw new Error('not a page');
  console.log(`chat.history: ${made.length} statements for ${page.messages.length} messages`);
  expect(new Set(page.messages.map(({ entry }) => entry.runId)).size).toBe(30);
  expect(made.length).toBeLessThanOrEqual(8);
});

/** The statements of a message into a session that exists, from its acceptance until nothing is left to do; and what has left. */
async function statementsOf(message: (gw: TestGateway) => Promise<string>) {
  const gw = await testGateway();
  await gw.answer('first');
  await gw.settled();
  const before = gw.sent.length;
  const statements = countStatements();
  const runId = await message(gw);
  await gw.settled();
  const made = statements.since();
  expect(await gw.wait(runId, 0)).toMatchObject({ state: 'ok' });
  return { made, sent: gw.sent.length - before };
}

it('a plain run takes at most 20 statements from its message to its end', async () => {
  const { made, sent } = await statementsOf(async (gw) => (await gw.accept('second')).runId);
  expect(sent).toBe(0);
  console.log([`a plain run: ${made.length} statements`, ...made.map((sql) => sql.replaceAll(/\s+/g, ' ').slice(0, 60))].join('\n  '));
  expect(made.length).toBeLessThanOrEqual(20);
});

it('a run whose answer leaves on a channel takes at most 32', async () => {
  const { made, sent } = await statementsOf((gw) => gw.say('second'));
  expect(sent).toBe(1);
  expect(made.length).toBeLessThanOrEqual(32);
});

it('a list shows each session as sessions.describe does', async () => {
  const { gw } = await openCrowd();
  const { sessions } = await gw.call('sessions.list', { includeLastMessage: true, archived: 'all' });
  expect(sessions).toHaveLength(64);
  for (const listed of sessions) {
    const { session } = await gw.call('sessions.describe', { key: listed.key, includeLastMessage: true });
    expect(session).toEqual(listed);
  }
});
