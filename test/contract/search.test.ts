// What every search index promises: it finds what was said once it has read it, for callers who may read it, and forgets what is gone.
import { describe, expect, it } from 'vitest';
import { testGateway, type TestGateway } from '../harness/gateway.ts';
import { openIndex, type IndexKind, type OpenIndex } from '../harness/inside.ts';

const implementations: [string, IndexKind, { lasts: boolean }][] = [
  ['the index in a file', 'file', { lasts: true }],
  ['the index in a file, written by its thread', 'thread', { lasts: true }],
  ['the index in memory', 'memory', { lasts: false }],
];

describe.each(implementations)('%s', (_, kind, { lasts }) => {
  const start = () => testGateway({ config: { session: { dmScope: 'per-peer' } }, script: [{ steps: [{ say: 'ok' }] }] });
  const open = (gateway: TestGateway) => openIndex(gateway, kind);
  const key = (peer: string) => `agent:main:direct:${peer}`;
  const tell = async (gateway: TestGateway, from: string, text: string) => void (await gateway.answer(text, { from }));
  /** What it finds, as `session key/seq`. */
  const found = async (gateway: TestGateway, opened: OpenIndex, text: string, readable?: (sessionKey: string) => boolean) => {
    const keys = new Map((await gateway.rows.sessions()).map((row) => [row.pk, row.key]));
    return (await opened.find(text, readable)).found.map(({ sessionPk, seq }) => `${keys.get(sessionPk)}/${seq}`);
  };

  it('finds nothing before it has read, says so, and finds it after that', async () => {
    const gateway = await start();
    await tell(gateway, 'ana', 'the pineapple is in the fridge');
    await using opened = open(gateway);
    expect(await opened.index.progress()).toMatchObject({ indexedTo: 0 });
    expect(await opened.find('pineapple')).toMatchObject({ found: [], indexedTo: 0 });
    await opened.catchUp();
    expect(await found(gateway, opened, 'pineapple')).toEqual([`${key('ana')}/1`]);
    const { indexedTo, latest } = await opened.find('pineapple');
    expect(latest).toBeGreaterThan(0);
    expect(indexedTo).toBe(latest);
    expect(await opened.index.progress()).toEqual({ indexedTo, latest });
  });

  it('finds what is written while it reads', async () => {
    const gateway = await start();
    await using opened = open(gateway);
    for (const [n, peer] of ['ana', 'bo', 'cy'].entries()) {
      const reading = opened.catchUp();
      await tell(gateway, peer, `pineapple ${n}`);
      await reading;
    }
    await opened.catchUp();
    expect(await found(gateway, opened, 'pineapple')).toEqual(['cy', 'bo', 'ana'].map((peer) => `${key(peer)}/1`));
  });

  it('finds all the words of a question, in any case, and nothing that has only some of them', async () => {
    const gateway = await start();
    await tell(gateway, 'ana', 'The Invoice of Zürich');
    await tell(gateway, 'bo', 'an invoice');
    await using opened = open(gateway);
    await opened.catchUp();
    expect(await found(gateway, opened, 'zurich INVOICE')).toEqual([`${key('ana')}/1`]);
    expect(await found(gateway, opened, 'invoice boiler')).toEqual([]);
  });

  it('does not find, count or rank what may not be read', async () => {
    const gateway = await start();
    for (const peer of ['ana', 'bo', 'cy']) await tell(gateway, peer, 'pineapple');
    await using opened = open(gateway);
    await opened.catchUp();
    expect(await found(gateway, opened, 'pineapple', (sessionKey) => sessionKey === key('bo'))).toEqual([`${key('bo')}/1`]);
    expect(await opened.find('pineapple', () => false)).toMatchObject({ found: [], truncated: false });
  });

  it('shows most hits first, then the newest, and as many as the question wants', async () => {
    const gateway = await start();
    await tell(gateway, 'ana', 'one pineapple');
    gateway.clock.jump(1_000);
    await tell(gateway, 'bo', 'pineapple, pineapple');
    gateway.clock.jump(1_000);
    await tell(gateway, 'cy', 'another pineapple');
    await using opened = open(gateway);
    await opened.catchUp();
    expect(await found(gateway, opened, 'pineapple')).toEqual(['bo', 'cy', 'ana'].map((peer) => `${key(peer)}/1`));
    expect((await opened.find('pineapple', undefined, 2)).found).toHaveLength(2);
  });

  it('goes on from where it stopped, or reads everything again', async () => {
    const gateway = await start();
    await tell(gateway, 'ana', 'pineapple');
    {
      await using first = open(gateway);
      await first.catchUp();
    }
    await tell(gateway, 'bo', 'pineapple');
    await using second = open(gateway);
    expect(await found(gateway, second, 'pineapple')).toEqual(lasts ? [`${key('ana')}/1`] : []);
    await second.catchUp();
    expect(await found(gateway, second, 'pineapple')).toHaveLength(2);
  });

  it('reads everything again when it is put beside another store', async () => {
    const [one, other] = [await start(), await start()];
    for (const peer of ['ana', 'bo']) await tell(one, peer, 'pineapple');
    await tell(other, 'cy', 'an apple');
    {
      await using first = open(one);
      await first.catchUp();
    }
    await using second = openIndex({ inside: other.inside, now: other.now, stateDir: one.stateDir }, kind);
    await second.catchUp();
    expect(await found(other, second, 'pineapple')).toEqual([]);
    expect(await found(other, second, 'apple')).toEqual([`${key('cy')}/1`]);
  });

  it('forgets a session, and only that one', async () => {
    const gateway = await start();
    for (const peer of ['ana', 'bo']) await tell(gateway, peer, 'pineapple');
    await using opened = open(gateway);
    await opened.catchUp();
    expect(await opened.index.forget([(await gateway.rows.session(key('ana'))).pk])).toBe(true);
    expect(await found(gateway, opened, 'pineapple')).toEqual([`${key('bo')}/1`]);
  });

  it('that is closed forgets nothing and says so', async () => {
    const gateway = await start();
    await tell(gateway, 'ana', 'pineapple');
    const opened = open(gateway);
    await opened.catchUp();
    await opened.index.close();
    expect(await opened.index.forget([1])).toBe(false);
  });
});
