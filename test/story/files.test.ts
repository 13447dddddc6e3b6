// The workspace tools: what a session writes it reads again, and nothing it can say or do leads out of its own directory.
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as fc from 'fast-check';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { Workspace } from '../../src/tools/workspace.ts';
import { testGateway, type ConfigText } from '../harness/gateway.ts';
import { refusal } from '../harness/refusal.ts';

vi.setConfig({ testTimeout: 30_000 });

const main = 'agent:main:main';
const open = (config: ConfigText = {}) => testGateway({ config, caller: main, channels: [] });

function directory(): string {
  const path = mkdtempSync(join(tmpdir(), 'interlane-files-'));
  onTestFinished(() => rmSync(path, { recursive: true, force: true }));
  return path;
}

type Listing = { count: number; entries: { name: string; size?: number; kind?: string }[]; truncated?: true };
type Part = { size: number; text: string; nextOffset?: number };

describe('a workspace', () => {
  it('is empty at first, and gives back what was written', async () => {
    const stage = await open();
    expect(await stage.tool('files_list')).toEqual({ count: 0, entries: [] });
    expect(await stage.tool('files_write', { path: 'notes/today.md', text: 'hëllo' })).toEqual({ size: 6, created: true });
    expect(await stage.tool('files_write', { path: './notes//today.md', text: 'new' })).toEqual({ size: 3, created: false });
    expect(await stage.tool('files_read', { path: 'notes/today.md' })).toEqual({ size: 3, text: 'new' });
    expect(await stage.tool('files_list')).toEqual({ count: 1, entries: [{ name: 'notes/' }] });
    expect(await stage.tool('files_list', { path: 'notes' })).toEqual({ count: 1, entries: [{ name: 'today.md', size: 3 }] });
  });

  it("is a session's own: others have another, a child too, and a new life begins with an empty one", async () => {
    const stage = await open();
    const child = 'agent:main:subagent:1';
    for (const key of [child, 'agent:main:direct:ana']) await stage.tell(key, 'hello');
    await stage.rows.setSession(child, { depth: 1, parent_key: main });
    for (const from of [main, child, 'agent:main:direct:ana']) {
      expect(await stage.tool('files_list', {}, from)).toMatchObject({ count: 0 });
      await stage.tool('files_write', { path: 'a.txt', text: from }, from);
    }
    for (const from of [main, child, 'agent:main:direct:ana'])
      expect(await stage.tool<Part>('files_read', { path: 'a.txt' }, from)).toMatchObject({ text: from });
    const homes = readdirSync(join(stage.stateDir, 'workspaces', 'main'));
    expect(homes).toHaveLength(3);
    for (const home of homes) expect(readdirSync(join(stage.stateDir, 'workspaces', 'main', home))).toEqual(['a.txt']);
    await stage.reset(main);
    expect(await stage.tool('files_list')).toMatchObject({ count: 0 });
  });

  it("of an agent's main session is where the config says; its other sessions stay out of it", async () => {
    const workspace = directory();
    writeFileSync(join(workspace, 'plan.md'), 'the plan');
    const stage = await open({ agents: { list: [{ id: 'main', workspace }] } });
    expect(await stage.tool('files_read', { path: 'plan.md' })).toEqual({ size: 8, text: 'the plan' });
    await stage.tell('agent:main:direct:ana', 'hello');
    expect(await stage.tool('files_read', { path: 'plan.md' }, 'agent:main:direct:ana')).toEqual(refusal('INVALID_REQUEST', 'plan.md'));
    await stage.tool('files_write', { path: 'done.md', text: 'x' });
    expect(readFileSync(join(workspace, 'done.md'), 'utf8')).toBe('x');
  });

  it('that holds the state directory, or lies in it, is refused at the start', async () => {
    const stateDir = directory();
    for (const workspace of [tmpdir(), stateDir, join(stateDir, 'workspaces')]) {
      const config = { agents: { list: [{ id: 'main', workspace }] } };
      await expect(testGateway({ config, stateDir })).rejects.toMatchObject({ code: 'CONFIG_INVALID' });
    }
  });

  it('labels what it shows with the level of its session', async () => {
    const stage = await open();
    await stage.tell(main, 'for few', { taint: 2 });
    const rows = await stage.tools([{ tool: 'files_write', args: { path: 'a', text: 'x' } }, { tool: 'files_list' }]);
    expect(rows.map((row) => row.taint)).toEqual([2, 2]);
  });

  it('that is configured has a level of its own, which a reset does not lower', async () => {
    const workspace = directory();
    const list = [
      { id: 'main', workspace },
      { id: 'inner', workspace: join(workspace, 'inner') },
    ];
    const stage = await testGateway({ config: { agents: { list } }, caller: main, channels: [], listen: true });
    await stage.tell(main, 'for few', { taint: 3 });
    await stage.tool('files_write', { path: 'inner/secret.md', text: 'the launch code' });
    await stage.reset(main);
    await stage.restart();
    const low = await stage.token('low', { scopes: ['operator.read'], level: 'CONFIDENTIAL' });
    const asked = { tool: 'files_read', args: { path: 'inner/secret.md' } };
    const refused = { ok: false, result: { code: 'ABOVE_CLEARANCE' } };
    expect(await stage.call('tools.invoke', asked, low)).toMatchObject(refused);
    expect(await stage.call('tools.invoke', { tool: 'files_list', sessionKey: 'agent:inner:main' }, low)).toMatchObject(refused);
    expect(await stage.call('tools.invoke', { ...asked, args: { path: 'no-such-file' } }, low)).toMatchObject(refused);
    expect(await stage.call('tools.invoke', asked)).toMatchObject({ ok: true, result: { text: 'the launch code' } });
    // The session that reads it rises, also by reading that a file is missing.
    expect((await stage.rows.session(main)).taint).toBe(0);
    expect(await stage.tool('files_read', { path: 'no-such-file' })).toMatchObject({ code: 'INVALID_REQUEST' });
    expect((await stage.rows.session(main)).taint).toBe(3);
  });

  it('takes so many bytes and files, and again when some were deleted', async () => {
    const workspace = directory();
    const config = { agents: { list: [{ id: 'main', workspace }] }, tools: { files: { maxMiB: 1, maxFiles: 3 } } };
    const stage = await open(config);
    const write = (path: string, size: number) => stage.tool('files_write', { path, text: 'x'.repeat(size) });
    expect(await write('a', 600_000)).toMatchObject({ created: true });
    expect(await write('b', 600_000)).toMatchObject({ code: 'WORKSPACE_FULL' });
    expect(readdirSync(workspace)).toEqual(['a']);
    expect(await write('a', 1_000_000)).toMatchObject({ created: false });
    rmSync(join(workspace, 'a'));
    for (const path of ['b', 'c/d', 'e']) expect(await write(path, 300_000)).toMatchObject({ created: true });
    expect(await write('f', 1)).toMatchObject({ code: 'WORKSPACE_FULL' });
    expect(await write('e', 10)).toMatchObject({ size: 10, created: false });
  });

  it('has no more room for writes at the same time, and counts files that came or went by hand', async () => {
    const workspace = directory();
    const inner = join(workspace, 'inner');
    const list = [
      { id: 'main', workspace },
      { id: 'bo', workspace: inner },
    ];
    const config = { agents: { list }, tools: { files: { maxMiB: 1, maxFiles: 100 } } };
    const stage = await testGateway({ config, caller: main, channels: [], listen: true });
    const token = await stage.token('program', { sessionKey: main });
    const atOnce = (count: number, path: (n: number) => string, size: number) =>
      Promise.all(Array.from({ length: count }, (_, n) => stage.post('/tools/files_write', write(path(n), size).args, { token })));
    const write = (path: string, size: number) => ({ tool: 'files_write', args: { path, text: 'x'.repeat(size) } });
    const bytes = async () => (await stage.rows.workspaces()).map((row) => row.bytes);
    await stage.tools([write('a', 900_000)]);
    await atOnce(6, () => 'a', 0);
    expect(await bytes()).toEqual([0]);
    await atOnce(6, (n) => `f${n}`, 300_000);
    expect(readdirSync(workspace).filter((name) => name.startsWith('f'))).toHaveLength(3);
    for (const name of readdirSync(workspace)) rmSync(join(workspace, name), { recursive: true });
    writeFileSync(join(workspace, 'by-hand'), 'x'.repeat(200_000));
    // The row says 900,000, the directory 200,000; the inner workspace counts what is in the outer one.
    await stage.tools([write('g', 500_000)], 'agent:bo:main');
    expect(await bytes()).toEqual([700_000]);
    writeFileSync(join(workspace, 'by-hand'), 'x'.repeat(600_000));
    expect(await stage.tool('files_write', write('h', 400_000).args)).toMatchObject({ code: 'WORKSPACE_FULL' });
    expect(await bytes()).toEqual([1_100_000]);
    // What shrinks by more than the row has leaves nothing.
    writeFileSync(join(inner, 'g'), 'x'.repeat(2_000_000));
    await stage.tools([write('inner/g', 0)]);
    expect(await bytes()).toEqual([0]);
  });

  it('says what is wrong in its own words, and not where it is', async () => {
    const workspace = join(directory(), 'a-file');
    writeFileSync(workspace, '');
    const stage = await open({ agents: { list: [{ id: 'main', workspace }] } });
    for (const tool of ['files_write', 'files_list']) {
      const { error } = await stage.tool(tool, { path: 'a', ...(tool === 'files_write' ? { text: 'x' } : {}) });
      expect(error).not.toContain('a-file');
    }
    await stage.reload({});
    await stage.tool('files_write', { path: 'a', text: 'four' });
    for (const offset of [5, 2 ** 53, 1e300])
      expect(await stage.tool('files_read', { path: 'a', offset })).toMatchObject({
        code: 'INVALID_REQUEST',
        error: expect.stringContaining('which has 4 bytes') as string,
      });
    expect(await stage.tool('files_read', { path: 'a', offset: 4 })).toEqual({ size: 4, text: '' });
  });

  it('is written by a call that may be made again', async () => {
    const stage = await open();
    await stage.tools(['files_write', 'files_read', 'files_list'].map((tool) => ({ tool, args: { path: 'a', text: 'x' } })));
    expect(await stage.rows.calls({}, 'tool', 'effect')).toEqual([
      { tool: 'files_write', effect: 'keyed' },
      { tool: 'files_read', effect: 'pure' },
      { tool: 'files_list', effect: 'pure' },
    ]);
    const workspace = new Workspace(directory());
    await workspace.write('a', 'x', 'key');
    await workspace.write('a', 'x', 'key');
    expect(await workspace.list('', 10)).toMatchObject({ entries: [{ name: 'a', size: 1 }] });
  });
});

