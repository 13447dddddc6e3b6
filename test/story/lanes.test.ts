// One session is one lane: its order, what a busy lane does with new inputs, how runs are stopped, and what a restart keeps.
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import type { Channel } from '../../src/channels/channel.ts';
import { Config } from '../../src/config/schema.ts';
import { Engine } from '../../src/engine/engine.ts';
import type { Runner, Turn } from '../../src/engine/runner.ts';
import type { FeedEvent } from '../../src/protocol/event.ts';
import type { QueueMode, RunState } from '../../src/protocol/run.ts';
import { compileWorld } from '../../src/rules/decide.ts';
import type { Store } from '../../src/store/contract.ts';
import { memoryStore } from '../../src/store/memory.ts';
import { databaseName } from '../../src/store/sqlite/open.ts';
import { grace, HandClock } from '../clock.ts';
import { forTest, gates, rowsOf, say, Stage, type ConfigText, type ScriptText } from './stage.ts';

// Nothing here depends on how long it takes; a machine with other work to do may take its time.
vi.setConfig({ testTimeout: 30_000, hookTimeout: 30_000 });

interface Options {
  config?: ConfigText;
  caps?: Engine['caps'];
  channels?: Channel[];
  stateDir?: string;
  clock?: HandClock;
  stops?: ReturnType<typeof gates>;
}

const main = 'agent:main:main';

/** A stage with a tool that stops a turn where a test wants it. */
class Lanes extends Stage {
  readonly stops: ReturnType<typeof gates>;

  constructor(options: Options) {
    super(options.clock ?? new HandClock(), options.stateDir);
    this.stops = options.stops ?? gates();
  }

  /** A person's message into the default agent's main session; resolves with its run id. */
  async write(text: string, more: { mode?: QueueMode; id?: string; from?: string } = {}): Promise<string> {
    const { mode = 'followup', id, from = 'you' } = more;
    return (await say(this.gateway, text, from, { mode, ...(id === undefined ? {} : { messageId: id }) })).runId;
  }

  /** An input by the engine's own door, for what no channel can ask for. */
  async accept(runId: string, more: Partial<Parameters<Engine['accept']>[0]> = {}) {
    return await this.gateway.engine.accept({
      sessionKey: main,
      runId,
      text: runId,
      provenance: { kind: 'user' },
      principal: 'operator',
      taint: 0,
      mode: 'followup',
      class: 'main',
      deliver: false,
      now: this.clock.now(),
      ...more,
    });
  }

  wait(runId: string) {
    return this.gateway.engine.wait(runId, 3_600_000_000);
  }

  async ended(...runIds: string[]) {
    const views = await Promise.all(runIds.map((runId) => this.wait(runId)));
    return views.map(({ state, reply }) => (reply === undefined ? state : `${state}: ${reply}`));
  }

  run(runId: string, state: RunState) {
    return this.event((event) => event.kind === 'run' && event.runId === runId && event.state === state);
  }

  async transcript(key = main) {
    const rows = await this.rows<{ role: string; text: string }>(
      'SELECT role, text FROM entries JOIN sessions ON sessions.pk = session_pk WHERE key = ? AND current = 1 ORDER BY seq',
      key,
    );
    return rows.map(({ role, text }) => `${role}: ${text}`);
  }

  /** What has left, once nothing more is on its way out. */
  async outgoing(): Promise<string[]> {
    await this.none(`SELECT 1 FROM deliveries WHERE state IN ('pending', 'sending')`);
    return this.sent.map(({ text }) => text);
  }
}

async function open(script: ScriptText, options: Options = {}): Promise<Lanes> {
  const lanes = forTest(new Lanes(options));
  return await lanes.start(options.config ?? {}, script, {
    tools: [lanes.stops.tool],
    ...(options.channels ? { channels: options.channels } : {}),
    ...(options.caps ? { caps: options.caps } : {}),
  });
}

/** Closes the gateway and starts another on the same state. */
async function reopen(lanes: Lanes, script: ScriptText, options: Options = {}): Promise<Lanes> {
  await lanes.close();
  return await open(script, { ...options, stateDir: lanes.stateDir, clock: lanes.clock, stops: lanes.stops });
}

const echo = { steps: [{ say: 're: {{input}}' }] };
const gated = (when: string, say = 're: {{input}}') => ({
  when,
  steps: [{ calls: [{ tool: 'gate', args: { name: when } }] }, { say }],
});
const ones = { main: 1, nested: 1, subagent: 1, cron: 1 };
const team = {
  agents: { list: ['a', 'b', 'c', 'd', 'e'].map((id) => ({ id })) },
  session: { agentToAgent: { maxPingPongTurns: 0 } },
  tools: { sessions: { visibility: 'all' as const }, agentToAgent: { enabled: true } },
};
/** The agent asks the next one and says what came back. */
const passesOn = (agent: string, to: string, timeoutSeconds = 600) => ({
  agent,
  steps: [
    { calls: [{ tool: 'sessions_send', args: { sessionKey: `agent:${to}:main`, message: 'ask on', timeoutSeconds } }] },
    { say: '{{result}}' },
  ],
});
const silent = { when: 'exchange with session', steps: [{ say: 'ANNOUNCE_SKIP' }] };

