// sessions_search through a real run: what was said is found by who may read it, and by nobody else.
import { expect, it } from 'vitest';
import { testGateway } from '../harness/gateway.ts';
import { openIndex } from '../harness/inside.ts';

const script = [
  { when: 'look for', steps: [{ calls: [{ tool: 'sessions_search', args: { query: 'pineapple' } }] }, { say: '{{result}}' }] },
  { steps: [{ say: 'ok' }] },
];

async function start(visibility: 'agent' | 'self', search = true) {
  const config = { session: { dmScope: 'per-peer' as const }, tools: { sessions: { visibility } } };
  const gateway = await testGateway({ config, script, clock: 'real', search });
  return {
    say: async (from: string, text: string) => (await gateway.answer(text, { from })).reply!,
    // The gateway's own index gets to it when it gets to it; a second one over the same file finishes the work at once.
    indexAll: async () => {
      await using index = openIndex(gateway);
      await index.catchUp();
    },
  };
}

it('finds what was said in sessions that the caller can see', async () => {
  const { say, indexAll } = await start('agent');
  await say('ana', 'the pineapple is in the fridge');
  await indexAll();
  const answer = JSON.parse(await say('bob', 'look for it')) as { found: object[] };
  expect(answer).toMatchObject({
    scope: 'agent',
    found: [{ sessionKey: 'agent:main:direct:ana', seq: 1, snippet: expect.stringContaining('pineapple') }],
  });
});

it('finds nothing in sessions that the caller cannot see, and does not say that there is more', async () => {
  const { say, indexAll } = await start('self');
  await say('ana', 'the pineapple is in the fridge');
  await indexAll();
  const answer = JSON.parse(await say('bob', 'look for it')) as object;
  expect(answer).toMatchObject({ count: 0, scope: 'self', found: [] });
  expect(answer).not.toHaveProperty('truncated');
});

it('says how far the index has read, by the sessions that the caller can see', async () => {
  const { say, indexAll } = await start('agent', false);
  const indexed = async (from: string) => (JSON.parse(await say(from, 'look for it')) as { indexed: string }).indexed;
  await say('ana', 'the pineapple is in the fridge');
  const nothing = await indexed('bob');
  await indexAll();
  // The question itself is in no index yet.
  const one = await indexed('bob');
  expect(one).toContain('1');
  expect(one).not.toBe(nothing);
  await say('ana', 'and another one');
  expect(await indexed('bob')).toContain('2');
});

it('does not tell of what it has not read in sessions that the caller cannot see', async () => {
  const { say, indexAll } = await start('self', false);
  const indexed = async (from: string) => (JSON.parse(await say(from, 'look for it')) as { indexed: string }).indexed;
  await indexed('bob');
  await indexAll();
  for (const peer of ['ana', 'cy', 'dee']) await say(peer, 'hello');
  expect(await indexed('bob')).toContain('1');
});

it('finds what was said before the start that nobody had indexed, without anything being said again', async () => {
  const gateway = await testGateway({ script, clock: 'real' });
  await gateway.answer('the pineapple is in the fridge', { from: 'ana' });
  await gateway.restart({ search: true });
  await using index = openIndex(gateway);
  await expect.poll(async () => (await index.find('pineapple')).found.length, { timeout: 10_000 }).toBe(1);
});
