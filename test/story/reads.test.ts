// Reads through the door: how large an answer may be, what a page costs, and that one client's pages do not delay another's.
import { expect, it } from 'vitest';
import { z } from 'zod';
import type { Results } from '../../src/protocol/operations/all.ts';
import type { SessionsPage } from '../../src/protocol/result.ts';
import { defineTool } from '../../src/tools/define.ts';
import { testGateway, type TestGateway } from '../harness/gateway.ts';
import { countStatements } from '../harness/inside.ts';

const mebi = 1024 * 1024;
const bytesOf = (answer: unknown) => Buffer.byteLength(JSON.stringify(answer));
const kinds = ['other'];

/** 600 sessions of one agent; a search goes through all of them. */
async function crowded(): Promise<TestGateway> {
  const gw = await testGateway({ config: { agents: { list: ['main', 'a0', 'a1', 'a2', 'a3'].map((id) => ({ id })) } }, listen: true });
  await gw.rows.addCrowd(600, kinds);
  return gw;
}

it("one client's 60 searches do not make another's list wait behind them", async () => {
  const gw = await crowded();
  const [greedy, modest] = [await gw.client(), await gw.client()];
  let answered = 0;
  const searches = Array.from({ length: 60 }, async () => {
    const page = await greedy.request('sessions.list', { search: 'nowhere', limit: 1000 });
    answered++;
    return (page as SessionsPage).count;
  });
  const page = await modest.request('sessions.list', { limit: 600 });
  expect((page as SessionsPage).count).toBe(550);
  expect(answered).toBeLessThanOrEqual(20);
  expect(await Promise.all(searches)).toEqual(searches.map(() => 0));
});

it('a long list is read in statements of at most 200 rows, and not on the thread that serves requests', async () => {
  const gw = await crowded();
  await gw.call('health');
  const statements = countStatements();
  const { sessions } = await gw.call('sessions.list', { limit: 1000, includeLastMessage: true });
  expect(sessions.length).toBe(550);
  expect(statements.since().filter((sql) => /FROM sessions|FROM runs|FROM entries/.test(sql))).toEqual([]);
  // Everything that was acknowledged before is in it.
  await gw.call('sessions.create', { key: 'agent:main:new-one' });
  const again = await gw.call('sessions.list', { limit: 1000 });
  expect(again.sessions.map(({ key }) => key)).toContain('agent:main:new-one');
});

it('offset has a limit, and the error names the cursor; the answer before has one', async () => {
  const gw = await crowded();
  await expect(gw.call('sessions.list', { offset: 2_001 })).rejects.toMatchObject({
    code: 'INVALID_REQUEST',
    message: expect.stringContaining('nextCursor') as string,
  });
  const first = await gw.call('sessions.list', { limit: 200, search: 'crowd' });
  const second = await gw.call('sessions.list', { limit: 200, search: 'crowd', offset: 200 });
  expect(second.sessions).toHaveLength(200);
  expect(await gw.call('sessions.list', { limit: 200, search: 'crowd', cursor: first.nextCursor! })).toMatchObject({
    sessions: second.sessions.map(({ key }) => ({ key })),
  });
});

it('a page of the beginnings of large messages counts what it returns', async () => {
  const gw = await testGateway({ listen: true });
  const key = 'agent:main:big';
  await gw.call('sessions.create', { key });
  const { deltaCursor } = (await gw.call('chat.history', { sessionKey: key })) as { deltaCursor: string };
  await gw.rows.addEntries(key, 40, (n) => `${n}: ${'x'.repeat(200_000)}`);
  const wish = { sessionKey: key, maxChars: 10_000 };
  const page = await gw.call('chat.history', wish);
  expect(page).toMatchObject({ hasMore: false, messages: { length: 40 } });
  expect(bytesOf(page)).toBeLessThan(mebi);
  expect(await gw.call('chat.history', { ...wish, cursor: deltaCursor })).toMatchObject({ hasMore: false, messages: { length: 40 } });
});

it('a page of history has at most 1 MiB, says that there is more, and the pages together are the transcript', async () => {
  const gw = await testGateway({ listen: true, config: { tools: { sessions: { visibility: 'all' } } }, caller: 'agent:main:main' });
  await gw.call('sessions.create', { key: 'agent:main:big' });
  await gw.rows.addEntries('agent:main:big', 12, (n) => `${n}: ${(n % 2 === 0 ? '\u0001' : 'x').repeat(100_000)}`);
  const seqs: number[] = [];
  let offset: number | undefined = 0;
  while (offset !== undefined) {
    const page: Results['chat.history'] = await gw.call('chat.history', { sessionKey: 'agent:main:big', offset });
    if (!('totalMessages' in page)) throw new Error('not a page');
    expect(bytesOf(page.messages)).toBeLessThanOrEqual(mebi + 64 * 1024);
    expect(page.hasMore).toBe(page.nextOffset !== undefined);
    seqs.unshift(...page.messages.map(({ entry }) => entry.seq));
    offset = page.nextOffset;
  }
  expect(seqs).toEqual(Array.from({ length: 12 }, (_, n) => n + 1));

  // Over HTTP the list is in the answer twice.
  const http = await gw.http('/sessions/agent:main:big/history');
  expect(http.text.length).toBeLessThanOrEqual(mebi + 64 * 1024);
  expect(JSON.parse(http.text)).toMatchObject({ hasMore: true, nextCursor: expect.any(String) as string });

  // For a model: 80 KiB.
  const tool = await gw.tool<{ messages: unknown[]; truncated?: boolean; nextCursor?: string }>('sessions_history', {
    sessionKey: 'agent:main:big',
  });
  expect(bytesOf(tool)).toBeLessThanOrEqual(84 * 1024);
  expect(tool).toMatchObject({ truncated: true, nextCursor: expect.any(String) as string });
});

