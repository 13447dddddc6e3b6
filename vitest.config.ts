// Two projects: `unit` runs in parallel; `process` holds every test that starts processes and runs one file at a time.
import { defineConfig } from 'vitest/config';

const starters = ['test/process/**/*.test.ts', 'test/crash/**/*.test.ts'];

export default defineConfig({
  test: {
    projects: [
      { test: { name: 'unit', include: ['src/**/*.test.ts', 'test/**/*.test.ts'], exclude: starters, setupFiles: ['test/setup.ts'] } },
      {
        test: {
          name: 'process',
          include: starters,
          setupFiles: ['test/setup.ts'],
          fileParallelism: false,
          testTimeout: 300_000,
          hookTimeout: 180_000,
        },
      },
    ],
  },
});
