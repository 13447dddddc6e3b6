// A conversation on a socket whose other end is the test: every order of frames that a real gateway rarely produces.
import { describe, expect, it, onTestFinished } from 'vitest';
import type { HelloOk } from '../protocol/frame.ts';
import { Client } from './client.ts';
import { Conversation, type ConversationEvent } from './conversation.ts';

interface Request {
  id: string;
  method: string;
  params: Record<string, unknown>;
}

class Line extends EventTarget {
  private readonly requests: Request[] = [];
  private wake = () => {};

  send(text: string): void {
    this.requests.push(JSON.parse(text) as Request);
    this.wake();
  }

  close(): void {}

  /** The next request of a method, as soon as it comes. */
  async request(method: string): Promise<Request> {
    for (;;) {
      const at = this.requests.findIndex((request) => request.method === method);
      if (at >= 0) return this.requests.splice(at, 1)[0]!;
      await new Promise<void>((resolve) => (this.wake = resolve));
    }
  }

  async answer(method: string, payload: object): Promise<void> {
    const { id } = await this.request(method);
    this.push({ type: 'res', id, ok: true, payload });
  }

  event(event: string, payload: object): void {
    this.push({ type: 'event', event, payload });
  }

  private push(frame: object): void {
    this.dispatchEvent(new MessageEvent('message', { data: JSON.stringify(frame) }));
  }
}

const key = 'agent:main:main';
const wireMessage = (seq: number, runId = 'other') => ({
  role: 'user',
  content: `message ${seq}`,
  timestamp: seq,
  __openclaw: { id: `m${seq}`, seq, runId },
});
const messageEvent = (seq: number, runId?: string) => ({
  sessionKey: key,
  agentId: 'main',
  sessionId: 's',
  ts: 0,
  cursor: String(seq),
  messageId: `m${seq}`,
  messageSeq: seq,
  runId: runId ?? 'other',
  message: wireMessage(seq, runId),
});
const row = (messageCount: number) => ({ key, sessionId: 's', agentId: 'main', messageCount });
const pageOf = (...seqs: number[]) => ({
  sessionKey: key,
  sessionId: 's',
  messages: seqs.map((seq) => wireMessage(seq)),
  hasMore: false,
  sessionInfo: row(seqs.length),
});

function begin() {
  const lines: Line[] = [];
  const events: ConversationEvent[] = [];
  let ids = 0;
  let wake = () => {};
  const conversation = new Conversation({
    key,
    open() {
      const line = new Line();
      lines.push(line);
      const client = new Client('ws://test/', line as unknown as WebSocket);
      client.hello = { policy: { tickIntervalMs: 30_000 }, auth: { scopes: [] } } as unknown as HelloOk;
      wake();
      return Promise.resolve(client);
    },
    newId: () => `own${++ids}`,
    sleep: (ms, signal) =>
      // A retry happens at once; silence lasts until the connection ends.
      ms < 30_000 ? Promise.resolve() : new Promise((_, reject) => signal.addEventListener('abort', () => reject(signal.reason as Error))),
  });
  conversation.subscribe((event) => events.push(event));
  const stop = new AbortController();
  const over = conversation.run(stop.signal);
  onTestFinished(async () => {
    stop.abort();
    await over;
  });
  /** The nth connection, once it is subscribed. */
  const line = async (n: number): Promise<Line> => {
    while (lines.length < n) await new Promise<void>((resolve) => (wake = resolve));
    const found = lines[n - 1]!;
    await found.answer('sessions.messages.subscribe', { subscribed: true, key, cursor: '0' });
    return found;
  };
  const until = (type: ConversationEvent['type']) =>
    new Promise<void>((resolve) => {
      const undo = conversation.subscribe((event) => {
        if (event.type !== type) return;
        undo();
        resolve();
      });
    });
  const texts = () => conversation.items.map((item) => ('text' in item ? item.text : item.kind));
  return { conversation, events, line, until, texts };
}

