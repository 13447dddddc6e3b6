// What every model promises the loop: one step at a time, text as it comes, calls as data, and a stop when it is told to.
import { describe, expect, it, onTestFinished } from 'vitest';
import { z } from 'zod';
import type { PromptMessage } from '../../src/engine/runner.ts';
import { languageModel } from '../../src/runtimes/model/language-model.ts';
import type { Model, StepLive, StepRequest } from '../../src/runtimes/model/model.ts';
import { Models } from '../../src/runtimes/model/models.ts';
import { Script, scriptedModel } from '../../src/runtimes/scripted/scripted.ts';
import { Config } from '../../src/config/schema.ts';
import { defineTool } from '../../src/tools/define.ts';
import { mockProvider } from '../mock/provider.ts';

interface Step {
  say?: string;
  calls?: { tool: string; args: Record<string, unknown> }[];
  /** It does not answer but fails. */
  fail?: true;
  /** It does not answer at all. */
  hang?: true;
}

/** A model that takes these steps, the nth after n assistant messages. */
type Make = (steps: Step[]) => Model | Promise<Model>;

const never = (signal: AbortSignal) =>
  new Promise<never>((_, reject) => {
    if (signal.aborted) reject(signal.reason as Error);
    signal.addEventListener('abort', () => reject(signal.reason as Error));
  });

const scripted: Make = (steps) =>
  scriptedModel({
    script: Script.parse([
      {
        steps: steps.map(({ fail, hang, ...step }) => ({
          ...step,
          ...(fail ? { fail: 'no' } : {}),
          ...(hang ? { sleepMs: 1 } : {}),
          stream: 3,
        })),
      },
    ]),
    sleep: (_, signal) => never(signal),
  });

const overHttp =
  (type: 'openai-compatible' | 'anthropic' | 'openai' | 'google'): Make =>
  async (steps) => {
    const provider = await mockProvider((_, index) => {
      const { say = '', calls = [], fail, hang } = steps[index] ?? {};
      if (fail) return { status: 400 };
      const pieces = say.match(/.{1,3}/g) ?? [];
      return {
        text: hang ? [new Promise<void>(() => {})] : pieces,
        calls: calls.map(({ tool, args }) => ({ name: tool, args })),
        usage: { input: 10, output: 5 },
      };
    });
    onTestFinished(() => provider.close());
    const { models } = Config.parse({ models: { providers: { mock: { type, baseUrl: provider.url, apiKey: 'not-a-real-key' } } } });
    const settings = { providers: models.providers, model: 'mock/m', fallbacks: [], agents: new Map(), thinking: () => undefined };
    const made = new Models(settings, undefined);
    return languageModel({
      models: () => made,
      setting: ({ agentId, sessionKey }) => ({
        agentId,
        name: undefined,
        instructions: undefined,
        sessionKey,
        reach: 'tree',
        date: '2027-01-15',
      }),
      sleep: (_, signal) => never(signal),
      after: () => () => {},
      warn() {},
    });
  };

const implementations: [string, Make][] = [
  ['the scripted model', scripted],
  ['a language model (openai-compatible)', overHttp('openai-compatible')],
  ['a language model (anthropic)', overHttp('anthropic')],
  ['a language model (openai)', overHttp('openai')],
  ['a language model (google)', overHttp('google')],
];

const note = defineTool({
  name: 'note',
  description: 'Write down.',
  effect: 'keyed',
  params: z.strictObject({ text: z.string() }),
  run: () => Promise.resolve({ value: 'noted' }),
});

const message = (seq: number, role: PromptMessage['role'], text: string, more: Partial<PromptMessage> = {}): PromptMessage => ({
  id: `m${seq}`,
  seq,
  role,
  content: [{ type: 'text', text }],
  taint: 'PUBLIC',
  timestamp: seq,
  ...more,
});
const asked = message(1, 'user', 'Please note it.');
const request = (prompt: PromptMessage[]): StepRequest => ({
  agentId: 'main',
  sessionKey: 'agent:main:main',
  prompt,
  tools: [note],
  settings: {},
});

function listening(signal: AbortSignal = new AbortController().signal): StepLive & { heard(): string } {
  let heard = '';
  return { signal, delta: (text) => void (heard += text), again: () => void (heard = ''), heard: () => heard };
}

describe.each(implementations)('%s', (_, make) => {
  it('says its text as it comes and as a whole: the same words', async () => {
    const model = await make([{ say: 'Hello, how are you?' }]);
    const live = listening();
    const said = await model.step(request([asked]), live);
    expect(said).toMatchObject({ text: 'Hello, how are you?', calls: [] });
    expect(live.heard()).toBe(said.text);
  });

  it('counts what a step cost', async () => {
    const model = await make([{ say: 'Hello.' }]);
    const { usage } = await model.step(request([asked]), listening());
    expect(usage.input).toBeGreaterThanOrEqual(0);
    expect(usage.output).toBeGreaterThan(0);
  });

  it('asks for calls as data, each with an id of its own, and makes none', async () => {
    const calls = ['a', 'b'].map((text) => ({ tool: 'note', args: { text } }));
    const model = await make([{ say: 'Noting.', calls }]);
    const said = await model.step(request([asked]), listening());
    expect(said.calls.map(({ tool, args }) => ({ tool, args }))).toEqual(calls);
    expect(new Set(said.calls.map(({ providerId }) => providerId)).size).toBe(2);
  });

  it('goes on from the results of its calls', async () => {
    const model = await make([{ calls: [{ tool: 'note', args: { text: 'a' } }] }, { say: 'Done.' }]);
    const first = await model.step(request([asked]), listening());
    const call = { type: 'toolCall' as const, id: '1.0', name: 'note', arguments: first.calls[0]!.args };
    const second = await model.step(
      request([
        asked,
        message(2, 'assistant', '', { content: [call] }),
        message(3, 'toolResult', 'noted a', { toolCallId: '1.0', toolName: 'note', isError: false }),
      ]),
      listening(),
    );
    expect(second).toMatchObject({ text: 'Done.', calls: [] });
  });

  it('does not change what it is given, so that a step can be taken again', async () => {
    const model = await make([{ say: 'Hello.' }]);
    const given = request([asked]);
    const before = structuredClone(given.prompt);
    await model.step(given, listening());
    expect(given.prompt).toEqual(before);
  });

  it('that fails rejects, and says nothing', async () => {
    const model = await make([{ fail: true }]);
    const live = listening();
    await expect(model.step(request([asked]), live)).rejects.toBeInstanceOf(Error);
    expect(live.heard()).toBe('');
  });

  it('stops when it is told to, with the reason it was given', async () => {
    const model = await make([{ hang: true }]);
    const stop = new AbortController();
    const step = model.step(request([asked]), listening(stop.signal));
    const reason = new Error('enough');
    stop.abort(reason);
    await expect(step).rejects.toBe(reason);
  });

  it('sums a transcript up without calls', async () => {
    const model = await make([{ say: 'They greeted each other.' }]);
    const said = await model.recap(request([asked, message(2, 'assistant', 'Hello.')]), listening(), { scope: 'session' });
    expect(said.calls).toEqual([]);
    expect(said.text).not.toBe('');
  });

  it('says how much of a transcript it wants', async () => {
    const model = await make([{ say: 'Hello.' }]);
    expect(model.promptEntries).toBeGreaterThan(0);
    expect(model.window?.(request([asked])) ?? Infinity).toBeGreaterThan(0);
  });
});
