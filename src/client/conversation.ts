// A chat without a screen: follow a session → one list of items; send each message once, in order, whatever happens to the connection.
import { sleep as sleepOn, systemClock } from '../clock.ts';
import { InterlaneError } from '../errors.ts';
import type { OperationName, Params, Results } from '../protocol/operations/all.ts';
import type { WaitAnswer, WireMessage, WireSession } from '../protocol/result.ts';
import type { AgentEvent, ChatEvent, SessionMessage, SessionsChanged } from '../protocol/wire-event.ts';
import type { Client } from './client.ts';
import { deferred } from './deferred.ts';
import { follow } from './follow.ts';
import { Items, type Item } from './items.ts';
import { past, readPages } from './past.ts';

export interface ConversationOptions {
  /** Key of the session. */
  key: string;
  /** Connects; called again after each loss. Ask for the capability `tool-events`, or calls are listed only once they are kept. */
  open(signal: AbortSignal): Promise<Client>;
  /** Makes a unique id: the idempotency key of a message, and the id of its run. */
  newId(): string;
  /** Resolves after the time; rejects when the signal is aborted. */
  sleep?(ms: number, signal: AbortSignal): Promise<void>;
}

/** A message that was sent and is not in the transcript yet. */
export interface Pending {
  /** Id of its run. */
  id: string;
  text: string;
  /** `accepted`: the gateway has stored it. */
  state: 'sending' | 'accepted';
}

/** `ready`: the past is listed. `current`: everything that was missed while the connection was lost is listed. */
export type ConversationEvent =
  | { type: 'connected'; cursor: string }
  | { type: 'lost'; error: unknown }
  | { type: 'ready' | 'current' | 'pending' }
  | { type: 'message'; event: SessionMessage }
  | { type: 'chat'; event: ChatEvent }
  | { type: 'agent'; event: AgentEvent }
  | { type: 'changed'; event: SessionsChanged }
  | { type: 'session'; session: WireSession }
  /** The gateway refused a request. */
  | { type: 'refused'; error: InterlaneError }
  /** A run of this client has ended; all its messages are listed. */
  | { type: 'ended'; run: WaitAnswer };

/** A message that the gateway has stored, and the end of its run. */
export interface Accepted {
  ended: Promise<void>;
}

type Settings = Omit<Params<'sessions.patch'>, 'key'>;

/** The longest wait of one call; the client repeats it as often as needed. */
const longestWaitMs = 86_400_000;

/** Of one session id: the seq of the last message that is listed, and the ids of the latest by their seqs. */
interface Seen {
  seq: number;
  ids: Map<number, string>;
}

export class Conversation {
  readonly key: string;
  /** The session as the gateway last described it. */
  session: WireSession | undefined;
  private readonly options: ConversationOptions;
  private readonly listeners = new Set<(event: ConversationEvent) => void>();
  /** Ids of runs that this client started. */
  private readonly own = new Set<string>();
  private readonly list = new Items(this.own);
  private readonly sent = new Map<string, Pending>();
  /** Own runs that have not ended, oldest first. */
  private readonly open = new Set<string>();
  private client: Client | undefined;
  private coming = deferred<Client>();
  private connections = 0;
  /** What is listed, by session id; a reset gives the key another id. */
  private readonly seen = new Map<string, Seen>();
  private arrived = deferred<void>();
  /** Messages that arrive before the past is listed. */
  private early: SessionMessage[] | undefined = [];
  /** The last request: accepted; and ended. */
  private accepted: Promise<void> = Promise.resolve();
  private finished: Promise<void> = Promise.resolve();
  private readonly failed = deferred<never>();

  constructor(options: ConversationOptions) {
    this.key = options.key;
    this.options = options;
    this.failed.promise.catch(() => {}); // `run` reports it
  }

  // State -------------------------------------------------------------------------------------------------------------

  /** Everything that was said, in order. The array is the same until something changes. */
  get items(): readonly Item[] {
    return this.list.list;
  }

  /** Messages of this client that are not in the transcript yet, oldest first. */
  get pending(): readonly Pending[] {
    return [...this.sent.values()];
  }

  get status(): 'connecting' | 'connected' | 'lost' {
    if (this.client) return 'connected';
    return this.connections === 0 ? 'connecting' : 'lost';
  }

  /** Whether an answer is under way. */
  get busy(): boolean {
    return this.open.size > 0 || this.list.active.size > 0;
  }

  /** Calls the listener after each change. Returns a function that removes it. */
  subscribe(listener: (event: ConversationEvent) => void): () => void {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }

  // Following ---------------------------------------------------------------------------------------------------------

