// Every test file starts here: no keys or settings from the machine, a home of its own, one seed for all properties.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
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