describe('a lane', () => {
  it('answers in the order in which inputs were accepted', async () => {
    const lanes = await open([echo]);
    const texts = Array.from({ length: 8 }, (_, index) => `message ${index}`);
    const runs = await Promise.all(texts.map((text) => lanes.write(text)));
    expect(await lanes.ended(...runs)).toEqual(texts.map((text) => `ok: re: ${text}`));
    expect(await lanes.transcript()).toEqual(texts.flatMap((text) => [`user: ${text}`, `assistant: re: ${text}`]));
  });

  it('has at most one active run, whatever else goes on', async () => {
    const config = { session: { dmScope: 'per-peer' as const } };
    const lanes = await open([echo], { config });
    const active = new Map<string, string>();
    const wrong: string[] = [];
    lanes.gateway.bus.subscribe({
      wants: (event) => event.kind === 'run',
      deliver(event) {
        if (event.kind !== 'run' || event.state === 'queued') return;
        if (event.state === 'running') {
          if (active.has(event.sessionKey)) wrong.push(`${event.runId} started during ${active.get(event.sessionKey)!}`);
          active.set(event.sessionKey, event.runId);
        } else active.delete(event.sessionKey);
      },
      reset() {},
      failed: (error) => wrong.push(String(error)),
    });
    const runs = await Promise.all(Array.from({ length: 40 }, (_, index) => lanes.write(`m${index}`, { from: `peer${index % 4}` })));
    expect(new Set(await lanes.ended(...runs)).size).toBe(40);
    expect(wrong).toEqual([]);
  });

  it('does not hold up other lanes', async () => {
    const lanes = await open([gated('slow'), echo], { config: { session: { dmScope: 'per-peer' } } });
    const slow = await lanes.write('slow', { from: 'ana' });
    await lanes.stops.entered('slow');
    expect(await lanes.ended(await lanes.write('quick', { from: 'bo' }))).toEqual(['ok: re: quick']);
    lanes.stops.open('slow');
    expect(await lanes.ended(slow)).toEqual(['ok: re: slow']);
  });

  it('answers each person where they wrote, also when somebody else writes meanwhile', async () => {
    const lanes = await open([gated('slow'), echo]);
    await lanes.write('slow', { from: 'ana' });
    await lanes.stops.entered('slow');
    const next = await lanes.write('hello', { from: 'bo' });
    lanes.stops.open('slow');
    await lanes.ended(next);
    await lanes.outgoing();
    expect(lanes.sent.map(({ recipient, text }) => [recipient, text])).toEqual([
      ['ana', 're: slow'],
      ['bo', 're: hello'],
    ]);
  });

  it('starts what may not start before a certain time at that time', async () => {
    const lanes = await open([echo]);
    const asleep = lanes.clock.asleep(1_234);
    await lanes.accept('later', { mode: 'collect', notBefore: lanes.clock.now() + 1_234 });
    await asleep;
    expect(await lanes.gateway.engine.wait('later', 0)).toMatchObject({ state: 'queued' });
    lanes.clock.advance(1_234);
    expect(await lanes.ended('later')).toEqual(['ok: re: later']);
  });

  it('waits for a free slot of its class, oldest head first', async () => {
    const lanes = await open([gated('slow'), echo], { caps: ones, config: { session: { dmScope: 'per-peer' } } });
    const slow = await lanes.write('slow', { from: 'ana' });
    await lanes.stops.entered('slow');
    const bo = await lanes.write('first', { from: 'bo' });
    const cy = await lanes.write('second', { from: 'cy' });
    expect(await lanes.rows(`SELECT state FROM runs WHERE id IN (?, ?)`, bo, cy)).toEqual([{ state: 'queued' }, { state: 'queued' }]);
    lanes.stops.open('slow');
    await lanes.ended(slow, bo, cy);
    const started = await lanes.rows<{ id: string }>(
      `SELECT runs.id FROM feed JOIN runs ON runs.pk = ref_pk WHERE feed.kind = 'run' AND feed.state = 'running' ORDER BY pos`,
    );
    expect(started.map(({ id }) => id)).toEqual([slow, bo, cy]);
  });

  it('numbers its transcript without a gap', async () => {
    const lanes = await open([gated('slow'), echo]);
    lanes.stops.open('slow');
    await lanes.ended(await lanes.write('slow'), await lanes.write('quick'), await lanes.write('slow again'));
    const seqs = await lanes.rows<{ seq: number }>('SELECT seq FROM entries ORDER BY pk');
    expect(seqs.map(({ seq }) => seq)).toEqual(seqs.map((_, index) => index + 1));
  });
});

describe('an input to a busy session', () => {
  it('waits its turn in mode followup', async () => {
    const lanes = await open([gated('slow'), echo]);
    const slow = await lanes.write('slow');
    await lanes.stops.entered('slow');
    const next = await lanes.write('next');
    expect(await lanes.gateway.engine.wait(next, 0)).toMatchObject({ state: 'queued' });
    lanes.stops.open('slow');
    expect(await lanes.ended(slow, next)).toEqual(['ok: re: slow', 'ok: re: next']);
    expect(await lanes.transcript()).toEqual([
      'user: slow',
      'assistant: ',
      'toolResult: open',
      'assistant: re: slow',
      'user: next',
      'assistant: re: next',
    ]);
  });

  it('becomes one turn with its neighbours in mode collect; each caller gets the one answer', async () => {
    const lanes = await open([gated('slow'), echo]);
    await lanes.write('slow');
    await lanes.stops.entered('slow');
    const mode = 'collect' as const;
    const runs = [await lanes.write('one', { mode }), await lanes.write('two', { mode }), await lanes.write('three', { mode })];
    const waiting = lanes.ended(...runs);
    lanes.stops.open('slow');
    expect(await waiting).toEqual(['ok: re: three', 'ok: re: three', 'ok: re: three']);
    expect(await lanes.ended(...runs)).toEqual(['ok: re: three', 'ok: re: three', 'ok: re: three']);
    expect((await lanes.transcript()).slice(4)).toEqual(['user: one', 'user: two', 'user: three', 'assistant: re: three']);
    expect(await lanes.outgoing()).toEqual(['re: slow', 're: three']);
  });

  it('is not collected across somebody else, or across a followup', async () => {
    const lanes = await open([gated('slow'), echo]);
    await lanes.write('slow');
    await lanes.stops.entered('slow');
    const mode = 'collect' as const;
    const runs = [
      await lanes.write('a', { mode }),
      await lanes.write('b', { mode }),
      await lanes.write('c', { mode, from: 'bo' }),
      await lanes.write('d', { mode }),
      await lanes.write('e'),
      await lanes.write('f', { mode }),
    ];
    lanes.stops.open('slow');
    expect(await lanes.ended(...runs)).toEqual(['ok: re: b', 'ok: re: b', 'ok: re: c', 'ok: re: d', 'ok: re: e', 'ok: re: f']);
  });

  it('joins the running turn at its next step in mode steer; its run id stays good for everyone who waits', async () => {
    const lanes = await open([gated('slow'), echo]);
    const slow = await lanes.write('slow');
    await lanes.stops.entered('slow');
    const steer = await lanes.write('rather this', { mode: 'steer' });
    const early = [lanes.wait(steer), lanes.wait(steer)];
    lanes.stops.open('slow');
    expect(await lanes.ended(slow)).toEqual(['ok: re: rather this']);
    for (const view of [...(await Promise.all(early)), await lanes.wait(steer)]) {
      expect(view).toMatchObject({ state: 'ok', reply: 're: rather this' });
    }
    expect(await lanes.transcript()).toEqual([
      'user: slow',
      'assistant: ',
      'toolResult: open',
      'user: rather this',
      'assistant: re: rather this',
    ]);
    expect(await lanes.rows(`SELECT id, state FROM runs WHERE merged_into = (SELECT pk FROM runs WHERE id = ?)`, slow)).toEqual([
      { id: steer, state: 'ok' },
    ]);
    expect(await lanes.outgoing()).toEqual(['re: rather this']);
  });

  it('keeps its run id good in mode steer also when the turn it joined fails, is stopped or restarted', async () => {
    const fails: ScriptText = [{ when: 'rather', steps: [{ fail: 'no' }] }, gated('slow')];
    const failing = await open(fails);
    await failing.write('slow');
    await failing.stops.entered('slow');
    const steer = await failing.write('rather this', { mode: 'steer' });
    failing.stops.open('slow');
    expect(await failing.wait(steer)).toMatchObject({ state: 'error', error: 'no' });

    const stops: ScriptText = [gated('rather'), gated('slow')];
    const stopped = await open(stops);
    const slow = await stopped.write('slow');
    await stopped.stops.entered('slow');
    const joined = await stopped.write('rather this', { mode: 'steer' });
    stopped.stops.open('slow');
    await stopped.stops.entered('rather');
    const again = await reopen(stopped, stops);
    await again.run(slow, 'running');
    await again.gateway.engine.abort(slow, 'enough');
    expect(await again.wait(joined)).toMatchObject({ state: 'aborted' });
  });

  it('is the next turn in mode steer when the running one has no further step', async () => {
    const lanes = await open([{ when: 'slow', steps: [{ sleepMs: 7_777, say: 'slept' }] }, echo]);
    const asleep = lanes.clock.asleep(7_777);
    const slow = await lanes.write('slow');
    await asleep;
    const steer = await lanes.write('too late', { mode: 'steer' });
    lanes.clock.advance(7_777);
    expect(await lanes.ended(slow, steer)).toEqual(['ok: slept', 'ok: re: too late']);
  });

  it('is a turn of its own in mode steer when somebody else speaks, or nothing runs', async () => {
    const lanes = await open([gated('slow'), echo]);
    expect(await lanes.ended(await lanes.write('idle', { mode: 'steer' }))).toEqual(['ok: re: idle']);
    const slow = await lanes.write('slow');
    await lanes.stops.entered('slow');
    const other = await lanes.write('from bo', { mode: 'steer', from: 'bo' });
    lanes.stops.open('slow');
    expect(await lanes.ended(slow, other)).toEqual(['ok: re: slow', 'ok: re: from bo']);
  });

  it('stops the running turn in mode interrupt; what was queued before it keeps its place', async () => {
    const lanes = await open([gated('slow'), echo]);
    const slow = await lanes.write('slow');
    await lanes.stops.entered('slow');
    const queued = await lanes.write('queued');
    const urgent = await lanes.write('urgent', { mode: 'interrupt' });
    expect(await lanes.ended(slow, queued, urgent)).toEqual(['aborted', 'ok: re: queued', 'ok: re: urgent']);
    expect(await lanes.transcript()).toEqual([
      'user: slow',
      'assistant: ',
      'toolResult: {"status":"error","error":"the turn was stopped before this was done; its outcome is not known"}',
      'user: queued',
      'assistant: re: queued',
      'user: urgent',
      'assistant: re: urgent',
    ]);
    expect(await lanes.outgoing()).toEqual(['re: queued', 're: urgent']);
  });

  it('stops a turn that waits for another session in mode interrupt; the other one goes on', async () => {
    const lanes = await open([silent, { agent: 'b', ...gated('ask on', 'late') }, { ...echo, when: 'urgent' }, passesOn('a', 'b')], {
      config: team,
    });
    const asks = await lanes.write('go');
    await lanes.run(asks, 'waiting');
    const urgent = await lanes.write('urgent', { mode: 'interrupt' });
    expect(await lanes.ended(asks, urgent)).toEqual(['aborted', 'ok: re: urgent']);
    expect(await lanes.rows('SELECT * FROM waits')).toEqual([]);
    lanes.stops.open('ask on');
    await lanes.event((event) => event.kind === 'exchange' && event.state === 'done');
    expect(await lanes.rows(`SELECT state FROM runs WHERE lane = 'agent:b:main' ORDER BY pk`)).toEqual([{ state: 'ok' }, { state: 'ok' }]);
  });
});

