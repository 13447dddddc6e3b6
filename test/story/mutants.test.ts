// Each of these is a small change of the code that once went unnoticed: what it would break, seen from outside.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setImmediate as immediate } from 'node:timers/promises';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { z } from 'zod';
import type { Channel, Outbound, SendOutcome } from '../../src/channels/channel.ts';
import { connect, type Client } from '../../src/client/client.ts';
import { Config } from '../../src/config/schema.ts';
import { InterlaneError } from '../../src/errors.ts';
import type { GatewayOptions } from '../../src/gateway.ts';
import { defineTool, type ToolContext } from '../../src/tools/define.ts';
import { sessionsSend } from '../../src/tools/sessions-send.ts';
import { HandClock } from '../clock.ts';
import { forTest, gates, say, Stage, type ConfigText, type ScriptText } from './stage.ts';

// A lost wake-up would otherwise wait for ever.
vi.setConfig({ testTimeout: 30_000, hookTimeout: 30_000 });

const listen = { host: '127.0.0.1', port: 0, version: 'test', token: 'the-admin-of-this-test' };
const echo = { steps: [{ say: 're: {{input}}' }] };
const call = (tool: string, args: Record<string, unknown> = {}) => ({ calls: [{ tool, args }] });
const open = { tools: { sessions: { visibility: 'all' as const }, agentToAgent: { enabled: true } } };

async function started(config: ConfigText, script: ScriptText, more: Partial<GatewayOptions> = {}, clock = new HandClock()) {
  const stage = await forTest(new Stage(clock)).start({ session: { dmScope: 'per-peer' }, ...config }, script, { listen, ...more });
  return { stage, clock, admin: await connected(stage) };
}

async function connected(stage: Stage, token = listen.token): Promise<Client> {
  const about = { id: 'test', version: '1', platform: 'test', mode: 'cli' };
  const client = await connect({ url: stage.gateway.server!.url, token, client: about });
  onTestFinished(() => client.close());
  return client;
}

const ended = (client: Client, runId: string) => client.call('agent.wait', { runId, timeoutMs: 86_400_000 });

/** Looks again and again; what never comes fails the test instead of spinning on behind it. */
async function until(holds: () => boolean | Promise<boolean>): Promise<void> {
  for (let looks = 0; !(await holds()); looks++) {
    if (looks === 100_000) throw new Error('it never came');
    await immediate();
  }
}

/** Lets a second pass at a time until the promise settles. */
async function inSeconds<T>(clock: HandClock, seen: Promise<T>): Promise<T> {
  const state = { settled: false };
  const settle = () => void (state.settled = true);
  seen.then(settle, settle);
  for (let seconds = 0; !state.settled; seconds++) {
    if (seconds === 10_000) throw new Error('it never came');
    clock.advance(1_000);
    for (let looks = 0; looks < 5; looks++) await immediate();
  }
  return await seen;
}

/** A platform that answers as a test says; without a word it takes everything. */
function platform(answer: (message: Outbound) => SendOutcome | undefined = () => undefined): Channel & { got: string[] } {
  const got: string[] = [];
  return {
    name: 'loopback',
    got,
    // oxlint-disable-next-line require-await -- asynchronous by contract
    async send(message) {
      got.push(message.text);
      return answer(message) ?? { outcome: 'sent' };
    },
  };
}

describe('a token', () => {
  it('with the right id and another secret opens no door', async () => {
    const { stage, admin } = await started({}, []);
    const { token } = await admin.call('tokens.create', { name: 'reader' });
    const { token: guest } = await admin.call('guests.join', { name: 'fable' });
    const { url } = stage.gateway.server!;
    const forged = (secret: string) => secret.slice(0, 20) + secret.slice(20).split('').toReversed().join('');
    await expect(connected(stage, forged(token))).rejects.toMatchObject({ code: expect.stringMatching(/UNAUTHORIZED|AUTH/) });
    const asked = (path: string, secret: string, init: RequestInit = {}) =>
      fetch(url + path, { ...init, headers: { authorization: `Bearer ${secret}`, 'content-type': 'application/json' } });
    expect((await asked('/sessions', forged(token))).status).toBe(401);
    expect((await asked('/mcp', forged(guest), { method: 'POST', body: '{"jsonrpc":"2.0","id":1,"method":"ping"}' })).status).toBe(401);
    expect((await fetch(`${url}/sessions`, { headers: { cookie: `interlane=${forged(token)}` } })).status).toBe(401);
    expect((await asked('/sessions', token)).status).toBe(200);
  });
});

