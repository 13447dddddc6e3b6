// A step on a real model: one streamed call, tried again where that can help, then the next model. Tools are never run in here.
import type { CallWarning, LanguageModel, ToolSet } from 'ai';
import type { Thought, Usage } from '../engine/runner.ts';
import { InterlaneError, reasonOf } from '../errors.ts';
import { inputSchema, type Tool } from '../tools/define.ts';
import type { Model, StepLive, StepRequest, StepSaid } from './model.ts';
import type { Choice, Models } from './models.ts';
import { modelMessages, recapRequest, summaryRequest, systemPrompt, type Setting } from './prompt.ts';

export interface LanguageModelParts {
  models: Models;
  setting(request: StepRequest): Setting;
  /** The thinking level that holds where a session sets none. */
  thinking(agentId: string): string | undefined;
  /** Resolves after the time, or rejects when the signal is aborted. */
  sleep(ms: number, signal: AbortSignal): Promise<void>;
  /** Runs work after a while; returns the undo. */
  after(ms: number, work: () => void): () => void;
  warn(message: string): void;
}

const attempts = 4;
const firstRetryMs = 1_000;
const longestRetryMs = 60_000;
/** A model that says nothing for so long has lost us. */
const silenceMs = 180_000;

const levels = { off: 'none', minimal: 'minimal', low: 'low', medium: 'medium', high: 'high', xhigh: 'xhigh' } as const;

export function languageModel(parts: LanguageModelParts): Model {
  const { models } = parts;
  const speak = async (request: StepRequest, live: StepLive, extra: { tools: boolean; ask?: string }): Promise<StepSaid> => {
    let failure: unknown;
    const choices = models.choices(request.agentId, request.settings.model);
    for (const [index, choice] of choices.entries()) {
      if (index > 0) parts.warn(`model ${choices[index - 1]!.ref} failed (${plainReason(failure)}); ${choice.ref} is tried instead`);
      for (let attempt = 1; attempt <= attempts; attempt++) {
        try {
          return await once(parts, choice, request, live, extra, attempt === attempts);
        } catch (thrown) {
          live.signal.throwIfAborted();
          if (isOverflow(thrown)) throw new InterlaneError('CONTEXT_OVERFLOW', `model ${choice.ref}: the conversation is too long for it`);
          failure = thrown;
          live.again();
          if (!canHelp(thrown) || attempt === attempts) break;
          await parts.sleep(pauseMs(thrown, attempt), live.signal);
        }
      }
    }
    const [first] = choices;
    if (!first) throw new InterlaneError('MODEL_UNKNOWN', 'model is not configured; set agents.defaults.model');
    throw new InterlaneError('MODEL_FAILED', `model ${first.ref} did not answer: ${plainReason(failure)}`);
  };
  return {
    promptEntries: 2_000,
    window: (request) => {
      const [first] = models.choices(request.agentId, request.settings.model);
      return first ? models.facts(first).contextTokens : Infinity;
    },
    step: (request, live) => speak(request, live, { tools: true }),
    summarize: (request, live) => speak(request, live, { tools: false, ask: summaryRequest }),
    recap: (request, live, focus) => speak(request, live, { tools: false, ask: recapRequest(focus) }),
  };
}

