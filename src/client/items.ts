// Live events and kept messages of one session → one list of items: each text once, in the order of the transcript.
import type { WaitAnswer, WireMessage } from '../protocol/result.ts';
import type { AgentEvent, ChatEvent } from '../protocol/wire-event.ts';
import { callsOf, isSummary, sourceOf, textOf } from './messages.ts';

interface Common {
  /** Never changes, also when live text becomes a kept message. */
  id: string;
  runId?: string;
}

/** A text of the agent: `live` grows, `whole` is complete, `kept` is in the transcript, `cut` ended early. */
export interface AnswerItem extends Common {
  kind: 'answer';
  /** Whether this client sent the message that it answers. */
  own: boolean;
  state: 'live' | 'whole' | 'kept' | 'cut';
  text: string;
  /** Set once it is kept. */
  message?: WireMessage;
}

export interface CallItem extends Common {
  kind: 'call';
  state: 'live' | 'kept';
  callId: string;
  name: string;
  args: unknown;
  /** Whether the verbose level of the session hid it when it came. */
  quiet: boolean;
}

export type Item =
  | (Common & { kind: 'message'; own: boolean; from: string; text: string; message: WireMessage })
  | AnswerItem
  | CallItem
  | (Common & { kind: 'result'; callId: string; name: string; isError: boolean; text: string; quiet: boolean; message: WireMessage })
  /** Older messages were replaced by a summary for the model. */
  | (Common & { kind: 'summary'; message: WireMessage })
  /** A run ended without success. */
  | (Common & { kind: 'end'; own: boolean; state: string; error?: string });

/** An item that is not kept yet, after everything that is. */
interface Draft {
  item: AnswerItem | CallItem;
  run: Run;
  /** Whether it is listed: nothing that belongs before it is missing. */
  listed: boolean;
  /** Part of its text was missed. Its message brings the rest, or the text so far does. */
  torn: boolean;
  /** The step of a text that came in pieces. */
  step: number | undefined;
  /** Its beginning was missed. It is never listed; it delays what follows until its message arrives. */
  unheard: boolean;
}

/** What is known of a run's live events. Events may be missed; the transcript never has a gap. */
interface Run {
  id: string;
  /** Runs are numbered as they become known. */
  number: number;
  /** The highest number when it ended, or when the connection was lost during it. */
  endedAt: number | undefined;
  /** Whether the message that started it is in the list, or was sent by this client. */
  started: boolean;
  /** The draft that deltas go to. */
  growing: Draft | undefined;
  /** Ids of its tool calls, which are unique within a run only; the draft until the call is kept. */
  calls: Map<string, Draft | undefined>;
  /** Calls without a result. */
  waiting: Set<string>;
}

/** Runs and items that are remembered; older ones are forgotten. */
const most = { runs: 100, items: 2_000 } as const;

export class Items {
  /** Runs at work, as far as live events say. */
  readonly active = new Set<string>();
  private readonly own: ReadonlySet<string>;
  private readonly runs = new Map<string, Run>();
  private kept: Item[] = [];
  private drafts: Draft[] = [];
  /** Missed messages are on their way; no draft is listed before them. */
  private behind = false;
  /** How much to tell of tools: `off` nothing, `on` calls, `full` results too. */
  private level = 'on';
  private listed: readonly Item[] | undefined;
  private ids = 0;
  private numbers = 0;

  /** `own`: ids of runs that this client started; the set may grow. */
  constructor(own: ReadonlySet<string>) {
    this.own = own;
  }

  /** In order. Kept items stay where they are; drafts follow them. The array is the same until something changes. */
  get list(): readonly Item[] {
    return (this.listed ??= [...this.kept, ...this.drafts.flatMap(({ item, listed }) => (listed ? [item] : []))]);
  }

  chat(event: ChatEvent): void {
    if (event.state === 'delta') this.delta(event);
    else this.stopped(event);
    this.refresh();
  }

  agent({ runId, stream, data }: AgentEvent): void {
    if (stream === 'lifecycle' && data['phase'] === 'start') this.active.add(runId);
    if (stream === 'assistant') this.complete(this.runOf(runId), String(data['text']));
    if (stream === 'tool' && data['phase'] === 'start')
      this.called(this.runOf(runId), String(data['toolCallId']), String(data['name']), data['args']);
    this.refresh();
  }

  /** The next message of the transcript. */
  message(message: WireMessage): void {
    const { runId } = message.entry;
    const run = runId === undefined ? undefined : this.runOf(runId);
    this.settleBefore(run);
    if (message.role === 'user') this.question(message, run);
    else if (message.role === 'assistant') this.answer(message, run);
    else this.result(message, run);
    this.refresh();
  }

