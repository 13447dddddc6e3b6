// One session writes to another: the first run, the reply-back turns, the announce; and everything that is refused instead.
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { z } from 'zod';
import type { FeedEvent } from '../../src/protocol/event.ts';
import { defineTool, type Tool } from '../../src/tools/define.ts';
import { testGateway, type ConfigText, type ScriptText, type TestGateway } from '../harness/gateway.ts';
import { operatorSends } from '../harness/inside.ts';
import { told } from '../harness/words.ts';

// Nothing here depends on how long it takes; a machine with other work to do may take its time.
vi.setConfig({ testTimeout: 30_000, hookTimeout: 30_000 });

interface Options {
  turns?: number;
  config?: ConfigText;
  tools?: Tool[];
  shared?: boolean;
}

const kitchen = 'agent:bo:loopback:group:kitchen';

/** Ana, Bo and Cy may write to each other. The kitchen is Bo's, and it exists, so that it has somewhere to announce to. */
async function open(script: ScriptText, { turns = 2, config, ...more }: Options = {}): Promise<TestGateway> {
  const story = await testGateway({
    config: {
      agents: { list: [{ id: 'ana', default: true }, { id: 'bo' }, { id: 'cy' }] },
      session: { agentToAgent: { maxPingPongTurns: turns } },
      bindings: [{ agentId: 'bo', match: { channel: 'loopback', peer: { kind: 'group', id: 'kitchen' } } }],
      tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } },
      ...config,
    },
    script: [...script, { agent: 'bo', when: 'open\\?', steps: [{ say: '' }] }],
    stops: true,
    ...more,
  });
  const origin = { channel: 'loopback', peer: { kind: 'group' as const, id: 'kitchen' } };
  await story.wait((await story.receive({ origin, text: 'open?', sender: 'cook' })).runId);
  return story;
}

/** A person writes to Ana; resolves with the end of her turn. */
const ask = (story: TestGateway, text = 'go') => story.answer(text);

/** What the tool said to Ana, whose script repeats it word by word. */
const toolAnswer = async (story: TestGateway, text?: string) => JSON.parse((await ask(story, text)).reply!) as Record<string, unknown>;

/** Who said what in the turns of exchanges. */
const spoken = async (story: TestGateway) => (await story.rows.turns()).map(({ lane, reply }) => [lane.split(':')[1], reply]);

const reasons = async (story: TestGateway) => (await story.rows.exchanges({}, 'end_reason')).map((row) => row.end_reason);

const announced = (story: TestGateway) => story.sent.filter(({ recipient }) => recipient === 'kitchen').map(({ text }) => text);

/** The results of `sessions_send`, in the order of the calls. */
const sendResults = async (story: TestGateway) =>
  (await story.rows.entries({ role: 'toolResult' })).flatMap(({ text, body }) => {
    const { toolName, toolCallId } = JSON.parse(body!) as { toolName: string; toolCallId: string };
    return toolName === 'sessions_send' ? [{ ...(JSON.parse(text) as { status: string; code?: string; reply?: string }), toolCallId }] : [];
  });

// Scripts ------------------------------------------------------------------------------------------------------------

const send = (args: Record<string, unknown>) => ({ tool: 'sessions_send', args });
const asks = (args: Record<string, unknown> = {}) => ({
  agent: 'ana',
  when: '^\\n',
  steps: [{ calls: [send({ sessionKey: kitchen, message: 'What is for lunch?', ...args })] }, { say: '{{result}}' }],
});
const answers = (say: string, agent = 'bo') => ({ agent, when: told.message, steps: [{ say }] });
const replies = (agent: string, say: string, when = told.reply) => ({ agent, when, steps: [{ say }] });
const announces = (say: string) => ({ agent: 'bo', when: told.announce, steps: [{ say }] });

