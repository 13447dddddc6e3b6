// A disk that fails in the middle of a commit: a limit on the size of files makes the system refuse a real write.
import { join, resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect, it } from 'vitest';
import { databaseName } from '../../src/store/sqlite/open.ts';
import { scratch, start } from './child.ts';

const program = `
  import { openSqliteStore } from ${JSON.stringify(resolve('src/store/sqlite/open.ts'))};
  const put = {
    name: 'put',
    *body(t, { key }) {
      yield* t.run('INSERT INTO meta (key, value) VALUES (?, ?)', key, 'x'.repeat(3000));
    },
  };
  const store = openSqliteStore(process.argv[1], 'full', {
    afterTick: setImmediate,
    elapsed: () => 0,
    fatal: (error) => {
      console.log('fatal ' + error.code + ' ' + error.message);
      process.exitCode = 9;
    },
  });
  for (let i = 0; process.exitCode === undefined; i++) {
    await store.write(put, { key: 'k' + i }).then(
      () => console.log('kept k' + i),
      (error) => console.log('failed k' + i + ' ' + error.code),
    );
  }
  process.exit();
`;

it('an I/O error at the commit is reported as an unknown outcome, and everything acknowledged is there afterwards', async () => {
  const state = scratch();
  const node = [process.execPath, '--input-type=module', '-e', program, state];
  const { status, stdout } = await start('sh', ['-c', 'ulimit -f 2048 && exec "$@"', 'sh', ...node]).finished;
  const lines = stdout.trim().split('\n');
  expect(status).toBe(9);
  const kept = lines.filter((line) => line.startsWith('kept ')).map((line) => line.slice(5));
  expect(kept.length).toBeGreaterThan(10);
  const failed = `k${kept.length}`;
  expect(lines.slice(kept.length).toSorted()).toEqual([
    `failed ${failed} STORE_FAILED`,
    'fatal STORE_FAILED store could not write: the disk reported an error; whether it was kept shows after a restart',
  ]);

  const database = new DatabaseSync(join(state, databaseName));
  const found = database
    .prepare('SELECT key FROM meta ORDER BY rowid')
    .all()
    .map((row) => String(row['key']));
  database.close();
  expect(found.slice(0, kept.length)).toEqual(kept);
  expect(found.slice(kept.length).every((key) => key === failed)).toBe(true);
});
