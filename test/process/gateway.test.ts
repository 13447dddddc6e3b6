// A gateway in its own process and the commands beside it: starting twice, tokens, restarts under a tail, doctor, export, completion.
import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import { interlane, scratch, start, startInterlane, type Options, type Running } from './child.ts';

/** A gateway on any free port, when it is up. */
async function up(state: string, options: Options = {}, port = '0'): Promise<Running> {
  const running = startInterlane(['up', '--port', port, '--state-dir', state], options);
  await running.printed('Up. Press Ctrl-C to stop.');
  return running;
}

async function stop(running: Running, signal: NodeJS.Signals = 'SIGTERM') {
  running.child.kill(signal);
  return running.finished;
}

const on = (state: string) => ({
  use: (...args: string[]) => interlane([...args, '--state-dir', state]),
  say: async (text: string) => {
    expect(await interlane(['send', 'main', text, '--state-dir', state])).toMatchObject({ status: 0, stdout: `You said: ${text}\n` });
  },
});

/** A port of this machine that is taken. */
async function takenPort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  return (server.address() as { port: number }).port;
}

describe('interlane up', () => {
  it('started twice says where it runs, and that is fine', async () => {
    const state = scratch();
    const running = await up(state);
    const { url } = JSON.parse(readFileSync(join(state, 'cli.json'), 'utf8')) as { url: string };
    const second = await interlane(['up', '--port', '0', '--state-dir', state]);
    expect(second).toMatchObject({ status: 0, stderr: '' });
    expect(second.stdout).toBe(`Interlane is running already: ${url} (process ${running.child.pid}, state ${state})\n`);
  });

  it('names the port that is taken, and the way out', async () => {
    const port = await takenPort();
    const { status, stderr } = await interlane(['up', '--state-dir', scratch()], { env: { INTERLANE_PORT: String(port) } });
    expect(status).toBe(71);
    // Before it comes the log.
    expect(stderr.trimEnd().split('\n').at(-1)).toBe(
      `interlane: port ${port} on 127.0.0.1 is taken; choose another with --port, or 0 for any`,
    );
  });

  it('accepts an admin token from the environment and does not print it', async () => {
    const state = scratch();
    const secret = 'a-secret-of-some-good-length';
    const running = await up(state, { env: { INTERLANE_TOKEN: secret } });
    const { url } = JSON.parse(readFileSync(join(state, 'cli.json'), 'utf8')) as { url: string };
    const asked = await interlane(['token', 'list', '--url', url], { env: { INTERLANE_TOKEN: secret } });
    expect(asked.status).toBe(0);
    const { stdout, stderr } = await stop(running);
    expect(stdout + stderr).not.toContain(secret);
  });

  it.each([
    ['a token that is short', { INTERLANE_TOKEN: 'tooshort' }, 'INTERLANE_TOKEN is too easy to guess'],
    ['a token of few characters', { INTERLANE_TOKEN: 'abababab'.repeat(8) }, 'INTERLANE_TOKEN is too easy to guess'],
    ['a port that is none', { INTERLANE_PORT: '70000' }, 'INTERLANE_PORT is not a port'],
  ])('refuses %s, with the reason and without the value', async (_, env, says) => {
    const { status, stderr } = await interlane(['up', '--state-dir', scratch()], { env });
    expect(status).toBe(64);
    expect(stderr).toContain(says);
    expect(stderr).not.toContain(Object.values(env)[0]);
  });

  it('leaves a file for this user only, and takes it away', async () => {
    const state = scratch();
    const running = await up(state);
    expect(statSync(join(state, 'cli.json')).mode & 0o777).toBe(0o600);
    await stop(running, 'SIGINT');
    expect(statSync(join(state, 'cli.json'), { throwIfNoEntry: false })).toBeUndefined();
    const { status, stderr } = await on(state).use('status');
    expect(status).toBe(69);
    expect(stderr).toContain('interlane up');
  });

  it('keeps what was compiled for the next start', async () => {
    const state = scratch();
    await stop(await up(state, { env: { NODE_COMPILE_CACHE: '' } }));
    expect(statSync(join(state, 'cache')).isDirectory()).toBe(true);
  });
});

