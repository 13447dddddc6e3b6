// A step on a real model: one streamed call, retried if that can help, then the next model. No tool runs here.
import type { CallWarning, LanguageModel, ModelMessage, ToolSet } from 'ai';
import type { ProviderOptions, Thought, Usage } from '../../engine/runner.ts';
import { InterlaneError, reasonOf } from '../../errors.ts';
import { inputSchema, type Tool } from '../../tools/define.ts';
import type { Model, StepLive, StepRequest, StepResult } from './model.ts';
import type { Choice } from './choice.ts';
import type { Models } from './models.ts';
import { quote, quoteAll, recapRequest, systemPrompt, type Setting } from '../../wording.ts';
import { modelMessages, summaryMessages } from './prompt.ts';
import type { Warn } from '../../warn.ts';

export interface LanguageModelParts {
  /** The models of the current config. */
  models(): Models;
  setting(request: StepRequest): Setting;
  /** Resolves after the time, or rejects when the signal is aborted. */
  sleep(ms: number, signal: AbortSignal): Promise<void>;
  /** Runs work after a while; returns the undo. */
  after(ms: number, work: () => void): () => void;
  warn: Warn;
}

const attempts = 4;
const firstRetryMs = 1_000;
const longestRetryMs = 60_000;
/** A connection that is silent for this long counts as lost. Thinking can take minutes without any output. */
const silenceMs = 600_000;

const levels = { off: 'none', minimal: 'minimal', low: 'low', medium: 'medium', high: 'high', xhigh: 'xhigh' } as const;

export function languageModel(parts: LanguageModelParts): Model {
  const speak = async (request: StepRequest, live: StepLive, call: ModelCall): Promise<StepResult> => {
    const models = parts.models(); // the same for every attempt, even if the config changes in the meantime
    const about = { run: request.runId, session: request.sessionKey };
    let failure: unknown;
    const choices = models.choices(request.agentId, request.settings.model);
    for (const [index, choice] of choices.entries()) {
      if (index > 0)
        parts.warn(`model ${choices[index - 1]!.ref} failed (${plainReason(models, failure)}); trying ${choice.ref} instead`, about);
      for (let attempt = 1; attempt <= attempts; attempt++) {
        try {
          return await onceAsItThinks({ ...parts, models: () => models }, choice, request, live, call);
        } catch (thrown) {
          live.signal.throwIfAborted();
          if (isOverflow(thrown))
            throw new InterlaneError('CONTEXT_OVERFLOW', `model ${choice.ref}failed: the conversation is too long for its window`);
          failure = thrown;
          live.again();
          if (!canHelp(thrown) || attempt === attempts) break;
          const pause = pauseMs(thrown, attempt);
          parts.warn(
            `model ${choice.ref} failed (${statusOf(thrown)}); retrying in ${pause / 1_000} s, attempt ${attempt + 1} of ${attempts}`,
            about,
          );
          await parts.sleep(pause, live.signal);
        }
      }
    }
    const [first] = choices;
    if (!first) throw new InterlaneError('MODEL_UNKNOWN', 'model is not configured; set agents.defaults.model');
    throw new InterlaneError('MODEL_FAILED', `model ${first.ref} failed: ${plainReason(models, failure)}`);
  };
  return {
    promptEntries: 2_000,
    window: (request) => {
      const models = parts.models();
      const [first] = models.choices(request.agentId, request.settings.model);
      return first ? models.facts(first).contextTokens : Infinity;
    },
    step: (request, live) =>
      speak(request, live, { messages: (choice) => modelMessages(request.prompt, choice.provider), tools: request.tools }),
    summarize: (request, live) => speak(request, live, { messages: () => summaryMessages(request.prompt), tools: [] }),
    recap: (request, live, focus) =>
      speak(request, live, { messages: () => summaryMessages(request.prompt, recapRequest(focus)), tools: [] }),
  };
}

/** The request to a model: the same for every attempt. */
interface ModelCall {
  messages(choice: Choice): ModelMessage[];
  tools: readonly Tool[];
  /** The thinking level, if one is set. */
  level?: keyof typeof levels;
}

/** Uses the thinking level of the session. If a service refuses the level, this request and later ones omit it. */
async function onceAsItThinks(
  parts: LanguageModelParts,
  choice: Choice,
  request: StepRequest,
  live: StepLive,
  call: ModelCall,
): Promise<StepResult> {
  const models = parts.models();
  const level = models.thinkingLevel(request.agentId, request.settings);
  if (level === undefined || !isSent(level, models.type(choice)) || models.refusesThinking(choice.ref, level))
    return once(parts, choice, request, live, call);
  try {
    return await once(parts, choice, request, live, { ...call, level });
  } catch (thrown) {
    if (live.signal.aborted || !isAboutThinking(thrown)) throw thrown;
  }
  const result = await once(parts, choice, request, live, call);
  // The request works without the level, so the level was the problem.
  models.refuseThinking(choice.ref, level);
  parts.warn(`model ${choice.ref} refuses the thinking level "${level}"; requests omit it now`, {
    run: request.runId,
    session: request.sessionKey,
  });
  return result;
}

