// A store in trouble, as operators see it: in `status` and `readyz`, and one line in the log for each change.
import {
  chmodSync,
  copyFileSync,
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  renameSync,
  rmSync,
  truncateSync,
  unlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as tick } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import type { Channel, SendOutcome } from '../../src/channels/channel.ts';
import { defineTool } from '../../src/tools/define.ts';
import { testGateway, type ScriptText, type TestGateway } from '../harness/gateway.ts';
import { errorTable, type InterlaneError } from '../../src/errors.ts';
import { damageIndex, damageTable } from '../harness/damage.ts';
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
    message: `store ${file} ${how}, but the state directory has files of an earlier one (last-backup.json, search.db); restore the newest backup: interlane restore ${backup} --state-dir ${gw.stateDir}; or move these files away to start empty`,
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

const listeners = () => process.getActiveResourcesInfo().filter((name) => name === 'TCPServerWrap').length;

it.each<[what: string, break_: (stateDir: string) => (() => void) | void, says: RegExp]>([
  ['a file that cannot be written', (dir) => void mkdirSync(join(dir, 'cli.json', 'x'), { recursive: true }), /it is a directory/],
  ['a full disk', () => fillDisk(), /the disk is full/],
  ['damaged tokens', (dir) => damageTable(dir, 'tokens'), /damaged/],
  ['damaged instances', (dir) => damageTable(dir, 'instances'), /damaged/],
  ['damaged sequences', (dir) => damageTable(dir, 'sqlite_sequence'), /damaged/],
])('a start that fails of %s leaves no port open and has the exit status of the store', async (_, break_, says) => {
  const gw = await testGateway({ listen: true });
  await gw.close();
  const before = listeners();
  const mend = break_(gw.stateDir);
  const failure: unknown = await gw.start().catch((thrown: unknown) => thrown);
  mend?.();
  expect(failure).toMatchObject({ message: expect.stringMatching(says) });
  expect(errorTable[(failure as InterlaneError).code].exit).toBe(74);
  await tick(); // a port is free one turn after it is closed
  await tick();
  expect(listeners()).toBe(before);
});

it('a session that its index does not find is damage: no second one is opened, and doctor says what backup says', async () => {
  const gw = await testGateway({ config: { agents: { list: [{ id: 'main' }, { id: 'other' }] } } });
  await gw.close();
  damageIndex(gw.stateDir, 'sessions_key', 'agent:main:main', 'agent:main:maim');
  await expect(gw.start()).rejects.toMatchObject({
    code: 'STORE_UNUSABLE',
    message: expect.stringMatching(/is damaged: .*agent:main:main is missing from index sessions_key.*restore a backup/),
  });
  const run = (...argv: string[]) => started([...argv, '--state-dir', gw.stateDir]).finished;
  const { status, stdout } = await run('doctor', '--json');
  expect([status, stdout]).toEqual([74, expect.stringContaining('is damaged')]);
  expect(await run('backup', join(gw.stateDir, 'b.db'))).toMatchObject({ status: 74 });
});

it('doctor finds one flipped bit in an index that no start reads', async () => {
  const gw = await testGateway({});
  await gw.close();
  damageIndex(gw.stateDir, 'sessions_lives', 'agent:main:main', 'agent:main:maim');
  const { status, stdout } = await started(['doctor', '--json', '--state-dir', gw.stateDir]).finished;
  expect([status, stdout]).toEqual([74, expect.stringContaining('is damaged')]);
});

it('a nearly full disk does not make the state flap: a store that fails again soon must work longer', async () => {
  const gw = await testGateway({ listen: true });
  const relapse = async () => {
    const free = fillDisk();
    await expect(gw.say('x')).rejects.toMatchObject({ code: 'STORE_FAILED' });
    free();
    await gw.call('sessions.patch', { key: 'main', label: null }); // a small commit succeeds
  };
  for (let times = 0; times < 20; times++) {
    await relapse();
    await gw.clock.advance(1_000);
  }
  expect(gw.warnings.length).toBeLessThan(8);
  await gw.clock.advance(120_000);
  expect(await ready(gw)).toBe(200);
  expect(gw.warnings.at(-1)).toBe('store works again');
});

