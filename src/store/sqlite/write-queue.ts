// The commands that wait to be written: urgent ones first, then one of each principal in turn, each principal's own in order.
import { InterlaneError } from '../../errors.ts';
import { RoundRobin } from '../../round-robin.ts';

const mostCommands = 10_000;
const mostBytes = 64 * 1024 * 1024;

export interface Queued {
  bytes: number;
  /** Who asked for it; the gateway itself has no name. */
  by: string | undefined;
}

export class WriteQueue<Job extends Queued> {
  private readonly urgent: Job[] = [];
  private readonly ordinary = new RoundRobin<string | undefined, Job>();
  /** Bytes that wait: of all, and of each principal. */
  private bytes = 0;
  private readonly bytesOf = new Map<string | undefined, number>();

  get length(): number {
    return this.urgent.length + this.ordinary.size;
  }

  /**
   * Why a command is not taken. One principal may have as much waiting as is still free: half of the queue if it is alone, a third
   * if two want all of it. So a part stays free for others, however many ask for too much.
   */
  refusal({ by, bytes }: Queued): InterlaneError | undefined {
    const free = { commands: mostCommands - this.ordinary.size, bytes: mostBytes - this.bytes };
    if (free.commands < 1 || bytes > free.bytes) return busy('store has too much waiting to be written');
    if (by === undefined) return undefined;
    const own = { commands: this.ordinary.waiting(by), bytes: this.bytesOf.get(by) ?? 0 };
    if (own.commands < free.commands && own.bytes + bytes <= free.bytes) return undefined;
    return busy('store has as much waiting from this caller as it takes from one');
  }

  push(job: Job, urgent: boolean): void {
    this.bytes += job.bytes;
    if (urgent) {
      this.urgent.push(job);
      return;
    }
    this.ordinary.add(job.by, job);
    if (job.bytes > 0) this.bytesOf.set(job.by, (this.bytesOf.get(job.by) ?? 0) + job.bytes);
  }

  take(): Job | undefined {
    const job = this.urgent.shift() ?? this.takeInTurn();
    if (job) this.bytes -= job.bytes;
    return job;
  }

  private takeInTurn(): Job | undefined {
    const job = this.ordinary.take()?.item;
    if (!job || job.bytes === 0) return job;
    const left = this.bytesOf.get(job.by)! - job.bytes;
    if (left > 0) this.bytesOf.set(job.by, left);
    else this.bytesOf.delete(job.by);
    return job;
  }
}

const busy = (what: string) => new InterlaneError('BUSY', `${what}; try again in a moment`);
