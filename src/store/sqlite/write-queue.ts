// The commands that wait to be written: urgent ones first, then one of each principal in turn, each principal's own in order.
import { InterlaneError } from '../../errors.ts';

const mostCommands = 10_000;
const mostBytes = 64 * 1024 * 1024;

export interface Queued {
  bytes: number;
  /** Who asked for it; the gateway itself has no name. */
  by: string | undefined;
}

interface Line<Job> {
  jobs: Job[];
  bytes: number;
}

export class WriteQueue<Job extends Queued> {
  private readonly urgent: Job[] = [];
  /** In the order of their turns. */
  private readonly lines = new Map<string | undefined, Line<Job>>();
  private commands = 0;
  private bytes = 0;

  get length(): number {
    return this.urgent.length + this.commands;
  }

  /**
   * Why a command is not taken. One principal may have as much waiting as is still free: half of the queue if it is alone, a third
   * if two want all of it. So a part stays free for others, however many ask for too much.
   */
  refusal({ by, bytes }: Queued): InterlaneError | undefined {
    const free = { commands: mostCommands - this.commands, bytes: mostBytes - this.bytes };
    if (free.commands < 1 || bytes > free.bytes) return busy('store has too much waiting to be written');
    const line = by === undefined ? undefined : this.lines.get(by);
    if (!line || (line.jobs.length < free.commands && line.bytes + bytes <= free.bytes)) return undefined;
    return busy('store has as much waiting from this caller as it takes from one');
  }

  push(job: Job, urgent: boolean): void {
    this.bytes += job.bytes;
    if (urgent) {
      this.urgent.push(job);
      return;
    }
    this.commands++;
    let line = this.lines.get(job.by);
    if (!line) this.lines.set(job.by, (line = { jobs: [], bytes: 0 }));
    line.jobs.push(job);
    line.bytes += job.bytes;
  }

  take(): Job | undefined {
    const job = this.urgent.shift() ?? this.takeInTurn();
    if (job) this.bytes -= job.bytes;
    return job;
  }

  private takeInTurn(): Job | undefined {
    const [first] = this.lines;
    if (!first) return undefined;
    const [by, line] = first;
    const job = line.jobs.shift()!;
    line.bytes -= job.bytes;
    this.commands--;
    if (line.jobs.length > 0 && this.lines.size === 1) return job;
    this.lines.delete(by);
    if (line.jobs.length > 0) this.lines.set(by, line);
    return job;
  }
}

const busy = (what: string) => new InterlaneError('BUSY', `${what}; try again in a moment`);
