// Runs as they happen → `chat` and `agent` events, nothing of which is stored. A late reader gets the text of the step so far.
import { peerMessage, type PeerMessage } from '../protocol/compat/openclaw.ts';
import type { FeedEvent } from '../protocol/event.ts';
import type { Level } from '../protocol/labels.ts';
import { isTerminal } from '../protocol/run.ts';
import type { Delta, Resumed } from '../engine/scheduler.ts';
import { join } from '../rules/taint.ts';
import { canSee, type Viewer } from '../rules/viewer.ts';
import { wireMessage } from '../sessions/history.ts';
import { currentLevel } from '../sessions/list.ts';
import { openStep } from '../sessions/runs.ts';
import type { EventsParts, Send } from './events.ts';

/** Text of a run that comes in pieces is passed on this often at most. */
const deltaEveryMs = 100;
/** Events of a run that an earlier process sent are not counted anywhere; each time that a run is taken up has this many numbers. */
const numbersEach = 1_000_000;

/** A run as its watchers see it while it lives. */
interface LiveRun {
  sessionKey: string;
  agentId: string;
  level: Level;
  /** Of `chat` events, and of `agent` events. */
  chatSeq: number;
  agentSeq: number;
  /** The step that is being written, and which attempt at it. */
  step: number;
  attempt: number;
  /** The text of the step that was sent; and the text that waits for the next event. */
  sent: string;
  waiting: string;
  cancel: () => void;
  /** Watchers that have all of `sent`. Any other one gets it with the next event. */
  current: WeakSet<Watcher>;
  last?: PeerMessage;
  /** When it began, until its watchers know that it did. */
  toStart?: number | undefined;
}

/** A client that gets runs as they happen. */
export interface Watcher {
  viewer: Viewer;
  /** Whether it follows this session. */
  watches(sessionKey: string): boolean;
  /** `chat` events only, `agent` events too, or tool calls too. */
  wants: 'chat' | 'agent' | 'tools';
  /** A promise means that the client is slow. It gets no deltas until the promise resolves, and then all of the text at once. */
  send(...event: Parameters<Send>): ReturnType<Send>;
}

const wantsRank = { chat: 0, agent: 1, tools: 2 } as const;

export class LiveRuns {
  private readonly parts: EventsParts;
  private readonly runs = new Map<string, LiveRun>();
  private readonly watchers = new Set<Watcher>();
  private readonly slow = new WeakSet<Watcher>();
  private undo = () => {};

  constructor(parts: EventsParts) {
    this.parts = parts;
  }

  start(): void {
    this.undo = this.parts.bus.subscribe({
      wants: (event) => event.kind === 'run' || event.kind === 'entry',
      deliver: (event) => this.heard(event),
      reset: () => {},
      failed: (error) => this.parts.failed(error),
    });
  }

  close(): void {
    this.undo();
    for (const run of this.runs.values()) run.cancel();
    this.runs.clear();
  }

  watch(watcher: Watcher): () => void {
    this.watchers.add(watcher);
    return () => void this.watchers.delete(watcher);
  }

  /** Sends a watcher the text so far of the steps that are being written, of one session or of all. */
  async tellSoFar(watcher: Watcher, key?: string): Promise<void> {
    try {
      for (const [runId, run] of this.runs) {
        if (key !== undefined && run.sessionKey !== key) continue;
        if (run.sent === '' || !this.reaches(watcher, run)) continue;
        const { sessionKey, step } = run;
        const { level, open } = await this.parts.store.read(openStep, { key: sessionKey, runId, step });
        if (level !== undefined) run.level = join(run.level, level);
        // A step that was stored before this read is a message, and a step that was published since has no text here.
        if (!open || this.runs.get(runId) !== run || run.step !== step || run.sent === '') continue;
        if (!this.watchers.has(watcher) || !this.reaches(watcher, run)) continue;
        this.give(watcher, run, JSON.stringify(this.wholeText(runId, run)));
      }
    } catch (thrown) {
      this.parts.failed(thrown);
    }
  }

