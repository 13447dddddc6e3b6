// The SQLite store: commands of a tick share one commit; the order of one principal in = commit order = resolve
// order = publish order.
import { statSync } from 'node:fs';
import { InterlaneError } from '../../errors.ts';
import {
  complete,
  drive,
  isQuery,
  reading,
  type Ask,
  type Command,
  type Counter,
  type Query,
  type ReadQuery,
  type Store,
  type StoreLoad,
  type WriteOptions,
} from '../contract.ts';
import type { FeedEvent } from '../../protocol/event.ts';
import type { Pace } from '../../pace.ts';
import { place } from '../tables/feed.ts';
import { firstOfCounters } from '../counters.ts';
import { asStoreError, explain, sqliteCode, troubleOf, type Connection } from './database.ts';
import type { Upgrade } from './upgrade.ts';
import type { Reader } from './reader.ts';
import { WriteQueue, type Queued } from './write-queue.ts';

interface Job<Event> extends Queued {
  name: string;
  /** Returns its events. */
  run(): Event[];
  resolve(): void;
  reject(error: unknown): void;
}

/** A command that has run, until the commit: its events, and what its caller is told. */
interface Done<Event> {
  events: Event[];
  settle(): void;
}

/** What the store needs from outside: a way to act after the current tick, a stopwatch, and what to do when the outcome of a commit is not known. */
export interface StoreParts {
  afterTick(work: () => void): void;
  /** Milliseconds that only go forward. */
  elapsed(): number;
  fatal(error: InterlaneError): void;
  /** How the migration of an older store goes. */
  upgrade?: Upgrade;
  /** Told of each commit, and whether it has changed anything. */
  observe?(commit: { commands: number; ms: number; failed: boolean; changed: boolean }): void;
  /** Told of each failure that is not one command's: a full disk, a damaged file. */
  trouble?(trouble: { why: string; lasting: boolean }): void;
}

const batchCommands = 256;
/** A commit of this much takes about 5 ms, so a large message ends its batch. */
const batchBytes = 256 * 1024;
const batchMs = 5;
const ioError = 10;
/**
 * A page that expects more rows than this goes to the reader at once. Fewer take about 2 ms here, and the hops to the reader would cost
 * more: about 40 µs for each statement.
 */
const shortRead = 512;
/** A page that turns out to need more than this begins again at the reader; what was done here is lost. */
const mostHere = { asks: 16, rows: 768, chars: 512 * 1024 };
const begin: Query = { sql: 'BEGIN IMMEDIATE', params: [], want: 'run' };

export class SqliteStore<Event extends { pos: number } = FeedEvent> implements Store<Event> {
  private readonly writer: Connection;
  private readonly reader: Reader | undefined;
  private readonly parts: StoreParts;
  private readonly queue = new WriteQueue<Job<Event>>();
  private scheduled = false;
  private closed = false;
  /** What ended the transaction of the current batch early. */
  private lost: unknown;
  /** The current command may have changed something. */
  private wrote = false;
  /** The current batch has changed something. */
  private changed = false;
  private readonly listeners = new Set<(events: Event[]) => void>();
  /** The last number given of each. This process is the only writer, so they are kept in memory; a command that is undone leaves a gap. */
  private readonly counters: Record<Counter, number>;

  /** Without a reader, pages are read on the connection that writes. */
  constructor(writer: Connection, parts: StoreParts, reader?: Reader) {
    this.writer = writer;
    this.reader = reader;
    this.parts = parts;
    this.counters = drive(firstOfCounters(reading), (ask) => this.ask(ask));
  }

  write<Args, R>(command: Command<Args, R, Event>, args: Args, options: WriteOptions = {}): Promise<R> {
    const { urgent = false, bytes = 0, by } = options;
    if (this.closed) return Promise.reject(new InterlaneError('UNAVAILABLE', 'store is closed; the gateway is stopping'));
    const refusal = urgent ? undefined : this.queue.refusal({ bytes, by });
    if (refusal) return Promise.reject(refusal);
    return new Promise<R>((resolve, reject) => {
      let result: R;
      const job: Job<Event> = {
        name: command.name,
        bytes,
        by,
        run: () => {
          const done = drive(complete(command, args, place), (ask) => this.ask(ask));
          result = done.result;
          return done.events;
        },
        resolve: () => resolve(result),
        reject,
      };
      this.queue.push(job, urgent);
      this.schedule();
    });
  }

