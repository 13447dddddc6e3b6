// One conversation over connections that come and go: each line is taken once, in order, and its end is known, however often it is cut off.
import type { Client } from '../client/client.ts';
import { InterlaneError } from '../errors.ts';
import type { OperationName, Params, Results } from '../protocol/operations/all.ts';
import type { WaitAnswer, WireMessage, WireSession } from '../protocol/result.ts';
import type { AgentEvent, ChatEvent, SessionMessage, SessionsChanged } from '../protocol/wire-event.ts';
import { readCommand, runCommand, type CommandAnswer, type CommandPort, type Read } from '../sessions/commands.ts';

/** What is seen of it. */
export interface TalkView {
  message(event: SessionMessage): void;
  chat(event: ChatEvent): void;
  agent(event: AgentEvent): void;
  changed(event: SessionsChanged): void;
  /** The session as it is now, whenever it is asked for. */
  session(row: WireSession): void;
  connected(cursor: string): void;
  lost(error: unknown): void;
  /** What was said while the connection was lost has been shown. */
  current(): void;
  /** What was asked for was refused. */
  refused(error: InterlaneError): void;
  /** The end of a run of ours; all that was said in it was shown before. */
  ended(run: WaitAnswer): void;
  answered(command: string, answer: CommandAnswer): void;
  /** Whether somebody else's run is at work. */
  active(): boolean;
}

/** Accepted; and the end of what came of it. */
interface Said {
  ended: Promise<void>;
}

interface TalkParts {
  key: string;
  /** Runs that were asked for here; it fills. */
  own: Set<string>;
  newId(): string;
  view: TalkView;
  /** A bug; nothing that a person could do. */
  failed(error: unknown): void;
}

/** The longest wait of one call; it is asked again as often as it takes. */
const longestWaitMs = 86_400_000;
/** What was said before: enough to fill a screen, and to look for in the history of lines. */
const pastMessages = 200;
const longestPast = 10_000;

export class Talk {
  /** Told when an answer begins to be made, and when there is none any more. */
  onBusy: (busy: boolean) => void = () => {};
  private readonly parts: TalkParts;
  private client: Client | undefined;
  private coming = Promise.withResolvers<Client>();
  private connections = 0;
  /** The last message that is here, of each life. */
  private readonly seen = new Map<string, number>();
  private arrived = Promise.withResolvers<void>();
  /** What came before the past is known; then it is sorted out what is new. */
  private early: SessionMessage[] | undefined = [];
  /** Runs of ours that have not ended, oldest first. */
  private readonly open = new Set<string>();
  /** Of the last line: it is accepted; it is done with. */
  private accepted: Promise<void> = Promise.resolve();
  private finished: Promise<void> = Promise.resolve();

  constructor(parts: TalkParts) {
    this.parts = parts;
  }

  get busy(): boolean {
    return this.open.size > 0 || this.parts.view.active();
  }

  // What is heard -----------------------------------------------------------------------------------------------------

  hear(client: Client): Client {
    client.on('agent', (event) => {
      this.parts.view.agent(event);
      this.onBusy(this.busy);
    });
    return client;
  }

  /** Answers how many connections there were. */
  connected(cursor: string, client: Client): number {
    this.client = client;
    this.coming.resolve(client);
    this.parts.view.connected(cursor);
    if (this.connections > 0) this.resume(client).catch((thrown: unknown) => this.parts.failed(thrown));
    return ++this.connections;
  }

  private async resume(client: Client): Promise<void> {
    await this.orRefused(this.caughtUp());
    if (client === this.client) this.parts.view.current();
  }

  lost(error: unknown): void {
    this.drop(this.client);
    this.parts.view.lost(error);
    this.onBusy(this.busy);
  }

  chat(event: ChatEvent): void {
    this.parts.view.chat(event);
    this.onBusy(this.busy);
  }

  message(event: SessionMessage): void {
    if (this.early) return void this.early.push(event);
    const { sessionId, messageSeq } = event;
    if (messageSeq <= this.seenOf(sessionId)) return;
    this.parts.view.message(event);
    this.note(sessionId, messageSeq);
  }

  changed(event: SessionsChanged): void {
    this.parts.view.changed(event);
    // What was missed does not come any more, so nobody waits for it.
    if (event.phase === undefined && event.reason === 'resync') void this.past().catch(() => {});
  }

  private seenOf(sessionId: string): number {
    return this.seen.get(sessionId) ?? 0;
  }

  private note(sessionId: string, seq: number): void {
    this.seen.set(sessionId, Math.max(seq, this.seenOf(sessionId)));
    this.arrived.resolve();
    this.arrived = Promise.withResolvers();
  }

  /** What was said before is shown; then what came since, and is not part of it. */
  async begin(show: (past: WireMessage[]) => void): Promise<void> {
    show(await this.past());
    const early = this.early ?? [];
    this.early = undefined;
    for (const event of early) this.message(event);
  }

