// One session writes to another: the first run, the reply-back turns, the announce; and everything that is refused instead.
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { z } from 'zod';
import { noteExchange, type EngineCommand } from '../../src/engine/feed.ts';
import { insertRun } from '../../src/engine/queue.ts';
import type { FeedEvent } from '../../src/protocol/event.ts';
import type { SessionRow } from '../../src/store/rows.ts';
import { defineTool, type Tool } from '../../src/tools/define.ts';
import { HandClock } from '../clock.ts';
import { forTest, gates, say, Stage, type ConfigText, type ScriptText } from './stage.ts';

// Nothing here depends on how long it takes; a machine with other work to do may take its time.
vi.setConfig({ testTimeout: 30_000, hookTimeout: 30_000 });

interface Options {
  turns?: number;
  config?: ConfigText;
  tools?: Tool[];
  stateDir?: string;
  clock?: HandClock;
  /** Open the kitchen's session first, so that it exists and has somewhere to announce to. */
  kitchen?: boolean;
}

const kitchen = 'agent:bo:loopback:group:kitchen';

class Story extends Stage {
  /** Lets time pass until something has happened. */
  async passing<T>(happening: Promise<T>): Promise<T> {
    const state = { over: false };
    const done = happening.finally(() => (state.over = true));
    while (!state.over) {
      this.clock.advance(1_000);
      await new Promise((resolve) => setImmediate(resolve));
    }
    return await done;
  }

  /** A person writes to Ana; resolves with the end of her turn. */
  async ask(text = 'go') {
    const { runId } = await say(this.gateway, text);
    return this.gateway.engine.wait(runId, 3_600_000);
  }

  /** What the tool said to Ana, whose script repeats it word by word. */
  async result(text?: string): Promise<Record<string, unknown>> {
    const { reply } = await this.ask(text);
    return JSON.parse(reply!) as Record<string, unknown>;
  }

  turns() {
    return this.rows<{ turn: number; lane: string; state: string; reply: string | null; text: string }>(
      `SELECT turn, lane, runs.state, entries.text AS reply, asked.text AS text FROM exchange_turns AS e JOIN runs ON runs.pk = e.run_pk
       LEFT JOIN entries ON entries.session_pk = runs.session_pk AND entries.seq = reply_seq
       LEFT JOIN inputs ON inputs.run_pk = e.run_pk LEFT JOIN entries AS asked ON asked.session_pk = runs.session_pk AND asked.seq = entry_seq
       ORDER BY exchange_pk, turn`,
    );
  }

  async said() {
    return (await this.turns()).map(({ lane, reply }) => [lane.split(':')[1], reply]);
  }

  async reasons() {
    return (await this.rows<{ end_reason: string }>('SELECT end_reason FROM exchanges ORDER BY pk')).map((row) => row.end_reason);
  }

  announced() {
    return this.sent.filter((message) => message.recipient === 'kitchen').map((message) => message.text);
  }
}

async function prepare(story: Story, script: ScriptText, options: Options = {}): Promise<Story> {
  const config: ConfigText = {
    agents: { list: [{ id: 'ana', default: true }, { id: 'bo' }, { id: 'cy' }] },
    session: { agentToAgent: { maxPingPongTurns: options.turns ?? 2 } },
    bindings: [{ agentId: 'bo', match: { channel: 'loopback', peer: { kind: 'group', id: 'kitchen' } } }],
    tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } },
    ...options.config,
  };
  await story.start(config, [...script, { agent: 'bo', when: 'open\\?', steps: [{ say: '' }] }], { tools: options.tools ?? [] });
  if (options.kitchen ?? true) {
    const origin = { channel: 'loopback', peer: { kind: 'group' as const, id: 'kitchen' } };
    const { runId } = await story.gateway.receive({ origin, text: 'open?', sender: 'cook' });
    await story.gateway.engine.wait(runId, 10_000);
  }
  return story;
}

const open = (script: ScriptText, options: Options = {}): Promise<Story> =>
  prepare(forTest(new Story(options.clock ?? new HandClock(), options.stateDir)), script, options);

// Scripts ------------------------------------------------------------------------------------------------------------

const send = (args: Record<string, unknown>) => ({ tool: 'sessions_send', args });
const asks = (args: Record<string, unknown> = {}) => ({
  agent: 'ana',
  when: '^\\n',
  steps: [{ calls: [send({ sessionKey: kitchen, message: 'What is for lunch?', ...args })] }, { say: '{{result}}' }],
});
const answers = (say: string, agent = 'bo') => ({ agent, when: 'Message from session', steps: [{ say }] });
const replies = (agent: string, say: string, when = 'Reply from session') => ({ agent, when, steps: [{ say }] });
const announces = (say: string) => ({ agent: 'bo', when: 'exchange with session', steps: [{ say }] });

