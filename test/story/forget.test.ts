// What was deleted leaves the search index too: its words are not in the files any more, whatever happens in between.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { testGateway, type TestGateway } from '../harness/gateway.ts';
import { indexFiles, purge } from '../harness/inside.ts';

const word = 'zyzzyvaquux';
const key = 'agent:main:direct:ana';

/** Whether the word is anywhere in the files of the index. */
const written = ({ stateDir }: TestGateway) => indexFiles(stateDir).some((file) => existsSync(file) && readFileSync(file).includes(word));

async function spoken(): Promise<TestGateway> {
  const hand = await testGateway({ config: { session: { dmScope: 'per-peer' } }, script: [{ steps: [{ say: 'ok' }] }], search: true });
  for (const [peer, text] of [
    ['bob', 'something else'],
    ['ana', `the secret is ${word}`],
    ['bob', 'and something more'],
  ] as const)
    await hand.wait(await hand.say(text, { from: peer }));
  await hand.until(() => written(hand));
  return hand;
}

const waitingFor = (hand: TestGateway) => hand.rows.forgets();
const left = (hand: TestGateway) => hand.rows.sessions({ key });

it('a deleted session leaves no word of it in the index', async () => {
  const hand = await spoken();
  await hand.closeSession(key, 'deleted', true);
  await hand.clock.until(async () => (await left(hand)).length === 0 && (await waitingFor(hand)).length === 0);
  expect(written(hand)).toBe(false);
  expect(hand.warnings).toEqual([]);
});

it('is so also when the gateway dies after the purge and before the index has heard of it', async () => {
  const hand = await spoken();
  await hand.closeSession(key, 'deleted', true);
  await purge(hand);
  expect(await left(hand)).toEqual([]);
  expect(await waitingFor(hand)).toHaveLength(1);
  expect(written(hand)).toBe(true);
  const again = await hand.restart();
  await again.clock.until(async () => (await waitingFor(again)).length === 0);
  expect(written(again)).toBe(false);
});

it('a deleted session takes its workspace with it, and no other', async () => {
  const hand = await spoken();
  const ids = await hand.rows.sessions();
  const dirs = new Map(ids.map((row) => [row.key, join(hand.stateDir, 'workspaces', 'main', row.id)]));
  for (const dir of dirs.values()) {
    mkdirSync(dir, { recursive: true });
    writeFileSync(join(dir, 'a.txt'), word);
  }
  await hand.closeSession(key, 'deleted', true);
  await hand.clock.until(async () => (await left(hand)).length === 0 && (await waitingFor(hand)).length === 0);
  expect([...dirs].filter(([, dir]) => !existsSync(dir)).map(([gone]) => gone)).toEqual([key]);
});
