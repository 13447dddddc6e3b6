// The SQLite store: commands of a tick share one commit; order in = commit order = resolve order = publish order.
import { InterlaneError } from '../../errors.ts';
import { drive, reading, writing, type Command, type Query, type ReadQuery, type Store, type WriteOptions } from '../contract.ts';
import { asStoreError, explain, sqliteCode, type Connection } from './database.ts';

interface Job<Event> {
  name: string;
  run(events: Event[]): void;
  resolve(): void;
  reject(error: unknown): void;
  bytes: number;
}

/** What the store needs from outside: a way to act after the current tick, a stopwatch, and what to do when the outcome of a commit is not known. */
export interface StoreParts {
  afterTick(work: () => void): void;
  /** Milliseconds that only go forward. */
  elapsed(): number;
  fatal(error: InterlaneError): void;
  /** Told of each commit. */
  observe?(commit: { commands: number; ms: number }): void;
}

const batchCommands = 256;
const batchBytes = 4 * 1024 * 1024;
const batchMs = 5;
const queueCommands = 10_000;
const queueBytes = 64 * 1024 * 1024;
const ioError = 10;
const begin: Query = { sql: 'BEGIN IMMEDIATE', params: [], want: 'run' };

export class SqliteStore<Event> implements Store<Event> {
  private readonly writer: Connection;
  private readonly reader: Connection;
  private readonly parts: StoreParts;
  private readonly urgent: Job<Event>[] = [];
  private readonly ordinary: Job<Event>[] = [];
  private queuedBytes = 0;
  private scheduled = false;
  private closed = false;
  /** What ended the transaction of the current batch early. */
  private lost: unknown;
  private readonly listeners = new Set<(events: Event[]) => void>();

  constructor(writer: Connection, reader: Connection, parts: StoreParts) {
    this.writer = writer;
    this.reader = reader;
    this.parts = parts;
  }

  write<Args, R>(command: Command<Args, R, Event>, args: Args, options: WriteOptions = {}): Promise<R> {
    const { urgent = false, bytes = 0 } = options;
    if (this.closed) return Promise.reject(new InterlaneError('UNAVAILABLE', 'store is closed; the gateway is stopping'));
    if (!urgent && (this.ordinary.length >= queueCommands || this.queuedBytes + bytes > queueBytes)) {
      return Promise.reject(new InterlaneError('BUSY', 'store has too much waiting to be written; try again in a moment'));
    }
    return new Promise<R>((resolve, reject) => {
      let result: R;
      const job: Job<Event> = {
        name: command.name,
        bytes,
        run: (events) => {
          result = drive(command.body(writing(events), args), (query) => this.answer(query));
        },
        resolve: () => resolve(result),
        reject,
      };
      (urgent ? this.urgent : this.ordinary).push(job);
      this.queuedBytes += bytes;
      this.schedule();
    });
  }

  // oxlint-disable-next-line require-await -- asynchronous by contract: another store waits for the network here
  async read<Args, R>(query: ReadQuery<Args, R>, args: Args): Promise<R> {
    if (this.closed) throw new InterlaneError('UNAVAILABLE', 'store is closed; the gateway is stopping');
    return drive(query.body(reading, args), (one) => this.reader.answer(one));
  }

  onCommit(listener: (events: Event[]) => void): () => void {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }

  // oxlint-disable-next-line require-await -- asynchronous by contract
  async close(): Promise<void> {
    if (this.closed) return;
    while (this.waiting > 0) this.commitBatch();
    this.closed = true;
    this.reader.close();
    this.writer.close();
  }

  private schedule(): void {
    if (this.scheduled) return;
    this.scheduled = true;
    this.parts.afterTick(() => {
      this.scheduled = false;
      if (this.closed) return;
      try {
        this.commitBatch();
      } finally {
        if (this.waiting > 0) this.schedule();
      }
    });
  }

  private get waiting(): number {
    return this.urgent.length + this.ordinary.length;
  }

  private take(): Job<Event> | undefined {
    const job = this.urgent.shift() ?? this.ordinary.shift();
    if (job) this.queuedBytes -= job.bytes;
    return job;
  }

  /** One transaction for as many commands as fit. No result, refusal, event or other state leaves it before COMMIT. */
  private commitBatch(): void {
    const taken: Job<Event>[] = [];
    const settle: (() => void)[] = [];
    const published: Event[] = [];
    const started = this.parts.elapsed();
    let bytes = 0;
    try {
      this.lost = undefined;
      this.writer.answer(begin);
      while (taken.length < batchCommands && bytes < batchBytes && (taken.length === 0 || this.parts.elapsed() - started < batchMs)) {
        const job = this.take();
        if (!job) break;
        bytes += job.bytes;
        taken.push(job);
        const events: Event[] = [];
        this.exec('SAVEPOINT command');
        try {
          job.run(events);
          this.exec('RELEASE command');
          settle.push(() => job.resolve());
          for (const event of events) published.push(event);
        } catch (thrown) {
          if (!this.writer.database.isTransaction) throw thrown;
          this.exec('ROLLBACK TO command');
          this.exec('RELEASE command');
          settle.push(() => job.reject(asStoreError(thrown, job.name)));
        }
      }
      this.exec('COMMIT');
    } catch (thrown) {
      this.failBatch(this.lost ?? thrown, taken);
      return;
    }
    const ms = this.parts.elapsed() - started;
    for (const one of settle) one();
    this.parts.observe?.({ commands: taken.length, ms });
    if (published.length > 0) for (const listener of this.listeners) listener(published);
  }

  private failBatch(thrown: unknown, taken: Job<Event>[]): void {
    if (this.writer.database.isTransaction) this.exec('ROLLBACK');
    // A batch that could not even begin fails all the same: its commands would otherwise wait for as long as the cause lasts.
    if (taken.length === 0) while (taken.length < batchCommands && this.waiting > 0) taken.push(this.take()!);
    // After an I/O error at COMMIT nobody knows what is on the disk. Starting again finds out.
    const unknown = sqliteCode(thrown) === ioError;
    const outcome = unknown ? 'whether it was kept shows after a restart' : 'nothing of this was kept, try again';
    const error = new InterlaneError('STORE_FAILED', `store could not write: ${explain(thrown)}; ${outcome}`, { cause: thrown });
    for (const job of taken) job.reject(error);
    if (unknown) this.parts.fatal(error);
  }

  private exec(sql: string): void {
    this.answer({ sql, params: [], want: 'run' });
  }

  /** A full disk undoes the whole transaction, not only the command; a body that went on would write outside of any. */
  private answer(query: Query): unknown {
    if (this.lost !== undefined) throw this.lost;
    try {
      return this.writer.answer(query);
    } catch (thrown) {
      if (!this.writer.database.isTransaction) this.lost = thrown;
      throw thrown;
    }
  }
}
