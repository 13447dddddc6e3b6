// What was deleted leaves the search index too: its words are not in the files any more, whatever happens in between.
import { existsSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { purgeSome } from '../../src/engine/retention.ts';
import { searchName } from '../../src/store/sqlite/search.ts';
import { startByHand, type ByHand } from './by-hand.ts';

const word = 'zyzzyvaquux';
const key = 'agent:main:direct:ana';

/** Whether the word is anywhere in the files of the index. */
const written = ({ stateDir }: ByHand) =>
  ['', '-wal'].map((end) => join(stateDir, searchName + end)).some((file) => existsSync(file) && readFileSync(file).includes(word));

async function spoken(): Promise<ByHand> {
  const hand = await startByHand({ script: [{ steps: [{ say: 'ok' }] }] });
  for (const [peer, text] of [
    ['bob', 'something else'],
    ['ana', `the secret is ${word}`],
    ['bob', 'and something more'],
  ] as const)
    await hand.gateway.engine.wait(await hand.say(peer, text), 3_600_000);
  await hand.until(() => written(hand));
  return hand;
}

const waitingFor = (hand: ByHand) => hand.rows('SELECT * FROM forgets');
const left = (hand: ByHand) => hand.rows('SELECT 1 FROM sessions WHERE key = ?', key);

it('a deleted session leaves no word of it in the index', async () => {
  const hand = await spoken();
  await hand.gateway.engine.closeSession(key, 'deleted', true);
  await hand.inTime(async () => (await left(hand)).length === 0 && (await waitingFor(hand)).length === 0);
  expect(written(hand)).toBe(false);
  expect(hand.warned).toEqual([]);
});

it('is so also when the gateway dies after the purge and before the index has heard of it', async () => {
  const hand = await spoken();
  await hand.gateway.engine.closeSession(key, 'deleted', true);
  while ((await hand.gateway.store.write(purgeSome, { now: hand.clock.now(), keepMs: Infinity })) > 0);
  expect(await left(hand)).toEqual([]);
  expect(await waitingFor(hand)).toHaveLength(1);
  expect(written(hand)).toBe(true);
  await hand.close();

  const again = await startByHand({ stateDir: hand.stateDir });
  await again.inTime(async () => (await waitingFor(again)).length === 0);
  expect(written(again)).toBe(false);
});

it('a deleted session takes its workspace with it, and no other', async () => {
  const hand = await spoken();
  const ids = await hand.rows<{ id: string; key: string }>('SELECT id, key FROM sessions');
  const dirs = new Map(ids.map((row) => [row.key, join(hand.stateDir, 'workspaces', 'main', row.id)]));
  for (const dir of dirs.values()) {
    mkdirSync(dir, { recursive: true });
    writeFileSync(join(dir, 'a.txt'), word);
  }
  await hand.gateway.engine.closeSession(key, 'deleted', true);
  await hand.inTime(async () => (await left(hand)).length === 0 && (await waitingFor(hand)).length === 0);
  expect([...dirs].filter(([, dir]) => !existsSync(dir)).map(([gone]) => gone)).toEqual([key]);
});
