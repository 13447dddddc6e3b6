// A disk that fails in the middle of a commit: a limit on the size of files makes the system refuse a real write.
import { readFileSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it } from 'vitest';
import { databaseName } from '../../src/store/sqlite/files.ts';
import { connect } from '../../src/client/client.ts';
import { complaints, scratch, start, type Running } from './child.ts';

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

describe('a gateway that ends by a fault', () => {
  /** The real command, after a word to the shell that starts it. */
  async function up(state: string, before: string, env: Record<string, string> = {}): Promise<Running> {
    const command = [process.execPath, resolve('bin/interlane.cjs'), 'up', '--port', '0', '--state-dir', state];
    const running = start('sh', ['-c', `${before} exec "$@"`, 'sh', ...command], { env });
    await running.printed('Up. Press Ctrl-C to stop.');
    return running;
  }
  const lastWords = (stderr: string) => JSON.parse(complaints(stderr).at(-1)!) as { level: string; msg: string; stack?: string };

  it('because the disk reported an error says so in its log before it exits', async () => {
    const state = scratch();
    const running = await up(state, 'ulimit -f 8192 &&');
    const { url, token } = JSON.parse(readFileSync(join(state, 'cli.json'), 'utf8')) as { url: string; token: string };
    const client = await connect({ url, token, client: { id: 'cli', mode: 'cli', version: '0', platform: 'test' } });
    const filling = (async () => {
      for (;;) await client.call('chat.inject', { sessionKey: 'main', message: 'x'.repeat(500_000) });
    })();
    await expect(filling).rejects.toMatchObject({});
    const { status, stderr } = await running.finished;
    client.close();
    expect(status).toBe(70);
    expect(lastWords(stderr)).toMatchObject({
      level: 'error',
      msg: 'gateway ends: store could not write: the disk reported an error; whether it was kept shows after a restart',
    });
  });

  it('because nothing caught an error says so in its log before it exits', async () => {
    const faulty = `process.on('SIGUSR2', () => { throw new Error('nobody caught this'); })`;
    const env = { NODE_OPTIONS: `--import=data:text/javascript,${encodeURIComponent(faulty)}` };
    const running = await up(scratch(), '', env);
    running.child.kill('SIGUSR2');
    const { status, stderr } = await running.finished;
    expect(status).toBe(70);
    expect(lastWords(stderr)).toMatchObject({
      level: 'error',
      msg: 'gateway ends: nobody caught this',
      stack: expect.stringContaining('at '),
    });
  });

  it('goes on without its log when that cannot be written, says so in status, and stops in order', async () => {
    const state = scratch();
    const running = await up(state, 'exec 2>/dev/full;');
    const { url, token } = JSON.parse(readFileSync(join(state, 'cli.json'), 'utf8')) as { url: string; token: string };
    const client = await connect({ url, token, client: { id: 'cli', mode: 'cli', version: '0', platform: 'test' } });
    const { warnings } = await client.call('status', {});
    client.close();
    expect(warnings).toEqual([expect.stringMatching(/^log cannot be written, and the gateway goes on without it: .*ENOSPC/)]);
    running.child.kill('SIGHUP');
    expect(await running.finished).toMatchObject({ status: 0, stdout: expect.stringContaining('Stopped.') });
  });

  it('by a signal has it in its log', async () => {
    const running = await up(scratch(), '');
    running.child.kill('SIGTERM');
    const { status, stderr } = await running.finished;
    expect(status).toBe(0);
    const lines = stderr
      .trim()
      .split('\n')
      .map((line) => JSON.parse(line) as object);
    expect(lines.slice(-2)).toMatchObject([{ level: 'info', signal: 'SIGTERM', msg: 'gateway stops' }, { msg: 'gateway has stopped' }]);
  });
});