describe('an exchange', () => {
  it('goes from the request over reply-back turns to an announce that is delivered once', async () => {
    const story = await open([
      asks(),
      announces('Lunch is soup at noon.'),
      answers('Soup.'),
      replies('ana', 'When?'),
      replies('bo', 'At noon.'),
    ]);
    expect(await story.result()).toEqual({ runId: expect.any(String), status: 'ok', reply: 'Soup.' });
    await story.settled();
    expect(await story.turns()).toEqual([
      { turn: 0, lane: kitchen, state: 'ok', text: 'What is for lunch?', reply: 'Soup.' },
      { turn: 1, lane: 'agent:ana:main', state: 'ok', text: 'Soup.', reply: 'When?' },
      { turn: 2, lane: kitchen, state: 'ok', text: 'When?', reply: 'At noon.' },
      { turn: 3, lane: kitchen, state: 'ok', text: 'Announce the result.', reply: 'Lunch is soup at noon.' },
    ]);
    expect(await story.reasons()).toEqual(['announced']);
    expect(story.announced()).toEqual(['Lunch is soup at noon.']);
    expect(await story.rows(`SELECT state, attempts FROM deliveries WHERE cause = 'announce'`)).toEqual([{ state: 'sent', attempts: 1 }]);
  });

  it('tells each turn who speaks and what may be answered, and the announce what was asked, first and last said', async () => {
    const story = await open([asks(), announces('done'), answers('Soup.'), replies('ana', 'When?'), replies('bo', 'At noon.')]);
    await story.ask();
    await story.settled();
    const told = await story.rows<{ context: string }>(
      `SELECT body ->> 'context' AS context FROM entries WHERE body ->> 'context' IS NOT NULL ORDER BY pk`,
    );
    expect(told.map((row) => row.context)).toEqual([
      "[Message from session agent:ana:main. It is another agent's session, not the user. Your reply goes back to it.]",
      `[Reply from session ${kitchen}, turn 1 of 2. Answer it, or reply exactly REPLY_SKIP to end the exchange.]`,
      '[Reply from session agent:ana:main, turn 2 of 2. Answer it, or reply exactly REPLY_SKIP to end the exchange.]',
      '[The exchange with session agent:ana:main is over. What you say now is posted to your channel; reply exactly ANNOUNCE_SKIP to stay silent.]\nRequest: What is for lunch?\nFirst reply: Soup.\nLatest reply: At noon.',
    ]);
  });

  it.each([0, 1, 2, 3, 4, 5])('takes exactly maxPingPongTurns = %i turns when nobody stops it, the requester first', async (turns) => {
    const story = await open([asks(), announces('done'), answers('first'), replies('*', 'and?')], { turns });
    await story.ask();
    await story.settled();
    const loop = Array.from({ length: turns }, (_, index) => [index % 2 === 0 ? 'ana' : 'bo', 'and?']);
    expect(await story.said()).toEqual([['bo', 'first'], ...loop, ['bo', 'done']]);
    expect(story.announced()).toEqual(['done']);
  });

  it.each<[string, ScriptText, (string | null)[][]]>([
    [
      'the requester',
      [answers('first'), replies('ana', ' REPLY_SKIP\n')],
      [
        ['bo', 'first'],
        ['ana', ' REPLY_SKIP\n'],
      ],
    ],
    [
      'the target',
      [answers('first'), replies('ana', 'and?'), replies('bo', 'REPLY_SKIP')],
      [
        ['bo', 'first'],
        ['ana', 'and?'],
        ['bo', 'REPLY_SKIP'],
      ],
    ],
    ['the first reply', [answers('REPLY_SKIP')], [['bo', 'REPLY_SKIP']]],
  ])('is over for its turns when %s is exactly REPLY_SKIP, and is announced', async (_, script, said) => {
    const story = await open([asks(), announces('done'), ...script], { turns: 5 });
    await story.ask();
    await story.settled();
    expect(await story.said()).toEqual([...said, ['bo', 'done']]);
    expect(story.announced()).toEqual(['done']);
  });

  it('does not tell a skip to the announce as the latest reply', async () => {
    const story = await open([asks(), announces('done'), answers('first'), replies('ana', 'and?'), replies('bo', 'REPLY_SKIP')]);
    await story.ask();
    await story.settled();
    const [told] = await story.rows<{ body: string }>(`SELECT body FROM entries WHERE provenance ->> 'kind' = 'announce'`);
    expect(told!.body).toContain('Latest reply: and?');
    expect(told!.body).not.toContain('Latest reply: REPLY_SKIP');
  });

  it('stops its turns at an empty reply and at a failed turn, and is announced', async () => {
    const empty = await open([asks(), announces('done'), answers('first'), replies('ana', '')], { turns: 5 });
    await empty.ask();
    await empty.settled();
    expect(await empty.said()).toEqual([
      ['bo', 'first'],
      ['ana', null],
      ['bo', 'done'],
    ]);
    const failing = { agent: 'ana', when: 'Reply from session', steps: [{ fail: 'no idea' }] };
    const failed = await open([asks(), announces('done'), answers('first'), failing], { turns: 5 });
    await failed.ask();
    await failed.settled();
    expect((await failed.turns()).map(({ state }) => state)).toEqual(['ok', 'error', 'ok']);
    expect(failed.announced()).toEqual(['done']);
  });

  it('does not tell the announce what a stopped turn had begun to say', async () => {
    const begun = Promise.withResolvers<string>();
    const mutter = defineTool({
      name: 'mutter',
      description: 'Begin to speak, and never end.',
      effect: 'pure',
      params: z.strictObject({}),
      run({ turn }) {
        turn!.delta('well, to be honest');
        begun.resolve(turn!.runId);
        return new Promise((_, reject) => turn!.signal.addEventListener('abort', () => reject(turn!.signal.reason as Error)));
      },
    });
    const mutters = { agent: 'ana', when: 'Reply from session', steps: [{ calls: [{ tool: 'mutter' }] }] };
    const story = await open([asks(), announces('done'), answers('first'), mutters], { tools: [mutter] });
    await story.ask();
    await story.gateway.engine.abort(await begun.promise, 'enough');
    await story.settled();
    expect((await story.turns()).map(({ state }) => state)).toEqual(['ok', 'aborted', 'ok']);
    const [told] = await story.rows<{ body: string }>(`SELECT body FROM entries WHERE provenance ->> 'kind' = 'announce'`);
    expect(told!.body).not.toContain('to be honest');
  });

  it.each<[string, ScriptText[number], string]>([
    ['is exactly ANNOUNCE_SKIP', announces(' ANNOUNCE_SKIP '), 'silent'],
    ['is empty', announces(''), 'silent'],
    ['fails', { agent: 'bo', when: 'exchange with session', steps: [{ fail: 'hoarse' }] }, 'the announce turn failed'],
  ])('delivers nothing when the announce %s', async (_, announce, reason) => {
    const story = await open([asks(), announce, answers('first')], { turns: 0 });
    await story.ask();
    await story.settled();
    expect(await story.reasons()).toEqual([reason]);
    expect(story.announced()).toEqual([]);
    expect(await story.rows(`SELECT * FROM deliveries WHERE cause = 'announce'`)).toEqual([]);
  });

  it('says "no destination" when the target has never spoken anywhere', async () => {
    const story = await open([asks({ sessionKey: 'agent:bo:main' }), announces('heard by nobody'), answers('first')], { turns: 0 });
    await story.ask();
    await story.settled();
    expect(await story.reasons()).toEqual(['no destination']);
    expect(story.announced()).toEqual([]);
  });

  it('has no turns and no announce when the first run fails: the caller gets the error', async () => {
    const story = await open([asks(), { agent: 'bo', when: 'Message from session', steps: [{ fail: 'the stove is cold' }] }]);
    expect(await story.result()).toEqual({ runId: expect.any(String), status: 'error', error: 'the stove is cold' });
    await story.settled();
    expect((await story.turns()).map(({ turn, state }) => [turn, state])).toEqual([[0, 'error']]);
    expect(await story.reasons()).toEqual(['the first run failed']);
    expect(story.announced()).toEqual([]);
  });

  it('has no turns and no announce when the first run is empty: the caller gets an empty reply', async () => {
    const story = await open([asks(), answers('')]);
    expect(await story.result()).toEqual({ runId: expect.any(String), status: 'ok', reply: '' });
    await story.settled();
    expect((await story.turns()).map(({ turn, state }) => [turn, state])).toEqual([[0, 'ok']]);
    expect(await story.reasons()).toEqual(['the first run gave no reply']);
  });

  it('has no turns when nobody asked who could be replied to, and is announced', async () => {
    const story = await open([announces('done'), { agent: 'bo', when: '^\\nFrom the operator', steps: [{ say: 'first' }] }], { turns: 5 });
    await story.gateway.store.write(operatorSends, { key: kitchen, text: 'From the operator', now: story.clock.now() });
    await story.settled();
    expect(await story.said()).toEqual([
      ['bo', 'first'],
      ['bo', 'done'],
    ]);
    expect(story.announced()).toEqual(['done']);
    const [told] = await story.rows<{ body: string }>(`SELECT body FROM entries WHERE provenance ->> 'kind' = 'announce'`);
    expect(told!.body).toContain('The exchange with session the operator is over');
  });

  it('goes on where it was after a restart in its middle, and is announced once', async () => {
    const stops = gates();
    const script: ScriptText = [
      asks(),
      announces('done'),
      answers('first'),
      { agent: 'ana', when: 'Reply from session', steps: [{ calls: [{ tool: 'gate', args: { name: 'loop' } }] }, { say: 'and?' }] },
      replies('bo', 'that is all'),
    ];
    const story = await open(script, { tools: [stops.tool] });
    await story.ask();
    await stops.entered('loop');
    await story.close();
    stops.open('loop');
    const again = await open(script, { tools: [stops.tool], stateDir: story.stateDir, clock: story.clock, kitchen: false });
    await again.settled();
    expect(await again.said()).toEqual([
      ['bo', 'first'],
      ['ana', 'and?'],
      ['bo', 'that is all'],
      ['bo', 'done'],
    ]);
    expect([...story.announced(), ...again.announced()]).toEqual(['done']);
  });

  it('ends with a reason when a side is reset, and the new life hears nothing of it', async () => {
    const stops = gates();
    const story = await open(
      [
        asks(),
        announces('done'),
        { agent: 'bo', when: 'Message from', steps: [{ calls: [{ tool: 'gate', args: { name: 'a' } }] }, { say: 'late' }] },
      ],
      { tools: [stops.tool] },
    );
    const asked = story.result();
    await stops.entered('a');
    await story.gateway.engine.reset(kitchen);
    expect(await asked).toMatchObject({ status: 'error' });
    await story.settled();
    expect((await story.turns()).map(({ turn, state }) => [turn, state])).toEqual([[0, 'aborted']]);
    expect(await story.reasons()).toEqual(['the first run failed']);
    expect(story.announced()).toEqual([]);
    const [life] = await story.rows<SessionRow>('SELECT * FROM sessions WHERE key = ? AND current = 1', kitchen);
    expect(await story.rows('SELECT * FROM entries WHERE session_pk = ?', life!.pk)).toEqual([]);
  });

  it('that cannot be advanced is ended as failed; its run ends all the same, and the operator is told', async () => {
    const stops = gates();
    const story = await open(
      [asks(), { agent: 'bo', when: 'Message from', steps: [{ calls: [{ tool: 'gate', args: { name: 'a' } }] }, { say: 'first' }] }],
      { tools: [stops.tool] },
    );
    const asked = story.result();
    await stops.entered('a');
    await story.gateway.store.write(runSql, { sql: `UPDATE exchanges SET state = 'nonsense'` });
    stops.open('a');
    expect(await asked).toMatchObject({ status: 'ok', reply: 'first' });
    await story.settled();
    expect(await story.rows('SELECT state FROM exchanges')).toEqual([{ state: 'failed' }]);
    expect(story.warnings).toEqual([expect.stringMatching(/^exchange .+ failed and was ended/)]);
  });
});

