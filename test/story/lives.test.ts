// Earlier lives of a session: a reset starts the next one, and what was said before stays listed and readable for those who may read it.
import { describe, expect, it } from 'vitest';
import { testGateway, type TestGateway } from '../harness/gateway.ts';
import { countStatements } from '../harness/inside.ts';
import { refusal } from '../harness/refusal.ts';
import { started } from '../harness/terminal.ts';

const key = 'agent:main:main';

/** Three lives of the main session; the second was CONFIDENTIAL. */
async function threeLives(): Promise<{ gw: TestGateway; ids: string[] }> {
  const config = {
    agents: { list: [{ id: 'main', default: true }, { id: 'bo' }] },
    tools: { sessions: { visibility: 'all' as const }, agentToAgent: { enabled: true } },
  };
  const gw = await testGateway({ config, caller: key, listen: true });
  for (const [index, text] of ['first', 'second', 'third'].entries()) {
    if (index > 0) await gw.reset(key);
    await gw.tell(key, text, { taint: text === 'second' ? 2 : 0 });
  }
  const ids = (await gw.rows.sessions({ key }, 'id', 'life')).map(({ id }) => id);
  return { gw, ids };
}

const texts = (messages: { content: unknown }[]) =>
  messages.map(({ content }) => (typeof content === 'string' ? content : (content as { text: string }[])[0]!.text));
const first = ['first', 're: first'];

describe('earlier lives', () => {
  it('are listed, and read by number and by session id, over websocket and HTTP', async () => {
    const { gw, ids } = await threeLives();
    const { lives } = await gw.call('sessions.lives', { key: 'main' });
    expect(lives).toMatchObject([
      { life: 3, sessionId: ids[2], messageCount: 2 },
      { life: 2, sessionId: ids[1], ended: true, taint: 'CONFIDENTIAL' },
      { life: 1, sessionId: ids[0], ended: true },
    ]);
    expect(lives[0]).not.toHaveProperty('ended');
    // By pages too.
    const newest = await gw.call('sessions.lives', { key: 'main', limit: 2 });
    expect(newest).toMatchObject({ lives: [{ life: 3 }, { life: 2 }], nextBefore: 2 });
    expect(await gw.call('sessions.lives', { key: 'main', limit: 2, before: 2 })).toEqual({ key, lives: [lives[2]] });
    expect(JSON.parse((await gw.http('/sessions/main/lives')).text)).toEqual({ key, lives });
    // By the id of any of them.
    for (const id of ids) expect(await gw.call('sessions.lives', { key: id })).toEqual({ key, lives });

    const named = [{ sessionKey: 'main', life: 1 }, { sessionKey: ids[0]! }, { sessionKey: ids[0]!.toUpperCase() }];
    for (const reference of named) {
      const page = await gw.call('chat.history', reference);
      expect(page).toMatchObject({ sessionKey: key, sessionId: ids[0], sessionInfo: { life: 1, ended: true } });
      expect(texts('messages' in page ? page.messages : [])).toEqual(first);
    }
    expect((await gw.call('sessions.describe', { key: 'main', life: 1 })).session).toMatchObject({ sessionId: ids[0], ended: true });
    for (const path of ['main/history?life=1', `${ids[0]!}/history`, `${ids[0]!.toUpperCase()}/history?includeTools=1`]) {
      const page = JSON.parse((await gw.http(`/sessions/${path}`)).text) as { sessionId: string; messages: { content: unknown }[] };
      expect([page.sessionId, texts(page.messages)]).toEqual([ids[0], first]);
    }
  });

  it('are read-only: nothing follows one, nothing is sent into one, and a number that is none is not found', async () => {
    const { gw, ids } = await threeLives();
    expect(await gw.http('/sessions/main/history?life=1&follow=1')).toMatchObject({ status: 400 });
    expect(await gw.http('/sessions/main/history?life=9')).toMatchObject({ status: 404 });
    await expect(gw.call('sessions.send', { key: ids[0]!, message: 'x' })).rejects.toMatchObject({ code: 'SESSION_NOT_FOUND' });
    await expect(gw.call('sessions.patch', { key: ids[0]!, label: 'x' })).rejects.toMatchObject({ code: 'SESSION_NOT_FOUND' });
    await expect(gw.call('chat.history', { sessionKey: 'main', life: 9 })).rejects.toMatchObject({ code: 'SESSION_NOT_FOUND' });
    expect(await gw.call('sessions.describe', { key: 'main', life: 9 })).toEqual({ session: null });
  });

  it('above a level are missing for it, whoever asks', async () => {
    const { gw, ids } = await threeLives();
    const low = await gw.token('low', { level: 'PUBLIC' });
    expect((await gw.call('sessions.lives', { key: 'main' }, low)).lives.map(({ life }) => life)).toEqual([3, 1]);
    expect((await gw.call('sessions.lives', { key: 'main', limit: 1, before: 3 }, low)).lives.map(({ life }) => life)).toEqual([1]);
    for (const reference of [{ sessionKey: 'main', life: 2 }, { sessionKey: ids[1]! }])
      await expect(gw.call('chat.history', reference, low)).rejects.toMatchObject({ code: 'SESSION_NOT_FOUND' });
    expect(await gw.http('/sessions/main/history?life=2', { token: low })).toMatchObject({ status: 404 });
    // The session itself, which is PUBLIC again.
    const missing = await gw.tool('sessions_history', { sessionKey: 'main', life: 7 });
    const hidden = await gw.tool('sessions_history', { sessionKey: 'main', life: 2 });
    expect(hidden).toEqual(JSON.parse(JSON.stringify(missing).replace('life 7', 'life 2')));
    expect(await gw.tool('sessions_history', { sessionKey: ids[1]! })).toEqual(refusal('SESSION_NOT_FOUND'));
  });

  it('that are hidden are looked through in pages, away from the thread that serves requests', async () => {
    const gw = await testGateway({ caller: key, listen: true });
    await gw.tell(key, 'now');
    await gw.rows.addLives(key, 6_000);
    const low = await gw.token('low', { level: 'PUBLIC' });
    const statements = countStatements();
    const page = async (before?: number) => {
      const wish = { key: 'main', limit: 10, ...(before === undefined ? {} : { before }) };
      const { lives, nextBefore } = await gw.call('sessions.lives', wish, low);
      return { lives: lives.map(({ life }) => life), nextBefore };
    };
    const first = await page();
    expect(first).toEqual({ lives: [6_001], nextBefore: expect.any(Number) as number });
    expect(6_001 - first.nextBefore!).toBeLessThan(5_300);
    expect(await page(first.nextBefore)).toEqual({ lives: [1], nextBefore: undefined });
    expect(await gw.tool('session_status')).toMatchObject({ earlierLives: [] });
    expect(statements.since().filter((sql) => sql.includes('life < ?')).length).toBeLessThan(20);
  });

  it('are listed and read by the own tools of the session, and not by those of another', async () => {
    const { gw, ids } = await threeLives();
    const status = await gw.tool<{ life: number; earlierLives: object[] }>('session_status');
    expect(status).toMatchObject({ life: 3, earlierLives: [{ life: 1, sessionId: ids[0], messages: 2 }] });
    expect(status.earlierLives).toHaveLength(1);
    for (const args of [{ sessionKey: 'main', life: 1 }, { session_id: ids[0]! }]) {
      const page = await gw.tool<{ sessionKey: string; life: number; messages: { content: unknown }[] }>('sessions_history', args);
      expect(page).toMatchObject({ sessionKey: key, life: 1 });
      expect(texts(page.messages)).toEqual(first);
      expect(await gw.tool('sessions_history', { ...args, ...('sessionKey' in args ? { sessionKey: key } : {}) }, 'agent:bo:main')).toEqual(
        refusal('SESSION_NOT_FOUND'),
      );
    }
  });

  it('are listed and printed by the command line', async () => {
    const { gw, ids } = await threeLives();
    const run = (...argv: string[]) => started([...argv, '--url', gw.url], { env: { INTERLANE_TOKEN: gw.admin } }).finished;
    const listed = await run('sessions', '--lives', 'main');
    const lines = listed.stdout.trimEnd().split('\n');
    expect(lines.map((line) => line.split('\t').slice(0, 2))).toEqual([3, 2, 1].map((life) => [String(life), ids[life - 1]]));
    for (const argv of [['main', '--life', '1'], [ids[0]!]]) {
      const { stdout } = await run('history', ...argv);
      expect(stdout.split('\n').map((line) => line.split('\t').at(-1))).toEqual([...first, '']);
    }
    expect(await run('history', 'main', '--life', '9')).toMatchObject({ status: 66 });
  });

  it('go with the session when it is deleted', async () => {
    const gw = await testGateway({ listen: true, config: { session: { dmScope: 'per-peer' } } });
    const peer = 'agent:main:direct:ana';
    await gw.answer('the old secret', { from: 'ana' });
    await gw.reset(peer);
    await gw.answer('the new secret', { from: 'ana' });
    const [old] = await gw.rows.sessions({ key: peer, life: 1 }, 'id');
    expect(await gw.call('sessions.delete', { key: peer })).toMatchObject({ deleted: true });
    await expect(gw.call('chat.history', { sessionKey: old!.id })).rejects.toMatchObject({ code: 'SESSION_NOT_FOUND' });
    await gw.clock.advance(3_600_000);
    await gw.none(async () => (await gw.rows.sessions({ key: peer })).length);
    expect((await gw.rows.entries()).filter(({ text }) => text.includes('secret'))).toEqual([]);
  });
});

