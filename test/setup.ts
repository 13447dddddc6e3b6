// Every test file starts here: no keys or settings from the machine, a home of its own, one seed for all properties.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Worker } from 'node:worker_threads';
import { configureGlobal } from 'fast-check';
import { afterAll } from 'vitest';

// `npm run soak` sets INTERLANE_SOAK: a random seed and many more runs. A failing property prints its seed.
const soak = process.env['INTERLANE_SOAK'] !== undefined;

for (const name of Object.keys(process.env)) {
  if (/^INTERLANE_|_API_KEY$|^OLLAMA_/.test(name)) delete process.env[name];
}
const home = mkdtempSync(join(tmpdir(), 'interlane-home-'));
process.env['HOME'] = home;
afterAll(() => rmSync(home, { recursive: true, force: true }));

configureGlobal(soak ? { numRuns: 4_000 } : { seed: 20_261_115, numRuns: 300 });

// A loop that never lets go cannot be ended by the limit of its test. A thread waits for signs of life, and ends the process without them.
const silentMs = 120_000;
const life = new Int32Array(new SharedArrayBuffer(4));
const watch = `
  const { workerData: { life, silentMs } } = require('node:worker_threads');
  for (let last = 0; Atomics.wait(life, 0, last, silentMs) !== 'timed-out'; last = Atomics.load(life, 0));
  require('node:fs').writeSync(2, 'a test has gone round for ' + silentMs / 1000 + ' s without a pause; its process is ended\\n');
  process.kill(process.pid, 'SIGKILL');
`;
new Worker(watch, { eval: true, workerData: { life, silentMs } }).unref();
setInterval(() => {
  Atomics.add(life, 0, 1);
  Atomics.notify(life, 0);
}, 1_000).unref();
