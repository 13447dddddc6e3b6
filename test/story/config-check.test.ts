// One check behind `config check`, `up`, a reload, `doctor` and `status`; what `up` shows to a person and what it keeps out of a log.
import { mkdirSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { readConfig } from '../../src/config/load.ts';
import { testGateway } from '../harness/gateway.ts';
import { started } from '../harness/terminal.ts';

const env = { INTERLANE_DISCOVER: '0' };

function stateWith(config?: string): { state: string; file: string } {
  const state = mkdtempSync(join(tmpdir(), 'interlane-test-'));
  onTestFinished(() => rmSync(state, { recursive: true, force: true }));
  const file = join(state, 'interlane.json5');
  if (config !== undefined) writeFileSync(file, config);
  return { state, file };
}

const use = (argv: string[], more: Parameters<typeof started>[1] = {}) => started(argv, { ...more, env: { ...env, ...more.env } }).finished;

/** Starts, reads the screen, and stops. */
async function upOf(state: string, argv: string[] = [], tty = false): Promise<string> {
  const up = started(['up', '--port', '0', '--state-dir', state, ...argv], { tty, env, columns: 300 });
  await up.printed('Up. Press Ctrl-C');
  up.interrupt();
  return (await up.finished).stdout;
}

interface Doctor {
  findings: { what: string; state: string; says: string }[];
}
const doctorOf = async (state: string, argv: string[] = []) => {
  const { status, stdout } = await use(['doctor', '--json', '--state-dir', state, ...argv]);
  return { status, findings: (JSON.parse(stdout) as Doctor).findings };
};

describe('what is wrong in a config', () => {
  it('is refused by config check, up, doctor and a reload with the same words and the same status', async () => {
    const text = `{ agents: { list: [{ id: 'main', model: 'claude-sonnet' }], defaults: { model: 'opanai/gpt-5' } } }`;
    const { state, file } = stateWith(text);
    const check = await use(['config', 'check', '--state-dir', state]);
    const up = await use(['up', '--port', '0', '--state-dir', state]);
    expect([check.status, up.status]).toEqual([78, 78]);
    expect(check.stderr).toBe(up.stderr);
    expect(check.stdout).toBe('');
    expect(check.stderr.match(/interlane\.json5:1:\d+/g)).toHaveLength(2);
    const said = check.stderr.replace('interlane: ', '').trimEnd();
    const doctor = await doctorOf(state, ['--port', '0']);
    expect(doctor.status).toBe(78);
    expect(doctor.findings.find(({ what }) => what === 'config')).toMatchObject({ state: 'bad', says: said });
    const stage = await testGateway();
    const { config, places } = readConfig(text, file, {});
    await expect(stage.reload(config, places)).rejects.toThrow(said);
    // As text, each problem has its own line, and no letter is lost.
    const shown = await use(['doctor', '--state-dir', state, '--port', '0']);
    expect(shown.stdout).toMatch(/\n {11}\S+:1:\d+ {2}agents\.list\[0\]\.model 'claude-sonnet' /);
    expect(shown.stdout).not.toContain('\\n');
  });

  it('that does not keep it from starting is the same list of warnings everywhere, and never "fine"', async () => {
    const { state } = stateWith(
      `{ agents: { list: [{ id: 'My Agent!' }] },\n tools: { agentToAgent: { allow: ['wrok'] } }, mcp: { servers: { x: { command: 'no-such-program' } } } }`,
    );
    const check = await use(['config', 'check', '--state-dir', state]);
    expect(check).toMatchObject({ status: 0, stderr: '' });
    expect(check.stdout).not.toContain('fine');
    const warnings = check.stdout.split('\n').flatMap((line) => (line.startsWith('! ') ? [line.slice(2)] : []));
    expect(warnings).toHaveLength(4);
    const doctor = await doctorOf(state, ['--port', '0']);
    expect(doctor.findings.filter(({ what, state: how }) => what === 'config' && how === 'note').map(({ says }) => says)).toEqual(warnings);
    const screen = await upOf(state);
    expect(screen.split('\n').flatMap((line) => (line.startsWith('  ! ') ? [line.slice(4)] : []))).toEqual(warnings);
  });
});

describe('status', () => {
  it('tells a rejected config and what waits for a restart, until that is over', async () => {
    const stage = await testGateway({ listen: true });
    const shown = async () => (await use(['status', '--state-dir', stage.stateDir])).stdout;
    expect((await stage.call('status')).config).toEqual({ restart: [] });
    await stage.reload({ gateway: { port: 1 }, agents: { defaults: { maxConcurrent: 2 } } });
    await stage.reload({ gateway: { port: 1 }, agents: { defaults: { maxConcurrent: 2 } }, guests: { replyMinutes: 3 } });
    expect((await stage.call('status')).config).toEqual({ restart: ['agents.defaults.maxConcurrent', 'gateway.port'] });
    const doctor = await doctorOf(stage.stateDir);
    expect(doctor.findings.filter(({ what, state }) => what === 'gateway' && state === 'note')).toMatchObject([
      { says: 'the config has changed: agents.defaults.maxConcurrent, gateway.port' },
    ]);
    await expect(stage.reload({ agents: { defaults: { model: 'x' } } })).rejects.toThrow('provider/model');
    expect((await stage.call('status')).config.rejected).toContain('provider/model');
    expect(await shown()).toMatch(
      /rejected[^]*agents\.defaults\.model "x"[^]*restart to apply: agents\.defaults\.maxConcurrent, gateway\.port/,
    );
    await stage.reload({});
    expect((await stage.call('status')).config).toEqual({ restart: [] });
    expect(await shown()).not.toMatch(/rejected|restart/);
  });
});

describe('up', () => {
  it('shows the admin token at the first start and a sign-in link to a person, and neither to a log', async () => {
    const { state } = stateWith();
    const logged = await upOf(state);
    expect(logged).not.toMatch(/il_[0-9a-f]{16}_|code=/);
    for (const words of ['token rotate admin', 'token sign-in', 'chat'])
      expect(logged).toContain(`npx interlane ${words} --state-dir ${state}\n`);
    const other = stateWith().state;
    const first = await upOf(other, [], true);
    expect(first.match(/il_[0-9a-f]{16}_[\w-]{43}/g)).toHaveLength(1);
    expect(first).toMatch(/sign in {2}http:\/\/127\.0\.0\.1:\d+\/signin\?code=\S+/);
    expect(await upOf(other, [], true)).not.toContain('il_');
  });

  it('warns that other machines can connect, and prints the addresses they use', async () => {
    const { state } = stateWith();
    expect(await upOf(state)).not.toContain('other machines can connect');
    const open = await upOf(state, ['--host', '0.0.0.0']);
    expect(open).toMatch(/! other machines can connect to 0\.0\.0\.0/);
    expect(open).toMatch(/address {2}http:\/\/127\.0\.0\.1:\d+/);
  });

  it('ends with a plain error if something of the start fails, and starts the next time', async () => {
    const { state, file } = stateWith();
    const fails = async (argv: string[], status: number, says: string) => {
      const ended = await use(['up', '--port', '0', ...argv]);
      expect(ended).toMatchObject({ status, stdout: '', stderr: expect.stringContaining(says) });
      expect(ended.stderr).not.toMatch(/bug|\bE[A-Z]{4,}\b/);
    };
    mkdirSync(join(state, 'cli.json.new'));
    await fails(['--state-dir', state], 74, `state directory ${state} cannot be written`);
    rmSync(join(state, 'cli.json.new'), { recursive: true });
    await fails(['--state-dir', state, '--host', ''], 64, '--host is empty');
    writeFileSync(file, '{}');
    await fails(['--state-dir', file], 73, 'it is not a directory');
    // The secret that a failed start did not show is shown now.
    expect(await upOf(state, [], true)).toMatch(/il_[0-9a-f]{16}_/);
    await fails(['--state-dir', state, '--host', 'nosuch.invalid'], 71, 'address nosuch.invalid');
  });

  it('and the other commands say that a file cannot be looked at, not that it is missing', async () => {
    const { state, file } = stateWith();
    symlinkSync(file, file);
    for (const command of ['up', 'doctor'] as const)
      expect(await use([command, '--state-dir', state])).toMatchObject({
        status: 66,
        stderr: expect.stringContaining(`${file} cannot be`),
      });
    const { state: second } = stateWith();
    symlinkSync('cli.json', join(second, 'cli.json'));
    expect(await use(['sessions', '--state-dir', second])).toMatchObject({ stderr: expect.stringContaining('cli.json cannot be') });
    // These two need no gateway, and go on without the file.
    expect((await use(['explain', 'key', 'main', '--state-dir', second])).stdout).toMatch(
      /agent:main:main is [^]*no gateway was asked: .*cli\.json/,
    );
    const { status, findings } = await doctorOf(second, ['--port', '0']);
    expect(status).toBe(0);
    expect(findings.find(({ what }) => what === 'gateway')).toMatchObject({ state: 'note', says: expect.stringContaining('cli.json') });
  });
});

describe('doctor', () => {
  it('looks at the port that the running gateway has, not at the one of the config', async () => {
    const taken = createServer();
    await new Promise<void>((resolve) => taken.listen(0, '127.0.0.1', resolve));
    onTestFinished(() => void taken.close());
    const { port } = taken.address() as { port: number };
    const stage = await testGateway({ listen: true });
    writeFileSync(join(stage.stateDir, 'interlane.json5'), `{ gateway: { port: ${port} } }`);
    const portOf = async (argv: string[] = []) => (await doctorOf(stage.stateDir, argv)).findings.find(({ what }) => what === 'port');
    expect(await portOf()).toMatchObject({ state: 'ok', says: expect.stringContaining(String(stage.port)) });
    expect(await portOf(['--port', String(port)])).toMatchObject({ state: 'bad', says: expect.stringContaining(String(port)) });
  });
});