describe('the caller of sessions_send', () => {
  it('gets "accepted" with the run id at once for timeout 0, and the exchange runs', async () => {
    const story = await open([asks({ timeoutSeconds: 0 }), announces('done'), answers('first'), replies('*', 'and?')]);
    const result = await story.result();
    expect(result).toEqual({ runId: expect.any(String), status: 'accepted' });
    await story.settled();
    expect(await story.said()).toEqual([
      ['bo', 'first'],
      ['ana', 'and?'],
      ['bo', 'and?'],
      ['bo', 'done'],
    ]);
    expect(story.announced()).toEqual(['done']);
    expect(await story.gateway.engine.wait(result['runId'] as string, 0)).toMatchObject({ state: 'ok', reply: 'first' });
  });

  it('gets "timeout" with the run id when the wait is over; the run and the exchange go on', async () => {
    const stops = gates();
    const story = await open(
      [
        asks({ timeoutSeconds: 20 }),
        announces('done'),
        { agent: 'bo', when: 'Message from', steps: [{ calls: [{ tool: 'gate', args: { name: 'slow' } }] }, { say: 'first' }] },
        replies('*', 'REPLY_SKIP'),
      ],
      { tools: [stops.tool] },
    );
    const asked = story.result();
    await stops.entered('slow');
    const before = story.clock.now();
    const isResult = (event: FeedEvent) => event.kind === 'entry' && event.message.toolName === 'sessions_send';
    await story.passing(story.event(isResult));
    expect(story.clock.now() - before).toBeGreaterThanOrEqual(20_000);
    const [first] = await story.rows<{ id: string; state: string }>(
      'SELECT runs.id, runs.state FROM exchange_turns JOIN runs ON runs.pk = run_pk',
    );
    expect(first).toMatchObject({ state: 'running' });
    stops.open('slow');
    const result = await asked;
    expect(result).toEqual({ runId: first!.id, status: 'timeout', error: expect.stringContaining('the run goes on') });
    await story.settled();
    expect(await story.gateway.engine.wait(first!.id, 0)).toMatchObject({ state: 'ok', reply: 'first' });
    expect(story.announced()).toEqual(['done']);
    const results = await story.rows<{ text: string }>(`SELECT text FROM entries WHERE body ->> 'toolName' = 'sessions_send'`);
    expect(results).toHaveLength(1);
  });

  it('gets "ok" when the first run ends; the turns that follow do not delay it', async () => {
    const stops = gates();
    const story = await open(
      [
        asks(),
        announces('done'),
        answers('first'),
        { agent: 'ana', when: 'Reply from', steps: [{ calls: [{ tool: 'gate', args: { name: 'loop' } }] }, { say: 'REPLY_SKIP' }] },
      ],
      { tools: [stops.tool] },
    );
    expect(await story.result()).toMatchObject({ status: 'ok', reply: 'first' });
    await stops.entered('loop');
    expect(await story.rows('SELECT state, turn, end_reason FROM exchanges')).toEqual([{ state: 'reply', turn: 1, end_reason: null }]);
    stops.open('loop');
    await story.settled();
    expect(story.announced()).toEqual(['done']);
  });

  it('gives its slot back while it waits, and goes on when the answer is there', async () => {
    const stops = gates();
    const story = await open(
      [
        asks(),
        answers('unused', 'ana'),
        { agent: 'bo', when: 'Message from', steps: [{ calls: [{ tool: 'gate', args: { name: 'a' } }] }, { say: 'first' }] },
      ],
      { tools: [stops.tool], turns: 0 },
    );
    const asked = story.result();
    await stops.entered('a');
    await story.event((event) => event.kind === 'run' && event.state === 'waiting');
    expect(await story.rows(`SELECT state, owner FROM runs WHERE lane = 'agent:ana:main'`)).toEqual([{ state: 'waiting', owner: null }]);
    stops.open('a');
    expect(await asked).toMatchObject({ status: 'ok', reply: 'first' });
  });

  it('may send to two sessions in one step: they work side by side, and both answers are there before it goes on', async () => {
    const stops = gates();
    const stopping = (agent: string) => ({
      agent,
      when: 'Message from',
      steps: [{ calls: [{ tool: 'gate', args: { name: agent } }] }, { say: `I am ${agent}` }],
    });
    const both = [send({ sessionKey: kitchen, message: 'one' }), send({ sessionKey: 'agent:cy:main', message: 'two' })];
    const story = await open([{ agent: 'ana', when: '^\\n', steps: [{ calls: both }, { say: 'both' }] }, stopping('bo'), stopping('cy')], {
      tools: [stops.tool],
      turns: 0,
    });
    const asked = story.ask();
    await Promise.all([stops.entered('bo'), stops.entered('cy')]);
    stops.open('cy');
    await story.event((event) => event.kind === 'run' && event.sessionKey === 'agent:cy:main' && event.state === 'ok');
    expect(await story.rows(`SELECT state FROM runs WHERE lane = 'agent:ana:main'`)).toEqual([{ state: 'waiting' }]);
    stops.open('bo');
    expect(await asked).toMatchObject({ state: 'ok', reply: 'both' });
    const results = await story.rows<{ id: string; reply: string }>(
      `SELECT body ->> 'toolCallId' AS id, text ->> 'reply' AS reply FROM entries WHERE body ->> 'toolName' = 'sessions_send' ORDER BY id`,
    );
    expect(results).toEqual([
      { id: '1.0', reply: 'I am bo' },
      { id: '1.1', reply: 'I am cy' },
    ]);
  });
});

