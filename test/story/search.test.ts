// sessions_search through a real run: what was said is found by who may read it, and by nobody else.
import { expect, it } from 'vitest';
import { Search } from '../../src/store/sqlite/search.ts';
import { RealClock } from '../clock.ts';
import { forTest, say as write, Stage } from './stage.ts';

const script = [
  { when: 'look for', steps: [{ calls: [{ tool: 'sessions_search', args: { query: 'pineapple' } }] }, { say: '{{result}}' }] },
  { steps: [{ say: 'ok' }] },
];

async function start(visibility: 'agent' | 'self', thread = true) {
  const config = { session: { dmScope: 'per-peer' as const }, tools: { sessions: { visibility } } };
  const { gateway, stateDir } = await forTest(new Stage(new RealClock())).start(config, script, { search: thread });
  const say = async (peer: string, text: string) => {
    const { runId } = await write(gateway, text, peer);
    return (await gateway.engine.wait(runId, 10_000)).reply!;
  };
  // The thread gets to it when it gets to it; a second reader finishes the same work at once.
  const indexAll = () => {
    const search = new Search(stateDir);
    while (search.indexNext().more);
    search.close();
  };
  return { say, indexAll };
}

it('finds what was said in sessions that the caller can see', async () => {
  const { say, indexAll } = await start('agent');
  await say('ana', 'the pineapple is in the fridge');
  indexAll();
  const answer = JSON.parse(await say('bob', 'look for it')) as { found: object[] };
  expect(answer).toMatchObject({
    scope: 'agent',
    found: [{ sessionKey: 'agent:main:direct:ana', seq: 1, snippet: expect.stringContaining('pineapple') }],
  });
});

it('finds nothing in sessions that the caller cannot see, and does not say that there is more', async () => {
  const { say, indexAll } = await start('self');
  await say('ana', 'the pineapple is in the fridge');
  indexAll();
  const answer = JSON.parse(await say('bob', 'look for it')) as object;
  expect(answer).toMatchObject({ count: 0, scope: 'self', found: [] });
  expect(answer).not.toHaveProperty('truncated');
});

it('says how far the index has read, by the sessions that the caller can see', async () => {
  const { say, indexAll } = await start('agent', false);
  const indexed = async (from: string) => (JSON.parse(await say(from, 'look for it')) as { indexed: string }).indexed;
  await say('ana', 'the pineapple is in the fridge');
  expect(await indexed('bob')).toBe('the newest messages; older ones are still being read');
  indexAll();
  // The question itself is in no index yet.
  expect(await indexed('bob')).toBe('all but the newest messages of 1 session');
  await say('ana', 'and another one');
  expect(await indexed('bob')).toBe('all but the newest messages of 2 sessions');
});

it('does not tell of what it has not read in sessions that the caller cannot see', async () => {
  const { say, indexAll } = await start('self', false);
  const indexed = async (from: string) => (JSON.parse(await say(from, 'look for it')) as { indexed: string }).indexed;
  await indexed('bob');
  indexAll();
  for (const peer of ['ana', 'cy', 'dee']) await say(peer, 'hello');
  expect(await indexed('bob')).toBe('all but the newest messages of 1 session');
});

it('finds what was said before the start that nobody had indexed, without anything being said again', async () => {
  const stage = forTest(new Stage(new RealClock()));
  const { gateway, stateDir } = await stage.start({}, script, { search: false });
  const { runId } = await write(gateway, 'the pineapple is in the fridge', 'ana');
  await gateway.engine.wait(runId, 10_000);
  await stage.close();
  await stage.start({}, script, { search: true });
  const search = new Search(stateDir);
  const look = () => search.search({ text: 'pineapple', readable: ({ text }) => text }).found.length;
  await expect.poll(look, { timeout: 10_000 }).toBe(1);
  search.close();
});
