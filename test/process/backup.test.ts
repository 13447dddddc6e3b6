// `interlane backup` and `restore` as commands: beside a process that writes, after one was killed, and when they must refuse.
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it } from 'vitest';
import { openDatabase } from '../../src/store/sqlite/database.ts';
import { databaseName } from '../../src/store/sqlite/files.ts';
import { interlane, scratch, start, type Running } from './child.ts';

const program = `
  import { lockState } from ${JSON.stringify(resolve('src/store/sqlite/lock.ts'))};
  import { openSqliteStore } from ${JSON.stringify(resolve('src/store/sqlite/open.ts'))};
  const put = {
    name: 'put',
    *body(t, { number }) {
      yield* t.run('INSERT INTO meta (key, value) VALUES (?, ?)', String(number).padStart(6, '0'), 'x'.repeat(500));
    },
  };
  lockState(process.argv[1], { pid: process.pid, host: 'elsewhere', startedAt: 0 });
  const store = openSqliteStore(process.argv[1], 'normal', { afterTick: setImmediate, elapsed: () => 0, fatal() {} });
  for (let number = 0; ; number++) {
    await store.write(put, { number });
    if (number % 100 === 99) console.log('wrote ' + (number + 1) + '.');
  }
`;

/** A process that holds the state and writes numbers into it, without an end. */
async function writing(state: string): Promise<Running> {
  const running = start(process.execPath, ['--input-type=module', '-e', program, state]);
  await running.printed('wrote 500.');
  return running;
}

const mode = (file: string) => statSync(file).mode & 0o777;

function keys(file: string): string[] {
  const database = new DatabaseSync(file);
  const rows = database.prepare(`SELECT key FROM meta WHERE key GLOB '[0-9]*' ORDER BY key`).all();
  database.close();
  return rows.map((row) => String(row['key']));
}

/** The numbers are a whole beginning of what was written, whenever the copy was made. */
function expectPrefix(found: string[], atLeast: number): void {
  expect(found).toEqual(found.map((_, index) => String(index).padStart(6, '0')));
  expect(found.length).toBeGreaterThanOrEqual(atLeast);
}

describe('interlane backup', () => {
  it('copies a database that is being written: a whole beginning of the commits, in one private file', async () => {
    const state = scratch();
    const files = scratch();
    const writer = await writing(state);
    for (const name of ['1.db', '2.db', '3.db']) {
      const file = join(files, name);
      const { status, stdout, stderr } = await interlane(['backup', file, '--state-dir', state]);
      expect({ status, stderr }).toEqual({ status: 0, stderr: '' });
      expect(stdout).toMatch(/\([\d.]+ [kM]B\)\.\n$/);
      expect(stdout).toContain(`Backed up ${state} to ${file} (`);
      expect(mode(file)).toBe(0o600);
    }
    expect(writer.child.exitCode).toBeNull();
    expect(readdirSync(files).toSorted()).toEqual(['1.db', '2.db', '3.db']);
    for (const name of ['1.db', '2.db', '3.db']) expectPrefix(keys(join(files, name)), 500);
  });

  it('copies what a killed process had committed', async () => {
    const state = scratch();
    const writer = await writing(state);
    writer.child.kill('SIGKILL');
    const { stdout } = await writer.finished;
    const file = join(scratch(), 'b.db');
    expect((await interlane(['backup', file], { env: { INTERLANE_STATE_DIR: state } })).status).toBe(0);
    expectPrefix(keys(file), stdout.trim().split('\n').length * 100);
  });

  it('refuses to write over a file, and where there is nothing to back up', async () => {
    const state = scratch();
    openDatabase(join(state, databaseName), { durability: 'full' }).close();
    const file = join(scratch(), 'b.db');
    writeFileSync(file, 'precious');
    const exists = await interlane(['backup', file, '--state-dir', state]);
    expect(exists).toMatchObject({ status: 65, stdout: '', stderr: `interlane: backup ${file} exists already; choose another name\n` });
    expect(readFileSync(file, 'utf8')).toBe('precious');
    const nothing = await interlane(['backup', file, '--state-dir', scratch()]);
    expect(nothing.status).toBe(66);
    expect(nothing.stderr).toMatch(/interlane\.db.*--state-dir/);
    expect((await interlane(['backup'])).status).toBe(64);
  });
});

describe('interlane restore', () => {
  it('is refused while a process holds the state, and names it', async () => {
    const state = scratch();
    const writer = await writing(state);
    const file = join(scratch(), 'b.db');
    await interlane(['backup', file, '--state-dir', state]);
    const { status, stdout, stderr } = await interlane(['restore', file, '--state-dir', state]);
    expect({ status, stdout }).toEqual({ status: 75, stdout: '' });
    expect(stderr).toBe(
      `interlane: state directory ${state} is in use by another gateway (process ${writer.child.pid} on elsewhere); stop it, or choose another with --state-dir\n`,
    );
    expect(readdirSync(state).filter((name) => /replaced|restoring/.test(name))).toEqual([]);
  });

  it('puts a backup in place and keeps what a killed process had committed', async () => {
    const state = scratch();
    const file = join(scratch(), 'b.db');
    const writer = await writing(state);
    await interlane(['backup', file, '--state-dir', state]);
    await writer.printed('wrote 2000.');
    writer.child.kill('SIGKILL');
    const written = (await writer.finished).stdout.trim().split('\n').length * 100;
    const saved = keys(file);

    const { status, stdout } = await interlane(['restore', file, '--state-dir', state]);
    const kept = join(state, 'interlane.db.replaced-1');
    expect({ status, stdout }).toEqual({ status: 0, stdout: `Restored ${file} to ${state}; the old database is kept as ${kept}.\n` });
    expect(keys(join(state, databaseName))).toEqual(saved);
    expectPrefix(keys(kept), written);
    expect([mode(join(state, databaseName)), mode(kept)]).toEqual([0o600, 0o600]);
  });

  it('refuses what is not a backup, with a status for scripts, and leaves the state alone', async () => {
    const state = scratch();
    openDatabase(join(state, databaseName), { durability: 'full' }).close();
    const before = readFileSync(join(state, databaseName));
    const file = join(scratch(), 'b.db');
    writeFileSync(file, 'no backup');
    const { status, stderr } = await interlane(['restore', file, '--state-dir', state]);
    expect({ status, stderr }).toEqual({ status: 74, stderr: `interlane: backup ${file} cannot be restored: it is not a database\n` });
    expect(readFileSync(join(state, databaseName)).equals(before)).toBe(true);
    expect((await interlane(['restore', join(file, 'missing'), '--state-dir', state])).status).toBe(66);
  });
});
