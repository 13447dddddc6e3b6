// The gateway through its doors, beside a bare server that sends frames of the same size to the same clients in the same run.
import { spawn } from 'node:child_process';
import { mkdirSync, readFileSync } from 'node:fs';
import { createServer, type AddressInfo } from 'node:net';
import { availableParallelism } from 'node:os';
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { WebSocket } from 'ws';
import type { ClientsWish, FanOutReport, FanOutWish, Way } from './clients.ts';
import { writeText } from './data.ts';
import { drawLines, inTemporary, median, percent, progress, whole, type Line } from './measure.ts';
import type { Address, Frames, ServerWish, Spent } from './raw-server.ts';
import { startAsked, type Asked } from './talk.ts';

const rounds = 5;
const fanOutRounds = 3;
const subscribers = 100;
const messages = 1_000;
const idleConnections = 1_000;

/** A server and the clients that are set upon it, each in a process of its own. */
interface Side {
  name: 'raw' | 'gateway';
  server: Asked<ServerWish>;
  address: Address;
  clients: Asked<ClientsWish>;
}

export async function benchGateway(): Promise<void> {
  const started = performance.now();
  await inTemporary(async (directory) => {
    const lines: Line[] = [];
    progress('gateway: starting');
    const [raw, ours] = [await side('raw'), await side('gateway', join(directory, 'state'))];
    for (const [connections, inFlight] of [
      [1, 1],
      [1, 16],
      [16, 16],
    ] as const)
      lines.push(...(await trips(raw, ours, connections, inFlight)));
    for (const way of ['key', 'all', 'stream'] as const) lines.push(...(await fanOut(raw, ours, way)));
    await Promise.all([raw, ours].flatMap(({ server, clients }) => [server.kill(), clients.kill()]));
    lines.push(...(await coldStart(directory)));
    lines.push(...(await memory(directory)));
    process.stdout.write(
      `\ngateway, node ${process.version}, ${availableParallelism()} cores, medians of ${fanOutRounds} to ${rounds}\n\n${drawLines(lines)}` +
        `\n${whole((performance.now() - started) / 1_000)} s\n`,
    );
  });
}

async function side(name: Side['name'], stateDir?: string): Promise<Side> {
  if (stateDir !== undefined) mkdirSync(stateDir, { recursive: true, mode: 0o700 });
  const server = startAsked<ServerWish>(name, ...(stateDir === undefined ? [] : [stateDir]));
  return { name, server, address: await server.ask<Address>({ open: true }), clients: startAsked<ClientsWish>('clients') };
}

/** What something took of the server's processor. */
async function spending<R>({ server }: Side, work: () => Promise<R>): Promise<{ result: R; cpuMs: number; at: number[] }> {
  const before = await server.ask<Spent>({ spent: true });
  const result = await work();
  const { cpuMs, at } = await server.ask<Spent>({ spent: true });
  return { result, cpuMs: cpuMs - before.cpuMs, at };
}

// Round trips ---------------------------------------------------------------------------------------------------------

async function trips(raw: Side, ours: Side, connections: number, inFlight: number): Promise<Line[]> {
  progress(`gateway: round trips, ${connections} × ${inFlight}`);
  const measure = async (side: Side, ms: number) => {
    const { result: perSecond, cpuMs } = await spending(side, () =>
      side.clients.ask<number>({ to: side.address, trips: { connections, inFlight, ms } }),
    );
    return { perSecond, micros: (cpuMs * 1_000) / ((perSecond * ms) / 1_000) };
  };
  for (const one of [raw, ours]) await measure(one, 200);
  const [bare, gateway]: [Awaited<ReturnType<typeof measure>>[], Awaited<ReturnType<typeof measure>>[]] = [[], []];
  for (let round = 0; round < rounds; round++) {
    bare.push(await measure(raw, 300));
    gateway.push(await measure(ours, 300));
  }
  const where = connections === 1 ? 'one connection' : `${connections} connections`;
  return [rateLine(`round trips, ${where}, ${inFlight} in flight`, bare, gateway)];
}

interface Rate {
  perSecond: number;
  /** Of the server's processor, for each. */
  micros: number;
}

function rateLine(name: string, bare: Rate[], gateway: Rate[]): Line {
  const share = median(gateway.map(({ perSecond }, round) => perSecond / bare[round]!.perSecond));
  const micros = (all: Rate[]) => median(all.map((one) => one.micros)).toFixed(1);
  return {
    name,
    measured: `${whole(median(gateway.map(({ perSecond }) => perSecond)))} /s`,
    beside: `${percent(share)} of raw ${whole(median(bare.map(({ perSecond }) => perSecond)))} /s; ${micros(gateway)} µs of processor, raw ${micros(bare)}`,
    target: '≥ 50 %',
    reached: share >= 0.5,
  };
}

// Fan-out -------------------------------------------------------------------------------------------------------------