describe('an exchange leaves alone', () => {
  it('where both sessions speak: nothing but the announce leaves, and no delivery context changes', async () => {
    const story = await open([
      { agent: 'ana', when: 'hello', steps: [{ say: 'hi' }] },
      asks(),
      announces('done'),
      answers('first'),
      replies('ana', 'and?'),
      replies('bo', 'that is all'),
    ]);
    await story.ask('hello');
    const contexts = () =>
      story.rows<{ key: string; delivery: string }>('SELECT key, delivery FROM sessions WHERE delivery IS NOT NULL ORDER BY key');
    const before = await contexts();
    expect(before.map(({ key }) => key)).toEqual(['agent:ana:main', kitchen]);
    await story.ask();
    await story.settled();
    expect(await contexts()).toEqual(before);
    expect(await story.rows(`SELECT deliver, class FROM runs WHERE cause = 'exchange' GROUP BY deliver, class`)).toEqual([
      { deliver: 0, class: 'nested' },
    ]);
    expect(story.sent.map(({ recipient, text }) => [recipient, text.slice(0, 10)])).toEqual([
      ['you', 'hi'],
      ['you', '{"runId":"'],
      ['kitchen', 'done'],
    ]);
  });

  it('who said what: inter-session inputs are stored as such, with their source', async () => {
    const story = await open([asks(), announces('done'), answers('first'), replies('ana', 'and?'), replies('bo', 'that is all')]);
    await story.ask();
    await story.settled();
    const inputs = await story.rows<{ key: string; provenance: string }>(
      `SELECT key, provenance FROM entries JOIN sessions ON sessions.pk = session_pk WHERE role = 'user' ORDER BY entries.pk`,
    );
    expect(inputs.map(({ key, provenance }) => [key, JSON.parse(provenance)])).toEqual([
      [kitchen, { kind: 'user', channel: 'loopback' }],
      ['agent:ana:main', { kind: 'user', channel: 'loopback' }],
      [kitchen, { kind: 'inter_session', sourceSession: 'agent:ana:main', sourceTool: 'sessions_send' }],
      ['agent:ana:main', { kind: 'inter_session', sourceSession: kitchen, sourceTool: 'sessions_send' }],
      [kitchen, { kind: 'inter_session', sourceSession: 'agent:ana:main', sourceTool: 'sessions_send' }],
      [kitchen, { kind: 'announce', sourceSession: 'agent:ana:main', sourceTool: 'sessions_send' }],
    ]);
  });
});