describe('abort', () => {
  it('ends a queued run at once, with its reason; it never starts, and those behind it go on', async () => {
    const lanes = await open([gated('slow'), echo]);
    const slow = await lanes.write('slow');
    await lanes.stops.entered('slow');
    const queued = await lanes.write('queued');
    const last = await lanes.write('last');
    expect(await lanes.gateway.engine.abort(queued, 'changed my mind')).toMatchObject({ aborted: true });
    expect(await lanes.gateway.engine.wait(queued, 0)).toMatchObject({ state: 'aborted', error: 'changed my mind', errorCode: 'ABORTED' });
    lanes.stops.open('slow');
    expect(await lanes.ended(slow, last)).toEqual(['ok: re: slow', 'ok: re: last']);
    expect(await lanes.transcript()).not.toContain('user: queued');
    expect(await lanes.rows(`SELECT state, reason FROM inputs WHERE state = 'aborted'`)).toEqual([
      { state: 'aborted', reason: 'changed my mind' },
    ]);
  });

  it('ends the head of a lane that waits for a slot, and lets the next one be taken', async () => {
    const lanes = await open([gated('slow'), echo], { caps: ones, config: { session: { dmScope: 'per-peer' } } });
    await lanes.write('slow', { from: 'ana' });
    await lanes.stops.entered('slow');
    const head = await lanes.write('head', { from: 'bo' });
    const next = await lanes.write('next', { from: 'bo' });
    await lanes.gateway.engine.abort(head, 'no');
    lanes.stops.open('slow');
    expect(await lanes.ended(head, next)).toEqual(['aborted', 'ok: re: next']);
  });

  it('stops a running turn, and nothing of it is sent', async () => {
    const lanes = await open([gated('slow'), echo]);
    const slow = await lanes.write('slow');
    await lanes.stops.entered('slow');
    const next = await lanes.write('next');
    expect(await lanes.gateway.engine.abort(slow, 'enough')).toMatchObject({ aborted: true });
    expect(await lanes.ended(slow, next)).toEqual(['aborted', 'ok: re: next']);
    expect(await lanes.outgoing()).toEqual(['re: next']);
  });

  it('leaves no call without a result, so that the next turn has a whole transcript', async () => {
    const lanes = await open([gated('slow'), echo]);
    const slow = await lanes.write('slow');
    await lanes.stops.entered('slow');
    await lanes.gateway.engine.abort(slow, 'enough');
    await lanes.wait(slow);
    expect(await lanes.rows(`SELECT state FROM tool_calls`)).toEqual([{ state: 'done' }]);
    expect(
      await lanes.rows(`SELECT body ->> 'toolCallId' AS id, body ->> 'isError' AS error FROM entries WHERE role = 'toolResult'`),
    ).toEqual([{ id: '1.0', error: 1 }]);
  });

  it('ends a waiting run and its wait; the run it waited for goes on', async () => {
    const lanes = await open([silent, { agent: 'b', ...gated('ask on', 'late') }, passesOn('a', 'b')], { config: team });
    const asks = await lanes.write('go');
    await lanes.run(asks, 'waiting');
    const next = await lanes.accept('next', { sessionKey: 'agent:c:main', text: 'hello' });
    expect(await lanes.gateway.engine.abort(asks, 'enough')).toMatchObject({ aborted: true });
    expect(await lanes.gateway.engine.wait(asks, 0)).toMatchObject({ state: 'aborted', error: 'enough' });
    expect(await lanes.rows('SELECT * FROM waits')).toEqual([]);
    lanes.stops.open('ask on');
    await lanes.event((event) => event.kind === 'exchange' && event.state === 'done');
    expect(await lanes.ended(next.runId)).toEqual(['ok']);
    expect(await lanes.rows(`SELECT state FROM runs WHERE lane = 'agent:b:main' AND cause = 'exchange' ORDER BY pk LIMIT 1`)).toEqual([
      { state: 'ok' },
    ]);
  });

  it('of a run that is over says so and changes nothing; of one that does not exist is an error', async () => {
    const lanes = await open([echo]);
    const run = await lanes.write('hello');
    await lanes.ended(run);
    expect(await lanes.gateway.engine.abort(run, 'late')).toEqual({ aborted: false, stopping: [] });
    expect(await lanes.ended(run)).toEqual(['ok: re: hello']);
    await expect(lanes.gateway.engine.abort('nobody', 'x')).rejects.toMatchObject({ code: 'RUN_NOT_FOUND' });
  });

  it('that the gateway did not live to carry out is carried out at the next start', async () => {
    const script = [gated('slow'), echo];
    const lanes = await open(script);
    const slow = await lanes.write('slow');
    await lanes.stops.entered('slow');
    const next = await lanes.write('next');
    await lanes.close();
    asIfKilled(lanes, slow, { abort_requested: 'enough' });
    const again = await open(script, { stateDir: lanes.stateDir, clock: lanes.clock });
    expect(await again.gateway.engine.wait(slow, 0)).toMatchObject({ state: 'aborted', error: 'enough' });
    expect(await again.ended(next)).toEqual(['ok: re: next']);
  });
});

