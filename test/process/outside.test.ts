// Outside MCP servers as tools: real child processes and a real HTTP server, that work, hang, die and lie.
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { testGateway, type ConfigText, type Refused, type TestGateway } from '../harness/gateway.ts';
import { toolsOf } from '../harness/inside.ts';
import { httpToolServer } from '../mock/mcp-http.ts';

type ServerText = NonNullable<NonNullable<ConfigText['mcp']>['servers']>[string];
const main = 'agent:main:main';

/** A file that the child server notes its starts and acts in. */
function logFile() {
  const dir = mkdtempSync(join(tmpdir(), 'interlane-mcp-'));
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }));
  const file = join(dir, 'log');
  const lines = (word: string) =>
    existsSync(file)
      ? readFileSync(file, 'utf8')
          .split('\n')
          .filter((line) => line.startsWith(`${word} `))
          .map((line) => line.slice(word.length + 1))
      : [];
  return { file, lines };
}

const child = (how: string, log: string, more: ServerText = {}): ServerText => ({
  command: process.execPath,
  args: ['test/mock/mcp-child.ts', how, log],
  ...more,
});

/** Nothing is late unless a test says so, however slow the machine is. */
const open = (server: ServerText, config: ConfigText = {}): Promise<TestGateway> =>
  testGateway({ config: { mcp: { servers: { mock: server } }, ...config }, caller: main, channels: [] });

const text = async (stage: TestGateway, tool: string, args: Record<string, unknown> = {}) => (await stage.tools([{ tool, args }]))[0]!.text;
const refused = async (stage: TestGateway, tool: string, args: Record<string, unknown> = {}) =>
  JSON.parse(await text(stage, tool, args)) as Refused;

const alive = (pid: number) => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};

describe('a child process', () => {
  it('is started when a session that may use it takes a turn, and not before', async () => {
    const log = logFile();
    const agents = { list: [{ id: 'main' }, { id: 'other' }, { id: 'strict', tools: { allow: ['sessions_*'] } }] };
    const stage = await open(child('well', log.file, { agents: ['main', 'strict'] }), { agents });
    expect(await stage.tool('mock__echo', { text: 'x' }, 'agent:other:main')).toMatchObject({ code: 'INVALID_REQUEST' });
    expect(await stage.tool('mock__echo', { text: 'x' }, 'agent:strict:main')).toMatchObject({ code: 'INVALID_REQUEST' });
    expect(log.lines('start')).toEqual([]);
    expect(await text(stage, 'mock__echo', { text: 'hello' })).toBe('echo: hello');
    const { tools } = await stage.tool<{ tools: string[] }>('session_status');
    expect(tools).toContain('mock__echo');
    expect(await stage.tool('mock__echo', { text: 'x' }, 'agent:other:main')).toMatchObject({ code: 'TOOL_NOT_ALLOWED' });
  });

  it('gets only a few harmless variables of our environment, and what the config lists', async () => {
    const log = logFile();
    vi.stubEnv('INTERLANE_TOKEN', 'ours');
    vi.stubEnv('ANTHROPIC_API_KEY', 'ours as well');
    onTestFinished(() => void vi.unstubAllEnvs());
    const stage = await open(child('well', log.file, { env: { GIVEN: 'yes' } }));
    const env = await stage.tool<Record<string, string>>('mock__environment');
    const harmless = new Set(['HOME', 'LOGNAME', 'PATH', 'SHELL', 'TERM', 'USER']);
    expect(Object.keys(env).filter((name) => !harmless.has(name))).toEqual(['GIVEN']);
  });

  it('is ended with the gateway, also one that does not want to', async () => {
    const log = logFile();
    const stage = await open(child('deaf', log.file));
    const asked = text(stage, 'sessions_list');
    await stage.clock.sleeping(5_000);
    await vi.waitFor(() => expect(log.lines('start')).not.toEqual([]), { timeout: 120_000 });
    await stage.clock.advance(5_000);
    expect(JSON.parse(await asked)).toMatchObject({ count: 1 });
    await stage.close();
    await vi.waitFor(() => expect(log.lines('start').map(Number).filter(alive)).toEqual([]), { timeout: 120_000 });
  });

  it('that cannot start costs a turn nothing but its tools; who calls one is told, and so is the operator', async () => {
    const log = logFile();
    const stage = await open(child('broken', log.file));
    expect(await stage.tool('sessions_list')).toMatchObject({ count: 1 });
    expect(await refused(stage, 'mock__echo', { text: 'x' })).toEqual({
      status: 'error',
      code: 'UNAVAILABLE',
      error: expect.stringContaining('mock') as unknown,
    });
    expect(stage.warnings).toContainEqual(expect.stringMatching(/mcp\.servers\.mock.*no such database; API_KEY=… "token": …$/));
  });

  it('that cannot start is tried again after pauses that grow', async () => {
    const log = logFile();
    const stage = await open(child('broken', log.file));
    const tries = async () => {
      const before = stage.warnings.length;
      await refused(stage, 'mock__echo');
      return stage.warnings.length - before;
    };
    // Each run asks twice: for what to offer, and for the call.
    expect(await tries()).toBe(2);
    expect(await tries()).toBe(0);
    stage.clock.jump(1_000);
    expect(await tries()).toBe(1);
    stage.clock.jump(1_000);
    expect(await tries()).toBe(0);
    stage.clock.jump(1_000);
    expect(await tries()).toBe(1);
    stage.clock.jump(3_600_000);
    expect(await tries()).toBe(1);
  });
});

