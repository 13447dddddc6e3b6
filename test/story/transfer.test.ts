// A store of every kind of session → lines → another store: the same lines again, and a gateway that goes on from there.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable, Writable } from 'node:stream';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { run } from '../../src/cli/program.ts';
import type { Terminal } from '../../src/cli/terminal.ts';
import { testGateway, type ConfigText, type ScriptText, type TestGateway } from '../harness/gateway.ts';

// Nothing here depends on how long it takes; a machine with other work to do may take its time.
vi.setConfig({ testTimeout: 30_000, hookTimeout: 30_000 });

const config: ConfigText = {
  agents: { list: [{ id: 'ana', default: true }, { id: 'bo' }] },
  session: { dmScope: 'per-peer', agentToAgent: { maxPingPongTurns: 1 } },
  tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } },
  classification: { channels: { loopback: 'INTERNAL' } },
};
const script: ScriptText = [
  {
    when: 'ask',
    steps: [
      { say: 'Asking.', calls: [{ tool: 'sessions_send', args: { sessionKey: 'agent:ana:direct:cy', message: 'hello' } }] },
      { say: 'Asked.' },
    ],
  },
  { steps: [{ say: 're: {{input}}' }] },
];

async function interlane(argv: string[], input = ''): Promise<{ status: number; stdout: string; stderr: string }> {
  const written = { stdout: '', stderr: '' };
  let ids = 0;
  const sink = (name: 'stdout' | 'stderr') =>
    new Writable({
      write(chunk: Buffer, _, done) {
        written[name] += chunk.toString();
        done();
      },
    });
  const terminal: Terminal = {
    argv,
    env: {},
    home: '/nowhere',
    stdin: Readable.from([input]),
    stdout: sink('stdout'),
    stderr: sink('stderr'),
    onSignal: () => () => {},
    onCrash() {},
    onOutputLost() {},
    now: () => 0,
    sleep: () => Promise.resolve(),
    newId: () => `id-${++ids}`,
  };
  return { status: await run(terminal), ...written };
}

/** Chats, a tool call, a second life, a child, an archived session, a label: then everything is at rest. */
async function busy(): Promise<TestGateway> {
  const stage = await testGateway({ config, script });
  await stage.say('hello', { from: 'cy' });
  await stage.finished();
  stage.clock.jump(1_000);
  await stage.say('ask', { from: 'dee' });
  await stage.finished();
  await stage.say('old', { from: 'eve' });
  await stage.finished();
  stage.clock.jump(1_000);
  await stage.reset('agent:ana:direct:eve');
  await stage.say('new\n\u0007"', { from: 'eve' });
  await stage.say('away', { from: 'fay' });
  await stage.finished();
  await stage.closeSession('agent:ana:direct:fay', 'archived', false);
  // The child was active before its parent, so it goes out before it.
  await stage.rows.setSession('agent:ana:direct:cy', { parent_key: 'agent:ana:direct:dee', depth: 1 });
  // What a real model's step leaves beside its text.
  await stage.rows.addToCalls({ reasoning: [{ type: 'reasoning', text: 'hm' }], callOptions: [null], cut: 'length' });
  await stage.rows.setSession('agent:ana:direct:dee', { label: 'kitchen', settings: '{"displayName":"Kitchen"}' });
  return stage;
}

function elsewhere(): string {
  const directory = mkdtempSync(join(tmpdir(), 'interlane-transfer-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

const lines = async (state: string, ...more: string[]) => {
  const { status, stdout, stderr } = await interlane(['export', '--state-dir', state, ...more]);
  expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
  return stdout;
};

describe('sessions as lines', () => {
  it('come in as they went out, and a gateway goes on from there', async () => {
    const stage = await busy();
    const out = await lines(stage.stateDir);
    expect(out).toContain('"label":"kitchen"');
    expect(out).toContain('"state":"archived"');
    expect(out).toContain('"life":2');
    expect(out).toContain('"spawnedBy":"agent:ana:direct:dee"');
    expect(out).toContain('"taint":"INTERNAL"');
    expect(out).toContain('"toolCallId"');
    expect(out).toContain('"callOptions":[null]');

    const to = elsewhere();
    expect(await interlane(['import', '-', '--state-dir', to], out)).toMatchObject({ status: 0, stderr: '' });
    expect(await lines(to)).toBe(out);

    const rows = async (one: TestGateway) =>
      (
        await one.rows.sessions(
          {},
          'key',
          'id',
          'life',
          'current',
          'label',
          'depth',
          'taint',
          'exist_taint',
          'level',
          'state',
          'next_seq',
          'last_at',
          'settings',
          'delivery',
        )
      ).toSorted((a, b) => a.key.localeCompare(b.key) || a.life - b.life);
    const list = async (one: TestGateway) =>
      (await one.rows.sessions({ current: 1 })).toSorted((a, b) => a.last_pos - b.last_pos).map(({ key }) => key);
    const before = await rows(stage);
    const listed = await list(stage);
    await stage.close();
    const second = await testGateway({ config, script, stateDir: to });
    expect(await rows(second)).toEqual(before);
    expect(await list(second)).toEqual(listed);
    await second.say('again', { from: 'cy' });
    await second.finished();
    expect((await second.rows.entries({}, 'text')).at(-1)).toEqual({ text: 're: again' });
  });

  it('of one session are a part of all', async () => {
    const stage = await busy();
    const all = await lines(stage.stateDir);
    const one = (await lines(stage.stateDir, '--session', 'agent:ana:direct:eve')).trimEnd().split('\n');
    expect(one.filter((line) => line.includes('"type":"session"'))).toHaveLength(2);
    expect(all).toContain(one.slice(1).join('\n'));
    expect(await interlane(['export', '--state-dir', stage.stateDir, '--session', 'nobody'])).toMatchObject({ status: 66 });
  });

  it('come in session by session: one that is taken stops all before anything is written, or comes in as a copy', async () => {
    const stage = await busy();
    const out = await lines(stage.stateDir);
    const to = elsewhere();
    const [head, ...rest] = out.trimEnd().split('\n');
    const eve = (await lines(stage.stateDir, '--session', 'agent:ana:direct:eve')).trimEnd().split('\n').slice(1);
    // Only its first life: so the key is there, but not as it is in the whole export.
    const first = [
      head!,
      ...eve.slice(
        0,
        eve.findLastIndex((line) => line.includes('"type":"session"')),
      ),
    ].join('\n');
    expect(await interlane(['import', '-', '--state-dir', to], first)).toMatchObject({ status: 0 });
    const before = await lines(to);
    expect(await interlane(['import', '-', '--state-dir', to], out)).toMatchObject({
      status: 65,
      stderr: expect.stringContaining('agent:ana:direct:eve'),
    });
    expect(await lines(to)).toBe(before);
    const done = await interlane(['import', '-', '--state-dir', to, '--as-new', '--json'], out);
    expect(JSON.parse(done.stdout)).toMatchObject({ renamed: { 'agent:ana:direct:eve': expect.stringMatching(/^agent:ana:imported:/) } });
    const after = (await lines(to)).split('\n');
    for (const line of rest.filter((one) => !eve.includes(one))) expect(after).toContain(line);
    expect(after.filter((line) => line.includes('"key":"agent:ana:imported:')).every((line) => !line.includes('"delivery"'))).toBe(true);
  });
});
