// Each of these is a small change of the code that once went unnoticed: what it would break, seen from outside.
import { rmSync } from 'node:fs';
import { describe, expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import type { Channel, Outbound, SendOutcome } from '../../src/channels/channel.ts';
import { InterlaneError } from '../../src/errors.ts';
import { defineTool, type ToolContext } from '../../src/tools/define.ts';
import { sessionsSend } from '../../src/tools/sessions-send.ts';
import { testGateway, type ConfigText, type ScriptText, type TestGateway, type TestOptions } from '../harness/gateway.ts';
import { copyOfState } from '../harness/rows.ts';

const echo = { steps: [{ say: 're: {{input}}' }] };
const call = (tool: string, args: Record<string, unknown> = {}) => ({ calls: [{ tool, args }] });
const open = { tools: { sessions: { visibility: 'all' as const }, agentToAgent: { enabled: true } } };

const started = (config: ConfigText = {}, script: ScriptText = [echo], more: TestOptions = {}) =>
  testGateway({ config: { session: { dmScope: 'per-peer' }, ...config }, script, listen: true, stops: true, ...more });
const deliveries = async (gw: TestGateway) => (await gw.call('status')).deliveries;

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
    const gw = await started();
    const token = await gw.token('reader');
    const { token: guest } = await gw.call('guests.join', { name: 'fable' });
    const forged = (secret: string) => secret.slice(0, 20) + secret.slice(20).split('').toReversed().join('');
    await expect(gw.client({ token: forged(token) })).rejects.toMatchObject({ code: 'UNAUTHORIZED' });
    expect((await gw.http('/sessions', { token: forged(token) })).status).toBe(401);
    expect((await gw.post('/mcp', { jsonrpc: '2.0', id: 1, method: 'ping' }, { token: forged(guest) })).status).toBe(401);
    expect((await gw.http('/sessions', { token: '', headers: { cookie: `interlane=${forged(token)}` } })).status).toBe(401);
    expect((await gw.http('/sessions', { token })).status).toBe(200);
  });
});

describe('a guest', () => {
  const tools = async (gw: TestGateway, name: string) => {
    const { token, key } = await gw.call('guests.join', { name });
    const ask = async (tool: string, args: object) => (await gw.post(`/tools/${tool}`, args, { token })).json;
    return { key, ask };
  };

  it('cannot answer the turn of another guest', async () => {
    const gw = await started();
    const [fable, swift] = [await tools(gw, 'fable'), await tools(gw, 'swift')];
    const { runId } = await gw.call('sessions.send', { key: fable.key, message: 'Which colour?' });
    const { turnId } = (await fable.ask('inbox', {})).result;
    expect(await swift.ask('reply', { turnId, text: 'Red.' })).toMatchObject({ ok: false, error: { code: 'TURN_NOT_OPEN' } });
    expect(await fable.ask('reply', { turnId, text: 'Blue.' })).toMatchObject({ ok: true });
    expect(await gw.wait(runId)).toMatchObject({ state: 'ok', reply: 'Blue.' });
  });

  it('that is gone gives back what it took, not what another has taken since', async () => {
    const gw = await started();
    const { key, ask } = await tools(gw, 'fable');
    await gw.call('sessions.send', { key, message: 'Which colour?' });
    const { turnId: first } = (await ask('inbox', {})).result;
    const { turnId: second } = (await ask('inbox', { again: true })).result;
    await gw.inside.giveBack(key, first);
    // Were it open again, this would be a message.
    expect(await ask('inbox', { waitSeconds: 0 })).toMatchObject({ result: { status: 'unanswered', turnId: second } });
    await gw.inside.giveBack(key, second);
    expect(await ask('inbox', { waitSeconds: 0 })).toMatchObject({ result: { status: 'message', attempt: 3 } });
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
    const gw = await started({ policy: { rules } }, script, { tools: [note] });
    expect((await gw.answer('the pin 1234')).reply).toContain('POLICY_BLOCKED');
    expect((await gw.answer('milk')).reply).toBe('noted');
    expect(done).toEqual(['milk']);
  });
});

describe('what leaves', () => {
  it('is asked about again at each attempt: a rule that came meanwhile stops it', async () => {
    const channel = platform(() => ({ outcome: 'retry', error: 'busy', afterMs: 2_000 }));
    const gw = await started({}, [echo], { channels: [channel] });
    await gw.answer('hello');
    await gw.settled();
    expect(channel.got).toEqual(['re: hello']);
    expect(await deliveries(gw)).toMatchObject({ pending: 1, dead: 0 });
    await gw.reload({ session: { dmScope: 'per-peer', sendPolicy: { rules: [{ match: {}, action: 'deny' }] } } });
    await gw.clock.advance(2_000);
    expect(await deliveries(gw)).toMatchObject({ pending: 0, dead: 1 });
    expect(channel.got).toEqual(['re: hello']);
  });

  it('does not leave where the caller said so', async () => {
    const channel = platform();
    const gw = await started({}, [echo], { channels: [channel] });
    await gw.answer('one');
    const sessionKey = 'agent:main:direct:you';
    for (const [message, deliver] of [
      ['two', false],
      ['three', true],
    ] as const) {
      await gw.call('chat.send', { sessionKey, message, deliver, idempotencyKey: message });
      await gw.wait(message);
    }
    await gw.finished();
    expect(channel.got).toEqual(['re: one', 're: three']);
  });

  it('lets those behind it pass when it could not be sent for ten minutes', async () => {
    const channel = platform(({ text }) => (text === 're: one' ? { outcome: 'retry', error: 'away', afterMs: 60_000 } : undefined));
    const gw = await started({}, [echo], { channels: [channel] });
    const from = gw.now();
    await gw.say('one');
    await gw.say('two');
    for (let minutes = 0; minutes < 15 && !channel.got.includes('re: two'); minutes++) await gw.clock.advance(60_000);
    expect(channel.got.at(-1)).toBe('re: two');
    expect(gw.now() - from).toBeGreaterThanOrEqual(600_000);
  });
});