describe('a budget', () => {
  it('ends a turn that takes longer as "timeout"', async () => {
    const lanes = await open([gated('slow'), echo]);
    await lanes.accept('slow', { budgetMs: 2_000 });
    await lanes.stops.entered('slow');
    lanes.clock.advance(1_999);
    expect(await lanes.gateway.engine.wait('slow', 0)).toMatchObject({ state: 'running' });
    lanes.clock.advance(1);
    expect(await lanes.wait('slow')).toMatchObject({ state: 'timeout', errorCode: 'TIMEOUT', error: 'the run took longer than 2000 ms' });
  });

  it('does not count the time in the queue', async () => {
    const lanes = await open([gated('slow'), gated('other'), echo]);
    await lanes.accept('slow');
    await lanes.stops.entered('slow');
    await lanes.accept('other', { budgetMs: 2_000 });
    lanes.clock.advance(60_000);
    lanes.stops.open('slow');
    await lanes.stops.entered('other');
    lanes.clock.advance(1_999);
    lanes.stops.open('other');
    expect(await lanes.ended('other')).toEqual(['ok: re: other']);
  });

  it('does not count the time a turn waits for another session, and goes on counting afterwards', async () => {
    const asks = passesOn('a', 'b');
    const steps = [...asks.steps.slice(0, 1), { calls: [{ tool: 'gate', args: { name: 'after' } }] }, { say: 'never' }];
    const before = [{ calls: [{ tool: 'gate', args: { name: 'before' } }] }, ...steps];
    const lanes = await open([silent, { agent: 'b', ...gated('ask on', 'late') }, { agent: 'a', steps: before }], { config: team });
    await lanes.accept('asks', { sessionKey: 'agent:a:main', budgetMs: 2_000 });
    await lanes.stops.entered('before');
    lanes.clock.advance(1_500);
    lanes.stops.open('before');
    await lanes.run('asks', 'waiting');
    lanes.clock.advance(60_000);
    lanes.stops.open('ask on');
    await lanes.stops.entered('after');
    lanes.clock.advance(499);
    expect(await lanes.gateway.engine.wait('asks', 0)).toMatchObject({ state: 'running' });
    lanes.clock.advance(1);
    expect(await lanes.ended('asks')).toEqual(['timeout']);
  });
});

describe('an idempotency key', () => {
  it('makes a message that arrives twice one message, also at the same time and after it was answered', async () => {
    const lanes = await open([echo]);
    const runs = await Promise.all(Array.from({ length: 10 }, () => lanes.write('hello', { id: 'm1' })));
    expect(new Set(runs).size).toBe(1);
    await lanes.ended(runs[0]!);
    expect(await lanes.write('hello', { id: 'm1' })).toBe(runs[0]);
    expect(await lanes.transcript()).toEqual(['user: hello', 'assistant: re: hello']);
    expect(lanes.sent).toHaveLength(1);
  });

  it('says that it was repeated', async () => {
    const lanes = await open([echo]);
    const key = { principal: 'p', method: 'm', key: 'k', hash: 'h' };
    expect(await lanes.accept('first', { idempotency: key })).toMatchObject({ runId: 'first', repeated: false });
    expect(await lanes.accept('second', { idempotency: key })).toMatchObject({ runId: 'first', repeated: true });
    expect(await lanes.accept('third', { idempotency: { ...key, principal: 'q' } })).toMatchObject({ runId: 'third', repeated: false });
    expect(await lanes.accept('fourth', { idempotency: { ...key, method: 'n' } })).toMatchObject({ runId: 'fourth', repeated: false });
  });

  it('with another text is a conflict, and nothing is written', async () => {
    const lanes = await open([echo]);
    await lanes.ended(await lanes.write('hello', { id: 'm1' }));
    await expect(lanes.write('goodbye', { id: 'm1' })).rejects.toMatchObject({ code: 'IDEMPOTENCY_CONFLICT' });
    expect(await lanes.transcript()).toEqual(['user: hello', 'assistant: re: hello']);
    expect(await lanes.rows('SELECT id FROM runs')).toHaveLength(1);
  });

  it('of another sender is another message', async () => {
    const lanes = await open([echo]);
    const [one, other] = [await lanes.write('hello', { id: 'm1' }), await lanes.write('hello', { id: 'm1', from: 'bo' })];
    expect(one).not.toBe(other);
  });

  it('holds after a restart, and across a reset', async () => {
    const lanes = await open([echo]);
    const run = await lanes.write('hello', { id: 'm1' });
    await lanes.ended(run);
    await lanes.gateway.engine.reset(main);
    const again = await reopen(lanes, [echo]);
    expect(await again.write('hello', { id: 'm1' })).toBe(run);
    await expect(again.write('goodbye', { id: 'm1' })).rejects.toMatchObject({ code: 'IDEMPOTENCY_CONFLICT' });
    expect(await again.transcript()).toEqual([]);
  });
});

describe('an idempotency key of a deleted session', () => {
  it('is forgotten with its run: the message may come again', async () => {
    const config = { session: { dmScope: 'per-peer' as const } };
    const lanes = await open([echo], { config });
    await lanes.ended(await lanes.write('hello', { id: 'm1' }));
    await lanes.outgoing();
    await lanes.gateway.engine.closeSession('agent:main:direct:you', 'deleted', false);
    const again = await reopen(lanes, [echo], { config });
    while ((await again.rows(`SELECT 1 FROM sessions WHERE state = 'deleted'`)).length > 0)
      await new Promise((resolve) => setImmediate(resolve));
    expect(await again.ended(await again.write('hello', { id: 'm1' }))).toEqual(['ok: re: hello']);
  });
});

