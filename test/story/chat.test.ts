// `interlane chat` as a person and as a script would use it, on a real gateway: nothing twice, nothing missing, whatever breaks in between.
import { createServer, connect as dial, type Socket } from 'node:net';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { adminToken as token, testGateway, type ScriptText } from '../harness/gateway.ts';
import { started } from '../harness/terminal.ts';
import { exactly, printed, told } from '../harness/words.ts';
import { mockProvider } from '../mock/provider.ts';

// Nothing here depends on how long it takes; a machine with other work to do may take its time.
vi.setConfig({ testTimeout: 60_000, hookTimeout: 60_000 });

const script: ScriptText = [
  {
    agent: 'bo',
    when: 'tell',
    steps: [
      { calls: [{ tool: 'sessions_send', args: { sessionKey: 'agent:main:main', message: 'hi from bo', timeoutSeconds: 0 } }] },
      { say: 'told' },
    ],
  },
  { when: 'fail', steps: [{ fail: 'the model is away' }] },
  { when: 'quiet', steps: [{ say: '' }] },
  { when: 'bell', steps: [{ say: '\u0007\u001b[31mred\u202e\tend' }] },
  { when: 'slow', steps: [{ sleepMs: 20, say: 'one two three', stream: 4 }] },
  { when: 'long', steps: [{ say: 'word '.repeat(30).trim(), stream: 7 }] },
  {
    when: 'hold',
    steps: [
      { say: 'Let me see.', stream: 4, calls: [{ tool: 'gate', args: { name: 'hold' } }] },
      { sleepMs: 5, say: 'All is well.', stream: 3 },
    ],
  },
  { steps: [{ say: 're: {{input}}' }] },
];

async function open() {
  const config = {
    agents: { list: [{ id: 'main' }, { id: 'bo' }] },
    tools: { sessions: { visibility: 'all' as const }, agentToAgent: { enabled: true } },
    session: { agentToAgent: { maxPingPongTurns: 0 } },
    models: { providers: { mock: { type: 'openai-compatible' as const, baseUrl: 'http://127.0.0.1:9/v1', apiKey: 'none' } } },
  };
  const stage = await testGateway({ config, script, listen: { version: '1' }, stops: true, clock: 'real' });
  const gate = stage.stops;
  const env = { INTERLANE_STATE_DIR: stage.stateDir };
  /** A script: lines in, answers out. */
  const lines = (input: string, ...flags: string[]) => started(['chat', ...flags], { input, env });
  /** A person. */
  const sit = async (flags: string[] = [], columns = 80) => {
    const person = started(['chat', ...flags], { tty: true, keys: true, env, columns });
    await person.shows(/^› ?$/m);
    return person;
  };
  const history = async () =>
    (await started(['history', 'main'], { env }).finished).stdout.split('\n').map((line) => line.split('\t').slice(1).join(': '));
  return { stage, gate, env, lines, sit, history };
}

