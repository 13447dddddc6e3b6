// The commands that ask a running gateway, as a person and as a script would use them: what they print, where, and with which status.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { adminToken as token, testGateway, type ScriptText } from '../harness/gateway.ts';
import { started } from '../harness/terminal.ts';
import { printed } from '../harness/words.ts';

// Nothing here depends on how long it takes; a machine with other work to do may take its time.
vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

const script: ScriptText = [
  { when: 'fail', steps: [{ fail: 'the model is away' }] },
  { when: 'quiet', steps: [{ say: '' }] },
  { when: 'bell', steps: [{ say: '\u0007\u001b[31mred\u202e' }] },
  { when: 'status', steps: [{ say: 'Let me see.', calls: [{ tool: 'session_status', args: {} }] }, { say: 'All is well.' }] },
  { when: 'hold (\\w+)', steps: [{ calls: [{ tool: 'gate', args: { name: 'hold' } }] }, { say: 'held' }] },
  { when: 'stream', steps: [{ say: 'one two\nthree', stream: 4 }] },
  { steps: [{ say: 're: {{input}}' }] },
];

/** A gateway and a way to use the command line on it. */
async function open() {
  const config = { agents: { list: [{ id: 'main', name: 'Mina' }, { id: 'bo' }] } };
  const stage = await testGateway({ config, script, listen: { version: '1' }, stops: true, clock: 'real' });
  const gate = stage.stops;
  const start = (argv: string[], more: { tty?: boolean; input?: string; env?: Record<string, string> } = {}) =>
    started(argv, { ...more, env: { INTERLANE_STATE_DIR: stage.stateDir, ...more.env } });
  const use = (argv: string[], more?: Parameters<typeof start>[1]) => start(argv, more).finished;
  return { stage, gate, start, use };
}

const runIdIn = (text: string) => /[0-9a-f]{8}-[0-9a-f-]{27}/.exec(text)![0];

describe('the model line of interlane up', () => {
  const providers = `models: { providers: { mock: { type: 'openai-compatible', baseUrl: 'http://127.0.0.1:9/v1' } } }`;
  const key = { ANTHROPIC_API_KEY: 'not a real one' };
  const found = /^ {2}model +anthropic\/(\S+), with ANTHROPIC_API_KEY of the environment \(models\.discover: false turns this off\)$/m;
  const costs =
    /^ {2}costs +billed per token by anthropic; its prices: https:\S+ \(set models\.providers\.anthropic\.models\.\S+\.cost to see costs\)$/m;
  const cases: [why: string, config: string, env: Record<string, string>, lines: RegExp[]][] = [
    ['nothing is there', '{}', { INTERLANE_DISCOVER: '0' }, [/^ {2}model +scripted: it repeats/m]],
    ['a key is found', '{}', key, [found, costs]],
    [
      'the defaults name one',
      `{ ${providers}, agents: { defaults: { model: 'mock/d' } } }`,
      key,
      [/model +mock\/d \(agents\.defaults\.model\)$/m],
    ],
    [
      'the default agent has its own',
      `{ ${providers}, agents: { defaults: { model: 'mock/d' }, list: [{ id: 'bo' }, { id: 'ana', default: true, model: 'mock/own' }] } }`,
      {},
      [/model +mock\/own \(agents\.list: the model of ana\)$/m],
    ],
    [
      'only the default agent has one, and a key is found for others',
      `{ ${providers}, agents: { list: [{ id: 'ana', model: 'mock/own' }] } }`,
      key,
      [/model +mock\/own \(agents\.list: the model of ana\)$/m],
    ],
  ];

  it.each(cases)('when %s', async (_, config, env, lines) => {
    const state = mkdtempSync(join(tmpdir(), 'interlane-up-'));
    onTestFinished(() => rmSync(state, { recursive: true, force: true }));
    writeFileSync(join(state, 'interlane.json5'), config);
    const up = started(['up', '--port', '0'], { env: { INTERLANE_STATE_DIR: state, ...env } });
    await up.printed(printed.up);
    up.interrupt();
    const { stdout, status } = await up.finished;
    expect(status).toBe(0);
    for (const line of lines) expect(stdout).toMatch(line);
    expect(stdout.match(/^ {2}(model|costs) /gm)).toHaveLength(lines.length);
  });
});

