// The table of operations at every door: each answer has the shape that the table says, and what is not in the table is nowhere.
import { describe, expect, expectTypeOf, it, vi } from 'vitest';
import type { Client } from '../../src/client/client.ts';
import { run } from '../../src/cli/program.ts';
import { routesOf } from '../../src/protocol/http.ts';
import { operations, type OperationName, type Params } from '../../src/protocol/operations/all.ts';
import type { Operations, ResultsOf } from '../../src/protocol/operations/operation.ts';
import { gates } from '../harness/gates.ts';
import { testGateway, type ScriptText } from '../harness/gateway.ts';
import { started } from '../harness/terminal.ts';

// Nothing here depends on how long it takes; a machine with other work to do may take its time.
vi.setConfig({ testTimeout: 30_000, hookTimeout: 30_000 });

/** An answer has what the schema says, and nothing else: the schema drops a field that it does not know. */
const fits = (schema: { parse(value: unknown): unknown }, answer: unknown) => expect(schema.parse(answer)).toEqual(answer);

describe('every operation', () => {
  it('answers with the shape that the table says, and with nothing else', async () => {
    const gate = gates();
    const script: ScriptText = [
      { when: 'hold', steps: [{ calls: [{ tool: 'gate', args: { name: 'hold' } }] }, { say: 'held' }] },
      { when: 'fail', steps: [{ fail: 'no' }] },
      { when: 'look', steps: [{ calls: [{ tool: 'agents_list', args: {} }] }, { say: 'seen' }] },
      { steps: [{ say: 're: {{input}}' }] },
    ];
    const agents = { list: [{ id: 'ana', default: true, name: 'Ana' }, { id: 'bo' }] };
    const config = { agents, session: { sendPolicy: { default: 'allow' as const, rules: [] } } };
    const stage = await testGateway({ config, script, tools: [gate.tool], listen: true, clock: 'real' });
    const client = await stage.client();
    const called = new Set<string>();
    const ask = async <N extends OperationName>(name: N, params: Params<N>) => {
      const answer = await client.call(name, ...([params] as never));
      fits(operations[name].result, answer);
      called.add(name);
      return answer;
    };

    await ask('health', {});
    await ask('status', {});
    await ask('agents.list', {});
    await ask('sessions.subscribe', {});
    await ask('sessions.subscribe', { limit: 1 });
    await ask('sessions.unsubscribe', {});
    await ask('sessions.messages.subscribe', { key: 'main' });
    await ask('sessions.messages.unsubscribe', { key: 'main' });

    await ask('sessions.create', { key: 'plans', label: 'Plans', displayName: 'P', thinkingLevel: 'high', message: 'look' });
    const made = await ask('sessions.create', { key: 'plans' });
    await ask('sessions.patch', { key: 'plans', verboseLevel: 'full', sendPolicy: 'deny' });
    const refused = await ask('sessions.create', { key: 'plans', message: 'hi' });
    expect(refused.runError?.details?.code).toBe('SEND_POLICY_DENIED');
    await ask('sessions.patch', { key: 'plans', sendPolicy: null });
    await ask('sessions.describe', { key: 'plans', includeLastMessage: true });
    await ask('sessions.describe', { key: 'agent:ana:nobody' });
    await ask('sessions.lives', { key: 'plans' });
    await ask('sessions.resolve', { label: 'Plans' });
    await ask('sessions.resolve', { label: 'nothing', allowMissing: true });
    await ask('sessions.create', { key: 'agent:bo:plans', label: 'Plans' });
    expect(await ask('sessions.resolve', { label: 'Plans', allowMissing: true })).toMatchObject({ ok: false, candidates: [{}, {}] });
    await ask('sessions.preview', { keys: ['main', 'plans', 'agent:ana:nobody'] });

    const { runId } = await ask('sessions.send', { key: 'main', message: 'hello', idempotencyKey: 'k' });
    await ask('agent.wait', { runId });
    await ask('sessions.send', { key: 'main', message: 'hello', idempotencyKey: 'k' });
    const failed = await ask('chat.send', { sessionKey: 'main', message: 'fail', idempotencyKey: 'f' });
    expect(await ask('agent.wait', { runId: failed.runId })).toMatchObject({ status: 'error' });
    const early: unknown[] = [];
    const ended = await client.call('agent', { message: 'hello', idempotencyKey: 'a' }, { accepted: (answer) => void early.push(answer) });
    for (const answer of [...early, ended]) fits(operations.agent.result, answer);
    expect(early).toHaveLength(1);
    await ask('agent', { message: 'fail', idempotencyKey: 'b' });

    const page = await ask('chat.history', { sessionKey: 'main', limit: 2, offset: 1 });
    const { deltaCursor } = page as { deltaCursor: string };
    await ask('chat.inject', { sessionKey: 'main', message: 'by the way', label: 'note' });
    expect(await ask('chat.history', { sessionKey: 'main', cursor: deltaCursor })).toMatchObject({ kind: 'delta', messages: [{}] });
    expect(await ask('chat.history', { sessionKey: 'plans', cursor: deltaCursor })).toEqual({ kind: 'reset' });
    await ask('chat.history', { sessionKey: 'plans' });

    const held = await ask('chat.send', { sessionKey: 'main', message: 'hold', idempotencyKey: 'h' });
    await gate.entered('hold');
    await ask('chat.send', { sessionKey: 'main', message: 'later', idempotencyKey: 'l', queueMode: 'followup' });
    await ask('sessions.list', { includeLastMessage: true });
    expect(await ask('agent.wait', { runId: held.runId, timeoutMs: 0 })).toMatchObject({ status: 'timeout', state: 'running' });
    expect(await ask('chat.abort', { sessionKey: 'main' })).toMatchObject({ aborted: true });
    gate.open('hold');
    await ask('sessions.abort', { key: 'plans' });
    await stage.settled();
    expect((await ask('runs.list', { limit: 4 })).nextCursor).toBeDefined();
    await ask('runs.list', { key: 'main', states: ['aborted', 'error'] });

    await ask('send', { to: 'you', message: 'hi', idempotencyKey: 's' });
    await stage.finished();
    await stage.rows.addDeliveries('u', 2, 'unknown');
    expect((await ask('deliveries.list', { limit: 1 })).nextCursor).toBeDefined();
    await ask('deliveries.resend', { deliveryId: 'u1' });
    await ask('deliveries.settle', { deliveryId: 'u2', as: 'failed' });
    expect((await ask('feed.read', { limit: 200 })).events.map(({ kind }) => kind)).toEqual(
      expect.arrayContaining(['entry', 'run', 'session', 'delivery']),
    );
    await ask('sessions.markRead', { key: 'main' });
    await ask('sessions.list', { includeUnread: true });
    await ask('tools.invoke', { tool: 'agents_list' });
    await ask('tools.invoke', { tool: 'sessions_history', args: { sessionKey: 'nowhere' } });
    await ask('explain.route', { channel: 'loopback', peer: { kind: 'direct', id: 'you' } });
    await ask('explain.key', { key: 'agent:ana:main' });
    await ask('explain.send', { session: { key: 'agent:ana:main' }, channel: 'loopback', text: 'hi' });
    await ask('explain.access', { caller: { key: 'agent:ana:main' }, target: { key: 'agent:bo:main' } });
    await ask('explain.tools', { session: { key: 'agent:ana:main' } });

    await ask('guests.join', { name: 'claude' });
    await ask('guests.join', { name: 'claude', rotate: true });
    await ask('sessions.list', {});
    await ask('tokens.create', { name: 'reader' });
    await ask('tokens.create', { name: 'bound', sessionKey: 'main' });
    await ask('tokens.rotate', { name: 'reader' });
    await ask('tokens.signIn', {});
    await ask('tokens.list', {});
    await ask('tokens.revoke', { name: 'reader' });

    await ask('sessions.reset', { key: 'main' });
    await ask('sessions.delete', { key: made.key });
    await ask('sessions.delete', { key: made.key });
    await ask('sessions.list', { archived: 'all' });
    expect([...called].toSorted()).toEqual(Object.keys(operations).toSorted());
  });

  it('has one right, whichever door it is called through', () => {
    for (const { scope, http = {} } of Object.values<Operations[string]>(operations))
      for (const name of Object.keys(http)) expect([name, routesOf(operations)[name as 'GET /sessions'].scope]).toEqual([name, scope]);
  });
});