describe('a send is refused at once', () => {
  const refusals: [why: string, args: Record<string, unknown>, code: string, error: RegExp][] = [
    ['to oneself by key', { sessionKey: 'agent:ana:main' }, 'SEND_TO_SELF', /does not send to itself/],
    ['to oneself as "main"', { sessionKey: 'main' }, 'SEND_TO_SELF', /does not send to itself/],
    ['to "global"', { sessionKey: 'global' }, 'SESSION_KEY_RESERVED', /"global" is reserved/],
    ['to "unknown"', { sessionKey: ' Unknown ' }, 'SESSION_KEY_RESERVED', /"unknown" is reserved/],
    [
      'to a misspelt session, naming near ones',
      { sessionKey: 'agent:bo:loopback:group:kitchn' },
      'SESSION_NOT_FOUND',
      new RegExp(`did you mean "${kitchen}"`),
    ],
    [
      'to a session that is like no other',
      { sessionKey: 'agent:bo:telegram:group:-100987654321' },
      'SESSION_NOT_FOUND',
      /see sessions_list/,
    ],
    ['to a missing session id', { sessionKey: '00000000-0000-4000-8000-000000000000' }, 'SESSION_NOT_FOUND', /was not found/],
    ['to a missing label', { sessionKey: undefined, label: 'lunch' }, 'SESSION_NOT_FOUND', /was not found/],
    ['to a key and a label', { label: 'lunch' }, 'INVALID_REQUEST', /either sessionKey or label/],
    ['to nobody', { sessionKey: undefined }, 'INVALID_REQUEST', /either sessionKey or label/],
    ['to a key with an agent id', { agentId: 'bo' }, 'INVALID_REQUEST', /agentId goes with label only/],
    ['without a message', { message: undefined }, 'INVALID_REQUEST', /message is missing/],
    ['with a blank message', { message: ' \n ' }, 'INVALID_REQUEST', /message is missing/],
    ['to a key that is none', { sessionKey: 'agent:' }, 'SESSION_KEY_INVALID', /not usable/],
    ['with a negative timeout', { timeoutSeconds: -1 }, 'INVALID_REQUEST', /timeoutSeconds/],
  ];
  // One gateway for all of them: each has its own rule in the script.
  let shared: Story;
  beforeAll(async () => {
    const script = refusals.map(([, args], index) => ({ ...asks(args), when: `^\\ncase ${index}$` }));
    shared = await prepare(new Story(new HandClock()), [...script, answers('never')]);
  });
  afterAll(() => shared.end());

  it.each(refusals.map(([why, , code, error], index) => ({ why, code, error, index })))('$why', async ({ code, error, index }) => {
    const sessions = await shared.rows('SELECT key FROM sessions');
    expect(await shared.result(`case ${index}`)).toEqual({ status: 'error', code, error: expect.stringMatching(error) });
    expect(await shared.rows('SELECT * FROM exchanges')).toEqual([]);
    expect(await shared.rows('SELECT key FROM sessions')).toEqual(sessions);
    expect(await shared.rows(`SELECT * FROM runs WHERE cause = 'exchange'`)).toEqual([]);
  });

  it('into a wait for the one that waits for it, with the reason; both go on', async () => {
    const back = {
      agent: 'bo',
      when: 'Message from',
      steps: [{ calls: [send({ sessionKey: 'agent:ana:main', message: 'And you?' })] }, { say: '{{result}}' }],
    };
    const story = await open([asks(), back, announces('ANNOUNCE_SKIP')], { turns: 0 });
    const result = await story.result();
    expect(result).toMatchObject({ status: 'ok' });
    const inner = JSON.parse(result['reply'] as string) as Record<string, unknown>;
    expect(inner).toEqual({ status: 'error', code: 'CYCLIC_WAIT', error: expect.stringContaining('is waiting for this one') });
    await story.settled();
    expect(await story.rows('SELECT * FROM waits')).toEqual([]);
  });

  it('into a circle of three', async () => {
    const passOn = (agent: string, to: string) => ({
      agent,
      when: 'Message from',
      steps: [{ calls: [send({ sessionKey: to, message: 'ask on' })] }, { say: '{{result}}' }],
    });
    const story = await open([asks(), passOn('bo', 'agent:cy:main'), passOn('cy', 'agent:ana:main'), announces('ANNOUNCE_SKIP')], {
      turns: 0,
    });
    const { reply } = await story.ask();
    expect(reply).toContain('CYCLIC_WAIT');
    expect(await story.rows('SELECT pk FROM exchanges')).toHaveLength(2);
  });

  it('but not to the one that waits for it when it does not wait itself', async () => {
    const back = {
      agent: 'bo',
      when: 'Message from',
      steps: [{ calls: [send({ sessionKey: 'agent:ana:main', message: 'FYI', timeoutSeconds: 0 })] }, { say: '{{result}}' }],
    };
    const story = await open([asks(), back, announces('ANNOUNCE_SKIP'), answers('', 'ana')], { turns: 0 });
    const { reply } = await story.ask();
    expect(reply).toContain('accepted');
    await story.settled();
  });

  it('more than 12 messages away from what started it', async () => {
    const pass = (agent: string, when: string, to: string) => ({
      agent,
      when,
      steps: [{ calls: [send({ sessionKey: to, message: 'pass it on', timeoutSeconds: 0 })] }, { say: '' }],
    });
    const story = await open([pass('ana', '', 'agent:bo:main'), pass('bo', 'Message from', 'agent:ana:main')], { turns: 5 });
    await story.ask();
    await story.settled();
    expect(await story.rows('SELECT count(*) AS n, max(hop) AS hop FROM exchanges')).toEqual([{ n: 12, hop: 12 }]);
    const refused = await story.rows<{ text: string }>(`SELECT text FROM entries WHERE body ->> 'isError'`);
    expect(refused.map(({ text }) => JSON.parse(text))).toEqual([
      { status: 'error', code: 'LOOP_LIMIT', error: expect.stringContaining('it is 13 messages away from what started it') },
    ]);
  });

  it('30 times a minute from one session to another; a minute later it may again', async () => {
    const many = Array.from({ length: 31 }, () => send({ sessionKey: 'agent:bo:main', message: 'again', timeoutSeconds: 0 }));
    const story = await open([
      { agent: 'ana', when: 'once', steps: [{ calls: many.slice(0, 1) }, { say: '{{result}}' }] },
      { agent: 'ana', when: '^\\n', steps: [{ calls: many }, { say: 'done' }] },
      answers(''),
    ]);
    await story.ask('many');
    const counts = () =>
      story.rows<{ code: string | null; n: number }>(
        `SELECT text ->> 'code' AS code, count(*) AS n FROM entries WHERE body ->> 'toolName' = 'sessions_send' GROUP BY 1 ORDER BY 1`,
      );
    expect(await counts()).toEqual([
      { code: null, n: 30 },
      { code: 'LOOP_LIMIT', n: 1 },
    ]);
    expect((await story.ask('once')).reply).toContain('LOOP_LIMIT');
    story.clock.advance(60_000);
    expect((await story.ask('once')).reply).toContain('accepted');
    await story.settled();
  });
});