describe('interlane explain tools', () => {
  const question = '{"session":{"key":"agent:main:main"}}';

  it('asks the running gateway, which knows tools that no file names', async () => {
    const { use } = await open();
    const { stdout, status } = await use(['explain', 'tools', question]);
    expect(status).toBe(0);
    expect(stdout).toMatch(/^ {2}✓ +gate /m);
    expect(stdout).toMatch(/\n.*running gateway\n$/);
    expect(JSON.parse((await use(['explain', 'tools', question, '--json'])).stdout)).toMatchObject({
      config: expect.stringContaining('running gateway'),
    });
    expect((await use(['explain', 'tools', '{}'])).status).toBe(65);
  });

  it('takes in what the gateway knows of the session', async () => {
    const config = {
      classification: { channels: { loopback: 'INTERNAL' as const } },
      mcp: { servers: { gone: { url: 'http://127.0.0.1:1/mcp', effect: 'pure' as const } } },
    };
    const gateway = await testGateway({ config, script, listen: { version: '1' }, clock: 'real' });
    const asked = ['explain', 'tools', '{"session":{"key":"main"},"tool":"gone__x"}'];
    const ask = async () => (await started(asked, { env: { INTERLANE_STATE_DIR: gateway.stateDir } }).finished).stdout;
    expect(await ask()).toMatch(/^agent:main:main .*gone__x\n/);
    await gateway.answer('a secret');
    expect(await ask()).toMatch(/^agent:main:main .*not gone__x\n[^]*INTERNAL/);
  });

  it('asks the file that is named, and the defaults when nothing runs', async () => {
    const { use, stage } = await open();
    const file = join(stage.stateDir, 'other.json5');
    writeFileSync(file, '{}');
    const named = await use(['explain', 'tools', question, '--config', file]);
    expect(named.stdout).toMatch(new RegExp(`\n.*${file}\n.*not asked`));
    expect(named.stdout).not.toContain(' gate ');
    await stage.close();
    expect((await use(['explain', 'tools', question])).stdout).toMatch(/\n.*defaults\nno gateway runs/);
  });
});

