// Everything a command may use of its process: arguments, environment, streams. Passed in, so that tests run the real commands.
import { styleText } from 'node:util';

export type StopSignal = 'SIGINT' | 'SIGTERM' | 'SIGHUP';

export interface Terminal {
  argv: string[];
  env: Record<string, string | undefined>;
  home: string;
  stdin: NodeJS.ReadableStream & { isTTY?: boolean; setRawMode?(raw: boolean): unknown };
  stdout: NodeJS.WritableStream & { isTTY?: boolean; columns?: number };
  stderr: NodeJS.WritableStream & { isTTY?: boolean };
  /** Returns the undo. */
  onSignal(name: StopSignal, handler: () => void): () => void;
  /** Calls the handler with an error that nothing caught; the process ends after it. */
  onCrash(handler: (error: unknown) => void): void;
  /** Calls the handler when standard output or error cannot be written any more; the process then goes on. */
  onOutputLost(handler: (error: Error) => void): void;
  now(): number;
  /** Resolves after the time, or rejects when the signal is aborted. */
  sleep(ms: number, signal: AbortSignal): Promise<void>;
  /** Makes a unique id. */
  newId(): string;
}

type Style = Parameters<typeof styleText>[0];

/** Colour where the stream is a terminal that wants it. */
export function paint(terminal: Terminal, style: Style, text: string): string {
  return terminal.stdout.isTTY && !terminal.env['NO_COLOR'] ? styleText(style, text, { validateStream: false }) : text;
}

/** A command for a person to copy, which reaches the gateway that this command reached: the flags that chose it are repeated. */
export function commandLine(words: string, { stateDir, url }: { stateDir?: string | undefined; url?: string | undefined }): string {
  const where = [
    ['--state-dir', stateDir],
    ['--url', url],
  ].flatMap(([flag, value]) => (value ? [`${flag} ${quoted(value)}`] : []));
  return ['interlane', words, ...where].join(' ');
}

/** As one word of a shell. */
export const quoted = (text: string) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'\\''`)}'`);

/** Two columns, the first as wide as its widest word. */
export function columns(rows: [string, string][], indent = '  '): string[] {
  const width = Math.max(0, ...rows.map(([name]) => name.length));
  return rows.map(([name, value]) => `${indent}${name.padEnd(width)}  ${value}`);
}

/** On a terminal, a table with a head, cut to its width; otherwise one line per row, cells separated by tabs, nothing cut. */
export function table(terminal: Terminal, head: string[], rows: string[][]): string {
  const cells = rows.map((row) => row.map(oneLine));
  if (!terminal.stdout.isTTY) return cells.map((row) => `${row.join('\t')}\n`).join('');
  const widths = head.map((name, column) => Math.max(name.length, ...cells.map((row) => row[column]!.length)));
  const limit = terminal.stdout.columns || Number.POSITIVE_INFINITY;
  const line = (row: string[]) =>
    cut(
      row
        .map((cell, column) => cell.padEnd(widths[column]!))
        .join('  ')
        .trimEnd(),
      limit,
    );
  return [paint(terminal, 'bold', line(head)), ...cells.map(line), ''].join('\n');
}

const cut = (text: string, limit: number) => (text.length <= limit ? text : `${text.slice(0, limit - 1)}…`);

/** One document of JSON, or the text for people. */
export function answer(terminal: Terminal, json: boolean | undefined, value: unknown, text: () => string): void {
  terminal.stdout.write(json ? `${JSON.stringify(value, null, 2)}\n` : text());
}

/** A moment: how far away on a terminal, the exact time otherwise. */
export function moment(terminal: Terminal, at: number): string {
  if (!terminal.stdout.isTTY) return new Date(at).toISOString();
  const since = terminal.now() - at;
  return since < 0 ? `in ${span(-since)}` : `${span(since)} ago`;
}

const units: [name: string, ms: number][] = [
  ['d', 86_400_000],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1_000],
];

/** `3m`, `2h`, `5d`: about how long. */
export function span(ms: number): string {
  const [name, size] = units.find(([, size]) => ms >= size) ?? ['s', 1_000];
  return `${Math.max(0, Math.floor(ms / size))}${name}`;
}

export const count = (n: number, noun: string) => `${n} ${noun}${n === 1 ? '' : 's'}`;

export const size = (bytes: number) => (bytes < 1e6 ? `${Math.ceil(bytes / 1e3)} kB` : `${(bytes / 1e6).toFixed(1)} MB`);

export async function readAll(stream: Terminal['stdin'], limit: number): Promise<string | undefined> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of stream) {
    const bytes = Buffer.from(chunk);
    size += bytes.length;
    if (size > limit) return undefined;
    chunks.push(bytes);
  }
  return Buffer.concat(chunks).toString('utf8');
}

/** The same in one line. */
export const oneLine = (text: string) => visible(text.replaceAll('\n', '\\n'));

/** Makes text safe for a terminal: escapes control characters and those that change the writing direction. */
export function visible(text: string): string {
  return text.replace(
    // oxlint-disable-next-line no-control-regex
    /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
