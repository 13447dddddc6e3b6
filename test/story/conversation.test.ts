// The conversation of the client entry on a real gateway, as a web page would use it: state and events, no terminal.
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, connect as dial, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { connect, Conversation, type Client, type ConversationEvent } from '../../src/client/index.ts';
import { defaultConfig, Script, startGateway } from '../../src/index.ts';

// Nothing here depends on how long it takes; a machine with other work to do may take its time.
vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

const token = 'a secret of at least sixteen';
const self = { id: 'web', mode: 'webchat', version: '1', platform: 'test' };
const script = Script.parse([
  { when: 'fail', steps: [{ fail: 'the model is away' }] },
  { when: 'stream', steps: [{ sleepMs: 20, say: 'one two three', stream: 4 }] },
  { when: 'look', steps: [{ say: 'Let me see.', calls: [{ tool: 'sessions_list', args: {} }] }, { say: 'One session.' }] },
  { when: 'wait', steps: [{ sleepMs: 600_000, say: 'never' }] },
  { steps: [{ say: 're: {{input}}' }] },
]);

async function open() {
  const stateDir = mkdtempSync(join(tmpdir(), 'interlane-conversation-'));
  const listen = { host: '127.0.0.1', port: 0, token, version: '1' };
  const gateway = await startGateway(defaultConfig(), { stateDir, script, listen, search: false });
  onTestFinished(async () => {
    await gateway.close();
    rmSync(stateDir, { recursive: true, force: true });
  });
  return gateway.server!;
}

async function operator(url: string): Promise<Client> {
  const client = await connect({ url, token, client: self });
  onTestFinished(() => client.close());
  return client;
}

/** A page that shows the main session. `until` resolves when its state fits. */
async function page(url: string, caps = ['tool-events']) {
  const events: ConversationEvent[] = [];
  const stop = new AbortController();
  let wake = () => {};
  const conversation = new Conversation({
    key: 'agent:main:main',
    open: (signal) => connect({ url, token, client: self, caps: ['session-scoped-events', ...caps], signal }),
    newId: () => crypto.randomUUID(),
  });
  conversation.subscribe((event) => {
    events.push(event);
    wake();
  });
  const over = conversation.run(stop.signal);
  onTestFinished(async () => {
    stop.abort();
    await over;
  });
  const until = async (fits: () => boolean) => {
    while (!fits()) await new Promise<void>((resolve) => (wake = resolve));
  };
  const has = (type: ConversationEvent['type']) => () => events.some((event) => event.type === type);
  await until(has('ready'));
  const texts = () => conversation.items.map((item) => ('text' in item ? item.text : item.kind));
  return {
    conversation,
    events,
    until,
    has,
    texts,
    ended: (n: number) => until(() => events.filter(({ type }) => type === 'ended').length === n),
  };
}

