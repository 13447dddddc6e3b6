// What an attacker of the engine found once, kept from coming back.
import { describe, expect, it } from 'vitest';
import { testGateway, type ScriptText, type TestGateway } from '../harness/gateway.ts';
import { failWrite, purge } from '../harness/inside.ts';
import { told } from '../harness/words.ts';

const ask = (more: object = {}) => ({
  when: 'ask',
  steps: [{ calls: [{ tool: 'sessions_send', args: { sessionKey: 'agent:b:main', message: 'q', ...more } }] }, { say: '{{result}}' }],
});

const start = (settings: object, script: object[]): Promise<TestGateway> =>
  testGateway({
    config: {
      agents: { list: [{ id: 'a', default: true }, { id: 'b' }] },
      tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } },
      ...settings,
    },
    script: script as ScriptText,
    stops: true,
  });

const gate = { tool: 'gate', args: { name: 'x' } };
const answer = async (gateway: TestGateway, text: string) => (await gateway.answer(text)).reply ?? '';
const delivered = (gateway: TestGateway, count: number, state = 'sent') =>
  gateway.event((event) => event.kind === 'delivery' && event.state === state, { nth: count });

describe('a reply', () => {
  it('goes to who asked, also when another person has written to the same session since', async () => {
    const gateway = await start({}, [{ when: 'alice', steps: [{ calls: [gate] }, { say: 'for alice' }] }, { steps: [{ say: 'for bob' }] }]);
    const first = await gateway.say('alice', { from: 'alice' });
    await gateway.stops.entered('x');
    const second = await gateway.say('bob', { from: 'bob' });
    gateway.stops.open('x');
    await delivered(gateway, 2);
    expect((await gateway.wait(second)).sessionKey).toBe((await gateway.wait(first)).sessionKey);
    expect(gateway.sent.map(({ recipient, text }) => [recipient, text])).toEqual([
      ['alice', 'for alice'],
      ['bob', 'for bob'],
    ]);
  });

  it('that policy does not let out is a row with its reason', async () => {
    const gateway = await start({ session: { sendPolicy: { default: 'deny' } } }, [{ steps: [{ say: 'hello' }] }]);
    const dead = delivered(gateway, 1, 'dead');
    await answer(gateway, 'x');
    await dead;
    expect(gateway.sent).toEqual([]);
  });

  it.each([
    ['BLOCK', '"status":"error"'],
    ['REDACT', 'pw [redacted]'],
  ])('that another session waits for passes the door: %s', async (effect, says) => {
    const rules = [{ id: 'r', hook: 'PRE_CONTEXT_INJECTION', match: { text: 'hunter2' }, effect }];
    const gateway = await start({ policy: { rules } }, [ask(), { steps: [{ say: 'pw hunter2' }] }]);
    const reply = await answer(gateway, 'ask');
    expect(reply).toContain(says);
    expect(reply).not.toContain('hunter2');
  });
});

describe('the result of a tool', () => {
  it.each(['BLOCK', 'REDACT'])('passes the rules at POST_TOOL_RESPONSE: %s', async (effect) => {
    const rules = [{ id: 'r', hook: 'POST_TOOL_RESPONSE', match: { tool: 'session_*', text: 'agent:a:main' }, effect }];
    const gateway = await start({ policy: { rules } }, [{ steps: [{ calls: [{ tool: 'session_status' }] }, { say: '{{result}}' }] }]);
    expect(await answer(gateway, 'x')).not.toContain('agent:a:main');
  });

  it('of a list is cut like a history, whatever was said', async () => {
    const gateway = await start({}, [
      { when: 'list', steps: [{ calls: [{ tool: 'sessions_list', args: { messageLimit: 20 } }] }, { say: '{{result}}' }] },
      { steps: [{ say: 'ok' }] },
    ]);
    for (let n = 0; n < 12; n++) await answer(gateway, 'x'.repeat(50_000));
    const listed = await answer(gateway, 'list');
    expect(listed.length).toBeLessThan(120_000);
    expect(listed).toContain('"truncated":true');
  });

  it('says so when a cursor is none', async () => {
    const gateway = await start({}, [
      { steps: [{ calls: [{ tool: 'sessions_list', args: { cursor: 'not one!' } }] }, { say: '{{result}}' }] },
    ]);
    expect(await answer(gateway, 'x')).toContain('cursor');
  });
});

