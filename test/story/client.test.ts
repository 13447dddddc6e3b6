// The typed client against a real gateway: calls, errors by code, events, and following that outlives its connections.
import { createServer, connect as dial, type Socket } from 'node:net';
import { setTimeout as pause } from 'node:timers/promises';
import * as fc from 'fast-check';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { connect, type Client, type ConnectOptions } from '../../src/client/client.ts';
import { follow } from '../../src/client/follow.ts';
import { textOf as wordsOf } from '../../src/client/messages.ts';
import { InterlaneError } from '../../src/errors.ts';
import type { SessionMessage, SessionsChanged } from '../../src/protocol/wire-event.ts';
import { adminToken as token, testGateway, type ScriptText, type TestGateway } from '../harness/gateway.ts';

// Nothing here depends on how long it takes; a machine with other work to do may take its time.
vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

const self = { id: 'cli', mode: 'cli', version: '1', platform: 'test' };
const script: ScriptText = [
  { when: 'stream', steps: [{ say: 'one two three', stream: 4 }] },
  { when: 'fail', steps: [{ fail: 'no' }] },
  { when: 'hold', steps: [{ calls: [{ tool: 'gate', args: { name: 'hold' } }] }, { say: 'held' }] },
  { steps: [{ say: 're: {{input}}' }] },
];

const open = () => testGateway({ script, listen: { version: '1' }, stops: true, clock: 'real' });
const join = (one: TestGateway, more: Partial<ConnectOptions> = {}): Promise<Client> => one.client({ client: self, ...more });

const coded = (code: string, named = '') =>
  expect.objectContaining({ name: 'InterlaneError', code, message: expect.stringContaining(named) });

describe('a client', () => {
  it('calls by the method table and gets typed answers', async () => {
    const client = await join(await open());
    expect(client.hello).toMatchObject({ type: 'hello-ok', protocol: 4, auth: { scopes: ['operator.admin'] } });
    const { runId } = await client.call('sessions.send', { key: 'main', message: 'hello' });
    const { status, terminalReply } = await client.call('agent.wait', { runId });
    expect({ status, reply: terminalReply?.text }).toEqual({ status: 'ok', reply: 're: hello' });
    expect((await client.call('sessions.list')).sessions.map(({ key }) => key)).toEqual(['agent:main:main']);
  });

  it('gets both answers of a method that answers twice', async () => {
    const client = await join(await open());
    const early: string[] = [];
    const ended = await client.call(
      'agent',
      { message: 'hello', idempotencyKey: '1' },
      { accepted: ({ status, runId }) => void early.push(status, runId) },
    );
    expect(early).toEqual(['accepted', ended.runId]);
    expect(ended).toMatchObject({ status: 'ok', result: { payloads: [{ text: 're: hello' }] } });
  });

  it('is refused with the code and the words of the gateway', async () => {
    const one = await open();
    const client = await join(one);
    const missing = client.call('sessions.send', { key: 'mian', message: 'hello' });
    await expect(missing).rejects.toEqual(coded('SESSION_NOT_FOUND', 'agent:main:main'));
    await expect(client.request('sessions.lst', {})).rejects.toEqual(coded('METHOD_NOT_FOUND'));
    await expect(client.request('sessions.list', { limt: 1 })).rejects.toEqual(coded('INVALID_REQUEST', 'limt'));
    await expect(join(one, { token: 'not the secret' })).rejects.toEqual(coded('UNAUTHORIZED'));
    await expect(join(one, { token: undefined })).rejects.toEqual(coded('UNAUTHORIZED'));
    await expect(join(one, { url: 'ftp://127.0.0.1' })).rejects.toEqual(coded('USAGE'));
    await expect(join(one, { url: 'http://127.0.0.1:1' })).rejects.toEqual(coded('UNAVAILABLE'));
  });

  it('hears events until it has heard enough', async () => {
    const client = await join(await open());
    const heard: string[] = [];
    const final = Promise.withResolvers<void>();
    const undo = client.on('chat', (event) => {
      heard.push(event.state === 'delta' ? event.deltaText : event.state);
      if (event.state === 'final') final.resolve();
    });
    await client.call('sessions.send', { key: 'main', message: 'stream' });
    await final.promise;
    expect(heard.at(-1)).toBe('final');
    expect(heard.slice(0, -1).join('')).toBe('one two three');
    undo();
    const { runId } = await client.call('sessions.send', { key: 'main', message: 'stream' });
    await client.call('agent.wait', { runId });
    expect(heard.filter((text) => text === 'final')).toHaveLength(1);
  });

  it('that loses its connection rejects what is open, and everything after', async () => {
    const one = await open();
    const client = await join(one);
    const { runId } = await client.call('sessions.send', { key: 'main', message: 'hold' });
    const waiting = client.call('agent.wait', { runId });
    const outcome = waiting.catch((error: unknown) => error);
    await one.stops.entered('hold');
    await one.close();
    expect(await outcome).toEqual(coded('UNAVAILABLE'));
    await expect(client.call('health')).rejects.toEqual(coded('UNAVAILABLE'));
    expect(await client.closed).toEqual(coded('UNAVAILABLE'));
  });

  it('stops waiting when it is told to, and stays connected', async () => {
    const client = await join(await open());
    const { runId } = await client.call('sessions.send', { key: 'main', message: 'hold' });
    const stop = new AbortController();
    const waiting = client.call('agent.wait', { runId }, { signal: stop.signal });
    stop.abort(new InterlaneError('BUSY', 'enough'));
    await expect(waiting).rejects.toEqual(coded('BUSY', 'enough'));
    expect((await client.call('health')).ok).toBe(true);
  });
});

