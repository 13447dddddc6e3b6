// MCP with real programs: `interlane mcp` on its standard streams, a guest that is really killed, and the official inspector.
import { dirname, resolve } from 'node:path';
import { Client } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { describe, expect, it, onTestFinished } from 'vitest';
import { testGateway, type TestGateway } from '../harness/gateway.ts';
import { Guest } from '../harness/guest.ts';
import { interlane, start } from './child.ts';

const open = () => testGateway({ listen: true });
const fable = 'agent:main:guest:fable';

/** A harness that starts our program and speaks to it. */
async function harness(env: Record<string, string>, mode: 'auto' | 'legacy' = 'auto') {
  const transport = new StdioClientTransport({
    command: process.execPath,
    args: [resolve('bin/interlane.cjs'), 'mcp'],
    env,
    stderr: 'inherit',
  });
  const client = new Client({ name: 'harness', version: '1' }, mode === 'auto' ? { versionNegotiation: { mode } } : {});
  await client.connect(transport);
  onTestFinished(() => client.close());
  return { guest: new Guest(client), kill: () => process.kill(transport.pid!, 'SIGKILL') };
}

async function joined(stage: TestGateway) {
  const { token } = await stage.call('guests.join', { name: 'fable', see: 'agent' });
  return { INTERLANE_GUEST_TOKEN: token, INTERLANE_URL: stage.url };
}

describe.each(['auto', 'legacy'] as const)('interlane mcp, with a client in mode %s', (mode) => {
  it('is the session of its token: its instructions, its tools, its turns', async () => {
    const stage = await open();
    const { guest } = await harness(await joined(stage), mode);
    expect(guest.client.getInstructions()).toContain(fable);
    expect((await guest.client.listTools()).tools.map((tool) => tool.name)).toContain('inbox');
    expect(await guest.call('session_status')).toMatchObject({ key: fable });
    expect(await guest.call('sessions_list', { limit: 'x' })).toMatchObject({
      isError: true,
      error: expect.stringContaining('limit'),
    });
    const { runId } = await stage.call('sessions.send', { key: fable, message: 'Hello' });
    const { turnId } = await guest.message();
    expect(await guest.reply(turnId, 'Hi')).toMatchObject({ status: 'ok' });
    expect(await stage.wait(runId, 0)).toMatchObject({ state: 'ok', reply: 'Hi' });
  });
});

describe('interlane mcp', () => {
  it('finds the gateway of its state directory by itself', async () => {
    const stage = await open();
    const { INTERLANE_GUEST_TOKEN } = await joined(stage);
    const { guest } = await harness({ INTERLANE_GUEST_TOKEN, INTERLANE_STATE_DIR: stage.stateDir });
    expect(await guest.call('session_status')).toMatchObject({ key: fable });
  });

  it('says what is missing: a token, a gateway, a right one', async () => {
    const stage = await open();
    const none = await interlane(['mcp']);
    expect([none.status, none.stderr]).toEqual([77, expect.stringContaining('INTERLANE_GUEST_TOKEN')]);
    const away = await interlane(['mcp'], { env: { INTERLANE_GUEST_TOKEN: 'x' } });
    expect([away.status, away.stderr]).toEqual([69, expect.any(String)]);
    const wrong = await interlane(['mcp'], { env: { INTERLANE_GUEST_TOKEN: 'x', INTERLANE_URL: stage.url } });
    expect([wrong.status, wrong.stderr]).toEqual([69, expect.any(String)]);
    expect(none.stdout + away.stdout + wrong.stdout).toBe('');
  });

  it('killed in the middle of a turn loses nothing', async () => {
    const stage = await open();
    const env = await joined(stage);
    const first = await harness(env);
    const { runId } = await stage.call('sessions.send', { key: fable, message: 'Hard work' });
    expect(await first.guest.message()).toMatchObject({ messages: [{ text: 'Hard work' }] });
    first.kill();
    await stage.clock.advance(600_000);
    await stage.run(runId, 'waiting', 2);
    const second = await harness(env);
    const { turnId, attempt } = await second.guest.message();
    expect(attempt).toBe(2);
    await second.guest.reply(turnId, 'Done');
    expect(await stage.wait(runId, 0)).toMatchObject({ state: 'ok', reply: 'Done' });
  });
});