describe('an exchange', () => {
  it('goes from the request over reply-back turns to an announce that is delivered once', async () => {
    const story = await open([
      asks(),
      announces('Lunch is soup at noon.'),
      answers('Soup.'),
      replies('ana', 'When?'),
      replies('bo', 'At noon.'),
    ]);
    expect(await toolAnswer(story)).toEqual({ runId: expect.any(String), status: 'ok', reply: 'Soup.' });
    await story.finished();
    expect(await story.rows.turns()).toEqual([
      { turn: 0, lane: kitchen, state: 'ok', text: 'What is for lunch?', reply: 'Soup.' },
      { turn: 1, lane: 'agent:ana:main', state: 'ok', text: 'Soup.', reply: 'When?' },
      { turn: 2, lane: kitchen, state: 'ok', text: 'When?', reply: 'At noon.' },
      { turn: 3, lane: kitchen, state: 'ok', text: expect.any(String), reply: 'Lunch is soup at noon.' },
    ]);
    expect(await reasons(story)).toEqual(['announced']);
    expect(announced(story)).toEqual(['Lunch is soup at noon.']);
    expect(await story.rows.deliveries({ cause: 'announce' }, 'state', 'attempts')).toEqual([{ state: 'sent', attempts: 1 }]);
  });

  it('tells each turn who speaks and what may be answered, and the announce what was asked, first and last said', async () => {
    const story = await open([asks(), announces('done'), answers('Soup.'), replies('ana', 'When?'), replies('bo', 'At noon.')]);
    await ask(story);
    await story.finished();
    const [first, reply, back, announce, ...more] = await story.rows.contexts();
    expect(more).toEqual([]);
    expect(first).toContain('agent:ana:main');
    for (const [context, from, turn] of [[reply, kitchen, 1] as const, [back, 'agent:ana:main', 2] as const]) {
      expect(context).toContain(from);
      expect(context).toContain(`${turn} of 2`);
      expect(context).toContain('REPLY_SKIP');
    }
    for (const part of ['agent:ana:main', 'ANNOUNCE_SKIP', 'What is for lunch?', 'Soup.', 'At noon.']) expect(announce).toContain(part);
  });

  it.each([0, 1, 2, 3, 4, 5])('takes exactly maxPingPongTurns = %i turns when nobody stops it, the requester first', async (turns) => {
    const story = await open([asks(), announces('done'), answers('first'), replies('*', 'and?')], { turns });
    await ask(story);
    await story.finished();
    const loop = Array.from({ length: turns }, (_, index) => [index % 2 === 0 ? 'ana' : 'bo', 'and?']);
    expect(await spoken(story)).toEqual([['bo', 'first'], ...loop, ['bo', 'done']]);
    expect(announced(story)).toEqual(['done']);
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
    await ask(story);
    await story.finished();
    expect(await spoken(story)).toEqual([...said, ['bo', 'done']]);
    expect(announced(story)).toEqual(['done']);
  });

  it('does not tell a skip to the announce as the latest reply', async () => {
    const story = await open([asks(), announces('done'), answers('first'), replies('ana', 'and?'), replies('bo', 'REPLY_SKIP')]);
    await ask(story);
    await story.finished();
    const [context] = await story.rows.contexts('announce');
    expect(context).toContain('and?');
    expect(context!.replace('REPLY_SKIP to', '')).not.toContain('REPLY_SKIP');
  });

  it('stops its turns at an empty reply and at a failed turn, and is announced', async () => {
    const empty = await open([asks(), announces('done'), answers('first'), replies('ana', '')], { turns: 5 });
    await ask(empty);
    await empty.finished();
    expect(await spoken(empty)).toEqual([
      ['bo', 'first'],
      ['ana', null],
      ['bo', 'done'],
    ]);
    const failing = { agent: 'ana', when: told.reply, steps: [{ fail: 'no idea' }] };
    const failed = await open([asks(), announces('done'), answers('first'), failing], { turns: 5 });
    await ask(failed);
    await failed.finished();
    expect((await failed.rows.turns()).map(({ state }) => state)).toEqual(['ok', 'error', 'ok']);
    expect(announced(failed)).toEqual(['done']);
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
    const mutters = { agent: 'ana', when: told.reply, steps: [{ calls: [{ tool: 'mutter' }] }] };
    const story = await open([asks(), announces('done'), answers('first'), mutters], { tools: [mutter] });
    await ask(story);
    await story.abort(await begun.promise, 'enough');
    await story.finished();
    expect((await story.rows.turns()).map(({ state }) => state)).toEqual(['ok', 'aborted', 'ok']);
    const [context] = await story.rows.contexts('announce');
    expect(context).not.toContain('to be honest');
  });

  it.each<[string, ScriptText[number], string]>([
    ['is exactly ANNOUNCE_SKIP', announces(' ANNOUNCE_SKIP '), 'silent'],
    ['is empty', announces(''), 'silent'],
    ['fails', { agent: 'bo', when: told.announce, steps: [{ fail: 'hoarse' }] }, 'the announce turn failed'],
  ])('delivers nothing when the announce %s', async (_, announce, reason) => {
    const story = await open([asks(), announce, answers('first')], { turns: 0 });
    await ask(story);
    await story.finished();
    expect(await reasons(story)).toEqual([reason]);
    expect(announced(story)).toEqual([]);
    expect(await story.rows.deliveries({ cause: 'announce' })).toEqual([]);
  });

  it('says "no destination" when the target has never spoken anywhere', async () => {
    const story = await open([asks({ sessionKey: 'agent:bo:main' }), announces('heard by nobody'), answers('first')], { turns: 0 });
    await ask(story);
    await story.finished();
    expect(await reasons(story)).toEqual(['no destination']);
    expect(announced(story)).toEqual([]);
  });

  it('has no turns and no announce when the first run fails: the caller gets the error', async () => {
    const story = await open([asks(), { agent: 'bo', when: told.message, steps: [{ fail: 'the stove is cold' }] }]);
    expect(await toolAnswer(story)).toEqual({ runId: expect.any(String), status: 'error', error: 'the stove is cold' });
    await story.finished();
    expect((await story.rows.turns()).map(({ turn, state }) => [turn, state])).toEqual([[0, 'error']]);
    expect(await reasons(story)).toEqual(['the first run failed']);
    expect(announced(story)).toEqual([]);
  });

  it('has no turns and no announce when the first run is empty: the caller gets an empty reply', async () => {
    const story = await open([asks(), answers('')]);
    expect(await toolAnswer(story)).toEqual({ runId: expect.any(String), status: 'ok', reply: '' });
    await story.finished();
    expect((await story.rows.turns()).map(({ turn, state }) => [turn, state])).toEqual([[0, 'ok']]);
    expect(await reasons(story)).toEqual(['the first run gave no reply']);
  });

  it('has no turns when nobody asked who could be replied to, and is announced', async () => {
    const story = await open([announces('done'), { agent: 'bo', when: '^\\nFrom the operator', steps: [{ say: 'first' }] }], { turns: 5 });
    await operatorSends(story, kitchen, 'From the operator');
    await story.finished();
    expect(await spoken(story)).toEqual([
      ['bo', 'first'],
      ['bo', 'done'],
    ]);
    expect(announced(story)).toEqual(['done']);
    const [context] = await story.rows.contexts('announce');
    expect(context).toContain('operator');
  });

  it('goes on where it was after a restart in its middle, and is announced once', async () => {
    const script: ScriptText = [
      asks(),
      announces('done'),
      answers('first'),
      { agent: 'ana', when: told.reply, steps: [{ calls: [{ tool: 'gate', args: { name: 'loop' } }] }, { say: 'and?' }] },
      replies('bo', 'that is all'),
    ];
    const story = await open(script);
    await ask(story);
    await story.stops.entered('loop');
    await story.close();
    story.stops.open('loop');
    await story.start();
    await story.finished();
    expect(await spoken(story)).toEqual([
      ['bo', 'first'],
      ['ana', 'and?'],
      ['bo', 'that is all'],
      ['bo', 'done'],
    ]);
    expect(announced(story)).toEqual(['done']);
  });

  it('ends with a reason when a side is reset, and the new life hears nothing of it', async () => {
    const story = await open([
      asks(),
      announces('done'),
      { agent: 'bo', when: told.message, steps: [{ calls: [{ tool: 'gate', args: { name: 'a' } }] }, { say: 'late' }] },
    ]);
    const asked = toolAnswer(story);
    await story.stops.entered('a');
    await story.reset(kitchen);
    expect(await asked).toMatchObject({ status: 'error' });
    await story.finished();
    expect((await story.rows.turns()).map(({ turn, state }) => [turn, state])).toEqual([[0, 'aborted']]);
    expect(await reasons(story)).toEqual(['the first run failed']);
    expect(announced(story)).toEqual([]);
    expect(await story.transcript(kitchen)).toEqual([]);
  });

  it('that cannot be advanced is ended as failed; its run ends all the same, and the operator is told', async () => {
    const story = await open([
      asks(),
      { agent: 'bo', when: told.message, steps: [{ calls: [{ tool: 'gate', args: { name: 'a' } }] }, { say: 'first' }] },
    ]);
    const asked = toolAnswer(story);
    await story.stops.entered('a');
    await story.rows.breakExchanges();
    story.stops.open('a');
    expect(await asked).toMatchObject({ status: 'ok', reply: 'first' });
    await story.finished();
    expect(await story.rows.exchanges({}, 'state')).toEqual([{ state: 'failed' }]);
    expect(story.warnings).toHaveLength(1);
  });
});