/** A wire to the gateway that is cut, once, at the moment something is about to come back through it. */
async function wire(to: number, cutBefore: string) {
  const sockets = new Set<Socket>();
  let whole = true;
  const server = createServer((near) => {
    const far = dial(to, '127.0.0.1');
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.on('error', () => {}).on('close', () => (near.destroy(), far.destroy(), sockets.delete(socket)));
    }
    near.pipe(far);
    far.on('data', (bytes: Buffer) => {
      if (whole && bytes.includes(cutBefore)) {
        whole = false;
        near.destroy();
      } else near.write(bytes);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.close();
    for (const socket of sockets) socket.destroy();
  });
  return `http://127.0.0.1:${(server.address() as { port: number }).port}`;
}

describe('chat in a pipe', () => {
  it('takes a line as a message and prints the answers, in order and nothing else', async () => {
    const { lines } = await open();
    expect(await lines('hello\n\nslow\nlast').finished).toEqual({
      status: 0,
      stdout: 're: hello\none two three\nre: last\n',
      stderr: '',
    });
  });

  it('tells of tools beside the answers', async () => {
    const { lines, gate } = await open();
    gate.open('hold');
    expect(await lines('hold\n').finished).toEqual({
      status: 0,
      stdout: 'All is well.\n',
      stderr: '(Let me see.)\n→ gate {"name":"hold"}\n',
    });
  });

  it('tells of the tools of every turn', async () => {
    const { lines, gate } = await open();
    gate.open('hold');
    const { stderr } = await lines('hold\nhold\n').finished;
    expect(stderr).toBe('(Let me see.)\n→ gate {"name":"hold"}\n'.repeat(2));
  });

  it('tells as much of tools as the session is set to, from the next call on', async () => {
    const { lines, gate } = await open();
    gate.open('hold');
    const see = '\\(Let me see\\.\\)\n';
    const call = `${see}→ gate {"name":"hold"}\n`;
    const { stderr } = await lines('/verbose off\nhold\n/verbose full\nhold\n/verbose default\nhold\n/verbose off').finished;
    expect(stderr).toMatch(new RegExp(`^${see}${call}← gate .*\n${call}$`));
    expect((await lines('hold').finished).stderr).toBe('(Let me see.)\n');
  });

  it('tells of a conversation that was summed up in one line, also on a terminal and afterwards', async () => {
    const tooLong = {
      status: 400,
      body: JSON.stringify({ error: { code: 'context_length_exceeded', message: 'context length exceeded' } }),
    };
    const provider = await mockProvider(({ text }) => {
      if (text.includes(told.summarize)) return { text: 'They count.' };
      return text.includes('first number') && text.includes('third') ? tooLong : { text: 'Noted.' };
    });
    onTestFinished(() => provider.close());
    const models = { providers: { mock: { type: 'openai-compatible' as const, baseUrl: provider.url, apiKey: 'none' } } };
    const { stateDir } = await testGateway({
      config: { models, agents: { defaults: { model: 'mock/m' } } },
      listen: { version: '1' },
      clock: 'real',
    });
    const env = { INTERLANE_STATE_DIR: stateDir };
    expect(await started(['chat'], { input: 'first number\nsecond\nthird', env }).finished).toEqual({
      status: 0,
      stdout: 'Noted.\nNoted.\nNoted.\n',
      stderr: `${printed.summedUp}\n`,
    });
    const person = started(['chat'], { tty: true, keys: true, env });
    await person.shows(new RegExp(`› third\n${exactly(printed.summedUp)}\nNoted\\.\n› ?$`));
  });

  it('prints no word of others, and no answer to them', async () => {
    const { env } = await open();
    const chat = started(['chat'], { keys: true, env });
    chat.press('hello\n');
    await chat.printed('re: hello');
    await started(['send', 'main', 'from another terminal'], { env }).finished;
    await chat.printed(`${printed.elsewhere} from another terminal\n(re: from another terminal)\n`, 'stderr');
    chat.hangUp();
    expect(await chat.finished).toMatchObject({ status: 0, stdout: 're: hello\n' });
  });

  it('says what got no answer, goes on, and ends with its status', async () => {
    const { lines } = await open();
    const { status, stdout, stderr } = await lines('fail\nquiet\nhello').finished;
    expect({ status, stdout }).toEqual({ status: 69, stdout: 're: hello\n' });
    expect(stderr).toContain('the model is away');
  });

  it('prints events as JSON', async () => {
    const { lines } = await open();
    const { stdout } = await lines('slow\n/verbose full\n', '--json').finished;
    const events = stdout
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line) as Record<string, unknown>);
    const of = (name: string) => events.filter(({ event }) => event === name);
    expect(of('session.message').map(({ message }) => (message as { role: string }).role)).toEqual(['user', 'assistant']);
    expect(
      of('chat')
        .map(({ deltaText }) => (typeof deltaText === 'string' ? deltaText : ''))
        .join(''),
    ).toBe('one two three');
    expect(of('ended')).toMatchObject([{ status: 'ok', terminalReply: { text: 'one two three' } }]);
    expect(of('command')).toMatchObject([{ command: 'verbose', ok: true }]);
    expect(events[0]).toMatchObject({ event: 'connected', cursor: expect.any(String) });
  });

  it('with an agent that is named alone, in its main session', async () => {
    const { lines, stage } = await open();
    expect(await lines('hello', 'bo').finished).toEqual({
      status: 0,
      stdout: 're: hello\n',
      stderr: expect.stringMatching(/^\(.*agent:bo:main\)\n$/),
    });
    expect(await stage.transcript('agent:bo:main')).toContain('user: hello');
  });

  it('in another session, and not in one that is not there', async () => {
    const { lines, stage } = await open();
    expect((await lines('hello', 'agent:bo:main').finished).stdout).toBe('re: hello\n');
    expect(await stage.rows.entries({ text: 'hello' })).toHaveLength(1);
    expect(await lines('hello', 'mian').finished).toMatchObject({
      status: 66,
      stderr: expect.stringContaining('agent:main:main'),
    });
  });

  it('stops at Ctrl-C what is being answered, and leaves at the next', async () => {
    const { env, gate } = await open();
    const chat = started(['chat'], { keys: true, env });
    chat.press('hold\n');
    await gate.entered('hold');
    chat.interrupt();
    await chat.printed(printed.stopped, 'stderr');
    chat.interrupt();
    expect(await chat.finished).toMatchObject({ status: 0, stdout: '' });
  });

  it('sends a message once whose acceptance was lost on the way, and gets its one answer', async () => {
    const { stage, env, history } = await open();
    const url = await wire(stage.server.port, '"status":"started"');
    const chat = started(['chat', '--url', url, '--token', token], { input: 'hello\nagain', env });
    const { status, stdout, stderr } = await chat.finished;
    expect({ status, stdout }).toEqual({ status: 0, stdout: 're: hello\nre: again\n' });
    expect(stderr).toMatch(new RegExp(`^\\(.*${exactly(printed.lost)}\n${exactly(printed.back)}\n$`));
    expect(await history()).toEqual(['user: hello', 'assistant: re: hello', 'user: again', 'assistant: re: again', '']);
  });

  it.each(['"state":"final"', '"role":"assistant"', '"phase":"start"'])(
    'misses and doubles nothing when the wire is cut before %s',
    async (place) => {
      const { stage, env, gate } = await open();
      gate.open('hold');
      const url = await wire(stage.server.port, place);
      const chat = started(['chat', '--url', url, '--token', token], { input: 'hold\nlast', env });
      expect((await chat.finished).stdout).toBe('All is well.\nre: last\n');
    },
  );
});