/** Compatible services have no common setting for "off", so nothing is sent to them. */
const isSent = (level: string, type: string): level is keyof typeof levels =>
  level in levels && !(level === 'off' && type === 'openai-compatible');

async function once(parts: LanguageModelParts, choice: Choice, request: StepRequest, live: StepLive, call: ModelCall): Promise<StepResult> {
  const models = parts.models();
  const { streamText } = await import('ai');
  globalThis.AI_SDK_LOG_WARNINGS = false; // session_status reports what a provider cannot do; the console does not
  const model: LanguageModel = await models.load(choice, request.settings.authProfile);
  const instructions = systemPrompt(parts.setting(request));
  const messages = call.messages(choice);
  const silence = new AbortController();
  let cancel = () => {};
  const listen = () => {
    cancel();
    cancel = parts.after(silenceMs, () => silence.abort(new Error(`it sent nothing for ${silenceMs / 1000} seconds`)));
  };
  const result: StepResult = { text: '', calls: [], usage: { model: choice.ref, input: 0, output: 0 } };
  const thoughts = new Map<string, Thought>();
  let complete = false;
  listen();
  try {
    const { stream } = streamText({
      model,
      instructions,
      messages,
      ...(call.tools.length > 0 ? { tools: await toolSet(call.tools) } : {}),
      ...(call.level === undefined ? {} : { reasoning: levels[call.level] }),
      // The gateway keeps the transcript, so OpenAI need not store one.
      ...(models.type(choice) === 'openai' ? { providerOptions: { openai: { store: false } } } : {}),
      maxRetries: 0,
      abortSignal: AbortSignal.any([live.signal, silence.signal]),
      onError: () => {}, // errors come as parts of the stream; without this the library prints them
    });
    for await (const part of stream) {
      listen();
      switch (part.type) {
        case 'start-step':
          noteThinking(models, choice, call.level, part.warnings);
          break;
        case 'text-delta':
          result.text += part.text;
          live.delta(part.text);
          break;
        case 'reasoning-start':
          thoughts.set(part.id, { type: 'reasoning', text: '', provider: choice.provider, ...optionsOf(part.providerMetadata) });
          break;
        case 'reasoning-delta': {
          const thought = thoughts.get(part.id);
          if (thought) Object.assign(thought, { text: thought.text + part.text }, optionsOf(part.providerMetadata));
          break;
        }
        case 'reasoning-end':
          Object.assign(thoughts.get(part.id) ?? {}, optionsOf(part.providerMetadata));
          break;
        case 'tool-call':
          result.calls.push({
            providerId: part.toolCallId,
            tool: part.toolName,
            args: asArguments(part.input),
            ...optionsOf(part.providerMetadata),
          });
          break;
        case 'finish-step':
          result.usage = usageOf(
            models,
            choice,
            // Without a token count the conversation would never seem full.
            part.usage.inputTokens || guessedTokens(instructions, messages, call.tools.map(definitionText)),
            part.usage.outputTokens || guessedTokens(result.text, result.calls),
            part.usage.inputTokenDetails.cacheReadTokens,
          );
          // Without a finish reason the answer is incomplete; an unknown reason still is an end.
          if (part.finishReason === 'length') result.cut = 'length';
          if (part.finishReason === 'content-filter') result.cut = 'filter';
          complete = part.finishReason !== 'error' && (part.rawFinishReason !== undefined || finishReasons.has(part.finishReason));
          break;
        case 'error':
          throw part.error;
        case 'abort':
          throw silence.signal.aborted ? silence.signal.reason : (live.signal.reason ?? new Error('the request was cut off'));
        default:
      }
    }
  } finally {
    cancel();
  }
  // A stream that breaks off looks like an answer, but its calls may be incomplete.
  if (!complete) throw new CutOff();
  // An empty text cannot be marked as cut, and another attempt would give the same.
  if (result.cut !== undefined && result.calls.length === 0 && result.text.trim() === '')
    throw new InterlaneError('MODEL_FAILED', withheld[result.cut]);
  // Reasoning is sent back only with its calls.
  if (result.calls.length > 0 && thoughts.size > 0) result.reasoning = [...thoughts.values()];
  return result;
}

const finishReasons = new Set(['stop', 'tool-calls', 'length', 'content-filter']);

const withheld = {
  filter: "the provider's filter withheld the answer",
  length: 'it reached its length limit before it wrote any text',
} as const;

class CutOff extends Error {
  override readonly message = 'its answer was cut off';
}

