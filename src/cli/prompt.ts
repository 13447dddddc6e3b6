// The terminal of a chat: messages scroll above, and the line that the user types stays below them.
import { createInterface, type Interface } from 'node:readline';
import { Transform, type TransformCallback } from 'node:stream';
import { StringDecoder } from 'node:string_decoder';
import type { Paper } from './paper.ts';
import { oneLine, paint, visible, type Terminal } from './terminal.ts';

export interface PromptOptions {
  /** Lines for the arrow keys, newest first. */
  history: string[];
  complete(line: string): string[];
  line(text: string): void;
  /** Ctrl-C; `empty` if the line has no text. */
  interrupt(empty: boolean): void;
  /** Ctrl-D, or the terminal has closed. */
  closed(): void;
}

/** Shows a line break in the input line, so that a paste is one message. */
const breakSign = '⏎';

export class Prompt implements Paper {
  private readonly terminal: Terminal;
  private input: Paste | undefined;
  private readline: Interface | undefined;
  /** The last row of streamed text. It is redrawn above the prompt with every piece. */
  private row = '';
  private busy = false;
  /** Whether the row and the prompt are on the screen. */
  private drawn = { row: false, prompt: false };

  constructor(terminal: Terminal) {
    this.terminal = terminal;
  }

  /** Shows the prompt. Before this call the class only prints. */
  open(options: PromptOptions): void {
    this.input = new Paste(this.terminal.stdin);
    const readline = createInterface({
      input: this.input,
      output: this.terminal.stdout,
      terminal: true,
      history: options.history.map(oneRow),
      historySize: 1000,
      completer: (line: string) => [options.complete(line), line],
    });
    readline.on('line', (text) => {
      // The row above the prompt scrolls away with it.
      this.row = '';
      this.drawn = { row: false, prompt: false };
      options.line(text.replaceAll(breakSign, '\n'));
      this.draw('');
    });
    readline.on('SIGINT', () => {
      const empty = readline.line === '';
      if (!empty) for (const name of ['e', 'u']) readline.write(null, { ctrl: true, name });
      options.interrupt(empty);
    });
    readline.on('close', () => {
      if (this.readline) options.closed();
    });
    this.readline = readline;
    this.terminal.stdout.write('\u001b[?2004h'); // bracketed paste: the terminal marks what is pasted
    this.draw('');
  }

  piece(text: string): void {
    const rows = wrapped(this.row + clean(text), (this.terminal.stdout.columns || 80) - 1);
    this.row = rows.pop()!;
    this.draw(rows.map((row) => `${row}\n`).join(''));
  }

  end(): void {
    const { row } = this;
    this.row = '';
    if (row !== '') this.draw(`${row}\n`);
  }

  lines(text: string, kind: Parameters<Paper['lines']>[1], from?: string): void {
    const { row } = this;
    this.row = '';
    this.draw(`${row === '' ? '' : `${row}\n`}${lineOf(this.terminal, text, kind, from)}`);
  }

  /** Shows whether an answer is under way. */
  working(busy: boolean): void {
    if (this.busy === busy) return;
    this.busy = busy;
    this.draw('');
  }

  close(): void {
    const { readline } = this;
    if (!readline) return;
    this.terminal.stdout.write(`${this.erased(readline)}${this.row === '' ? '' : `${this.row}\n`}\u001b[?2004l`);
    this.readline = undefined;
    readline.close();
    this.input?.release();
  }

  /** Erases the row and the prompt, writes the text, and draws them again. */
  private draw(text: string): void {
    const { readline } = this;
    if (!readline) return void this.terminal.stdout.write(text);
    const above = `${this.erased(readline)}${text}${this.row === '' ? '' : `${this.row}\n`}`;
    this.terminal.stdout.write(above);
    // Readline counts the rows above its cursor, loses count in a paste, and has nothing to go up to now.
    (readline as Interface & { prevRows: number }).prevRows = 0;
    readline.setPrompt(this.busy ? paint(this.terminal, 'gray', '… ') : paint(this.terminal, 'cyan', '› '));
    readline.prompt(true);
    this.drawn = { row: this.row !== '', prompt: true };
  }