describe('a file', () => {
  it('that is long comes in parts that fit together, whatever the characters', async () => {
    const stage = await open();
    const text = 'aé漢😀'.repeat(20_000);
    await stage.tool('files_write', { path: 'long.txt', text });
    let [read, offset]: [string, number | undefined] = ['', 0];
    while (offset !== undefined) {
      const part: Part = await stage.tool('files_read', { path: 'long.txt', offset });
      expect(part.text.length).toBeLessThanOrEqual(64 * 1024);
      read += part.text;
      offset = part.nextOffset;
    }
    expect(read).toBe(text);
    expect(await stage.tool('files_read', { path: 'long.txt', offset: 1e9 })).toMatchObject({ code: 'INVALID_REQUEST' });
  });

  it('that is too large, no text, or no file is refused', async () => {
    const workspace = directory();
    const stage = await open({ agents: { list: [{ id: 'main', workspace }] } });
    writeFileSync(join(workspace, 'image'), Buffer.from([0x89, 0x50, 0x4e, 0x47, 0xff]));
    writeFileSync(join(workspace, 'zeros'), Buffer.alloc(10));
    mkdirSync(join(workspace, 'dir'));
    const socket = createServer().listen(join(workspace, 'socket'));
    onTestFinished(() => void socket.close());
    expect(await stage.tool('files_read', { path: 'image' })).toEqual(refusal('INVALID_REQUEST', 'image'));
    expect(await stage.tool('files_read', { path: 'zeros' })).toEqual(refusal('INVALID_REQUEST', 'zeros'));
    expect(await stage.tool('files_read', { path: 'dir' })).toEqual(refusal('INVALID_REQUEST', 'dir'));
    expect(await stage.tool('files_read', { path: 'image/x' })).toEqual(refusal('INVALID_REQUEST', 'image'));
    expect(await stage.tool('files_read', { path: 'nothing' })).toEqual(refusal('INVALID_REQUEST', 'nothing'));
    expect(await stage.tool('files_list', { path: 'nothing' })).toEqual(refusal('INVALID_REQUEST', 'nothing'));
    expect(await stage.tool('files_read', { path: 'socket' })).toEqual(refusal('INVALID_REQUEST', 'socket'));
    expect(await stage.tool('files_write', { path: 'dir', text: 'x' })).toEqual(refusal('INVALID_REQUEST', 'dir'));
    expect(await stage.tool('files_write', { path: 'big', text: '漢'.repeat(400_000) })).toEqual(refusal('INVALID_REQUEST', '1048576'));
    expect(await stage.tool('files_write', { path: 'big', text: 'x'.repeat(1024 * 1024 + 1) })).toEqual(refusal('INVALID_REQUEST', 'text'));
  });

  it('list is cut and says so', async () => {
    const workspace = directory();
    for (let index = 0; index < 1_010; index++) writeFileSync(join(workspace, `f${index}`), '');
    const stage = await open({ agents: { list: [{ id: 'main', workspace }] } });
    expect(await stage.tool<Listing>('files_list')).toMatchObject({ count: 200, truncated: true });
    expect(await stage.tool<Listing>('files_list', { limit: 5_000 })).toMatchObject({ count: 1_000, truncated: true });
  });
});

