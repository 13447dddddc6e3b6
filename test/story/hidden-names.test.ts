// What a token below a session's level learns of it: nothing but that a name is reserved.
import { describe, expect, it } from 'vitest';
import { testGateway, type TestGateway } from '../harness/gateway.ts';

const hidden = 'agent:main:hidden';

/** A RESTRICTED session with a label and a token, a RESTRICTED guest, and an admin who sees none of them. */
async function stage() {
  const gw = await testGateway({ listen: true });
  await gw.call('sessions.create', { key: hidden, label: 'Plan B' });
  await gw.token('hidden-token', { sessionKey: hidden });
  const { key: guest } = await gw.call('guests.join', { name: 'fable' });
  await gw.tell(hidden, 'for few', { taint: 3 });
  await gw.rows.setSession(guest, { taint: 3, level: 3 });
  const low = await gw.token('low', { scopes: ['operator.admin'], level: 'PUBLIC' });
  return { gw, low };
}

const refusalOf = async (call: Promise<unknown>) => {
  const { code, message } = (await call.then(
    () => ({ code: 'none', message: '' }),
    (thrown: unknown) => thrown,
  )) as { code: string; message: string };
  return { code, message };
};

describe('a name that something hidden has', () => {
  const create = (gw: TestGateway, token: string, params: object) => refusalOf(gw.call('sessions.create', params, token));

  it('is answered like a reserved one: labels', async () => {
    const { gw, low } = await stage();
    const label = (name: string, token = low) => create(gw, token, { key: 'agent:main:mine', label: name });
    const [taken, reserved] = [await label('Plan B'), await label('global')];
    expect([taken.code, reserved.code]).toEqual(['NAME_RESERVED', 'NAME_RESERVED']);
    expect(taken.message.replace('Plan B', 'global')).toBe(reserved.message);
    expect((await label('Plan B', gw.admin)).code).toBe('LABEL_IN_USE');
  });

  it('is answered like a reserved one: tokens and guests', async () => {
    const { gw, low } = await stage();
    const token = (name: string, by = low) => refusalOf(gw.call('tokens.create', { name }, by));
    const [taken, reserved] = [await token('hidden-token'), await token('cli')];
    expect([taken.code, reserved.code]).toEqual(['NAME_RESERVED', 'NAME_RESERVED']);
    expect(taken.message.replace('hidden-token', 'cli')).toBe(reserved.message);
    expect((await token('hidden-token', gw.admin)).code).toBe('TOKEN_EXISTS');
    for (const rotate of [false, true]) {
      const joining = await refusalOf(gw.call('guests.join', { name: 'fable', rotate }, low));
      expect(joining.code).toBe('NAME_RESERVED');
      // The second time there is no token any more, only the session.
      await gw.call('tokens.revoke', { name: 'guest:main:fable' });
    }
    expect(await refusalOf(gw.call('tokens.rotate', { name: 'hidden-token' }, low))).toEqual({
      code: 'TOKEN_NOT_FOUND',
      message: expect.stringContaining('does not exist') as string,
    });
  });

  it('is answered like a reserved one: keys of sessions', async () => {
    const { gw, low } = await stage();
    const [taken, reserved] = [await create(gw, low, { key: hidden }), await create(gw, low, { key: 'unknown' })];
    expect([taken.code, reserved.code]).toEqual(['SESSION_KEY_RESERVED', 'SESSION_KEY_RESERVED']);
    const word = hidden.replace('agent:main:', '');
    expect(taken.message.replaceAll(word, 'unknown')).toBe(reserved.message);
    // However the two are written.
    for (const write of [(name: string) => name, (name: string) => `agent:main:${name}`, (name: string) => name.toUpperCase()])
      expect((await create(gw, low, { key: write(word) })).message.replaceAll(word, 'unknown')).toBe(
        (await create(gw, low, { key: write('unknown') })).message,
      );
    const said = await refusalOf(gw.call('chat.send', { sessionKey: hidden, message: 'hello', idempotencyKey: 'x' }, low));
    expect(said).toEqual(taken);
  });
});

describe('a token below RESTRICTED', () => {
  it('gets a status without the machine and without counts, and no metrics', async () => {
    const { gw, low } = await stage();
    const status = await gw.call('status', {}, low);
    expect(Object.keys(status).filter((name) => ['pid', 'runs', 'deliveries'].includes(name))).toEqual([]);
    expect(JSON.stringify(status)).not.toContain(gw.stateDir);
    expect(await gw.http('/metrics', { token: low })).toMatchObject({ status: 403, json: { error: { code: 'MISSING_SCOPE' } } });
    expect(await gw.call('status')).toMatchObject({ pid: process.pid, runs: {}, store: { path: gw.stateDir } });
    expect((await gw.http('/metrics')).status).toBe(200);
  });

  it('gets the same pages of runs, deliveries and events, however many hidden ones are between them', async () => {
    const { gw, low } = await stage();
    await gw.answer('before');
    await gw.finished();
    const { runId } = await gw.receive({ origin: { channel: 'vault', peer: { kind: 'group', id: 'x' } }, text: 'psst' });
    await gw.wait(runId);
    await gw.finished();
    await gw.settled();
    const pages = async () => ({
      runs: await gw.call('runs.list', {}, low),
      failed: await gw.call('runs.list', { states: ['error'] }, low),
      deliveries: await gw.call('deliveries.list', {}, low),
      sent: await gw.call('deliveries.list', { states: ['sent', 'dead'] }, low),
      events: (await gw.call('feed.read', { limit: 100 }, low)).events.map((event) => ({ ...event, cursor: '' })),
      hasMore: (await gw.call('feed.read', { limit: 100 }, low)).hasMore,
    });
    await gw.rows.setSession('agent:main:vault:group:x', { taint: 3, level: 3 });
    const before = await pages();
    expect(before).toMatchObject({ failed: { runs: [] }, hasMore: false });
    expect(before.deliveries.deliveries.length).toBeGreaterThan(0);
    const { pk } = await gw.rows.session('agent:main:vault:group:x');
    await gw.rows.multiply('runs', { column: 'id', is: runId }, 12_000);
    const [delivery] = await gw.rows.deliveries({ session_pk: pk });
    await gw.rows.multiply('deliveries', { column: 'id', is: delivery!.id }, 6_000);
    const last = (await gw.rows.feed()).at(-1)!;
    expect(last.session_pk).toBe(pk);
    await gw.rows.multiply('feed', { column: 'pos', is: last.pos }, 12_000);
    expect(await pages()).toEqual(before);
  });

  it('gets the same pages of runs, whether or not there are hidden ones', async () => {
    const { gw, low } = await stage();
    const page = (limit: number) => gw.call('runs.list', { limit }, low);
    expect(await page(1)).toEqual({ runs: [] });
    await gw.tell('agent:main:open', 'hello');
    await gw.tell('agent:main:open', 'again');
    for (let n = 0; n < 3; n++) await gw.tell(hidden, 'more');
    const first = await page(1);
    expect([first.runs.length, first.nextCursor === undefined]).toEqual([1, false]);
    const second = await gw.call('runs.list', { limit: 1, cursor: first.nextCursor! }, low);
    expect([second.runs.length, second.nextCursor]).toEqual([1, undefined]);
    expect(await page(2)).toEqual({ runs: [...first.runs, ...second.runs] });
  });
});
