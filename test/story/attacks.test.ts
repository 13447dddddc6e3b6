// What an attacker of the engine found once, kept from coming back.
import { z } from 'zod';
import { describe, expect, it } from 'vitest';
import { purgeSome } from '../../src/engine/retention.ts';
import { InterlaneError } from '../../src/errors.ts';
import type { Gateway } from '../../src/gateway.ts';
import type { Command } from '../../src/store/contract.ts';
import { defineTool } from '../../src/tools/define.ts';
import { HandClock, RealClock, type StageClock } from '../clock.ts';
import { eventOf, forTest, say as write, Stage, type ConfigText, type ScriptText } from './stage.ts';

const ask = (more: object = {}) => ({
  when: 'ask',
  steps: [{ calls: [{ tool: 'sessions_send', args: { sessionKey: 'agent:b:main', message: 'q', ...more } }] }, { say: '{{result}}' }],
});

/** A tool that waits until it is let go. */
function gate() {
  const entered = Promise.withResolvers<void>();
  const opened = Promise.withResolvers<void>();
  const tool = defineTool({
    name: 'gate',
    description: 'Wait.',
    effect: 'pure',
    params: z.strictObject({}),
    async run() {
      entered.resolve();
      await opened.promise;
      return { value: 'open' };
    },
  });
  return { tool, entered: entered.promise, open: () => opened.resolve() };
}

async function start(
  settings: object,
  script: object[],
  tools: ReturnType<typeof gate>['tool'][] = [],
  clock: StageClock = new RealClock(),
) {
  const config: ConfigText = {
    agents: { list: [{ id: 'a', default: true }, { id: 'b' }] },
    tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } },
    ...settings,
  };
  const { gateway, sent } = await forTest(new Stage(clock)).start(config, script as ScriptText, { tools });
  return { gateway, out: sent };
}

const say = (gateway: Gateway, text: string, peer = 'p', messageId?: string) => write(gateway, text, peer, messageId ? { messageId } : {});
const answer = async (gateway: Gateway, text: string, peer?: string) =>
  (await gateway.engine.wait((await say(gateway, text, peer)).runId, 10_000)).reply ?? '';

const delivered = (gateway: Gateway, count: number, state = 'sent') =>
  eventOf(gateway, (event) => event.kind === 'delivery' && event.state === state, 0, count);

describe('a reply', () => {
  it('goes to who asked, also when another person has written to the same session since', async () => {
    const stop = gate();
    const { gateway, out } = await start(
      {},
      [{ when: 'alice', steps: [{ calls: [{ tool: 'gate' }] }, { say: 'for alice' }] }, { steps: [{ say: 'for bob' }] }],
      [stop.tool],
    );
    const first = await say(gateway, 'alice', 'alice');
    await stop.entered;
    const second = await say(gateway, 'bob', 'bob');
    expect(second.sessionKey).toBe(first.sessionKey);
    stop.open();
    await delivered(gateway, 2);
    expect(out.map(({ recipient, text }) => [recipient, text])).toEqual([
      ['alice', 'for alice'],
      ['bob', 'for bob'],
    ]);
  });

  it('that policy does not let out is a row with its reason', async () => {
    const { gateway, out } = await start({ session: { sendPolicy: { default: 'deny' } } }, [{ steps: [{ say: 'hello' }] }]);
    const dead = delivered(gateway, 1, 'dead');
    await answer(gateway, 'x');
    await dead;
    expect(out).toEqual([]);
  });

  it.each([
    ['BLOCK', '"status":"error"'],
    ['REDACT', 'pw [redacted]'],
  ])('that another session waits for passes the door: %s', async (effect, says) => {
    const rules = [{ id: 'r', hook: 'PRE_CONTEXT_INJECTION', match: { text: 'hunter2' }, effect }];
    const { gateway } = await start({ policy: { rules } }, [ask(), { steps: [{ say: 'pw hunter2' }] }]);
    const reply = await answer(gateway, 'ask');
    expect(reply).toContain(says);
    expect(reply).not.toContain('hunter2');
  });
});

describe('the result of a tool', () => {
  it.each(['BLOCK', 'REDACT'])('passes the rules at POST_TOOL_RESPONSE: %s', async (effect) => {
    const rules = [{ id: 'r', hook: 'POST_TOOL_RESPONSE', match: { tool: 'session_*', text: 'agent:a:main' }, effect }];
    const { gateway } = await start({ policy: { rules } }, [{ steps: [{ calls: [{ tool: 'session_status' }] }, { say: '{{result}}' }] }]);
    expect(await answer(gateway, 'x')).not.toContain('agent:a:main');
  });

  it('of a list is cut like a history, whatever was said', async () => {
    const { gateway } = await start({}, [
      { when: 'list', steps: [{ calls: [{ tool: 'sessions_list', args: { messageLimit: 20 } }] }, { say: '{{result}}' }] },
      { steps: [{ say: 'ok' }] },
    ]);
    for (let n = 0; n < 12; n++) await answer(gateway, 'x'.repeat(50_000));
    const listed = await answer(gateway, 'list');
    expect(listed.length).toBeLessThan(120_000);
    expect(listed).toContain('"truncated":true');
  });

  it('says so when a cursor is none', async () => {
    const { gateway } = await start({}, [
      { steps: [{ calls: [{ tool: 'sessions_list', args: { cursor: 'not one!' } }] }, { say: '{{result}}' }] },
    ]);
    expect(await answer(gateway, 'x')).toContain('cursor is not one');
  });
});