describe('a chat command', () => {
  /** What a command answers is one line, or more, that names this; the words themselves are pinned elsewhere. */
  const cases: [line: string, says: RegExp][] = [
    ['/status', /^agent:main:main .*\n[^]*PUBLIC[^]*[0-9a-f-]{36}.*\n$/],
    ['/model', /^Model: .*\n$/],
    ['/MODEL default', /^Model: .*\n$/],
    ['/think', /^Thinking: .*\n$/],
    ['/think high', /^Thinking: high\b.*\n$/],
    ['/thinking LOW', /^Thinking: low\b.*\n$/],
    ['/think high\n/think default', /^Thinking: high\b.*\nThinking: default\b.*\n$/],
    ['/verbose full\n/verbose', /^(Verbose: full\b.*\n){2}$/],
    ['/verbose on\n/verbose default', /^Verbose: on\b.*\nVerbose: default\b.*\n$/],
    ['/send', /^Delivery: (?!on|off).*\n$/],
    ['/send off\n/send on', /^Delivery: off\b.*\nDelivery: on\b.*\n$/],
    ['/send off\n/send inherit', /^Delivery: off\b.*\nDelivery: (?!on|off).*\n$/],
    ['/stop', /^.+\n$/],
    ['/help', /^\/new, \/reset .*\n\/status: [^]*\/help, \/commands: .*\n$/],
    ['/etc/hosts is broken', /^re: \/etc\/hosts is broken\n$/],
    ['/tmp is full', /^re: \/tmp is full\n$/],
    [' /status', /^re: {2}\/status\n$/],
    ['/new', /^.+\n$/],
    ['hello\n/reset\n/model', /^re: hello\n.+\nModel: .*\n$/],
  ];

  it.each(cases)('%j', async (line, says) => {
    const { lines } = await open();
    expect(await lines(line).finished).toEqual({ status: 0, stderr: '', stdout: expect.stringMatching(says) });
  });

  const refused: [line: string, status: number, names: RegExp][] = [
    ['/status please', 64, /\/status/],
    ['/model nowhere/nothing', 65, /"nowhere\/nothing".*models\.providers.*mock/],
    ['/think hgih', 64, /"hgih".*minimal.*high/],
    ['/think so', 64, /"so".*minimal.*high/],
    ['/verbose loud', 64, /"loud".*off, on, full, default/],
    ['/send maybe', 64, /"maybe".*on, off, inherit/],
    ['/stop it', 64, /\/stop/],
    ['/stauts', 64, /\/stauts.*\/status.*\/help/],
    ['/xyz', 64, /\/xyz.*\/help/],
  ];

  it.each(refused)('%j is refused with status %i, beside the answers', async (line, status, names) => {
    const { lines } = await open();
    const said = await lines(`${line}\nhello`).finished;
    expect(said).toEqual({ status, stderr: expect.stringMatching(/^\(.*\)\n$/), stdout: 're: hello\n' });
    expect(said.stderr).toMatch(names);
  });

  it('that begins a new life with a message sends it there', async () => {
    const { lines, history } = await open();
    expect((await lines('first\n/new second\nthird').finished).stdout).toMatch(/^re: first\n.+\nre: second\nre: third\n$/);
    expect(await history()).toEqual(['user: second', 'assistant: re: second', 'user: third', 'assistant: re: third', '']);
  });

  it('that stops does not wait for the answer it stops', async () => {
    const { lines } = await open();
    const { stdout, stderr } = await lines('hold\n/stop\nlast').finished;
    expect(stdout).toMatch(/^.+\nre: last\n$/);
    expect(stderr).toContain(printed.stopped);
  });

  it('of owners is refused to others', async () => {
    const { env, stage } = await open();
    const { stdout: secret } = await started(['token', 'create', 'guest', '--scope', 'write'], { env }).finished;
    const argv = ['chat', '--url', stage.server.url, '--token', secret.trim()];
    expect(await started(argv, { input: '/send off\n/new\n/think low\nhello', env }).finished).toEqual({
      status: 77,
      stdout: expect.stringMatching(/^.*\blow\b.*\nre: hello\n$/),
      stderr: expect.stringMatching(/^\(\/send .*\)\n\(\/new .*\)\n$/),
    });
  });
});