  /** Follows the session until the signal is aborted. Rejects if it can never connect or is not allowed to. */
  async run(signal: AbortSignal): Promise<void> {
    const { open, sleep = (ms: number, until: AbortSignal) => sleepOn(systemClock, ms, until) } = this.options;
    const stop = new AbortController();
    const following = follow({
      open: async (until) => this.listen(await open(until)),
      key: this.key,
      signal: AbortSignal.any([signal, stop.signal]),
      sleep,
      message: (event) => this.message(event),
      changed: (event) => this.changed(event),
      chat: (event) => {
        this.list.chat(event);
        this.emit({ type: 'chat', event });
      },
      connected: (cursor, client) => this.connected(cursor, client),
      lost: (error) => {
        this.drop(this.client);
        this.list.lost();
        this.emit({ type: 'lost', error });
      },
    });
    try {
      await Promise.race([following, this.failed.promise]);
    } finally {
      stop.abort();
    }
  }

  private listen(client: Client): Client {
    client.on('agent', (event) => {
      this.list.agent(event);
      this.emit({ type: 'agent', event });
    });
    return client;
  }

  private connected(cursor: string, client: Client): void {
    this.client = client;
    this.coming.resolve(client);
    this.emit({ type: 'connected', cursor });
    const work = this.connections === 0 ? this.begin() : this.resume(client);
    this.connections++;
    work.catch((thrown: unknown) => this.failed.reject(thrown));
  }

  private async begin(): Promise<void> {
    await this.readPast();
    this.emit({ type: 'ready' });
    this.readEarly();
  }

  private async resume(client: Client): Promise<void> {
    await this.orRefused(this.catchUp());
    if (client !== this.client) return;
    this.list.current();
    this.emit({ type: 'current' });
  }

  private message(event: SessionMessage): void {
    if (this.early) return void this.early.push(event);
    if (!this.isNew(event.sessionId, event.messageSeq)) return;
    this.add(event.message);
    this.emit({ type: 'message', event });
    this.saw(event.sessionId, event.message);
  }

  private add(message: WireMessage): void {
    const { runId } = message.entry;
    if (runId !== undefined && message.role === 'user') this.sent.delete(runId);
    this.list.message(message);
  }

  private changed(event: SessionsChanged): void {
    this.emit({ type: 'changed', event });
    if (event.phase === undefined && event.reason === 'resync') this.reread().catch((thrown: unknown) => this.failed.reject(thrown));
  }

  /** The gateway no longer has the missed events, so the messages are read instead. */
  private async reread(): Promise<void> {
    this.early ??= [];
    await this.orRefused(this.readPast());
    this.emit({ type: 'current' });
    this.readEarly();
  }

  private readEarly(): void {
    const early = this.early ?? [];
    this.early = undefined;
    for (const event of early) this.message(event);
  }

  /** Lists the newest messages that are not listed yet. */
  private async readPast(): Promise<void> {
    const page = await readPages((wish) => this.call('chat.history', wish), this.key);
    if (!page) return;
    this.describe(page.sessionInfo);
    this.rewind(page.sessionId, page.messages, page.sessionInfo.messageCount);
    for (const message of page.messages) {
      if (this.isNew(page.sessionId, message.entry.seq)) this.add(message);
      this.saw(page.sessionId, message);
    }
  }

  private isNew(sessionId: string, seq: number): boolean {
    return seq > (this.seen.get(sessionId)?.seq ?? 0);
  }

  private saw(sessionId: string, { entry: { seq, id } }: WireMessage): void {
    const seen = this.seen.get(sessionId) ?? { seq: 0, ids: new Map<number, string>() };
    this.seen.set(sessionId, seen);
    if (seq > seen.seq) {
      seen.seq = seq;
      seen.ids.set(seq, id);
      if (seen.ids.size > past.messages) seen.ids.delete(seen.ids.keys().next().value!);
    }
    this.arrived.resolve();
    this.arrived = deferred();
  }

  /** A gateway that was restored from a backup has lost messages, and other messages get their numbers: those are new. */
  private rewind(sessionId: string, messages: WireMessage[], count: number): void {
    const seen = this.seen.get(sessionId);
    if (!seen) return;
    const { ids } = seen;
    const replaced = messages.some(({ entry }) => ids.has(entry.seq) && ids.get(entry.seq) !== entry.id);
    if (!replaced && count >= seen.seq) return;
    seen.seq = messages.findLast(({ entry }) => ids.get(entry.seq) === entry.id)?.entry.seq ?? 0;
    for (const seq of ids.keys()) if (seq > seen.seq) ids.delete(seq);
  }

  /** Resolves when every message that is in the transcript now is listed. */
  private async catchUp(): Promise<void> {
    const { session } = await this.call('sessions.describe', { key: this.key });
    if (!session) return;
    this.describe(session);
    while (this.isNew(session.sessionId, session.messageCount)) await this.arrived.promise;
  }

  private describe(session: WireSession): void {
    this.session = session;
    this.list.verbose(session.verboseLevel);
    this.emit({ type: 'session', session });
  }

