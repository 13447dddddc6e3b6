// An answer that is being written, for readers that come in the middle of it: what was said so far, then the rest, nothing twice.
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { Conversation } from '../../src/client/index.ts';
import { adminToken, testGateway, type ConfigText, type TestGateway } from '../harness/gateway.ts';
import { Wire } from '../harness/socket.ts';
import { started } from '../harness/terminal.ts';
import { mockProvider, type Say } from '../mock/provider.ts';

// Nothing here depends on how long it takes; a machine with other work to do may take its time.
vi.setConfig({ testTimeout: 30_000, hookTimeout: 30_000 });

const main = 'agent:main:main';
type Payload = Record<string, unknown>;
interface Delta {
  deltaText: string;
  offset: number;
  step: number;
  replace?: true;
}

/** A model that stops between its pieces until the test lets it go on. */
async function open(pieces: string[], config: ConfigText = {}, before: Say[] = []) {
  const gates = pieces.map(() => Promise.withResolvers<void>());
  const text = pieces.flatMap((piece, index) => [piece, gates[index]!.promise]);
  const provider = await mockProvider((_, index) => before[index] ?? { text });
  onTestFinished(() => provider.close());
  const providers = { mock: { type: 'openai-compatible' as const, baseUrl: provider.url, apiKey: 'mock-secret-0123456789' } };
  const gw = await testGateway({
    config: { models: { providers }, agents: { defaults: { model: 'mock/m' } }, ...config },
    script: [],
    stops: true,
    listen: true,
  });
  return { gw, goOn: (after: number) => gates[after]!.resolve() };
}

/** Until the gateway has sent this piece to a client that was there from the beginning. */
async function sent(gw: TestGateway, wire: Wire, piece: string, work: () => unknown): Promise<void> {
  const gathered = gw.clock.fallsAsleep(100);
  work();
  await gathered;
  await gw.clock.advance(100);
  await wire.event('chat', ({ deltaText }) => deltaText === piece);
}

/** The text of a step as a client puts it together. */
function assembled(payloads: Payload[]): string {
  let text = '';
  for (const { deltaText, offset, replace } of payloads.filter(({ state }) => state === 'delta') as unknown as Delta[]) {
    if (replace) text = '';
    expect(offset).toBe(text.length);
    text += deltaText;
  }
  return text;
}

