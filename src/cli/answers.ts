// What is heard of a session → each thing shown once, in order: live text as it is made, completed by its message and never repeated.
import type { WireMessage } from '../protocol/result.ts';
import type { AgentEvent, ChatEvent, SessionMessage } from '../protocol/wire-event.ts';
import { isSummary, speaker, wordsOf } from './messages.ts';

export interface Paper {
  /** A piece of text, after the piece before it. */
  piece(text: string): void;
  /** The end of the text that came in pieces. */
  end(): void;
  /** Lines of their own. `from` is who said it, when that is not the agent. An answer is what was asked for; all else is beside it. */
  lines(text: string, kind: 'answer' | 'past' | 'note' | 'call' | 'said', from?: string): void;
}

/** What is live of a run. Of it only the transcript is kept, so a gap is possible here and never there. */
interface Live {
  /** Of the last `chat` event: a gap means that text is missing. */
  seq: number;
  /** Its question is on the screen. */
  asked: boolean;
  /** Something of this step was missed; it is shown when it is whole. */
  deaf: boolean;
  /** Of this step: what was heard, and how much of it is on the screen. */
  text: string;
  shown: number;
  /** The beginning of a step that is on the screen, from before a gap. */
  begun: string;
  /** Texts that are on the screen, whose messages are still to come. */
  complete: string[];
  /** Calls that were told of. Their ids begin anew in each run. */
  calls: Set<string>;
  /** Of those, the ones whose results are still to come. */
  waiting: Set<string>;
}

/** Runs that are remembered; older ones have no more to come. */
const mostRuns = 100;

export class Answers {
  private readonly paper: Paper;
  /** Runs that were asked for here. */
  private readonly own: ReadonlySet<string>;
  /** Whether text is shown as it is made. */
  private readonly streams: boolean;
  private readonly live = new Map<string, Live>();
  /** Texts that were made but not shown, because something before them is still to come; their messages bring them. */
  private readonly skipped: { runId: string | undefined; text: string }[] = [];
  /** Messages that were missed are on their way; nothing may be shown before them. */
  private behind = false;
  /** How much is told of tools: nothing, calls, or their results too. */
  private level = 'on';
  /** Runs that are at work, as far as is heard. */
  readonly active = new Set<string>();

  constructor(paper: Paper, own: ReadonlySet<string>, streams: boolean) {
    this.paper = paper;
    this.own = own;
    this.streams = streams;
  }

  chat(event: ChatEvent): void {
    const { runId, seq, state } = event;
    if (state !== 'delta') return this.ended(event);
    this.active.add(runId);
    if (!this.streams) return;
    const run = this.runOf(runId);
    if (seq !== run.seq + 1) this.missed(run);
    run.seq = seq;
    if (event.replace) {
      if (run.shown > 0) this.paper.end();
      if (run.shown > 0 || run.begun !== '') this.paper.lines('it starts over', 'note');
      Object.assign(run, { text: '', shown: 0, begun: '', deaf: false });
    } else if (!run.deaf) {
      run.text += event.deltaText;
      this.showLive(run);
    }
  }

  agent({ runId, stream, data }: AgentEvent): void {
    if (stream === 'lifecycle' && data['phase'] === 'start') this.active.add(runId);
    if (!this.streams) return;
    const run = this.runOf(runId);
    if (stream === 'assistant') this.made(runId, run, String(data['text']));
    else if (stream === 'tool' && data['phase'] === 'start' && this.mayShow(run))
      this.call(run, String(data['toolCallId']), String(data['name']), data['args']);
  }

  message({ message, runId }: SessionMessage): void {
    if (message.role === 'user') this.question(message, runId);
    else if (message.role === 'assistant') this.answer(message, runId);
    else this.result(message, runId);
    for (const run of this.live.values()) this.showLive(run);
  }

  /** A session whose level is not set tells of calls. */
  verbose(level: string | undefined): void {
    this.level = level ?? 'on';
    for (const run of this.live.values()) this.showLive(run);
  }

  /** The connection is gone: what is made until it is back is missed. */
  lost(): void {
    this.behind = true;
    this.active.clear();
    for (const run of this.live.values()) this.missed(run);
  }

  /** What was missed is shown. */
  current(): void {
    this.behind = false;
    for (const run of this.live.values()) this.showLive(run);
  }

  private question(message: WireMessage, runId: string | undefined): void {
    if (isSummary(message)) return this.paper.lines(summedUp, 'note');
    if (runId !== undefined) this.runOf(runId).asked = true;
    if (runId !== undefined && this.own.has(runId) && message.provenance === undefined) return;
    this.paper.lines(wordsOf(message, false), 'said', sourceOf(message));
  }

