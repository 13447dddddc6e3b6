// What the harness itself promises: time passes only when nothing else can happen, and a restart goes on with the same state.
import { existsSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { testGateway } from './gateway.ts';
import { told } from './words.ts';

const team = {
  agents: { list: [{ id: 'ana', default: true }, { id: 'bo' }] },
  session: { agentToAgent: { maxPingPongTurns: 2 } },
  tools: { sessions: { visibility: 'all' as const }, agentToAgent: { enabled: true } },
};
const send = { tool: 'sessions_send', args: { sessionKey: 'agent:bo:main', message: 'Lunch?', timeoutSeconds: 0 } };

describe('a settled gateway', () => {
  it('has done everything that needs no time: turns, an exchange, an announce and deliveries', async () => {
    const gw = await testGateway({
      config: team,
      script: [
        { agent: 'bo', when: told.announce, steps: [{ say: 'ANNOUNCE_SKIP' }] },
        { agent: 'ana', when: '^\\n', steps: [{ calls: [send] }, { say: 'asked' }] },
        { steps: [{ say: 'and?' }] },
      ],
    });
    await gw.say('go');
    await gw.settled();
    expect(await gw.rows.open()).toBe(0);
    expect((await gw.rows.turns()).map(({ turn }) => turn)).toEqual([0, 1, 2, 3]);
    expect(gw.sent.map(({ text }) => text)).toEqual(['asked']);
  });

  it('has a timer for what comes next', async () => {
    const gw = await testGateway({ script: [{ steps: [{ sleepMs: 1_234, say: 'late' }] }] });
    const run = await gw.say('go');
    await gw.settled();
    expect(gw.clock.nextMs).toBe(1_234);
    expect(await gw.wait(run, 0)).toMatchObject({ state: 'running' });
  });
});

describe('the manual clock', () => {
  it('goes from timer to timer, and each finds what the ones before it have brought about', async () => {
    const nap = { sleepMs: 1_000, calls: [{ tool: 'agents_list' }] };
    const gw = await testGateway({ script: [{ steps: [nap, nap, { sleepMs: 1_000, say: 'awake' }] }] });
    const [run, begun] = [await gw.say('go'), gw.now()];
    await gw.clock.advance(2_999);
    expect(await gw.wait(run, 0)).toMatchObject({ state: 'running' });
    await gw.clock.advance(1);
    await gw.settled();
    expect(await gw.wait(run, 0)).toMatchObject({ state: 'ok', reply: 'awake' });
    expect(gw.now() - begun).toBe(3_000);
  });

  it('stands still while a gateway closes that waits for nothing', async () => {
    const gw = await testGateway({ listen: true });
    await gw.call('health');
    const before = gw.now();
    await gw.restart();
    expect(gw.now()).toBe(before);
  });
});

describe('a test gateway', () => {
  it('starts again on the same state and port, and its client connects again', async () => {
    const gw = await testGateway({ listen: true });
    await gw.answer('hello');
    const { port } = gw;
    await gw.restart();
    expect(gw.port).toBe(port);
    const { sessions } = await gw.call('sessions.list');
    expect(sessions).toHaveLength(1);
    expect(await gw.transcript()).toEqual(['user: hello', 'assistant: re: hello']);
  });

  it('leaves nothing behind', async () => {
    let directory: string;
    {
      await using gw = await testGateway({ shared: true });
      directory = gw.stateDir;
      expect(existsSync(directory)).toBe(true);
    }
    expect(existsSync(directory)).toBe(false);
  });

  it('calls tools as a session, in a turn of its own', async () => {
    const gw = await testGateway({ caller: 'agent:main:main' });
    expect(await gw.tool<{ key: string }>('session_status')).toMatchObject({ key: 'agent:main:main' });
  });
});
