import { mkdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { parse } from 'acorn';
import { describe, expect, it } from 'vitest';
import { complaints, interlane, scratch, start, startInterlane } from './child.ts';

const route = '{"channel":"telegram","peer":{"kind":"direct","id":"42"}}';

describe('interlane up', () => {
  it.each(['SIGINT', 'SIGTERM'] as const)('prints what it has, stays up, and stops cleanly on %s', async (signal) => {
    const state = join(scratch(), 'state');
    const up = startInterlane(['up', '--port', '0', '--state-dir', state]);
    await up.printed('Up. Press Ctrl-C to stop.');
    up.child.kill(signal);
    const { status, stdout, stderr } = await up.finished;
    expect([status, complaints(stderr)]).toEqual([0, []]);
    expect(stdout).toContain('built-in defaults');
    expect(stdout).toContain(state);
    expect(stdout).toContain(`npx interlane send main "hello" --state-dir ${state}`);
    // Here standard output is a file: a secret would stay in it.
    expect(stdout).toContain('interlane token sign-in');
    expect(stdout).not.toMatch(/signin\?code=|il_[0-9a-f]{16}_/);
    expect(stdout).toMatch(/Stopped\.\n$/);
    expect(statSync(state).mode & 0o777).toBe(0o700);
  });

  it('shows the config it loaded and what is worth a look in it', async () => {
    const state = scratch();
    writeFileSync(
      join(state, 'interlane.json5'),
      `{ agents: { list: [{ id: 'a', name: 'Ana' }] }, bindings: [{ agentId: 'b', match: { channel: 'irc' } }], gateway: { port: 0 }, hooks: { enabled: true } }`,
    );
    const up = startInterlane(['up'], { env: { INTERLANE_STATE_DIR: state } });
    await up.printed('Up. Press Ctrl-C to stop.');
    up.child.kill('SIGTERM');
    const { stdout } = await up.finished;
    expect(stdout).toContain('Ana (default: a)');
    expect(stdout).toMatch(/! \S+:1:\d+ {2}hooks /);
    expect(stdout).toMatch(/! \S+:1:\d+ {2}bindings\[0\]\.agentId 'b' .*agents\.list/);
  });

  it('warns when others can read the state directory', async () => {
    const state = join(scratch(), 'open');
    mkdirSync(state, { mode: 0o755 });
    const up = startInterlane(['up', '--port', '0', '--state-dir', state]);
    await up.printed(`chmod 700 ${state}`);
    up.child.kill('SIGTERM');
    expect((await up.finished).status).toBe(0);
  });

  it('refuses a state directory that is a file, by name', async () => {
    const file = join(scratch(), 'file');
    writeFileSync(file, '');
    const { status, stderr } = await interlane(['up', '--state-dir', file]);
    expect(status).toBe(73);
    expect(stderr).toContain(`state directory ${file} cannot be used`);
  });
});

describe('interlane explain', () => {
  it('answers a question from the command line as text', async () => {
    const { status, stdout } = await interlane(['explain', 'route', route]);
    expect(status).toBe(0);
    expect(stdout).toMatch(/"main".*agent:main:main/);
    expect(stdout).toContain('✓ agent.default');
    expect(stdout).toMatch(/\n.*defaults\n/);
  });

  it('answers a question from standard input as JSON, by the config it is given', async () => {
    const config = join(scratch(), 'c.json5');
    writeFileSync(config, `{ session: { dmScope: 'per-channel-peer' }, bindings: [{ agentId: 'work', match: { channel: 'telegram' } }] }`);
    const { status, stdout } = await interlane(['explain', 'route', '--json', '--config', config], { input: route });
    expect(status).toBe(0);
    expect(JSON.parse(stdout)).toMatchObject({
      facts: { agentId: 'work', sessionKey: 'agent:work:telegram:direct:42', matchedBy: 'account', binding: 0 },
      config,
    });
  });

  it('explains a key given as plain text', async () => {
    const { stdout } = await interlane(['explain', 'key', 'Telegram:group:-100:topic:7', '--json']);
    expect(JSON.parse(stdout)).toMatchObject({
      facts: { sessionKey: 'agent:main:telegram:group:-100:topic:7', kind: 'group', parentSessionKey: 'agent:main:telegram:group:-100' },
    });
  });

  it('explains why text may not leave', async () => {
    const config = join(scratch(), 'c.json5');
    writeFileSync(config, `{ session: { sendPolicy: { rules: [{ match: { chatType: 'group' }, action: 'deny' }] } } }`);
    const { status, stdout } = await interlane(['explain', 'send', '{"session":{"key":"discord:group:9"}}', '--config', config]);
    expect(status).toBe(0);
    expect(stdout).toMatch(/BLOCK .*agent:main:discord:group:9 .*"discord"/);
    expect(stdout).toContain('✗ sendPolicy.rules[0]');
  });

  it('reads a short key as one of the caller', async () => {
    const { stdout } = await interlane(['explain', 'access', '{"caller":{"key":"agent:work:main"},"target":{"key":"main"}}']);
    expect(stdout).toMatch(/ALLOW agent:work:main .*agent:work:main/);
  });

  it('says that there is no destination where there is none', async () => {
    expect((await interlane(['explain', 'send', '{"session":{"key":"main"}}'])).stdout).toContain(
      'text of agent:main:main has no destination',
    );
  });

  it('lists the fields of a question in its help', async () => {
    const { stdout } = await interlane(['explain', 'access', '--help']);
    expect(stdout).toContain('caller.spawnedBy?: text');
    expect(stdout).toContain('action?: "list" | "read" | "status" | "send"');
  });

  it('explains which tools a session gets', async () => {
    const { stdout } = await interlane(['explain', 'tools', '{"session":{"key":"agent:main:subagent:1"}}']);
    expect(stdout).toContain('✗ sessions_send');
    expect(stdout).toContain('tools.subagents.tools.allow');
  });

  it('explains why one session cannot see another', async () => {
    const { stdout } = await interlane(['explain', 'access', '{"caller":{"key":"main"},"target":{"key":"agent:work:main"}}']);
    expect(stdout).toMatch(/BLOCK agent:main:main .*agent:work:main/);
    expect(stdout).toContain('✗ visibility');
    expect(stdout).toContain('only that no such session was found');
  });
});

describe('bad input', () => {
  const cases: [why: string, args: string[], status: number, says: string][] = [
    ['an unknown command', ['explode'], 64, "unknown command 'explode'"],
    ['an unknown topic', ['explain', 'rout', route], 64, "unknown command 'rout'"],
    ['an unknown option', ['up', '--colour'], 64, "unknown option '--colour'"],
    ['JSON that is none', ['explain', 'route', '{'], 65, 'question is not valid JSON'],
    ['JSON of another shape', ['explain', 'route', '[]'], 65, 'question is not valid'],
    [
      'an unknown field',
      ['explain', 'access', '{"caller":{"key":"main","scope":"all"},"target":{"key":"main"}}'],
      65,
      'unrecognized key: "scope"',
    ],
    ['an empty question', ['explain', 'send'], 65, 'question is not valid JSON'],
    ['a broken key', ['explain', 'key', 'agent::x'], 65, 'session key "agent::x" is not usable'],
    ['a reserved key', ['explain', 'key', 'unknown'], 65, '"unknown" is reserved'],
    ['a blank id', ['explain', 'route', '{"channel":"irc","peer":{"kind":"direct","id":" "}}'], 65, 'peer.id: must not be blank'],
    ['an empty path', ['config', 'check', '--config', ''], 64, '--config is empty'],
    ['a config that is no file', ['config', 'check', '--config', '/dev/zero'], 66, 'it is not a file'],
    ['a key beyond reason', ['explain', 'key', `direct:${'%peer-'.repeat(20_000)}`], 65, 'longer than'],
    ['a missing config', ['config', 'check', '--config', '/nowhere.json5'], 66, 'config file /nowhere.json5 does not exist'],
  ];

  it.each(cases)('%s ends with a plain message and a status', async (_, args, status, says) => {
    const result = await interlane(args);
    expect(result.status).toBe(status);
    expect(result.stderr).toContain(says);
    expect(result.stderr + result.stdout).not.toMatch(/\n\s+at |node:internal/);
  });

  it('in a config stops the start and says where', async () => {
    const config = join(scratch(), 'c.json5');
    writeFileSync(config, '{ sesion: {} }');
    const { status, stderr, stdout } = await interlane(['up', '--config', config]);
    expect({ status, stdout }).toEqual({ status: 78, stdout: '' });
    expect(stderr).toContain(`${config}:1:3  sesion is not a setting`);
  });
});

describe('output', () => {
  it('that nobody reads any more ends quietly', async () => {
    const { status, stdout, stderr } = await start('sh', ['-c', `"${process.execPath}" bin/interlane.cjs config docs | true`]).finished;
    expect({ status, stdout, stderr }).toEqual({ status: 0, stdout: '', stderr: '' });
  });

  it('that cannot be written is one plain line', async () => {
    const { stderr } = await start('sh', ['-c', `"${process.execPath}" bin/interlane.cjs config docs > /dev/full`]).finished;
    expect(stderr).toMatch(/^interlane: .*\n$/);
  });

  it('shows control characters of others instead of obeying them', async () => {
    const { stdout, stderr } = await interlane(['explain', 'route', '{"channel":"irc","peer":{"kind":"group","id":"a\\u001b[31m\\nb"}}']);
    const bad = await interlane(['explain', 'key', 'agent:\u001b[31m:x']);
    // oxlint-disable-next-line no-control-regex
    expect(stdout + stderr + bad.stderr).not.toMatch(/\u001b/);
  });
});

describe('interlane config', () => {
  it('prints the reference page', async () => {
    const { status, stdout } = await interlane(['config', 'docs']);
    expect(status).toBe(0);
    expect(stdout).toContain('`session.dmScope`');
  });

  it('checks a file', async () => {
    const config = join(scratch(), 'c.json5');
    writeFileSync(config, '{}');
    expect((await interlane(['config', 'check', '--config', config])).stdout).toBe(`${config} is fine.\n`);
  });
});

describe('the launcher', () => {
  it('is written in the JavaScript of 2009', () => {
    expect(() => parse(readFileSync('bin/interlane.cjs', 'utf8'), { ecmaVersion: 5, allowHashBang: true })).not.toThrow();
  });

  it('can be read by an old Node, names the Node it needs, and exits 69', async () => {
    const disguise = join(scratch(), 'old.cjs');
    writeFileSync(disguise, `Object.defineProperty(process.versions, 'node', { value: '0.10.48' });`);
    const { status, stderr, stdout } = await start(process.execPath, ['--require', disguise, 'bin/interlane.cjs', 'up']).finished;
    expect({ status, stdout }).toEqual({ status: 69, stdout: '' });
    expect(stderr).toMatch(/0\.10\.48.*24/);
  });
});