  // Requests ----------------------------------------------------------------------------------------------------------

  /** Sends a message after the requests before it are accepted, or with `afterAnswer` after they have ended. */
  say(text: string, options?: { afterAnswer?: boolean }): void {
    this.enqueue(() => this.send(text), options);
  }

  /** Runs work in its turn among the messages. Work that sends a message returns what `send` returned. */
  enqueue(work: () => Promise<Accepted | undefined>, { afterAnswer = false }: { afterAnswer?: boolean } = {}): void {
    const started = (afterAnswer ? this.finished : this.accepted).then(() => this.orRefused(work()));
    this.accepted = started.then(() => {});
    this.finished = Promise.all([this.finished, started.then((run) => run?.ended)]).then(() => {});
    this.finished.catch((thrown: unknown) => this.failed.reject(thrown));
  }

  /** Resolves when every request so far has ended. */
  done(): Promise<void> {
    return this.finished;
  }

  /** Sends a message now. Resolves when the gateway has stored it. */
  async send(message: string): Promise<Accepted> {
    // I2. The key is the id of the run: sent again after a loss it is the same message.
    const id = this.options.newId();
    this.own.add(id);
    this.open.add(id);
    this.put({ id, text: message, state: 'sending' });
    const over = () => {
      this.open.delete(id);
      this.sent.delete(id);
      this.emit({ type: 'pending' });
    };
    try {
      const { runId } = await this.call('sessions.send', { key: this.key, message, idempotencyKey: id });
      if (this.sent.has(id)) this.put({ id, text: message, state: 'accepted' });
      return { ended: this.orRefused(this.end(runId)).then(over) };
    } catch (thrown) {
      over();
      throw thrown;
    }
  }

  /** Stops the answer that is under way, or the oldest own message that has not begun. Resolves with false if there is none. */
  async stop(): Promise<boolean> {
    const [oldest] = this.open;
    const { aborted } = await this.call('chat.abort', { sessionKey: this.key });
    if (aborted || oldest === undefined) return aborted;
    return (await this.call('chat.abort', { sessionKey: this.key, runId: oldest })).aborted;
  }

  /** Stops, and reports a refusal as an event. */
  interrupt(): void {
    this.orRefused(this.stop()).catch((thrown: unknown) => this.failed.reject(thrown));
  }

  /** Starts over with an empty transcript. Returns the new life of the session. */
  async reset(): Promise<WireSession> {
    // A second request would reset twice, so this one is not repeated after a loss.
    return (await (await this.connection()).call('sessions.reset', { key: this.key })).entry;
  }

  /** Changes settings of the session; `null` clears one. */
  async patch(settings: Settings): Promise<WireSession> {
    const { entry } = await this.call('sessions.patch', { ...settings, key: this.key });
    this.describe(entry);
    return entry;
  }

  /** The session as it is now. */
  async read(): Promise<WireSession> {
    const { session } = await this.call('sessions.describe', { key: this.key });
    if (session) return session;
    throw new InterlaneError('SESSION_NOT_FOUND', `session ${this.key} no longer exists; choose another`);
  }

  /** Whether the token of this client has administrator rights. */
  async isOwner(): Promise<boolean> {
    return (await this.connection()).hello.auth.scopes.includes('operator.admin');
  }

  private async end(runId: string): Promise<void> {
    let run: WaitAnswer;
    do run = await this.call('agent.wait', { runId, timeoutMs: longestWaitMs });
    while (run.status === 'timeout');
    await this.catchUp();
    this.list.ended(run);
    this.emit({ type: 'ended', run });
  }

  private async orRefused<T>(work: Promise<T>): Promise<T | undefined> {
    try {
      return await work;
    } catch (thrown) {
      if (!(thrown instanceof InterlaneError)) throw thrown;
      this.emit({ type: 'refused', error: thrown });
      return undefined;
    }
  }

  /** For requests that may be repeated: again after each loss, until there is an answer. */
  private async call<M extends OperationName>(method: M, params: Params<M>): Promise<Results[M]> {
    for (;;) {
      const client = await this.connection();
      try {
        return (await client.request(method, params)) as Results[M];
      } catch (thrown) {
        if (!client.isClosed) throw thrown;
      }
    }
  }

  private async connection(): Promise<Client> {
    for (;;) {
      const client = await this.coming.promise;
      if (!client.isClosed) return client;
      this.drop(client); // `follow` may report the loss a moment later
    }
  }

  private drop(client: Client | undefined): void {
    if (client === undefined || client !== this.client) return;
    this.client = undefined;
    this.coming = deferred();
  }

  private put(message: Pending): void {
    this.sent.set(message.id, message);
    this.emit({ type: 'pending' });
  }

  private emit(event: ConversationEvent): void {
    for (const listener of this.listeners) listener(event);
  }
}
