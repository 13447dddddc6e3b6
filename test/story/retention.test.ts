// What is forgotten and what is not: deleted sessions, old traces, and everything that is still open.
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect, it, onTestFinished } from 'vitest';
import { purgeSome } from '../../src/engine/retention.ts';
import type { Gateway } from '../../src/gateway.ts';
import { RealClock } from '../clock.ts';
import { forTest, say as write, Stage } from './stage.ts';

const script = [{ when: 'slow', steps: [{ say: 'x', sleepMs: 3_600_000 }] }, { steps: [{ say: 'ok' }] }];

async function start() {
  const { gateway, stateDir } = await forTest(new Stage(new RealClock())).start({ session: { dmScope: 'per-peer' } }, script);
  const db = new DatabaseSync(join(stateDir, 'interlane.db'), { readOnly: true });
  onTestFinished(() => db.close());
  const count = (table: string) => db.prepare(`SELECT count(*) AS n FROM ${table}`).get()!['n'] as number;
  return { gateway, count };
}

const say = (gateway: Gateway, peer: string, text: string) => write(gateway, text, peer, { messageId: `${peer} ${text}` });

async function purge(gateway: Gateway, now: number, keepMs: number): Promise<void> {
  while ((await gateway.store.write(purgeSome, { now, keepMs })) > 0);
}

it('a deleted session is forgotten whole, in small steps, and its key is free', async () => {
  const { gateway, count } = await start();
  const before = { entries: count('entries'), runs: count('runs'), sessions: count('sessions') };
  const { runId } = await say(gateway, 'ana', 'hello');
  await gateway.engine.wait(runId, 10_000);
  await gateway.engine.closeSession('agent:main:direct:ana', 'deleted', true);
  await purge(gateway, Date.now(), Infinity);
  expect({ entries: count('entries'), runs: count('runs'), sessions: count('sessions') }).toEqual(before);
  const again = await say(gateway, 'ana', 'hello again');
  expect(await gateway.engine.wait(again.runId, 10_000)).toMatchObject({ state: 'ok' });
});

it('old traces go, transcripts and what is open stay, and a key is valid as long as its run', async () => {
  const { gateway, count } = await start();
  const first = await say(gateway, 'ana', 'hello');
  await gateway.engine.wait(first.runId, 10_000);
  const open = await say(gateway, 'bob', 'slow');
  expect((await say(gateway, 'ana', 'hello')).runId).toBe(first.runId);
  const entries = count('entries');
  await purge(gateway, Date.now() + 1_000_000, 1_000);
  expect(count('entries')).toBe(entries);
  expect(count('runs')).toBe(1);
  expect(count('feed')).toBe(1);
  expect(await gateway.engine.wait(open.runId, 0)).toMatchObject({ state: 'running' });
  await expect(gateway.engine.wait(first.runId, 0)).rejects.toMatchObject({ code: 'RUN_NOT_FOUND' });
  expect((await say(gateway, 'ana', 'hello')).runId).not.toBe(first.runId);
  await gateway.engine.abort(open.runId, 'the test is over');
});
