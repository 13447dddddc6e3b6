// What is forgotten and what is not: deleted sessions, old traces, and everything that is still open.
import { expect, it } from 'vitest';
import { testGateway, type TestGateway } from '../harness/gateway.ts';
import { purge } from '../harness/inside.ts';

const script = [{ when: 'slow', steps: [{ say: 'x', sleepMs: 3_600_000 }] }, { steps: [{ say: 'ok' }] }];

const start = () => testGateway({ config: { session: { dmScope: 'per-peer' } }, script });
const say = (gateway: TestGateway, from: string, text: string) => gateway.say(text, { from, id: `${from} ${text}` });
const counts = async ({ rows }: TestGateway) => ({
  entries: (await rows.entries()).length,
  runs: (await rows.runs()).length,
  sessions: (await rows.sessions()).length,
});

it('a deleted session is forgotten whole, in small steps, and its key is free', async () => {
  const gateway = await start();
  const before = await counts(gateway);
  const runId = await say(gateway, 'ana', 'hello');
  await gateway.wait(runId);
  await gateway.closeSession('agent:main:direct:ana', 'deleted', true);
  await purge(gateway);
  expect(await counts(gateway)).toEqual(before);
  const again = await say(gateway, 'ana', 'hello again');
  expect(await gateway.wait(again)).toMatchObject({ state: 'ok' });
});

it('old traces go, transcripts and what is open stay, and a key is valid as long as its run', async () => {
  const gateway = await start();
  const first = await say(gateway, 'ana', 'hello');
  await gateway.wait(first);
  const open = await say(gateway, 'bob', 'slow');
  expect(await say(gateway, 'ana', 'hello')).toBe(first);
  const { entries } = await counts(gateway);
  await purge(gateway, { now: gateway.now() + 1_000_000, keepMs: 1_000 });
  expect(await counts(gateway)).toMatchObject({ entries, runs: 1 });
  expect(await gateway.rows.feed()).toHaveLength(1);
  expect(await gateway.wait(open, 0)).toMatchObject({ state: 'running' });
  await expect(gateway.wait(first, 0)).rejects.toMatchObject({ code: 'RUN_NOT_FOUND' });
  expect(await say(gateway, 'ana', 'hello')).not.toBe(first);
  await gateway.abort(open, 'the test is over');
});
