// One session is one lane: its order, what a busy lane does with new inputs, how runs are stopped, and what a restart keeps.
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import type { Channel } from '../../src/channels/channel.ts';
import { engineByHand, type Hand } from '../harness/engine.ts';
import { testGateway, type ScriptText, type TestGateway, type TestOptions } from '../harness/gateway.ts';
import { asIfKilled } from '../harness/rows.ts';
import { told } from '../harness/words.ts';

// Nothing here depends on how long it takes; a machine with other work to do may take its time.
vi.setConfig({ testTimeout: 30_000, hookTimeout: 30_000 });

const main = 'agent:main:main';

const open = (script: ScriptText, options: TestOptions = {}): Promise<TestGateway> => testGateway({ script, stops: true, ...options });

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
const silent = { when: told.announce, steps: [{ say: 'ANNOUNCE_SKIP' }] };

describe('a lane', () => {
  it('answers in the order in which inputs were accepted', async () => {
    const lanes = await open([echo]);
    const texts = Array.from({ length: 8 }, (_, index) => `message ${index}`);
    const runs = await Promise.all(texts.map((text) => lanes.say(text)));
    expect(await lanes.ended(...runs)).toEqual(texts.map((text) => `ok: re: ${text}`));
    expect(await lanes.transcript()).toEqual(texts.flatMap((text) => [`user: ${text}`, `assistant: re: ${text}`]));
  });

  it('has at most one active run, whatever else goes on', async () => {
    const config = { session: { dmScope: 'per-peer' as const } };
    const lanes = await open([echo], { config });
    const active = new Map<string, string>();
    const wrong: string[] = [];
    lanes.inside.subscribe({
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
    const runs = await Promise.all(Array.from({ length: 40 }, (_, index) => lanes.say(`m${index}`, { from: `peer${index % 4}` })));
    expect(new Set(await lanes.ended(...runs)).size).toBe(40);
    expect(wrong).toEqual([]);
  });

  it('does not hold up other lanes', async () => {
    const lanes = await open([gated('slow'), echo], { config: { session: { dmScope: 'per-peer' } } });
    const slow = await lanes.say('slow', { from: 'ana' });
    await lanes.stops.entered('slow');
    expect(await lanes.ended(await lanes.say('quick', { from: 'bo' }))).toEqual(['ok: re: quick']);
    lanes.stops.open('slow');
    expect(await lanes.ended(slow)).toEqual(['ok: re: slow']);
  });

  it('answers each person where they wrote, also when somebody else writes meanwhile', async () => {
    const lanes = await open([gated('slow'), echo]);
    await lanes.say('slow', { from: 'ana' });
    await lanes.stops.entered('slow');
    const next = await lanes.say('hello', { from: 'bo' });
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
    await lanes.accept('later', { mode: 'collect', notBefore: lanes.now() + 1_234 });
    await lanes.clock.advance(1_233);
    expect(await lanes.wait('later', 0)).toMatchObject({ state: 'queued' });
    await lanes.clock.advance(1);
    expect(await lanes.ended('later')).toEqual(['ok: re: later']);
  });

  it('waits for a free slot of its class, oldest head first', async () => {
    const lanes = await open([gated('slow'), echo], { caps: ones, config: { session: { dmScope: 'per-peer' } } });
    const slow = await lanes.say('slow', { from: 'ana' });
    await lanes.stops.entered('slow');
    const bo = await lanes.say('first', { from: 'bo' });
    const cy = await lanes.say('second', { from: 'cy' });
    expect(await lanes.rows.runs({ state: 'queued' }, 'id')).toEqual([{ id: bo }, { id: cy }]);
    lanes.stops.open('slow');
    await lanes.ended(slow, bo, cy);
    const started = (await lanes.rows.runHistory()).filter(([, state]) => state === 'running');
    expect(started.map(([id]) => id)).toEqual([slow, bo, cy]);
  });

  it('numbers its transcript without a gap', async () => {
    const lanes = await open([gated('slow'), echo]);
    lanes.stops.open('slow');
    await lanes.ended(await lanes.say('slow'), await lanes.say('quick'), await lanes.say('slow again'));
    const seqs = await lanes.rows.entries({}, 'seq');
    expect(seqs.map(({ seq }) => seq)).toEqual(seqs.map((_, index) => index + 1));
  });
});

describe('an input to a busy session', () => {
  it('waits its turn in mode followup', async () => {
    const lanes = await open([gated('slow'), echo]);
    const slow = await lanes.say('slow');
    await lanes.stops.entered('slow');
    const next = await lanes.say('next');
    expect(await lanes.wait(next, 0)).toMatchObject({ state: 'queued' });
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
    await lanes.say('slow');
    await lanes.stops.entered('slow');
    const mode = 'collect' as const;
    const runs = [await lanes.say('one', { mode }), await lanes.say('two', { mode }), await lanes.say('three', { mode })];
    const waiting = lanes.ended(...runs);
    lanes.stops.open('slow');
    expect(await waiting).toEqual(['ok: re: three', 'ok: re: three', 'ok: re: three']);
    expect(await lanes.ended(...runs)).toEqual(['ok: re: three', 'ok: re: three', 'ok: re: three']);
    expect((await lanes.transcript()).slice(4)).toEqual(['user: one', 'user: two', 'user: three', 'assistant: re: three']);
    expect(await lanes.outgoing()).toEqual(['re: slow', 're: three']);
  });

  it('is not collected across somebody else, or across a followup', async () => {
    const lanes = await open([gated('slow'), echo]);
    await lanes.say('slow');
    await lanes.stops.entered('slow');
    const mode = 'collect' as const;
    const runs = [
      await lanes.say('a', { mode }),
      await lanes.say('b', { mode }),
      await lanes.say('c', { mode, from: 'bo' }),
      await lanes.say('d', { mode }),
      await lanes.say('e'),
      await lanes.say('f', { mode }),
    ];
    lanes.stops.open('slow');
    expect(await lanes.ended(...runs)).toEqual(['ok: re: b', 'ok: re: b', 'ok: re: c', 'ok: re: d', 'ok: re: e', 'ok: re: f']);
  });

  it('joins the running turn at its next step in mode steer; its run id stays good for everyone who waits', async () => {
    const lanes = await open([gated('slow'), echo]);
    const slow = await lanes.say('slow');
    await lanes.stops.entered('slow');
    const steer = await lanes.say('rather this', { mode: 'steer' });
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
    const [kept] = await lanes.rows.runs({ id: slow }, 'pk');
    expect(await lanes.rows.runs({ merged_into: kept!.pk }, 'id', 'state')).toEqual([{ id: steer, state: 'ok' }]);
    expect(await lanes.outgoing()).toEqual(['re: rather this']);
  });

  it('keeps its run id good in mode steer also when the turn it joined fails, is stopped or restarted', async () => {
    const fails: ScriptText = [{ when: 'rather', steps: [{ fail: 'no' }] }, gated('slow')];
    const failing = await open(fails);
    await failing.say('slow');
    await failing.stops.entered('slow');
    const steer = await failing.say('rather this', { mode: 'steer' });
    failing.stops.open('slow');
    expect(await failing.wait(steer)).toMatchObject({ state: 'error', error: 'no' });

    const stops: ScriptText = [gated('rather'), gated('slow')];
    const stopped = await open(stops);
    const slow = await stopped.say('slow');
    await stopped.stops.entered('slow');
    const joined = await stopped.say('rather this', { mode: 'steer' });
    stopped.stops.open('slow');
    await stopped.stops.entered('rather');
    const again = await stopped.restart({ script: stops });
    await again.run(slow, 'running');
    await again.abort(slow, 'enough');
    expect(await again.wait(joined)).toMatchObject({ state: 'aborted' });
  });

  it('is the next turn in mode steer when the running one has no further step', async () => {
    const lanes = await open([{ when: 'slow', steps: [{ sleepMs: 7_777, say: 'slept' }] }, echo]);
    const slow = await lanes.say('slow');
    await lanes.settled();
    const steer = await lanes.say('too late', { mode: 'steer' });
    await lanes.clock.advance(7_777);
    expect(await lanes.ended(slow, steer)).toEqual(['ok: slept', 'ok: re: too late']);
  });

  it('is a turn of its own in mode steer when somebody else speaks, or nothing runs', async () => {
    const lanes = await open([gated('slow'), echo]);
    expect(await lanes.ended(await lanes.say('idle', { mode: 'steer' }))).toEqual(['ok: re: idle']);
    const slow = await lanes.say('slow');
    await lanes.stops.entered('slow');
    const other = await lanes.say('from bo', { mode: 'steer', from: 'bo' });
    lanes.stops.open('slow');
    expect(await lanes.ended(slow, other)).toEqual(['ok: re: slow', 'ok: re: from bo']);
  });

  it('stops the running turn in mode interrupt; what was queued before it keeps its place', async () => {
    const lanes = await open([gated('slow'), echo]);
    const slow = await lanes.say('slow');
    await lanes.stops.entered('slow');
    const queued = await lanes.say('queued');
    const urgent = await lanes.say('urgent', { mode: 'interrupt' });
    expect(await lanes.ended(slow, queued, urgent)).toEqual(['aborted', 'ok: re: queued', 'ok: re: urgent']);
    expect(await lanes.transcript()).toEqual([
      'user: slow',
      'assistant: ',
      expect.stringContaining('toolResult: {"status":"error"'),
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
    const asks = await lanes.say('go');
    await lanes.run(asks, 'waiting');
    const urgent = await lanes.say('urgent', { mode: 'interrupt' });
    expect(await lanes.ended(asks, urgent)).toEqual(['aborted', 'ok: re: urgent']);
    expect(await lanes.rows.waits()).toEqual([]);
    lanes.stops.open('ask on');
    await lanes.event((event) => event.kind === 'exchange' && event.state === 'done');
    expect(await lanes.rows.runs({ lane: 'agent:b:main' }, 'state')).toEqual([{ state: 'ok' }, { state: 'ok' }]);
  });
});

describe('abort', () => {
  it('ends a queued run at once, with its reason; it never starts, and those behind it go on', async () => {
    const lanes = await open([gated('slow'), echo]);
    const slow = await lanes.say('slow');
    await lanes.stops.entered('slow');
    const queued = await lanes.say('queued');
    const last = await lanes.say('last');
    expect(await lanes.abort(queued, 'changed my mind')).toMatchObject({ aborted: true });
    expect(await lanes.wait(queued, 0)).toMatchObject({ state: 'aborted', error: 'changed my mind', errorCode: 'ABORTED' });
    lanes.stops.open('slow');
    expect(await lanes.ended(slow, last)).toEqual(['ok: re: slow', 'ok: re: last']);
    expect(await lanes.transcript()).not.toContain('user: queued');
    expect(await lanes.rows.inputs({ state: 'aborted' }, 'state', 'reason')).toEqual([{ state: 'aborted', reason: 'changed my mind' }]);
  });

  it('ends the head of a lane that waits for a slot, and lets the next one be taken', async () => {
    const lanes = await open([gated('slow'), echo], { caps: ones, config: { session: { dmScope: 'per-peer' } } });
    await lanes.say('slow', { from: 'ana' });
    await lanes.stops.entered('slow');
    const head = await lanes.say('head', { from: 'bo' });
    const next = await lanes.say('next', { from: 'bo' });
    await lanes.abort(head, 'no');
    lanes.stops.open('slow');
    expect(await lanes.ended(head, next)).toEqual(['aborted', 'ok: re: next']);
  });

  it('stops a running turn, and nothing of it is sent', async () => {
    const lanes = await open([gated('slow'), echo]);
    const slow = await lanes.say('slow');
    await lanes.stops.entered('slow');
    const next = await lanes.say('next');
    expect(await lanes.abort(slow, 'enough')).toMatchObject({ aborted: true });
    expect(await lanes.ended(slow, next)).toEqual(['aborted', 'ok: re: next']);
    expect(await lanes.outgoing()).toEqual(['re: next']);
  });

  it('leaves no call without a result, so that the next turn has a whole transcript', async () => {
    const lanes = await open([gated('slow'), echo]);
    const slow = await lanes.say('slow');
    await lanes.stops.entered('slow');
    await lanes.abort(slow, 'enough');
    await lanes.wait(slow);
    expect(await lanes.rows.calls({}, 'state')).toEqual([{ state: 'done' }]);
    const results = await lanes.rows.entries({ role: 'toolResult' });
    expect(results.map(({ body }) => JSON.parse(body!) as object)).toMatchObject([{ toolCallId: '1.0', isError: true }]);
  });

  it('ends a waiting run and its wait; the run it waited for goes on', async () => {
    const lanes = await open([silent, { agent: 'b', ...gated('ask on', 'late') }, passesOn('a', 'b')], { config: team });
    const asks = await lanes.say('go');
    await lanes.run(asks, 'waiting');
    const next = await lanes.accept('next', { sessionKey: 'agent:c:main', text: 'hello' });
    expect(await lanes.abort(asks, 'enough')).toMatchObject({ aborted: true });
    expect(await lanes.wait(asks, 0)).toMatchObject({ state: 'aborted', error: 'enough' });
    expect(await lanes.rows.waits()).toEqual([]);
    lanes.stops.open('ask on');
    await lanes.event((event) => event.kind === 'exchange' && event.state === 'done');
    expect(await lanes.ended(next.runId)).toEqual(['ok']);
    expect((await lanes.rows.runsOf('exchange', { lane: 'agent:b:main' }))[0]).toMatchObject({ state: 'ok' });
  });

  it('of a run that is over says so and changes nothing; of one that does not exist is an error', async () => {
    const lanes = await open([echo]);
    const run = await lanes.say('hello');
    await lanes.ended(run);
    expect(await lanes.abort(run, 'late')).toEqual({ aborted: false, stopping: [] });
    expect(await lanes.ended(run)).toEqual(['ok: re: hello']);
    await expect(lanes.abort('nobody', 'x')).rejects.toMatchObject({ code: 'RUN_NOT_FOUND' });
  });

  it('that the gateway did not live to carry out is carried out at the next start', async () => {
    const script = [gated('slow'), echo];
    const lanes = await open(script);
    const slow = await lanes.say('slow');
    await lanes.stops.entered('slow');
    const next = await lanes.say('next');
    await lanes.close();
    asIfKilled(lanes.stateDir, slow, { abort_requested: 'enough' });
    const again = await lanes.start();
    expect(await again.wait(slow, 0)).toMatchObject({ state: 'aborted', error: 'enough' });
    expect(await again.ended(next)).toEqual(['ok: re: next']);
  });
});

describe('a budget', () => {
  it('ends a turn that takes longer as "timeout"', async () => {
    const lanes = await open([gated('slow'), echo]);
    await lanes.accept('slow', { budgetMs: 2_000 });
    await lanes.stops.entered('slow');
    await lanes.clock.advance(1_999);
    expect(await lanes.wait('slow', 0)).toMatchObject({ state: 'running' });
    await lanes.clock.advance(1);
    expect(await lanes.wait('slow')).toMatchObject({ state: 'timeout', errorCode: 'TIMEOUT', error: expect.stringContaining('2000') });
  });

  it('does not count the time in the queue', async () => {
    const lanes = await open([gated('slow'), gated('other'), echo]);
    await lanes.accept('slow');
    await lanes.stops.entered('slow');
    await lanes.accept('other', { budgetMs: 2_000 });
    await lanes.clock.advance(60_000);
    lanes.stops.open('slow');
    await lanes.stops.entered('other');
    await lanes.clock.advance(1_999);
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
    await lanes.clock.advance(1_500);
    lanes.stops.open('before');
    await lanes.run('asks', 'waiting');
    await lanes.clock.advance(1_900);
    lanes.stops.open('ask on');
    await lanes.stops.entered('after');
    await lanes.clock.advance(499);
    expect(await lanes.wait('asks', 0)).toMatchObject({ state: 'running' });
    await lanes.clock.advance(1);
    expect(await lanes.ended('asks')).toEqual(['timeout']);
  });
});

describe('an idempotency key', () => {
  it('makes a message that arrives twice one message, also at the same time and after it was answered', async () => {
    const lanes = await open([echo]);
    const runs = await Promise.all(Array.from({ length: 10 }, () => lanes.say('hello', { id: 'm1' })));
    expect(new Set(runs).size).toBe(1);
    await lanes.ended(runs[0]!);
    expect(await lanes.say('hello', { id: 'm1' })).toBe(runs[0]);
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
    await lanes.ended(await lanes.say('hello', { id: 'm1' }));
    await expect(lanes.say('goodbye', { id: 'm1' })).rejects.toMatchObject({ code: 'IDEMPOTENCY_CONFLICT' });
    expect(await lanes.transcript()).toEqual(['user: hello', 'assistant: re: hello']);
    expect(await lanes.rows.runs({}, 'id')).toHaveLength(1);
  });

  it('of another sender is another message', async () => {
    const lanes = await open([echo]);
    const [one, other] = [await lanes.say('hello', { id: 'm1' }), await lanes.say('hello', { id: 'm1', from: 'bo' })];
    expect(one).not.toBe(other);
  });

  it('holds after a restart, and across a reset', async () => {
    const lanes = await open([echo]);
    const run = await lanes.say('hello', { id: 'm1' });
    await lanes.ended(run);
    await lanes.reset(main);
    const again = await lanes.restart();
    expect(await again.say('hello', { id: 'm1' })).toBe(run);
    await expect(again.say('goodbye', { id: 'm1' })).rejects.toMatchObject({ code: 'IDEMPOTENCY_CONFLICT' });
    expect(await again.transcript()).toEqual([]);
  });
});

describe('an idempotency key of a deleted session', () => {
  it('is forgotten with its run: the message may come again', async () => {
    const config = { session: { dmScope: 'per-peer' as const } };
    const lanes = await open([echo], { config });
    await lanes.ended(await lanes.say('hello', { id: 'm1' }));
    await lanes.outgoing();
    await lanes.closeSession('agent:main:direct:you', 'deleted', false);
    const again = await lanes.restart();
    await again.until(async () => (await again.rows.sessions({ state: 'deleted' })).length === 0);
    expect(await again.ended(await again.say('hello', { id: 'm1' }))).toEqual(['ok: re: hello']);
  });
});

describe('wait', () => {
  it('answers any number of callers before, during and after the run with the same', async () => {
    const lanes = await open([gated('first'), gated('second'), echo]);
    await lanes.say('first');
    await lanes.stops.entered('first');
    const run = await lanes.say('second');
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
    const over = await lanes.say('over');
    const view = await lanes.wait(over);
    const slow = await lanes.say('slow');
    await lanes.stops.entered('slow');
    const queued = await lanes.say('queued');
    const again = await lanes.restart();
    expect(await again.wait(over)).toEqual(view);
    const waiting = [again.wait(slow), again.wait(slow), again.wait(queued)];
    again.stops.open('slow');
    expect((await Promise.all(waiting)).map(({ reply }) => reply)).toEqual(['re: slow', 're: slow', 're: queued']);
  });

  it('says what the run is doing when the time is over or the caller has gone; the run goes on', async () => {
    const lanes = await open([gated('slow'), echo]);
    const slow = await lanes.say('slow');
    await lanes.stops.entered('slow');
    expect(await lanes.wait(slow, 0)).toMatchObject({ runId: slow, state: 'running' });
    const timed = lanes.wait(slow, 3_333);
    await lanes.clock.advance(3_333);
    expect(await timed).toMatchObject({ state: 'running' });
    const caller = new AbortController();
    const left = lanes.wait(slow, 3_600_000, caller.signal);
    caller.abort();
    expect(await left).toMatchObject({ state: 'running' });
    lanes.stops.open('slow');
    expect(await lanes.ended(slow)).toEqual(['ok: re: slow']);
  });

  it('for a run that does not exist is an error', async () => {
    const lanes = await open([echo]);
    await expect(lanes.wait('nobody', 0)).rejects.toMatchObject({ code: 'RUN_NOT_FOUND' });
  });
});

describe('reset', () => {
  it('gives the key a new life: another session id and an empty transcript, and the old one is kept', async () => {
    const lanes = await open([echo]);
    await lanes.ended(await lanes.say('before'));
    const [old] = await lanes.rows.sessions({ key: main, current: 1 });
    const { session } = await lanes.reset(main);
    expect(session).toMatchObject({ key: main, life: 2, current: 1, next_seq: 1, delivery: old!.delivery });
    expect(session.id).not.toBe(old!.id);
    expect(await lanes.transcript()).toEqual([]);
    await lanes.ended(await lanes.say('after'));
    expect(await lanes.transcript()).toEqual(['user: after', 'assistant: re: after']);
    expect(await lanes.rows.entries({ session_pk: old!.pk }, 'text')).toEqual([{ text: 'before' }, { text: 're: before' }]);
  });

  it('ends what was queued with the reason and stops what runs; the next life answers', async () => {
    const lanes = await open([gated('slow'), echo]);
    const slow = await lanes.say('slow');
    await lanes.stops.entered('slow');
    const queued = [await lanes.say('one'), await lanes.say('two')];
    await lanes.reset(main);
    for (const run of queued) expect(await lanes.wait(run, 0)).toMatchObject({ state: 'aborted', error: 'reset' });
    expect(await lanes.rows.inputs({ state: 'aborted' }, 'reason')).toEqual([{ reason: 'reset' }, { reason: 'reset' }]);
    const next = await lanes.say('next life');
    expect(await lanes.ended(slow, next)).toEqual(['aborted', 'ok: re: next life']);
    expect(await lanes.transcript()).toEqual(['user: next life', 'assistant: re: next life']);
    expect(await lanes.outgoing()).toEqual(['re: next life']);
  });

  it('ends a run that waits for another session', async () => {
    const lanes = await open([silent, { agent: 'b', ...gated('ask on', 'late') }, passesOn('a', 'b')], { config: team });
    const asks = await lanes.say('go');
    await lanes.run(asks, 'waiting');
    await lanes.reset('agent:a:main');
    expect(await lanes.wait(asks, 0)).toMatchObject({ state: 'aborted', error: 'reset' });
    expect(await lanes.rows.waits()).toEqual([]);
  });

  it('twice in a row leaves one current life and no run that hangs', async () => {
    const lanes = await open([gated('slow'), echo]);
    const slow = await lanes.say('slow');
    await lanes.stops.entered('slow');
    await lanes.reset(main);
    const between = await lanes.say('between');
    await lanes.reset(main);
    const last = await lanes.say('last');
    expect(await lanes.ended(slow, between, last)).toEqual(['aborted', expect.any(String), 'ok: re: last']);
    expect(await lanes.rows.sessions({ key: main, current: 1 }, 'life')).toEqual([{ life: 3 }]);
  });

  it('of a session that does not exist is an error', async () => {
    const lanes = await open([echo]);
    await expect(lanes.reset('agent:main:nobody')).rejects.toMatchObject({ code: 'SESSION_NOT_FOUND' });
  });
});

describe('archive and delete', () => {
  const archive = (lanes: TestGateway, key: string, force = false) => lanes.closeSession(key, 'archived', force);

  it('are refused while a run is queued, running or waiting', async () => {
    const lanes = await open([silent, { agent: 'b', ...gated('ask on', 'late') }, passesOn('a', 'b')], { config: team });
    const asks = await lanes.say('go');
    await lanes.run(asks, 'waiting');
    await lanes.stops.entered('ask on');
    for (const key of ['agent:a:main', 'agent:b:main']) {
      await expect(archive(lanes, key)).rejects.toMatchObject({ code: 'SESSION_BUSY' });
      await expect(lanes.closeSession(key, 'deleted', false)).rejects.toMatchObject({ code: 'SESSION_BUSY' });
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
        { agent: 'a', ...gated('reply', 'REPLY_SKIP'), when: told.reply },
        { agent: 'b', steps: [{ say: 'first' }] },
        passesOn('a', 'b', 0),
      ],
      { config },
    );
    await lanes.ended(await lanes.say('go'));
    await lanes.stops.entered('reply');
    // b has nothing to do right now, but it will have to announce.
    await expect(archive(lanes, 'agent:b:main')).rejects.toMatchObject({ code: 'SESSION_BUSY' });
    lanes.stops.open('reply');
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
    await lanes.ended(await lanes.say('hello'));
    await arrived.promise;
    await expect(archive(lanes, main)).rejects.toMatchObject({ code: 'SESSION_BUSY' });
    release.resolve();
    await lanes.event((event) => event.kind === 'delivery' && event.state === 'sent');
    await archive(lanes, main);
  });

  it('stop what is open when forced', async () => {
    const lanes = await open([gated('slow'), echo]);
    const slow = await lanes.say('slow');
    await lanes.stops.entered('slow');
    const queued = await lanes.say('queued');
    await archive(lanes, main, true);
    expect(await lanes.ended(slow, queued)).toEqual(['aborted', 'aborted']);
    expect(await lanes.wait(queued)).toMatchObject({ error: 'archived' });
  });

  it('archive keeps the transcript: a new message brings the same life back', async () => {
    const lanes = await open([echo], { channels: [] });
    await lanes.ended(await lanes.say('before'));
    await lanes.event((event) => event.kind === 'delivery' && event.state === 'failed');
    await archive(lanes, main);
    expect(await lanes.rows.sessions({ key: main }, 'state', 'current')).toEqual([{ state: 'archived', current: 1 }]);
    await lanes.ended(await lanes.say('after'));
    expect(await lanes.transcript()).toEqual(['user: before', 'assistant: re: before', 'user: after', 'assistant: re: after']);
  });

  it('delete frees the key and the label: who writes next opens a new life', async () => {
    const lanes = await open([echo]);
    const key = 'agent:main:loopback:direct:ana';
    const made = { agent: 'main', kind: 'other', label: 'lunch', clearance: 'RESTRICTED' as const };
    const first = await lanes.accept('first', { sessionKey: key, open: { ...made, id: 's1' } });
    await lanes.ended('first');
    await lanes.closeSession(key, 'deleted', false);
    await expect(lanes.accept('second', { sessionKey: key })).rejects.toMatchObject({ code: 'SESSION_NOT_FOUND' });
    const third = await lanes.accept('third', { sessionKey: key, open: { ...made, id: 's2' } });
    expect(third.sessionId).not.toBe(first.sessionId);
    await lanes.ended('third');
    expect(await lanes.transcript(key)).toEqual(['user: third', 'assistant: re: third']);
    expect(await lanes.rows.sessions({ key, current: 1 }, 'id', 'state', 'label')).toEqual([{ id: 's2', state: 'live', label: 'lunch' }]);
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
    const { state, reply } = await lanes.wait(await lanes.say('go'));
    expect(state).toBe('ok');
    expect(reply).toContain('deep');
    const asked = [...(await lanes.rows.runsOf('none')), ...(await lanes.rows.turns()).filter(({ turn }) => turn === 0)];
    expect(asked.map(({ lane, state: end }) => `${lane} ${end}`).toSorted()).toEqual(
      ['a', 'b', 'c', 'd', 'e'].map((agent) => `agent:${agent}:main ok`),
    );
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
    const run = await lanes.say('go');
    await lanes.stops.entered('ask on');
    const again = await lanes.restart();
    again.stops.open('ask on');
    const { state, reply } = await again.wait(run);
    expect(state).toBe('ok');
    expect(reply).toContain('deep');
    expect(await again.rows.exchanges()).toHaveLength(4);
  });
});

describe('a restart', () => {
  it('in the middle of a sleeping turn resumes it, and it ends once', async () => {
    const script = [{ when: 'nap', steps: [{ calls: [{ tool: 'agents_list' }] }, { sleepMs: 60_000, say: 'slept' }] }, echo];
    const lanes = await open(script);
    const run = await lanes.say('nap', { id: 'm1' });
    await lanes.settled();
    const queued = await lanes.say('queued');
    const again = await lanes.restart();
    await again.clock.advance(60_000);
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
    const ends = (await again.rows.runHistory()).filter(([id, state]) => id === run && !['queued', 'running', 'waiting'].includes(state));
    expect(ends).toEqual([[run, 'ok']]);
    expect(await again.rows.runs({ id: run }, 'crashes')).toEqual([{ crashes: 0 }]);
    expect(again.sent.filter(({ text }) => text === 'slept')).toHaveLength(1);
  });

  it('keeps the lane closed behind a turn that is resumed', async () => {
    const script = [gated('slow'), echo];
    const lanes = await open(script);
    const slow = await lanes.say('slow');
    await lanes.stops.entered('slow');
    const again = await lanes.restart();
    const next = await again.say('next');
    expect(await again.wait(next, 0)).toMatchObject({ state: 'queued' });
    again.stops.open('slow');
    expect(await again.ended(slow, next)).toEqual(['ok: re: slow', 'ok: re: next']);
  });

  it('does not lose a wait: the answer arrives in the next life of the gateway', async () => {
    const script = [silent, { agent: 'b', ...gated('ask on', 'late') }, passesOn('a', 'b')];
    const lanes = await open(script, { config: team });
    const asks = await lanes.say('go');
    await lanes.run(asks, 'waiting');
    await lanes.stops.entered('ask on');
    const again = await lanes.restart();
    expect(await again.wait(asks, 0)).toMatchObject({ state: 'waiting' });
    again.stops.open('ask on');
    expect((await again.wait(asks)).reply).toContain('late');
  });

  it('after a kill resumes the run, but not one that was killed more than 3 times', async () => {
    const script = [gated('slow'), echo];
    const lanes = await open(script);
    const slow = await lanes.say('slow');
    await lanes.stops.entered('slow');
    const next = await lanes.say('next');
    for (const kills of [1, 2, 3]) {
      await lanes.close();
      asIfKilled(lanes.stateDir, slow);
      await lanes.start();
      await lanes.stops.entered('slow', kills + 1);
      expect(await lanes.rows.runs({ id: slow }, 'state', 'crashes')).toEqual([{ state: 'running', crashes: kills }]);
    }
    await lanes.close();
    asIfKilled(lanes.stateDir, slow);
    await lanes.start();
    expect(await lanes.wait(slow, 0)).toMatchObject({ state: 'error', errorCode: 'POISON' });
    expect(await lanes.ended(next)).toEqual(['ok: re: next']);
  });
});

// The contract between the engine and a runner, on the in-memory twin, with turns taken by hand -------------------------

async function byHand(options: { deaf?: boolean; caps?: typeof ones } = {}): Promise<Hand> {
  const hand = await engineByHand({ config: {}, ...options });
  onTestFinished(() => hand.close());
  return hand;
}
const accept = (hand: Hand, runId: string) => hand.accept(runId, { budgetMs: 9_000 });

describe('whatever a runner does, its run ends exactly once', () => {
  const transcript = (hand: Hand) => hand.rows.entries({ role: 'assistant' }, 'text', 'body');

  it('an abort keeps what was said so far, marked, and not as a reply', async () => {
    const hand = await byHand();
    await accept(hand, 'r');
    const { turn } = await hand.turn('r');
    turn.delta('half a ');
    turn.delta('sentence');
    await hand.abort('r', 'enough');
    const view = await hand.wait('r', 60_000);
    expect(view).toMatchObject({ state: 'aborted', errorCode: 'ABORTED' });
    expect(view.reply).toBeUndefined();
    expect(await transcript(hand)).toEqual([{ text: 'half a sentence', body: '{"aborted":true}' }]);
    expect(await hand.rows.sessions({}, 'aborted_last')).toEqual([{ aborted_last: 1 }]);
  });

  it('an abort does not say again what a step has already said', async () => {
    const hand = await byHand();
    await accept(hand, 'r');
    const { turn } = await hand.turn('r');
    turn.delta('first step');
    await turn.step({ text: 'first step', calls: [], usage: { input: 0, output: 1 } });
    turn.delta('second');
    await hand.abort('r', 'enough');
    await hand.wait('r', 60_000);
    expect((await transcript(hand)).map(({ text }) => text)).toEqual(['first step', 'second']);
  });

  it('a timeout keeps what was said so far', async () => {
    const hand = await byHand();
    await accept(hand, 'r');
    const { turn } = await hand.turn('r');
    turn.delta('slow');
    await hand.clock.advance(9_000);
    expect(await hand.wait('r', 60_000)).toMatchObject({ state: 'timeout' });
    expect(await transcript(hand)).toEqual([{ text: 'slow', body: '{"aborted":true}' }]);
  });

  it('a runner that throws ends its run as an error, and what it had said is dropped', async () => {
    const hand = await byHand();
    await accept(hand, 'r');
    await accept(hand, 'next');
    const { turn, fail } = await hand.turn('r');
    turn.delta('so');
    fail(new Error('the model is gone'));
    expect(await hand.wait('r', 60_000)).toMatchObject({ state: 'error', errorCode: 'RUN_FAILED', error: 'the model is gone' });
    expect(await transcript(hand)).toEqual([]);
    await hand.turn('next');
  });

  it('a runner that stops without an end ends its run as an error', async () => {
    const hand = await byHand();
    await accept(hand, 'r');
    (await hand.turn('r')).leave();
    expect(await hand.wait('r', 60_000)).toMatchObject({ state: 'error', errorCode: 'RUN_FAILED' });
  });

  it('a runner that ends its turn and then throws, or ends it twice, has ended it once', async () => {
    const hand = await byHand();
    await accept(hand, 'r');
    const { turn, fail } = await hand.turn('r');
    await turn.end({ text: 'done', usage: { input: 0, output: 1 } });
    await expect(turn.end({ text: 'again', usage: { input: 0, output: 1 } })).rejects.toMatchObject({ code: 'LEASE_LOST' });
    fail(new Error('late'));
    expect(await hand.wait('r', 60_000)).toMatchObject({ state: 'ok', reply: 'done' });
    expect(await transcript(hand)).toEqual([{ text: 'done', body: null }]);
    expect((await hand.rows.runHistory()).map(([, state]) => state)).toEqual(['queued', 'running', 'ok']);
  });

  it('a runner that takes its time to stop holds its lane until it has: the next life of a reset session waits for it', async () => {
    const hand = await byHand({ deaf: true });
    await accept(hand, 'old');
    const { turn, fail } = await hand.turn('old');
    await hand.reset('main');
    await accept(hand, 'new');
    expect(turn.signal.aborted).toBe(true);
    expect(await hand.wait('old', 0)).toMatchObject({ state: 'running' });
    expect(await hand.wait('new', 0)).toMatchObject({ state: 'queued' });
    fail(new Error('stopped at last'));
    const next = await hand.turn('new');
    expect(await hand.wait('old', 0)).toMatchObject({ state: 'aborted' });
    expect(next.turn.sessionId).not.toBe(turn.sessionId);
    next.leave();
    expect((await hand.rows.runHistory()).map((one) => one.join(' ')).slice(0, 5)).toEqual([
      'old queued',
      'old running',
      'new queued',
      'old aborted',
      'new running',
    ]);
  });

  it('an abort that was acknowledged beats an end that is on its way', async () => {
    const hand = await byHand({ deaf: true });
    await accept(hand, 'r');
    const { turn, leave } = await hand.turn('r');
    const stopped = hand.abort('r', 'enough');
    const ending = turn.end({ text: 'too late', usage: { input: 0, output: 1 } }).finally(leave);
    expect(await stopped).toMatchObject({ aborted: true });
    await Promise.allSettled([ending]);
    const view = await hand.wait('r', 60_000);
    expect(view).toMatchObject({ state: 'aborted', error: 'enough' });
    expect(view.reply).toBeUndefined();
  });

  it('an abort that meets a turn on its way to wait stops it at once', async () => {
    const hand = await byHand();
    await accept(hand, 'r');
    const { turn } = await hand.turn('r');
    await turn.step({ text: '', calls: [{ providerId: 'x', tool: 't', args: {}, effect: 'keyed' }], usage: { input: 0, output: 0 } });
    await hand.rows.addWait('r');
    const stopped = hand.abort('r', 'enough');
    const parking = turn.park();
    expect(await stopped).toMatchObject({ aborted: true });
    await Promise.allSettled([parking]);
    expect(await hand.wait('r', 60_000)).toMatchObject({ state: 'aborted' });
    expect(await hand.rows.waits()).toEqual([]);
  });

  it('a turn that is over can write nothing any more', async () => {
    const hand = await byHand();
    await accept(hand, 'r');
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

describe('the first run of a new life', () => {
  it('does not start while a run of the old one still ends, however long its queue was', async () => {
    const hand = await byHand({ deaf: true, caps: { ...ones, main: 2 } });
    await hand.accept('active');
    const { leave } = await hand.turn('active');
    for (let count = 0; count < 120; count++) await hand.accept(`queued ${count}`);
    const reset = hand.reset('main');
    const accepted = hand.accept('new');
    await Promise.all([reset, accepted]);
    expect(await hand.wait('queued 119', 60_000)).toMatchObject({ state: 'aborted' });
    // The sweep has ended the whole queue; the lane is still busy.
    expect(await hand.wait('new', 0)).toMatchObject({ state: 'queued' });
    expect(await hand.wait('active', 0)).toMatchObject({ state: 'running' });
    leave();
    const next = await hand.turn('new');
    await next.turn.end({ text: 'hello', usage: { input: 0, output: 0 } });
    next.leave();
    expect(hand.warnings).toEqual([]);
  });
});
