// The built package as its users load it: `interlane/client` on an old Node.js, and the types of both entries under a strict compiler.
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { defaultConfig, startGateway } from '../../src/index.ts';
import { scratch, start } from './child.ts';

const tsc = resolve('node_modules/.bin/tsc');
const token = 'a secret of at least sixteen';

/** A folder with the package in it, built as for publishing, beside the packages it needs. */
const home = mkdtempSync(join(tmpdir(), 'interlane-installed-'));
afterAll(() => rmSync(home, { recursive: true, force: true }));
beforeAll(() => {
  const modules = join(home, 'node_modules');
  const own = join(modules, 'interlane');
  mkdirSync(own, { recursive: true });
  for (const name of readdirSync('node_modules'))
    if (!name.startsWith('.')) symlinkSync(resolve('node_modules', name), join(modules, name));
  cpSync('package.json', join(own, 'package.json'));
  execFileSync(tsc, ['-p', 'tsconfig.build.json', '--outDir', join(own, 'dist')]);
});

/** The machine's own Node.js 20 if there is one; else ours, without what version 20 does not have. */
function oldNode(): { command: string; flags: string[] } {
  const folders = (process.env['PATH'] ?? '').split(delimiter).filter((folder) => !folder.includes('node_modules'));
  for (const command of folders.map((folder) => join(folder, 'node')).filter((file) => existsSync(file))) {
    const major = Number(/^v(\d+)/.exec(execFileSync(command, ['--version'], { encoding: 'utf8' }))?.[1]);
    if (major === 20) return { command, flags: [] };
  }
  return { command: process.execPath, flags: ['--no-experimental-sqlite', '--no-experimental-websocket'] };
}

const talk = (url: string) => `
import { connect, Conversation } from 'interlane/client';
const client = { id: 'test', mode: 'test', version: '1', platform: process.platform };
const stop = new AbortController();
const conversation = new Conversation({
  key: 'agent:main:main',
  open: (signal) => connect({ url: '${url}', token: '${token}', client, signal }),
  newId: () => crypto.randomUUID(),
});
conversation.subscribe(({ type }) => {
  if (type === 'ready') conversation.say('hello');
  if (type === 'ended') stop.abort();
});
await conversation.run(stop.signal);
console.log(JSON.stringify(conversation.items.map(({ kind, text }) => [kind, text])));
await connect({ url: '${url}', token: 'not the secret', client }).catch(({ code }) => console.log(code));
`;

describe('the client entry', () => {
  it('talks to a gateway on a Node.js without SQLite and WebSocket', async () => {
    const listen = { host: '127.0.0.1', port: 0, token, version: '1' };
    const gateway = await startGateway(defaultConfig(), { stateDir: scratch(), search: false, listen });
    onTestFinished(() => gateway.close());
    const { command, flags } = oldNode();
    const lacking = await start(command, [
      ...flags,
      '-p',
      `typeof WebSocket + ' ' + require('module').builtinModules.includes('node:sqlite')`,
    ]).finished;
    expect(lacking.stdout).toBe('undefined false\n');
    const file = join(home, 'talk.mjs');
    writeFileSync(file, talk(gateway.server!.url));
    expect(await start(command, [...flags, file], { cwd: home }).finished).toMatchObject({
      status: 0,
      stderr: '',
      stdout: `${JSON.stringify([
        ['message', 'hello'],
        ['answer', 'You said: hello'],
      ])}\nUNAUTHORIZED\n`,
    });
  });
});

describe('the types of the package', () => {
  it.each([
    ['interlane', ['--lib', 'es2024'], `import { connect, startGateway } from 'interlane'; export default [connect, startGateway];`],
    ['interlane/client', ['--lib', 'es2022,dom'], `import { Conversation } from 'interlane/client'; export default Conversation;`],
  ])('%s are complete, also for a compiler that checks libraries', async (_, flags, program) => {
    writeFileSync(join(home, 'program.mts'), program);
    const strict = ['--noEmit', '--strict', '--skipLibCheck', 'false', '--module', 'nodenext', '--target', 'es2022', '--types', ''];
    expect(await start(tsc, [...strict, ...flags, 'program.mts'], { cwd: home }).finished).toMatchObject({ status: 0, stdout: '' });
  });
});