describe('a guest', () => {
  const tools = async (stage: Stage, admin: Client, name: string) => {
    const { token, key } = await admin.call('guests.join', { name });
    const ask = async (tool: string, args: object) => {
      const headers = { authorization: `Bearer ${token}` };
      const response = await fetch(`${stage.gateway.server!.url}/tools/${tool}`, { method: 'POST', headers, body: JSON.stringify(args) });
      return (await response.json()) as { ok: boolean; result?: { turnId: string; status: string }; error?: { code: string } };
    };
    return { key, ask };
  };

  it('cannot answer the turn of another guest', async () => {
    const { stage, admin } = await started({}, []);
    const [fable, swift] = [await tools(stage, admin, 'fable'), await tools(stage, admin, 'swift')];
    const { runId } = await admin.call('sessions.send', { key: fable.key, message: 'Which colour?' });
    const { result } = await fable.ask('inbox', {});
    const { turnId } = result!;
    expect(await swift.ask('reply', { turnId, text: 'Red.' })).toMatchObject({ ok: false, error: { code: 'TURN_NOT_OPEN' } });
    expect(await fable.ask('reply', { turnId, text: 'Blue.' })).toMatchObject({ ok: true });
    expect(await ended(admin, runId)).toMatchObject({ status: 'ok', terminalReply: { text: 'Blue.' } });
  });

  it('that is gone gives back what it took, not what another has taken since', async () => {
    const { stage, admin } = await started({}, []);
    const fable = await tools(stage, admin, 'fable');
    await admin.call('sessions.send', { key: fable.key, message: 'Which colour?' });
    const first = await fable.ask('inbox', {});
    const second = await fable.ask('inbox', { again: true });
    await stage.gateway.engine.giveBack(first.result!.turnId);
    // Were it open again, this would be a message.
    expect(await fable.ask('inbox', { waitSeconds: 0 })).toMatchObject({ result: { status: 'unanswered', turnId: second.result!.turnId } });
    await stage.gateway.engine.giveBack(second.result!.turnId);
    expect(await fable.ask('inbox', { waitSeconds: 0 })).toMatchObject({ result: { status: 'message', attempt: 3 } });
  });
});

describe('a rule that takes something out', () => {
  it('refuses the arguments of a tool instead of changing them', async () => {
    const done: string[] = [];
    const note = defineTool({
      name: 'note',
      description: 'Write down.',
      effect: 'once',
      params: z.strictObject({ text: z.string() }),
      // oxlint-disable-next-line require-await -- asynchronous by contract
      async run(_, { text }) {
        done.push(text);
        return { value: 'noted' };
      },
    });
    const rules = [{ id: 'no-pin', hook: 'PRE_TOOL_CALL' as const, match: { text: 'pin [0-9]+' }, effect: 'REDACT' as const }];
    const script = [{ steps: [call('note', { text: '{{input}}' }), { say: '{{result}}' }] }];
    const { stage, admin } = await started({ policy: { rules } }, script, { tools: [note] });
    const secret = await ended(admin, (await say(stage.gateway, 'the pin 1234')).runId);
    expect(secret.terminalReply!.text).toContain('POLICY_BLOCKED');
    const plain = await ended(admin, (await say(stage.gateway, 'milk')).runId);
    expect(plain.terminalReply!.text).toBe('noted');
    expect(done).toEqual(['milk']);
  });
});