/** Tool definitions for a model: the library cannot run them, and tools/invoke.ts checks their arguments. */
async function toolSet(tools: readonly Tool[]): Promise<ToolSet> {
  const { jsonSchema } = await import('ai');
  const set: ToolSet = {};
  for (const tool of tools) {
    let definition = definitions.get(tool);
    if (!definition) {
      definition = { description: quote(tool.description), inputSchema: jsonSchema(quoteAll(inputSchema(tool))) } as ToolSet[string];
      definitions.set(tool, definition);
    }
    set[tool.name] = definition;
  }
  return set;
}

const definitionText = (tool: Tool) => [tool.name, tool.description, inputSchema(tool)];

/** About four characters to a token. */
const guessedTokens = (...all: unknown[]) =>
  Math.ceil(all.reduce<number>((sum, one) => sum + (typeof one === 'string' ? one : JSON.stringify(one)).length, 0) / 4);

const definitions = new WeakMap<Tool, ToolSet[string]>();

function usageOf(models: Models, choice: Choice, input = 0, output = 0, cached = 0): Usage {
  const { cost } = models.facts(choice);
  const costMicros = cost ? Math.round(input * cost.input + output * cost.output) : undefined;
  return { model: choice.ref, input, output, ...(cached ? { cached } : {}), ...(costMicros === undefined ? {} : { costMicros }) };
}

/** The warning of a provider that does not support the thinking level. */
function noteThinking(models: Models, choice: Choice, wanted: string | undefined, warnings: CallWarning[]): void {
  const about = warnings.find((one) => 'feature' in one && one.feature.includes('reasoning'));
  if (wanted !== undefined) models.noteThinking(choice.ref, wanted, about && 'details' in about ? about.details : undefined);
}

function optionsOf(metadata: unknown): { providerOptions?: ProviderOptions } {
  return metadata === undefined ? {} : { providerOptions: metadata as ProviderOptions };
}

/** If the arguments are not an object, the tool refuses the call with an error that the model can use. */
function asArguments(input: unknown): Record<string, unknown> {
  return typeof input === 'object' && input !== null && !Array.isArray(input)
    ? (input as Record<string, unknown>)
    : { unreadable: typeof input === 'string' ? input.slice(0, 2_000) : input };
}

/** The details of a failure; providers also end a stream with plain objects and texts. */
interface Failure {
  name?: string;
  message?: string;
  code?: unknown;
  statusCode?: number;
  isRetryable?: boolean;
  responseHeaders?: Record<string, string>;
  responseBody?: string;
}

function failureOf(thrown: unknown): Failure {
  return typeof thrown === 'object' && thrown !== null ? thrown : { message: String(thrown) };
}

/** Mistakes of the gateway or of the config, found before anything was sent. */
const never =
  /^AI_(LoadAPIKey|LoadSetting|NoSuchModel|NoSuchProvider|InvalidPrompt|InvalidArgument|Unsupported|MissingToolResults|MessageConversion)/;

/** A service that is busy, broken or cut off may work in a moment; a wrong key or a bad request never will. */
function canHelp(thrown: unknown): boolean {
  if (thrown instanceof InterlaneError) return false;
  const { name = '', statusCode, isRetryable } = failureOf(thrown);
  if (isRetryable !== undefined) return isRetryable;
  if (statusCode !== undefined) return statusCode === 429 || statusCode >= 500;
  return !never.test(name);
}

function pauseMs(thrown: unknown, attempt: number): number {
  const after = failureOf(thrown).responseHeaders?.['retry-after'] ?? '';
  const delay = /^\d+(\.\d+)?$/.test(after) ? Number(after) * 1_000 : firstRetryMs * 2 ** (attempt - 1);
  return Math.min(delay, longestRetryMs);
}

function isOverflow(thrown: unknown): boolean {
  const { statusCode, responseBody = '', message = '', code } = failureOf(thrown);
  // Some services report it only after the stream has begun.
  if (code === 'context_length_exceeded') return true;
  if (statusCode !== 400 && statusCode !== 413) return false;
  return /context.{0,20}(length|window)|prompt is too long|input.{0,40}too long|exceeds? the (maximum|context)/i.test(
    `${responseBody} ${message}`,
  );
}

/** Some services refuse a level, others the whole setting. */
function isAboutThinking(thrown: unknown): boolean {
  const { statusCode, responseBody = '', message = '' } = failureOf(thrown);
  return (statusCode === 400 || statusCode === 422) && /reasoning|thinking/i.test(`${responseBody} ${message}`) && !isOverflow(thrown);
}

/** For the log of a retry: without any text of the service. */
function statusOf(thrown: unknown): string {
  const { statusCode } = failureOf(thrown);
  return statusCode === undefined || statusCode < 400 ? 'no whole answer' : `status ${statusCode}`;
}

/** For people: without keys and without pages of HTML. */
function plainReason(models: Models, thrown: unknown): string {
  const { statusCode, message } = failureOf(thrown);
  const text = models
    .withoutKeys(message ?? reasonOf(thrown))
    .replace(/\s+/g, ' ')
    .slice(0, 300);
  return statusCode === undefined ? text : `${statusCode} ${text}`;
}