describe('a conversation', () => {
  it('lists once what arrives while the past is read, after the past', async () => {
    const { line, until, texts } = begin();
    const one = await line(1);
    one.event('session.message', messageEvent(2));
    one.event('session.message', messageEvent(3));
    const ready = until('message');
    await one.answer('chat.history', pageOf(1, 2));
    await ready;
    expect(texts()).toEqual(['message 1', 'message 2', 'message 3']);
    one.event('session.message', messageEvent(3));
    expect(texts()).toHaveLength(3);
  });

  it('reads older pages too, if the newest is short because its messages are large', async () => {
    const { line, until, texts } = begin();
    const one = await line(1);
    const ready = until('ready');
    await one.answer('chat.history', { ...pageOf(3, 4), hasMore: true, nextOffset: 2 });
    await one.answer('chat.history', { ...pageOf(1, 2, 3), hasMore: false });
    await ready;
    expect(texts()).toEqual(['message 1', 'message 2', 'message 3', 'message 4']);
  });

  it('reads the messages whose events the gateway no longer has', async () => {
    const { events, line, until, texts } = begin();
    const one = await line(1);
    const ready = until('ready');
    await one.answer('chat.history', pageOf(1));
    await ready;
    one.event('sessions.changed', { sessionKey: key, reason: 'resync', ts: 0 });
    one.event('session.message', messageEvent(4));
    const current = until('message');
    await one.answer('chat.history', pageOf(1, 2, 3));
    await current;
    expect(texts()).toEqual(['message 1', 'message 2', 'message 3', 'message 4']);
    expect(events.filter(({ type }) => type === 'message')).toHaveLength(1);
  });

  it.each([
    ['nothing new', 2, []],
    ['fewer new messages than were lost', 2, [3]],
    ['more new messages than were lost', 2, [3, 4, 5, 6]],
    ['nothing that was there before', 0, [1, 2, 3, 4, 5]],
  ])('lists new messages of a restored gateway, which has %s', async (_, same, fresh) => {
    const { line, until, texts } = begin();
    const one = await line(1);
    const ready = until('ready');
    await one.answer('chat.history', pageOf(1, 2, 3, 4));
    await ready;
    const renamed = (seq: number) => ({ ...wireMessage(seq), content: `new ${seq}`, __openclaw: { id: `n${seq}`, seq, runId: 'other' } });
    const old = [1, 2].slice(0, same);
    one.event('sessions.changed', { sessionKey: key, reason: 'resync', ts: 0 });
    for (const seq of fresh) one.event('session.message', { ...messageEvent(seq), messageId: `n${seq}`, message: renamed(seq) });
    const current = until('current');
    const messages = [...old.map((seq) => wireMessage(seq)), ...fresh.map((seq) => renamed(seq))];
    await one.answer('chat.history', { ...pageOf(), messages, sessionInfo: row(messages.length) });
    await current;
    const next = same + fresh.length + 1;
    one.event('session.message', { ...messageEvent(next), messageId: `n${next}`, message: renamed(next) });
    expect(texts()).toEqual([...[1, 2, 3, 4].map((seq) => `message ${seq}`), ...[...fresh, next].map((seq) => `new ${seq}`)]);
  });

  it('sends a message again under the same key when the connection is lost before the answer', async () => {
    const { conversation, line, until, texts } = begin();
    const one = await line(1);
    const ready = until('ready');
    await one.answer('chat.history', pageOf());
    await ready;
    conversation.say('hello');
    const first = await one.request('sessions.send');
    expect(conversation.pending).toEqual([{ id: 'own1', text: 'hello', state: 'sending' }]);
    expect([conversation.status, conversation.busy]).toEqual(['connected', true]);
    one.dispatchEvent(new Event('error'));
    const two = await line(2);
    const second = await two.request('sessions.send');
    expect(second.params).toEqual(first.params);
    expect(second.params).toMatchObject({ message: 'hello', idempotencyKey: 'own1' });
    two.event('session.message', messageEvent(1, 'own1'));
    expect(conversation.pending).toEqual([]);
    expect(conversation.items).toMatchObject([{ kind: 'message', own: true, runId: 'own1' }]);
    expect(texts()).toEqual(['message 1']);
  });

  it('does not repeat a reset whose connection was lost', async () => {
    const { conversation, events, line, until } = begin();
    const one = await line(1);
    const ready = until('ready');
    await one.answer('chat.history', pageOf());
    await ready;
    const refused = until('refused');
    conversation.enqueue(() => conversation.reset().then(() => undefined));
    await one.request('sessions.reset');
    one.dispatchEvent(new Event('error'));
    await refused;
    expect(events.find(({ type }) => type === 'refused')).toMatchObject({ error: { code: 'UNAVAILABLE' } });
  });
});