describe('a run', () => {
  it('that is aborted while one of its calls waits and another works stops, and its lane goes on', async () => {
    const slow = { agent: 'b', steps: [{ sleepMs: 3_600_000 }] };
    const both = {
      agent: 'a',
      when: 'both',
      steps: [
        { calls: [{ tool: 'sessions_send', args: { sessionKey: 'agent:b:main', message: 'q', timeoutSeconds: 3_600 } }, gate] },
        { say: 'late' },
      ],
    };
    const gateway = await start({}, [both, slow, { steps: [{ say: 'next' }] }]);
    const runId = await gateway.say('both');
    await gateway.stops.entered('x');
    const next = await gateway.say('hello');
    await gateway.abort(runId, 'enough');
    gateway.stops.open('x');
    expect(await gateway.wait(runId)).toMatchObject({ state: 'aborted' });
    expect(await gateway.wait(next)).toMatchObject({ state: 'ok', reply: 'next' });
  });

  it.each(['end run', 'claim runs'])('comes to its end when the store fails for a moment at "%s"', async (name) => {
    const gateway = await start({}, [{ steps: [{ say: 'ok' }] }]);
    const failed = failWrite(gateway, name);
    const runId = await gateway.say('x');
    await gateway.clock.advance(1_000);
    expect(await gateway.wait(runId)).toMatchObject({ state: 'ok', reply: 'ok' });
    expect(failed()).toBe(true);
  });
});

describe('a wait that times out', () => {
  it('wakes its caller at that time, with the run that goes on, though nothing else happens', async () => {
    const gateway = await start({}, [
      { agent: 'a', ...ask({ timeoutSeconds: 1 }) },
      { agent: 'b', when: told.message, steps: [{ calls: [gate] }, { say: 'late' }] },
      { steps: [{ say: 'ANNOUNCE_SKIP' }] },
    ]);
    const asked = answer(gateway, 'ask');
    await gateway.stops.entered('x');
    await gateway.clock.advance(1_000);
    const heard = JSON.parse(await asked) as { status: string; runId: string };
    expect(heard).toMatchObject({ status: 'timeout' });
    expect(await gateway.wait(heard.runId, 0)).toMatchObject({ state: 'running' });
    gateway.stops.open('x');
    expect(await gateway.wait(heard.runId)).toMatchObject({ state: 'ok', reply: 'late' });
  });
});

describe('a turn that is stopped', () => {
  it('keeps the reason it was stopped for', async () => {
    const gateway = await start({}, [{ steps: [{ calls: [gate] }] }]);
    const runId = await gateway.say('x');
    await gateway.stops.entered('x');
    await gateway.abort(runId, 'changed my mind');
    expect(await gateway.wait(runId)).toMatchObject({ state: 'aborted', error: 'changed my mind' });
  });
});

describe('after everything old was forgotten', () => {
  it('nothing new is taken for something old: sends, calls and repeated messages work', async () => {
    const gateway = await start({}, [
      ask({ timeoutSeconds: 0 }),
      { agent: 'b', when: told.announce, steps: [{ say: 'ANNOUNCE_SKIP' }] },
      { steps: [{ say: 'REPLY_SKIP' }] },
    ]);
    let exchanges = 0;
    const over = () => gateway.event((event) => event.kind === 'exchange' && event.state === 'done', { nth: ++exchanges });
    const sent = async () => {
      const done = over();
      const reply = JSON.parse(await answer(gateway, 'ask')) as { runId: string };
      await done;
      return reply.runId;
    };
    const first = await sent();
    await delivered(gateway, 1);
    await purge(gateway, { now: gateway.now() + 1_000_000, keepMs: 1 });
    exchanges = 0;
    expect(await sent()).not.toBe(first);
    await gateway.say('hello', { id: 'platform-1' });
    await gateway.closeSession('agent:a:main', 'deleted', true);
    await purge(gateway);
    expect((await gateway.answer('hello', { id: 'platform-1' })).state).toBe('ok');
  });
});
