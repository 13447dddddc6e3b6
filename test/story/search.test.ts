// sessions_search through a real run: what was said is found by who may read it, and by nobody else.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { loopbackTo } from '../../src/channels/loopback/loopback.ts';
import { readConfig } from '../../src/config/load.ts';
import { startGateway } from '../../src/gateway.ts';
import { Script } from '../../src/runtime/scripted.ts';
import { Search } from '../../src/store/sqlite/search.ts';

const script = Script.parse([
  { when: 'look for', steps: [{ calls: [{ tool: 'sessions_search', args: { query: 'pineapple' } }] }, { say: '{{result}}' }] },
  { steps: [{ say: 'ok' }] },
]);

async function start(visibility: string) {
  const stateDir = mkdtempSync(join(tmpdir(), 'interlane-search-'));
  onTestFinished(() => rmSync(stateDir, { recursive: true, force: true }));
  const { config } = readConfig(`{ session: { dmScope: 'per-peer' }, tools: { sessions: { visibility: '${visibility}' } } }`, 'test', {});
  const gateway = await startGateway(config, { stateDir, script, channels: [loopbackTo(() => {})] });
  onTestFinished(() => gateway.close());
  const say = async (peer: string, text: string) => {
    const { runId } = await gateway.receive({ origin: { channel: 'loopback', peer: { kind: 'direct', id: peer } }, text });
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