describe('the way out', () => {
  /** A workspace beside a secret, with links to it. */
  function jail() {
    const base = directory();
    const root = join(base, 'workspace');
    mkdirSync(join(root, 'inner'), { recursive: true });
    mkdirSync(join(base, 'elsewhere'));
    writeFileSync(join(base, 'elsewhere', 'secret'), 'the secret');
    symlinkSync(join(base, 'elsewhere'), join(root, 'dirlink'));
    symlinkSync(join(base, 'elsewhere', 'secret'), join(root, 'filelink'));
    symlinkSync('../..', join(root, 'inner', 'up'));
    return { base, root, workspace: new Workspace(root) };
  }

  it.each([
    'dirlink/secret',
    'filelink',
    'inner/up/elsewhere/secret',
    '../elsewhere/secret',
    'inner/../../elsewhere/secret',
    '/etc/passwd',
    '~/x',
    'a\\b',
    'a\0b',
    '',
  ])('%j is refused for reading and writing', async (path) => {
    const { base, root, workspace } = jail();
    await expect(workspace.read(path, 0, 100)).rejects.toMatchObject({ code: 'INVALID_REQUEST' });
    await expect(workspace.write(path, 'x', 'key')).rejects.toMatchObject({ code: 'INVALID_REQUEST' });
    expect(readdirSync(join(base, 'elsewhere'))).toEqual(['secret']);
    expect(readdirSync(root).toSorted()).toEqual(['dirlink', 'filelink', 'inner']);
  });

  it('is shown as a link and not followed by a list', async () => {
    const { workspace } = jail();
    const { entries } = await workspace.list('', 10);
    expect(entries.map(({ name, kind }) => `${name} ${kind}`)).toEqual(['dirlink link', 'filelink link', 'inner directory']);
    await expect(workspace.list('dirlink', 10)).rejects.toMatchObject({ code: 'INVALID_REQUEST' });
  });

  it('is not found by any path', async () => {
    const { base, workspace } = jail();
    const part = fc.oneof(
      fc.constantFrom('..', '.', '', 'inner', 'up', 'dirlink', 'secret', 'elsewhere', 'workspace', '~', '...'),
      fc.string({ maxLength: 5 }),
    );
    await fc.assert(
      fc.asyncProperty(fc.array(part, { maxLength: 6 }), async (parts) => {
        const path = parts.join('/');
        const read = await workspace.read(path, 0, 100).catch(() => undefined);
        expect(read?.bytes.toString()).not.toBe('the secret');
        await workspace.write(path, 'x', 'key').catch(() => undefined);
        expect(readdirSync(join(base, 'elsewhere'))).toEqual(['secret']);
        expect(readdirSync(base).toSorted()).toEqual(['elsewhere', 'workspace']);
      }),
    );
  });

  it('does not open while a directory is swapped for a link, again and again', async () => {
    const { base, root, workspace } = jail();
    mkdirSync(join(root, 'd'));
    writeFileSync(join(root, 'd', 'secret'), 'mine');
    symlinkSync(join(base, 'elsewhere'), join(root, 'l'));
    const seen = new Set<string>();
    for (let round = 0; round < 300; round++) {
      const reads = [0, 1, 2].map(() =>
        workspace.read('d/secret', 0, 100).then(
          ({ bytes }) => bytes.toString(),
          () => 'refused',
        ),
      );
      const writes = workspace.write('d/new', 'x', `key${round}`).catch(() => undefined);
      const swap = async () => {
        for (const [from, to] of [
          ['d', 't'],
          ['l', 'd'],
          ['d', 'l'],
          ['t', 'd'],
        ] as const) {
          renameSync(join(root, from), join(root, to));
          await Promise.resolve();
          await new Promise((resolve) => setImmediate(resolve));
        }
      };
      await swap();
      for (const read of await Promise.all(reads)) seen.add(read);
      await writes;
    }
    expect(seen).not.toContain('the secret');
    expect(readdirSync(join(base, 'elsewhere'))).toEqual(['secret']);
  });
});