describe('what leaves', () => {
  it('is asked about again at each attempt: a rule that came meanwhile stops it', async () => {
    const channel = platform(() => ({ outcome: 'retry', error: 'busy', afterMs: 2_000 }));
    const { stage, admin, clock } = await started({}, [echo], { channels: [channel] });
    await say(stage.gateway, 'hello');
    await until(() => channel.got.length === 1);
    await until(async () => (await admin.call('status')).deliveries.pending === 1);
    const deny = { session: { dmScope: 'per-peer' as const, sendPolicy: { rules: [{ match: {}, action: 'deny' as const }] } } };
    await stage.gateway.reload(Config.parse(deny));
    await clock.until(
      2_000,
      until(async () => (await admin.call('status')).deliveries.pending === 0),
    );
    expect((await admin.call('status')).deliveries).toMatchObject({ pending: 0, dead: 1 });
    expect(channel.got).toEqual(['re: hello']);
  });

  it('does not leave where the caller said so', async () => {
    const channel = platform();
    const { stage, admin } = await started({}, [echo], { channels: [channel] });
    await ended(admin, (await say(stage.gateway, 'one')).runId);
    const sessionKey = 'agent:main:direct:you';
    for (const [message, deliver] of [
      ['two', false],
      ['three', true],
    ] as const) {
      await admin.call('chat.send', { sessionKey, message, deliver, idempotencyKey: message });
      await ended(admin, message);
    }
    await until(() => channel.got.includes('re: three'));
    expect(channel.got).toEqual(['re: one', 're: three']);
  });

  it('lets those behind it pass when it could not be sent for ten minutes', async () => {
    const channel = platform(({ text }) => (text === 're: one' ? { outcome: 'retry', error: 'away', afterMs: 60_000 } : undefined));
    const { stage, clock } = await started({}, [echo], { channels: [channel], listen: { ...listen } });
    await say(stage.gateway, 'one');
    await say(stage.gateway, 'two');
    const from = clock.now();
    for (let minutes = 0; minutes < 15 && !channel.got.includes('re: two'); minutes++) {
      const attempts = channel.got.length;
      await clock.until(
        60_000,
        until(() => channel.got.length > attempts),
      );
    }
    expect(channel.got.at(-1)).toBe('re: two');
    expect(clock.now() - from).toBeGreaterThanOrEqual(600_000);
  });
});

describe('an exchange', () => {
  it('that takes longer than an hour goes on while it has a turn to come', async () => {
    const gate = gates();
    const channel = platform();
    const config = { ...open, agents: { list: [{ id: 'ana', default: true }, { id: 'bo' }], defaults: { timeoutSeconds: 0 } } };
    const script = [
      { when: 'REPLY_SKIP', steps: [{ say: 'REPLY_SKIP' }] },
      { agent: 'bo', when: 'ANNOUNCE_SKIP', steps: [{ say: 'It is done.' }] },
      { agent: 'bo', when: 'work', steps: [call('gate', { name: 'work' }), { say: 'Worked.' }] },
      {
        agent: 'ana',
        when: 'ask',
        steps: [
          call('sessions_send', { sessionKey: 'agent:bo:loopback:group:team', message: 'work', timeoutSeconds: 0 }),
          { say: 'asked' },
        ],
      },
      echo,
    ];
    const bindings = [{ agentId: 'bo', match: { channel: 'loopback', peer: { kind: 'group' as const, id: 'team' } } }];
    const { stage, clock } = await started({ ...config, bindings }, script, { tools: [gate.tool], channels: [channel] });
    await stage.gateway.receive({ origin: { channel: 'loopback', peer: { kind: 'group', id: 'team' } }, text: 'hello', sender: 'you' });
    await say(stage.gateway, 'ask');
    await gate.entered('work');
    // Past the hour, and past every sweep in it.
    await clock.pass(2 * 3_600_000, async () => {
      for (let looks = 0; looks < 5; looks++) await immediate();
    });
    gate.open('work');
    await until(() => channel.got.includes('It is done.'));
    expect(channel.got.filter((text) => text === 'It is done.')).toHaveLength(1);
  });
});

describe('a subscriber', () => {
  /** Forty days pass, and what is kept for thirty is gone. Connections do not live through that. */
  const forgotten = async (stage: Stage) => {
    stage.clock.time += 40 * 86_400_000;
    await stage.clock.until(
      60_000,
      until(async () => (await (await connected(stage)).call('runs.list')).runs.length === 0),
    );
  };

  it('that comes too late is told once to start over, and goes on from there', async () => {
    const { stage } = await started({}, [echo]);
    for (let count = 0; count < 5; count++) await ended(await connected(stage), (await say(stage.gateway, 'hello')).runId);
    await forgotten(stage);
    const heard: string[] = [];
    const failed = Promise.withResolvers<never>();
    const undo = stage.gateway.bus.subscribe(
      {
        wants: () => true,
        deliver: (event) => void heard.push(event.kind),
        reset() {
          heard.push('reset');
          if (heard.length > 100) throw new Error('it is told again and again'); // else it would go round for ever
        },
        failed: failed.reject,
      },
      0,
    );
    onTestFinished(undo);
    await say(stage.gateway, 'again');
    await Promise.race([failed.promise, until(() => heard.filter((kind) => kind === 'run').length >= 3)]);
    expect(heard.filter((kind) => kind === 'reset')).toHaveLength(1);
  });
});