/** A wire that is cut, once, when the gateway is about to send this text. */
async function wire(to: number, cutBefore: string) {
  const sockets = new Set<Socket>();
  let whole = true;
  const server = createServer((near) => {
    const far = dial(to, '127.0.0.1');
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.on('error', () => {}).on('close', () => (near.destroy(), far.destroy(), sockets.delete(socket)));
    }
    near.pipe(far);
    far.on('data', (bytes: Buffer) => {
      if (whole && bytes.includes(cutBefore)) {
        whole = false;
        near.destroy();
      } else near.write(bytes);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return `http://127.0.0.1:${(server.address() as { port: number }).port}`;
}

describe('a conversation', () => {
  it('lists the past, then what is new, in order', async () => {
    const { url } = await open();
    const client = await operator(url);
    const { runId } = await client.call('chat.send', { sessionKey: 'main', message: 'before', idempotencyKey: '1' });
    await client.call('agent.wait', { runId });
    const { conversation, texts, ended } = await page(url);
    expect(texts()).toEqual(['before', 're: before']);
    expect([conversation.status, conversation.busy]).toEqual(['connected', false]);
    conversation.say('now');
    await ended(1);
    expect(texts()).toEqual(['before', 're: before', 'now', 're: now']);
    expect(conversation.items.map((item) => 'own' in item && item.own)).toEqual([false, false, true, true]);
  });

  it('shows a message as pending until the transcript has it, and text as it grows under one id', async () => {
    const { url } = await open();
    const { conversation, ended } = await page(url);
    const pending: string[] = [];
    const growth: string[] = [];
    const ids = new Set<string>();
    conversation.subscribe(() => {
      pending.push(...conversation.pending.map(({ state }) => state));
      const last = conversation.items.at(-1);
      if (last?.kind !== 'answer') return;
      ids.add(last.id);
      if (growth.at(-1) !== last.text) growth.push(last.text);
    });
    conversation.say('stream');
    await ended(1);
    expect(pending[0]).toBe('sending');
    expect(conversation.pending).toEqual([]);
    expect(growth.at(-1)).toBe('one two three');
    expect(growth.every((text) => 'one two three'.startsWith(text))).toBe(true);
    expect(ids.size).toBe(1);
  });

  it('lists calls and their results', async () => {
    const { url } = await open();
    const { conversation, ended } = await page(url);
    conversation.say('look');
    await ended(1);
    expect(conversation.items.map(({ kind }) => kind)).toEqual(['message', 'answer', 'call', 'result', 'answer']);
    expect(conversation.items.flatMap((item) => ('quiet' in item ? [item.quiet] : []))).toEqual([false, true]);
  });

  it('shows what another client says, and its answer', async () => {
    const { url } = await open();
    const { conversation, until, texts } = await page(url);
    const client = await operator(url);
    await client.call('chat.send', { sessionKey: 'main', message: 'from there', idempotencyKey: '1' });
    await until(
      () => texts().includes('re: from there') && conversation.items.every((item) => !('state' in item) || item.state === 'kept'),
    );
    expect(conversation.items).toMatchObject([
      { kind: 'message', own: false, from: 'elsewhere', text: 'from there' },
      { kind: 'answer', own: false, text: 're: from there' },
    ]);
  });

  it('tells of a run that failed and of one that was stopped', async () => {
    const { url } = await open();
    const { conversation, until, ended } = await page(url);
    conversation.say('fail');
    await ended(1);
    expect(conversation.items.at(-1)).toMatchObject({ kind: 'end', own: true, state: 'error', error: 'the model is away' });
    conversation.say('wait');
    await until(() => conversation.items.at(-1)?.kind === 'message' && conversation.session !== undefined);
    expect(await conversation.stop()).toBe(true);
    await ended(2);
    expect(conversation.items.at(-1)).toMatchObject({ kind: 'end', own: true, state: 'aborted' });
    await until(() => !conversation.busy);
    expect(await conversation.stop()).toBe(false);
  });

  it('reports a refusal as an event and goes on', async () => {
    const { url } = await open();
    const { conversation, events, ended } = await page(url);
    conversation.enqueue(() => conversation.patch({ model: 'nowhere/nothing' }).then(() => undefined));
    conversation.say('hello');
    await ended(1);
    expect(events.filter(({ type }) => type === 'refused')).toMatchObject([{ error: { code: 'MODEL_UNKNOWN' } }]);
  });

  it('follows a reset: the new transcript goes on below the old one', async () => {
    const { url } = await open();
    const { conversation, texts, ended } = await page(url);
    conversation.say('first');
    conversation.enqueue(() => conversation.reset().then(() => undefined), { afterAnswer: true });
    conversation.say('second', { afterAnswer: true });
    await ended(2);
    expect(texts()).toEqual(['first', 're: first', 'second', 're: second']);
    expect((await conversation.read()).messageCount).toBe(2);
  });

  it.each(['"status":"started"', '"role":"assistant"', '"state":"final"', '"deltaText"'])(
    'sends each message once and misses nothing when the wire is cut before %s',
    async (place) => {
      const { port, url } = await open();
      const { conversation, events, texts, ended } = await page(await wire(port, place));
      for (const text of ['hello', 'stream', 'last']) conversation.say(text);
      await ended(3);
      expect(events.filter(({ type }) => type === 'lost')).toHaveLength(1);
      const said = ['hello', 're: hello', 'stream', 'one two three', 'last', 're: last'];
      expect(texts()).toEqual(said);
      expect(new Set(conversation.items.map(({ id }) => id)).size).toBe(said.length);
      const history = await (await operator(url)).call('chat.history', { sessionKey: 'main' });
      expect('messages' in history && history.messages.map(({ entry }) => entry.seq)).toEqual([1, 2, 3, 4, 5, 6]);
    },
  );
});