  private erased(readline: Interface): string {
    if (!this.drawn.prompt) return '';
    const up = readline.getCursorPos().rows + (this.drawn.row ? 1 : 0);
    return `${up > 0 ? `\u001b[${up}A` : ''}\r\u001b[J`;
  }
}

/** A message as the screen shows it. */
export function lineOf(terminal: Terminal, text: string, kind: Parameters<Paper['lines']>[1], from?: string): string {
  const who = from === undefined ? '' : `${oneLine(from)} › `.trimStart();
  if (kind === 'answer') return `${clean(text)}\n`;
  if (kind === 'said') return `${paint(terminal, 'cyan', who)}${clean(text)}\n`;
  const plain =
    kind === 'past'
      ? `${who}${clean(text)}`
      : kind === 'note'
        ? `(${clean(text)})`
        : shortened(oneLine(text), (terminal.stdout.columns || 80) - 1);
  return `${plain
    .split('\n')
    .map((line) => paint(terminal, 'gray', line))
    .join('\n')}\n`;
}

const shortened = (text: string, limit: number) => (text.length <= limit ? text : `${text.slice(0, limit - 1)}…`);

/** Text of others, with the control characters that every text may hold in a form that harms nothing. */
const clean = (text: string) => visible(text.replaceAll('\r\n', '\n').replaceAll('\t', '    '));

const oneRow = (text: string) => text.replaceAll('\n', breakSign);

/** Rows that fit, broken between words where that goes; the last one is still open. A character counts as wide as it can be. */
function wrapped(text: string, limit: number): string[] {
  const rows: string[] = [];
  for (const line of text.split('\n')) {
    let row = '';
    let width = 0;
    for (const character of line) {
      const wide = widthOf(character);
      if (width + wide > limit) {
        const blank = row.lastIndexOf(' ');
        const rest = character === ' ' || blank < 1 ? '' : row.slice(blank + 1);
        rows.push(rest === '' ? row : row.slice(0, blank));
        row = rest;
        width = widthOf(rest);
        if (character === ' ') continue;
      }
      row += character;
      width += wide;
    }
    rows.push(row);
  }
  return rows;
}

/** The most that it can take. */
function widthOf(text: string): number {
  let width = 0;
  for (const character of text) width += character.codePointAt(0)! >= 0x1100 ? 2 : 1;
  return width;
}

const pasteStart = '\u001b[200~';
const pasteEnd = '\u001b[201~';

/** Keyboard input with the line breaks of a paste replaced, so that readline does not submit it line by line. */
class Paste extends Transform {
  private readonly stdin: Terminal['stdin'];
  private readonly decoder = new StringDecoder('utf8');
  private rest = '';
  private inside = false;

  constructor(stdin: Terminal['stdin']) {
    super({ encoding: 'utf8' });
    this.stdin = stdin;
    stdin.pipe(this);
  }

  /** Called by readline. */
  setRawMode(raw: boolean): void {
    this.stdin.setRawMode?.(raw);
  }

  release(): void {
    this.stdin.unpipe(this);
    this.stdin.pause();
  }

  override _transform(chunk: Buffer | string, _: BufferEncoding, done: TransformCallback): void {
    let text = this.rest + (typeof chunk === 'string' ? chunk : this.decoder.write(chunk));
    for (;;) {
      const mark = this.inside ? pasteEnd : pasteStart;
      const at = text.indexOf(mark);
      if (at < 0) break;
      this.pass(text.slice(0, at));
      text = text.slice(at + mark.length);
      this.inside = !this.inside;
    }
    // The beginning of a mark waits for its end. A lone Escape is a key.
    const mark = this.inside ? pasteEnd : pasteStart;
    let held = mark.length - 1;
    while (held > 1 && !text.endsWith(mark.slice(0, held))) held--;
    if (held === 1) held = 0;
    this.rest = text.slice(text.length - held);
    this.pass(text.slice(0, text.length - held));
    done();
  }

  private pass(text: string): void {
    if (text !== '')
      this.push(
        this.inside
          ? text
              .replace(/(\r\n|\r|\n)+$/, '')
              .replaceAll(/\r\n|\r|\n/g, breakSign)
              .replaceAll('\t', '    ')
          : text,
      );
  }
}