  private answer(message: WireMessage, runId: string | undefined): void {
    const run = runId === undefined ? undefined : this.runOf(runId);
    const text = wordsOf(message, false);
    // Where nothing streams a program reads, and it asked for the last word of its own runs.
    const kind = this.streams || this.isLastWord(message, runId) ? 'answer' : 'note';
    if (text !== '') {
      if (run?.complete[0] === text) run.complete.shift();
      else {
        if (this.skipped[0]?.runId === runId && this.skipped[0]?.text === text) this.skipped.shift();
        const begun = run?.begun ?? '';
        if (begun !== '' && text.startsWith(begun)) this.paper.lines(`…${text.slice(begun.length)}`, kind);
        else this.paper.lines(text, kind);
        if (run) run.begun = '';
      }
    }
    if (message.stopReason === 'length') this.paper.lines('it was cut off at its greatest length', 'note');
    if (message.stopReason === 'content_filter') this.paper.lines("it was cut off by the provider's filter", 'note');
    for (const block of typeof message.content === 'string' ? [] : message.content)
      if (block.type === 'toolCall') this.call(run, block.id, block.name, block.arguments);
  }

  /** What comes with calls is said on the way to an answer. */
  private isLastWord({ content, stopReason }: WireMessage, runId: string | undefined): boolean {
    const calls = typeof content !== 'string' && content.some(({ type }) => type === 'toolCall');
    return runId !== undefined && this.own.has(runId) && !calls && stopReason !== 'aborted';
  }

  /** A step is whole. */
  private made(runId: string, run: Live, text: string): void {
    if (run.deaf || run.text === '' || !this.mayShow(run)) {
      this.skipped.push({ runId, text });
    } else {
      if (!text.startsWith(run.text)) {
        if (run.shown > 0) this.paper.end();
        if (run.shown > 0) this.paper.lines('it was changed to', 'note');
        run.shown = 0;
      }
      run.text = text;
      this.showLive(run);
      this.paper.end();
      run.complete.push(text);
    }
    Object.assign(run, { text: '', shown: 0, deaf: false });
  }

  private ended(event: ChatEvent): void {
    this.active.delete(event.runId);
    const run = this.live.get(event.runId);
    if (run && run.shown > 0) this.missed(run);
    if (this.own.has(event.runId)) return; // who asked is told by the end of its wait
    if (event.state === 'error') this.paper.lines(`no answer: ${event.errorMessage}`, 'note');
    if (event.state === 'aborted') this.paper.lines('stopped', 'note');
  }

  private mayShow(run: Live): boolean {
    const told = this.level !== 'full' || run.waiting.size === 0;
    return run.asked && !this.behind && this.skipped.length === 0 && run.begun === '' && told;
  }

  private showLive(run: Live): void {
    if (run.shown === run.text.length || !this.mayShow(run)) return;
    this.paper.piece(run.text.slice(run.shown));
    run.shown = run.text.length;
  }

  private missed(run: Live): void {
    if (run.shown > 0) {
      this.paper.end();
      run.begun = run.text.slice(0, run.shown);
    }
    Object.assign(run, { text: '', shown: 0, deaf: true });
  }

  private call(run: Live | undefined, id: string, name: string, args: unknown): void {
    if (run?.calls.has(id)) return;
    run?.calls.add(id);
    run?.waiting.add(id);
    if (this.level !== 'off') this.paper.lines(`→ ${name} ${JSON.stringify(args)}`, 'call');
  }

  private result(message: WireMessage, runId: string | undefined): void {
    if (runId !== undefined) this.runOf(runId).waiting.delete(message.toolCallId ?? '');
    if (this.level !== 'full') return;
    const failed = message.isError ? ' failed' : '';
    this.paper.lines(`← ${message.toolName ?? 'a tool'}${failed} ${wordsOf(message, false)}`, 'call');
  }

  private runOf(runId: string): Live {
    let run = this.live.get(runId);
    if (!run) {
      run = {
        seq: 0,
        asked: this.own.has(runId),
        deaf: false,
        text: '',
        shown: 0,
        begun: '',
        complete: [],
        calls: new Set(),
        waiting: new Set(),
      };
      this.live.set(runId, run);
      if (this.live.size > mostRuns) this.live.delete(this.live.keys().next().value!);
    }
    return run;
  }
}

/** Stands for a summary, which is for the model and as long as it likes. */
export const summedUp = 'older messages were summed up';

/** Who said a thing that was not said here. */
export function sourceOf(message: WireMessage): string {
  const who = speaker(message);
  const kind = message.provenance?.kind;
  if (who === 'user') return 'elsewhere';
  return kind === undefined || kind === 'inter_session' || kind === who ? who : `${kind} ${who}`;
}