it('a preview answers each session once, reads no more of a text than it shows, and says what did not fit', async () => {
  const gw = await testGateway({ listen: true });
  await gw.call('sessions.create', { key: 'agent:main:big' });
  await gw.rows.addEntries('agent:main:big', 60, () => 'y'.repeat(1_000_000));
  const keys = Array.from({ length: 100 }, (_, n) => (n % 2 === 0 ? 'agent:main:big' : 'big'));
  const once = await gw.call('sessions.preview', { keys, limit: 50, maxChars: 10_000 });
  expect(once.previews.map(({ key, items }) => [key, items.length])).toEqual([['agent:main:big', 50]]);
  expect(bytesOf(once)).toBeLessThanOrEqual(mebi);
  for (const n of [1, 2, 3]) {
    await gw.call('sessions.create', { key: `agent:main:big-${n}` });
    await gw.rows.addEntries(`agent:main:big-${n}`, 50, () => 'y'.repeat(20_000));
  }
  const many = await gw.call('sessions.preview', {
    keys: ['big', 'nowhere', 'big-1', 'big-2', 'big-3'],
    limit: 50,
    maxChars: 10_000,
  });
  expect(many.truncated).toBe(true);
  expect(many.previews.map(({ key, status }) => [key, status])).toEqual([
    ['agent:main:big', 'ok'],
    ['nowhere', 'missing'],
    ['agent:main:big-1', 'ok'],
  ]);
  expect(bytesOf(many)).toBeLessThanOrEqual(mebi + 1024);
});

it('lists for clients and for models have a size too, and go on by cursor', async () => {
  const gw = await testGateway({
    listen: true,
    config: { tools: { sessions: { visibility: 'all' } } },
    caller: 'agent:main:main',
  });
  await gw.tell('agent:main:main', 'hello');
  const name = (n: number) => `agent:main:${n}-${'k'.repeat(3_000)}`;
  await gw.rows.addNamed(Array.from({ length: 400 }, (_, n) => name(n)));
  const page = await gw.call('sessions.list', { limit: 1000 });
  expect(bytesOf(page)).toBeLessThanOrEqual(mebi + 1024);
  expect(page.sessions.length).toBeLessThan(400);
  const rest = await gw.call('sessions.list', { limit: 1000, cursor: page.nextCursor! });
  expect(new Set([...page.sessions, ...rest.sessions].map(({ key }) => key)).size).toBe(401);

  const tool = await gw.tool<{ count: number; truncated?: boolean; nextCursor?: string }>('sessions_list', { limit: 200 });
  expect(bytesOf(tool)).toBeLessThanOrEqual(82 * 1024);
  expect(tool).toMatchObject({ truncated: true, nextCursor: expect.any(String) as string });
});

it('pages of the feed have a size too, and together they are the feed', async () => {
  const gw = await testGateway({ listen: true });
  for (let n = 0; n < 4; n++) await gw.call('chat.inject', { sessionKey: 'main', message: `${n}${'"'.repeat(300_000)}` });
  const messages: string[] = [];
  for (let cursor: string | undefined, more = true; more;) {
    const page: Results['feed.read'] = await gw.call('feed.read', cursor === undefined ? {} : { cursor });
    expect(bytesOf(page)).toBeLessThanOrEqual(mebi + 64 * 1024);
    messages.push(...page.events.flatMap((item) => (item.kind === 'entry' ? [JSON.stringify(item.message.content).slice(0, 40)] : [])));
    cursor = page.nextCursor;
    more = page.hasMore;
  }
  expect(messages.map((text) => /"text":"(\d)/.exec(text)?.[1])).toEqual(['0', '1', '2', '3']);
});

it('a tool that returns too much keeps the beginning of it, and an answer above 8 MiB is refused', async () => {
  const flood = defineTool({
    name: 'flood',
    description: 'Return much.',
    effect: 'pure',
    params: z.strictObject({}),
    run: async () => ({ value: { all: 'x'.repeat(3 * mebi) } }),
  });
  const agents = Array.from({ length: 90 }, (_, n) => ({ id: `a${n}`, name: 'x'.repeat(100_000), default: n === 0 }));
  const gw = await testGateway({ listen: true, tools: [flood], config: { agents: { list: agents } } });
  const { result } = await gw.call('tools.invoke', { tool: 'flood', args: {} });
  expect(result).toMatchObject({ truncated: true, length: 3 * mebi + '{"all":""}'.length, beginning: expect.any(String) as string });
  expect(bytesOf(result)).toBeLessThan(100 * 1024);

  await expect(gw.call('agents.list')).rejects.toMatchObject({
    code: 'INVALID_REQUEST',
    message: expect.stringContaining('8 MiB') as string,
  });
  // The connection goes on.
  expect(await gw.call('health')).toMatchObject({ ok: true });
});
