// One crash: a gateway that kills itself at a point, started again until all is done, then checked.
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { spawn } from 'node:child_process';
import { DatabaseSync } from 'node:sqlite';
import { tmpdir } from 'node:os';
import { basename, join, resolve } from 'node:path';
import { soak } from '../soak.ts';
import { findViolations, storedSteps } from './checker.ts';
import { seeded } from './scenarios.ts';
import type { Op, Task } from './worker.ts';

export interface Receiver {
  url: string;
  log: string;
  stop(): void;
}

export const startReceiver = (directory: string) => startService(resolve('test/crash/receiver.ts'), join(directory, 'received.jsonl'));
/** The model service. */
export const startProvider = (directory: string) => startService(resolve('test/crash/provider.ts'), join(directory, 'asked.jsonl'));

async function startService(file: string, log: string): Promise<Receiver> {
  const child = spawn(process.execPath, [file, log], { stdio: ['ignore', 'pipe', 'inherit'] });
  const url = await new Promise<string>((done, failed) => {
    child.stdout.setEncoding('utf8').once('data', (text: string) => done(text.trim()));
    child.once('exit', () => failed(new Error(`${basename(file)} did not start`)));
  });
  return { url, log, stop: () => void child.kill('SIGKILL') };
}

/** In `npm test` a seeded share of each kind of point, at least one of each; all of them in `npm run soak`. */
export function chosen(points: string[]): string[] {
  if (soak) return points;
  const random = seeded(20_261_115);
  const kinds = Map.groupBy(points, (point) => point.replace(/ #?\d+$/, ''));
  return [...kinds.values()].flatMap((kind) => {
    const mixed = kind.map((point) => ({ point, at: random() })).toSorted((a, b) => a.at - b.at);
    return mixed.slice(0, Math.ceil(kind.length / 8)).map(({ point }) => point);
  });
}

/** Two at a time: one for each core. */
export async function eachPoint(points: string[], visit: (point: string) => Promise<void>): Promise<void> {
  const queue = [...points];
  const worker = async () => {
    for (let point = queue.shift(); point !== undefined; point = queue.shift()) await visit(point);
  };
  await Promise.all([worker(), worker()]);
}

const mostStarts = 50;

export interface CrashResult {
  violations: string[];
  /** Points passed by the last start. */
  points: string[];
  /** Where the kills happened. */
  kills: string[];
  /** What was under way at each of them, read from what was left behind. */
  phases: string[];
  directory: string;
}

/** `dieAt` for each start in turn; after those the gateway lives until everything has come to its end. */
export async function crash(
  receiver: Receiver,
  ops: Op[],
  dieAt: (number | string)[],
  options: { parallel?: number; mutant?: string; alone?: boolean; keep?: boolean; provider?: Receiver } = {},
): Promise<CrashResult> {
  const directory = mkdtempSync(join(tmpdir(), 'interlane-crash-'));
  try {
    const files = { stateDir: directory, acked: join(directory, 'acked.jsonl'), killed: join(directory, 'killed.jsonl') };
    const prefix = `/${basename(directory)}`;
    let points: string[] = [];
    const phases: string[] = [];
    const deaths = [...dieAt];
    const stored: string[][] = [];
    for (let starts = 0; ; starts++) {
      const task: Task = {
        ...files,
        receiver: `${receiver.url}${prefix}`,
        ops,
        parallel: options.parallel ?? 1,
        dieAt: deaths.shift() ?? 0,
        ...(options.mutant ? { mutant: options.mutant } : {}),
        ...(options.alone ? { alone: true } : {}),
        // Each start asks under its own path, so that the service's log tells them apart.
        ...(options.provider ? { provider: `${options.provider.url}${prefix}/${starts}` } : {}),
      };
      const file = join(directory, 'task.json');
      writeFileSync(file, JSON.stringify(task));
      const { status, signal, stdout, stderr } = await runWorker(file);
      if (signal === 'SIGKILL' && starts < mostStarts) {
        phases.push(...phasesOf(join(directory, 'interlane.db')));
        if (options.provider) stored.push(storedSteps(join(directory, 'interlane.db')));
        continue;
      }
      points = status === 0 ? (JSON.parse(stdout) as string[]) : [];
      if (status !== 0 && task.dieAt === 0)
        return {
          violations: [`the gateway did not come to its end: ${stderr.trim().slice(-2_000)}`],
          points,
          kills: killsOf(files.killed),
          phases,
          directory,
        };
      if (status === 0 && deaths.every((at) => at === 0)) break;
      if (starts > mostStarts) throw new Error('the gateway was started too often');
    }
    const sent = new Map(ops.flatMap((op) => (op.do === 'message' ? [[op.id, op.text] as const] : [])));
    const violations = findViolations({
      database: join(directory, 'interlane.db'),
      acked: files.acked,
      received: receiver.log,
      prefix,
      sent,
      ...(options.provider ? { asked: { log: options.provider.log, stored } } : {}),
    });
    return { violations, points, kills: killsOf(files.killed), phases, directory };
  } finally {
    if (!options.keep) rmSync(directory, { recursive: true, force: true });
  }
}

function phasesOf(file: string): string[] {
  const db = new DatabaseSync(file);
  try {
    const has = (sql: string) => db.prepare(`SELECT EXISTS (${sql}) AS yes`).get()!['yes'] === 1;
    if (!has(`SELECT 1 FROM sqlite_schema WHERE name = 'deliveries'`)) return [];
    const found: [string, string][] = [
      ['queued', `SELECT 1 FROM runs WHERE state = 'queued'`],
      ['mid-step', `SELECT 1 FROM runs WHERE state = 'running'`],
      ['tool started', `SELECT 1 FROM tool_calls WHERE state = 'started'`],
      ['waiting', `SELECT 1 FROM runs WHERE state = 'waiting' AND parked_on = 'calls'`],
      ['offered', 'SELECT 1 FROM offers'],
      ['stopping', 'SELECT 1 FROM runs WHERE abort_requested IS NOT NULL AND ended_at IS NULL'],
      ['announcing', `SELECT 1 FROM exchanges WHERE state = 'announce'`],
      ['delivering', `SELECT 1 FROM deliveries WHERE state = 'sending'`],
    ];
    return found.filter(([, sql]) => has(sql)).map(([phase]) => phase);
  } finally {
    db.close();
  }
}

function killsOf(file: string): string[] {
  return existsSync(file)
    ? readFileSync(file, 'utf8')
        .split('\n')
        .filter(Boolean)
        .map((line) => (JSON.parse(line) as { name: string }).name)
    : [];
}

function runWorker(task: string): Promise<{ status: number | null; signal: NodeJS.Signals | null; stdout: string; stderr: string }> {
  return new Promise((done, failed) => {
    const child = spawn(process.execPath, [resolve('test/crash/worker.ts'), task], { stdio: ['ignore', 'pipe', 'pipe'] });
    let stdout = '';
    let stderr = '';
    child.stdout.setEncoding('utf8').on('data', (text: string) => (stdout += text));
    child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
    child.on('error', failed).on('close', (status, signal) => done({ status, signal, stdout, stderr }));
  });
}
