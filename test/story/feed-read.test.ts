// A client that shows everything: the feed in pages, and how far each operator has read.
import { describe, expect, it, vi } from 'vitest';
import { testGateway } from '../harness/gateway.ts';

// Nothing here depends on how long it takes; a machine with other work to do may take its time.
vi.setConfig({ testTimeout: 30_000, hookTimeout: 30_000 });

const open = () => testGateway({ config: { session: { dmScope: 'per-peer' } }, listen: true });
type Page = { events: Record<string, unknown>[]; nextCursor: string; hasMore: boolean; reset?: true };

describe('the feed', () => {
  it('is read in pages of any size to its end, each event once and in order, and goes on from there', async () => {
    const gw = await open();
    const events = gw.hear(0).events;
    await gw.answer('one', { from: 'ana' });
    await gw.answer('two', { from: 'bo' });
    await gw.finished();
    await gw.settled();
    const all = await gw.call('feed.read', { limit: 200 });
    expect(all.hasMore).toBe(false);
    expect(all.events.map(({ kind }) => kind)).toEqual(events.map(({ kind }) => kind));
    expect(all.events.find(({ kind }) => kind === 'entry')).toMatchObject({
      sessionKey: 'agent:main:direct:ana',
      messageSeq: 1,
      message: { role: 'user', content: 'one' },
    });
    for (const limit of [1, 3]) {
      const seen: unknown[] = [];
      let page: Page = { events: [], nextCursor: '', hasMore: true };
      while (page.hasMore) {
        page = await gw.call('feed.read', { limit, ...(page.nextCursor === '' ? {} : { cursor: page.nextCursor }) });
        expect(page.events.length).toBeLessThanOrEqual(limit);
        seen.push(...page.events);
      }
      expect(seen).toEqual(all.events);
    }
    // The place of an event is a cursor too, also one that a subscription gave.
    const middle = all.events[3]!.cursor;
    expect((await gw.call('feed.read', { cursor: middle })).events).toEqual(all.events.slice(4));
    const { cursor } = await gw.call('sessions.subscribe', {});
    expect(await gw.call('feed.read', { cursor: all.nextCursor })).toMatchObject({ events: [], hasMore: false });
    await gw.answer('three', { from: 'ana' });
    await gw.finished();
    const later = (await gw.call('feed.read', { cursor })).events;
    expect(later).toEqual((await gw.call('feed.read', { cursor: all.nextCursor })).events);
    expect(later.filter(({ kind }) => kind === 'entry')).toHaveLength(2);
    const one = await gw.http('/feed?key=agent:main:direct:bo&limit=200');
    expect(one.json.events).toEqual(
      JSON.parse(JSON.stringify(all.events.filter(({ sessionKey }) => sessionKey === 'agent:main:direct:bo'))),
    );
  });

  it('has only what the caller may see, and says when the events are no longer kept', async () => {
    const gw = await open();
    const { nextCursor } = await gw.call('feed.read', {});
    await gw.answer('plain', { from: 'ana' });
    await gw.tell('agent:main:secret', 'psst', { taint: 3 });
    const low = await gw.token('low', { scopes: ['operator.read'], level: 'PUBLIC' });
    const seen = await gw.call('feed.read', { cursor: nextCursor }, low);
    expect(new Set(seen.events.map(({ sessionKey }) => sessionKey))).toEqual(new Set(['agent:main:direct:ana']));
    expect(seen.hasMore).toBe(false);
    await expect(gw.call('feed.read', { key: 'agent:main:secret' }, low)).rejects.toMatchObject({ code: 'SESSION_NOT_FOUND' });
    const lost = await gw.call('feed.read', { cursor: 'nonsense' });
    expect(lost).toMatchObject({ events: [], hasMore: true, reset: true });
    expect((await gw.call('feed.read', { cursor: lost.nextCursor })).events.length).toBeGreaterThan(0);
  });
});

describe('a read mark', () => {
  it('counts unread messages for each operator, in lists and alone, and never goes back', async () => {
    const gw = await open();
    await gw.answer('one', { from: 'ana' });
    await gw.answer('two', { from: 'ana' });
    await gw.answer('hello', { from: 'bo' });
    const ana = 'agent:main:direct:ana';
    const other = await gw.token('other', { scopes: ['operator.read'] });
    const unread = async (token?: string) => {
      const { sessions } = await gw.call('sessions.list', { search: 'direct', includeUnread: true }, token);
      return Object.fromEntries(sessions.map(({ key, unreadCount }) => [key.split(':').at(-1), unreadCount]));
    };
    expect(await unread()).toEqual({ ana: 4, bo: 2 });
    expect(await gw.call('sessions.markRead', { key: ana, seq: 3 })).toMatchObject({ ok: true, key: ana, readSeq: 3, unreadCount: 1 });
    expect(await gw.call('sessions.markRead', { key: ana, seq: 1 })).toMatchObject({ readSeq: 3, unreadCount: 1 });
    expect(await unread()).toEqual({ ana: 1, bo: 2 });
    expect(await unread(other)).toEqual({ ana: 4, bo: 2 });
    expect((await gw.post(`/sessions/${ana}/read`, {}, { token: other })).json).toMatchObject({ readSeq: 4, unreadCount: 0 });
    expect(await unread(other)).toEqual({ ana: 0, bo: 2 });
    expect((await gw.call('sessions.describe', { key: ana, includeUnread: true }, other)).session).toMatchObject({
      unread: false,
      unreadCount: 0,
    });
    expect((await gw.call('sessions.describe', { key: ana })).session).not.toHaveProperty('unread');
    await gw.answer('three', { from: 'ana' });
    expect(await unread(other)).toEqual({ ana: 2, bo: 2 });
    expect((await gw.call('sessions.markRead', { key: ana, seq: 1_000_000 }, other)).readSeq).toBe(6);
    // It survives a restart; a new life begins without it, and so does a token of the same name.
    await gw.restart();
    expect(await unread(other)).toEqual({ ana: 0, bo: 2 });
    await gw.reset(ana);
    await gw.answer('again', { from: 'ana' });
    expect(await unread(other)).toEqual({ ana: 2, bo: 2 });
    await gw.call('sessions.markRead', { key: ana }, other);
    await gw.call('tokens.revoke', { name: 'other' });
    expect(await unread(await gw.token('other', { scopes: ['operator.read'] }))).toEqual({ ana: 2, bo: 2 });
  });

  it('is refused for a session that the caller may not see, and goes with its session', async () => {
    const gw = await open();
    await gw.tell('agent:main:secret', 'psst', { taint: 3 });
    const low = await gw.token('low', { scopes: ['operator.read'], level: 'PUBLIC' });
    await expect(gw.call('sessions.markRead', { key: 'agent:main:secret' }, low)).rejects.toMatchObject({ code: 'SESSION_NOT_FOUND' });
    await gw.call('sessions.markRead', { key: 'agent:main:secret' });
    expect(await gw.rows.readMarks()).toBe(1);
    await gw.call('sessions.delete', { key: 'agent:main:secret' });
    await gw.clock.until(async () => (await gw.rows.readMarks()) === 0);
  });
});
