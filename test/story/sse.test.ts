// A transcript followed over HTTP: nothing missed, nothing twice, whatever happens to the reader, the session, the token or the gateway.
import { describe, expect, it, vi } from 'vitest';
import { adminToken, testGateway, type ConfigText, type ScriptText, type TestGateway } from '../harness/gateway.ts';
import { seqs } from '../harness/http.ts';
import { openSocket } from '../harness/socket.ts';

// Nothing here depends on how long it takes; a machine with other work to do may take its time.
vi.setConfig({ testTimeout: 30_000, hookTimeout: 30_000 });

const open = (config: ConfigText = {}, script?: ScriptText) => testGateway({ config, listen: true, ...(script ? { script } : {}) });
const main = '/sessions/main/history';
const numbers = (from: number, to: number) => Array.from({ length: to - from + 1 }, (_, i) => from + i);
const isMessage = (seq: number) => (heard: { event: string; data?: { messageSeq: number } }) =>
  heard.event === 'message' && heard.data!.messageSeq === seq;

describe('a followed transcript', () => {
  it('begins with what is there and goes on with what comes, each message once, also while many are written', async () => {
    const stage = await open();
    const told = numbers(1, 10).map((n) => stage.post('/sessions/main/messages', { message: `message ${n}` }));
    const early = await stage.sse(`${main}?follow=1`);
    await stage.post('/sessions/main/messages', { message: 'between' });
    const late = await stage.sse(`${main}?follow=1`);
    await Promise.all(told);
    await stage.finished();
    expect(seqs(await early.until(isMessage(22)))).toEqual(numbers(1, 22));
    const page = (await late.next())!;
    const more = seqs([page]).at(-1) === 22 ? [] : await late.until(isMessage(22));
    expect(seqs([page, ...more])).toEqual(numbers(1, 22));
  });

  it('is a stream of events by its type, tells when to come back, and says which session and message it speaks of', async () => {
    const stage = await open();
    await stage.write('main', 'first');
    const listener = await stage.sse(main, { headers: { accept: 'text/event-stream' } });
    expect(listener.response.headers.get('content-type')).toBe('text/event-stream; charset=utf-8');
    const page = (await stage.http(main)).json;
    expect(await listener.next()).toMatchObject({ event: 'history', data: page });
    await stage.write('main', 'second');
    const heard = (await listener.next())!;
    const [message] = (await stage.http(`${main}?limit=2`)).json.messages;
    expect(heard).toMatchObject({
      event: 'message',
      data: { sessionKey: 'agent:main:main', sessionId: page.sessionId, message, messageId: message.__openclaw.id, messageSeq: 3 },
    });
    expect(heard.id).toMatch(/^[\w-]{22}$/);
  });

  it('is a page for who asks not to follow, whatever it accepts', async () => {
    const stage = await open();
    const { status, json } = await stage.http(`${main}?follow=0`, { headers: { accept: 'text/event-stream' } });
    expect([status, json.messages]).toEqual([200, []]);
    expect((await stage.http(`${main}?follow=1`, { method: 'HEAD' })).headers.get('content-type')).toBe('application/json');
    expect((await stage.http(`${main}?follow=1&cursor=x.1`)).status).toBe(400);
    expect((await stage.http('/sessions/nobody/history?follow=1')).json.error.type).toBe('not_found');
  });

  it('holds results of tools only for who wants them, live too', async () => {
    const script: ScriptText = [
      { when: 'look', steps: [{ calls: [{ tool: 'agents_list', args: {} }] }, { say: 'seen' }] },
      { steps: [{ say: 'ok' }] },
    ];
    const stage = await open({}, script);
    const plain = await stage.sse(`${main}?follow=1`);
    const tools = await stage.sse(`${main}?follow=1&includeTools=1`);
    await stage.write('main', 'look');
    expect(seqs(await plain.until(isMessage(4)))).toEqual([1, 2, 4]);
    expect(seqs(await tools.until(isMessage(4)))).toEqual([1, 2, 3, 4]);
  });

  it('follows the key into a new life', async () => {
    const stage = await open();
    await stage.write('main', 'before');
    const listener = await stage.sse(`${main}?follow=1`);
    const old = (await listener.next())!.data.sessionId;
    const { session } = await stage.reset('agent:main:main');
    await stage.write('main', 'after');
    expect(session.id).not.toBe(old);
    const heard = (await listener.until(isMessage(2))).filter(({ event }) => event !== 'chat');
    expect(heard.map(({ event, data }) => [event, data.sessionId, data.messageSeq])).toEqual([
      ['session', session.id, undefined],
      ['message', session.id, 1],
      ['message', session.id, 2],
    ]);
  });

  it('is found by session id too', async () => {
    const stage = await open();
    const { sessionId } = (await stage.http(main)).json;
    const listener = await stage.sse(`/sessions/${sessionId}/history?follow=1`);
    expect((await listener.next())!.data.sessionKey).toBe('agent:main:main');
  });
});