describe('an operation that is not in the table', () => {
  const { 'agent.wait': gone, 'runs.list': _, ...rest } = operations;
  const opened = () => testGateway({ listen: { operations: rest }, clock: 'real' });

  it('is unknown to the websocket, and hello does not name it', async () => {
    const client = await (await opened()).client();
    expect(client.hello.features.methods).toEqual(Object.keys(rest));
    await expect(client.call('agent.wait', { runId: 'x' })).rejects.toMatchObject({ code: 'METHOD_NOT_FOUND' });
    await expect(client.call('sessions.list')).resolves.toMatchObject({ count: 1 });
  });

  it('has no route over HTTP and none in the OpenAPI document', async () => {
    const stage = await opened();
    expect(Object.keys(gone.http)).toEqual(['GET /runs/{id}']);
    expect((await stage.http('/runs/x')).json).toMatchObject({ error: { code: 'ROUTE_NOT_FOUND' } });
    expect((await stage.http('/sessions')).status).toBe(200);
    const { paths } = (await stage.http('/openapi.json')).json;
    expect(paths).toHaveProperty('/sessions');
    expect(paths).not.toHaveProperty('/runs/{id}');
  });

  it('is not in the types of the client', () => {
    expectTypeOf<Parameters<Client['call']>[0]>().toEqualTypeOf<keyof ResultsOf<typeof operations>>();
    expectTypeOf<keyof ResultsOf<typeof rest>>().toEqualTypeOf<Exclude<OperationName, 'agent.wait' | 'runs.list'>>();
  });

  it('has no command in the help of the command line', async () => {
    const help = async (table: Operations) => (await started(['--help'], {}, (terminal) => run(terminal, table)).finished).stdout;
    const commands = (text: string) => [...text.matchAll(/^ {2}([a-z]+) /gm)].map(([, name]) => name);
    const all = commands(await help(operations));
    expect(all).toEqual(expect.arrayContaining(['wait', 'runs', 'sessions']));
    expect(commands(await help(rest))).toEqual(all.filter((name) => name !== 'wait' && name !== 'runs'));
  });
});