  /** A session without a level tells of calls. */
  verbose(level: string | undefined): void {
    this.level = level ?? 'on';
    this.refresh();
  }

  /** The connection is gone: live events are missed until it is back. */
  lost(): void {
    this.behind = true;
    this.active.clear();
    for (const run of this.runs.values()) {
      this.missed(run);
      run.endedAt ??= this.numbers;
    }
    this.refresh();
  }

  /** Every missed message has arrived. */
  current(): void {
    this.behind = false;
    this.refresh();
  }

  /** A run of this client has ended and all its messages are here. */
  ended({ runId, state, error }: WaitAnswer): void {
    this.settle((draft) => draft.run.id === runId);
    if (state !== 'ok') this.end(runId, true, state, error);
    this.refresh();
  }

  // Live events -------------------------------------------------------------------------------------------------------

  private delta(event: ChatEvent & { state: 'delta' }): void {
    this.active.add(event.runId);
    const run = this.runOf(event.runId);
    run.endedAt = undefined;
    const { step, offset, deltaText, replace } = event;
    if (run.growing && run.growing.step !== step) this.missed(run);
    const text = run.growing ? (run.growing.item as AnswerItem).text : '';
    if (!replace && offset !== text.length) return this.missed(run);
    run.growing ??= this.drafts.findLast((draft) => draft.run === run && draft.torn && draft.step === step);
    if (!run.growing && deltaText === '') return;
    run.growing ??= this.draftAnswer(run, 'live');
    Object.assign(run.growing, { torn: false, step });
    this.write(run.growing, { text: replace ? deltaText : text + deltaText });
  }

  /** A step of the model is complete. */
  private complete(run: Run, text: string): void {
    if (run.growing) this.write(run.growing, { text, state: 'whole' });
    else this.write(Object.assign(this.draftAnswer(run, 'whole'), { unheard: true }), { text });
    run.growing = undefined;
  }

  private called(run: Run, callId: string, name: string, args: unknown): void {
    if (run.calls.has(callId)) return;
    const item: CallItem = {
      kind: 'call',
      id: this.newId(run),
      runId: run.id,
      state: 'live',
      callId,
      name,
      args,
      quiet: this.level === 'off',
    };
    run.calls.set(callId, this.draft(run, item));
    run.waiting.add(callId);
  }

  private stopped(event: ChatEvent & { state: 'final' | 'aborted' | 'error' }): void {
    const { runId, state } = event;
    this.active.delete(runId);
    const run = this.runs.get(runId);
    if (run) {
      this.missed(run);
      run.endedAt = this.numbers;
    }
    if (this.own.has(runId) || state === 'final') return; // the client learns of its own runs from `ended`
    this.settle((draft) => draft.run.id === runId && draft.torn);
    this.end(runId, false, state, state === 'error' ? event.errorMessage : undefined);
  }

  private missed(run: Run): void {
    const { growing } = run;
    if (growing?.listed) growing.torn = true;
    else if (growing) this.drafts = this.drafts.filter((draft) => draft !== growing);
    run.growing = undefined;
  }

  // Messages ----------------------------------------------------------------------------------------------------------

  private question(message: WireMessage, run: Run | undefined): void {
    const common = { id: message.entry.id, ...(run ? { runId: run.id } : {}), message };
    if (isSummary(message)) return this.keep({ kind: 'summary', ...common });
    if (run) run.started = true;
    const own = run !== undefined && this.own.has(run.id) && message.provenance === undefined;
    this.keep({ kind: 'message', ...common, own, from: sourceOf(message), text: textOf(message, false) });
  }

  private answer(message: WireMessage, run: Run | undefined): void {
    const { id } = message.entry;
    const text = textOf(message, false);
    const known = run && this.draftOf(run, text);
    if (text !== '' || message.stopReason !== undefined)
      this.keep({
        kind: 'answer',
        id: known?.id ?? id,
        ...(run ? { runId: run.id } : {}),
        own: run !== undefined && this.own.has(run.id),
        state: 'kept',
        text,
        message,
      });
    for (const { id: callId, name, arguments: args } of callsOf(message)) {
      const draft = run?.calls.get(callId);
      if (draft) {
        this.drop(draft);
        this.keep({ ...(draft.item as CallItem), state: 'kept' });
      } else if (!run?.calls.has(callId)) {
        const quiet = this.level === 'off';
        this.keep({ kind: 'call', id: `${id}:${callId}`, ...(run ? { runId: run.id } : {}), state: 'kept', callId, name, args, quiet });
        run?.waiting.add(callId);
      }
      run?.calls.set(callId, undefined);
    }
  }