describe('wait', () => {
  it('answers any number of callers before, during and after the run with the same', async () => {
    const lanes = await open([gated('first'), gated('second'), echo]);
    await lanes.write('first');
    await lanes.stops.entered('first');
    const run = await lanes.write('second');
    const before = [lanes.wait(run), lanes.wait(run)];
    lanes.stops.open('first');
    await lanes.stops.entered('second');
    const during = [lanes.wait(run), lanes.wait(run)];
    lanes.stops.open('second');
    const views = [...(await Promise.all([...before, ...during])), await lanes.wait(run), await lanes.wait(run)];
    expect(views).toHaveLength(6);
    for (const view of views) expect(view).toEqual(views[0]);
    expect(views[0]).toMatchObject({ runId: run, sessionKey: main, state: 'ok', reply: 're: second', class: 'main' });
  });

  it('answers after a restart, for runs that ended before it and for runs that end after it', async () => {
    const script = [gated('slow'), echo];
    const lanes = await open(script);
    const over = await lanes.write('over');
    const view = await lanes.wait(over);
    const slow = await lanes.write('slow');
    await lanes.stops.entered('slow');
    const queued = await lanes.write('queued');
    const again = await reopen(lanes, script);
    expect(await again.wait(over)).toEqual(view);
    const waiting = [again.wait(slow), again.wait(slow), again.wait(queued)];
    again.stops.open('slow');
    expect((await Promise.all(waiting)).map(({ reply }) => reply)).toEqual(['re: slow', 're: slow', 're: queued']);
  });

  it('says what the run is doing when the time is over or the caller has gone; the run goes on', async () => {
    const lanes = await open([gated('slow'), echo]);
    const slow = await lanes.write('slow');
    await lanes.stops.entered('slow');
    expect(await lanes.gateway.engine.wait(slow, 0)).toMatchObject({ runId: slow, state: 'running' });
    const asleep = lanes.clock.asleep(3_333);
    const timed = lanes.gateway.engine.wait(slow, 3_333);
    await asleep;
    lanes.clock.advance(3_333);
    expect(await timed).toMatchObject({ state: 'running' });
    const caller = new AbortController();
    const left = lanes.gateway.engine.wait(slow, 3_600_000, caller.signal);
    caller.abort();
    expect(await left).toMatchObject({ state: 'running' });
    lanes.stops.open('slow');
    expect(await lanes.ended(slow)).toEqual(['ok: re: slow']);
  });

  it('for a run that does not exist is an error', async () => {
    const lanes = await open([echo]);
    await expect(lanes.gateway.engine.wait('nobody', 0)).rejects.toMatchObject({ code: 'RUN_NOT_FOUND' });
  });
});

describe('reset', () => {
  it('gives the key a new life: another session id and an empty transcript, and the old one is kept', async () => {
    const lanes = await open([echo]);
    await lanes.ended(await lanes.write('before'));
    const [old] = await lanes.rows<{ id: string; delivery: string }>(
      'SELECT id, delivery FROM sessions WHERE key = ? AND current = 1',
      main,
    );
    const { session } = await lanes.gateway.engine.reset(main);
    expect(session).toMatchObject({ key: main, life: 2, current: 1, next_seq: 1, delivery: old!.delivery });
    expect(session.id).not.toBe(old!.id);
    expect(await lanes.transcript()).toEqual([]);
    await lanes.ended(await lanes.write('after'));
    expect(await lanes.transcript()).toEqual(['user: after', 'assistant: re: after']);
    expect(
      await lanes.rows('SELECT text FROM entries JOIN sessions ON sessions.pk = session_pk WHERE sessions.id = ? ORDER BY seq', old!.id),
    ).toEqual([{ text: 'before' }, { text: 're: before' }]);
  });

  it('ends what was queued with the reason and stops what runs; the next life answers', async () => {
    const lanes = await open([gated('slow'), echo]);
    const slow = await lanes.write('slow');
    await lanes.stops.entered('slow');
    const queued = [await lanes.write('one'), await lanes.write('two')];
    await lanes.gateway.engine.reset(main);
    for (const run of queued) expect(await lanes.gateway.engine.wait(run, 0)).toMatchObject({ state: 'aborted', error: 'reset' });
    expect(await lanes.rows(`SELECT reason FROM inputs WHERE state = 'aborted'`)).toEqual([{ reason: 'reset' }, { reason: 'reset' }]);
    const next = await lanes.write('next life');
    expect(await lanes.ended(slow, next)).toEqual(['aborted', 'ok: re: next life']);
    expect(await lanes.transcript()).toEqual(['user: next life', 'assistant: re: next life']);
    expect(await lanes.outgoing()).toEqual(['re: next life']);
  });

  it('ends a run that waits for another session', async () => {
    const lanes = await open([silent, { agent: 'b', ...gated('ask on', 'late') }, passesOn('a', 'b')], { config: team });
    const asks = await lanes.write('go');
    await lanes.run(asks, 'waiting');
    await lanes.gateway.engine.reset('agent:a:main');
    expect(await lanes.gateway.engine.wait(asks, 0)).toMatchObject({ state: 'aborted', error: 'reset' });
    expect(await lanes.rows('SELECT * FROM waits')).toEqual([]);
  });

  it('twice in a row leaves one current life and no run that hangs', async () => {
    const lanes = await open([gated('slow'), echo]);
    const slow = await lanes.write('slow');
    await lanes.stops.entered('slow');
    await lanes.gateway.engine.reset(main);
    const between = await lanes.write('between');
    await lanes.gateway.engine.reset(main);
    const last = await lanes.write('last');
    expect(await lanes.ended(slow, between, last)).toEqual(['aborted', expect.any(String), 'ok: re: last']);
    expect(await lanes.rows('SELECT life FROM sessions WHERE key = ? AND current = 1', main)).toEqual([{ life: 3 }]);
  });

  it('of a session that does not exist is an error', async () => {
    const lanes = await open([echo]);
    await expect(lanes.gateway.engine.reset('agent:main:nobody')).rejects.toMatchObject({ code: 'SESSION_NOT_FOUND' });
  });
});

