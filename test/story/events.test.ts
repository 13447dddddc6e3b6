// What happened, as subscribers hear it: in one order, each event once, after its commit, whenever and wherever they come in.
import * as fc from 'fast-check';
import { describe, expect, it, vi } from 'vitest';
import type { FeedEvent } from '../../src/protocol/event.ts';
import { testGateway, type ConfigText, type ScriptText, type TestGateway } from '../harness/gateway.ts';
import { told } from '../harness/words.ts';

// Nothing here depends on how long it takes; a machine with other work to do may take its time.
vi.setConfig({ testTimeout: 30_000, hookTimeout: 30_000 });

const config: ConfigText = {
  agents: { list: [{ id: 'ana', default: true }, { id: 'bo' }] },
  session: { dmScope: 'per-peer', agentToAgent: { maxPingPongTurns: 2 } },
  tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } },
};

const script: ScriptText = [
  { agent: 'ana', when: told.reply, steps: [{ say: 'and?' }] },
  {
    agent: 'ana',
    when: 'ask',
    steps: [{ calls: [{ tool: 'sessions_send', args: { sessionKey: 'agent:bo:main', message: 'hello' } }] }, { say: 'asked' }],
  },
  { agent: 'ana', when: 'fail', steps: [{ fail: 'no' }] },
  { agent: 'bo', when: told.announce, steps: [{ say: 'ANNOUNCE_SKIP' }] },
  { steps: [{ say: 're: {{input}}' }] },
];

const open = (): Promise<TestGateway> => testGateway({ config, script });
const positions = async (one: TestGateway) => (await one.rows.feed({}, 'pos')).map(({ pos }) => pos);

/** Collects what a subscriber hears. `through(pos)` resolves when it has heard that position. */
function listen(one: TestGateway, cursor?: number, pace: () => Promise<void> | void = () => {}) {
  const events: FeedEvent[] = [];
  const failures: unknown[] = [];
  let resets = 0;
  let wake = () => {};
  const undo = one.inside.subscribe(
    {
      wants: () => true,
      async deliver(event) {
        events.push(event);
        wake();
        await pace();
      },
      reset() {
        if (++resets > 100) throw new Error('it is told to start over again and again'); // else it would go round for ever
      },
      failed: (error) => void failures.push(error),
    },
    cursor,
  );
  const through = async (pos: number) => {
    while ((events.at(-1)?.pos ?? cursor ?? 0) < pos) await new Promise<void>((resolve) => (wake = resolve));
    return events;
  };
  return { events, failures, undo, through, resets: () => resets };
}

/** Everything is over: no run, exchange or delivery is open. Answers the last position. */
async function settled(one: TestGateway): Promise<number> {
  await one.finished();
  return (await positions(one)).at(-1)!;
}

/** Chats, an exchange, a failure, a reset and an abort: every kind of event. */
async function busyDay(one: TestGateway): Promise<number> {
  await one.say('hello');
  await one.say('ask', { from: 'ana' });
  await one.say('fail', { from: 'cy' });
  const runs = await Promise.all(['a', 'b', 'c'].map((text) => one.say(text, { from: 'dee' })));
  await one.abort(runs[2]!, 'enough');
  await settled(one);
  await one.reset('agent:ana:direct:you');
  await one.say('again');
  await settled(one);
  await one.closeSession('agent:ana:direct:cy', 'archived', false);
  return settled(one);
}

/** The level is the one a session has now; the rest is what happened. */
const shown = (events: FeedEvent[]) => events.map((event) => ({ ...event, level: '' }));

