// Starting the real command: a child process with a clean environment and a home of its own.
import { spawn, type ChildProcess } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { onTestFinished } from 'vitest';

/** A fresh directory that is gone after the test. */
export function scratch(): string {
  const directory = mkdtempSync(join(tmpdir(), 'interlane-test-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

export interface Options {
  env?: Record<string, string>;
  input?: string;
  /** Standard input stays open, for what the test writes as it goes. */
  open?: boolean;
  cwd?: string;
}

export interface Finished {
  status: number | null;
  signal: NodeJS.Signals | null;
  stdout: string;
  stderr: string;
}

export interface Running {
  child: ChildProcess;
  finished: Promise<Finished>;
  /** Resolves when the text has been printed; rejects when the process ends without it. */
  printed(text: string): Promise<void>;
}

/** The log of a gateway that nobody watches: what is in it that is more than news. */
export function complaints(stderr: string): string[] {
  return stderr.split('\n').filter((line) => line !== '' && (JSON.parse(line) as { level: string }).level !== 'info');
}

const launcher = resolve('bin/interlane.cjs');

/** Only what a program needs to run: nothing of the machine's own settings or keys reaches it. */
function cleanEnv(more: Record<string, string> = {}): Record<string, string> {
  return {
    PATH: `${dirname(process.execPath)}:${process.env['PATH'] ?? ''}`,
    HOME: process.env['HOME']!,
    NODE_COMPILE_CACHE: process.env['NODE_COMPILE_CACHE']!,
    INTERLANE_DISCOVER: '0',
    ...more,
  };
}

export function start(command: string, args: string[], options: Options = {}): Running {
  const child = spawn(command, args, { cwd: options.cwd, env: cleanEnv(options.env), stdio: 'pipe' });
  onTestFinished(() => void child.kill('SIGKILL'));
  let stdout = '';
  let stderr = '';
  const watchers = new Set<() => void>();
  child.stdout.setEncoding('utf8').on('data', (text: string) => {
    stdout += text;
    for (const watcher of watchers) watcher();
  });
  child.stderr.setEncoding('utf8').on('data', (text: string) => (stderr += text));
  child.stdin.on('error', () => {}); // a command that fails early does not read its input
  if (!options.open) child.stdin.end(options.input ?? '');
  const finished = new Promise<Finished>((done, failed) => {
    child.on('error', failed).on('close', (status, signal) => done({ status, signal, stdout, stderr }));
  });
  const printed = (text: string) =>
    new Promise<void>((done, failed) => {
      const look = () => stdout.includes(text) && done();
      watchers.add(look);
      look();
      void finished.then(() => failed(new Error(`ended without printing ${JSON.stringify(text)}:\n${stdout}\n${stderr}`)));
    });
  return { child, finished, printed };
}

export function startInterlane(args: string[], options?: Options): Running {
  return start(process.execPath, [launcher, ...args], options);
}

export function interlane(args: string[], options?: Options): Promise<Finished> {
  return startInterlane(args, options).finished;
}