describe('policy inside an exchange', () => {
  const rule = (agentId: string, effect: 'BLOCK' | 'REDACT') => ({
    policy: { rules: [{ id: 'no-pin', hook: 'PRE_CONTEXT_INJECTION' as const, match: { agentId, text: 'pin [0-9]+' }, effect }] },
  });

  it('takes out of a message what a rule says', async () => {
    const story = await open([asks({ message: 'the pin 1234, keep it' }), answers('ok'), announces('ANNOUNCE_SKIP')], {
      turns: 0,
      config: rule('ana', 'REDACT'),
    });
    await story.ask();
    const [first] = await story.turns();
    expect(first!.text).not.toContain('1234');
    expect(first!.text).toContain('keep it');
  });

  it('refuses a message that a rule blocks, and says so', async () => {
    const story = await open([asks({ message: 'the pin 1234' }), answers('ok')], { config: rule('ana', 'BLOCK') });
    expect(await story.result()).toEqual({
      status: 'error',
      code: 'POLICY_BLOCKED',
      error: expect.stringContaining('message was not sent'),
    });
    expect(await story.rows('SELECT * FROM exchanges')).toEqual([]);
  });

  it('stops the turns where a reply may not be carried on, and announces', async () => {
    const story = await open([asks(), announces('done'), answers('Soup.'), replies('ana', 'the pin 1234')], {
      turns: 5,
      config: rule('ana', 'BLOCK'),
    });
    await story.ask();
    await story.settled();
    expect(await story.said()).toEqual([
      ['bo', 'Soup.'],
      ['ana', 'the pin 1234'],
      ['bo', 'done'],
    ]);
    const heard = await story.rows<{ text: string; body: string | null }>(
      'SELECT text, body FROM entries JOIN sessions ON sessions.pk = session_pk WHERE key = ?',
      kitchen,
    );
    expect(JSON.stringify(heard)).not.toContain('1234');
  });

  it('takes out of a reply what a rule says, for the caller that waits as well as in the loop', async () => {
    const story = await open([asks(), answers('the pin 1234, keep it'), replies('*', 'REPLY_SKIP'), announces('ANNOUNCE_SKIP')], {
      config: rule('bo', 'REDACT'),
    });
    const { status, reply } = await story.result();
    expect([status, reply]).toEqual(['ok', expect.stringContaining('keep it')]);
    await story.settled();
    const heard = await story.rows<{ text: string }>(
      `SELECT text FROM entries JOIN sessions ON sessions.pk = session_pk WHERE key = 'agent:ana:main'`,
    );
    expect(JSON.stringify(heard)).not.toContain('1234');
  });

  it('keeps what the target has learned meanwhile from a caller who may not know it, and from a channel below it', async () => {
    const vault = defineTool({
      name: 'vault',
      description: 'Read a secret.',
      effect: 'pure',
      params: z.strictObject({}),
      run: () => Promise.resolve({ value: 'the recipe' }),
    });
    const story = await open(
      [
        asks(),
        { agent: 'bo', when: 'Message from', steps: [{ calls: [{ tool: 'vault' }] }, { say: 'It is {{result}}.' }] },
        announces('The recipe is out.'),
      ],
      { turns: 5, tools: [vault], config: { classification: { tools: { vault: 'CONFIDENTIAL' } } } },
    );
    expect(await story.result()).toEqual({
      runId: expect.any(String),
      status: 'error',
      error: expect.stringContaining('may not be passed on'),
    });
    await story.settled();
    expect((await story.turns()).map(({ turn, lane }) => [turn, lane])).toEqual([
      [0, kitchen],
      [6, kitchen],
    ]);
    expect(await story.reasons()).toEqual([expect.stringMatching(/^blocked: /)]);
    expect(story.announced()).toEqual([]);
    expect(await story.rows(`SELECT taint FROM sessions WHERE key IN ('agent:ana:main', ?) ORDER BY key`, kitchen)).toEqual([
      { taint: 0 },
      { taint: 2 },
    ]);
  });
});