describe('a subscriber', () => {
  it('from the beginning and a live one hear the same events in the same order', async () => {
    const one = await open();
    const live = listen(one, 0);
    const last = await busyDay(one);
    await live.through(last);
    const late = listen(one, 0);
    await late.through(last);
    expect(shown(late.events)).toEqual(shown(live.events));
    expect(live.events.map(({ pos }) => pos)).toEqual(await positions(one));
    expect(new Set(live.events.map(({ kind }) => kind))).toEqual(new Set(['session', 'run', 'entry', 'exchange', 'delivery']));
  });

  it('without a cursor hears what happens from now on', async () => {
    const one = await open();
    await one.say('before');
    const before = await settled(one);
    const live = listen(one);
    await one.say('after');
    const last = await settled(one);
    await live.through(last);
    expect(live.events.map(({ pos }) => pos)).toEqual((await positions(one)).filter((pos) => pos > before));
  });

  it('that comes back with any cursor hears each later event once', async () => {
    const one = await open();
    const last = await busyDay(one);
    const all = await positions(one);
    for (const cursor of [0, ...all.slice(0, -1)]) {
      const back = listen(one, cursor);
      await back.through(last);
      back.undo();
      expect(back.events.map(({ pos }) => pos)).toEqual(all.filter((pos) => pos > cursor));
    }
    const none = listen(one, last);
    await one.say('one more');
    const end = await settled(one);
    await none.through(end);
    expect(none.events[0]!.pos).toBe(last + 1);
  });

  it('that leaves and comes back again and again, while much happens, hears everything once', async () => {
    const one = await open();
    await fc.assert(
      fc.asyncProperty(fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 20 }), async (stays) => {
        const start = await settled(one);
        const heard: number[] = [];
        const cursor = () => heard.at(-1) ?? start;
        const writing = (async () => {
          for (let index = 0; index < 30; index++) await one.say(`m${index}`, { from: `peer${index % 3}` });
          return settled(one);
        })();
        for (const stay of stays) {
          const visit = listen(one, cursor());
          await Promise.race([visit.through(cursor() + stay), writing]);
          visit.undo();
          heard.push(...visit.events.map(({ pos }) => pos));
        }
        const rest = listen(one, cursor());
        await rest.through(await writing);
        rest.undo();
        heard.push(...rest.events.map(({ pos }) => pos));
        expect(heard).toEqual((await positions(one)).filter((pos) => pos > start));
      }),
      { numRuns: 10 },
    );
  });

  it('that is slow loses nothing, and holds nobody up', async () => {
    const one = await open();
    const tick = () => new Promise<void>((resolve) => setImmediate(resolve));
    const slow = listen(one, 0, async () => {
      for (let ticks = 0; ticks < 5; ticks++) await tick();
    });
    const quick = listen(one, 0);
    await Promise.all(Array.from({ length: 120 }, (_, index) => one.say(`m${index}`, { from: `peer${index % 10}` })));
    const last = await settled(one);
    await quick.through(last);
    expect(slow.events.length).toBeLessThan(quick.events.length);
    await slow.through(last);
    expect(quick.events.map(({ pos }) => pos)).toEqual(await positions(one));
    expect(slow.events.map(({ pos }) => pos)).toEqual(await positions(one));
    expect(last).toBeGreaterThan(600);
  });

  it('that stands still for a while reads on from the store when it moves again', async () => {
    const one = await open();
    const go = Promise.withResolvers<void>();
    const still = listen(one, undefined, () => go.promise);
    await Promise.all(Array.from({ length: 80 }, (_, index) => one.say(`m${index}`, { from: `peer${index % 10}` })));
    const last = await settled(one);
    expect(still.events).toHaveLength(1);
    go.resolve();
    await still.through(last);
    const first = still.events[0]!.pos;
    expect(still.events.map(({ pos }) => pos)).toEqual((await positions(one)).filter((pos) => pos >= first));
  });

  it('hears only what it wants, and its cursor still moves over the rest', async () => {
    const one = await open();
    const heard: FeedEvent[] = [];
    const done = Promise.withResolvers<void>();
    one.inside.subscribe(
      {
        wants: (event) => event.sessionKey === 'agent:ana:direct:ana',
        deliver(event) {
          heard.push(event);
          if (event.kind === 'entry' && event.message.role === 'assistant') done.resolve();
        },
        reset() {},
        failed: done.reject,
      },
      0,
    );
    await Promise.all(Array.from({ length: 60 }, (_, index) => one.say(`m${index}`, { from: 'bo' })));
    await one.say('mine', { from: 'ana' });
    await done.promise;
    expect(heard.filter(({ kind }) => kind === 'entry')).toHaveLength(2);
    expect(heard.every(({ sessionKey }) => sessionKey === 'agent:ana:direct:ana')).toBe(true);
  });

  it('hears nothing any more after it has left', async () => {
    const one = await open();
    const left = listen(one, 0);
    await left.through(await settled(one));
    left.undo();
    const before = left.events.length;
    await one.say('later');
    await settled(one);
    expect(left.events).toHaveLength(before);
  });

  it('that fails is told so once and is over; the others hear on', async () => {
    const one = await open();
    const healthy = listen(one, 0);
    const failures: unknown[] = [];
    let delivered = 0;
    one.inside.subscribe(
      {
        wants: () => true,
        deliver() {
          delivered++;
          throw new Error('the socket is closed');
        },
        reset() {},
        failed: (error) => void failures.push(error),
      },
      0,
    );
    await one.say('hello');
    const last = await settled(one);
    await healthy.through(last);
    expect(failures).toEqual([new Error('the socket is closed')]);
    expect(delivered).toBe(1);
    expect(healthy.events.map(({ pos }) => pos)).toEqual(await positions(one));
    expect(healthy.failures).toEqual([]);
  });

  it('goes on with its cursor after a restart of the gateway, without a gap', async () => {
    const one = await open();
    const first = listen(one, 0);
    const before = await busyDay(one);
    await first.through(before);
    const again = await one.restart();
    const back = listen(again, before);
    await again.say('after the restart');
    const last = await settled(again);
    await back.through(last);
    expect([...first.events, ...back.events].map(({ pos }) => pos)).toEqual(await positions(again));
  });

  it('whose cursor is older than what is kept is told to start over, once, and then hears what is there', async () => {
    const one = await open();
    const last = await busyDay(one);
    const all = await positions(one);
    const oldest = all[Math.floor(all.length / 2)]!;
    await one.rows.forgetFeed(oldest);
    const kept = all.filter((pos) => pos >= oldest);

    const old = listen(one, 1);
    await old.through(last);
    expect(old.resets()).toBe(1);
    expect(old.events.map(({ pos }) => pos)).toEqual(kept);

    const justOlder = listen(one, oldest - 2);
    await justOlder.through(last);
    expect(justOlder.resets()).toBe(1);

    for (const cursor of [oldest - 1, oldest]) {
      const inTime = listen(one, cursor);
      await inTime.through(last);
      expect(inTime.resets()).toBe(0);
      expect(inTime.events.map(({ pos }) => pos)).toEqual(kept.filter((pos) => pos > cursor));
    }
  });

  it('whose cursor is from the future, as after a restored backup, is told to start over', async () => {
    const one = await open();
    const last = await settled(one);
    const ahead = listen(one, last + 1_000);
    await one.say('hello');
    const end = await settled(one);
    while ((ahead.events.at(-1)?.pos ?? 0) < end) await new Promise((resolve) => setImmediate(resolve));
    expect(ahead.resets()).toBe(1);
  });

  it('that stands still for so long that the feed forgets what it missed is told to start over', async () => {
    const one = await open();
    const go = Promise.withResolvers<void>();
    const still = listen(one, undefined, () => go.promise);
    await Promise.all(Array.from({ length: 80 }, (_, index) => one.say(`m${index}`, { from: `peer${index % 10}` })));
    const last = await settled(one);
    const oldest = last - 20;
    await one.rows.forgetFeed(oldest);
    go.resolve();
    await still.through(last);
    expect(still.resets()).toBe(1);
    expect(still.events.slice(1).at(-1)!.pos).toBe(last);
  });
});

