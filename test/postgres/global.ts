// Before all tests: a directory for the statements they make. After them: PostgreSQL prepares each, and the run fails if it refuses one.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { TestProject } from 'vitest/node';
import { budgets } from '../budgets.ts';
import { demandAll } from './check.ts';
import { startServer } from './server.ts';
import { readStatements } from './statements.ts';

declare module 'vitest' {
  interface ProvidedContext {
    /** The directory for statements. */
    statements: string;
    /** A server to use instead of one of our own; empty for none. */
    postgres: string;
  }
}

export default function setup(project: TestProject): () => Promise<void> {
  const directory = mkdtempSync(join(tmpdir(), 'interlane-statements-'));
  const url = process.env['INTERLANE_TEST_POSTGRES'] ?? '';
  project.provide('statements', directory);
  project.provide('postgres', url);
  return async () => {
    const statements = readStatements(directory);
    rmSync(directory, { recursive: true, force: true });
    if (statements.length === 0) return;
    const before = process.exitCode;
    process.exitCode = 1; // also if this is cut short
    const began = performance.now();
    const server = await startServer(url);
    try {
      await demandAll(server.url, statements);
    } finally {
      await server.stop();
    }
    const seconds = ((performance.now() - began) / 1000).toFixed(1);
    process.stdout.write(`\n postgres: ${seconds} s of ${budgets['postgres']}, ${statements.length} statements\n`);
    process.exitCode = before;
  };
}