describe('a reader who comes back', () => {
  it('hears exactly what was missed, across a restart of the gateway and a reset of the session', async () => {
    const stage = await open();
    await stage.write('main', 'one');
    const listener = await stage.sse(`${main}?follow=1`);
    await stage.write('main', 'two');
    const before = await listener.until(isMessage(3));
    await stage.close();
    await listener.rest().catch(() => {}); // cut in the middle or ended: both happen to readers

    await stage.start();
    await stage.write('main', 'three');
    await stage.reset('agent:main:main');
    await stage.write('main', 'four');
    const again = await stage.sse(`${main}?follow=1`, { headers: { 'last-event-id': before.at(-1)!.id! } });
    const missed = await again.until(({ event, data }) => event === 'message' && data.message.content[0]?.text === 're: four');
    expect(missed.map(({ event, data }) => [event, data.messageSeq])).toEqual([
      ['message', 4],
      ['message', 5],
      ['message', 6],
      ['session', undefined],
      ['message', 1],
      ['message', 2],
    ]);
    await stage.write('main', 'five');
    expect(seqs(await again.until(isMessage(4)))).toEqual([3, 4]);
  });

  it.each<[string, (stage: TestGateway) => Promise<string>]>([
    ['a cursor that is none', async () => 'what?'],
    ['a cursor of another gateway', async () => (await (await (await open()).sse(`${main}?follow=1`)).next())!.id!],
    [
      'a cursor older than what is kept',
      async (stage) => {
        const { id } = (await (await stage.sse(`${main}?follow=1`)).next())!;
        const end = (await stage.rows.feed()).at(-1)!.pos;
        await stage.write('main', 'one');
        await stage.clock.advance(3 * 86_400_000);
        await stage.write('main', 'two');
        await stage.none(async () => (await stage.rows.feed()).filter(({ pos }) => pos <= end + 1).length);
        return id!;
      },
    ],
  ])('with %s is told so and starts over', async (_, cursor) => {
    const stage = await open({ store: { keepDays: 1 } });
    await stage.write('main', 'zero');
    const id = await cursor(stage);
    const listener = await stage.sse(`${main}?follow=1`, { headers: { 'last-event-id': id } });
    const heard = await listener.until(({ event }) => event === 'history');
    expect(heard.map(({ event }) => event)).toEqual(['reset', 'history']);
    const end = seqs(heard).at(-1)!;
    await stage.write('main', 'more');
    expect(seqs(await listener.until(isMessage(end + 2)))).toEqual([end + 1, end + 2]);
  });

  it('to a quiet session needs not go through all that happened elsewhere', async () => {
    const stage = await open({ session: { dmScope: 'per-peer' } });
    const listener = await stage.sse(`${main}?follow=1`);
    const first = (await listener.next())!;
    await stage.say('elsewhere');
    await stage.finished();
    await stage.clock.advance(15_000);
    const alive = (await listener.next())!;
    expect(alive.comment).toBe('keepalive');
    // What happened before its last place is forgotten, and it does not even notice.
    await stage.rows.forgetFeed((await stage.rows.feed()).at(-1)!.pos);
    for (const [id, heard] of [
      [alive.id!, 'message'],
      [first.id!, 'reset'],
    ] as const) {
      const back = await stage.sse(`${main}?follow=1`, { headers: { 'last-event-id': id } });
      if (heard === 'message') await stage.write('main', 'at last');
      expect((await back.next())!.event).toBe(heard);
    }
  });
});