describe('interlane send', () => {
  it('prints the reply and nothing else', async () => {
    const { use } = await open();
    expect(await use(['send', 'main', 'hello', 'there'])).toEqual({ status: 0, stdout: 're: hello there\n', stderr: '' });
  });

  it('takes the name of an agent for its main session', async () => {
    const { use } = await open();
    const sent = await use(['send', 'bo', 'hello', '--json']);
    expect(sent).toMatchObject({ status: 0, stderr: expect.stringContaining('agent:bo:main') });
    expect(JSON.parse(sent.stdout)).toMatchObject({ sessionKey: 'agent:bo:main' });
    expect((await use(['send', 'nobody', 'hello'])).status).toBe(66);
  });

  it('reads the message from standard input', async () => {
    const { use } = await open();
    expect((await use(['send', 'main', '-'], { input: 'from a\npipe' })).stdout).toBe('re: from a\npipe\n');
    expect(await use(['send', 'main', '-'])).toMatchObject({ status: 64, stderr: expect.stringContaining('message') });
  });

  it('repeats in what it tells to run next which gateway it asked', async () => {
    const { use, stage } = await open();
    const where = ['--state-dir', stage.stateDir];
    const sent = await use(['send', 'main', 'hello', '--no-wait', ...where], { tty: true, env: { INTERLANE_STATE_DIR: '/nowhere' } });
    const next = /: interlane (wait \S+ .*)$/m.exec(sent.stderr)![1]!.split(' ');
    expect(await use(next, { env: { INTERLANE_STATE_DIR: '/nowhere' } })).toMatchObject({ status: 0, stdout: 're: hello\n' });
    expect((await use(['chat', ...where], { input: '/new\n' })).stdout).toContain(
      `interlane history main --life 1 --state-dir ${stage.stateDir}\n`,
    );
  });

  it('answers with the run as JSON', async () => {
    const { use } = await open();
    const { stdout } = await use(['send', 'main', 'hello', '--json']);
    expect(JSON.parse(stdout)).toMatchObject({ status: 'ok', sessionKey: 'agent:main:main', terminalReply: { text: 're: hello' } });
  });

  it('does not wait with --no-wait, and the reply can be asked for', async () => {
    const { use } = await open();
    const { stdout } = await use(['send', 'main', 'hello', '--no-wait']);
    expect(stdout).toMatch(/^[0-9a-f-]{36}\n$/);
    expect((await use(['wait', stdout.trim()])).stdout).toBe('re: hello\n');
  });

  it('says that the run goes on when the time is over, and how to ask again', async () => {
    const { use, gate } = await open();
    const late = await use(['send', 'main', 'hold on', '--timeout', '10ms']);
    expect(late).toMatchObject({ status: 75, stdout: '' });
    const runId = runIdIn(late.stderr);
    expect(late.stderr).toContain(`interlane wait ${runId}`);
    gate.open('hold');
    expect(await use(['wait', runId])).toEqual({ status: 0, stdout: 'held\n', stderr: '' });
  });

  it('stops waiting at Ctrl-C and says the same', async () => {
    const { start, gate } = await open();
    const sending = start(['send', 'main', 'hold on'], { tty: true });
    await gate.entered('hold');
    await sending.printed(printed.atWork('agent:main:main'), 'stderr');
    sending.interrupt();
    expect(await sending.finished).toMatchObject({ status: 75, stderr: expect.stringContaining('interlane wait') });
    gate.open('hold');
  });

  it('with the same key is the same message', async () => {
    const { use } = await open();
    const sent = ['send', 'main', 'hello', '--idempotency-key', 'once', '--no-wait'];
    const [first, second] = [await use(sent), await use(sent)];
    expect(second.stdout).toBe(first.stdout);
    expect((await use(['history', 'main'])).stdout.split('\n')).toHaveLength(3);
  });

  it('fails with the run, and with the words of the gateway', async () => {
    const { use } = await open();
    expect(await use(['send', 'main', 'fail'])).toMatchObject({
      status: 69,
      stdout: '',
      stderr: expect.stringContaining('the model is away'),
    });
    expect(await use(['send', 'mian', 'hello'])).toMatchObject({
      status: 66,
      stderr: expect.stringMatching(/^interlane: .*"mian".*agent:main:main.*\n$/),
    });
  });

  it('never lets a reply drive the terminal', async () => {
    const { use } = await open();
    const { stdout } = await use(['send', 'main', 'bell'], { tty: true });
    expect(stdout).toBe('\\u0007\\u001b[31mred\\u202e\n');
    for (const command of [['history', 'main'], ['sessions'], ['runs']]) {
      // oxlint-disable-next-line no-control-regex
      expect((await use(command, { tty: true })).stdout).not.toMatch(/[\u0007\u001b\u202e]/);
    }
  });
});