  async read<Args, R>(query: ReadQuery<Args, R>, args: Args, pace?: Pace): Promise<R> {
    if (this.closed) throw new InterlaneError('UNAVAILABLE', 'store is closed; the gateway is stopping');
    try {
      if (!query.rows || !this.reader) return this.readHere(query, args, pace);
      if (query.rows(args) <= shortRead) {
        const done = this.tryHere(query, args, pace);
        if (done) return done.result;
      }
      return await this.reader.read(query, args, pace);
    } catch (thrown) {
      this.noteTrouble(thrown);
      throw asStoreError(thrown, query.name);
    }
  }

  /** Undefined if it needs more than a short read may; nothing of it is kept then. */
  private tryHere<Args, R>(query: ReadQuery<Args, R>, args: Args, pace: Pace | undefined): { result: R } | undefined {
    const left = { ...mostHere };
    const spend = (answer: unknown, share: number) => {
      const rows = (Array.isArray(answer) ? answer : answer === undefined ? [] : [answer]) as Record<string, unknown>[];
      left.rows -= rows.length;
      for (const row of rows) for (const name in row) if (typeof row[name] === 'string') left.chars -= row[name].length;
      // A page says how large its texts are before it reads the large ones, even if it wants only the beginning of each.
      for (const { bytes } of rows) if (typeof bytes === 'number') left.chars -= bytes;
      left.asks -= share;
      if (left.asks < 0 || left.rows < 0 || left.chars < 0) throw tooLong;
    };
    try {
      return { result: this.readHere(query, args, pace, spend) };
    } catch (thrown) {
      if (thrown === tooLong) return undefined;
      throw thrown;
    }
  }

  /**
   * On the connection that writes, which is never inside a transaction here: it has in memory what it has just written, whereas
   * another one starts with an empty cache after every commit.
   */
  private readHere<Args, R>(query: ReadQuery<Args, R>, args: Args, pace: Pace | undefined, spend: Spend = () => {}): R {
    const one = (asked: Query, share: number): unknown => {
      pace?.signal.throwIfAborted();
      // Whatever else a SELECT does, it does not write; a connection that is switched to reading would plan everything again.
      if (!/^\s*SELECT\b/.test(asked.sql)) throw readonly(query.name);
      const answer = this.writer.answer(asked);
      spend(answer, share);
      return answer;
    };
    return drive(query.body(reading, args), (ask) => {
      if (Array.isArray(ask)) return ask.map((asked) => one(asked, 1 / ask.length));
      if (isQuery(ask)) return one(ask, 1);
      throw readonly(query.name);
    });
  }

  load(): StoreLoad {
    const { waiting = 0, active = 0 } = this.reader ?? {};
    const path = this.closed ? null : this.writer.database.location();
    return { walBytes: statSync(`${path}-wal`, { throwIfNoEntry: false })?.size ?? 0, reads: { waiting, active } };
  }

  follow(listener: (events: Event[]) => void): () => void {
    this.listeners.add(listener);
    return () => void this.listeners.delete(listener);
  }

