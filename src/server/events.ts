// What happened → the events of the protocol. Each is written once, whoever and however many hear it.
import type { Cursors } from '../cursor.ts';
import { peerMessage, type PeerMessage } from '../protocol/compat/openclaw.ts';
import type { FeedEvent } from '../protocol/event.ts';
import type { EventName } from '../protocol/frame.ts';
import type { Level } from '../protocol/labels.ts';
import { isTerminal } from '../protocol/run.ts';
import type { Bus } from '../events/bus.ts';
import type { World } from '../rules/decide.ts';
import { join } from '../rules/taint.ts';
import { canSee, type Viewer } from '../rules/viewer.ts';
import type { LiveFacts } from '../sessions/describe.ts';
import { wireMessage } from '../sessions/history.ts';
import { currentLevel, currentRow, currentUse } from '../sessions/list.ts';
import type { ReadQuery, Store } from '../store/contract.ts';
import { latest } from '../store/tables/feed.ts';

interface Written {
  /** Of the session when this was written, which may be later than the event: the row in it is of that moment. */
  level: Level;
  /** `session.message`. */
  message?: string;
  /** `sessions.changed`. */
  changed?: string;
}

/** Sessions that a connection follows one by one, each from a position on. */
export type Followed = Map<string, { from: number; undo: () => void }>;

/** An event on its way to one connection: its payload as text. The promise is there when the reader is slow. */
export type Send = (event: EventName, payload: string) => Promise<void> | void;

export interface EventsParts {
  store: Store;
  bus: Bus;
  cursors: Cursors;
  world(): World;
  liveFacts: LiveFacts;
  now(): number;
  /** Runs work after a while; returns the undo. */
  after(ms: number, work: () => void): () => void;
  failed(error: unknown): void;
}

/** Text of a run that comes in pieces is passed on this often at most. */
const deltaEveryMs = 100;

export class Events {
  private readonly parts: EventsParts;
  /** For those who follow everything, and for those who only want messages. */
  private readonly written = { all: new WeakMap<FeedEvent, Promise<Written>>(), messages: new WeakMap<FeedEvent, Promise<Written>>() };

  constructor(parts: EventsParts) {
    this.parts = parts;
  }

  /** Where the feed is now: a subscriber that starts here misses nothing that comes. */
  position(): Promise<number> {
    return this.parts.store.read(feedEnd, {});
  }

  /** What happens in all sessions; messages of those that are followed one by one come from there. Returns the undo. */
  followAll(viewer: Viewer, except: Followed, send: Send, from: number, over: (error: unknown) => void): () => void {
    return this.parts.bus.subscribe(
      {
        wants: (event) => this.sees(viewer, event, event.level),
        deliver: async (event) => {
          const { message, changed, level } = await this.write('all', event);
          if (!this.sees(viewer, event, level)) return;
          const own = except.get(event.sessionKey);
          if (message !== undefined && !(own && event.pos > own.from)) await send('session.message', message);
          if (changed !== undefined) await send('sessions.changed', changed);
        },
        reset: () => void send('sessions.changed', JSON.stringify({ reason: 'resync', ts: this.parts.now() })),
        failed: over,
      },
      from,
    );
  }

  /** The messages of one key, across its lives. */
  followKey(viewer: Viewer, key: string, send: Send, from: number, over: (error: unknown) => void): () => void {
    return this.parts.bus.subscribe(
      {
        wants: (event) => event.kind === 'entry' && event.sessionKey === key && this.sees(viewer, event, event.level),
        deliver: async (event) => {
          const { message, level } = await this.write('messages', event);
          if (message !== undefined && this.sees(viewer, event, level)) await send('session.message', message);
        },
        reset: () => void send('sessions.changed', JSON.stringify({ sessionKey: key, reason: 'resync', ts: this.parts.now() })),
        failed: over,
      },
      from,
    );
  }

  private sees(viewer: Viewer, { sessionKey: key, agentId: agent }: FeedEvent, level: Level): boolean {
    return canSee(this.parts.world(), viewer, { key, agent, level });
  }

  private write(kind: 'all' | 'messages', event: FeedEvent): Promise<Written> {
    let made = this.written[kind].get(event);
    if (!made) this.written[kind].set(event, (made = kind === 'all' ? this.compose(event) : this.message(event)));
    return made;
  }

  /** Without the row of the session, which takes half a dozen queries. */
  private async message(event: FeedEvent): Promise<Written> {
    if (event.kind !== 'entry') return { level: event.level };
    const { level = event.level, totalTokens } = (await this.parts.store.read(currentUse, { sessionId: event.sessionId })) ?? {};
    return { level, message: JSON.stringify(this.messagePayload(event, totalTokens)) };
  }

  private async compose(event: FeedEvent): Promise<Written> {
    const common = this.commonPayload(event);
    if (event.kind === 'exchange' || event.kind === 'delivery' || (event.kind === 'run' && !isTerminal(event.state)))
      return { level: event.level };
    const { session, level = event.level } = (await this.row(event.sessionId)) ?? {};
    switch (event.kind) {
      case 'entry':
        return {
          level,
          message: JSON.stringify(this.messagePayload(event, session?.totalTokens)),
          changed: JSON.stringify({ ...common, phase: 'message', ...idsOf(event), session }),
        };
      case 'run': {
        const { runId, state, error } = event;
        return { level, changed: JSON.stringify({ ...common, phase: 'end', runId, state, error, session }) };
      }
      case 'session': {
        const reason = { created: 'create', changed: 'patch', reset: 'reset', archived: 'archive', deleted: 'delete' }[event.change];
        return { level, changed: JSON.stringify({ ...common, reason, ...(event.change === 'deleted' ? {} : { session }) }) };
      }
    }
  }