describe('a lease', () => {
  it('that is old does not send: a turn that was given up and taken again acts once', async () => {
    let old: ToolContext | undefined;
    const outcomes: unknown[] = [];
    const keep = defineTool({
      name: 'keep',
      description: 'Keep who calls.',
      effect: 'pure',
      params: z.strictObject({}),
      // oxlint-disable-next-line require-await -- asynchronous by contract
      async run(context) {
        old = context;
        return { value: 'kept' };
      },
    });
    const late = defineTool({
      name: 'late',
      description: 'Send as who was kept.',
      effect: 'pure',
      params: z.strictObject({}),
      async run() {
        const args = { sessionKey: 'agent:bo:main', message: 'from the past', timeoutSeconds: 0 };
        outcomes.push(await sessionsSend.run(old!, args).catch((thrown: InterlaneError) => thrown.code));
        return { value: 'tried' };
      },
    });
    const config = { ...open, agents: { list: [{ id: 'ana', default: true }, { id: 'bo' }] } };
    const script = [
      { when: 'REPLY_SKIP', steps: [{ say: 'REPLY_SKIP' }] },
      { when: 'ANNOUNCE_SKIP', steps: [{ say: 'ANNOUNCE_SKIP' }] },
      {
        agent: 'ana',
        when: 'go',
        steps: [
          call('keep'),
          call('sessions_send', { sessionKey: 'agent:bo:main', message: 'wait for me', timeoutSeconds: 60 }),
          call('late'),
          { say: 'done' },
        ],
      },
      echo,
    ];
    const { stage, admin } = await started(config, script, { tools: [keep, late] });
    expect(await ended(admin, (await say(stage.gateway, 'go')).runId)).toMatchObject({ status: 'ok', terminalReply: { text: 'done' } });
    expect(outcomes).toEqual(['LEASE_LOST']);
    await stage.settled();
    const { messages } = (await admin.call('chat.history', { sessionKey: 'agent:bo:main' })) as { messages: object[] };
    expect(JSON.stringify(messages)).not.toContain('from the past');
  });

  it('that is lost is no result of a tool: the next gateway takes the turn up again', async () => {
    let calls = 0;
    const write = defineTool({
      name: 'write',
      description: 'Write.',
      effect: 'keyed',
      params: z.strictObject({}),
      // oxlint-disable-next-line require-await -- asynchronous by contract
      async run() {
        if (++calls === 1) throw new InterlaneError('LEASE_LOST', 'run is no longer held by this gateway');
        return { value: 'written' };
      },
    });
    const script = [{ steps: [call('write'), { say: '{{result}}' }] }];
    const { stage } = await started({}, script, { tools: [write] });
    const { runId } = await say(stage.gateway, 'hello');
    await until(() => calls === 1);
    await stage.close();
    await stage.start({ session: { dmScope: 'per-peer' } }, [], { tools: [write], listen });
    expect(await ended(await connected(stage), runId)).toMatchObject({ status: 'ok', terminalReply: { text: 'written' } });
    expect(calls).toBe(2);
  });
});

describe('a stop', () => {
  it('does not give a turn its time anew', async () => {
    const gate = gates();
    const config = { session: { dmScope: 'per-peer' as const }, agents: { defaults: { timeoutSeconds: 60 } } };
    const script = [{ steps: [call('gate', { name: 'gate' }), { say: 'x' }] }];
    const { stage, clock } = await started(config, script, { tools: [gate.tool] });
    const { runId } = await say(stage.gateway, 'hello');
    await gate.entered('gate');
    clock.advance(20_000);
    await stage.close();
    const again = gates();
    await stage.start(config, [], { tools: [again.tool], listen });
    await again.entered('gate');
    const from = clock.now();
    const run = await inSeconds(clock, stage.gateway.engine.wait(runId, 3_600_000));
    expect(run).toMatchObject({ state: 'timeout' });
    expect(clock.now() - from).toBeLessThanOrEqual(45_000);
  });

  it('waits for a claim that is under way, so that the run in it was no crash', async () => {
    const clock = new HandClock();
    const stage = await forTest(new Stage(clock)).start({}, [echo]);
    const { runId } = await say(stage.gateway, 'hello');
    await stage.close(); // the claim of the run has just been asked for
    expect(stage.warnings).toEqual([]);
    await stage.start({}, []);
    expect(await stage.gateway.engine.wait(runId, 60_000)).toMatchObject({ state: 'ok', reply: 're: hello' });
    expect(await stage.rows('SELECT crashes FROM runs')).toEqual([{ crashes: 0 }]);
  });
});

