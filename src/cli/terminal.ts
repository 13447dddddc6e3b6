// What a command may touch: its arguments, environment and streams, passed in so that tests run the real commands.
import { styleText } from 'node:util';

export interface Terminal {
  argv: string[];
  env: Record<string, string | undefined>;
  home: string;
  stdin: AsyncIterable<Uint8Array | string> & { isTTY?: boolean };
  stdout: NodeJS.WritableStream & { isTTY?: boolean };
  stderr: NodeJS.WritableStream;
  /** Returns the undo. */
  onSignal(name: 'SIGINT' | 'SIGTERM', handler: () => void): () => void;
}

type Style = Parameters<typeof styleText>[0];

/** Colour where the stream is a terminal that wants it. */
export function paint(terminal: Terminal, style: Style, text: string): string {
  return terminal.stdout.isTTY && !terminal.env['NO_COLOR'] ? styleText(style, text, { validateStream: false }) : text;
}

/** Two columns, the first as wide as its widest word. */
export function columns(rows: [string, string][], indent = '  '): string[] {
  const width = Math.max(0, ...rows.map(([name]) => name.length));
  return rows.map(([name, value]) => `${indent}${name.padEnd(width)}  ${value}`);
}

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

/** Text of others, made harmless for a terminal: control characters are shown, not obeyed. */
export function visible(text: string): string {
  return text.replace(
    // oxlint-disable-next-line no-control-regex
    /[\u0000-\u0009\u000b-\u001f\u007f-\u009f]/g,
    (character) => `\\u${character.charCodeAt(0).toString(16).padStart(4, '0')}`,
  );
}
