// Live text for a reader that is slow: nothing piles up for it, and what it missed comes at once.
import { expect, it } from 'vitest';
import type { FeedEvent } from '../protocol/event.ts';
import type { Level } from '../protocol/labels.ts';
import type { EventsParts } from './events.ts';
import { LiveRuns, type Watcher } from './live-runs.ts';

const common = { sessionKey: 'agent:main:main', sessionId: 's', agentId: 'main', level: 'PUBLIC' as const, at: 0 };

it('a slow reader gets no deltas, and then the whole text', async () => {
  let happen: (event: FeedEvent) => void = () => {};
  let flush: () => void = () => {};
  const parts = {
    store: { read: () => Promise.resolve(undefined) },
    bus: {
      subscribe({ deliver }: { deliver(event: FeedEvent): void }) {
        happen = deliver;
        return () => {};
      },
    },
    world: () => ({}),
    after(_: number, work: () => void) {
      flush = work;
      return () => {};
    },
    failed(error: unknown) {
      throw error;
    },
  } as unknown as EventsParts;
  const live = new LiveRuns(parts);
  live.start();
  const got = { quick: [] as string[], slow: [] as string[] };
  let room = Promise.withResolvers<void>();
  let isSlow = false;
  const watcher = (name: 'quick' | 'slow'): Watcher => ({
    viewer: { as: 'system' },
    watches: () => true,
    wants: 'chat',
    send(_, text) {
      const { deltaText, offset, replace, state } = JSON.parse(text) as Record<string, unknown>;
      got[name].push(state === 'delta' ? `${replace === true ? '=' : `${String(offset)}+`}${String(deltaText)}` : String(state));
      return name === 'slow' && isSlow ? room.promise : undefined;
    },
  });
  live.watch(watcher('quick'));
  live.watch(watcher('slow'));
  const say = async (text: string) => {
    live.delta({ runId: 'r', sessionKey: common.sessionKey, step: 1, attempt: 1, offset: 0, text });
    flush();
    await new Promise<void>((resolve) => setImmediate(resolve));
  };
  happen({ ...common, pos: 1, kind: 'run', runId: 'r', class: 'main', state: 'running' });
  await say('one ');
  isSlow = true;
  await say('two ');
  await say('three ');
  await say('four ');
  expect(got).toEqual({ quick: ['0+one ', '4+two ', '8+three ', '14+four '], slow: ['0+one ', '4+two '] });
  isSlow = false;
  room.resolve();
  room = Promise.withResolvers();
  await new Promise<void>((resolve) => setImmediate(resolve));
  await say('five');
  expect(got.slow.slice(2)).toEqual(['=one two three four five']);
  happen({ ...common, pos: 2, kind: 'run', runId: 'r', class: 'main', state: 'ok' });
  expect([got.quick.at(-1), got.slow.at(-1)]).toEqual(['final', 'final']);
});

it('text so far is told at the level that the store knows, to a reader that may have it, while its step is open', async () => {
  let happen: (event: FeedEvent) => void = () => {};
  let flush: () => void = () => {};
  let level: Level = 'PUBLIC';
  let open = true;
  const parts = {
    store: { read: ({ name }: { name: string }) => Promise.resolve(name === 'current level' ? level : { level, open }) },
    bus: {
      subscribe({ deliver }: { deliver(event: FeedEvent): void }) {
        happen = deliver;
        return () => {};
      },
    },
    world: () => ({}),
    after(_: number, work: () => void) {
      flush = work;
      return () => {};
    },
    failed(error: unknown) {
      throw error;
    },
  } as unknown as EventsParts;
  const live = new LiveRuns(parts);
  live.start();
  const late = (most: Level) => {
    const got: unknown[] = [];
    const viewer = { as: 'operator' as const, level: most };
    const send = (_: string, text: string) => void got.push((JSON.parse(text) as { deltaText: string }).deltaText);
    const watcher: Watcher = { viewer, watches: () => true, wants: 'chat', send };
    live.watch(watcher);
    return { got, told: () => live.tellSoFar(watcher) };
  };
  const say = async (text: string) => {
    live.delta({ runId: 'r', sessionKey: common.sessionKey, step: 1, attempt: 1, offset: 0, text });
    flush();
    await new Promise<void>((resolve) => setImmediate(resolve));
  };
  happen({ ...common, pos: 1, kind: 'run', runId: 'r', class: 'main', state: 'running' });
  await say('one ');
  open = false;
  const [low, high] = [late('PUBLIC'), late('RESTRICTED')];
  await low.told();
  expect(low.got).toEqual([]); // the step is a message by now
  open = true;
  await low.told();
  level = 'CONFIDENTIAL'; // no event has told of it yet
  await low.told();
  await high.told();
  await say('two');
  expect([low.got, high.got]).toEqual([['one '], ['one ', 'two']]);
});
