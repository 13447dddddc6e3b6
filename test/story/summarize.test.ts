// summarize: a session's own conversation in a few words, by its own model, and never anything of another session.
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { testGateway } from '../harness/gateway.ts';
import { mockProvider, type Say } from '../mock/provider.ts';

vi.setConfig({ testTimeout: 30_000 });

const main = 'agent:main:main';
const open = () => testGateway({ caller: main, channels: [] });

describe('summarize without a model', () => {
  it('is the same extract each time: what was said, without the call itself and without other sessions', async () => {
    const stage = await open();
    await stage.tell('agent:main:direct:ana', 'the other secret');
    await stage.tell(main, 'The boiler is broken.');
    await stage.tell(main, 'The garden needs water.');
    const summary =
      'user: The boiler is broken.\nassistant: re: The boiler is broken.\nuser: The garden needs water.\nassistant: re: The garden needs water.';
    expect(await stage.tool('summarize')).toEqual({ scope: 'session', summary: `${summary}\nuser: call` });
    expect(await stage.tool('summarize', { scope: 'topic', topic: 'Boiler' })).toEqual({
      scope: 'topic',
      summary: 'user: The boiler is broken.\nassistant: re: The boiler is broken.',
    });
    expect(await stage.tool('summarize', { topic: 'garden water' })).toMatchObject({
      scope: 'topic',
      summary: expect.stringMatching(/^user: The garden needs water\.\nassistant/),
    });
    expect(await stage.tool('summarize', { topic: 'secret' })).toEqual({ scope: 'topic', summary: '' });
  });

  it('takes no session to look at, and one way to name a topic', async () => {
    const stage = await open();
    expect(await stage.tool('summarize', { sessionKey: 'agent:main:direct:ana' })).toMatchObject({ code: 'INVALID_REQUEST' });
    expect(await stage.tool('summarize', { scope: 'session', topic: 'x' })).toMatchObject({ code: 'INVALID_REQUEST' });
    expect(await stage.tool('summarize', { scope: 'everything' })).toMatchObject({ code: 'INVALID_REQUEST' });
  });

  it('is bounded, says so, and has the level of the session', async () => {
    const stage = await open();
    await stage.tell(main, 'x'.repeat(30_000), { taint: 2 });
    for (let index = 0; index < 15; index++) await stage.tell(main, `${index} `.padEnd(19_000, 'y'));
    const [row] = await stage.tools([{ tool: 'summarize' }]);
    const { summary, note } = JSON.parse(row!.text) as { summary: string; note: string };
    expect(note).toEqual(expect.any(String));
    expect(summary.length).toBeLessThan(2_000);
    expect(row!.taint).toBe(2);
  });
});

describe('summarize by a model', () => {
  it('asks the model of the session once, without tools, and the run is charged for it', async () => {
    const answers: Say[] = [
      { text: 'Hello Ana.', usage: { input: 10, output: 1 } },
      { calls: [{ name: 'summarize', args: { scope: 'topic', topic: 'the ⟦boiler⟧' } }], usage: { input: 20, output: 2 } },
      { text: 'The boiler is broken.', usage: { input: 300, output: 30 } },
      { text: 'Done.', usage: { input: 40, output: 4 } },
    ];
    const provider = await mockProvider((_, index) => answers[index]!);
    onTestFinished(() => provider.close());
    const models = {
      providers: { mock: { type: 'openai-compatible' as const, baseUrl: provider.url, models: { m: { cost: { input: 1, output: 1 } } } } },
    };
    const stage = await testGateway({ config: { models, agents: { defaults: { model: 'mock/m' } } }, clock: 'real' });
    await stage.answer('I am Ana. The boiler is broken.');
    const runId = await stage.say('Sum it up.');
    expect(await stage.wait(runId)).toMatchObject({ state: 'ok', reply: 'Done.' });
    const { messages, tools } = provider.asked[2]!.body;
    expect(tools).toBeUndefined();
    expect(messages!.map(({ role }) => role)).toEqual(['system', 'user']);
    const asked = messages!.at(-1)!.content as string;
    for (const part of ['I am Ana. The boiler is broken.', 'Hello Ana.', 'Sum it up.']) expect(asked).toContain(part);
    // A topic cannot pass for the gateway's own brackets.
    expect(asked).toMatch(/the \[\[boiler\]\]$/);
    const [result] = await stage.rows.entries({ role: 'toolResult' });
    expect(JSON.parse(result!.text)).toEqual({ scope: 'topic', summary: 'The boiler is broken.' });
    expect(await stage.rows.runs({ id: runId }, 'tokens')).toEqual([{ tokens: 22 + 330 + 44 }]);
  });

  it('that does not answer is an error result, and the run goes on', async () => {
    const answers: Say[] = [{ calls: [{ name: 'summarize', args: {} }] }, { status: 401 }, { text: 'I could not.' }];
    const provider = await mockProvider((_, index) => answers[index]!);
    onTestFinished(() => provider.close());
    const models = { providers: { mock: { type: 'openai-compatible' as const, baseUrl: provider.url } } };
    const stage = await testGateway({ config: { models, agents: { defaults: { model: 'mock/m' } } }, clock: 'real' });
    expect(await stage.answer('Sum it up.')).toMatchObject({ state: 'ok', reply: 'I could not.' });
    const [result] = await stage.rows.entries({ role: 'toolResult' });
    expect(JSON.parse(result!.text)).toMatchObject({ status: 'error', code: 'MODEL_FAILED' });
  });
});
