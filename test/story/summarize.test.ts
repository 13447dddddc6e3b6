// summarize: a session's own conversation in a few words, by its own model, and never anything of another session.
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { HandClock, RealClock } from '../clock.ts';
import { mockProvider, type Say } from '../mock/provider.ts';
import { forTest, say, Stage } from './stage.ts';
import { callScript, ToolStage } from './tool-stage.ts';

vi.setConfig({ testTimeout: 30_000 });

const main = 'agent:main:main';
const open = () => forTest(new ToolStage(new HandClock(), main)).start({}, callScript, { channels: [] });

describe('summarize without a model', () => {
  it('is the same extract each time: what was said, without the call itself and without other sessions', async () => {
    const stage = await open();
    await stage.say('agent:main:direct:ana', 'the other secret');
    await stage.say(main, 'The boiler is broken.');
    await stage.say(main, 'The garden needs water.');
    const summary =
      'user: The boiler is broken.\nassistant: re: The boiler is broken.\nuser: The garden needs water.\nassistant: re: The garden needs water.';
    expect(await stage.call('summarize')).toEqual({ scope: 'session', summary: `${summary}\nuser: call` });
    expect(await stage.call('summarize', { scope: 'topic', topic: 'Boiler' })).toEqual({
      scope: 'topic',
      summary: 'user: The boiler is broken.\nassistant: re: The boiler is broken.',
    });
    expect(await stage.call('summarize', { topic: 'garden water' })).toMatchObject({
      scope: 'topic',
      summary: expect.stringMatching(/^user: The garden needs water\.\nassistant/),
    });
    expect(await stage.call('summarize', { topic: 'secret' })).toEqual({ scope: 'topic', summary: '' });
  });

  it('takes no session to look at, and one way to name a topic', async () => {
    const stage = await open();
    expect(await stage.call('summarize', { sessionKey: 'agent:main:direct:ana' })).toMatchObject({ code: 'INVALID_REQUEST' });
    expect(await stage.call('summarize', { scope: 'session', topic: 'x' })).toMatchObject({ code: 'INVALID_REQUEST' });
    expect(await stage.call('summarize', { scope: 'everything' })).toMatchObject({ code: 'INVALID_REQUEST' });
  });

  it('is bounded, says so, and has the level of the session', async () => {
    const stage = await open();
    await stage.say(main, 'x'.repeat(30_000), { taint: 2 });
    for (let index = 0; index < 15; index++) await stage.say(main, `${index} `.padEnd(19_000, 'y'));
    const [row] = await stage.calls([{ tool: 'summarize' }]);
    const { summary, note } = JSON.parse(row!.text) as { summary: string; note: string };
    expect(note).toBe('only the end of the conversation was read');
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
    const stage = await forTest(new Stage(new RealClock())).start({ models, agents: { defaults: { model: 'mock/m' } } }, []);
    const { gateway } = stage;
    await gateway.engine.wait((await say(gateway, 'I am Ana. The boiler is broken.')).runId, 60_000);
    const { runId } = await say(gateway, 'Sum it up.');
    expect(await gateway.engine.wait(runId, 60_000)).toMatchObject({ state: 'ok', reply: 'Done.' });
    const { messages, tools } = provider.asked[2]!.body;
    expect(tools).toBeUndefined();
    expect(messages!.map(({ role }) => role)).toEqual(['system', 'user']);
    expect(messages!.at(-1)!.content).toMatch(
      /^⟦User⟧\nI am Ana\. The boiler is broken\.\n\n⟦You⟧\nHello Ana\.\n\n⟦User⟧\nSum it up\.\n\n⟦Summarise what this conversation says about the topic below .*⟧\nTopic: the \[\[boiler\]\]$/,
    );
    const [result] = await stage.rows<{ text: string }>(`SELECT text FROM entries WHERE role = 'toolResult'`);
    expect(JSON.parse(result!.text)).toEqual({ scope: 'topic', summary: 'The boiler is broken.' });
    expect(await stage.rows('SELECT tokens FROM runs WHERE id = ?', runId)).toEqual([{ tokens: 22 + 330 + 44 }]);
  });

  it('that does not answer is an error result, and the run goes on', async () => {
    const answers: Say[] = [{ calls: [{ name: 'summarize', args: {} }] }, { status: 401 }, { text: 'I could not.' }];
    const provider = await mockProvider((_, index) => answers[index]!);
    onTestFinished(() => provider.close());
    const models = { providers: { mock: { type: 'openai-compatible' as const, baseUrl: provider.url } } };
    const stage = await forTest(new Stage(new RealClock())).start({ models, agents: { defaults: { model: 'mock/m' } } }, []);
    const { runId } = await say(stage.gateway, 'Sum it up.');
    expect(await stage.gateway.engine.wait(runId, 60_000)).toMatchObject({ state: 'ok', reply: 'I could not.' });
    const [result] = await stage.rows<{ text: string }>(`SELECT text FROM entries WHERE role = 'toolResult'`);
    expect(JSON.parse(result!.text)).toMatchObject({ status: 'error', code: 'MODEL_FAILED' });
  });
});