/** A wire that is cut by hand: after so many bytes towards the client, or now. */
async function wire(to: number) {
  const sockets = new Set<Socket>();
  const cuts: number[] = [];
  const server = createServer((near) => {
    const far = dial(to, '127.0.0.1');
    let left = cuts.shift() ?? Number.POSITIVE_INFINITY;
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.on('error', () => {}).on('close', () => (near.destroy(), far.destroy(), sockets.delete(socket)));
    }
    near.pipe(far);
    far.on('data', (bytes: Buffer) => {
      near.write(bytes.subarray(0, left));
      left -= bytes.length;
      if (left <= 0) near.destroySoon();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  const cut = () => sockets.forEach((socket) => socket.destroy());
  onTestFinished(cut);
  return { url: `http://127.0.0.1:${(server.address() as { port: number }).port}`, cuts, cut };
}

/** Follows, and gathers what it hears. `until` resolves when a message with this text has come. */
function following(where: () => string, key?: string) {
  const stop = new AbortController();
  const messages: SessionMessage[] = [];
  const changes: SessionsChanged[] = [];
  const texts = () => messages.map(({ message }) => wordsOf(message, true));
  let wake = () => {};
  let connections = 0;
  const over = follow({
    open: (signal) => connect({ url: where(), token, client: self, signal }),
    key,
    signal: stop.signal,
    // Trying again is not waited for; silence is.
    sleep: (ms, signal) => pause(ms <= 10_000 ? 1 : ms, undefined, { signal }),
    message(event) {
      messages.push(event);
      wake();
    },
    changed(event) {
      changes.push(event);
      wake();
    },
    connected() {
      connections++;
      wake();
    },
  });
  let gone = false;
  const noted = () => {
    gone = true;
    wake();
  };
  over.then(noted, noted);
  onTestFinished(async () => (stop.abort(), over));
  const until = async (done: () => boolean) => {
    while (!done()) {
      if (gone) throw new Error('following has ended', { cause: await over.catch((error: unknown) => error) });
      await new Promise<void>((resolve) => (wake = resolve));
    }
  };
  return {
    messages,
    changes,
    texts,
    over,
    stop,
    until,
    said: (text: string) => until(() => texts().includes(text)),
    connections: () => connections,
  };
}

const ended = (changes: SessionsChanged[]) => changes.filter((event) => event.phase === 'end').map(({ runId }) => runId);

describe('following', () => {
  it('goes on by its cursor after the connection was cut: each message once, none missing', async () => {
    const one = await open();
    const { url, cut } = await wire(one.server.port);
    const tail = following(() => url);
    await tail.until(() => tail.connections() === 1);
    const client = await join(one);
    const say = async (message: string) => {
      const { runId } = await client.call('sessions.send', { key: 'main', message });
      await client.call('agent.wait', { runId });
    };
    await say('1');
    await tail.said('re: 1');
    cut();
    await say('2'); // while nobody listens
    await tail.said('re: 2');
    await say('3');
    await tail.said('re: 3');
    expect(tail.texts()).toEqual(['1', 're: 1', '2', 're: 2', '3', 're: 3']);
    expect(tail.connections()).toBe(2);
  });

  it.each([undefined, 'main'])('misses and doubles nothing wherever the wire is cut (session: %s)', async (key) => {
    const one = await open();
    const client = await join(one);
    const { url, cuts, cut } = await wire(one.server.port);
    let number = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(fc.integer({ min: 1, max: 9_000 }), { maxLength: 4 }), async (after) => {
        const tail = following(() => url, key);
        await tail.until(() => tail.connections() === 1);
        const name = `${++number}:`;
        const runs: string[] = [];
        const say = async (message: string) => {
          const { runId } = await client.call('sessions.send', { key: 'main', message: name + message });
          runs.push((await client.call('agent.wait', { runId })).runId);
        };
        await say('a');
        // The connections after this one break somewhere: in the handshake, between two frames, in the middle of one.
        cuts.push(...after);
        cut();
        await say('b');
        await say('c');
        await tail.said(`re: ${name}c`);
        expect(tail.texts()).toEqual(['a', 'b', 'c'].flatMap((text) => [name + text, `re: ${name}${text}`]));
        if (key === undefined) {
          await tail.until(() => ended(tail.changes).length >= runs.length);
          expect(ended(tail.changes)).toEqual(runs);
        }
        tail.stop.abort();
        await tail.over;
        cuts.length = 0;
      }),
      { numRuns: 15 },
    );
  });

  it('goes on over a restart of the gateway, at another port', async () => {
    const one = await open();
    let { url } = one.server;
    const tail = following(() => url);
    await tail.until(() => tail.connections() === 1);
    const say = async (stage: TestGateway, message: string) => {
      const client = await join(stage);
      const { runId } = await client.call('sessions.send', { key: 'main', message });
      await client.call('agent.wait', { runId });
      client.close();
    };
    await say(one, 'before');
    const two = await one.restart({ listen: { version: '1', port: 0 } });
    await say(two, 'between');
    ({ url } = two.server);
    await say(two, 'after');
    await tail.said('re: after');
    expect(tail.texts()).toEqual(['before', 're: before', 'between', 're: between', 'after', 're: after']);
  });

  it('lets go of a gateway that falls silent, and tries again', async () => {
    const one = await open();
    const client = await join(one);
    const asked: number[] = [];
    const stop = new AbortController();
    let connections = 0;
    await follow({
      open: (signal) => connect({ url: one.server.url, token, client: self, signal }),
      signal: stop.signal,
      // Time passes at once: nothing is heard for long.
      sleep: (ms) => Promise.resolve(void asked.push(ms)),
      message() {},
      connected: () => void (++connections === 3 && stop.abort()),
    });
    expect(asked.filter((ms) => ms === 2 * client.hello.policy.tickIntervalMs).length).toBeGreaterThanOrEqual(2);
  });

  it('is told at once when it may not, or when there is nobody', async () => {
    const one = await open();
    const { url } = one.server;
    const common = { signal: new AbortController().signal, sleep: () => Promise.resolve(), message() {} };
    const opening = (given: string) => (signal: AbortSignal) => connect({ url, token: given, client: self, signal });
    await expect(follow({ ...common, open: opening('not the secret') })).rejects.toEqual(coded('UNAUTHORIZED'));
    await expect(follow({ ...common, open: opening(token), cursor: 'x'.repeat(65) })).rejects.toEqual(coded('INVALID_REQUEST'));
    await one.close();
    await expect(follow({ ...common, open: opening(token) })).rejects.toEqual(coded('UNAVAILABLE'));
  });
});
