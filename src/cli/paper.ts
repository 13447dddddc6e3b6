// Items of a conversation → text that is only ever added to: each text once, live text as it grows.
import type { AnswerItem, Item } from '../client/items.ts';
import { callsOf, withheldNote } from '../client/messages.ts';

export interface Paper {
  /** A piece of text, after the piece before it. */
  piece(text: string): void;
  /** Ends the text that came in pieces. */
  end(): void;
  /** Lines of their own. `from` is who said it, if not the agent. An answer is what the user asked for; all else is beside it. */
  lines(text: string, kind: 'answer' | 'past' | 'note' | 'call' | 'said', from?: string): void;
}

/** Stands for a summary, whose text is for the model. */
export const summaryNote = 'older messages were summarized';

const stopNotes: Record<string, string> = {
  length: 'the answer was cut off at the length limit',
  content_filter: "the answer was cut off by the provider's filter",
};

/** Only live events told of it. */
const isDraft = (item: Item) => (item.kind === 'answer' || item.kind === 'call') && item.state !== 'kept';

/** What is on paper of an item. */
interface Printed {
  text: string;
  done: boolean;
  noted: boolean;
}

export class Printer {
  private readonly paper: Paper;
  /** Whether text is printed as it grows. */
  private readonly streams: boolean;
  private printed = new Map<string, Printed>();
  /** The item whose last piece ends the paper. */
  private open: string | undefined;

  constructor(paper: Paper, streams: boolean) {
    this.paper = paper;
    this.streams = streams;
  }

  /** Counts kept items as printed. */
  skip(items: readonly Item[]): void {
    for (const item of items)
      if (!isDraft(item)) this.printed.set(item.id, { text: item.kind === 'answer' ? item.text : '', done: true, noted: true });
  }

  /** Prints what is new. */
  print(items: readonly Item[]): void {
    const before = this.printed;
    this.printed = new Map();
    let streaming = false;
    for (const item of items) {
      const known = before.get(item.id) ?? { text: '', done: false, noted: false };
      this.printed.set(item.id, known);
      if (streaming || (isDraft(item) && !this.streams)) continue;
      if (item.kind === 'answer') {
        this.answer(item, known);
        // Text that still grows is the last on paper.
        streaming = item.state === 'live';
      } else if (!known.done) {
        known.done = true;
        this.line(item);
      }
    }
  }

  note(text: string): void {
    this.lines(text, 'note');
  }

  /** Lines that belong to no item. */
  lines(text: string, kind: Parameters<Paper['lines']>[1], from?: string): void {
    this.open = undefined;
    this.paper.lines(text, kind, from);
  }

  private line(item: Exclude<Item, AnswerItem>): void {
    if (item.kind === 'summary') this.note(summaryNote);
    else if (item.kind === 'message') {
      if (!item.own) this.lines(item.text, 'said', item.from);
    } else if (item.kind === 'end') this.note(item.state === 'aborted' ? 'stopped' : `no answer: ${item.error ?? item.state}`);
    else if (item.quiet) return;
    else if (item.kind === 'call') this.lines(`→ ${item.name} ${JSON.stringify(item.args)}`, 'call');
    else this.lines(`← ${item.name}${item.isError ? ' failed' : ''} ${item.text}`, 'call');
  }

  private answer(item: AnswerItem, known: Printed): void {
    if (!item.text.startsWith(known.text)) {
      if (this.open === item.id) this.close();
      this.note(item.text === '' ? 'the answer starts over' : 'the answer was changed to');
      Object.assign(known, { text: '', done: false });
    }
    const rest = item.text.slice(known.text.length);
    const more = known.text !== '' && this.open !== item.id ? `…${rest}` : rest;
    known.text = item.text;
    if (item.state === 'live') {
      if (rest !== '') {
        this.paper.piece(more);
        this.open = item.id;
      }
    } else if (this.open === item.id) {
      if (rest !== '') this.paper.piece(rest);
      this.close();
    } else if (rest !== '') this.lines(more, this.isReply(item) ? 'answer' : 'note');
    const notes = item.message && [stopNotes[item.message.stopReason ?? ''], withheldNote(item.message)];
    if (!known.noted) for (const note of notes ?? []) if (note !== undefined) this.note(note);
    if (item.message) known.noted = true;
  }

  /** Without streaming a program reads: its answer is the last text of its own run, not the text before a call. */
  private isReply({ own, message }: AnswerItem): boolean {
    if (this.streams || !message) return true;
    return own && callsOf(message).length === 0 && message.stopReason !== 'aborted';
  }

  private close(): void {
    this.open = undefined;
    this.paper.end();
  }
}
