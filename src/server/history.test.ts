// A reader of a stream that falls too far behind starts over, and leaves nothing behind when it goes.
import { expect, it } from 'vitest';
import { createHistory, type HistoryParts } from './history.ts';
import type { Watcher } from './live-runs.ts';
import type { Stream } from './sse.ts';

it('a stream that starts over has one watcher of live text, and none when it ends', async () => {
  const watchers = new Set<Watcher>();
  const resets: (() => void)[] = [];
  const parts = {
    store: { read: () => Promise.resolve({ position: 1, row: { key: 'k', id: 'i' }, page: { messages: [], next: undefined } }) },
    live: {
      watch(watcher: Watcher) {
        watchers.add(watcher);
        return () => void watchers.delete(watcher);
      },
      tellSoFar: () => Promise.resolve(),
    },
    bus: {
      follow({ reset }: { reset(): void }) {
        resets.push(reset);
        return { whenCurrent: (work: () => void) => work(), leave() {} };
      },
    },
    cursors: { now: () => 'c', feedPosition: () => 1 },
    world: () => ({}),
    report(_: string, error: unknown) {
      throw error;
    },
  } as unknown as HistoryParts;
  const sent: string[] = [];
  let end = () => {};
  const stream = {
    ended: false,
    onEnd: (undo: () => void) => (end = undo),
    send: (event: string) => void sent.push(event),
  };
  const pace = { signal: new AbortController().signal, client: {}, pause: () => Promise.resolve() };
  createHistory(parts).follow({ as: 'system' }, 'k', {}, 'cursor', stream as unknown as Stream, pace);
  expect(watchers.size).toBe(1);
  resets[0]!();
  expect(watchers.size).toBe(0);
  while (resets.length < 2) await new Promise<void>((resolve) => setImmediate(resolve));
  expect([watchers.size, sent]).toEqual([1, ['reset', 'history']]);
  stream.ended = true;
  end();
  expect(watchers.size).toBe(0);
});
