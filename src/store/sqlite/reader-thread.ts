// The reader thread, seen from the main one: queries of a slot in, rows out. A slot is a connection, and what it sees is one snapshot.
import { Worker } from 'node:worker_threads';
import { InterlaneError } from '../../errors.ts';
import type { Query } from '../contract.ts';
import { rowShape } from '../row-shape.ts';

export type ToReader = { id: number; slot: number; queries: Query[] } | { end: number } | { stop: true };
export interface Table {
  columns: string[];
  rows: unknown[][];
}
export type FromReader = { id: number; answers: Table[] } | { id: number; error: string; code: number | undefined };

interface Waiting {
  queries: Query[];
  resolve(answers: unknown[]): void;
  reject(error: unknown): void;
}

/** Its rows leave at once, so its heap need not grow with the main one. Flags of the process may not fit a thread, and it needs none. */
const resourceLimits = { maxYoungGenerationSizeMb: 16 };

export class ReaderThread {
  private readonly worker: Worker;
  private readonly over: Promise<void>;
  private readonly waiting = new Map<number, Waiting>();
  private asked = 0;
  private closing = false;
  /** False once the thread has ended, for whatever reason. */
  alive = true;

  constructor(path: string) {
    const file = import.meta.url.endsWith('.ts') ? './reader-worker.ts' : './reader-worker.js';
    this.worker = new Worker(new URL(file, import.meta.url), { workerData: { path }, resourceLimits, execArgv: [] });
    this.worker.unref();
    let why = 'it ended';
    this.worker.on('error', (error) => (why = error instanceof Error ? error.message : String(error)));
    this.over = new Promise((resolve) => this.worker.once('exit', () => resolve(this.end(why))));
    this.worker.on('message', (answer: FromReader) => this.receive(answer));
  }

  /** Answers of queries that are independent of each other. */
  ask(slot: number, queries: Query[]): Promise<unknown[]> {
    return new Promise((resolve, reject) => {
      if (!this.alive) return reject(unreadable('it ended'));
      const id = this.asked++;
      this.waiting.set(id, { queries, resolve, reject });
      this.worker.ref(); // an answer is on its way
      this.send({ id, slot, queries });
    });
  }

  /** The slot's snapshot is over. */
  release(slot: number): void {
    if (this.alive) this.send({ end: slot });
  }

  async close(): Promise<void> {
    this.closing = true;
    this.worker.ref(); // a process with nothing else to do waits for the thread to close its connections
    if (this.alive) this.send({ stop: true });
    await this.over;
  }

  private send(message: ToReader): void {
    this.worker.postMessage(message);
  }

  private receive(answer: FromReader): void {
    const asked = this.waiting.get(answer.id);
    this.waiting.delete(answer.id);
    if (this.waiting.size === 0 && !this.closing) this.worker.unref();
    if (!asked) return;
    if ('error' in answer) asked.reject(unreadable(answer.error, answer.code));
    else asked.resolve(answer.answers.map((table, index) => rowsOf(table, asked.queries[index]!)));
  }

  private end(why: string): void {
    this.alive = false;
    for (const { reject } of this.waiting.values()) reject(unreadable(why));
    this.waiting.clear();
  }
}

function rowsOf({ columns, rows }: Table, { want }: Query): unknown {
  const named = rows.map(rowShape(columns));
  return want === 'all' ? named : named[0];
}

const unreadable = (why: string, code?: number) =>
  new InterlaneError('STORE_FAILED', `store could not read: ${why}; try again`, { cause: { errcode: code } });