describe('archive and delete', () => {
  const archive = (lanes: Lanes, key: string, force = false) => lanes.gateway.engine.closeSession(key, 'archived', force);

  it('are refused while a run is queued, running or waiting', async () => {
    const lanes = await open([silent, { agent: 'b', ...gated('ask on', 'late') }, passesOn('a', 'b')], { config: team });
    const asks = await lanes.write('go');
    await lanes.run(asks, 'waiting');
    await lanes.stops.entered('ask on');
    for (const key of ['agent:a:main', 'agent:b:main']) {
      await expect(archive(lanes, key)).rejects.toMatchObject({ code: 'SESSION_BUSY', message: expect.stringContaining('a run open') });
      await expect(lanes.gateway.engine.closeSession(key, 'deleted', false)).rejects.toMatchObject({ code: 'SESSION_BUSY' });
    }
    lanes.stops.open('ask on');
    await lanes.ended(asks);
    await lanes.event((event) => event.kind === 'exchange' && event.state === 'done');
    await lanes.outgoing();
    await archive(lanes, 'agent:a:main');
    await archive(lanes, 'agent:b:main');
  });

  it('are refused while an exchange is open, on either side', async () => {
    const config = { ...team, session: { agentToAgent: { maxPingPongTurns: 1 } } };
    const lanes = await open(
      [
        silent,
        { agent: 'a', ...gated('Reply from session', 'REPLY_SKIP') },
        { agent: 'b', steps: [{ say: 'first' }] },
        passesOn('a', 'b', 0),
      ],
      { config },
    );
    await lanes.ended(await lanes.write('go'));
    await lanes.stops.entered('Reply from session');
    // b has nothing to do right now, but it will have to announce.
    await expect(archive(lanes, 'agent:b:main')).rejects.toMatchObject({
      code: 'SESSION_BUSY',
      message: expect.stringContaining('an exchange open'),
    });
    lanes.stops.open('Reply from session');
    await lanes.event((event) => event.kind === 'exchange' && event.state === 'done');
    await archive(lanes, 'agent:b:main');
  });

  it('are refused while a delivery is open', async () => {
    const arrived = Promise.withResolvers<void>();
    const release = Promise.withResolvers<void>();
    const slowly: Channel = {
      name: 'loopback',
      async send() {
        arrived.resolve();
        await release.promise;
        return { outcome: 'sent' };
      },
    };
    const lanes = await open([echo], { channels: [slowly] });
    await lanes.ended(await lanes.write('hello'));
    await arrived.promise;
    await expect(archive(lanes, main)).rejects.toMatchObject({ code: 'SESSION_BUSY', message: expect.stringContaining('a delivery open') });
    release.resolve();
    await lanes.event((event) => event.kind === 'delivery' && event.state === 'sent');
    await archive(lanes, main);
  });

  it('stop what is open when forced', async () => {
    const lanes = await open([gated('slow'), echo]);
    const slow = await lanes.write('slow');
    await lanes.stops.entered('slow');
    const queued = await lanes.write('queued');
    await archive(lanes, main, true);
    expect(await lanes.ended(slow, queued)).toEqual(['aborted', 'aborted']);
    expect(await lanes.wait(queued)).toMatchObject({ error: 'archived' });
  });

  it('archive keeps the transcript: a new message brings the same life back', async () => {
    const lanes = await open([echo], { channels: [] });
    await lanes.ended(await lanes.write('before'));
    await lanes.event((event) => event.kind === 'delivery' && event.state === 'failed');
    await archive(lanes, main);
    expect(await lanes.rows('SELECT state, current FROM sessions WHERE key = ?', main)).toEqual([{ state: 'archived', current: 1 }]);
    await lanes.ended(await lanes.write('after'));
    expect(await lanes.transcript()).toEqual(['user: before', 'assistant: re: before', 'user: after', 'assistant: re: after']);
  });

  it('delete frees the key and the label: who writes next opens a new life', async () => {
    const lanes = await open([echo]);
    const key = 'agent:main:loopback:direct:ana';
    const made = { agent: 'main', kind: 'other', label: 'lunch' };
    const first = await lanes.accept('first', { sessionKey: key, open: { ...made, id: 's1' } });
    await lanes.ended('first');
    await lanes.gateway.engine.closeSession(key, 'deleted', false);
    await expect(lanes.accept('second', { sessionKey: key })).rejects.toMatchObject({ code: 'SESSION_NOT_FOUND' });
    const third = await lanes.accept('third', { sessionKey: key, open: { ...made, id: 's2' } });
    expect(third.sessionId).not.toBe(first.sessionId);
    await lanes.ended('third');
    expect(await lanes.transcript(key)).toEqual(['user: third', 'assistant: re: third']);
    expect(await lanes.rows('SELECT id, state, label FROM sessions WHERE key = ? AND current = 1', key)).toEqual([
      { id: 's2', state: 'live', label: 'lunch' },
    ]);
  });

  it('of a session that does not exist is an error', async () => {
    const lanes = await open([echo]);
    await expect(archive(lanes, 'agent:main:nobody')).rejects.toMatchObject({ code: 'SESSION_NOT_FOUND' });
  });
});

describe('a chain of waits', () => {
  const chain = [
    silent,
    passesOn('a', 'b'),
    passesOn('b', 'c'),
    passesOn('c', 'd'),
    passesOn('d', 'e'),
    { agent: 'e', steps: [{ say: 'deep' }] },
  ];

  it('of depth 4 completes with every cap set to 1', async () => {
    const lanes = await open(chain, { config: team, caps: ones });
    const { state, reply } = await lanes.wait(await lanes.write('go'));
    expect(state).toBe('ok');
    expect(reply).toContain('deep');
    expect(
      await lanes.rows(
        `SELECT lane, state FROM runs WHERE cause = 'input' OR cause_pk IS NOT NULL AND pk IN (SELECT run_pk FROM exchange_turns WHERE turn = 0) ORDER BY lane`,
      ),
    ).toEqual(['a', 'b', 'c', 'd', 'e'].map((agent) => ({ lane: `agent:${agent}:main`, state: 'ok' })));
  });

  it('completes when several of them cross, with every cap set to 1', async () => {
    const lanes = await open(chain, { config: team, caps: ones });
    const starts = ['a', 'b', 'c', 'a', 'd', 'b'].map((agent, index) => lanes.accept(`run${index}`, { sessionKey: `agent:${agent}:main` }));
    await Promise.all(starts);
    const views = await Promise.all(starts.map((_, index) => lanes.wait(`run${index}`)));
    for (const view of views) expect(view).toMatchObject({ state: 'ok', reply: expect.stringContaining('deep') });
  });

  it('goes on after a restart in its middle', async () => {
    const script = [silent, ...chain.slice(1, 5), { agent: 'e', ...gated('ask on', 'deep') }];
    const lanes = await open(script, { config: team, caps: ones });
    const run = await lanes.write('go');
    await lanes.stops.entered('ask on');
    const again = await reopen(lanes, script, { config: team, caps: ones });
    again.stops.open('ask on');
    const { state, reply } = await again.wait(run);
    expect(state).toBe('ok');
    expect(reply).toContain('deep');
    expect(await again.rows(`SELECT count(*) AS n FROM exchanges`)).toEqual([{ n: 4 }]);
  });
});