describe('a stream ends', () => {
  const streams = async (stage: TestGateway) => /interlane_connections\{door="sse"\} (\d+)/.exec((await stage.http('/metrics')).text)![1];

  it('with the gateway', async () => {
    const stage = await open();
    const listener = await stage.sse(`${main}?follow=1`);
    await listener.next();
    await stage.close();
    expect(await listener.rest()).toEqual([]);
  });

  it('with its token, revoked or given a new secret; those of others go on', async () => {
    const stage = await open();
    const [one, two] = await Promise.all([stage.token('one'), stage.token('two')]);
    const [a, b, mine] = await Promise.all([one, two, undefined].map((token) => stage.sse(`${main}?follow=1`, token ? { token } : {})));
    await Promise.all([a!.next(), b!.next(), mine!.next()]);
    expect(await streams(stage)).toBe('3');
    await stage.call('tokens.revoke', { name: 'one' });
    await stage.call('tokens.rotate', { name: 'two' });
    expect([await a!.rest(), await b!.rest()]).toEqual([[], []]);
    await stage.write('main', 'still there?');
    expect(seqs(await mine!.until(isMessage(2)))).toEqual([1, 2]);
    expect((await stage.http(main, { token: one })).status).toBe(401);
  });

  it('when its reader is gone', async () => {
    const stage = await open();
    const listener = await stage.sse(`${main}?follow=1`);
    await listener.next();
    listener.close();
    while ((await streams(stage)) !== '0');
    expect(stage.warnings).toEqual([]);
  });

  it('when its reader does not read; what it did not take was never kept for it', async () => {
    const stage = await open();
    const socket = await openSocket(stage.port);
    socket.pause();
    socket.write(`GET ${main}?follow=1 HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer ${adminToken}\r\n\r\n`);
    while ((await streams(stage)) !== '1');
    const state = { stuck: false };
    void stage.clock.fallsAsleep(30_000).then(() => (state.stuck = true));
    // As much as the buffers of two sockets hold, however much that is on this machine, and then more.
    let said = 0;
    for (let more = 5; more > 0; said += 1_800_000) {
      if (state.stuck) more--;
      await stage.write('main', 'x'.repeat(900_000));
    }
    let heard = 0;
    socket.on('data', (data) => (heard += data.length));
    const gone = new Promise<void>((resolve) => socket.once('close', () => resolve()));
    await stage.clock.advance(30_000);
    while ((await streams(stage)) !== '0');
    socket.resume();
    await gone;
    expect(heard).toBeLessThan(said);
  });

  it('for what rises above the level of its token: nothing of that is heard', async () => {
    const stage = await open({ classification: { channels: { loopback: 'CONFIDENTIAL' } } });
    const low = await stage.token('low', { level: 'PUBLIC' });
    const listener = await stage.sse(`${main}?follow=1`, { token: low });
    const all = await stage.sse(`${main}?follow=1`);
    await stage.write('main', 'open words');
    await stage.say('secret words');
    await all.until(isMessage(4));
    expect((await stage.http(main, { token: low })).status).toBe(404);
    await stage.close();
    const heard = await listener.rest();
    expect(seqs(heard)).toEqual([1, 2]);
    expect(JSON.stringify(heard)).not.toContain('secret');
  });
});