describe('interlane tail', () => {
  it('misses and doubles nothing when the gateway is killed and started again elsewhere', async () => {
    const state = scratch();
    const { say } = on(state);
    const gateway = await up(state);
    const tail = startInterlane(['tail', '--json', '--state-dir', state]);
    await tail.printed('"connected"');
    const { printed } = tail;
    await say('one');
    await printed('You said: one');
    await stop(gateway, 'SIGKILL');
    await printed('"lost"');
    const second = await up(state);
    await say('two');
    await printed('You said: two');
    await stop(second);
    const third = await up(state);
    await say('three');
    await say('four');
    await printed('You said: four');
    await stop(third);
    const { status, stdout } = await stop(tail, 'SIGINT');
    expect(status).toBe(0);
    const events = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as { event: string; message?: { content: unknown } });
    const said = events.filter(({ event }) => event === 'session.message').map(({ message }) => JSON.stringify(message!.content));
    const texts = ['one', 'two', 'three', 'four'];
    expect(said).toHaveLength(8);
    for (const [index, text] of texts.entries()) {
      expect(said[2 * index]).toContain(text);
      expect(said[2 * index + 1]).toContain(`You said: ${text}`);
    }
  });
});

describe('interlane doctor', () => {
  const found = async (...args: string[]) => {
    const { status, stdout } = await interlane(['doctor', '--json', '--port', '0', ...args]);
    const { findings } = JSON.parse(stdout) as { findings: { what: string; state: string; says: string; fix?: string }[] };
    return { status, of: (what: string) => findings.find((one) => one.what === what)! };
  };

  it('finds nothing broken before the first start, and changes nothing', async () => {
    const state = join(scratch(), 'none');
    const { status, of } = await found('--state-dir', state);
    expect(status).toBe(0);
    expect(of('state').says).not.toBe('');
    expect(of('model').says).toContain('scripted');
    expect(statSync(state, { throwIfNoEntry: false })).toBeUndefined();
  });

  it('sees a running gateway and its store', async () => {
    const state = scratch();
    const running = await up(state);
    const { status, of } = await found('--state-dir', state);
    expect(status).toBe(0);
    expect(of('gateway').says).toContain(`(process ${running.child.pid})`);
    expect(of('store').says).toContain('database OK');
    await stop(running, 'SIGKILL');
    expect((await found('--state-dir', state)).of('gateway').says).toContain('not running');
  });

  it('says what is wrong and how to put it right', async () => {
    const state = scratch();
    writeFileSync(join(state, 'interlane.json5'), '{ sesion: {} }');
    writeFileSync(join(state, 'interlane.db'), 'not a database, whatever it is');
    const port = await takenPort();
    const { status, of } = await found('--state-dir', state, '--port', String(port));
    expect(status).toBe(78);
    expect(of('config')).toMatchObject({ state: 'bad', says: expect.stringContaining('sesion') });
    expect(of('store')).toMatchObject({ state: 'bad', says: expect.stringContaining('database') });
    expect(of('port')).toMatchObject({ state: 'bad', fix: expect.stringContaining('--port') });
    const open = join(scratch(), 'open');
    mkdirSync(open, { mode: 0o755 });
    expect((await found('--state-dir', open)).of('state')).toMatchObject({ state: 'note', fix: `run: chmod 700 ${open}` });
    const text = await interlane(['doctor', '--state-dir', state, '--port', String(port)]);
    expect(text.stdout).toContain('✗ config');
    expect(text.stdout).toMatch(/3 broken\.\n$/);
  });
});

