// A subscriber that comes back to a feed of which a whole page is forgotten, as a process of its own: a mistake here goes round for ever.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect } from '../../src/client/client.ts';
import { Config } from '../../src/config/schema.ts';
import { startGateway } from '../../src/start.ts';
import { ManualClock } from '../harness/clock.ts';

const day = 86_400_000;
const clock = new ManualClock();
const stateDir = mkdtempSync(join(tmpdir(), 'interlane-late-'));
process.on('exit', () => rmSync(stateDir, { recursive: true, force: true }));
const token = 'the-admin-of-this-test';
const gateway = await startGateway(Config.parse({}), { stateDir, clock, search: false, listen: { port: 0, version: 'test', token } });
const open = () => connect({ url: gateway.server!.url, token, client: { id: 'test', version: '1', platform: 'test', mode: 'cli' } });

const first = await open();
const { cursor } = await first.call('sessions.subscribe');
await first.call('sessions.unsubscribe');
// Written by a clock that was ahead, so what comes after it is kept for longer than the runs it tells of.
clock.jump(60 * day);
await first.call('sessions.create', { key: 'agent:main:early' });
clock.jump(-60 * day);
// The turns of a guest wait until someone takes them, so what is queued behind one ends without an entry.
const { key } = await first.call('guests.join', { name: 'fable' });
const runs = Array.from({ length: 200 }, (_, index) => `q${index}`);
for (const idempotencyKey of runs) await first.call('sessions.send', { key, message: 'x', idempotencyKey });
for (const runId of runs.toReversed()) await first.call('sessions.abort', { runId });
clock.jump(40 * day);
await clock.until(async () => (await (await open()).call('runs.list')).runs.length === 0);
await (await open()).call('sessions.create', { key: 'agent:main:late' });
process.stdout.write('forgotten\n');

const late = await open();
late.on('sessions.changed', (payload) => {
  if (payload.sessionKey === 'agent:main:late') process.stdout.write('heard\n', () => process.exit(0));
});
await late.call('sessions.subscribe', { cursor });
