// An agent that is not in the config: it gets no turn, whichever way a message comes; its sessions can be read, and deleted.
import { expect, it } from 'vitest';
import { refusal } from '../harness/refusal.ts';
import { testGateway, type ConfigText } from '../harness/gateway.ts';
import { started } from '../harness/terminal.ts';

const tools: ConfigText['tools'] = { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } };
const both: ConfigText = { tools, agents: { list: [{ id: 'main' }, { id: 'work' }] } };
const one: ConfigText = { tools, agents: { list: [{ id: 'main' }] } };
const key = 'agent:work:main';

it('an agent that was removed from the config answers nothing more; operators read its sessions, which are marked', async () => {
  const script = [
    { when: '^\\nstop$', steps: [{ calls: [{ tool: 'gate', args: { name: 'work' } }] }, { say: 'went on' }] },
    { steps: [{ say: 're: {{input}}' }] },
  ];
  const stage = await testGateway({ config: both, script, stops: true, listen: true, caller: 'agent:main:main' });
  await stage.write(key, 'hello');
  const { token } = await stage.call('guests.join', { name: 'codex', agentId: 'work' });
  // One run is under way when the agent is removed, and one waits behind it.
  const running = await stage.call('sessions.send', { key, message: 'stop' });
  await stage.stops.entered('work');
  const queued = await stage.call('sessions.send', { key, message: 'later' });
  await stage.reload(one);

  for (const refused of [
    () => stage.call('sessions.send', { key, message: 'hi' }),
    () => stage.call('chat.send', { sessionKey: key, message: 'hi', idempotencyKey: 'k1' }),
    () => stage.call('agent', { sessionKey: key, message: 'hi', idempotencyKey: 'k2' }),
    () => stage.call('sessions.create', { agentId: 'work' }),
    () => stage.call('guests.join', { name: 'other', agentId: 'work' }),
  ])
    await expect(refused()).rejects.toMatchObject({ code: 'AGENT_NOT_FOUND' });
  expect(await stage.tool('sessions_send', { sessionKey: key, message: 'hi' })).toEqual(refusal('AGENT_NOT_FOUND', 'work'));
  const guest = await stage.mcp(token);
  expect((await guest.client.listTools()).tools).toEqual([]);
  expect(await stage.call('tools.invoke', { tool: 'sessions_list', args: {} }, token)).toMatchObject({
    ok: false,
    result: { code: 'AGENT_NOT_FOUND' },
  });

  stage.stops.open('work');
  expect(await stage.wait(running.runId)).toMatchObject({ state: 'ok', reply: 'went on' });
  expect(await stage.wait(queued.runId)).toMatchObject({ state: 'error', errorCode: 'AGENT_NOT_FOUND' });

  expect((await stage.call('sessions.describe', { key })).session).toMatchObject({ orphaned: true });
  expect((await stage.call('sessions.describe', { key: 'main' })).session).not.toHaveProperty('orphaned');
  const { sessions } = await stage.call('sessions.list', { agentId: 'work' });
  expect(sessions.map((row) => row.orphaned)).toEqual([true, true]);
  const history = await stage.call('chat.history', { sessionKey: key });
  expect('messages' in history && history.messages.length).toBeGreaterThan(2);
  const env = { INTERLANE_STATE_DIR: stage.stateDir };
  const { stdout } = await started(['sessions', '--agent', 'work'], { tty: true, env }).finished;
  expect(stdout).toMatch(/agent:work:main +main .* orphaned/);
  expect((await started(['chat', key], { env }).finished).stderr).toContain('agent "work" is not in the config');
  const said = await stage.call('explain.send', { session: { key }, channel: 'webchat' });
  expect(said).toMatchObject({ answer: expect.stringMatching(/^BLOCK .*"work"/) as string, facts: { code: 'AGENT_NOT_FOUND' } });

  // Back in the config it answers again; removed for good, its sessions can be deleted, the main one too.
  await stage.reload(both);
  expect((await stage.call('sessions.describe', { key })).session).not.toHaveProperty('orphaned');
  await stage.write(key, 'hello again');
  await stage.reload(one);
  expect(await stage.call('sessions.delete', { key })).toMatchObject({ deleted: true });
});

it('without agents.list the agents are "main" and those that bindings name', async () => {
  const bindings = [{ agentId: 'ops', match: { channel: 'loopback', accountId: 'ops' } }];
  const stage = await testGateway({ config: { bindings }, listen: true });
  expect((await stage.call('agents.list')).agents.map(({ id }) => id)).toEqual(['main', 'ops']);
  await stage.write('agent:ops:main', 'hello');
  await expect(stage.call('sessions.create', { key: 'agent:opps:notes' })).rejects.toMatchObject({ code: 'AGENT_NOT_FOUND' });
  await expect(stage.call('sessions.create', { agentId: 'opps' })).rejects.toThrow('did you mean "ops"?');
});