describe('the events', () => {
  it('tell each run from queued to exactly one end, and nothing after it', async () => {
    const one = await open();
    const live = listen(one, 0);
    await live.through(await busyDay(one));
    const states = new Map<string, string[]>();
    for (const event of live.events) if (event.kind === 'run') states.set(event.runId, [...(states.get(event.runId) ?? []), event.state]);
    const runs = await one.rows.runs();
    expect([...states.keys()].toSorted()).toEqual(runs.map(({ id }) => id).toSorted());
    for (const { id, state } of runs) {
      expect(states.get(id)!.join(' ')).toMatch(/^queued( running( waiting)*)? (ok|error|timeout|aborted)$/);
      expect(states.get(id)!.at(-1)).toBe(state);
    }
  });

  it('carry each transcript in its order, without a gap, as it is stored', async () => {
    const one = await open();
    const live = listen(one, 0);
    await live.through(await busyDay(one));
    const seqs = new Map<string, number[]>();
    for (const event of live.events)
      if (event.kind === 'entry') seqs.set(event.sessionId, [...(seqs.get(event.sessionId) ?? []), event.message.seq]);
    for (const heard of seqs.values()) expect(heard).toEqual(heard.map((_, index) => index + 1));
    const stored = await one.rows.entries();
    expect(live.events.flatMap((event) => (event.kind === 'entry' ? [event.message.id] : []))).toEqual(stored.map(({ id }) => id));
  });

  it('follow their commit: what is told can be read', async () => {
    const one = await open();
    const missing: string[] = [];
    const seen = Promise.withResolvers<void>();
    one.inside.subscribe({
      wants: (event) => event.kind === 'entry',
      async deliver(event) {
        if (event.kind !== 'entry') return;
        const found = await one.rows.entries({ id: event.message.id });
        if (found.length === 0) missing.push(event.message.id);
        if (event.message.role === 'assistant') seen.resolve();
      },
      reset() {},
      failed: seen.reject,
    });
    await one.say('hello');
    await seen.promise;
    expect(missing).toEqual([]);
  });

  it('say why a run failed, and why an exchange and a life are over', async () => {
    const one = await open();
    const last = await busyDay(one);
    const { events } = { events: await listen(one, 0).through(last) };
    const errors = events.flatMap((event) => (event.kind === 'run' && event.error !== undefined ? [`${event.state}: ${event.error}`] : []));
    expect(errors).toContain('error: no');
    expect(events.flatMap((event) => (event.kind === 'exchange' && event.reason !== undefined ? [event.reason] : []))).toEqual(['silent']);
    expect(
      events.flatMap((event) => (event.kind === 'session' && event.change !== 'created' ? [`${event.sessionKey} ${event.change}`] : [])),
    ).toEqual(['agent:ana:direct:you reset', 'agent:ana:direct:cy archived']);
  });
});

