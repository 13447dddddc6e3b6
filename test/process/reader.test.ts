// A process whose only work was a long read ends cleanly: the close waits for the reader thread, and the log of the store is gone.
import { execFile } from 'node:child_process';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import { expect, it, onTestFinished } from 'vitest';

const script = `
  import { openSqliteStore } from ${JSON.stringify(resolve('src/store/sqlite/open.ts'))};
  const store = openSqliteStore(process.argv[1], 'normal', { afterTick: setImmediate, elapsed: () => 0, fatal() {} });
  const page = { name: 'page', rows: () => 1_000_000, body: (t) => t.all('SELECT key FROM meta LIMIT 1') };
  console.log(JSON.stringify(await store.read(page, {})));
  await store.close();
  console.log('closed');
`;

it('the close of a store waits for its reader', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'interlane-reader-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '-e', script, directory]);
  expect(stdout).toBe('[]\nclosed\n');
  expect(existsSync(join(directory, 'interlane.db-wal'))).toBe(false);
});
