// The events of the websocket and of the stream of a session, compared with corpus/events.txt.
import { expect, it } from 'vitest';
import { Wire } from '../harness/socket.ts';
import { adminToken, opened, settledFrame, streamed, streamOf } from './stage.ts';

const isLive = (block: string) => block.startsWith('event: chat');

it('the corpus of events, over the websocket and as a stream', async () => {
  const all = await opened();
  const { corpus, port, url, call, say, gw } = all;
  const follower = await Wire.connect(port, adminToken, { caps: ['tool-events'] });
  const plain = await Wire.connect(port, adminToken);
  const scoped = await Wire.connect(port, adminToken, { caps: ['session-scoped-events'] });
  await follower.call('sessions.subscribe');
  await plain.call('sessions.messages.subscribe', { key: 'agent:main:project' });
  await scoped.call('sessions.messages.subscribe', { key: 'agent:main:project' });
  const { cursor } = await call('sessions.subscribe', {});
  await call('sessions.unsubscribe', {});
  const stream = await streamOf(`${url}/sessions/main/history?follow=1&includeTools=1`);
  const heard = [await stream.next()];
  corpus.give('e1', 'e2', 'e3', 'e4', 'e5', 'e6', 'e7');

  const end = (wire: Wire, runId: string) =>
    wire.event('sessions.changed', (payload) => payload['phase'] === 'end' && payload['runId'] === runId);
  const final = (wire: Wire, runId: string) => wire.event('chat', (payload) => payload['runId'] === runId && payload['state'] !== 'delta');
  const ran = async (sessionKey: string, message: string, runId: string) => {
    await say(sessionKey, message, runId);
    await end(follower, runId);
    await final(follower, runId);
    await final(plain, runId);
    await gw.finished();
  };
  const changed = (reason: string, nth = 1) => follower.event('sessions.changed', (payload) => payload['reason'] === reason, nth);
  await call('sessions.create', { key: 'agent:main:project', label: 'Project' });
  await changed('create');
  await ran('agent:main:project', 'hello', 'e1');
  await ran('agent:main:project', 'stream', 'e2');
  await ran('agent:main:project', 'status', 'e3');
  await ran('agent:main:project', 'fail', 'e4');
  await call('chat.send', { sessionKey: 'agent:main:project', message: 'gate', idempotencyKey: 'e5' });
  await gw.stops.entered('gate');
  await call('chat.abort', { sessionKey: 'agent:main:project' });
  await end(follower, 'e5');
  await final(follower, 'e5');
  await call('sessions.patch', { key: 'agent:main:project', displayName: 'Shown' });
  await changed('patch');
  await call('chat.inject', { sessionKey: 'agent:main:project', message: 'By hand' });
  await follower.event('session.message', (payload) => JSON.stringify(payload).includes('By hand'));
  await call('sessions.reset', { key: 'agent:main:project' });
  await changed('reset');
  await ran('main', 'hello', 'e6');
  await ran('main', 'status', 'e7');
  heard.push(...(await stream.until('That was it.')));
  await call('sessions.delete', { key: 'agent:main:project' });
  await changed('delete');
  await gw.clock.advance(15_000);
  heard.push(await stream.next());
  await gw.clock.advance(15_000);
  for (const wire of [follower, plain, scoped]) await wire.event('tick');

  // The order inside of one kind is promised; how kinds mix depends on what is read when.
  const record = (who: string, wire: Wire) => {
    corpus.heading(who);
    const events = wire.frames.filter((frame) => frame.type === 'event');
    for (const name of new Set(events.map(({ event }) => event!).toSorted())) {
      const ones = events.filter(({ event }) => event === name).map(settledFrame);
      corpus.line(`${who}: ${name}`, ...ones);
    }
    const seqs = events.flatMap(({ seq }) => (seq === undefined ? [] : [seq]));
    expect(seqs).toEqual(seqs.map((_, index) => seqs[0]! + index));
  };
  record('who follows all sessions, with the events of tools', follower);
  record('who follows the messages of one session', plain);
  record('who follows the messages of one session and wants no other events', scoped);

  const again = await Wire.connect(port, adminToken, { caps: ['session-scoped-events'] });
  await again.call('sessions.subscribe', { cursor });
  await again.event('sessions.changed', (payload) => payload['reason'] === 'delete');
  record('who comes back with a cursor', again);

  corpus.heading('the stream of a session');
  const follow = `${url}/sessions/main/history?follow=1`;
  corpus.line(
    'GET /sessions/main/history?follow=1&includeTools=1',
    `${stream.status} ${stream.type}`,
    ...heard.filter((block) => !isLive(block)).map((block) => streamed(corpus, block)),
  );
  corpus.line('its live events', ...heard.filter(isLive).map((block) => streamed(corpus, block)));
  const lastId = /^id: (.*)$/m.exec(heard.find((block) => !isLive(block) && block.includes('re: hello'))!)![1]!;
  const resumed = await streamOf(follow, { 'last-event-id': lastId });
  const rest = await resumed.until('That was it.');
  corpus.line('GET /sessions/main/history?follow=1 after the first answer', ...rest.map((block) => streamed(corpus, block)));
  const lost = await streamOf(follow, { 'last-event-id': 'nonsense' });
  corpus.line('GET /sessions/main/history?follow=1 after an id that means nothing', streamed(corpus, await lost.next()));
  expect(corpus.lines).toEqual(corpus.recorded('events.txt'));
});