describe('a call', () => {
  it('whose server dies is not made again when its effect is "once", and the next one finds a new server', async () => {
    const log = logFile();
    const stage = await open(child('well', log.file));
    expect(await refused(stage, 'mock__act', { name: 'and die' })).toMatchObject({ code: 'OUTCOME_UNKNOWN' });
    expect(log.lines('act')).toHaveLength(1);
    expect(await text(stage, 'mock__act', { name: 'more' })).toBe('done');
    expect((await stage.rows.calls({}, 'effect')).every(({ effect }) => effect === 'once')).toBe(true);
  });

  it('whose server dies is made again with the same key when its effect is "keyed", at most once', async () => {
    const log = logFile();
    const stage = await open(child('well', log.file, { tools: { act: { effect: 'keyed' } } }));
    expect(await refused(stage, 'mock__act', { name: 'and die' })).toMatchObject({ code: 'UNAVAILABLE' });
    const acts = log.lines('act');
    expect(acts).toHaveLength(2);
    expect(new Set(acts)).toEqual(new Set(['and die run0/1/0']));
    expect(await stage.rows.calls({}, 'effect')).toEqual([{ effect: 'keyed' }]);
  });

  it('that takes too long is given up, and the run goes on', async () => {
    const log = logFile();
    const stage = await open(child('well', log.file, { timeoutSeconds: 77 }));
    await text(stage, 'mock__echo', { text: 'x' });
    const asked = refused(stage, 'mock__wait');
    await stage.clock.sleeping(77_000);
    await stage.clock.advance(77_000);
    expect(await asked).toMatchObject({ code: 'OUTCOME_UNKNOWN', error: expect.stringContaining('77 s') });
    expect(await text(stage, 'mock__echo', { text: 'still there' })).toBe('echo: still there');
  });

  it('to a server that has stopped answering altogether ends that server; the next one finds a new one', async () => {
    const log = logFile();
    const stage = await open(child('well', log.file, { timeoutSeconds: 77 }));
    await text(stage, 'mock__echo', { text: 'x' });
    const stuck = Number(log.lines('start').at(-1));
    process.kill(stuck, 'SIGSTOP');
    const asked = refused(stage, 'mock__echo', { text: 'x' });
    await stage.clock.sleeping(77_000);
    await stage.clock.advance(77_000);
    expect(await asked).toMatchObject({ code: 'OUTCOME_UNKNOWN' });
    await stage.clock.sleeping(5_000);
    await stage.clock.advance(5_000);
    await vi.waitFor(() => expect(alive(stuck)).toBe(false), { timeout: 120_000 });
    expect(await text(stage, 'mock__echo', { text: 'new' })).toBe('echo: new');
    expect(stage.warnings).toEqual([expect.stringContaining('mcp.servers.mock')]);
  });

  it('ends with its run', async () => {
    const log = logFile();
    const stage = await open(child('well', log.file, { timeoutSeconds: 77 }));
    await text(stage, 'mock__echo', { text: 'x' });
    const asked = text(stage, 'mock__wait').catch((thrown: Error) => thrown.message);
    await stage.clock.sleeping(77_000);
    await stage.abort('run1', 'enough');
    expect(await asked).toContain('aborted');
  });

  it('that fails at the server is an error result with its words', async () => {
    const log = logFile();
    const stage = await open(child('well', log.file));
    const [row] = await stage.tools([{ tool: 'mock__wrong' }]);
    expect([row!.text, (JSON.parse(row!.body!) as { isError: boolean }).isError]).toEqual(['that went wrong', true]);
    expect(await text(stage, 'mock__echo', { text: 5 })).toContain('Invalid');
  });

  it('whose answer is long is cut and says so; one that is far too large ends the connection and not us', async () => {
    const log = logFile();
    const stage = await open(child('well', log.file));
    const long = await text(stage, 'mock__large');
    expect(long.lastIndexOf('\n')).toBe(80 * 1024);
    expect(long.slice(80 * 1024)).toMatch(/81920 .*300000 /);
    expect(await refused(stage, 'mock__huge')).toMatchObject({ code: 'OUTCOME_UNKNOWN' });
  });
});

