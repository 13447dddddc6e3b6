// Cursors as clients use them: after a restore and on another gateway they lead to a reset, and they tell nothing of what is hidden.
import { describe, expect, it } from 'vitest';
import { testGateway, type TestGateway } from '../harness/gateway.ts';
import { Wire } from '../harness/socket.ts';

const main = '/sessions/main/history';
const open = () => testGateway({ listen: true });
const numbered = (word: string, count: number) => Array.from({ length: count }, (_, index) => `${word} ${index + 1}`);

/** Injects messages, which are not answered. */
async function inject(gw: TestGateway, messages: string[]): Promise<void> {
  for (const message of messages) await gw.call('chat.inject', { sessionKey: 'main', message });
}

async function texts(gw: TestGateway): Promise<string[]> {
  const page = await gw.call('chat.history', { sessionKey: 'main' });
  return 'messages' in page ? page.messages.map(({ content }) => textOf(content)) : [];
}

function textOf(content: unknown): string {
  return typeof content === 'string' ? content : (content as { text: string }[])[0]!.text;
}

const said = (wire: Wire) => wire.events('session.message').map(({ message }) => textOf((message as { content: unknown }).content));

describe('after a restore', () => {
  const lost = numbered('lost', 5);
  const fresh = numbered('new', 10);

  it.each([
    ['all sessions', 'sessions.subscribe', {}],
    ['one session', 'sessions.messages.subscribe', { key: 'main' }],
  ] as const)('a follower of %s is told to start over, and then everything is there', async (_, method, which) => {
    const gw = await open();
    await inject(gw, ['before']);
    const wire = await Wire.connect(gw.port, gw.admin);
    const { cursor: start } = await wire.call(method, which);
    await gw.restoredAfter(async () => {
      await inject(gw, lost);
      await wire.event('session.message', ({ messageSeq }) => messageSeq === 6);
    });
    await inject(gw, fresh);
    expect(await texts(gw)).toEqual(['before', ...fresh]);
    // A place before the backup, one that the new timeline has passed, and the last one.
    const cursors = wire.events('session.message').map(({ cursor }) => cursor as string);
    for (const cursor of [start, cursors[0]!, cursors.at(-1)!]) {
      const again = await Wire.connect(gw.port, gw.admin);
      await again.call(method, { ...which, cursor });
      await again.event('sessions.changed', ({ reason }) => reason === 'resync');
      await again.event('session.message', ({ messageSeq }) => messageSeq === 11);
      expect(said(again).filter((text) => text.startsWith('new'))).toEqual(fresh);
      expect(again.frames.findIndex(({ payload }) => payload?.['reason'] === 'resync')).toBeLessThan(
        again.frames.findIndex(({ event }) => event === 'session.message'),
      );
      // From what it has heard now it goes on without another reset.
      const last = again.events('session.message').at(-1)!['cursor'] as string;
      const onward = await Wire.connect(gw.port, gw.admin);
      await onward.call(method, { ...which, cursor: last });
      await inject(gw, ['more']);
      await onward.event('session.message');
      expect(onward.events('sessions.changed').filter(({ reason }) => reason === 'resync')).toEqual([]);
    }
  });

  it('a reader of a stream of events is told to start over, and then everything is there', async () => {
    const gw = await open();
    await inject(gw, ['before']);
    const ids: string[] = [];
    await gw.restoredAfter(async () => {
      const listener = await gw.sse(`${main}?follow=1`);
      await inject(gw, lost);
      const heard = await listener.until(({ data }) => data?.messageSeq === 6);
      ids.push(heard[0]!.id!, heard[1]!.id!, heard.at(-1)!.id!);
    });
    await inject(gw, fresh);
    for (const id of ids) {
      const again = await gw.sse(`${main}?follow=1`, { headers: { 'last-event-id': id } });
      const heard = await again.until(({ event }) => event === 'history');
      expect(heard.map(({ event }) => event)).toEqual(['reset', 'history']);
      expect(heard[1]!.data.messages.map(({ content }: { content: unknown }) => textOf(content))).toEqual(['before', ...fresh]);
    }
  });

  it('pages of the time before are refused, and the news of a transcript start over', async () => {
    const gw = await open();
    await gw.write('main', 'one');
    await gw.call('sessions.create', { key: 'other' });
    const { nextCursor: list } = await gw.call('sessions.list', { limit: 1 });
    await gw.write('main', 'three');
    const { nextCursor: runs } = await gw.call('runs.list', { limit: 1 });
    const { nextCursor: page } = (await gw.http(`${main}?limit=1`)).json;
    const history = await gw.call('chat.history', { sessionKey: 'main' });
    const { deltaCursor } = history as { deltaCursor: string };
    await gw.restoredAfter(async () => {});
    const wire = await Wire.connect(gw.port, gw.admin);
    expect(await wire.refusal('sessions.list', { cursor: list })).toMatchObject({ details: { code: 'INVALID_REQUEST' } });
    expect(await wire.refusal('runs.list', { cursor: runs })).toMatchObject({ details: { code: 'INVALID_REQUEST' } });
    expect((await gw.http(`${main}?cursor=${page}`)).status).toBe(400);
    expect(await gw.call('chat.history', { sessionKey: 'main', cursor: deltaCursor })).toEqual({ kind: 'reset' });
  });
});

