// A store of every kind of session → lines → another store: the same lines again, and a gateway that goes on from there.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Readable, Writable } from 'node:stream';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { run } from '../../src/cli/program.ts';
import type { Terminal } from '../../src/cli/terminal.ts';
import { HandClock } from '../clock.ts';
import { forTest, say, Stage, type ConfigText, type ScriptText } from './stage.ts';

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
    now: () => 0,
    sleep: () => Promise.resolve(),
    newId: () => `id-${++ids}`,
  };
  return { status: await run(terminal), ...written };
}

/** Chats, a tool call, a second life, a child, an archived session, a label: then everything is at rest. */
async function busy(): Promise<Stage> {
  const stage = await forTest(new Stage(new HandClock())).start(config, script);
  const { gateway, clock } = stage;
  await say(gateway, 'hello', 'cy');
  await stage.settled();
  clock.time += 1_000;
  await say(gateway, 'ask', 'dee');
  await stage.settled();
  await say(gateway, 'old', 'eve');
  await stage.settled();
  clock.time += 1_000;
  await gateway.engine.reset('agent:ana:direct:eve');
  await say(gateway, 'new\n\u0007"', 'eve');
  await say(gateway, 'away', 'fay');
  await stage.settled();
  await gateway.engine.closeSession('agent:ana:direct:fay', 'archived', false);
  await gateway.store.write(
    {
      name: 'test child',
      *body(t) {
        // The child was active before its parent, so it goes out before it.
        yield* t.run(`UPDATE sessions SET parent_key = 'agent:ana:direct:dee', depth = 1 WHERE key = 'agent:ana:direct:cy'`);
        // What a real model's step leaves beside its text.
        yield* t.run(
          `UPDATE entries SET body = json_set(body, '$.reasoning', json('[{"type":"reasoning","text":"hm"}]'), '$.callOptions', json('[null]'), '$.cut', 'length')
           WHERE role = 'assistant' AND body LIKE '%"calls"%'`,
        );
        yield* t.run(`UPDATE sessions SET label = 'kitchen', settings = '{"displayName":"Kitchen"}' WHERE key = 'agent:ana:direct:dee'`);
      },
    },
    {},
  );
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

    const columns = `key, id, life, current, label, depth, taint, exist_taint, level, state, next_seq, last_at, settings, delivery`;
    const rows = (one: Stage) => one.rows(`SELECT ${columns} FROM sessions ORDER BY key, life`);
    const before = await rows(stage);
    const listed = await stage.rows(`SELECT key FROM sessions WHERE current = 1 ORDER BY last_pos`);
    await stage.close();
    const second = await forTest(new Stage(new HandClock(), to)).start(config, script);
    expect(await rows(second)).toEqual(before);
    expect(await second.rows(`SELECT key FROM sessions WHERE current = 1 ORDER BY last_pos`)).toEqual(listed);
    await say(second.gateway, 'again', 'cy');
    await second.settled();
    expect(await second.rows(`SELECT text FROM entries ORDER BY pk DESC LIMIT 1`)).toEqual([{ text: 're: again' }]);
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
      stderr: expect.stringContaining('import would overwrite 1 session (agent:ana:direct:eve)'),
    });
    expect(await lines(to)).toBe(before);
    const done = await interlane(['import', '-', '--state-dir', to, '--as-new', '--json'], out);
    expect(JSON.parse(done.stdout)).toMatchObject({ renamed: { 'agent:ana:direct:eve': expect.stringMatching(/^agent:ana:imported:/) } });
    const after = (await lines(to)).split('\n');
    for (const line of rest.filter((one) => !eve.includes(one))) expect(after).toContain(line);
    expect(after.filter((line) => line.includes('"key":"agent:ana:imported:')).every((line) => !line.includes('"delivery"'))).toBe(true);
  });
});