describe('a restart', () => {
  it('in the middle of a sleeping turn resumes it, and it ends once', async () => {
    const script = [{ when: 'nap', steps: [{ calls: [{ tool: 'agents_list' }] }, { sleepMs: 60_000, say: 'slept' }] }, echo];
    const lanes = await open(script);
    const asleep = lanes.clock.asleep(60_000);
    const run = await lanes.write('nap', { id: 'm1' });
    await asleep;
    const queued = await lanes.write('queued');
    await lanes.close();
    const asleepAgain = lanes.clock.asleep(60_000);
    const again = await open(script, { stateDir: lanes.stateDir, clock: lanes.clock, stops: lanes.stops });
    await asleepAgain;
    again.clock.advance(60_000);
    expect(await again.ended(run, queued)).toEqual(['ok: slept', 'ok: re: queued']);
    await again.outgoing();
    expect(await again.transcript()).toEqual([
      'user: nap',
      'assistant: ',
      expect.stringMatching(/^toolResult: /),
      'assistant: slept',
      'user: queued',
      'assistant: re: queued',
    ]);
    const ends = `SELECT feed.state FROM feed JOIN runs ON runs.pk = ref_pk WHERE feed.kind = 'run' AND runs.id = ? AND feed.state NOT IN ('queued', 'running', 'waiting')`;
    expect(await again.rows(ends, run)).toEqual([{ state: 'ok' }]);
    expect(await again.rows('SELECT crashes FROM runs WHERE id = ?', run)).toEqual([{ crashes: 0 }]);
    expect([...lanes.sent, ...again.sent].filter(({ text }) => text === 'slept')).toHaveLength(1);
  });

  it('keeps the lane closed behind a turn that is resumed', async () => {
    const script = [gated('slow'), echo];
    const lanes = await open(script);
    const slow = await lanes.write('slow');
    await lanes.stops.entered('slow');
    const again = await reopen(lanes, script);
    const next = await again.write('next');
    expect(await again.gateway.engine.wait(next, 0)).toMatchObject({ state: 'queued' });
    again.stops.open('slow');
    expect(await again.ended(slow, next)).toEqual(['ok: re: slow', 'ok: re: next']);
  });

  it('does not lose a wait: the answer arrives in the next life of the gateway', async () => {
    const script = [silent, { agent: 'b', ...gated('ask on', 'late') }, passesOn('a', 'b')];
    const lanes = await open(script, { config: team });
    const asks = await lanes.write('go');
    await lanes.run(asks, 'waiting');
    await lanes.stops.entered('ask on');
    const again = await reopen(lanes, script, { config: team });
    expect(await again.gateway.engine.wait(asks, 0)).toMatchObject({ state: 'waiting' });
    again.stops.open('ask on');
    expect((await again.wait(asks)).reply).toContain('late');
  });

  it('after a kill resumes the run, but not one that was killed more than 3 times', async () => {
    const script = [gated('slow'), echo];
    let lanes = await open(script);
    const slow = await lanes.write('slow');
    await lanes.stops.entered('slow');
    const next = await lanes.write('next');
    for (const kills of [1, 2, 3]) {
      await lanes.close();
      asIfKilled(lanes, slow);
      lanes = await open(script, { stateDir: lanes.stateDir, clock: lanes.clock });
      await lanes.stops.entered('slow');
      expect(await lanes.rows('SELECT state, crashes FROM runs WHERE id = ?', slow)).toEqual([{ state: 'running', crashes: kills }]);
    }
    await lanes.close();
    asIfKilled(lanes, slow);
    lanes = await open(script, { stateDir: lanes.stateDir, clock: lanes.clock });
    expect(await lanes.gateway.engine.wait(slow, 0)).toMatchObject({ state: 'error', errorCode: 'POISON' });
    expect(await lanes.ended(next)).toEqual(['ok: re: next']);
  });
});

/** Makes a closed state look as if its gateway had died during a run. */
function asIfKilled(lanes: Lanes, runId: string, more: { abort_requested?: string } = {}): void {
  const database = new DatabaseSync(join(lanes.stateDir, databaseName));
  database
    .prepare(`UPDATE runs SET state = 'running', owner = 0, ready_pos = NULL, abort_requested = ? WHERE id = ?`)
    .run(more.abort_requested ?? null, runId);
  database.close();
}

// The contract between the engine and a runner, on the in-memory twin, with turns taken by hand -------------------------

interface Hand {
  engine: Engine;
  store: Store<FeedEvent>;
  clock: HandClock;
  /** The turn that was handed to the runner, and how to leave it. */
  turn(runId: string): Promise<{ turn: Turn; leave: () => void; fail: (error: Error) => void }>;
  accept(runId: string): Promise<unknown>;
}

async function byHand(hears: 'abort' | 'nothing' = 'abort'): Promise<Hand> {
  let seed = 7;
  const random = () => (seed = (seed * 48_271) % 2_147_483_647) / 2_147_483_647;
  const store = memoryStore<FeedEvent>({ rerun: 0.5, random });
  const clock = new HandClock();
  const turns = new Map<string, PromiseWithResolvers<{ turn: Turn; leave: () => void; fail: (error: Error) => void }>>();
  const taken = (runId: string) => {
    const found = turns.get(runId) ?? Promise.withResolvers();
    turns.set(runId, found);
    return found;
  };
  const runner: Runner = {
    run(turn) {
      const { promise, resolve, reject } = Promise.withResolvers<void>();
      if (hears === 'abort') turn.signal.addEventListener('abort', () => reject(turn.signal.reason as Error));
      taken(turn.runId).resolve({ turn, leave: resolve, fail: reject });
      return promise;
    },
  };
  let ids = 0;
  const parts = {
    store,
    clock,
    newId: () => `id${ids++}`,
    runner: () => runner,
    caps: ones,
    host: { bootId: 'boot', pid: 1, name: 'here' },
    warn() {},
  };
  const engine = new Engine(parts, compileWorld(Config.parse({})));
  await engine.start([{ key: main, made: { agent: 'main', kind: 'main' } }]);
  onTestFinished(async () => {
    clock.stopping = true;
    await engine.close(grace);
    await store.close();
  });
  const accept = (runId: string) =>
    engine.accept({
      sessionKey: main,
      runId,
      text: runId,
      provenance: { kind: 'user' },
      principal: 'p',
      taint: 0,
      mode: 'followup',
      class: 'main',
      deliver: false,
      budgetMs: 9_000,
      now: clock.now(),
    });
  return { engine, store, clock, accept, turn: (runId) => taken(runId).promise };
}