it('a cursor lasts over restarts, and means nothing on another gateway', async () => {
  const [one, other] = [await open(), await open()];
  const { cursor } = await one.call('sessions.subscribe');
  await one.restart();
  for (const gw of [one, other]) await inject(gw, ['hello']);
  const here = await Wire.connect(one.port, one.admin);
  await here.call('sessions.subscribe', { cursor });
  await here.event('session.message');
  expect(here.events('sessions.changed').filter(({ reason }) => reason === 'resync')).toEqual([]);
  const there = await Wire.connect(other.port, other.admin);
  await there.call('sessions.subscribe', { cursor });
  await there.event('sessions.changed', ({ reason }) => reason === 'resync');
});

it('a cursor of one list or transcript is refused by another', async () => {
  const gw = await open();
  await gw.write('main', 'one');
  await gw.call('sessions.create', { key: 'other', message: 'two' });
  await gw.finished();
  const wire = await Wire.connect(gw.port, gw.admin);
  const { nextCursor: list } = await wire.call('sessions.list', { limit: 1 });
  const { nextCursor: runs } = await wire.call('runs.list', { limit: 1 });
  const { nextCursor: page } = (await gw.http(`${main}?limit=1`)).json;
  const { deltaCursor } = (await wire.call('chat.history', { sessionKey: 'main' })) as { deltaCursor: string };
  const { cursor: feed } = await wire.call('sessions.subscribe');
  const all = { list, runs, page, deltaCursor, feed };
  for (const [name, cursor] of Object.entries(all)) {
    if (name !== 'list') expect((await wire.refusal('sessions.list', { cursor })).details).toMatchObject({ code: 'INVALID_REQUEST' });
    if (name !== 'runs') expect((await wire.refusal('runs.list', { cursor })).details).toMatchObject({ code: 'INVALID_REQUEST' });
    if (name !== 'page') expect((await gw.http(`${main}?cursor=${cursor}`)).status).toBe(400);
    if (name !== 'deltaCursor') expect(await wire.call('chat.history', { sessionKey: 'main', cursor: cursor! })).toEqual({ kind: 'reset' });
  }
  expect((await gw.http(`${main}?cursor=${page}`)).status).toBe(200);
  expect((await gw.http(`/sessions/agent:main:other/history?cursor=${page}`)).status).toBe(409);
});

it('a cursor does not tell a reader whether something happened that it may not see', async () => {
  const gw = await testGateway({ listen: true, config: { classification: { channels: { vault: 'RESTRICTED' } } } });
  const low = await Wire.connect(gw.port, await gw.token('low', { scopes: ['operator.read'], level: 'PUBLIC' }));
  const places: string[] = [];
  const look = async () => {
    places.push((await low.call('sessions.subscribe')).cursor, (await low.call('sessions.messages.subscribe', { key: 'main' })).cursor);
  };
  await look();
  await look();
  await gw.receive({ origin: { channel: 'vault', peer: { kind: 'group', id: 'spy' } }, text: 'secret' });
  await gw.finished();
  await look();
  // All differ, whether or not something happened, and all lead to the same: nothing.
  expect(new Set(places).size).toBe(places.length);
  const { count, ...page } = await low.call('sessions.list', { limit: 1 });
  expect([count, 'nextCursor' in page]).toEqual([1, false]);
});