  private result(message: WireMessage, run: Run | undefined): void {
    const { toolCallId = '', toolName = 'a tool', isError = false } = message;
    run?.waiting.delete(toolCallId);
    this.keep({
      kind: 'result',
      id: message.entry.id,
      ...(run ? { runId: run.id } : {}),
      callId: toolCallId,
      name: toolName,
      isError,
      text: textOf(message, false),
      quiet: this.level !== 'full',
      message,
    });
  }

  /** Takes out the item that a message completes: the first with its text, or whose missing rest it may bring. */
  private draftOf(run: Run, text: string): AnswerItem | undefined {
    if (text === '') return undefined;
    const own = this.drafts.filter((draft) => draft.run === run && draft.item.kind === 'answer');
    const unheard = own.find((draft) => draft.unheard && draft.item.kind === 'answer' && draft.item.text === text);
    if (unheard) this.drop(unheard);
    const found = own.find(({ torn, unheard, item }) => item.kind === 'answer' && !unheard && (torn || item.text === text));
    if (found) {
      this.drop(found);
      return found.item as AnswerItem;
    }
    const at = this.kept.findLastIndex((item) => item.kind === 'answer' && item.runId === run.id && item.state === 'cut');
    return at < 0 ? undefined : (this.kept.splice(at, 1)[0] as AnswerItem);
  }

  // The list ----------------------------------------------------------------------------------------------------------

  private end(runId: string, own: boolean, state: string, error: string | undefined): void {
    this.keep({ kind: 'end', id: `${runId}:end`, runId, own, state, ...(error === undefined ? {} : { error }) });
  }

  private keep(item: Item): void {
    this.kept.push(item);
    if (this.kept.length > most.items) this.kept = this.kept.slice(-most.items / 2);
    this.listed = undefined;
  }

  /** A message of a later run shows that what is left of a run that ended has no message. `ended` does this for own runs. */
  private settleBefore(later: Run | undefined): void {
    if (!later || this.behind) return;
    this.settle(({ run }) => run.endedAt !== undefined && run.endedAt < later.number && !this.own.has(run.id));
  }

  /** Text that was listed stays, as cut off; all else goes. */
  private settle(which: (draft: Draft) => boolean): void {
    for (const draft of this.drafts.filter(which)) {
      this.drop(draft);
      const { item } = draft;
      if (draft.listed && item.kind === 'answer' && item.state === 'live') this.keep({ ...item, state: 'cut' });
    }
  }

  private draftAnswer(run: Run, state: 'live' | 'whole'): Draft {
    return this.draft(run, { kind: 'answer', id: this.newId(run), runId: run.id, own: this.own.has(run.id), state, text: '' });
  }

  private draft(run: Run, item: Draft['item']): Draft {
    const draft: Draft = { item, run, listed: false, torn: false, step: undefined, unheard: false };
    this.drafts.push(draft);
    return draft;
  }

  private drop(draft: Draft): void {
    this.drafts = this.drafts.filter((one) => one !== draft);
    if (draft.run.growing === draft) draft.run.growing = undefined;
    this.listed = undefined;
  }

  private write(draft: Draft, change: Partial<Pick<AnswerItem, 'text' | 'state'>>): void {
    draft.item = { ...(draft.item as AnswerItem), ...change };
    this.listed = undefined;
  }

  /** Lists each draft whose turn has come. */
  private refresh(): void {
    const held = new Set<Run>();
    for (const draft of this.drafts) {
      const { run, item } = draft;
      if (draft.unheard) return;
      if (!draft.listed) {
        const early = this.behind || !run.started || (item.kind === 'answer' && this.level === 'full' && run.waiting.size > 0);
        if (early || held.has(run)) {
          held.add(run);
          continue;
        }
        draft.listed = true;
        this.listed = undefined;
      }
      if (draft.torn) held.add(run);
    }
  }

  private newId(run: Run): string {
    return `${run.id}:${++this.ids}`;
  }

  private runOf(id: string): Run {
    let run = this.runs.get(id);
    if (!run) {
      run = {
        id,
        number: ++this.numbers,
        endedAt: undefined,
        started: this.own.has(id),
        growing: undefined,
        calls: new Map(),
        waiting: new Set(),
      };
      this.runs.set(id, run);
      if (this.runs.size > most.runs) this.runs.delete(this.runs.keys().next().value!);
    }
    return run;
  }
}