const runSql: EngineCommand<{ sql: string }, void> = {
  name: 'test',
  *body(t, { sql }) {
    yield* t.run(sql);
  },
};

/** What a door for operators will do: a message into a session that comes from no session. */
const operatorSends: EngineCommand<{ key: string; text: string; now: number }, void> = {
  name: 'operator sends',
  *body(t, { key, text, now }) {
    const target = (yield* t.one<SessionRow>('SELECT * FROM sessions WHERE key = ? AND current = 1', key))!;
    const { lastId: pk } = yield* t.run(
      `INSERT INTO exchanges (id, tgt_session_pk, state, max_turns, hop, at) VALUES ('by-hand', ?, 'request', 5, 1, ?)`,
      target.pk,
      now,
    );
    const run = yield* insertRun(t, target, {
      runId: 'by-hand-0',
      text,
      provenance: { kind: 'system' },
      principal: 'operator',
      taint: 0,
      mode: 'followup',
      class: 'nested',
      deliver: false,
      cause: 'exchange',
      causePk: pk,
      now,
    });
    yield* t.run('INSERT INTO exchange_turns (exchange_pk, turn, run_pk) VALUES (?,0,?)', pk, run.pk);
    yield* noteExchange(t, target, { pk, id: 'by-hand', turn: 0 }, 'request', now);
  },
};