describe('interlane export and import', () => {
  const exported = async (state: string, ...more: string[]) => {
    const { status, stdout, stderr } = await interlane(['export', '--state-dir', state, ...more]);
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
    return stdout;
  };

  it('a store that went out and came in again goes out the same', async () => {
    const [from, to] = [scratch(), scratch()];
    const file = join(scratch(), 'all.jsonl');
    const gateway = await up(from);
    const { say, use } = on(from);
    await say('hello');
    await use('send', 'main', 'more\u0007');
    const live = await exported(from);
    expect(live.split('\n')).toHaveLength(1 + 1 + 4 + 1);
    await stop(gateway);
    expect(await exported(from)).toBe(live);
    expect((await use('export', file)).stderr).toBe(`Exported 1 session to ${file}.\n`);
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect((await use('export', file)).status).toBe(65);

    expect((await on(to).use('import', file)).stdout).toBe('Imported 1 session.\n');
    expect(await exported(to)).toBe(live);
    expect((await on(to).use('import', file)).stdout).toMatch(/\b0\b.*\b1\b/);
    const second = await up(to);
    await on(to).say('go on');
    expect((await on(to).use('history', 'main')).stdout.split('\n')).toHaveLength(7);
    const running = await on(to).use('import', file);
    expect(running).toMatchObject({ status: 75 });
    await stop(second);

    const refused = await on(to).use('import', file);
    expect(refused).toMatchObject({ status: 65, stderr: expect.stringContaining('agent:main:main') });
    const renamed = await on(to).use('import', file, '--as-new', '--json');
    const [key] = (JSON.parse(renamed.stdout) as { imported: string[] }).imported;
    expect(key).toMatch(/^agent:main:imported:/);
    const texts = (lines: string) => [...lines.matchAll(/"text":"([^"]*)"/g)].map(([, text]) => text);
    expect(texts(await exported(to, '--session', key!))).toEqual(texts(live));
  });

  it('comes in over the empty main session of a first start', async () => {
    const [from, to] = [scratch(), scratch()];
    const gateway = await up(from);
    await on(from).say('hello');
    await stop(gateway);
    await stop(await up(to));
    const lines = await exported(from, '--session', 'main');
    expect((await interlane(['import', '-', '--state-dir', to], { input: lines })).status).toBe(0);
    expect(await exported(to)).toBe(lines);
  });

  it('refuses what is not whole, by line, and changes nothing', async () => {
    const [from, to] = [scratch(), scratch()];
    const gateway = await up(from);
    await on(from).say('hello');
    await stop(gateway);
    const lines = (await exported(from)).trimEnd().split('\n');
    const cases: [string[], RegExp][] = [
      [lines.slice(0, -1), /line 4 .*agent:main:main has 2 entries/],
      [lines.slice(1), /line 1 /],
      [[...lines.slice(0, 2), lines[3]!, lines[2]!], /line 3 .*order/],
      [[...lines, '{'], /line 5 .*JSON/],
      [lines.map((line) => line.replace('"key":"agent:main:main"', '"key":"agent:Main:main"')), /line 2 .*key/],
      [[...lines, ...lines.slice(1)], /order/],
      [[lines[0]!], /no .*session/],
    ];
    for (const [input, says] of cases) {
      const { status, stderr } = await interlane(['import', '-', '--state-dir', to], { input: input.join('\n') });
      expect({ status, stderr }).toEqual({ status: 65, stderr: expect.stringMatching(says) });
    }
    expect((await interlane(['export', '--state-dir', to])).status).toBe(66);
  });
});

describe('interlane completion', () => {
  /** What bash would offer for a line. */
  const offers = async (line: string, env: Record<string, string> = {}) => {
    const bin = scratch();
    writeFileSync(join(bin, 'interlane'), `#!/bin/sh\nexec "${process.execPath}" "${join(process.cwd(), 'bin/interlane.cjs')}" "$@"\n`, {
      mode: 0o755,
    });
    const program = `source <(interlane completion bash); COMP_LINE=$1; COMP_POINT=\${#1}; _interlane; printf '%s\\n' "\${COMPREPLY[@]}"`;
    const path = `${bin}:${process.env['PATH'] ?? ''}`;
    const { stdout, stderr } = await start('bash', ['-c', program, 'bash', line], { env: { ...env, PATH: path } }).finished;
    expect(stderr).toBe('');
    return stdout.trimEnd().split('\n');
  };

  it('completes commands, options and what options may be', async () => {
    expect(await offers('interlane se')).toEqual(['sessions', 'send']);
    expect(await offers('interlane token ro')).toEqual(['rotate']);
    expect(await offers('interlane sessions --a')).toEqual(['--agent', '--active', '--archived']);
    expect(await offers('interlane --state-dir x runs --state a')).toEqual(['aborted']);
    expect(await offers('interlane completion ')).toEqual(['bash', 'zsh', 'fish']);
  });

  it('completes session keys from the running gateway', async () => {
    const state = scratch();
    await up(state);
    const env = { INTERLANE_STATE_DIR: state };
    expect(await offers('interlane send ', env)).toEqual(['agent:main:main']);
    expect(await offers('interlane history agent:ma', env)).toEqual(['main:main']);
    expect(await offers('interlane send main ', env)).not.toContain('agent:main:main');
  });

  it('knows three shells', async () => {
    for (const shell of ['bash', 'zsh', 'fish']) expect((await interlane(['completion', shell])).stdout).toContain('sign-in');
    expect(await interlane(['completion', 'csh'])).toMatchObject({ status: 64, stdout: '' });
  });
});