describe('a hostile child process', () => {
  /** It answers like a server until its tool is called, and then writes what the test says. */
  const hostile = (harm: string): ServerText => ({
    command: process.execPath,
    args: [
      '-e',
      `const results = {
        initialize: { protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'hostile', version: '1' } },
        'tools/list': { tools: [{ name: 'harm', inputSchema: { type: 'object' } }] },
      };
      const flood = (stream, piece) => { while (stream.write(piece)); stream.once('drain', () => flood(stream, piece)); };
      require('node:readline').createInterface({ input: process.stdin }).on('line', (line) => {
        const { id, method } = JSON.parse(line);
        if (method === 'tools/call') { ${harm} }
        else if (id !== undefined) console.log(JSON.stringify({ jsonrpc: '2.0', id, ...(results[method] ? { result: results[method] } : { error: { code: -32601, message: 'no' } }) }));
      }).on('close', () => process.exit());`,
    ],
  });
  const answer = `console.log(JSON.stringify({ jsonrpc: '2.0', id, result: { content: [{ type: 'text', text: 'done' }] } }));`;

  it.each<[what: string, harm: string, why: RegExp]>([
    ['a line that never ends', `flood(process.stdout, 'x'.repeat(65536));`, /larger than 8388608 bytes/],
    ['a message of many values', `flood(process.stdout, '[' + '1,'.repeat(30000));`, /more than 100000 values/],
    [
      'a flood of messages',
      `flood(process.stdout, '{"jsonrpc":"2.0","method":"notifications/x"}\\n'.repeat(1000));`,
      /more than 5000 messages/,
    ],
    ['a flood of nonsense', `flood(process.stdout, 'x\\n'.repeat(1000));`, /more than 5000 messages/],
  ])('that writes %s is killed, and the gateway goes on', async (_, harm, why) => {
    const stage = await open(hostile(harm));
    expect(await refused(stage, 'mock__harm')).toMatchObject({ code: 'OUTCOME_UNKNOWN' });
    expect(stage.warnings).toEqual([expect.stringMatching(why)]);
    expect(await stage.tool('sessions_list')).toMatchObject({ count: 1 });
  });

  it('that floods its standard error waits until that is read, and its answers come', async () => {
    const stage = await open(hostile(`flood(process.stderr, 'x'.repeat(65536)); ${answer}`));
    expect(await text(stage, 'mock__harm')).toBe('done');
    expect(stage.warnings).toEqual([]);
  });

  it('that ends as often as it is started is started less and less often', async () => {
    const stage = await open(hostile(`process.exit(1);`));
    for (let n = 0; n < 10; n++) await text(stage, 'mock__harm');
    expect(stage.warnings.length).toBeLessThanOrEqual(3);
  });
});