it('a database file that is deleted or replaced under a running gateway is trouble, until it is back', async () => {
  const gw = await testGateway({ listen: true });
  const file = join(gw.stateDir, databaseName);
  renameSync(file, `${file}.away`);
  await gw.clock.advance(5_000);
  expect(await ready(gw)).toBe(503);
  expect(await warningsIn(gw)).toEqual([expect.stringContaining('was deleted or moved while the gateway runs')]);
  copyFileSync(`${file}.away`, file);
  await gw.clock.advance(5_000);
  expect(await warningsIn(gw)).toEqual([expect.stringContaining('was replaced while the gateway runs')]);
  renameSync(`${file}.away`, file);
  await gw.clock.advance(5_000);
  expect(await ready(gw)).toBe(200);
  expect(gw.warnings).toEqual([expect.stringContaining('was deleted or moved'), 'store has its file again']);
});

it('a lost database is not replaced by a damaged copy or by what a restore replaced, if there is a backup', async () => {
  const gw = await testGateway({});
  await gw.close();
  const file = join(gw.stateDir, databaseName);
  const backup = join(gw.stateDir, 'sunday.db');
  expect(await started(['backup', backup, '--state-dir', gw.stateDir]).finished).toMatchObject({ status: 0 });
  copyFileSync(file, `${file}.replaced-1`);
  damageTable(gw.stateDir, 'entries');
  renameSync(file, `${file}.schema-4`); // newer than the backup, ours, and damaged
  const refused = (says: string) =>
    expect(gw.start()).rejects.toMatchObject({ code: 'STORE_UNUSABLE', message: expect.stringContaining(says) });
  await refused(`restore the newest backup: interlane restore ${backup} `);
  unlinkSync(backup);
  await refused(`no backup was found, only a database that an earlier restore replaced: interlane restore ${file}.replaced-1 `);
  unlinkSync(`${file}.replaced-1`);
  await refused('put it back (no backup was found)');
  // The note of a backup alone is a trace of an earlier store.
  unlinkSync(`${file}.schema-4`);
  await refused('files of an earlier one (last-backup.json)');
});

it('what a killed restore left is no trace of a store, and the next start removes it', async () => {
  const gw = await testGateway({});
  await gw.close();
  const left = join(gw.stateDir, `${databaseName}.restoring`);
  renameSync(join(gw.stateDir, databaseName), left);
  writeFileSync(`${left}-journal`, '');
  await gw.start();
  expect([existsSync(left), existsSync(`${left}-journal`)]).toEqual([false, false]);
});

it('a stopped state is backed up and exported where nothing can be written', async () => {
  const gw = await testGateway({});
  await gw.answer('hello');
  await gw.finished();
  await gw.close();
  const out = mkdtempSync(join(tmpdir(), 'interlane-out-'));
  onTestFinished(() => rmSync(out, { recursive: true, force: true }));
  chmodSync(gw.stateDir, 0o500);
  onTestFinished(() => chmodSync(gw.stateDir, 0o700));
  for (const command of ['backup', 'export'])
    expect(await started([command, join(out, command), '--state-dir', gw.stateDir]).finished).toMatchObject({ status: 0 });
  expect(readdirSync(out)).toEqual(['backup', 'export']);
});

it('a gateway that does not answer but still has the state is not to be started a second time', async () => {
  const gw = await testGateway({});
  writeFileSync(join(gw.stateDir, 'cli.json'), JSON.stringify({ url: 'http://127.0.0.1:1', token: 'x', pid: process.pid }));
  const { status, stderr } = await started(['status', '--state-dir', gw.stateDir]).finished;
  expect(status).toBe(69);
  expect(stderr).toContain(`a process still uses its state directory; wait a moment if it is starting or busy`);
  expect(stderr).not.toContain('interlane up');
});