describe('an exchange', () => {
  it('that takes longer than an hour goes on while it has a turn to come', async () => {
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
    const gw = await started({ ...config, bindings }, script, { channels: [channel] });
    await gw.receive({ origin: { channel: 'loopback', peer: { kind: 'group', id: 'team' } }, text: 'hello', sender: 'you' });
    await gw.say('ask');
    await gw.stops.entered('work');
    // Past the hour, and past every sweep in it.
    await gw.clock.advance(2 * 3_600_000);
    gw.stops.open('work');
    await gw.finished();
    expect(channel.got.filter((text) => text === 'It is done.')).toHaveLength(1);
  });
});

describe('a subscriber', () => {
  it('that comes too late is told once to start over, and goes on from there', async () => {
    const gw = await started();
    for (let count = 0; count < 5; count++) await gw.answer('hello');
    // Forty days pass, and what is kept for thirty is gone.
    gw.clock.jump(40 * 86_400_000);
    await gw.clock.until(async () => (await gw.rows.runs()).length === 0);
    const heard: string[] = [];
    const failed = Promise.withResolvers<never>();
    const undo = gw.inside.subscribe(
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
    await gw.say('again');
    await Promise.race([failed.promise, gw.until(() => heard.filter((kind) => kind === 'run').length >= 3)]);
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
    const gw = await started(config, script, { tools: [keep, late] });
    expect(await gw.answer('go')).toMatchObject({ state: 'ok', reply: 'done' });
    expect(outcomes).toEqual(['LEASE_LOST']);
    await gw.finished();
    expect((await gw.transcript('agent:bo:main')).join('\n')).not.toContain('from the past');
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
    const gw = await started({}, script, { tools: [write] });
    const runId = await gw.say('hello');
    await gw.until(() => calls === 1);
    await gw.restart();
    expect(await gw.wait(runId)).toMatchObject({ state: 'ok', reply: 'written' });
    expect(calls).toBe(2);
  });
});

describe('a stop', () => {
  it('does not give a turn its time anew', async () => {
    const config = { agents: { defaults: { timeoutSeconds: 60 } } };
    const gw = await started(config, [{ steps: [call('gate', { name: 'gate' }), { say: 'x' }] }]);
    const runId = await gw.say('hello');
    await gw.stops.entered('gate');
    await gw.clock.advance(20_000);
    await gw.restart();
    await gw.stops.entered('gate', 2);
    const from = gw.now();
    expect(await gw.clock.passing(gw.wait(runId))).toMatchObject({ state: 'timeout' });
    expect(gw.now() - from).toBeLessThanOrEqual(45_000);
  });

  it('waits for a claim that is under way, so that the run in it was no crash', async () => {
    const gw = await started();
    const runId = await gw.say('hello');
    await gw.close(); // the claim of the run has just been asked for
    expect(gw.warnings).toEqual([]);
    await gw.start();
    expect(await gw.wait(runId)).toMatchObject({ state: 'ok', reply: 're: hello' });
    expect(await gw.rows.runs({}, 'crashes')).toEqual([{ crashes: 0 }]);
  });
});

describe('runs that were under way in two crashes', () => {
  it('are tried again one at a time', async () => {
    const script = [{ when: 'gate', steps: [call('gate', { name: '{{input}}' }), { say: 're: {{input}}' }] }, echo];
    const names = ['gate a', 'gate b'];
    let gw = await started({}, script);
    const runs = [await gw.say(names[0]!, { from: 'ann' }), await gw.say(names[1]!, { from: 'bob' })];
    for (let kills = 1; kills <= 2; kills++) {
      await Promise.all(names.map((name) => gw.stops.entered(name)));
      // What a kill at this moment leaves, in a directory of its own.
      const stateDir = copyOfState(gw.stateDir);
      onTestFinished(() => rmSync(stateDir, { recursive: true, force: true }));
      gw = await started({}, script, { stateDir });
    }
    const { stops } = gw;
    const first = await Promise.race(names.map((name) => stops.entered(name).then(() => name)));
    const other = names.find((name) => name !== first)!;
    let both = false;
    void stops.entered(other).then(() => (both = true));
    // Others are not held up, and when they are through every claim that could be made was made.
    expect(await gw.answer('hello', { from: 'cy' })).toMatchObject({ state: 'ok' });
    await gw.settled();
    expect(both).toBe(false);
    stops.open(first);
    await stops.entered(other);
    stops.open(other);
    for (const runId of runs) expect(await gw.wait(runId)).toMatchObject({ state: 'ok' });
  });
});