it('session ids are found whatever their case, and an exact spelling comes first', async () => {
  const gw = await testGateway({ listen: true, caller: key });
  const { id } = await gw.rows.session(key);
  const loud = id.toUpperCase();
  await gw.write(loud, 'hello');
  expect(await gw.call('sessions.resolve', { sessionId: loud })).toMatchObject({ ok: true, key });
  expect(await gw.call('sessions.resolve', { shortId: loud.slice(0, 8) })).toMatchObject({ ok: true, key });
  expect(await gw.call('sessions.patch', { key: 'main', expectedSessionId: loud, displayName: 'Me' })).toMatchObject({ changed: true });
  expect(await gw.tool('session_status', { session_id: loud })).toMatchObject({ key, sessionId: id });
  // Imported ids may differ in case alone.
  for (const [name, imported] of [
    ['one', 'Abc-1234'],
    ['two', 'abc-1234'],
  ]) {
    await gw.tell(`agent:main:${name!}`, 'hello');
    await gw.rows.setSession(`agent:main:${name!}`, { id: imported! });
  }
  expect(await gw.call('sessions.resolve', { sessionId: 'Abc-1234' })).toMatchObject({ key: 'agent:main:one' });
  expect(await gw.call('sessions.resolve', { sessionId: 'abc-1234' })).toMatchObject({ key: 'agent:main:two' });
  await expect(gw.call('sessions.resolve', { sessionId: 'ABC-1234' })).rejects.toMatchObject({ code: 'SESSION_AMBIGUOUS' });
});
