// What a name means at the command line: main, else an agent, else a session; and what may be opened under it.
import { expect, it } from 'vitest';
import { testGateway } from '../harness/gateway.ts';
import { started } from '../harness/terminal.ts';

const agents = (...ids: string[]) => ({ agents: { list: ids.map((id) => ({ id })) } });

async function open(...ids: string[]) {
  const gw = await testGateway({ config: agents(...ids), listen: true });
  const use = (...argv: string[]) => started([...argv, '--state-dir', gw.stateDir]).finished;
  return { gw, use };
}

it('the name of an agent is its main session in every command, and no session is opened under it', async () => {
  const { gw, use } = await open('main', 'ops');
  const main = 'agent:ops:main';
  expect(await use('send', 'ops', '--create', 'hello')).toMatchObject({ status: 0, stdout: 're: hello\n' });
  expect((await use('history', 'ops', '--json')).stdout).toContain(`"${main}"`);
  expect((await use('runs', 'ops')).stdout).toContain(main);
  expect(await use('deliveries', 'ops')).toMatchObject({ status: 0 });
  expect((await use('sessions', '--lives', 'ops', '--json')).stdout).toContain(`"key": "${main}"`);
  expect((await use('explain', 'key', 'ops')).stdout).toContain(`${main} is the main session of agent "ops"`);
  const { sessionId } = (await gw.call('sessions.describe', { key: main })).session!;
  expect((await use('explain', 'key', sessionId)).stdout).toContain(`${main} is the main session of agent "ops"`);
  const chat = await started(['chat', 'ops', '--create', '--state-dir', gw.stateDir], { input: 'again\n' }).finished;
  expect(chat).toMatchObject({ status: 0, stdout: 're: again\n' });
  expect(chat.stderr).toContain(main);

  expect(await use('sessions', 'new', 'ops')).toMatchObject({ status: 65, stderr: expect.stringContaining('"ops" is an agent') as string });
  for (const key of ['agent:main:ops', 'agent:ops:ops'])
    await expect(gw.call('sessions.create', { key })).rejects.toMatchObject({ code: 'SESSION_KEY_RESERVED' });
  await expect(gw.call('chat.send', { sessionKey: 'agent:main:ops', message: 'hi', idempotencyKey: '1' })).rejects.toMatchObject({
    code: 'SESSION_KEY_RESERVED',
  });
  expect(await gw.rows.sessions({ key: 'agent:main:ops' }, 'id', 'life')).toEqual([]);
});

it('an agent that is added later gets its name; the older session keeps its full key', async () => {
  const { gw, use } = await open('main');
  expect(await use('send', 'lab', '--create', 'first')).toMatchObject({ status: 0 });
  expect((await use('explain', 'key', 'lab')).stdout).toContain('agent:main:lab is a named session');
  await gw.reload(agents('main', 'lab'));
  expect(await use('history', 'lab')).toMatchObject({ status: 0, stdout: '' });
  expect((await use('history', 'agent:main:lab')).stdout).toContain('first');
  // It can still be found by its key, also where that would open it.
  expect(await use('send', 'agent:main:lab', '--create', 'second')).toMatchObject({ status: 0, stdout: 're: second\n' });
});

it('main is the default agent, also beside an agent of that name', async () => {
  const { use } = await open('ana', 'main');
  expect((await use('explain', 'key', 'main')).stdout).toContain('agent:ana:main is the main session of agent "ana"');
});

it('an empty name is told as such', async () => {
  const { use } = await open('main');
  expect(await use('history', '')).toMatchObject({ status: 64, stderr: expect.stringContaining('session is empty') as string });
  expect((await use('wait', '')).stderr).toBe('interlane: run id is empty\n');
});