const ways: Record<Way, { name: string; frames: number }> = {
  key: { name: 'one session followed', frames: 1 },
  all: { name: 'all sessions followed', frames: 2 },
  stream: { name: 'SSE follow', frames: 1 },
};
const inFlight = 16;
const paced = { messages: 50, perSecond: 50 };

interface Told extends Rate {
  /** From the commit to the subscriber, milliseconds; 95 of 100 are faster. */
  p95: number;
}

let sessionsMade = 0;

async function fanOut(raw: Side, ours: Side, way: Way): Promise<Line[]> {
  const { name, frames: framesEach } = ways[way];
  progress(`gateway: ${subscribers} subscribers, ${name}`);
  const text = writeText(300, 1);
  const ask = (side: Side, wish: Pick<FanOutWish['fanOut'], 'messages' | 'pace'>) =>
    side.clients.ask<FanOutReport>({
      to: side.address,
      fanOut: { way, subscribers, sessionKey: `agent:a1:bench-${sessionsMade++}`, text, ...wish },
    });
  const measure = async (side: Side, wish: Pick<FanOutWish['fanOut'], 'messages' | 'pace'>): Promise<Told> => {
    const { result, cpuMs, at } = await spending(side, () => ask(side, wish));
    const events = result.at.length;
    const delays = result.at.map((received, n) => received - at[result.of[n]!]!).toSorted();
    return { perSecond: (events * 1_000) / result.ms, micros: (cpuMs * 1_000) / events, p95: delays[Math.floor(events * 0.95)]! };
  };
  const burst = { messages, pace: { inFlight } };
  const { frames } = await ask(ours, burst);
  const copied: Frames = way === 'stream' ? { socket: [], stream: frames[0]! } : { socket: frames, stream: '' };
  await raw.server.ask({ frames: copied });
  await ask(raw, { ...burst, messages: 200 });
  const [bare, gateway, bareSlow, gatewaySlow]: Told[][] = [[], [], [], []];
  for (let round = 0; round < fanOutRounds; round++) {
    bare!.push(await measure(raw, burst));
    gateway!.push(await measure(ours, burst));
  }
  for (let round = 0; round < fanOutRounds; round++) {
    const slow = { messages: paced.messages, pace: { perSecond: paced.perSecond } };
    bareSlow!.push(await measure(raw, slow));
    gatewaySlow!.push(await measure(ours, slow));
  }
  const p95 = (all: Told[]) => median(all.map((one) => one.p95)).toFixed(1);
  const title = `${subscribers} × ${whole(messages)} messages, ${name}`;
  return [
    rateLine(`${title}${framesEach === 1 ? '' : `, ${framesEach} events each`}`, bare!, gateway!),
    {
      name: `  p95 from commit to receipt, ${inFlight} in flight`,
      measured: `${p95(gateway!)} ms`,
      beside: `raw ${p95(bare!)} ms`,
    },
    {
      name: `  p95 from commit to receipt, ${paced.perSecond} messages a second`,
      measured: `${p95(gatewaySlow!)} ms`,
      beside: `raw ${p95(bareSlow!)} ms`,
    },
  ];
}

// The process ---------------------------------------------------------------------------------------------------------

const token = 'a-secret-that-is-long-enough';

/** A program that listens on a port, from its start to the first answer. */
async function firstAnswer(args: string[], port: number, answered: (ws: WebSocket) => Promise<void>) {
  const started = performance.now();
  const child = spawn(process.execPath, args, { stdio: ['ignore', 'ignore', 'ignore'], env: { ...process.env, INTERLANE_TOKEN: token } });
  const stop = () => void child.kill('SIGKILL');
  process.once('exit', stop);
  const gone = new Promise<void>((resolve) => void child.once('exit', () => resolve()));
  void gone.then(() => process.off('exit', stop));
  for (;;) {
    if (child.exitCode !== null) throw new Error(`bench: ${args.join(' ')} ended with ${child.exitCode}`);
    const ws = new WebSocket(`ws://127.0.0.1:${port}`, { perMessageDeflate: false });
    // The gateway speaks as soon as it is there.
    const there = answered(ws);
    const open = await new Promise<boolean>((resolve) => {
      ws.once('open', () => resolve(true));
      ws.once('error', () => resolve(false));
    });
    if (!open) {
      await sleep(2);
      continue;
    }
    await there;
    const ms = performance.now() - started;
    const cpuMs = processorMs(child.pid!);
    ws.terminate();
    const end = (signal: 'SIGTERM' | 'SIGKILL') => {
      child.kill(signal);
      return gone;
    };
    return { ms, cpuMs, pid: child.pid!, end };
  }
}