describe('chat on a terminal', () => {
  it('shows what was said, takes lines, shows answers once, and says how to come back', async () => {
    const { lines, sit } = await open();
    await lines('before').finished;
    const person = await sit();
    expect(person.screen).toBe('› before\nre: before\n›');
    person.press('slow\r');
    await person.shows(/one two three\n› ?$/);
    person.press('/think low\r');
    await person.shows(/^Thinking: low\b.*\n› ?$/m);
    person.press('\u0004');
    expect((await person.finished).status).toBe(0);
    expect(person.screen).toMatch(
      /^› before\nre: before\n› slow\none two three\n› \/think low\nThinking: low\b.*\n\(.*interlane chat main\)$/,
    );
  });

  it('brings back what was said with the arrow keys, and completes commands', async () => {
    const { lines, sit } = await open();
    await lines('first\nsecond').finished;
    const person = await sit(['--history', '0']);
    person.press('\u001b[A\u001b[A');
    await person.shows(/^› first$/m);
    person.press('\u0003');
    await person.shows(/^› ?$/m);
    person.press('/verb\t');
    await person.shows(/^› \/verbose$/m);
    expect(person.screen).toBe('› /verbose');
  });

  it('stops an answer at Ctrl-C, and leaves at the next', async () => {
    const { sit, gate } = await open();
    const person = await sit();
    person.press('hold\r');
    await gate.entered('hold');
    await person.shows('→ gate {"name":"hold"}');
    expect(person.screen).toContain('Let me see.\n→ gate');
    person.press('\u0003');
    await person.shows(new RegExp(`${exactly(printed.stopped)}\n› ?$`));
    person.press('\u0003');
    expect((await person.finished).status).toBe(0);
    expect(person.screen).toMatch(/\(.*interlane chat main\)$/);
  });

  it('asks once more before it leaves at Ctrl-C', async () => {
    const { sit } = await open();
    const person = await sit();
    person.press('\u0003');
    await person.shows(printed.leaves);
    person.press('hello\r');
    await person.shows(/re: hello\n› ?$/);
    person.press('\u0003\u0003');
    expect((await person.finished).status).toBe(0);
  });

  it('keeps the line that is written while others speak, and marks who they are', async () => {
    const { sit, stage, env } = await open();
    const person = await sit();
    person.press('half a th');
    await person.shows('› half a th');
    await started(['send', 'main', 'from another terminal'], { env }).finished;
    await person.shows(new RegExp(`${printed.elsewhere} from another terminal\nre: from another terminal\n› half a th$`));
    await started(['send', 'agent:bo:main', 'tell'], { env }).finished;
    await person.shows(`${printed.from('agent:bo:main')} hi from bo\nre: hi from bo\n`);
    await person.shows(new RegExp(`${printed.announceFrom('agent:bo:main')} (.*)\nre: \\1\n› half a th$`));
    person.press('ought\r');
    await person.shows(/re: half a thought\n› ?$/);
    await stage.say('by channel');
    await person.shows(new RegExp(`${printed.elsewhere} by channel\nre: by channel\n› ?$`));
    expect(person.screen.match(/^re: /gm)).toHaveLength(5);
  });

  it('wraps what streams at words, and redraws a line of several rows below it', async () => {
    const { sit, env } = await open();
    const person = await sit([], 24);
    const typed = 'x'.repeat(60);
    person.press(typed);
    await person.shows(/x{24}\nx{14}$/);
    await started(['send', 'main', 'long'], { env }).finished;
    await person.shows(/\nword word\n› x{22}\nx{24}\nx{14}$/);
    const answer = `${'word word word word\n'.repeat(7)}word word`;
    expect(person.screen).toBe(`${printed.elsewhere} long\n${answer}\n› ${typed.slice(0, 22)}\n${typed.slice(22, 46)}\n${typed.slice(46)}`);
  });

  it('sends a paste of several lines as one message', async () => {
    const { sit, history } = await open();
    const person = await sit();
    person.press('\u001b[200~one\ntwo\r\nthree\n\u001b[20');
    person.press('1~ four\r');
    await person.shows(/re: one\ntwo\nthree four\n› ?$/);
    expect(await history()).toEqual(['user: one\\ntwo\\nthree four', 'assistant: re: one\\ntwo\\nthree four', '']);
  });

  it('never lets an answer drive the terminal', async () => {
    const { sit } = await open();
    const person = await sit();
    person.press('bell\r');
    await person.shows('\\u0007\\u001b[31mred\\u202e    end\n›');
    // oxlint-disable-next-line no-control-regex
    expect(person.raw).not.toMatch(/\u0007|\u001b\[31m|\u202e/);
  });

  it('goes on with another gateway on the same state, which answers what was written while there was none', async () => {
    const { stage, sit, history } = await open();
    const person = await sit([], 200);
    person.press('hello\r');
    await person.shows(/re: hello\n› ?$/);
    await stage.close();
    await person.shows(printed.lost);
    person.press('are you there?\r');
    await person.shows(/^› are you there\?\n/m);
    await stage.start({ config: {}, listen: { version: '1', port: 0 } });
    await person.shows(/re: are you there\?\n› ?$/);
    const again = `\\(.*${exactly(printed.lost)}\n› are you there\\?\n${exactly(printed.back)}\n`;
    expect(person.screen).toMatch(new RegExp(`^› hello\nre: hello\n${again}re: are you there\\?\n›$`));
    expect(await history()).toEqual(['user: hello', 'assistant: re: hello', 'user: are you there?', 'assistant: re: are you there?', '']);
  });

  it('says when the connection is lost, sends what was written meanwhile when it is back, and shows it once', async () => {
    const { stage, env, history } = await open();
    const url = await wire(stage.server.port, '"status":"started"');
    const person = started(['chat', '--url', url, '--token', token], { tty: true, keys: true, env, columns: 80 });
    await person.shows(/^› ?$/m);
    person.press('hello\r');
    await person.shows(printed.lost);
    person.press('and this\r');
    await person.shows(/re: and this\n› ?$/);
    expect(person.screen.match(/re: hello/g)).toHaveLength(1);
    expect(person.screen.match(/re: and this/g)).toHaveLength(1);
    expect(await history()).toEqual(['user: hello', 'assistant: re: hello', 'user: and this', 'assistant: re: and this', '']);
  });
});
