// A store in trouble, as operators see it: in `status` and `readyz`, and one line in the log for each change.
import { chmodSync, mkdtempSync, rmSync, truncateSync, unlinkSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import type { Channel, SendOutcome } from '../../src/channels/channel.ts';
import { defineTool } from '../../src/tools/define.ts';
import { testGateway, type ScriptText, type TestGateway } from '../harness/gateway.ts';
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

it('a restored gateway sends what it answers anew, and makes no call again that acts once', async () => {
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
  let orders = 0;
  const order = defineTool({
    name: 'order',
    description: 'Order one.',
    effect: 'once',
    params: z.strictObject({}),
    run: () => Promise.resolve({ value: `order ${++orders}` }),
  });
  const gate = { tool: 'gate', args: { name: 'g' } };
  const script: ScriptText = [
    { when: 'slow', steps: [{ calls: [gate] }, { say: 'fresh' }] },
    { when: 'buy', steps: [{ calls: [gate, { tool: 'order', args: {} }] }, { say: 'bought: {{result}}' }] },
    { steps: [{ say: 'old' }] },
  ];
  const config = { session: { dmScope: 'per-peer' as const }, agents: { defaults: { timeoutSeconds: 0 } } };
  const gw = await testGateway({ channels: [channel], stops: true, tools: [order], script, config });
  await gw.answer('hello');
  await gw.rows.addDeliveries('m', 400, 'pending');
  const runs = await Promise.all(['slow', 'slow', 'slow', 'buy'].map((text, from) => gw.say(text, { from: `p${from}` })));
  await gw.stops.entered('g', 4);
  expect(await gw.rows.calls({ tool: 'order' }, 'state')).toEqual([{ state: 'planned' }]);
  await gw.restoredAfter(async () => {
    await gw.close();
    up = true;
    gw.stops.open('g');
  });
  for (const run of runs) await gw.clock.passing(gw.wait(run));
  await gw.clock.until(() => got.length >= 4);
  await gw.finished();
  expect(got.toSorted()).toEqual([expect.stringMatching(/^bought: .*OUTCOME_UNKNOWN/), 'fresh', 'fresh', 'fresh']);
  expect(orders).toBe(0);
  expect((await gw.rows.deliveries({}, 'state')).filter(({ state }) => state === 'unknown')).toHaveLength(401);
});