describe('an exchange whose requester was reset', () => {
  const stopped = (agent: string, name: string, when: string, say: string) => ({
    agent,
    when,
    steps: [{ calls: [{ tool: 'gate', args: { name } }] }, { say }],
  });

  it('before its turn is announced: the target says what came of it, and the new life hears nothing', async () => {
    const stops = gates();
    const script = [asks({ timeoutSeconds: 0 }), announces('done'), stopped('bo', 'a', 'Message from', 'first')];
    const story = await open(script, { tools: [stops.tool], turns: 5 });
    await story.ask();
    await stops.entered('a');
    await story.gateway.engine.reset('agent:ana:main');
    stops.open('a');
    await story.settled();
    expect(await story.said()).toEqual([
      ['bo', 'first'],
      ['bo', 'done'],
    ]);
    expect(story.announced()).toEqual(['done']);
    expect(await story.reasons()).toEqual(['announced']);
    const [life] = await story.rows<SessionRow>(`SELECT * FROM sessions WHERE key = 'agent:ana:main' AND current = 1`);
    expect(await story.rows('SELECT * FROM entries WHERE session_pk = ?', life!.pk)).toEqual([]);
  });

  it('between its turns is announced with its last word', async () => {
    const stops = gates();
    const script = [
      asks({ timeoutSeconds: 0 }),
      announces('done'),
      answers('first'),
      replies('ana', 'and?'),
      stopped('bo', 'b', 'Reply from session', 'second'),
    ];
    const story = await open(script, { tools: [stops.tool], turns: 5 });
    await story.ask();
    await stops.entered('b');
    await story.gateway.engine.reset('agent:ana:main');
    stops.open('b');
    await story.settled();
    expect(await story.said()).toEqual([
      ['bo', 'first'],
      ['ana', 'and?'],
      ['bo', 'second'],
      ['bo', 'done'],
    ]);
    expect(story.announced()).toEqual(['done']);
  });
});