describe('the caller of sessions_send', () => {
  it('gets "accepted" with the run id at once for timeout 0, and the exchange runs', async () => {
    const story = await open([asks({ timeoutSeconds: 0 }), announces('done'), answers('first'), replies('*', 'and?')]);
    const result = await toolAnswer(story);
    expect(result).toEqual({ runId: expect.any(String), status: 'accepted' });
    await story.finished();
    expect(await spoken(story)).toEqual([
      ['bo', 'first'],
      ['ana', 'and?'],
      ['bo', 'and?'],
      ['bo', 'done'],
    ]);
    expect(announced(story)).toEqual(['done']);
    expect(await story.wait(result['runId'] as string, 0)).toMatchObject({ state: 'ok', reply: 'first' });
  });

  it('gets "timeout" with the run id when the wait is over; the run and the exchange go on', async () => {
    const story = await open([
      asks({ timeoutSeconds: 20 }),
      announces('done'),
      { agent: 'bo', when: told.message, steps: [{ calls: [{ tool: 'gate', args: { name: 'slow' } }] }, { say: 'first' }] },
      replies('*', 'REPLY_SKIP'),
    ]);
    const asked = toolAnswer(story);
    await story.stops.entered('slow');
    const before = story.clock.now();
    const isResult = (event: FeedEvent) => event.kind === 'entry' && event.message.toolName === 'sessions_send';
    await story.clock.passing(story.event(isResult));
    expect(story.clock.now() - before).toBeGreaterThanOrEqual(20_000);
    const [first] = await story.rows.runsOf('exchange');
    expect(first).toMatchObject({ state: 'running' });
    story.stops.open('slow');
    const result = await asked;
    expect(result).toEqual({ runId: first!.id, status: 'timeout', error: expect.any(String) });
    await story.finished();
    expect(await story.wait(first!.id, 0)).toMatchObject({ state: 'ok', reply: 'first' });
    expect(announced(story)).toEqual(['done']);
    expect(await sendResults(story)).toHaveLength(1);
  });

  it('gets "ok" when the first run ends; the turns that follow do not delay it', async () => {
    const story = await open([
      asks(),
      announces('done'),
      answers('first'),
      { agent: 'ana', when: told.reply, steps: [{ calls: [{ tool: 'gate', args: { name: 'loop' } }] }, { say: 'REPLY_SKIP' }] },
    ]);
    expect(await toolAnswer(story)).toMatchObject({ status: 'ok', reply: 'first' });
    await story.stops.entered('loop');
    expect(await story.rows.exchanges({}, 'state', 'turn', 'end_reason')).toEqual([{ state: 'reply', turn: 1, end_reason: null }]);
    story.stops.open('loop');
    await story.finished();
    expect(announced(story)).toEqual(['done']);
  });

  it('gives its slot back while it waits, and goes on when the answer is there', async () => {
    const story = await open(
      [
        asks(),
        answers('unused', 'ana'),
        { agent: 'bo', when: told.message, steps: [{ calls: [{ tool: 'gate', args: { name: 'a' } }] }, { say: 'first' }] },
      ],
      { turns: 0 },
    );
    const asked = toolAnswer(story);
    await story.stops.entered('a');
    await story.event((event) => event.kind === 'run' && event.state === 'waiting');
    expect(await story.rows.runs({ lane: 'agent:ana:main' }, 'state', 'owner')).toEqual([{ state: 'waiting', owner: null }]);
    story.stops.open('a');
    expect(await asked).toMatchObject({ status: 'ok', reply: 'first' });
  });

  it('may send to two sessions in one step: they work side by side, and both answers are there before it goes on', async () => {
    const stopping = (agent: string) => ({
      agent,
      when: told.message,
      steps: [{ calls: [{ tool: 'gate', args: { name: agent } }] }, { say: `I am ${agent}` }],
    });
    const both = [send({ sessionKey: kitchen, message: 'one' }), send({ sessionKey: 'agent:cy:main', message: 'two' })];
    const story = await open([{ agent: 'ana', when: '^\\n', steps: [{ calls: both }, { say: 'both' }] }, stopping('bo'), stopping('cy')], {
      turns: 0,
    });
    const asked = ask(story);
    await Promise.all([story.stops.entered('bo'), story.stops.entered('cy')]);
    story.stops.open('cy');
    await story.event((event) => event.kind === 'run' && event.sessionKey === 'agent:cy:main' && event.state === 'ok');
    expect(await story.rows.runs({ lane: 'agent:ana:main' }, 'state')).toEqual([{ state: 'waiting' }]);
    story.stops.open('bo');
    expect(await asked).toMatchObject({ state: 'ok', reply: 'both' });
    const results = (await sendResults(story))
      .map(({ toolCallId: id, reply }) => ({ id, reply }))
      .toSorted((a, b) => (a.id < b.id ? -1 : 1));
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
    await ask(story, 'hello');
    const contexts = async () =>
      (await story.rows.sessions({}, 'key', 'delivery'))
        .filter(({ delivery }) => delivery !== null)
        .toSorted((a, b) => (a.key < b.key ? -1 : 1));
    const before = await contexts();
    expect(before.map(({ key }) => key)).toEqual(['agent:ana:main', kitchen]);
    await ask(story);
    await story.finished();
    expect(await contexts()).toEqual(before);
    const turns = await story.rows.runsOf('exchange');
    expect([...new Set(turns.map((run) => `${run.deliver} ${run.class}`))]).toEqual(['0 nested']);
    expect(story.sent.map(({ recipient, text }) => [recipient, text.slice(0, 10)])).toEqual([
      ['you', 'hi'],
      ['you', '{"runId":"'],
      ['kitchen', 'done'],
    ]);
  });

  it('who said what: inter-session inputs are stored as such, with their source', async () => {
    const story = await open([asks(), announces('done'), answers('first'), replies('ana', 'and?'), replies('bo', 'that is all')]);
    await ask(story);
    await story.finished();
    const keys = new Map((await story.rows.sessions()).map(({ pk, key }) => [pk, key]));
    const inputs = await story.rows.entries({ role: 'user' });
    expect(inputs.map(({ session_pk, provenance }) => [keys.get(session_pk), JSON.parse(provenance!)])).toEqual([
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
  const refusals: [why: string, args: Record<string, unknown>, code: string, names?: string][] = [
    ['to oneself by key', { sessionKey: 'agent:ana:main' }, 'SEND_TO_SELF'],
    ['to oneself as "main"', { sessionKey: 'main' }, 'SEND_TO_SELF'],
    ['to "global"', { sessionKey: 'global' }, 'SESSION_KEY_RESERVED'],
    ['to "unknown"', { sessionKey: ' Unknown ' }, 'SESSION_KEY_RESERVED'],
    ['to a misspelt session, naming near ones', { sessionKey: 'agent:bo:loopback:group:kitchn' }, 'SESSION_NOT_FOUND', kitchen],
    ['to a session that is like no other', { sessionKey: 'agent:bo:telegram:group:-100987654321' }, 'SESSION_NOT_FOUND', 'sessions_list'],
    ['to a missing session id', { sessionKey: '00000000-0000-4000-8000-000000000000' }, 'SESSION_NOT_FOUND'],
    ['to a missing label', { sessionKey: undefined, label: 'lunch' }, 'SESSION_NOT_FOUND'],
    ['to a key and a label', { label: 'lunch' }, 'INVALID_REQUEST'],
    ['to nobody', { sessionKey: undefined }, 'INVALID_REQUEST'],
    ['to a key with an agent id', { agentId: 'bo' }, 'INVALID_REQUEST'],
    ['without a message', { message: undefined }, 'INVALID_REQUEST'],
    ['with a blank message', { message: ' \n ' }, 'INVALID_REQUEST'],
    ['to a key that is none', { sessionKey: 'agent:' }, 'SESSION_KEY_INVALID'],
    ['with a negative timeout', { timeoutSeconds: -1 }, 'INVALID_REQUEST', 'timeoutSeconds'],
  ];
  // One gateway for all of them: each has its own rule in the script.
  let shared: TestGateway;
  beforeAll(async () => {
    const script = refusals.map(([, args], index) => ({ ...asks(args), when: `^\\ncase ${index}$` }));
    shared = await open([...script, answers('never')], { shared: true });
  });
  afterAll(() => shared.end());

  it.each(refusals.map(([why, , code, named = ''], index) => ({ why, code, named, index })))('$why', async ({ code, named, index }) => {
    const sessions = await shared.rows.sessions({}, 'key');
    expect(await toolAnswer(shared, `case ${index}`)).toEqual({ status: 'error', code, error: expect.stringContaining(named) });
    expect(await shared.rows.exchanges()).toEqual([]);
    expect(await shared.rows.sessions({}, 'key')).toEqual(sessions);
    expect(await shared.rows.runsOf('exchange')).toEqual([]);
  });

  it('into a wait for the one that waits for it, with the reason; both go on', async () => {
    const back = {
      agent: 'bo',
      when: told.message,
      steps: [{ calls: [send({ sessionKey: 'agent:ana:main', message: 'And you?' })] }, { say: '{{result}}' }],
    };
    const story = await open([asks(), back, announces('ANNOUNCE_SKIP')], { turns: 0 });
    const result = await toolAnswer(story);
    expect(result).toMatchObject({ status: 'ok' });
    const inner = JSON.parse(result['reply'] as string) as Record<string, unknown>;
    expect(inner).toEqual({ status: 'error', code: 'CYCLIC_WAIT', error: expect.any(String) });
    await story.finished();
    expect(await story.rows.waits()).toEqual([]);
  });

  it('into a circle of three', async () => {
    const passOn = (agent: string, to: string) => ({
      agent,
      when: told.message,
      steps: [{ calls: [send({ sessionKey: to, message: 'ask on' })] }, { say: '{{result}}' }],
    });
    const story = await open([asks(), passOn('bo', 'agent:cy:main'), passOn('cy', 'agent:ana:main'), announces('ANNOUNCE_SKIP')], {
      turns: 0,
    });
    const { reply } = await ask(story);
    expect(reply).toContain('CYCLIC_WAIT');
    expect(await story.rows.exchanges({}, 'pk')).toHaveLength(2);
  });

  it('but not to the one that waits for it when it does not wait itself', async () => {
    const back = {
      agent: 'bo',
      when: told.message,
      steps: [{ calls: [send({ sessionKey: 'agent:ana:main', message: 'FYI', timeoutSeconds: 0 })] }, { say: '{{result}}' }],
    };
    const story = await open([asks(), back, announces('ANNOUNCE_SKIP'), answers('', 'ana')], { turns: 0 });
    const { reply } = await ask(story);
    expect(reply).toContain('accepted');
    await story.finished();
  });

  it('more than 12 messages away from what started it', async () => {
    const pass = (agent: string, when: string, to: string) => ({
      agent,
      when,
      steps: [{ calls: [send({ sessionKey: to, message: 'pass it on', timeoutSeconds: 0 })] }, { say: '' }],
    });
    const story = await open([pass('ana', '', 'agent:bo:main'), pass('bo', told.message, 'agent:ana:main')], { turns: 5 });
    await ask(story);
    await story.finished();
    const hops = (await story.rows.exchanges({}, 'hop')).map(({ hop }) => hop);
    expect(hops).toEqual(Array.from({ length: 12 }, (_, index) => index + 1));
    const refused = (await sendResults(story)).filter(({ status }) => status === 'error');
    expect(refused).toEqual([{ status: 'error', code: 'LOOP_LIMIT', error: expect.any(String), toolCallId: expect.any(String) }]);
  });

  it('30 times a minute from one session to another; a minute later it may again', async () => {
    const many = Array.from({ length: 31 }, () => send({ sessionKey: 'agent:bo:main', message: 'again', timeoutSeconds: 0 }));
    const story = await open([
      { agent: 'ana', when: 'once', steps: [{ calls: many.slice(0, 1) }, { say: '{{result}}' }] },
      { agent: 'ana', when: '^\\n', steps: [{ calls: many }, { say: 'done' }] },
      answers(''),
    ]);
    await ask(story, 'many');
    const codes = (await sendResults(story)).map(({ code }) => code);
    expect([codes.length, codes.filter((code) => code === 'LOOP_LIMIT').length]).toEqual([31, 1]);
    expect((await ask(story, 'once')).reply).toContain('LOOP_LIMIT');
    await story.clock.advance(60_000);
    expect((await ask(story, 'once')).reply).toContain('accepted');
    await story.finished();
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
    await ask(story);
    const [first] = await story.rows.turns();
    expect(first!.text).not.toContain('1234');
    expect(first!.text).toContain('keep it');
  });

  it('refuses a message that a rule blocks, and says so', async () => {
    const story = await open([asks({ message: 'the pin 1234' }), answers('ok')], { config: rule('ana', 'BLOCK') });
    expect(await toolAnswer(story)).toEqual({
      status: 'error',
      code: 'POLICY_BLOCKED',
      error: expect.any(String),
    });
    expect(await story.rows.exchanges()).toEqual([]);
  });

  it('stops the turns where a reply may not be carried on, and announces', async () => {
    const story = await open([asks(), announces('done'), answers('Soup.'), replies('ana', 'the pin 1234')], {
      turns: 5,
      config: rule('ana', 'BLOCK'),
    });
    await ask(story);
    await story.finished();
    expect(await spoken(story)).toEqual([
      ['bo', 'Soup.'],
      ['ana', 'the pin 1234'],
      ['bo', 'done'],
    ]);
    const heard = await story.rows.entries({ session_pk: (await story.rows.session(kitchen)).pk });
    expect(JSON.stringify(heard)).not.toContain('1234');
  });

  it('takes out of a reply what a rule says, for the caller that waits as well as in the loop', async () => {
    const story = await open([asks(), answers('the pin 1234, keep it'), replies('*', 'REPLY_SKIP'), announces('ANNOUNCE_SKIP')], {
      config: rule('bo', 'REDACT'),
    });
    const { status, reply } = await toolAnswer(story);
    expect([status, reply]).toEqual(['ok', expect.stringContaining('keep it')]);
    await story.finished();
    const heard = await story.transcript('agent:ana:main');
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
        { agent: 'bo', when: told.message, steps: [{ calls: [{ tool: 'vault' }] }, { say: 'It is {{result}}.' }] },
        announces('The recipe is out.'),
      ],
      { turns: 5, tools: [vault], config: { classification: { tools: { vault: 'CONFIDENTIAL' } } } },
    );
    expect(await toolAnswer(story)).toEqual({
      runId: expect.any(String),
      status: 'error',
      error: expect.any(String),
    });
    await story.finished();
    expect((await story.rows.turns()).map(({ turn, lane }) => [turn, lane])).toEqual([
      [0, kitchen],
      [6, kitchen],
    ]);
    expect(await reasons(story)).toEqual([expect.stringMatching(/^blocked: /)]);
    expect(announced(story)).toEqual([]);
    expect((await story.rows.session('agent:ana:main')).taint).toBe(0);
    expect((await story.rows.session(kitchen)).taint).toBe(2);
  });
});

describe('an exchange whose requester was reset', () => {
  const stopped = (agent: string, name: string, when: string, say: string) => ({
    agent,
    when,
    steps: [{ calls: [{ tool: 'gate', args: { name } }] }, { say }],
  });

  it('before its turn is announced: the target says what came of it, and the new life hears nothing', async () => {
    const script = [asks({ timeoutSeconds: 0 }), announces('done'), stopped('bo', 'a', told.message, 'first')];
    const story = await open(script, { turns: 5 });
    await ask(story);
    await story.stops.entered('a');
    await story.reset('agent:ana:main');
    story.stops.open('a');
    await story.finished();
    expect(await spoken(story)).toEqual([
      ['bo', 'first'],
      ['bo', 'done'],
    ]);
    expect(announced(story)).toEqual(['done']);
    expect(await reasons(story)).toEqual(['announced']);
    expect(await story.transcript('agent:ana:main')).toEqual([]);
  });

  it('between its turns is announced with its last word', async () => {
    const script = [
      asks({ timeoutSeconds: 0 }),
      announces('done'),
      answers('first'),
      replies('ana', 'and?'),
      stopped('bo', 'b', told.reply, 'second'),
    ];
    const story = await open(script, { turns: 5 });
    await ask(story);
    await story.stops.entered('b');
    await story.reset('agent:ana:main');
    story.stops.open('b');
    await story.finished();
    expect(await spoken(story)).toEqual([
      ['bo', 'first'],
      ['ana', 'and?'],
      ['bo', 'second'],
      ['bo', 'done'],
    ]);
    expect(announced(story)).toEqual(['done']);
  });
});