  private row(sessionId: string) {
    return this.parts.store.read(currentRow(this.parts.world(), this.parts.liveFacts), { sessionId });
  }

  private commonPayload({ sessionKey, agentId, sessionId, at, pos }: FeedEvent) {
    return { sessionKey, agentId, sessionId, ts: at, cursor: this.parts.cursors.feed(pos) };
  }

  private messagePayload(event: FeedEvent & { kind: 'entry' }, totalTokens: number | undefined) {
    const usage = totalTokens === undefined ? {} : { usage: { totalTokens } };
    return { ...this.commonPayload(event), ...idsOf(event), message: peerMessage(wireMessage(event.message)), ...usage };
  }
}

function idsOf({ message: { id, seq, runId } }: FeedEvent & { kind: 'entry' }) {
  return { messageId: id, messageSeq: seq, ...(runId === undefined ? {} : { runId }) };
}

/** A run as its watchers see it while it lives. */
interface LiveRun {
  sessionKey: string;
  agentId: string;
  level: Level;
  /** Of `chat` events, and of `agent` events. */
  chatSeq: number;
  agentSeq: number;
  waiting: string;
  cancel: () => void;
  last?: PeerMessage;
}

/** Who is told of runs as they happen: `chat` and `agent` events, nothing of which is kept. */
export interface Watcher {
  viewer: Viewer;
  /** Whether it follows this session. */
  watches(sessionKey: string): boolean;
  /** Whether it wants to hear of tool calls. */
  tools: boolean;
  send: Send;
}

export class LiveRuns {
  private readonly parts: EventsParts;
  private readonly runs = new Map<string, LiveRun>();
  private readonly watchers = new Set<Watcher>();
  private undo = () => {};

  constructor(parts: EventsParts) {
    this.parts = parts;
  }

  start(): void {
    this.undo = this.parts.bus.subscribe({
      wants: (event) => event.kind === 'run' || (event.kind === 'entry' && event.message.runId !== undefined),
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

  /** Text as a model makes it. Gathered for a moment, so that a fast model does not make a frame of every word. */
  delta({ runId, text, replace }: { runId: string; text: string; replace?: true }): void {
    const run = this.runs.get(runId);
    if (!run) return;
    if (replace) {
      run.cancel();
      run.waiting = '';
      this.chat(runId, run, { state: 'delta', deltaText: '', replace: true });
      return;
    }
    if (run.waiting === '') run.cancel = this.parts.after(deltaEveryMs, () => void this.flushChecked(runId, run));
    run.waiting += text;
  }

  /** What raised the session may not have been heard of here yet, and the text was made from it. */
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
    const deltaText = run.waiting;
    run.waiting = '';
    this.chat(runId, run, { state: 'delta', deltaText });
  }

  private heard(event: FeedEvent): void {
    if (event.kind === 'entry') return this.said(event);
    if (event.kind !== 'run') return;
    const { runId, state, at } = event;
    const run = this.runOf(event, runId);
    if (state === 'running') this.agent(runId, run, 'lifecycle', { phase: 'start', startedAt: at }, at);
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
    const run = this.runOf(event, message.runId!);
    if (message.role === 'assistant') {
      // What was said in pieces is complete now.
      run.cancel();
      this.flush(message.runId!, run);
      run.last = peerMessage(wireMessage(message));
      const text = message.content.map((block) => (block.type === 'text' ? block.text : '')).join('');
      if (text !== '') this.agent(message.runId!, run, 'assistant', { text, delta: text }, at);
      for (const block of message.content) {
        if (block.type !== 'toolCall') continue;
        this.agent(message.runId!, run, 'tool', { phase: 'start', toolCallId: block.id, name: block.name, args: block.arguments }, at);
      }
    } else if (message.role === 'toolResult') {
      const data = { phase: 'result', toolCallId: message.toolCallId, name: message.toolName, isError: message.isError ?? false };
      this.agent(message.runId!, run, 'tool', data, at);
    }
  }

  private runOf(event: FeedEvent, runId: string): LiveRun {
    const { sessionKey, agentId, level } = event;
    const known = this.runs.get(runId);
    if (known) {
      known.level = join(known.level, level);
      return known;
    }
    const run: LiveRun = { sessionKey, agentId, level, chatSeq: 0, agentSeq: 0, waiting: '', cancel: () => {} };
    this.runs.set(runId, run);
    return run;
  }

  private chat(runId: string, run: LiveRun, rest: object): void {
    const { sessionKey, agentId } = run;
    this.tell('chat', run, false, { runId, sessionKey, agentId, seq: ++run.chatSeq, ...rest });
  }

  private agent(runId: string, run: LiveRun, stream: string, data: object, ts: number): void {
    const { sessionKey, agentId } = run;
    this.tell('agent', run, stream === 'tool', { runId, sessionKey, agentId, seq: ++run.agentSeq, stream, ts, data });
  }

  private tell(event: EventName, run: LiveRun, ofTools: boolean, payload: object): void {
    let text: string | undefined;
    const fact = { key: run.sessionKey, agent: run.agentId, level: run.level };
    for (const watcher of this.watchers) {
      if ((ofTools && !watcher.tools) || !watcher.watches(run.sessionKey) || !canSee(this.parts.world(), watcher.viewer, fact)) continue;
      void watcher.send(event, (text ??= JSON.stringify(payload)));
    }
  }
}

export const feedEnd: ReadQuery<object, number> = {
  name: 'feed end',
  *body(t) {
    return yield* latest(t);
  },
};