describe('what a server says of its tools', () => {
  it('is cut short and cannot pass for the gateway', async () => {
    const log = logFile();
    const stage = await open(child('well', log.file));
    expect(stage.warnings).toEqual([]);
    const tools = await toolsOf(stage, main);
    expect(tools.get('mock__large')!.description).toHaveLength(400);
    expect(tools.get('mock__act')!.description).toBe('Forged |line| and more');
  });

  it('is asked for again when it has changed', async () => {
    const log = logFile();
    const stage = await open(child('well', log.file));
    expect(await text(stage, 'mock__more')).toBe('added');
    await vi.waitFor(async () => expect(await text(stage, 'mock__another')).toBe('new'), { timeout: 120_000 });
  });
});

describe('levels', () => {
  it("what a tool returns has its own level or its server's, and a session above what the server accepts does not call it", async () => {
    const log = logFile();
    const levels = { level: 'INTERNAL' as const, tools: { act: { level: 'PUBLIC' as const } } };
    const stage = await open(child('well', log.file, { ...levels, accepts: 'INTERNAL' }));
    const taint = async (tool: string, args: object) => (await stage.tools([{ tool, args: { ...args } }]))[0]!.taint;
    expect(await taint('mock__act', { name: 'x' })).toBe(0);
    expect(await taint('mock__echo', { text: 'x' })).toBe(1);
    expect(await taint('mock__echo', { text: 'x' })).toBe(1);
    await stage.tell(main, 'for few', { taint: 2 });
    expect(await refused(stage, 'mock__echo', { text: 'x' })).toMatchObject({ code: 'WRITE_DOWN' });
    expect(await refused(stage, 'session_status')).toMatchObject({
      toolsRefused: { mock__echo: expect.stringContaining('INTERNAL') },
    });
  });
});

describe('a server at an address', () => {
  it('is called with the headers of the config, and found again when it comes back', async () => {
    const first = await httpToolServer();
    const stage = await open({ url: first.url, headers: { 'x-key': 'k' }, effect: 'pure' });
    expect(await text(stage, 'mock__echo', { text: 'over http' })).toBe('echo: over http');
    expect(first.asked.every((headers) => headers.get('x-key') === 'k')).toBe(true);
    const once = await open({ url: first.url, effect: 'once' });
    expect(await text(once, 'mock__echo', { text: 'x' })).toBe('echo: x');
    await first.close();
    // Nothing listens there, so the call cannot have taken effect.
    expect(await refused(once, 'mock__echo', { text: 'x' })).toMatchObject({ code: 'UNAVAILABLE' });
    expect(await refused(stage, 'mock__echo', { text: 'x' })).toMatchObject({ code: 'UNAVAILABLE' });
    const second = await httpToolServer(first.port);
    onTestFinished(() => second.close());
    stage.clock.jump(60_000);
    expect(await text(stage, 'mock__echo', { text: 'again' })).toBe('echo: again');
  });

  it('that sends far too much is cut off', async () => {
    const server = await httpToolServer();
    onTestFinished(() => server.close());
    const stage = await open({ url: server.url });
    expect(await refused(stage, 'mock__huge')).toMatchObject({ code: 'OUTCOME_UNKNOWN' });
    expect(await text(stage, 'mock__echo', { text: 'x' })).toBe('echo: x');
  });
});
