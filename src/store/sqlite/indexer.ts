// The thread that writes the search index when there is much to write.
import { Worker } from 'node:worker_threads';
import type { Job, Written } from './search-file.ts';

/** It handles little at a time, and its heap need not grow with the main one. */
const resourceLimits = { maxYoungGenerationSizeMb: 8 };

export class IndexThread {
  private readonly worker: Worker;
  private readonly over: Promise<void>;
  private answer: ((written: Written) => void) | undefined;
  private alive = true;

  constructor(path: string, failed: (error: Error) => void) {
    const file = import.meta.url.endsWith('.ts') ? './search-worker.ts' : './search-worker.js';
    this.worker = new Worker(new URL(file, import.meta.url), { workerData: { path }, resourceLimits });
    this.over = new Promise((resolve) => this.worker.once('exit', () => resolve(this.end())));
    this.worker.on('error', failed);
    this.worker.on('message', (written: Written) => this.answer?.(written));
  }

  /** One at a time. */
  write(job: Job): Promise<Written> {
    return new Promise((resolve) => {
      if (!this.alive) return resolve('over');
      this.answer = resolve;
      this.worker.postMessage(job);
    });
  }

  async close(): Promise<void> {
    if (this.alive) this.worker.postMessage('stop');
    await this.over;
  }

  private end(): void {
    this.alive = false;
    this.answer?.('over');
  }
}