const bareProgram = (port: number) => [
  '--input-type=commonjs',
  '-e',
  `const { WebSocketServer } = require(${JSON.stringify(fileURLToPath(import.meta.resolve('ws')).replace('wrapper.mjs', 'index.js'))});` +
    `new WebSocketServer({ host: '127.0.0.1', port: ${port} }).on('connection', (ws) => ws.on('message', (data) => ws.send(data)));`,
];
const bareAnswer = (ws: WebSocket) =>
  new Promise<void>((resolve) => {
    ws.once('open', () => ws.send('hello'));
    ws.once('message', () => resolve());
  });

const upProgram = (stateDir: string, port: number) => [
  fileURLToPath(new URL('../bin/interlane.cjs', import.meta.url)),
  'up',
  '--state-dir',
  stateDir,
  '--port',
  String(port),
];
const upAnswer = (ws: WebSocket) =>
  new Promise<void>((resolve) => {
    const client = { id: 'bench', version: '1', platform: 'node', mode: 'cli' };
    const params = { minProtocol: 4, maxProtocol: 4, client, auth: { token } };
    const requests = [
      { type: 'req', id: '1', method: 'connect', params },
      { type: 'req', id: '2', method: 'health' },
    ];
    ws.on('message', () => {
      const next = requests.shift();
      if (next) ws.send(JSON.stringify(next));
      else resolve();
    });
  });

async function coldStart(directory: string): Promise<Line[]> {
  progress('gateway: cold starts');
  const firsts: Start[] = [];
  const [bare, warm]: [Start[], Start[]] = [[], []];
  for (let round = 0; round < 3; round++) firsts.push(await started(join(directory, `first-${round}`)));
  // The second start still compiles what only happens on a state that exists.
  const stateDir = join(directory, 'first-0');
  await started(stateDir);
  for (let round = 0; round < rounds; round++) {
    const port = await freePort();
    const { end, ...raw } = await firstAnswer(bareProgram(port), port, bareAnswer);
    bare.push(raw);
    await end('SIGKILL');
    warm.push(await started(stateDir));
  }
  const ms = (starts: Start[]) => median(starts.map((one) => one.ms));
  const cpuMs = (starts: Start[]) => `${whole(median(starts.map((one) => one.cpuMs)))} ms of processor`;
  return [
    {
      name: 'cold start to the first answer, on a state that exists',
      measured: `${whole(ms(warm))} ms`,
      beside: `${cpuMs(warm)}; bare ws server ${whole(ms(bare))} ms, ${cpuMs(bare)}`,
      target: '< 500 ms',
      reached: ms(warm) < 500,
    },
    { name: 'the very first start: nothing compiled, state made', measured: `${whole(ms(firsts))} ms`, beside: cpuMs(firsts) },
  ];
}

interface Start {
  ms: number;
  cpuMs: number;
}

async function started(stateDir: string): Promise<Start> {
  const port = await freePort();
  const { end, ...start } = await firstAnswer(upProgram(stateDir, port), port, upAnswer);
  await end('SIGTERM');
  return start;
}

async function memory(directory: string): Promise<Line[]> {
  progress('gateway: memory');
  const resident = async (program: (port: number) => string[], answered: (ws: WebSocket) => Promise<void>, secret: string) => {
    const port = await freePort();
    const { pid, end } = await firstAnswer(program(port), port, answered);
    const clients = startAsked<ClientsWish>('clients');
    await sleep(1_000);
    const idle = residentBytes(pid);
    await clients.ask({ to: { url: `http://127.0.0.1:${port}`, token: secret }, idle: idleConnections });
    await sleep(1_000);
    const connected = residentBytes(pid);
    await clients.kill();
    await end('SIGKILL');
    return { idle, connected };
  };
  const stateDir = join(directory, 'first-0');
  const all: Awaited<ReturnType<typeof resident>>[] = [];
  for (let round = 0; round < 3; round++) all.push(await resident((port) => upProgram(stateDir, port), upAnswer, token));
  const bare = await resident(bareProgram, bareAnswer, '');
  const megabytes = (bytes: number) => `${(bytes / 2 ** 20).toFixed(1)} MB`;
  const idle = median(all.map((one) => one.idle));
  const connected = median(all.map((one) => one.connected));
  const each = ((connected - idle) / idleConnections / 1_024).toFixed(1);
  return [
    {
      name: 'resident memory, idle',
      measured: megabytes(idle),
      beside: `node with a bare ws server ${megabytes(bare.idle)}`,
      target: '< 120 MB',
      reached: idle < 120 * 2 ** 20,
    },
    {
      name: `resident memory, ${whole(idleConnections)} idle connections`,
      measured: megabytes(connected),
      beside: `${each} kB each; bare ws server ${megabytes(bare.connected)}`,
    },
  ];
}

/** A port that nobody has just now. */
async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** As the system counts it. Linux only, as the targets are. */
function residentBytes(pid: number): number {
  return Number(/VmRSS:\s+(\d+) kB/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]) * 1_024;
}

/** Since its start, in hundredths of a second. */
function processorMs(pid: number): number {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' ');
  return (Number(fields[11]) + Number(fields[12])) * 10;
}