describe('whatever a runner does, its run ends exactly once', () => {
  const transcript = (hand: Hand) =>
    rowsOf<{ text: string; body: string | null }>(hand.store, `SELECT text, body FROM entries WHERE role = 'assistant'`);

  it('an abort keeps what was said so far, marked, and not as a reply', async () => {
    const hand = await byHand();
    await hand.accept('r');
    const { turn } = await hand.turn('r');
    turn.delta('half a ');
    turn.delta('sentence');
    await hand.engine.abort('r', 'enough');
    const view = await hand.engine.wait('r', 60_000);
    expect(view).toMatchObject({ state: 'aborted', errorCode: 'ABORTED' });
    expect(view.reply).toBeUndefined();
    expect(await transcript(hand)).toEqual([{ text: 'half a sentence', body: '{"aborted":true}' }]);
    expect(await rowsOf(hand.store, 'SELECT aborted_last FROM sessions')).toEqual([{ aborted_last: 1 }]);
  });

  it('an abort does not say again what a step has already said', async () => {
    const hand = await byHand();
    await hand.accept('r');
    const { turn } = await hand.turn('r');
    turn.delta('first step');
    await turn.step({ text: 'first step', calls: [], usage: { input: 0, output: 1 } });
    turn.delta('second');
    await hand.engine.abort('r', 'enough');
    await hand.engine.wait('r', 60_000);
    expect((await transcript(hand)).map(({ text }) => text)).toEqual(['first step', 'second']);
  });

  it('a timeout keeps what was said so far', async () => {
    const hand = await byHand();
    await hand.accept('r');
    const { turn } = await hand.turn('r');
    turn.delta('slow');
    hand.clock.advance(9_000);
    expect(await hand.engine.wait('r', 60_000)).toMatchObject({ state: 'timeout' });
    expect(await transcript(hand)).toEqual([{ text: 'slow', body: '{"aborted":true}' }]);
  });

  it('a runner that throws ends its run as an error, and what it had said is dropped', async () => {
    const hand = await byHand();
    await hand.accept('r');
    await hand.accept('next');
    const { turn, fail } = await hand.turn('r');
    turn.delta('so');
    fail(new Error('the model is gone'));
    expect(await hand.engine.wait('r', 60_000)).toMatchObject({ state: 'error', errorCode: 'RUN_FAILED', error: 'the model is gone' });
    expect(await transcript(hand)).toEqual([]);
    await hand.turn('next');
  });

  it('a runner that stops without an end ends its run as an error', async () => {
    const hand = await byHand();
    await hand.accept('r');
    (await hand.turn('r')).leave();
    expect(await hand.engine.wait('r', 60_000)).toMatchObject({ state: 'error', error: 'the runner stopped without ending the turn' });
  });

  it('a runner that ends its turn and then throws, or ends it twice, has ended it once', async () => {
    const hand = await byHand();
    await hand.accept('r');
    const { turn, fail } = await hand.turn('r');
    await turn.end({ text: 'done', usage: { input: 0, output: 1 } });
    await expect(turn.end({ text: 'again', usage: { input: 0, output: 1 } })).rejects.toMatchObject({ code: 'LEASE_LOST' });
    fail(new Error('late'));
    expect(await hand.engine.wait('r', 60_000)).toMatchObject({ state: 'ok', reply: 'done' });
    expect(await transcript(hand)).toEqual([{ text: 'done', body: null }]);
    expect(await rowsOf(hand.store, `SELECT state FROM feed WHERE kind = 'run' AND state NOT IN ('queued', 'running')`)).toEqual([
      { state: 'ok' },
    ]);
  });

  it('a runner that takes its time to stop holds its lane until it has: the next life of a reset session waits for it', async () => {
    const hand = await byHand('nothing');
    await hand.accept('old');
    const { turn, fail } = await hand.turn('old');
    await hand.engine.reset(main);
    await hand.accept('new');
    expect(turn.signal.aborted).toBe(true);
    expect(await hand.engine.wait('old', 0)).toMatchObject({ state: 'running' });
    expect(await hand.engine.wait('new', 0)).toMatchObject({ state: 'queued' });
    fail(new Error('stopped at last'));
    const next = await hand.turn('new');
    expect(await hand.engine.wait('old', 0)).toMatchObject({ state: 'aborted' });
    expect(next.turn.sessionId).not.toBe(turn.sessionId);
    next.leave();
    const order = `SELECT runs.id, feed.state FROM feed JOIN runs ON runs.pk = ref_pk WHERE feed.kind = 'run' ORDER BY pos`;
    expect((await rowsOf<{ id: string; state: string }>(hand.store, order)).map(({ id, state }) => `${id} ${state}`).slice(0, 5)).toEqual([
      'old queued',
      'old running',
      'new queued',
      'old aborted',
      'new running',
    ]);
  });

  it('an abort that was acknowledged beats an end that is on its way', async () => {
    const hand = await byHand('nothing');
    await hand.accept('r');
    const { turn, leave } = await hand.turn('r');
    const stopped = hand.engine.abort('r', 'enough');
    const ending = turn.end({ text: 'too late', usage: { input: 0, output: 1 } }).finally(leave);
    expect(await stopped).toMatchObject({ aborted: true });
    await Promise.allSettled([ending]);
    const view = await hand.engine.wait('r', 60_000);
    expect(view).toMatchObject({ state: 'aborted', error: 'enough' });
    expect(view.reply).toBeUndefined();
  });

  it('an abort that meets a turn on its way to wait stops it at once', async () => {
    const hand = await byHand();
    await hand.accept('r');
    const { turn } = await hand.turn('r');
    await turn.step({ text: '', calls: [{ providerId: 'x', tool: 't', args: {}, effect: 'keyed' }], usage: { input: 0, output: 0 } });
    const waits = `INSERT INTO waits (run_pk, step, idx, lane, target_run_pk, target_lane, due_at) VALUES (1, 1, 0, '${main}', 99, 'elsewhere', 9e15)`;
    await hand.store.write(
      {
        name: 'a wait',
        *body(t) {
          yield* t.run(waits);
        },
      },
      {},
    );
    const stopped = hand.engine.abort('r', 'enough');
    const parking = turn.park();
    expect(await stopped).toMatchObject({ aborted: true });
    await Promise.allSettled([parking]);
    expect(await hand.engine.wait('r', 60_000)).toMatchObject({ state: 'aborted' });
    expect(await rowsOf(hand.store, 'SELECT * FROM waits')).toEqual([]);
  });

  it('a turn that is over can write nothing any more', async () => {
    const hand = await byHand();
    await hand.accept('r');
    const { turn, leave } = await hand.turn('r');
    const [call] = await turn.step({
      text: '',
      calls: [{ providerId: 'x', tool: 't', args: {}, effect: 'pure' }],
      usage: { input: 0, output: 0 },
    });
    await turn.end({ text: 'done', usage: { input: 0, output: 0 } });
    leave();
    const lost = { code: 'LEASE_LOST' };
    await expect(turn.step({ text: 'more', calls: [], usage: { input: 0, output: 0 } })).rejects.toMatchObject(lost);
    await expect(turn.startCall(call!)).rejects.toMatchObject(lost);
    await expect(turn.finishCall(call!, { text: 'x', isError: false, taint: 0 })).rejects.toMatchObject(lost);
    await expect(turn.park()).rejects.toMatchObject(lost);
    expect((await transcript(hand)).map(({ text }) => text)).toEqual(['', 'done']);
  });
});