  async close(): Promise<void> {
    if (this.closed) return;
    while (this.queue.length > 0) this.commitBatch();
    this.closed = true;
    // The connection that closes last empties the log.
    await this.reader?.close();
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
        if (this.queue.length > 0) this.schedule();
      }
    });
  }

  /** One transaction for as many commands as fit. No result, refusal, event or other state leaves it before COMMIT. */
  private commitBatch(): void {
    const taken: Job<Event>[] = [];
    const started = this.parts.elapsed();
    let bytes = 0;
    const next = (): Job<Event> | undefined => {
      if (taken.length >= batchCommands || bytes >= batchBytes) return undefined;
      if (taken.length > 0 && this.parts.elapsed() - started >= batchMs) return undefined;
      const job = this.queue.take();
      if (!job) return undefined;
      bytes += job.bytes;
      taken.push(job);
      return job;
    };
    let done: Done<Event>[] | undefined;
    try {
      this.lost = undefined;
      this.changed = false;
      this.writer.answer(begin);
      done = this.runBare(next);
      if (!done) {
        this.exec('ROLLBACK');
        this.writer.answer(begin);
        done = taken.map((job) => this.runGuarded(job));
        for (let job = next(); job; job = next()) done.push(this.runGuarded(job));
      }
      this.exec('COMMIT');
    } catch (thrown) {
      this.failBatch(this.lost ?? thrown, taken);
      return;
    }
    const ms = this.parts.elapsed() - started;
    for (const { settle } of done) settle();
    this.parts.observe?.({ commands: taken.length, ms, failed: false, changed: this.changed });
    const published = done.flatMap(({ events }) => events);
    if (published.length > 0) for (const listener of this.listeners) listener(published);
  }

  /**
   * Savepoints cost an eighth of the throughput, and hardly any command fails after it has written something. So commands first
   * run without; if one does fail so, the answer is undefined, and the batch is undone and run again with them.
   */
  private runBare(next: () => Job<Event> | undefined): Done<Event>[] | undefined {
    const done: Done<Event>[] = [];
    for (let job = next(); job; job = next()) {
      this.wrote = false;
      try {
        done.push({ events: job.run(), settle: job.resolve });
      } catch (thrown) {
        if (!this.writer.database.isTransaction) throw thrown;
        if (this.wrote) return undefined;
        done.push(refused(job, thrown));
      }
    }
    return done;
  }

  private runGuarded(job: Job<Event>): Done<Event> {
    this.exec('SAVEPOINT command');
    try {
      const events = job.run();
      this.exec('RELEASE command');
      return { events, settle: job.resolve };
    } catch (thrown) {
      if (!this.writer.database.isTransaction) throw thrown;
      this.exec('ROLLBACK TO command');
      this.exec('RELEASE command');
      return refused(job, thrown);
    }
  }

  private failBatch(thrown: unknown, taken: Job<Event>[]): void {
    if (this.writer.database.isTransaction) this.exec('ROLLBACK');
    // A batch that could not even begin fails all the same: its commands would otherwise wait for as long as the cause lasts.
    if (taken.length === 0) while (taken.length < batchCommands && this.queue.length > 0) taken.push(this.queue.take()!);
    // After an I/O error at COMMIT nobody knows what is on the disk. Starting again finds out.
    const unknown = sqliteCode(thrown) === ioError;
    const outcome = unknown ? 'whether it was kept shows after a restart' : 'nothing of this was kept, try again';
    const error = new InterlaneError('STORE_FAILED', `store could not write: ${explain(thrown)}; ${outcome}`, { cause: thrown });
    this.noteTrouble(thrown);
    this.parts.observe?.({ commands: taken.length, ms: 0, failed: true, changed: false });
    for (const job of taken) job.reject(error);
    if (unknown) this.parts.fatal(error);
  }

  private exec(sql: string): void {
    this.answer({ sql, params: [], want: 'run' });
  }

  /** One writer process at a time holds the state, so every lock is free and every counter is ours. */
  private ask(ask: Ask): unknown {
    if (Array.isArray(ask)) return ask.map((query) => this.answer(query));
    if (isQuery(ask)) return this.answer(ask);
    if ('lock' in ask) return true;
    return (this.counters[ask.next] += ask.count);
  }

  /** A full disk undoes the whole transaction, not only the command; a body that went on would write outside of any. */
  private answer(query: Query): unknown {
    if (this.lost !== undefined) throw this.lost;
    this.wrote ||= query.want === 'run' || !query.sql.startsWith('SELECT');
    try {
      const answer = this.writer.answer(query);
      this.changed ||= changes.test(query.sql) && (query.want !== 'run' || (answer as { changes: number }).changes > 0);
      return answer;
    } catch (thrown) {
      if (!this.writer.database.isTransaction) this.lost = thrown;
      this.noteTrouble(thrown);
      throw thrown;
    }
  }

  private noteTrouble(thrown: unknown): void {
    const trouble = troubleOf(thrown);
    if (trouble) this.parts.trouble?.(trouble);
  }
}

const changes = /^(INSERT|UPDATE|DELETE)/;
/** Told of each answer of a read, and which part of its ask that was. */
type Spend = (answer: unknown, share: number) => void;

const tooLong = new Error('a short read took too long');
const readonly = (name: string) => new InterlaneError('INTERNAL', `store is readonly for "${name}", which is not a command`);

function refused<Event>(job: Job<Event>, thrown: unknown): Done<Event> {
  return { events: [], settle: () => job.reject(asStoreError(thrown, job.name)) };
}