  /** A run that an earlier process began. Its watchers learn it with the first that it says: they need a moment to come back. */
  resumed({ runId, sessionKey, agentId, level, startedAt, earlier }: Resumed): void {
    if (this.runs.has(runId)) return;
    const run = newRun({ sessionKey, agentId, level });
    run.chatSeq = run.agentSeq = earlier * numbersEach;
    run.toStart = startedAt;
    this.runs.set(runId, run);
  }

  private begin(runId: string, run: LiveRun): void {
    const { toStart } = run;
    if (toStart === undefined) return;
    run.toStart = undefined;
    this.agent(runId, run, 'lifecycle', { phase: 'start', startedAt: toStart }, toStart);
  }

  /** Text as a model makes it. Gathered for a moment, so that a fast model does not make a frame of every word. */
  delta({ runId, text, step, attempt, replace }: Delta): void {
    const run = this.runs.get(runId);
    if (!run) return;
    Object.assign(run, { step, attempt });
    if (replace) {
      this.begin(runId, run);
      run.cancel();
      run.waiting = '';
      run.sent = '';
      const event = this.chatEvent(runId, run, { state: 'delta', ...placeOf(run), deltaText: '', replace: true });
      const written = JSON.stringify(event);
      for (const watcher of this.watchers) if (this.reaches(watcher, run)) this.give(watcher, run, written);
      return;
    }
    if (run.waiting === '') run.cancel = this.parts.after(deltaEveryMs, () => void this.flushChecked(runId, run));
    run.waiting += text;
  }

  /** The session may have risen by an entry whose event is not published yet, and the text was made from it. */
  private async flushChecked(runId: string, run: LiveRun): Promise<void> {
    try {
      const level = await this.parts.store.read(currentLevel, { key: run.sessionKey });
      if (level !== undefined) run.level = join(run.level, level);
      this.flush(runId, run);
    } catch (thrown) {
      this.parts.failed(thrown);
    }
  }

  private flush(runId: string, run: LiveRun): void {
    if (run.waiting === '') return;
    this.begin(runId, run);
    const isFirst = run.sent === '';
    const event = this.chatEvent(runId, run, { state: 'delta', ...placeOf(run), deltaText: run.waiting });
    run.sent += run.waiting;
    run.waiting = '';
    let piece: string | undefined;
    let whole: string | undefined;
    for (const watcher of this.watchers) {
      if (!this.reaches(watcher, run)) continue;
      if (isFirst || run.current.has(watcher)) this.give(watcher, run, (piece ??= JSON.stringify(event)));
      else this.give(watcher, run, (whole ??= JSON.stringify(this.wholeText(runId, run))));
    }
  }

  /** All of the text that was sent. It replaces what a client has of the step, and has the number of the last event. */
  private wholeText(runId: string, run: LiveRun) {
    const { sessionKey, agentId, chatSeq: seq, step, attempt, sent } = run;
    return { runId, sessionKey, agentId, seq, state: 'delta', step, attempt, offset: 0, deltaText: sent, replace: true };
  }

  /** Sends text, unless the watcher is slow. */
  private give(watcher: Watcher, run: LiveRun, text: string): void {
    if (this.slow.has(watcher)) {
      run.current.delete(watcher);
      return;
    }
    run.current.add(watcher);
    this.send(watcher, 'chat', text);
  }

  private send(watcher: Watcher, event: 'chat' | 'agent', text: string): void {
    const slow = watcher.send(event, text);
    if (!slow || this.slow.has(watcher)) return;
    this.slow.add(watcher);
    const ready = () => void this.slow.delete(watcher);
    slow.then(ready, ready);
  }

  private heard(event: FeedEvent): void {
    if (event.kind === 'entry') return this.said(event);
    if (event.kind !== 'run') return;
    const { runId, state, at } = event;
    const run = this.runOf(event, runId);
    if (state === 'running') run.toStart = at;
    if (state === 'running' || isTerminal(state)) this.begin(runId, run);
    if (!isTerminal(state)) {
      if (state === 'queued') this.runs.delete(runId); // nothing to show until it runs
      return;
    }
    run.cancel();
    this.flush(runId, run);
    const { error } = event;
    const message = run.last ? { message: run.last } : {};
    if (state === 'ok') {
      this.agent(runId, run, 'lifecycle', { phase: 'end', endedAt: at }, at);
      this.chat(runId, run, { state: 'final', ...message });
    } else {
      this.agent(runId, run, 'lifecycle', { phase: 'error', endedAt: at, error: error ?? state }, at);
      this.chat(runId, run, state === 'aborted' ? { state: 'aborted', ...message } : { state: 'error', errorMessage: error ?? state });
    }
    this.runs.delete(runId);
  }

