// Process entry: arguments → command → exit status.
import { homedir } from 'node:os';
import { run } from './cli/program.ts';

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
}).then((status) => {
  process.exitCode = status;
});
