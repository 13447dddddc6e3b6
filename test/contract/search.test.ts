// What every search index promises: it finds what was said once it has read it, for whom may read it, and forgets what is gone.
import { describe, expect, it } from 'vitest';
import { testGateway, type TestGateway } from '../harness/gateway.ts';
import { openIndex, type Index } from '../harness/inside.ts';

/** Makes an index beside a gateway's store; asked again, another reader of the same. */
const implementations: [string, (gateway: TestGateway) => Index][] = [['the index in SQLite', openIndex]];

describe.each(implementations)('%s', (_, open) => {
  const start = () => testGateway({ config: { session: { dmScope: 'per-peer' } }, script: [{ steps: [{ say: 'ok' }] }] });
  const key = (peer: string) => `agent:main:direct:${peer}`;
  const tell = async (gateway: TestGateway, from: string, text: string) => void (await gateway.answer(text, { from }));
  /** What it finds, as `session key/seq`. */
  const found = async (gateway: TestGateway, index: Index, text: string, readable?: (sessionKey: string) => boolean) => {
    const keys = new Map((await gateway.rows.sessions()).map((row) => [row.pk, row.key]));
    return index.find(text, readable).found.map(({ sessionPk, seq }) => `${keys.get(sessionPk)}/${seq}`);
  };

  it('finds nothing before it has read, says so, and finds it after that', async () => {
    const gateway = await start();
    await tell(gateway, 'ana', 'the pineapple is in the fridge');
    using index = open(gateway);
    expect(index.behind()).toBe(true);
    expect(index.find('pineapple')).toMatchObject({ found: [], indexedTo: 0 });
    index.catchUp();
    expect(index.behind()).toBe(false);
    expect(await found(gateway, index, 'pineapple')).toEqual([`${key('ana')}/1`]);
    const { indexedTo, latest } = index.find('pineapple');
    expect(indexedTo).toBe(latest);
  });

  it('finds all the words of a question, in any case, and nothing that has only some of them', async () => {
    const gateway = await start();
    await tell(gateway, 'ana', 'The Invoice of Zürich');
    await tell(gateway, 'bo', 'an invoice');
    using index = open(gateway);
    index.catchUp();
    expect(await found(gateway, index, 'zurich INVOICE')).toEqual([`${key('ana')}/1`]);
    expect(await found(gateway, index, 'invoice boiler')).toEqual([]);
  });

  it('does not find, count or rank what may not be read', async () => {
    const gateway = await start();
    for (const peer of ['ana', 'bo', 'cy']) await tell(gateway, peer, 'pineapple');
    using index = open(gateway);
    index.catchUp();
    expect(await found(gateway, index, 'pineapple', (sessionKey) => sessionKey === key('bo'))).toEqual([`${key('bo')}/1`]);
    expect(index.find('pineapple', () => false)).toMatchObject({ found: [], truncated: false });
  });

  it('shows most hits first, then the newest, and as many as are asked for', async () => {
    const gateway = await start();
    await tell(gateway, 'ana', 'one pineapple');
    gateway.clock.jump(1_000);
    await tell(gateway, 'bo', 'pineapple, pineapple');
    gateway.clock.jump(1_000);
    await tell(gateway, 'cy', 'another pineapple');
    using index = open(gateway);
    index.catchUp();
    expect(await found(gateway, index, 'pineapple')).toEqual(['bo', 'cy', 'ana'].map((peer) => `${key(peer)}/1`));
    expect(index.find('pineapple', undefined, 2).found).toHaveLength(2);
  });

  it('goes on from where another reader of it stopped', async () => {
    const gateway = await start();
    await tell(gateway, 'ana', 'pineapple');
    {
      using first = open(gateway);
      first.catchUp();
    }
    await tell(gateway, 'bo', 'pineapple');
    using second = open(gateway);
    expect(await found(gateway, second, 'pineapple')).toEqual([`${key('ana')}/1`]);
    second.catchUp();
    expect(await found(gateway, second, 'pineapple')).toHaveLength(2);
  });

  it('forgets a session, and only that one', async () => {
    const gateway = await start();
    for (const peer of ['ana', 'bo']) await tell(gateway, peer, 'pineapple');
    using index = open(gateway);
    index.catchUp();
    index.forget((await gateway.rows.session(key('ana'))).pk);
    expect(await found(gateway, index, 'pineapple')).toEqual([`${key('bo')}/1`]);
  });

  it('can be made anew from the store alone', async () => {
    const gateway = await start();
    for (const peer of ['ana', 'bo']) await tell(gateway, peer, 'pineapple');
    using index = open(gateway);
    index.catchUp();
    const before = await found(gateway, index, 'pineapple');
    index.rebuild();
    expect(index.behind()).toBe(true);
    index.catchUp();
    expect(await found(gateway, index, 'pineapple')).toEqual(before);
  });
});
