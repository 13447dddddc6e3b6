// Pinned sessions: set by a patch, first in the lists of operators, in every page of them, and no wider than what a token may see.
import { expect, it } from 'vitest';
import { testGateway } from '../harness/gateway.ts';
import { started } from '../harness/terminal.ts';

it('pinned sessions come first in lists and pages of lists, and can be listed alone', async () => {
  const gw = await testGateway({ listen: true, caller: 'agent:main:main', config: { tools: { sessions: { visibility: 'agent' } } } });
  const names = ['a', 'b', 'c', 'd', 'e', 'f'];
  for (const name of names) {
    gw.clock.jump(1_000);
    await gw.tell(`agent:main:${name}`, 'hello', { taint: name === 'd' ? 3 : 0 });
  }
  expect(await gw.call('sessions.patch', { key: 'b', pinned: true })).toMatchObject({ changed: true, entry: { pinned: true } });
  expect(await gw.call('sessions.patch', { key: 'b', pinned: true })).toMatchObject({ changed: false });
  for (const key of ['d', 'a']) await gw.call('sessions.patch', { key, pinned: true });
  await gw.tell('agent:main:f', 'again');

  const short = (sessions: { key: string }[]) => sessions.map(({ key }) => key.slice('agent:main:'.length)).join(' ');
  const all = 'a d b f e c main';
  expect(short((await gw.call('sessions.list', {})).sessions)).toBe(all);
  // Page by page, of any size, by cursor and by offset.
  for (const limit of [1, 2, 3, 4, 10]) {
    const seen: string[] = [];
    const counted: string[] = [];
    let cursor: string | undefined;
    do {
      const page = await gw.call('sessions.list', { limit, ...(cursor === undefined ? {} : { cursor }) });
      seen.push(short(page.sessions));
      cursor = page.nextCursor;
    } while (cursor !== undefined);
    let offset: number | null = 0;
    do {
      const page: Awaited<ReturnType<typeof gw.call<'sessions.list'>>> = await gw.call('sessions.list', { limit, offset });
      counted.push(short(page.sessions));
      offset = page.nextOffset;
    } while (offset !== null);
    expect(seen.filter(Boolean).join(' ')).toBe(all);
    expect(counted.filter(Boolean).join(' ')).toBe(all);
  }
  const byMessage = (more: object) => gw.call('sessions.list', { sortBy: 'lastInteractionAt', ...more });
  expect(short((await byMessage({})).sessions)).toBe('d b a f e c main');
  expect(short((await byMessage({ limit: 2, offset: 2 })).sessions)).toBe('a f');
  expect(short((await gw.call('sessions.list', { pinned: true })).sessions)).toBe('a d b');
  expect(short((await gw.call('sessions.list', { pinned: false })).sessions)).toBe('f e c main');
  expect(short((await gw.call('sessions.list', { pinned: true, search: 'b' })).sessions)).toBe('b');
  expect(short((JSON.parse((await gw.http('/sessions?pinned=1')).text) as { sessions: { key: string }[] }).sessions)).toBe('a d b');
  const cli = await started(['sessions', '--pinned', '--keys', '--url', gw.url], { env: { INTERLANE_TOKEN: gw.admin } }).finished;
  expect(cli.stdout).toBe('agent:main:a\nagent:main:d\nagent:main:b\n');

  // A pin shows nothing to a token of a lower level, and models see the order of activity.
  const low = await gw.token('low', { level: 'PUBLIC' });
  expect(short((await gw.call('sessions.list', {}, low)).sessions)).toBe('a b f e c main');
  expect(short((await gw.tool<{ sessions: { key: string }[] }>('sessions_list')).sessions)).toBe('main f a b e c');

  // It stays over a reset and a restart, and null takes it off.
  await gw.reset('agent:main:a');
  await gw.restart();
  expect(short((await gw.call('sessions.list', { pinned: true })).sessions)).toBe('a d b');
  await gw.call('sessions.patch', { key: 'd', pinned: null });
  expect(short((await gw.call('sessions.list', { pinned: true })).sessions)).toBe('a b');
});