  private async past(): Promise<WireMessage[]> {
    const page = await this.call('chat.history', { sessionKey: this.parts.key, limit: pastMessages, maxChars: longestPast });
    if (!('sessionId' in page)) return [];
    this.parts.view.session(page.sessionInfo);
    this.note(page.sessionId, page.messages.at(-1)?.__openclaw.seq ?? 0);
    return page.messages;
  }

  // What is said ------------------------------------------------------------------------------------------------------

  /** `afterAnswer`: when what stands before it is done with, not only accepted. A stop never waits for that. */
  submit(line: string, { afterAnswer }: { afterAnswer: boolean }): void {
    const read = readCommand(line);
    const stops = read.kind === 'command' && read.command.name === 'stop';
    const said = (afterAnswer && !stops ? this.finished : this.accepted).then(() =>
      this.orRefused(read.kind === 'message' ? this.say(line) : this.obey(read)),
    );
    this.accepted = said.then(() => {});
    this.finished = Promise.all([this.finished, said.then((run) => run?.ended)]).then(() => {});
    this.finished.catch((thrown: unknown) => this.parts.failed(thrown));
  }

  /** Stops what is being made, without a word when there is nothing. */
  interrupt(): void {
    this.orRefused(this.stop()).catch((thrown: unknown) => this.parts.failed(thrown));
  }

  /** Everything that was taken is done with. */
  done(): Promise<void> {
    return this.finished;
  }

  /** The answer that is being made; or the next one of ours, if it has not begun. */
  private async stop(): Promise<boolean> {
    const { key: sessionKey } = this.parts;
    const [oldest] = this.open;
    const { aborted } = await this.call('chat.abort', { sessionKey });
    if (aborted || oldest === undefined) return aborted;
    return (await this.call('chat.abort', { sessionKey, runId: oldest })).aborted;
  }

  /** Resolves when it is accepted, with the promise of its end. */
  private async say(message: string): Promise<Said> {
    // Its key is the id of its run: sent again after a loss it is the same message (I2).
    const idempotencyKey = this.parts.newId();
    this.parts.own.add(idempotencyKey);
    this.open.add(idempotencyKey);
    this.onBusy(this.busy);
    const over = () => {
      this.open.delete(idempotencyKey);
      this.onBusy(this.busy);
    };
    try {
      const { runId } = await this.call('chat.send', { sessionKey: this.parts.key, message, idempotencyKey });
      return { ended: this.orRefused(this.end(runId)).then(over) };
    } catch (thrown) {
      over();
      throw thrown;
    }
  }

  private async end(runId: string): Promise<void> {
    let run: WaitAnswer;
    do run = await this.call('agent.wait', { runId, timeoutMs: longestWaitMs });
    while (run.status === 'timeout');
    await this.caughtUp();
    this.parts.view.ended(run);
  }

  private async orRefused<T>(work: Promise<T>): Promise<T | undefined> {
    try {
      return await work;
    } catch (thrown) {
      if (!(thrown instanceof InterlaneError)) throw thrown;
      this.parts.view.refused(thrown);
      return undefined;
    }
  }

  /** What is in the transcript now has been shown. */
  private async caughtUp(): Promise<void> {
    const { session } = await this.call('sessions.describe', { key: this.parts.key });
    if (session) this.parts.view.session(session);
    const behind = () => session !== null && this.seenOf(session.sessionId) < session.messageCount;
    while (behind()) await this.arrived.promise;
  }

  private async obey(read: Exclude<Read, { kind: 'message' }>): Promise<Said | undefined> {
    const owner = (await this.connection()).hello.auth.scopes.includes('operator.admin');
    const answer = await runCommand(read, this.port, { owner });
    this.parts.view.answered(read.kind === 'command' ? read.command.name : read.word, answer);
    return answer.say === undefined ? undefined : this.say(answer.say);
  }

  private readonly port: CommandPort = {
    reset: async () => {
      // Asked twice it would be two lives, so a connection that is lost meanwhile is told and not tried again.
      await (await this.connection()).call('sessions.reset', { key: this.parts.key });
    },
    patch: async (settings) => {
      const { entry } = await this.call('sessions.patch', { key: this.parts.key, ...settings });
      this.parts.view.session(entry);
      return entry;
    },
    status: () => this.described(),
    stop: () => this.stop(),
  };

  private async described(): Promise<WireSession> {
    const { session } = await this.call('sessions.describe', { key: this.parts.key });
    if (session) return session;
    throw new InterlaneError('SESSION_NOT_FOUND', `session ${this.parts.key} is gone; leave, and choose another`);
  }

  /** For what may be asked twice: as often as the connection is lost before the answer. */
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
      this.drop(client); // its loss may be told to us a moment later
    }
  }

  private drop(client: Client | undefined): void {
    if (client === undefined || client !== this.client) return;
    this.client = undefined;
    this.coming = Promise.withResolvers();
  }
}
