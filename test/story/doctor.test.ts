// What `doctor` finds in a state and in a config, each on purpose; and errors in the words of the command line.
import { mkdirSync, openSync, statSync, writeFileSync, writeSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { testGateway, type TestGateway } from '../harness/gateway.ts';
import { meddle } from '../harness/rows.ts';
import { started } from '../harness/terminal.ts';

const env = { INTERLANE_DISCOVER: '0' };
const use = (argv: string[], stage: TestGateway) => started([...argv, '--state-dir', stage.stateDir], { env }).finished;

interface Found {
  what: string;
  state: string;
  says: string;
  fix?: string;
}
async function doctorOf(stage: TestGateway): Promise<{ status: number; found: (what: string) => Found[] }> {
  const { status, stdout } = await use(['doctor', '--json', '--port', '0'], stage);
  const { findings } = JSON.parse(stdout) as { findings: Found[] };
  return { status, found: (what) => findings.filter((one) => one.what === what) };
}

it('finds nothing in a state that is well, and each thing that is not', async () => {
  const script = [
    {
      when: '^\\nask$',
      steps: [
        { calls: [{ tool: 'sessions_send', args: { sessionKey: 'agent:ops:main', message: 'hi', timeoutSeconds: 0 } }] },
        { say: 'asked' },
      ],
    },
    { steps: [{ say: 'ok' }] },
  ];
  const config = {
    agents: { list: [{ id: 'main' }, { id: 'ops' }] },
    tools: { sessions: { visibility: 'all' as const }, agentToAgent: { enabled: true } },
  };
  const stage = await testGateway({ config, script, clock: 'real' });
  await stage.answer('ask');
  await stage.finished();
  await stage.close();
  const well = await doctorOf(stage);
  expect(well.status).toBe(0);
  expect(well.found('lanes')).toMatchObject([{ state: 'ok' }]);
  for (const what of ['flows', 'files', 'clock', 'rules']) expect(well.found(what)).toEqual([]);

  await stage.start();
  await stage.rows.addQueued(2);
  await stage.close();
  mkdirSync(join(stage.stateDir, 'workspaces', 'main', 'nobody'), { recursive: true });
  mkdirSync(join(stage.stateDir, 'workspaces', 'main', '50%'), { recursive: true }); // not a name of the gateway
  meddle(stage.stateDir, 'late exchanges');
  meddle(stage.stateDir, 'events of the future');
  writeFileSync(
    join(stage.stateDir, 'interlane.json5'),
    `{ tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } }, agents: { list: [{ id: 'main' }, { id: 'ops' }] },
       gateway: { host: '0.0.0.0' }, store: { durability: 'normal' }, mcp: { servers: { x: { url: 'http://127.0.0.1:1', accepts: 'INTERNAL' } } } }`,
  );
  const ill = await doctorOf(stage);
  expect(ill.found('lanes')).toMatchObject([{ state: 'bad', says: expect.stringContaining('agent:main:main') }]);
  expect(ill.found('flows')).toMatchObject([{ state: 'note', says: expect.stringMatching(/^1 exchange /) }]);
  expect(ill.found('files')).toMatchObject([{ state: 'note', says: expect.stringMatching(/^1 workspace .*workspaces\/main\/nobody$/) }]);
  expect(ill.found('clock')).toMatchObject([{ state: 'note', says: expect.stringContaining('in the future') }]);
  expect(ill.found('rules').map(({ says }) => says.split(/[ :]/)[0])).toEqual([
    'tools.sessions.visibility',
    'tools.agentToAgent',
    'gateway.host',
    'store.durability',
    'mcp.servers.x',
  ]);
  expect(ill.status).not.toBe(0);
});

it('shows what the running gateway warns of', async () => {
  const config = { mcp: { servers: { x: { url: 'http://127.0.0.1:1' } } } };
  const stage = await testGateway({ config, clock: 'real', listen: true, caller: 'agent:main:main' });
  await stage.tools([{ tool: 'x__echo' }]);
  const { status, found } = await doctorOf(stage);
  expect(status).toBe(0);
  expect(found('gateway')).toMatchObject([
    { state: 'ok' },
    { state: 'note', says: expect.stringContaining('mcp.servers.x cannot be reached') },
  ]);
});

it('says of a damaged store in plain words what it is and what to do, also where only a part of it is damaged', async () => {
  const stage = await testGateway();
  for (let n = 0; n < 30; n++) await stage.answer('x'.repeat(2_000));
  await stage.finished();
  await stage.close();
  const file = join(stage.stateDir, 'interlane.db');
  const { size } = statSync(file);
  const handle = openSync(file, 'r+');
  for (let at = 16_384; at < size; at += 4_096) writeSync(handle, Buffer.alloc(512, 0xa5), 0, 512, at);
  const { found, status } = await doctorOf(stage);
  expect(status).toBe(74);
  expect(found('store')).toMatchObject([
    {
      state: 'bad',
      says: expect.stringMatching(/is damaged: a part of it cannot be read \(SQLite: [^;]+\)$/),
      fix: expect.stringContaining('interlane restore <file>'),
    },
  ]);
  expect(found('lanes')).toEqual([]);
  const exported = await use(['export'], stage);
  expect(exported.status).toBe(74);
  expect(exported.stderr).toMatch(/^interlane: store .* is damaged: /);
});

it('an error of the gateway names commands and arguments, not operations and parameters', async () => {
  const stage = await testGateway({ listen: true });
  const joined = await use(['join', 'No Such Name!'], stage);
  expect(joined.status).toBe(65);
  expect(joined.stderr).toMatch(/^interlane: name: must be /);
  const sent = await use(['send', 'agent:main:nothing-like-it-at-all', 'hello'], stage);
  expect(sent.stderr).toMatch(/see: interlane sessions\n$/);
  expect((await use(['token', 'rotate', 'nobody'], stage)).stderr).toContain('interlane token list');
  for (const { stderr } of [joined, sent]) expect(stderr).not.toMatch(/params|guests\.join|sessions\.list/);
});
