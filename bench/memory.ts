// Resident memory of the real gateway while it gets its first 1,000 messages: from the sources, and as it is published.
import { spawn } from 'node:child_process';
import { copyFileSync, existsSync, mkdirSync, readFileSync, symlinkSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { connect } from '../src/client/client.ts';
import { drawLines, inTemporary, median, progress, whole, type Line } from './measure.ts';

const token = 'a-secret-that-is-long-enough';
const messages = 1_000;
const rounds = 3;
const most = 150 * 2 ** 20;

/** Resident bytes at each moment, and how fast the messages were answered. */
interface Resident {
  idle: number;
  first: number;
  after: number;
  rested: number;
  perSecond: number;
}

/** `BENCH_ROOT` names another clone to measure, for a comparison with the same client. */
export async function benchMemory(): Promise<void> {
  const root = resolve(process.env['BENCH_ROOT'] ?? join(import.meta.dirname, '..'));
  if (!existsSync(join(root, 'dist'))) throw new Error(`${root} is not built; run npm run build there first`);
  const lines: Line[] = [];
  for (const name of ['from sources', 'built'] as const) {
    const all: Resident[] = [];
    for (let round = 0; round < rounds; round++) {
      progress(`memory: ${name}, round ${round + 1} of ${rounds}`);
      await inTemporary(async (directory) => {
        const launcher = name === 'built' ? packaged(root, directory) : join(root, 'bin', 'interlane.cjs');
        all.push(await measure(launcher, join(directory, 'state')));
      });
    }
    const of = (moment: keyof Resident) => median(all.map((one) => one[moment]));
    const after = of('after');
    lines.push(
      { name: `${name}, idle`, measured: megabytes(of('idle')), beside: 'a new state, one second after the start' },
      { name: `${name}, after the first message`, measured: megabytes(of('first')), beside: 'and one second' },
      {
        name: `${name}, after ${whole(messages)} messages`,
        measured: megabytes(after),
        beside: `${all.map((one) => megabytes(one.after)).join(', ')}; ${whole(of('perSecond'))} answers a second`,
        target: `< ${megabytes(most)}`,
        reached: after < most,
      },
      { name: `${name}, after a pause`, measured: megabytes(of('rested')), beside: 'of five seconds' },
    );
  }
  process.stdout.write(`\nMemory\n\n${drawLines(lines)}\n`);
}

/** The launcher of a directory that has no sources, as in the published package. */
function packaged(root: string, directory: string): string {
  const launcher = join(directory, 'package', 'bin', 'interlane.cjs');
  mkdirSync(dirname(launcher), { recursive: true });
  copyFileSync(join(root, 'bin', 'interlane.cjs'), launcher);
  symlinkSync(join(root, 'dist'), join(directory, 'package', 'dist'));
  return launcher;
}

/** Starts the gateway on a new state, and sends it messages as a chat client does: eight at a time, in eight sessions. */
async function measure(launcher: string, stateDir: string): Promise<Resident> {
  mkdirSync(stateDir, { mode: 0o700 });
  const env = { PATH: process.env['PATH']!, HOME: stateDir, INTERLANE_TOKEN: token, INTERLANE_DISCOVER: '0' };
  const args = [launcher, 'up', '--state-dir', stateDir, '--port', '0'];
  const child = spawn(process.execPath, args, { env, stdio: ['ignore', 'pipe', 'ignore'] });
  const stop = () => void child.kill('SIGKILL');
  process.once('exit', stop);
  const gone = new Promise((done) => child.once('exit', done));
  try {
    const url = await addressIn(child.stdout);
    const client = await connect({ url, token, client: { id: 'cli', version: '1', platform: 'node', mode: 'cli' } });
    const resident = () => residentBytes(child.pid!);
    const send = (n: number) =>
      client.call('agent', {
        sessionKey: `agent:main:chat-${n % 8}`,
        message: `Message ${n}: what is on the list for today, who asked for it, and is the meeting at ${n % 24} o'clock still on?`,
        idempotencyKey: `message-${n}`,
      });
    for (let n = 0; n < 8; n++) await client.call('sessions.create', { key: `agent:main:chat-${n}` });
    await sleep(1_000);
    const idle = resident();
    await send(0);
    await sleep(1_000);
    const first = resident();
    let next = 1;
    const lane = async () => {
      while (next <= messages) await send(next++);
    };
    const started = performance.now();
    await Promise.all(Array.from({ length: 8 }, lane));
    const perSecond = (messages * 1_000) / (performance.now() - started);
    const after = resident();
    await sleep(5_000);
    const rested = resident();
    client.close();
    return { idle, first, after, rested, perSecond };
  } finally {
    stop();
    await gone;
    process.off('exit', stop);
  }
}

/** The gateway prints where it listens. */
async function addressIn(output: AsyncIterable<Buffer>): Promise<string> {
  let printed = '';
  for await (const chunk of output) {
    printed += chunk.toString();
    const found = /^\s*address\s+(http:\S+)/m.exec(printed);
    if (found && printed.includes('Up.')) return found[1]!;
  }
  throw new Error(`the gateway ended before it was up:\n${printed}`);
}

const megabytes = (bytes: number) => `${(bytes / 2 ** 20).toFixed(1)} MB`;

/** As the system counts it. Linux only, as the targets are. */
function residentBytes(pid: number): number {
  return Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]) * 1_024;
}
