// Heavy reads: bodies stay on this thread and await each answer; a thread of its own runs their queries. A read is one snapshot.
import { InterlaneError } from '../../errors.ts';
import type { Pace } from '../../pace.ts';
import { RoundRobin } from '../../round-robin.ts';
import { driveLater, isQuery, reading, snapshotMs, type Ask, type Query, type ReadQuery } from '../contract.ts';
import { ReaderThread } from './reader-thread.ts';

/** Reads that are under way at once. Each has a connection, so that each sees its own moment. */
const slots = 4;
/** Reads of one caller that may wait. */
const mostWaiting = 1_000;

interface Job {
  signal: AbortSignal | undefined;
  run(slot: number): Promise<unknown>;
  resolve(result: unknown): void;
  reject(error: unknown): void;
}

export class Reader {
  private readonly path: string;
  private readonly elapsed: () => number;
  private thread: ReaderThread | undefined;
  private readonly queue = new RoundRobin<object, Job>();
  private readonly free = Array.from({ length: slots }, (_, slot) => slot);
  /** Who has a read under way: one at a time, so that the thread's time is shared between callers and not between requests. */
  private readonly reading = new Set<object>();
  private closed = false;

  constructor(path: string, elapsed: () => number) {
    this.path = path;
    this.elapsed = elapsed;
  }

  /** Reads that wait for their turn. */
  get waiting(): number {
    return this.queue.size;
  }

  /** Reads that are under way. */
  get active(): number {
    return this.reading.size;
  }

  /** A read that is not for a client takes its turn as one of its own. */
  read<Args, R>(query: ReadQuery<Args, R>, args: Args, pace: Pace | undefined): Promise<R> {
    const by = pace?.client ?? {};
    if (this.queue.waiting(by) >= mostWaiting)
      return Promise.reject(
        new InterlaneError('BUSY', `client has ${mostWaiting} reads waiting; try again when some of them are answered`),
      );
    return new Promise<R>((resolve, reject) => {
      const run = (slot: number) => this.run(query, args, slot, pace);
      this.queue.add(by, { signal: pace?.signal, run, resolve: (result) => resolve(result as R), reject });
      this.startNext();
    });
  }

  async close(): Promise<void> {
    this.closed = true;
    for (let next = this.queue.take(); next; next = this.queue.take()) next.item.reject(closing());
    await this.thread?.close();
  }

  private startNext(): void {
    while (this.free.length > 0) {
      const next = this.queue.take((by) => !this.reading.has(by));
      if (!next) return;
      const { by, item: job } = next;
      // A caller that is gone costs nothing more.
      if (job.signal?.aborted) job.reject(job.signal.reason);
      else void this.serve(by, job);
    }
  }

  private async serve(by: object, job: Job): Promise<void> {
    const slot = this.free.pop()!;
    this.reading.add(by);
    try {
      job.resolve(await job.run(slot));
    } catch (thrown) {
      job.reject(thrown);
    } finally {
      this.thread?.release(slot);
      this.free.push(slot);
      this.reading.delete(by);
      this.startNext();
    }
  }

  /** Limits act between two statements: one that has begun cannot be stopped. */
  private run<Args, R>(query: ReadQuery<Args, R>, args: Args, slot: number, pace: Pace | undefined): Promise<R> {
    let began: number | undefined;
    // All statements of a read go to one thread: another one would answer from another snapshot.
    let thread: ReaderThread | undefined;
    return driveLater(query.body(reading, args), async (ask) => {
      pace?.signal.throwIfAborted();
      if (this.closed) throw closing();
      began ??= this.elapsed();
      if (this.elapsed() - began > snapshotMs)
        throw new InterlaneError(
          'BUSY',
          `read "${query.name}" took longer than ${snapshotMs / 1000} s; try again, or ask for less at once`,
        );
      const queries = queriesOf(ask, query.name);
      const answers = await (thread ??= this.open()).ask(slot, queries);
      // What the body makes of the answer is a piece of the client's work on this thread.
      await pace?.pause();
      return Array.isArray(ask) ? answers : answers[0];
    });
  }

  /** Started by the first read that needs it, because it costs 15 to 25 MB of memory; and again if it has ended. */
  private open(): ReaderThread {
    if (!this.thread?.alive) this.thread = new ReaderThread(this.path);
    return this.thread;
  }
}

function queriesOf(ask: Ask, name: string): Query[] {
  const queries = Array.isArray(ask) ? ask : isQuery(ask) ? [ask] : undefined;
  if (!queries) throw new InterlaneError('INTERNAL', `store is readonly for "${name}", which is not a command`);
  return queries;
}

const closing = () => new InterlaneError('UNAVAILABLE', 'store is closed; the gateway is stopping');