describe('a wall clock that is set forward', () => {
  /** Wall time that jumps without any timer going off. */
  class JumpingClock extends HandClock {
    jumped = 0;
    override now() {
      return this.time + this.jumped;
    }
  }
  const armed = async () => {
    for (let looks = 0; looks < 50; looks++) await immediate();
  };

  it('is noticed within seconds: waits and collected messages are due', async () => {
    const clock = new JumpingClock();
    const gate = gates();
    const config = {
      ...open,
      agents: { list: [{ id: 'ana', default: true }, { id: 'bo' }], defaults: { timeoutSeconds: 0 } },
      session: { dmScope: 'per-peer' as const, queue: { collectMs: 60_000 } },
    };
    const ask = call('sessions_send', { sessionKey: 'agent:bo:main', message: 'work', timeoutSeconds: 600 });
    const script = [
      { agent: 'ana', when: 'ask', steps: [ask, { say: '{{result}}' }] },
      { agent: 'bo', steps: [call('gate', { name: 'work' }), { say: 'x' }] },
      echo,
    ];
    const { stage, admin } = await started(config, script, { tools: [gate.tool] }, clock);
    const { runId: asks } = await say(stage.gateway, 'ask', 'ann');
    await gate.entered('work');
    await until(async () => (await admin.call('agent.wait', { runId: asks, timeoutMs: 0 })).state === 'waiting');
    const { runId: collects } = await say(stage.gateway, 'collect', 'cy', { mode: 'collect' });
    await armed();
    clock.jumped += 700_000;
    const from = clock.time;
    const [waited, collected] = await inSeconds(clock, Promise.all([ended(admin, asks), ended(admin, collects)]));
    expect(waited.terminalReply!.text).toContain('"status":"timeout"');
    expect(collected).toMatchObject({ status: 'ok' });
    expect(clock.time - from).toBeLessThanOrEqual(15_000);
  });

  it('is noticed within seconds: what could not be sent is tried again', async () => {
    const clock = new JumpingClock();
    const channel = platform(() => (channel.got.length === 1 ? { outcome: 'retry', error: 'busy', afterMs: 280_000 } : undefined));
    const { stage, admin } = await started({}, [echo], { channels: [channel] }, clock);
    await say(stage.gateway, 'hello');
    await until(async () => channel.got.length === 1 && (await admin.call('status')).deliveries.pending === 1);
    await armed();
    clock.jumped += 700_000;
    const from = clock.time;
    await inSeconds(
      clock,
      until(() => channel.got.length === 2),
    );
    expect(clock.time - from).toBeLessThanOrEqual(15_000);
  });
});

describe('runs that were under way in two crashes', () => {
  /** The state as a kill leaves it, at this moment, in a directory of its own. */
  const killed = (stage: Stage): Stage => {
    const stateDir = mkdtempSync(join(tmpdir(), 'interlane-killed-'));
    onTestFinished(() => rmSync(stateDir, { recursive: true, force: true }));
    const database = new DatabaseSync(join(stage.stateDir, 'interlane.db'));
    database.exec(`VACUUM INTO '${join(stateDir, 'interlane.db')}'`);
    database.close();
    return forTest(new Stage(new HandClock(), stateDir));
  };

  it('are tried again one at a time', async () => {
    const config = { session: { dmScope: 'per-peer' as const } };
    const script = [{ when: 'gate', steps: [call('gate', { name: '{{input}}' }), { say: 're: {{input}}' }] }, echo];
    const begin = async (stage: Stage) => {
      const entered = new Set<string>();
      const gate = gates();
      for (const name of ['gate a', 'gate b']) void gate.entered(name).then(() => entered.add(name));
      await stage.start(config, script, { tools: [gate.tool] });
      return { gate, entered };
    };
    let stage = forTest(new Stage(new HandClock()));
    let { gate, entered } = await begin(stage);
    const { runId: a } = await say(stage.gateway, 'gate a', 'ann');
    const { runId: b } = await say(stage.gateway, 'gate b', 'bob');
    for (let kills = 1; kills <= 2; kills++) {
      await until(() => entered.size === 2);
      stage = killed(stage);
      ({ gate, entered } = await begin(stage));
    }
    await until(() => entered.size > 0);
    // Others are not held up, and when they are through every claim that could be made was made.
    const { runId: other } = await say(stage.gateway, 'hello', 'cy');
    expect(await stage.gateway.engine.wait(other, 60_000)).toMatchObject({ state: 'ok' });
    expect(entered.size).toBe(1);
    gate.open([...entered][0]!);
    await until(() => entered.size === 2);
    gate.open([...entered][1]!);
    for (const run of [a, b]) expect(await stage.gateway.engine.wait(run, 60_000)).toMatchObject({ state: 'ok' });
  });
});
