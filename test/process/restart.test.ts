// What a client was told holds after the gateway was killed: runs, waits, idempotency keys and cursors are rows, not memory.
import { readFileSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { describe, expect, it } from 'vitest';
import { Published } from '../harness/published.ts';
import { Wire } from '../harness/socket.ts';
import { scratch, start, type Running } from './child.ts';

const token = 'the token of this test';
const main = 'agent:main:main';

interface Child extends Running {
  port: number;
}

/** On a port of its own at first, and on the same one after that. */
async function gateway(stateDir: string, port = 0): Promise<Child> {
  const running = start(process.execPath, [resolve('test/process/gateway.ts'), stateDir, String(port), token]);
  await running.printed(' ready\n');
  return {
    ...running,
    port: (JSON.parse(readFileSync(join(stateDir, 'cli.json'), 'utf8')) as { url: string }).url.split(':').map(Number)[2]!,
  };
}

async function kill(child: Child): Promise<void> {
  child.child.kill('SIGKILL');
  await child.finished;
}

describe('after a kill', () => {
  it('a wait goes on over a dropped connection and a new process, and the run ends once', async () => {
    const stateDir = scratch();
    const first = await gateway(stateDir);
    const wire = await Wire.connect(first.port, token);
    const { cursor } = await wire.call('sessions.messages.subscribe', { key: 'main' });
    await wire.call('chat.send', { sessionKey: 'main', message: 'gate-a', idempotencyKey: 'k' });
    await wire.call('chat.send', { sessionKey: 'main', message: 'behind it', idempotencyKey: 'l' });
    await first.printed('waiting for gate-a');
    // The connection drops while it waits; another one asks again with the run id.
    wire.ask('agent.wait', { runId: 'k' });
    wire.socket.terminate();
    await wire.closed;
    const again = await Wire.connect(first.port, token);
    expect(await again.call('agent.wait', { runId: 'k', timeoutMs: 0 })).toMatchObject({ status: 'timeout', state: 'running' });
    const open = again.ask('agent.wait', { runId: 'k' });
    await kill(first);
    await expect(again.answer(open)).rejects.toThrow('closed');

    const second = await gateway(stateDir, first.port);
    const after = await Wire.connect(second.port, token);
    const waiting = [after.ask('agent.wait', { runId: 'k' }), after.ask('agent.wait', { runId: 'l' })];
    const retry = { sessionKey: 'main', message: 'gate-a', idempotencyKey: 'k' };
    expect(await after.call('chat.send', retry)).toMatchObject({ runId: 'k', status: 'in_flight' });
    await second.printed('waiting for gate-a');
    writeFileSync(join(stateDir, 'gate-a'), '');
    expect(await after.answer(waiting[0]!)).toMatchObject({ status: 'ok', terminalReply: { text: 'through gate-a' } });
    expect(await after.answer(waiting[1]!)).toMatchObject({ status: 'ok', terminalReply: { text: 'you said behind it' } });
    await kill(second);

    // A third process knows how they ended.
    const third = await gateway(stateDir, first.port);
    const last = await Wire.connect(third.port, token);
    expect(await last.call('agent.wait', { runId: 'k' })).toMatchObject({ status: 'ok', terminalReply: { text: 'through gate-a' } });
    expect(await last.call('chat.send', retry)).toMatchObject({ runId: 'k', status: 'ok' });
    const id = last.ask('agent', { message: 'gate-a', idempotencyKey: 'n', sessionKey: 'main' });
    expect(await last.answer(id, 2)).toMatchObject({ status: 'ok' });
    expect(await last.refusal('agent.wait', { runId: 'never' })).toMatchObject({ details: { code: 'RUN_NOT_FOUND' } });
    // The cursor of the first process still leads through everything, once and in order.
    await last.call('sessions.messages.subscribe', { key: 'main', cursor });
    const { messages } = (await last.call('chat.history', { sessionKey: 'main' })) as unknown as {
      messages: { __openclaw: { id: string } }[];
    };
    await last.event('session.message', ({ messageSeq }) => messageSeq === messages.length);
    expect(last.events('session.message').map(({ messageId }) => messageId)).toEqual(messages.map((message) => message.__openclaw.id));
    expect(messages.filter((message) => (message as unknown as { content: unknown }).content === 'gate-a')).toHaveLength(2);
    await kill(third);
  });

  it('the published client comes back by itself and finds its run', async () => {
    const stateDir = scratch();
    const first = await gateway(stateDir);
    const client = await Published.connect(first.port, token);
    await client.call('chat.send', { sessionKey: 'main', message: 'gate-b', idempotencyKey: 'k' });
    await first.printed('waiting for gate-b');
    const lost = client.call('agent.wait', { runId: 'k' });
    await Promise.all([expect(lost).rejects.toThrow('gateway closed'), kill(first)]);
    writeFileSync(join(stateDir, 'gate-b'), '');
    const second = await gateway(stateDir, first.port);
    await client.until(() => client.hellos.length === 2);
    expect(await client.call('agent.wait', { runId: 'k' })).toMatchObject({
      status: 'ok',
      sessionKey: main,
      terminalReply: { text: 'through gate-b' },
    });
    expect(client.gaps).toEqual([]);
    await client.client.stopAndWait();
    await kill(second);
  });

  it('the secret of the command line that was left behind opens nothing', async () => {
    const stateDir = scratch();
    const first = await gateway(stateDir);
    const left = JSON.parse(readFileSync(join(stateDir, 'cli.json'), 'utf8')) as { token: string };
    await (await Wire.connect(first.port, left.token)).end();
    await kill(first);
    const second = await gateway(stateDir, first.port);
    await expect(Wire.connect(second.port, left.token)).rejects.toMatchObject({ details: { code: 'AUTH_TOKEN_MISMATCH' } });
    await kill(second);
  });
});
