// Process entry: arguments → command → exit status.
import { randomUUID } from 'node:crypto';
import { homedir } from 'node:os';
import { setTimeout as sleep } from 'node:timers/promises';
import { run } from './cli/program.ts';
import { errorTable } from './errors.ts';

/** A gateway goes on without its output; any other command has nothing left to do. */
let outputLost: ((error: Error) => void) | undefined;

// The reader may stop reading (`| head`), and a disk may be full. Neither is a bug, so neither prints a stack.
for (const stream of [process.stdout, process.stderr]) {
  stream.on('error', (error: NodeJS.ErrnoException) => {
    if (outputLost) return outputLost(error);
    if (error.code === 'EPIPE') process.exit(0);
    if (stream === process.stdout) process.stderr.write(`interlane: output cannot be written: ${error.message}\n`);
    process.exit(errorTable.STORE_FAILED.exit);
  });
}

void run({
  argv: process.argv.slice(2),
  env: process.env,
  home: homedir(),
  stdin: process.stdin,
  stdout: process.stdout,
  stderr: process.stderr,
  onSignal: (name, handler) => {
    process.on(name, handler);
    return () => process.off(name, handler);
  },
  onCrash: (handler) => {
    process.once('uncaughtException', (error) => {
      handler(error);
      process.exit(errorTable.INTERNAL.exit);
    });
  },
  onOutputLost: (handler) => {
    outputLost = handler;
  },
  now: () => Math.round(performance.timeOrigin + performance.now()),
  sleep: (ms, signal) => sleep(ms, undefined, { signal }),
  newId: () => randomUUID(),
}).then((status) => {
  process.exitCode = status;
  // A command that failed ends, whatever it left open.
  if (status !== 0) void sleep(2_000, undefined, { ref: false }).then(() => process.exit());
});