describe('a run', () => {
  it('that is aborted while one of its calls waits and another works stops, and its lane goes on', async () => {
    const stop = gate();
    const slow = { agent: 'b', steps: [{ sleepMs: 3_600_000 }] };
    const both = {
      agent: 'a',
      when: 'both',
      steps: [
        { calls: [{ tool: 'sessions_send', args: { sessionKey: 'agent:b:main', message: 'q', timeoutSeconds: 3_600 } }, { tool: 'gate' }] },
        { say: 'late' },
      ],
    };
    const { gateway } = await start({}, [both, slow, { steps: [{ say: 'next' }] }], [stop.tool]);
    const { runId } = await say(gateway, 'both');
    await stop.entered;
    const next = await say(gateway, 'hello');
    await gateway.engine.abort(runId, 'enough');
    stop.open();
    expect(await gateway.engine.wait(runId, 10_000)).toMatchObject({ state: 'aborted' });
    expect(await gateway.engine.wait(next.runId, 10_000)).toMatchObject({ state: 'ok', reply: 'next' });
  });

  it.each(['end run', 'claim runs'])('comes to its end when the store fails for a moment at "%s"', async (name) => {
    const clock = new HandClock();
    const { gateway } = await start({}, [{ steps: [{ say: 'ok' }] }], [], clock);
    const { store } = gateway;
    const write = store.write.bind(store);
    let failures = 1;
    store.write = (<A, R>(command: Command<A, R, never>, args: A, options?: object) => {
      if (command.name === name && failures-- > 0) return Promise.reject(new InterlaneError('STORE_FAILED', 'the disk is full'));
      return write(command as never, args as never, options);
    }) as typeof store.write;
    const retrying = clock.asleep(1_000);
    const { runId } = await say(gateway, 'x');
    await retrying;
    clock.advance(1_000);
    expect(await gateway.engine.wait(runId, 10_000)).toMatchObject({ state: 'ok', reply: 'ok' });
    expect(failures).toBeLessThanOrEqual(0);
  });
});

describe('a wait that times out', () => {
  it('wakes its caller at that time, with the run that goes on, though nothing else happens', async () => {
    const stop = gate();
    const clock = new HandClock();
    const { gateway } = await start(
      {},
      [
        { agent: 'a', ...ask({ timeoutSeconds: 1 }) },
        { agent: 'b', when: 'Message from', steps: [{ calls: [{ tool: 'gate' }] }, { say: 'late' }] },
        { steps: [{ say: 'ANNOUNCE_SKIP' }] },
      ],
      [stop.tool],
      clock,
    );
    const waiting = clock.asleep(1_000);
    const asked = answer(gateway, 'ask');
    await waiting;
    clock.advance(1_000);
    const told = JSON.parse(await asked) as { status: string; runId: string };
    expect(told).toMatchObject({ status: 'timeout' });
    expect(await gateway.engine.wait(told.runId, 0)).toMatchObject({ state: 'running' });
    stop.open();
    expect(await gateway.engine.wait(told.runId, 10_000)).toMatchObject({ state: 'ok', reply: 'late' });
  });
});

describe('a turn that is stopped', () => {
  it('keeps the reason it was stopped for', async () => {
    const stop = gate();
    const { gateway } = await start({}, [{ steps: [{ calls: [{ tool: 'gate' }] }] }], [stop.tool]);
    const { runId } = await say(gateway, 'x');
    await stop.entered;
    await gateway.engine.abort(runId, 'changed my mind');
    expect(await gateway.engine.wait(runId, 10_000)).toMatchObject({ state: 'aborted', error: 'changed my mind' });
  });
});

describe('after everything old was forgotten', () => {
  it('nothing new is taken for something old: sends, calls and repeated messages work', async () => {
    const { gateway } = await start({}, [
      ask({ timeoutSeconds: 0 }),
      { agent: 'b', when: 'exchange with', steps: [{ say: 'ANNOUNCE_SKIP' }] },
      { steps: [{ say: 'REPLY_SKIP' }] },
    ]);
    const purge = async (keepMs: number) => {
      while ((await gateway.store.write(purgeSome, { now: Date.now() + 1_000_000, keepMs })) > 0);
    };
    const over = () => eventOf(gateway, (event) => event.kind === 'exchange' && event.state === 'done');
    const sent = async () => {
      const done = over();
      const reply = JSON.parse(await answer(gateway, 'ask')) as { runId: string };
      await done;
      return reply.runId;
    };
    const first = await sent();
    await delivered(gateway, 1);
    await purge(1);
    expect(await sent()).not.toBe(first);
    await say(gateway, 'hello', 'p', 'platform-1');
    await gateway.engine.closeSession('agent:a:main', 'deleted', true);
    await purge(Infinity);
    expect((await gateway.engine.wait((await say(gateway, 'hello', 'p', 'platform-1')).runId, 10_000)).state).toBe('ok');
  });
});