async function once(
  parts: LanguageModelParts,
  choice: Choice,
  request: StepRequest,
  live: StepLive,
  extra: { tools: boolean; ask?: string },
  last: boolean,
): Promise<StepSaid> {
  const { models } = parts;
  const { streamText } = await import('ai');
  const model: LanguageModel = await models.load(choice, request.settings.authProfile);
  const wanted = request.settings.thinkingLevel ?? parts.thinking(request.agentId);
  const silence = new AbortController();
  let cancel = () => {};
  const listen = () => {
    cancel();
    cancel = parts.after(silenceMs, () => silence.abort(new Error(`it said nothing for ${silenceMs / 1000} seconds`)));
  };
  const heard: StepSaid = { text: '', calls: [], usage: { model: choice.ref, input: 0, output: 0 } };
  const thoughts = new Map<string, Thought>();
  let finish: string | undefined;
  listen();
  try {
    const { stream } = streamText({
      model,
      instructions: systemPrompt(parts.setting(request)),
      messages: [...modelMessages(request.prompt), ...(extra.ask === undefined ? [] : [{ role: 'user' as const, content: extra.ask }])],
      ...(extra.tools ? { tools: await toolSet(request.tools) } : {}),
      ...(wanted !== undefined && wanted in levels ? { reasoning: levels[wanted as keyof typeof levels] } : {}),
      maxRetries: 0,
      abortSignal: AbortSignal.any([live.signal, silence.signal]),
      onError: () => {}, // errors come as parts of the stream; without this they are printed
    });
    for await (const part of stream) {
      listen();
      switch (part.type) {
        case 'start-step':
          noteThinking(models, choice, wanted, part.warnings);
          break;
        case 'text-delta':
          heard.text += part.text;
          live.delta(part.text);
          break;
        case 'reasoning-start':
          thoughts.set(part.id, { type: 'reasoning', text: '', ...optionsOf(part.providerMetadata) });
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
          heard.calls.push({ providerId: part.toolCallId, tool: part.toolName, args: asArguments(part.input) });
          break;
        case 'finish-step':
          heard.usage = usageOf(
            models,
            choice,
            part.usage.inputTokens,
            part.usage.outputTokens,
            part.usage.inputTokenDetails.cacheReadTokens,
          );
          finish = part.finishReason;
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
  // A stream that just stops looks like an answer. It is asked for again, and taken as it is only when it keeps stopping.
  const complete = finish === 'stop' || finish === 'tool-calls' || finish === 'length' || finish === 'content-filter';
  const empty = heard.text === '' && heard.calls.length === 0;
  if (!complete && (!last || empty)) throw new CutOff();
  // Thoughts are given back only with the calls they led to.
  if (heard.calls.length > 0 && thoughts.size > 0) heard.reasoning = [...thoughts.values()];
  return heard;
}

class CutOff extends Error {
  override readonly message = 'its answer was cut off';
}

/** Tools as a model sees them: no way to run them, and what it writes is checked by us. */
async function toolSet(tools: Iterable<Tool>): Promise<ToolSet> {
  const { jsonSchema } = await import('ai');
  const set: ToolSet = {};
  for (const tool of tools)
    set[tool.name] = { description: tool.description, inputSchema: jsonSchema(inputSchema(tool)) } as ToolSet[string];
  return set;
}

function usageOf(models: Models, choice: Choice, input = 0, output = 0, cached = 0): Usage {
  const { cost } = models.facts(choice);
  const costMicros = cost ? Math.round(input * cost.input + output * cost.output) : undefined;
  return { model: choice.ref, input, output, ...(cached ? { cached } : {}), ...(costMicros === undefined ? {} : { costMicros }) };
}

/** What a provider says when it cannot think as much or as little as was asked. */
function noteThinking(models: Models, choice: Choice, wanted: string | undefined, warnings: CallWarning[]): void {
  const about = warnings.find((one) => 'feature' in one && one.feature.includes('reasoning'));
  if (wanted !== undefined) models.noteThinking(choice.ref, wanted, about && 'details' in about ? about.details : undefined);
}

function optionsOf(metadata: unknown): Pick<Thought, 'providerOptions'> {
  return metadata === undefined ? {} : { providerOptions: metadata as NonNullable<Thought['providerOptions']> };
}

/** A call whose arguments are no object is refused by the tool, with words the model can use. */
function asArguments(input: unknown): Record<string, unknown> {
  return typeof input === 'object' && input !== null && !Array.isArray(input)
    ? (input as Record<string, unknown>)
    : { unreadable: typeof input === 'string' ? input.slice(0, 2_000) : input };
}

interface ApiError {
  statusCode?: number;
  isRetryable?: boolean;
  responseHeaders?: Record<string, string>;
  responseBody?: string;
}

/** Busy, broken or cut off may be over in a moment; a wrong key or a bad request will not. */
function canHelp(thrown: unknown): boolean {
  const { statusCode, isRetryable } = thrown as ApiError;
  if (statusCode !== undefined) return isRetryable ?? (statusCode === 429 || statusCode >= 500);
  return !(thrown instanceof InterlaneError);
}

function pauseMs(thrown: unknown, attempt: number): number {
  const seconds = Number((thrown as ApiError).responseHeaders?.['retry-after']);
  const asked = Number.isFinite(seconds) && seconds >= 0 ? seconds * 1_000 : firstRetryMs * 2 ** (attempt - 1);
  return Math.min(asked, longestRetryMs);
}

function isOverflow(thrown: unknown): boolean {
  const { statusCode, responseBody } = thrown as ApiError;
  if (statusCode !== 400 && statusCode !== 413) return false;
  return /context.{0,20}(length|window)|too long|maximum.{0,20}tokens|exceeds? the (maximum|context)/i.test(
    `${responseBody ?? ''} ${reasonOf(thrown)}`,
  );
}

/** For people: no key, no page of HTML. */
function plainReason(thrown: unknown): string {
  const { statusCode } = thrown as ApiError;
  const text = reasonOf(thrown)
    .replace(/\b(sk|key|pk|rk)[-_][\w-]{6,}/gi, '[key]')
    .replace(/\s+/g, ' ')
    .slice(0, 300);
  return statusCode === undefined ? text : `${statusCode} ${text}`;
}