describe('the lists', () => {
  it('are tables on a terminal and tab-separated lines elsewhere', async () => {
    const { use } = await open();
    await use(['send', 'main', 'hello']);
    expect((await use(['sessions'], { tty: true })).stdout).toMatch(
      /^SESSION +KIND +ACTIVE +MESSAGES +STATE +LABEL\nagent:main:main +main +\d+s ago +2 +done\nagent:bo:main +main +\d+s ago +0 +idle\n$/,
    );
    const lines = (await use(['sessions'])).stdout.trimEnd().split('\n');
    expect(lines.map((line) => line.split('\t').slice(0, 2))).toEqual([
      ['agent:main:main', 'main'],
      ['agent:bo:main', 'main'],
    ]);
    expect((await use(['agents'])).stdout).toBe('main\tMina\tagent:main:main\tdefault\nbo\t\tagent:bo:main\t\n');
    expect((await use(['runs', 'main'])).stdout).toMatch(/^[0-9a-f-]{36}\tagent:main:main\tok\t2\d{3}-\S+Z\t\d+ms\t\n$/);
  });

  it('are filtered', async () => {
    const { use, stage } = await open();
    await stage.receive({ origin: { channel: 'loopback', peer: { kind: 'group', id: 'kitchen' } }, text: 'hello' });
    await use(['send', 'main', 'fail']);
    await stage.finished();
    const keys = async (...flags: string[]) => (await use(['sessions', '--keys', ...flags])).stdout.trimEnd().split('\n');
    expect(await keys('--kind', 'group')).toEqual(['agent:main:loopback:group:kitchen']);
    expect(await keys('--agent', 'bo')).toEqual(['agent:bo:main']);
    expect(await keys('--search', 'KITCH')).toEqual(['agent:main:loopback:group:kitchen']);
    expect(await keys('--active', '2h', '--limit', '1')).toHaveLength(1);
    expect(await keys('--label', 'none')).toEqual(['']);
    expect(await keys('--archived')).toEqual(['']);
    expect((await use(['runs', '--state', 'error,timeout', 'main', '--json'])).stdout).toContain('the model is away');
    expect(await use(['runs', '--state', 'lost'])).toMatchObject({ status: 64, stderr: expect.stringContaining('Allowed choices are') });
    expect(await use(['sessions', '--limit', '0'])).toMatchObject({ status: 64 });
  });

  it('show who spawned whom as a tree', async () => {
    const { use, stage } = await open();
    const child = (key: string, parent: string) => stage.rows.addChild(key, parent);
    await child('agent:main:subagent:a', 'agent:main:main');
    await child('agent:main:subagent:b', 'agent:main:main');
    await child('agent:main:subagent:c', 'agent:main:subagent:a');
    const { stdout } = await use(['sessions', '--tree']);
    expect(
      stdout
        .replaceAll(/ {2}\(.*/g, '')
        .trimEnd()
        .split('\n')
        .toSorted(),
    ).toEqual(
      [
        'agent:bo:main',
        'agent:main:main',
        '└─ agent:main:subagent:a',
        '   └─ agent:main:subagent:c',
        '├─ agent:main:subagent:b',
      ].toSorted(),
    );
  });

  it('show history with tools or without', async () => {
    const { use } = await open();
    await use(['send', 'main', 'status']);
    const spoken = async (...flags: string[]) =>
      (await use(['history', 'main', ...flags])).stdout
        .trimEnd()
        .split('\n')
        .map((line) => line.split('\t').slice(1).join(': '));
    expect(await spoken()).toEqual(['user: status', 'assistant: Let me see.', 'assistant: All is well.']);
    expect(await spoken('--limit', '1')).toEqual(['assistant: All is well.']);
    expect(await spoken('--tools')).toEqual([
      'user: status',
      'assistant: Let me see.\\n→ session_status {}',
      expect.stringMatching(/^result of session_status: \{/),
      'assistant: All is well.',
    ]);
    expect((await use(['history', 'main', '--limit', '1'], { tty: true })).stdout).toMatch(
      /^\d\d:\d\d:\d\d {2}assistant\n {2}All is well\.\n$/,
    );
    expect(JSON.parse((await use(['history', 'main', '--json'])).stdout)).toMatchObject({ sessionKey: 'agent:main:main' });
  });

  it('tell what the gateway is doing', async () => {
    const { use, stage } = await open();
    expect((await use(['status'])).stdout).toContain(`Interlane 1 at ${stage.server.url}, up 0s (process ${process.pid})`);
    expect(JSON.parse((await use(['status', '--json'])).stdout)).toMatchObject({
      agents: 2,
      runs: { running: 0 },
      url: stage.server.url,
    });
  });
});

describe('interlane tail', () => {
  it('shows all sessions as lines', async () => {
    const { start, use } = await open();
    const tail = start(['tail', '--json']);
    await tail.printed('"connected"');
    await use(['send', 'main', 'hello']);
    await tail.printed('"phase":"end"');
    tail.interrupt();
    const { status, stdout } = await tail.finished;
    expect(status).toBe(0);
    const events = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as { event: string; message?: { role: string }; phase?: string });
    expect(events.map(({ event, message, phase }) => [event, message?.role ?? phase])).toEqual([
      ['connected', undefined],
      ['session.message', 'user'],
      ['session.message', 'assistant'],
      ['sessions.changed', 'end'],
    ]);
  });

  it('goes on from a cursor', async () => {
    const { start, use } = await open();
    const first = start(['tail', 'main', '--json']);
    await first.printed('"connected"');
    first.interrupt();
    const { cursor } = JSON.parse((await first.finished).stdout) as { cursor: string };
    await use(['send', 'main', 'meanwhile']);
    const second = start(['tail', 'main', '--cursor', cursor]);
    await second.printed('re: meanwhile');
    second.interrupt();
    expect((await second.finished).stdout.split('\n').map((line) => line.split('\t').slice(1))).toEqual([
      ['user', 'meanwhile'],
      ['assistant', 're: meanwhile'],
      [],
    ]);
  });

  it('streams the text of one session on a terminal, and completes it once', async () => {
    const { start, use } = await open();
    const tail = start(['tail', 'main'], { tty: true });
    await tail.printed('following the session', 'stderr');
    await use(['send', 'main', 'stream']);
    await tail.printed('three\n');
    await use(['send', 'main', 'fail']);
    await use(['send', 'main', 'last']);
    await tail.printed('re: last');
    tail.interrupt();
    const { stdout } = await tail.finished;
    expect(stdout.replaceAll(/\d\d:\d\d:\d\d {2}/g, '')).toBe(
      'user\n  stream\nassistant\n  one two\n  three\nuser\n  fail\nuser\n  last\nassistant\n  re: last\n',
    );
  });

  it('refuses a session that is not there', async () => {
    const { use } = await open();
    expect(await use(['tail', 'mian'])).toMatchObject({ status: 66, stderr: expect.stringContaining('agent:main:main') });
  });
});

describe('interlane token', () => {
  it('makes, lists, rotates and ends tokens', async () => {
    const { use, stage } = await open();
    const { url } = stage.server;
    const made = await use(['token', 'create', 'ci', '--scope', 'write']);
    expect(made).toMatchObject({ status: 0, stdout: expect.stringMatching(/^il_\w+_[\w-]+\n$/), stderr: '' });
    const as = (secret: string) => use(['status', '--url', url, '--token', secret.trim()]);
    expect((await as(made.stdout)).status).toBe(0);
    expect(await use(['token', 'list', '--url', url, '--token', made.stdout.trim()])).toMatchObject({ status: 77 });
    expect((await use(['token', 'list'])).stdout).toMatch(/^admin\toperator\tadmin\t.*\nci\toperator\twrite\tRESTRICTED\t.*\n$/);
    const rotated = await use(['token', 'rotate', 'ci'], { tty: true });
    expect(rotated.stderr).not.toBe('');
    expect((await as(made.stdout)).status).toBe(77);
    expect((await as(rotated.stdout)).status).toBe(0);
    expect((await use(['token', 'revoke', 'ci'])).stdout).toContain('"ci"');
    expect(await as(rotated.stdout)).toMatchObject({ status: 77 });
    expect((await use(['token', 'revoke', 'ci'])).status).toBe(66);
    const brief = await use(['token', 'create', 'brief', '--scope', 'read', '--expires', '30d']);
    expect(brief.stderr).toMatch(/^Token "brief" works until \d{4}-\d\d-\d\d \d\d:\d\d UTC\.\n$/);
    expect((await use(['send', 'main', 'hi', '--url', url, '--token', brief.stdout.trim()])).stderr).toMatch(
      /^interlane: token "brief" may read, and this command needs write; .*--scope write\n$/,
    );
    for (const time of ['0d', '99999d', '30', '-1d', ''])
      expect(await use(['token', 'create', 'odd', '--expires', time])).toMatchObject({
        status: 64,
        stderr: expect.stringContaining('30d'),
      });
    expect((await use(['token', 'sign-in'])).stdout).toMatch(new RegExp(`^${url}/signin\\?code=\\S+\n$`));
  });
});

describe('finding the gateway', () => {
  it('by file, by address, by environment; the secret of the file goes only to the gateway that wrote it', async () => {
    const { use, stage } = await open();
    const { url } = stage.server;
    const elsewhere = { INTERLANE_STATE_DIR: '/nowhere' };
    expect((await use(['status', '--url', url])).status).toBe(0);
    expect((await use(['status'], { env: { ...elsewhere, INTERLANE_URL: url, INTERLANE_TOKEN: token } })).status).toBe(0);
    expect(await use(['status', '--url', url], { env: elsewhere })).toMatchObject({ status: 77 });
    expect(await use(['status', '--url', 'nonsense'])).toMatchObject({ status: 64 });
  });

  it('says what was looked for and what to do when there is none', async () => {
    const { use, stage } = await open();
    await stage.close();
    const { status, stderr } = await use(['send', 'main', 'hello']);
    expect(status).toBe(69);
    expect(stderr).toContain(`${stage.stateDir}/cli.json`);
    expect(stderr).toContain('interlane up');
  });
});