  private said(event: FeedEvent & { kind: 'entry' }): void {
    const { message, at } = event;
    if (message.runId === undefined) return this.injected(event);
    const run = this.runOf(event, message.runId);
    this.begin(message.runId, run);
    if (message.role === 'assistant') {
      // What was said in pieces is complete now.
      run.cancel();
      this.flush(message.runId, run);
      run.last = peerMessage(wireMessage(message));
      run.sent = '';
      run.current = new WeakSet();
      const text = message.content.map((block) => (block.type === 'text' ? block.text : '')).join('');
      if (text !== '') this.agent(message.runId, run, 'assistant', { text, delta: text }, at);
      for (const block of message.content) {
        if (block.type !== 'toolCall') continue;
        this.agent(message.runId, run, 'tool', { phase: 'start', toolCallId: block.id, name: block.name, args: block.arguments }, at);
      }
    } else if (message.role === 'toolResult') {
      const data = { phase: 'result', toolCallId: message.toolCallId, name: message.toolName, isError: message.isError ?? false };
      this.agent(message.runId, run, 'tool', data, at);
    }
  }

  /** A message that an operator wrote into the transcript belongs to no run; clients get it as the end of one. */
  private injected({ message, sessionKey, agentId, level }: FeedEvent & { kind: 'entry' }): void {
    if (message.role !== 'assistant') return;
    const payload = {
      runId: `inject-${message.id}`,
      sessionKey,
      agentId,
      seq: 0,
      state: 'final',
      message: peerMessage(wireMessage(message)),
    };
    this.tell('chat', 'chat', { sessionKey, agentId, level }, payload);
  }

  private runOf(event: FeedEvent, runId: string): LiveRun {
    const { sessionKey, agentId, level } = event;
    const known = this.runs.get(runId);
    if (known) {
      known.level = join(known.level, level);
      return known;
    }
    const run = newRun({ sessionKey, agentId, level });
    this.runs.set(runId, run);
    return run;
  }

  private chat(runId: string, run: LiveRun, rest: object): void {
    this.tell('chat', 'chat', run, this.chatEvent(runId, run, rest));
  }

  private chatEvent(runId: string, run: LiveRun, rest: object): object {
    const { sessionKey, agentId } = run;
    return { runId, sessionKey, agentId, seq: ++run.chatSeq, ...rest };
  }

  private agent(runId: string, run: LiveRun, stream: string, data: object, ts: number): void {
    const { sessionKey, agentId } = run;
    const payload = { runId, sessionKey, agentId, seq: ++run.agentSeq, stream, ts, data };
    this.tell('agent', stream === 'tool' ? 'tools' : 'agent', run, payload);
  }

  private tell(event: 'chat' | 'agent', kind: Watcher['wants'], about: OfSession, payload: object): void {
    let text: string | undefined;
    for (const watcher of this.watchers)
      if (this.reaches(watcher, about, kind)) this.send(watcher, event, (text ??= JSON.stringify(payload)));
  }

  private reaches(watcher: Watcher, about: OfSession, kind: Watcher['wants'] = 'chat'): boolean {
    const { sessionKey: key, agentId: agent, level } = about;
    if (wantsRank[kind] > wantsRank[watcher.wants] || !watcher.watches(key)) return false;
    return canSee(this.parts.world(), watcher.viewer, { key, agent, level });
  }
}

type OfSession = Pick<LiveRun, 'sessionKey' | 'agentId' | 'level'>;

function newRun(about: OfSession): LiveRun {
  const texts = { step: 0, attempt: 0, sent: '', waiting: '', cancel: () => {}, current: new WeakSet<Watcher>() };
  return { ...about, chatSeq: 0, agentSeq: 0, ...texts };
}

const placeOf = ({ step, attempt, sent }: LiveRun) => ({ step, attempt, offset: sent.length });
