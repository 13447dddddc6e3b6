// A child process that is asked things by its parent, one after the other.
import { fork } from 'node:child_process';
import { fileURLToPath } from 'node:url';

export interface Asked<Wish> {
  pid: number;
  ask<R>(wish: Wish): Promise<R>;
  /** SIGKILL, and wait until it is gone. */
  kill(): Promise<void>;
}

/** Starts `bench/run.ts` in a role, in a process of its own. */
export function startAsked<Wish extends object>(role: string, ...args: string[]): Asked<Wish> {
  const run = fileURLToPath(new URL('run.ts', import.meta.url));
  const child = fork(run, ['--child', role, ...args], { execArgv: ['--expose-gc', ...profiling(role)], serialization: 'advanced' });
  const stop = () => void child.kill('SIGKILL');
  process.once('exit', stop);
  let over = false;
  const gone = new Promise<void>((resolve) => {
    child.once('exit', () => {
      over = true;
      process.off('exit', stop);
      resolve();
    });
  });
  return {
    pid: child.pid!,
    ask: (wish) =>
      new Promise((resolve, reject) => {
        const lost = () => reject(new Error(`bench child "${role}" is gone`));
        if (over) return lost();
        child.once('exit', lost);
        child.once('message', ({ answer, error }: { answer: never; error?: string }) => {
          child.off('exit', lost);
          if (error === undefined) resolve(answer);
          else reject(new Error(`bench child "${role}": ${error}`));
        });
        child.send(wish);
      }),
    kill() {
      // A profile is written at an orderly end only.
      if (profiling(role).length > 0) child.kill('SIGTERM');
      else stop();
      return gone;
    },
  };
}

/** `BENCH_PROFILE=gateway` leaves profiles of that role, one for each thread, in a folder of that name. */
function profiling(role: string): string[] {
  return process.env['BENCH_PROFILE'] === role ? ['--cpu-prof', `--cpu-prof-dir=${role}.profiles`] : [];
}

/** In the child. */
export function answerParent(work: (wish: never) => unknown): void {
  process.once('SIGTERM', () => process.exit(0));
  process.on('message', (wish) => {
    void (async () => {
      try {
        process.send!({ answer: await work(wish as never) });
      } catch (thrown) {
        process.send!({ error: thrown instanceof Error ? (thrown.stack ?? thrown.message) : String(thrown) });
      }
    })();
  });
}