describe('a reader that comes in the middle of an answer', () => {
  it('gets the text so far and then the rest: of one session, of all, over HTTP, and without a subscription', async () => {
    const { gw, goOn } = await open(['Once upon', ' a time', ' …']);
    const early = await Wire.connect(gw.port, gw.admin);
    await early.call('sessions.messages.subscribe', { key: 'main' });
    await sent(gw, early, 'Once upon', () => void gw.say('tell'));
    const caps = { caps: ['session-scoped-events'] };
    const one = await Wire.connect(gw.port, gw.admin, caps);
    await one.call('sessions.messages.subscribe', { key: 'main' });
    const all = await Wire.connect(gw.port, gw.admin, caps);
    await all.call('sessions.subscribe', {});
    const bare = await Wire.connect(gw.port, gw.admin);
    const stream = await gw.sse('/sessions/main/history?follow=1');
    const soFar = { sessionKey: main, seq: 1, state: 'delta', step: 1, attempt: 1, offset: 0, deltaText: 'Once upon', replace: true };
    for (const wire of [one, all]) expect((await wire.event('chat')).payload).toMatchObject(soFar);
    const heard = await stream.until(({ event }) => event === 'chat');
    expect(heard.map(({ event }) => event)).toEqual(['history', 'chat']);
    expect(heard[1]).toMatchObject({ data: soFar });
    expect(heard[1]).not.toHaveProperty('id');
    expect(bare.events('chat')).toEqual([]);

    await sent(gw, early, ' a time', () => goOn(0));
    expect((await one.event('chat', ({ offset }) => offset === 9)).payload).toMatchObject({ seq: 2, step: 1, deltaText: ' a time' });
    expect((await bare.event('chat')).payload).toMatchObject({ seq: 2, offset: 0, deltaText: 'Once upon a time', replace: true });
    await sent(gw, early, ' …', () => goOn(1));
    goOn(2);
    for (const wire of [early, one, all, bare]) {
      const { payload } = await wire.event('chat', ({ state }) => state === 'final');
      expect(payload).toMatchObject({ message: { content: [{ text: 'Once upon a time …' }] } });
      expect(assembled(wire.events('chat'))).toBe('Once upon a time …');
    }
    const rest = await stream.until(({ data }) => data?.state === 'final');
    expect(assembled([heard[1]!, ...rest].filter(({ event }) => event === 'chat').map(({ data }) => data))).toBe('Once upon a time …');
    for (const wire of [one, all]) {
      await wire.event('session.message', ({ messageSeq }) => messageSeq === 2);
      expect(wire.events('session.message').map(({ messageSeq }) => messageSeq)).toEqual([2]);
    }
  });

  it('gets the messages that it missed first, when it comes back', async () => {
    const { gw, goOn } = await open(['Once'], {}, [{ text: 'before' }]);
    const early = await Wire.connect(gw.port, gw.admin);
    const { cursor } = await early.call('sessions.subscribe', {});
    const stream = await gw.sse('/sessions/main/history?follow=1');
    const id = (await stream.next())!.id!;
    stream.close();
    await gw.answer('first');
    await sent(gw, early, 'Once', () => void gw.say('second'));
    const back = await gw.sse('/sessions/main/history?follow=1', { headers: { 'last-event-id': id } });
    const heard = await back.until(({ event }) => event === 'chat');
    expect(heard.map(({ event, data }) => (event === 'message' ? data.messageSeq : event))).toEqual([1, 2, 3, 'chat']);
    const late = await Wire.connect(gw.port, gw.admin, { caps: ['session-scoped-events'] });
    await late.call('sessions.messages.subscribe', { key: 'main', cursor });
    await late.event('chat');
    const events = late.frames.filter(({ event }) => event === 'chat' || event === 'session.message');
    expect(events.map(({ event, payload }) => payload!['messageSeq'] ?? event)).toEqual([1, 2, 3, 'chat']);
    goOn(0);
    await late.event('chat', ({ state }) => state === 'final');
  });

  it('gets nothing of it if the session has risen above its token', async () => {
    const { gw, goOn } = await open(['the word is ', 'xyzzy'], { classification: { tools: { gate: 'RESTRICTED' } } }, [
      { calls: [{ name: 'gate', args: { name: 'one' } }] },
    ]);
    const admin = await Wire.connect(gw.port, gw.admin);
    const low = await Wire.connect(gw.port, await gw.token('low', { scopes: ['operator.read'], level: 'PUBLIC' }));
    void gw.say('look');
    await gw.stops.entered('one');
    await sent(gw, admin, 'the word is ', () => gw.stops.open('one'));
    await low.call('sessions.messages.subscribe', { key: 'main' });
    await low.call('sessions.subscribe', {});
    const late = await Wire.connect(gw.port, gw.admin, { caps: ['session-scoped-events'] });
    await late.call('sessions.messages.subscribe', { key: 'main' });
    expect((await late.event('chat')).payload).toMatchObject({ step: 2, deltaText: 'the word is ' });
    await sent(gw, admin, 'xyzzy', () => goOn(0));
    goOn(1);
    await late.event('chat', ({ state }) => state === 'final');
    await admin.call('sessions.create', { key: 'after' });
    await low.event('sessions.changed', ({ sessionKey }) => sessionKey === 'agent:main:after');
    expect(low.events('chat')).toEqual([]);
  });

  it('gets the text and the start of a run that goes on after a restart, with higher numbers than before', async () => {
    const { gw, goOn } = await open(['Once', ' more']);
    const before = await Wire.connect(gw.port, gw.admin);
    await sent(gw, before, 'Once', () => void gw.say('tell'));
    const last = before.events('chat').at(-1)!;
    const begun = gw.clock.fallsAsleep(100);
    await gw.restart();
    const early = await Wire.connect(gw.port, gw.admin);
    await begun;
    await gw.clock.advance(100);
    const { payload: first } = await early.event('chat');
    expect(first).toMatchObject({ runId: last['runId'], step: 1, offset: 0, deltaText: 'Once' });
    expect(first!['seq']).toBeGreaterThan(last['seq'] as number);
    expect(early.events('agent')).toMatchObject([{ runId: last['runId'], stream: 'lifecycle', data: { phase: 'start' } }]);
    const late = await Wire.connect(gw.port, gw.admin);
    await late.call('sessions.messages.subscribe', { key: 'main' });
    expect((await late.event('chat')).payload).toMatchObject({ deltaText: 'Once', replace: true, seq: first!['seq'] });
    await sent(gw, early, ' more', () => goOn(0));
    goOn(1);
    const { payload: final } = await late.event('chat', ({ state }) => state === 'final');
    expect(final).toMatchObject({ message: { content: [{ text: 'Once more' }] } });
    expect(assembled(late.events('chat'))).toBe('Once more');
  });

  it('is a conversation, a chat or a tail: each shows the text so far at once', async () => {
    const { gw, goOn } = await open(['Once upon', ' a time']);
    const early = await Wire.connect(gw.port, gw.admin);
    await sent(gw, early, 'Once upon', () => void gw.say('tell'));
    const stop = new AbortController();
    const conversation = new Conversation({ key: main, open: (signal) => gw.client({ signal }), newId: () => crypto.randomUUID() });
    const over = conversation.run(stop.signal);
    const texts = () => conversation.items.map((item) => ('text' in item ? item.text : item.kind));
    await gw.until(() => texts().length === 2);
    expect(texts()).toEqual(['tell', 'Once upon']);
    const env = { INTERLANE_TOKEN: adminToken, INTERLANE_URL: gw.url };
    const chat = started(['chat', 'main'], { tty: true, keys: true, env });
    const tail = started(['tail', 'main'], { tty: true, env });
    await Promise.all([chat.shows('Once upon'), tail.shows('Once upon')]);
    await sent(gw, early, ' a time', () => goOn(0));
    goOn(1);
    await gw.until(() => texts().at(-1) === 'Once upon a time');
    await Promise.all([chat.shows(' a time'), tail.shows('a time')]);
    expect(texts()).toEqual(['tell', 'Once upon a time']);
    expect(tail.screen.match(/Once upon/g)).toHaveLength(1);
    stop.abort();
    await over;
  });
});