describe('what the feed has forgotten', () => {
  it('is told also to who reads from the beginning', async () => {
    const one = await open();
    const last = await busyDay(one);
    await one.rows.forgetFeed(last - 5);
    const late = listen(one, 0);
    await late.through(last);
    expect(late.resets()).toBe(1);
    expect(late.events.map(({ pos }) => pos)).toEqual(await positions(one));
  });

  it('is told once when nothing is left, and what comes next is heard', async () => {
    const one = await open();
    const last = await busyDay(one);
    await one.rows.forgetFeed(last + 1);
    const cursors = [0, 1, last, last + 1_000];
    const subscribers = cursors.map((cursor) => listen(one, cursor));
    await one.say('next');
    const end = await settled(one);
    for (const { events } of subscribers) while (events.at(-1)?.pos !== end) await new Promise((resolve) => setImmediate(resolve));
    expect(subscribers.map(({ resets }) => resets())).toEqual([1, 1, 0, 1]);
    for (const { events } of subscribers) expect(events.map(({ pos }) => pos)).toEqual(await positions(one));
  });
});

describe('a subscription that is over', () => {
  it('is not kept, whether it was left or failed', async () => {
    const one = await open();
    const before = one.inside.subscribers();
    const failed = Promise.withResolvers<unknown>();
    one.inside.subscribe(
      {
        wants: () => true,
        deliver: () => Promise.reject(new Error('the socket is closed')),
        reset() {},
        failed: failed.resolve,
      },
      0,
    );
    const left = listen(one, 0);
    expect(one.inside.subscribers()).toBe(before + 2);
    await failed.promise;
    left.undo();
    expect(one.inside.subscribers()).toBe(before);
  });
});
