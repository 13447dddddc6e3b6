// Four projects, one after another, so that each has the machine to itself; those that start processes take one file at a time.
import { resolve } from 'node:path';
import { defineConfig } from 'vitest/config';

// Every process that the tests start finds its code compiled, which halves what a start costs.
process.env['NODE_COMPILE_CACHE'] ??= resolve('node_modules/.cache/compiled');

const own = ['test/process/**/*.test.ts', 'test/crash/**/*.test.ts', 'test/property/**/*.test.ts'];
const setupFiles = ['test/setup.ts', 'test/postgres/collect.ts'];
// Limits only end what hangs: no test depends on how long it takes, and a busy machine may take its time.
const limits = { testTimeout: 60_000, hookTimeout: 60_000 };
const alone = { fileParallelism: false, testTimeout: 600_000, hookTimeout: 180_000 };

export default defineConfig({
  test: {
    reporters: ['default', './test/seconds.ts'],
    // Where one thing is broken, everything that waits for it would run into its limit.
    bail: 5,
    globalSetup: 'test/postgres/global.ts',
    // A core that is kept free is a third of the time on a machine with two.
    maxWorkers: '100%',
    // The check at the end of the run takes part of it.
    teardownTimeout: 120_000,
    projects: [
      {
        test: {
          name: 'unit',
          include: ['src/**/*.test.ts', 'test/**/*.test.ts'],
          exclude: own,
          setupFiles,
          ...limits,
          sequence: { groupOrder: 1 },
        },
      },
      {
        test: {
          name: 'property',
          include: ['test/property/**/*.test.ts'],
          setupFiles,
          ...limits,
          testTimeout: 600_000,
          sequence: { groupOrder: 2 },
        },
      },
      { test: { name: 'crash', include: ['test/crash/**/*.test.ts'], setupFiles, ...alone, sequence: { groupOrder: 3 } } },
      { test: { name: 'process', include: ['test/process/**/*.test.ts'], setupFiles, ...alone, sequence: { groupOrder: 4 } } },
    ],
  },
});
