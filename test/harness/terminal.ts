// The real command line on a terminal made of streams: what it prints, what it is told, and a screen that shows what a person would see.
import { PassThrough, Readable, Writable } from 'node:stream';
import { setTimeout as pause } from 'node:timers/promises';
import { onTestFinished } from 'vitest';
import { run } from '../../src/cli/program.ts';
import type { Terminal } from '../../src/cli/terminal.ts';

interface Options {
  tty?: boolean;
  /** What standard input holds; without it, with `keys`, it is written as the test goes. */
  input?: string;
  keys?: boolean;
  env?: Record<string, string>;
  columns?: number;
  /** The time of the machine; by default the real one. */
  now?: () => number;
}

export function started(
  argv: string[],
  { tty = false, input = '', keys = false, env = {}, columns = 120, now = Date.now }: Options = {},
  begin: (terminal: Terminal) => Promise<number> = run,
) {
  const written = { stdout: '', stderr: '' };
  const screen = new Screen(columns);
  let news = Promise.withResolvers<void>();
  const wake = () => {
    news.resolve();
    news = Promise.withResolvers();
  };
  const sink = (name: 'stdout' | 'stderr') =>
    Object.assign(
      new Writable({
        write(chunk: Buffer, _, done) {
          written[name] += chunk.toString();
          screen.write(chunk.toString());
          wake();
          done();
        },
      }),
      { isTTY: tty, columns },
    );
  const keyboard = keys ? new PassThrough() : Readable.from([input]);
  const handlers = new Set<() => void>();
  const terminal: Terminal = {
    argv,
    env: { NO_COLOR: '1', ...env },
    home: '/nowhere',
    stdin: Object.assign(keyboard, { isTTY: tty }),
    stdout: sink('stdout'),
    stderr: sink('stderr'),
    onSignal(name, handler) {
      if (name === 'SIGINT') handlers.add(handler);
      return () => void handlers.delete(handler);
    },
    onCrash() {},
    onOutputLost() {},
    now,
    sleep: (ms, signal) => pause(ms, undefined, { signal }),
    newId: () => crypto.randomUUID(),
  };
  let over = false;
  const finished = begin(terminal).then((status) => {
    over = true;
    wake();
    return { status, ...written };
  });
  onTestFinished(() => handlers.forEach((handler) => handler()));
  const until = async (what: string, holds: () => boolean) => {
    while (!holds()) {
      if (over) throw new Error(`ended without ${what}: ${JSON.stringify(written)}`);
      await news.promise;
    }
  };
  return {
    finished,
    interrupt: () => handlers.forEach((handler) => handler()),
    printed: (text: string, where: 'stdout' | 'stderr' = 'stdout') => until(JSON.stringify(text), () => written[where].includes(text)),
    /** Keys, as a terminal sends them. */
    press: (text: string) => void (keyboard as PassThrough).write(text),
    hangUp: () => void (keyboard as PassThrough).end(),
    /** What a person sees holds this. */
    shows: (text: string | RegExp) =>
      until(String(text), () => (typeof text === 'string' ? screen.text.includes(text) : text.test(screen.text))),
    get screen() {
      return screen.text;
    },
    get raw() {
      return written.stdout;
    },
  };
}

/** As much of a terminal as the commands use: rows that wrap, a cursor that is moved, rows that are cleared. It is endlessly high. */
class Screen {
  private readonly rows: string[][] = [[]];
  private readonly columns: number;
  private row = 0;
  private column = 0;

  constructor(columns: number) {
    this.columns = columns;
  }

  get text(): string {
    return this.rows
      .map((row) => row.join('').trimEnd())
      .join('\n')
      .trimEnd();
  }

  write(text: string): void {
    // oxlint-disable-next-line no-control-regex
    for (const part of text.match(/\u001b\[\??[\d;]*[A-Za-z]|[^]/gu) ?? []) {
      if (part.startsWith('\u001b[')) this.control(part);
      else if (part === '\n') this.down();
      else if (part === '\r') this.column = 0;
      else this.put(part);
    }
  }

  private put(character: string): void {
    if (this.column === this.columns) this.down();
    const row = this.rows[this.row]!;
    while (row.length < this.column) row.push(' ');
    row[this.column++] = character;
  }

  /** As terminals do it for programs: the cursor goes to the first column too. */
  private down(): void {
    this.row++;
    this.column = 0;
    this.rows[this.row] ??= [];
  }

  private control(sequence: string): void {
    const n = Number(/\d+/.exec(sequence)?.[0] ?? 1);
    const kind = sequence.at(-1);
    if (kind === 'A') this.row = Math.max(0, this.row - n);
    else if (kind === 'B') for (let left = n; left > 0; left--) this.rows[++this.row] ??= [];
    else if (kind === 'C') this.column += n;
    else if (kind === 'D') this.column = Math.max(0, this.column - n);
    else if (kind === 'G') this.column = n - 1;
    else if (kind === 'K') this.rows[this.row]!.length = Math.min(this.rows[this.row]!.length, this.column);
    else if (kind === 'J') {
      this.rows[this.row]!.length = Math.min(this.rows[this.row]!.length, this.column);
      this.rows.length = this.row + 1;
    } else if (kind !== 'h' && kind !== 'l' && kind !== 'm') throw new Error(`screen does not know ${JSON.stringify(sequence)}`);
  }
}
