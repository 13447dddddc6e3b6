// A store in trouble, as operators see it: in `status` and `readyz`, and one line in the log for each change.
import { chmodSync, mkdtempSync, rmSync, truncateSync, unlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import type { Channel, SendOutcome } from '../../src/channels/channel.ts';
import { testGateway, type TestGateway } from '../harness/gateway.ts';
import { damageTable } from '../harness/damage.ts';
import { fillDisk } from '../harness/inside.ts';
import { started } from '../harness/terminal.ts';

const databaseName = 'interlane.db';
const ready = async (gw: TestGateway) => (await gw.http('/readyz')).status;
const warningsIn = async (gw: TestGateway) => (await gw.call('status')).warnings;

it('a full disk is told once, makes the gateway not ready, and its end is noticed by an idle gateway', async () => {
  const gw = await testGateway({
    listen: true,
    stops: true,
    script: [{ steps: [{ calls: [{ tool: 'gate', args: { name: 'g' } }] }, { say: 'x' }] }],
  });
  const run = await gw.say('hello');
  await gw.stops.entered('g');
  const free = fillDisk();
  gw.stops.open('g');
  await expect(gw.say('more')).rejects.toMatchObject({ code: 'STORE_FAILED', message: expect.stringContaining('the disk is full') });
  await gw.clock.advance(60_000);
  expect(await ready(gw)).toBe(503);
  expect(await warningsIn(gw)).toEqual(['store is in trouble: the disk is full']);
  expect(gw.warnings).toEqual(['store is in trouble: the disk is full']);
  const { status, stdout } = await started(['doctor', '--json', '--state-dir', gw.stateDir]).finished;
  expect(status).toBe(74);
  expect(stdout).toContain('but its store is in trouble: the disk is full');
  free();
  await gw.clock.advance(10_000);
  expect(await ready(gw)).toBe(200);
  expect(await warningsIn(gw)).toEqual([]);
  expect(gw.warnings.slice(1)).toEqual(['store works again']);
  expect((await gw.clock.passing(gw.wait(run))).state).not.toBe('running');
});

it('a damaged file is told once, in words, and stays so', async () => {
  const gw = await testGateway({ listen: true });
  await gw.answer('hello');
  await gw.finished();
  await gw.close();
  damageTable(gw.stateDir, 'entries');
  await gw.start();
  await expect(gw.call('chat.history', { sessionKey: 'main' })).rejects.toMatchObject({
    code: 'STORE_FAILED',
    message: expect.stringContaining('the file is damaged; restore a backup with "interlane restore"'),
  });
  expect(await ready(gw)).toBe(503);
  await gw.call('sessions.patch', { key: 'main', label: 'still writes' });
  await gw.clock.advance(60_000);
  expect(await ready(gw)).toBe(503);
  expect(await warningsIn(gw)).toEqual([expect.stringContaining('store is in trouble: the file is damaged')]);
  expect(gw.warnings).toHaveLength(1);
});

it('a database that is missing or empty beside files of an earlier one is an error that names the newest backup', async () => {
  const elsewhere = mkdtempSync(join(tmpdir(), 'interlane-backup-'));
  onTestFinished(() => rmSync(elsewhere, { recursive: true, force: true }));
  const backup = join(elsewhere, 'sunday.db');
  const gw = await testGateway({ search: true });
  await gw.answer('hello');
  await gw.finished();
  await gw.close();
  expect(await started(['backup', backup, '--state-dir', gw.stateDir]).finished).toMatchObject({ status: 0 });
  const file = join(gw.stateDir, databaseName);
  const refused = (how: string) => ({
    code: 'STORE_UNUSABLE',
    message: `store ${file} ${how}, but the state directory has files of an earlier one (search.db); restore the newest backup: interlane restore ${backup} --state-dir ${gw.stateDir}; or move these files away to start empty`,
  });
  truncateSync(file, 0);
  await expect(gw.start()).rejects.toMatchObject(refused('is empty'));
  unlinkSync(file);
  await expect(gw.start()).rejects.toMatchObject(refused('is missing'));
  const { status, stdout } = await started(['doctor', '--json', '--state-dir', gw.stateDir]).finished;
  expect(status).toBe(74);
  expect(stdout).toContain(`interlane restore ${backup}`);
  expect(await started(['restore', backup, '--state-dir', gw.stateDir]).finished).toMatchObject({ status: 0 });
  await gw.start();
  expect(await gw.rows.transcript('agent:main:main')).toEqual(['user: hello', 'assistant: re: hello']);
});

it('a first start that failed early is no earlier store: the next one begins empty', async () => {
  const gw = await testGateway({});
  await gw.close();
  rmSync(join(gw.stateDir, databaseName));
  await gw.start();
  expect(await gw.answer('hello')).toMatchObject({ state: 'ok' });
});

it('doctor says which file of the state cannot be written', async () => {
  const gw = await testGateway({});
  await gw.close();
  chmodSync(join(gw.stateDir, databaseName), 0o400);
  const { status, stdout } = await started(['doctor', '--json', '--state-dir', gw.stateDir]).finished;
  expect(status).toBe(73);
  expect(stdout).toContain(`${join(gw.stateDir, databaseName)} cannot be written`);
});

it('what was pending in a restored backup is not sent again: its outcome is unknown, and an operator decides', async () => {
  const got: string[] = [];
  let up = false;
  const channel: Channel = {
    name: 'loopback',
    // oxlint-disable-next-line require-await -- asynchronous by contract
    async send({ text }): Promise<SendOutcome> {
      if (!up) return { outcome: 'retry', error: 'busy', afterMs: 60_000 };
      got.push(text);
      return { outcome: 'sent' };
    },
  };
  const gw = await testGateway({ channels: [channel], listen: true });
  await gw.answer('first');
  await gw.answer('second');
  await gw.settled();
  await gw.restoredAfter(async () => {
    up = true;
    await gw.clock.until(() => got.length === 2);
    await gw.finished();
  });
  await gw.clock.advance(600_000);
  expect(got).toEqual(['re: first', 're: second']);
  expect(gw.warnings).toEqual([expect.stringContaining('2 deliveries were pending in the backup that was restored')]);
  const { deliveries } = await gw.call('deliveries.list', { states: ['unknown'] });
  expect(deliveries.map(({ preview, error }) => [preview, error])).toEqual(
    ['re: second', 're: first'].map((text) => [text, expect.stringContaining('may have been sent after the backup was made')]),
  );
  // From here on it is a state like any other.
  expect(await gw.answer('third')).toMatchObject({ state: 'ok' });
  await gw.clock.until(() => got.length === 3);
  await gw.call('deliveries.resend', { deliveryId: deliveries[1]!.deliveryId });
  await gw.clock.until(() => got.length === 4);
  expect(got.at(-1)).toBe('re: first');
});