describe('the official inspector', () => {
  const program = resolve('node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js');
  const inspect = async (stage: TestGateway, token: string, ...args: string[]) => {
    const to = [`${stage.url}/mcp`, '--transport', 'http', '--header', `Authorization: Bearer ${token}`];
    const { status, stdout, stderr } = await start(process.execPath, [program, '--cli', ...to, ...args], { cwd: dirname(program) })
      .finished;
    expect([status, stderr]).toEqual([0, '']);
    return JSON.parse(stdout) as { tools: { name: string }[]; structuredContent: Record<string, unknown> };
  };

  it('lists and calls our tools', async () => {
    const stage = await open();
    const { INTERLANE_GUEST_TOKEN: token } = await joined(stage);
    const { tools } = await inspect(stage, token, '--method', 'tools/list');
    expect(tools.map((tool) => tool.name)).toEqual(expect.arrayContaining(['sessions_list', 'sessions_send', 'inbox', 'reply']));
    const called = await inspect(stage, token, '--method', 'tools/call', '--tool-name', 'sessions_list', '--tool-arg', 'limit=3');
    expect(called.structuredContent).toMatchObject({ count: 2, scope: 'agent' });
  });
});

describe('interlane join', () => {
  it('prints the token once, and a configuration for each harness that does not hold it', async () => {
    const stage = await open();
    const { status, stdout: printed, stderr } = await interlane(['join', 'fable', '--see', 'agent', '--state-dir', stage.stateDir]);
    expect([status, stderr]).toEqual([0, '']);
    const tokens = printed.match(/il_[0-9a-f]{16}_[\w-]{43}/g) ?? [];
    expect(tokens).toHaveLength(1);
    expect(printed).toContain(`export INTERLANE_GUEST_TOKEN=${tokens[0]}\n`);
    for (const file of ['.mcp.json', '~/.codex/config.toml', 'opencode.json', '~/.gemini/settings.json']) expect(printed).toContain(file);
    expect(printed).toContain(fable);
    // What it prints works: the address is ours, and the token is the guest's.
    const { url } = (
      JSON.parse(/Claude Code[^{]*(\{[\s\S]*?\n {5}\})/.exec(printed)![1]!) as { mcpServers: { interlane: { url: string } } }
    ).mcpServers.interlane;
    expect(url).toBe(`${stage.url}/mcp`);
    expect(await (await stage.mcp(tokens[0]!)).call('session_status')).toMatchObject({ key: fable });
  });

  it('joins a name once; with --rotate the guest gets another token, and --json prints everything as data', async () => {
    const stage = await open();
    const first = await interlane(['join', 'fable', '--json', '--state-dir', stage.stateDir]);
    expect(JSON.parse(first.stdout)).toMatchObject({ key: fable, created: true, see: 'tree', tokenName: 'guest:main:fable' });
    const again = await interlane(['join', 'fable', '--json', '--state-dir', stage.stateDir]);
    expect([again.status, again.stdout, again.stderr]).toEqual([65, '', expect.stringContaining('fable')]);
    const rotated = await interlane(['join', 'fable', '--rotate', '--json', '--state-dir', stage.stateDir]);
    const { token, created } = JSON.parse(rotated.stdout) as { token: string; created: boolean };
    expect(created).toBe(false);
    expect(await (await stage.mcp(token)).call('session_status')).toMatchObject({ key: fable });
    const old = (JSON.parse(first.stdout) as { token: string }).token;
    await expect(stage.mcp(old)).rejects.toThrow(/401/);
  });
});
