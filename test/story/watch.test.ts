// What an operator can watch: gauges of what waits, an index that recovers by itself, and log lines that say what they concern.
import { mkdirSync, rmdirSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import type { About } from '../../src/warn.ts';
import { testGateway, type TestGateway } from '../harness/gateway.ts';
import { failWrite } from '../harness/inside.ts';
import { started } from '../harness/terminal.ts';

async function gauge(gw: TestGateway, line: string): Promise<number> {
  const { text } = await gw.http('/metrics');
  const found = text.split('\n').find((one) => one.startsWith(`${line} `));
  if (found === undefined) throw new Error(`no gauge ${line}`);
  return Number(found.slice(line.length + 1));
}

it('metrics say how old the oldest waits are, how late the sweep is, and how busy the store and the event loop are', async () => {
  const gw = await testGateway({
    listen: true,
    stops: true,
    config: { tools: { sessions: { visibility: 'all' } } },
    script: [
      {
        when: 'ask',
        steps: [
          { calls: [{ tool: 'sessions_send', args: { sessionKey: 'agent:main:other', message: 'stop', timeoutSeconds: 60 } }] },
          { say: 'done' },
        ],
      },
      { when: 'stop', steps: [{ calls: [{ tool: 'gate', args: { name: 'g' } }] }, { say: 'went on' }] },
      { steps: [{ say: 'hello' }] },
    ],
  });
  await gw.tell('agent:main:other', 'hi');
  await gw.accept('asks', { text: 'ask' });
  await gw.stops.entered('g');
  await gw.run('asks', 'waiting');
  expect(await gauge(gw, 'interlane_oldest_seconds{what="wait",state="open"}')).toBe(0);
  await gw.clock.advance(5_000);
  expect(await gauge(gw, 'interlane_oldest_seconds{what="wait",state="open"}')).toBe(5);
  expect(await gauge(gw, 'interlane_oldest_seconds{what="delivery",state="pending"}')).toBe(0);
  expect(await gauge(gw, 'interlane_oldest_seconds{what="offer",state="open"}')).toBe(0);
  expect(await gauge(gw, 'interlane_sweep_lag_seconds')).toBe(0);
  await gw.clock.advance(54_500);
  const failed = failWrite(gw, 'sweep waits');
  await gw.clock.advance(1_500);
  expect(failed()).toBe(true);
  expect(await gauge(gw, 'interlane_sweep_lag_seconds')).toBe(1);
  expect(await gauge(gw, 'interlane_wal_bytes')).toBeGreaterThan(0);
  expect(await gauge(gw, 'interlane_reader_queue{state="waiting"}')).toBe(0);
  expect(await gauge(gw, 'interlane_event_loop_delay_seconds{quantile="0.99"}')).toBeGreaterThanOrEqual(0);
  gw.stops.open('g');
});

it('a search index that cannot be written says so, is tried again after pauses that grow, and catches up', async () => {
  const gw = await testGateway({ listen: true, caller: 'agent:main:main', config: { tools: { sessions: { visibility: 'all' } } } });
  await gw.close();
  const inTheWay = join(gw.stateDir, 'search.db');
  mkdirSync(inTheWay);
  await gw.start({ search: true });
  await gw.answer('pineapple');
  await gw.until(async () => (await gauge(gw, 'interlane_search_index_up')) === 0);
  const warned = () => gw.warnings.filter((line) => line.startsWith('search index'));
  expect((await gw.call('status')).warnings.join()).toContain('search index cannot be written');
  const { stdout } = await started(['doctor', '--json', '--state-dir', gw.stateDir]).finished;
  const { findings } = JSON.parse(stdout) as { findings: { what: string; state: string }[] };
  expect(findings.find(({ what }) => what === 'search')).toMatchObject({ state: 'note' });
  await gw.clock.advance(1_000);
  await gw.clock.advance(2_000);
  expect(await gauge(gw, 'interlane_search_index_up')).toBe(0);
  expect(warned()).toHaveLength(1);

  rmdirSync(inTheWay);
  await gw.clock.advance(4_000);
  await gw.until(async () => (await gauge(gw, 'interlane_search_index_up')) === 1);
  expect(warned()).toHaveLength(2);
  expect((await gw.call('status')).warnings.join()).not.toContain('search index');
  const found = await gw.tool<{ count: number }>('sessions_search', { query: 'pineapple' });
  expect(found.count).toBeGreaterThan(0);
});

it('a log line about a request, a run or a session has its id', async () => {
  const lines: [string, About | undefined][] = [];
  const gw = await testGateway({ listen: true, warn: (message, about) => lines.push([message, about]) });
  await gw.call('health');
  const store = gw.inside.store();
  const { read } = store;
  let failing = true;
  store.read = (query, args, pace) => {
    if (!failing || query.name !== 'history page')
      return read.call(store, query, args, pace) as ReturnType<typeof read<typeof args, never>>;
    return Promise.reject(new TypeError('a bug'));
  };
  await expect(gw.call('chat.history', { sessionKey: 'agent:main:main' })).rejects.toMatchObject({ code: 'INTERNAL' });
  expect(lines.at(-1)).toEqual(['chat.history failed: a bug', { request: expect.any(String) as string, session: 'agent:main:main' }]);
  const answer = await gw.http('/sessions/main/history');
  expect(answer.status).toBe(500);
  expect(lines.at(-1)).toEqual(['GET request failed: a bug', { request: answer.headers.get('x-request-id') }]);
  failing = false;
  const failed = failWrite(gw, 'end run');
  const { runId } = await gw.accept('one');
  await gw.until(failed);
  await gw.clock.advance(5_000);
  await gw.wait(runId);
  expect(lines.at(-1)).toEqual([expect.stringContaining('run could not be ended yet'), { run: runId, session: 'agent:main:main' }]);
});
