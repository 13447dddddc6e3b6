// A model that follows a script: deterministic, without a key. It answers until a real model is configured.
import { RE2JS } from 're2js';
import { z } from 'zod';
import type { PromptMessage } from '../../engine/runner.ts';
import { matchesGlob } from '../../rules/glob.ts';
import { contextText } from '../../wording.ts';
import type { Model, StepResult } from '../model/model.ts';

const Call = z.strictObject({ tool: z.string().min(1), args: z.record(z.string(), z.unknown()).default({}) });

/** One step of a turn. `{{input}}` is the message being answered, `{{result}}` the latest tool result. */
const ScriptStep = z.strictObject({
  say: z.string().default(''),
  calls: z.array(Call).default([]),
  /** Milliseconds to think before speaking. */
  sleepMs: z.int().min(0).default(0),
  /** Speak in pieces of this many characters. */
  stream: z.int().min(1).optional(),
  /** Fail with this message instead of speaking. */
  fail: z.string().optional(),
});

const ScriptRule = z.strictObject({
  /** Agent id with `*`. */
  agent: z.string().default('*'),
  /** RE2 pattern that must match the message, or what the gateway says beside it. */
  when: z.string().default(''),
  steps: z.array(ScriptStep).min(1),
});

export const Script = z.array(ScriptRule);
export type Script = z.infer<typeof Script>;

const mostExtracted = 10;
const longestExtract = 160;

/** The default script: enough to see that a message arrived and was answered. */
const echo: Script = Script.parse([{ steps: [{ say: 'You said: {{input}}' }] }]);

export interface ScriptedOptions {
  script?: Script;
  /** Resolves after the time, or rejects when the signal is aborted. */
  sleep(ms: number, signal: AbortSignal): Promise<void>;
}

export function scriptedModel(options: ScriptedOptions): Model {
  const rules = (options.script ?? echo).map((rule) => ({ ...rule, pattern: RE2JS.compile(rule.when) }));
  return {
    promptEntries: 200,
    async step({ agentId, prompt }, { signal, delta }): Promise<StepResult> {
      const at = prompt.findLastIndex((message) => message.role === 'user');
      const input = prompt[at];
      const message = input ? `${contextOf(input)}\n${textOf(input)}` : '';
      const rule = rules.find((one) => matchesGlob(one.agent, agentId) && one.pattern.test(message));
      // Counts the finished steps in the transcript, so that a resumed turn continues where it stopped. A step that did not end the turn
      // has calls; other text was written by hand.
      const taken = prompt.slice(at + 1).filter(({ role, content }) => role === 'assistant' && content.some(isCall)).length;
      const step = rule?.steps[taken];
      if (!step) return { text: '', calls: [], usage: { input: 0, output: 0 } };
      if (step.sleepMs > 0) await options.sleep(step.sleepMs, signal);
      if (step.fail !== undefined) throw new Error(step.fail);
      const result = prompt.findLast((message) => message.role === 'toolResult');
      const fill = (text: string) =>
        text.replaceAll('{{input}}', input ? textOf(input) : '').replaceAll('{{result}}', result ? textOf(result) : '');
      const text = fill(step.say);
      for (let from = 0; from < text.length; from += step.stream ?? text.length)
        delta(text.slice(from, from + (step.stream ?? text.length)));
      const calls = step.calls.map((call, index) => ({ providerId: `call_${index}`, tool: call.tool, args: fillAll(call.args, fill) }));
      return { text, calls, usage: { input: 0, output: Math.ceil(text.length / 4) } };
    },
    // oxlint-disable-next-line require-await -- asynchronous by contract
    async recap({ prompt }, _, { scope, topic }): Promise<StepResult> {
      const text = extract(prompt, scope, topic);
      return { text, calls: [], usage: { input: 0, output: Math.ceil(text.length / 4) } };
    },
  };
}

/** Deterministic: the beginnings of the first and last messages, or of those that contain the words of the topic. */
function extract(prompt: PromptMessage[], scope: 'session' | 'topic', topic: string | undefined): string {
  const words = (topic ?? '').toLowerCase().split(/\s+/).filter(Boolean);
  const texts = prompt
    .filter((message) => message.role !== 'toolResult' && textOf(message).trim() !== '')
    .map((message) => ({ role: message.role, text: textOf(message).replace(/\s+/g, ' ').trim() }))
    .filter(({ text }) => words.every((word) => text.toLowerCase().includes(word)));
  const latest = scope === 'topic' && topic === undefined ? texts.slice(-2) : texts;
  const parts = latest.length <= mostExtracted ? latest : [...latest.slice(0, 2), ...latest.slice(2 - mostExtracted)];
  return parts
    .map(({ role, text }) => `${role}: ${text.length > longestExtract ? `${text.slice(0, longestExtract - 1)}…` : text}`)
    .join('\n');
}

function contextOf({ context = '' }: PromptMessage): string {
  return typeof context === 'string' ? context : contextText(context);
}

const isCall = ({ type }: PromptMessage['content'][number]) => type === 'toolCall';

function textOf(message: PromptMessage): string {
  return message.content.map((block) => (block.type === 'text' ? block.text : '')).join('');
}

function fillAll(args: Record<string, unknown>, fill: (text: string) => string): Record<string, unknown> {
  return Object.fromEntries(Object.entries(args).map(([name, value]) => [name, typeof value === 'string' ? fill(value) : value]));
}
