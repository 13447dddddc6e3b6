// Which model answers: `provider/model` from a session, an agent, the defaults or what was found → the service, its key, its window.
import type { LanguageModel } from 'ai';
import { InterlaneError, nearest } from '../errors.ts';

type ProviderType = 'openai-compatible' | 'openai' | 'anthropic' | 'google';

export interface ProviderSettings {
  type: ProviderType;
  baseUrl?: string | undefined;
  apiKey?: string | undefined;
  authProfiles: Record<string, { apiKey?: string | undefined }>;
  models: Record<string, { contextTokens?: number | undefined; cost?: { input: number; output: number } | undefined }>;
}

export interface ModelSettings {
  providers: Record<string, ProviderSettings>;
  /** `agents.defaults`. */
  model?: string | undefined;
  fallbacks: string[];
  /** Models of single agents, by id. */
  agents: Record<string, string | undefined>;
}

/** A model to try, and who asked for it. */
export interface Choice {
  ref: string;
  provider: string;
  model: string;
  source: 'user' | 'agent' | 'default' | 'fallback' | 'found';
}

export interface ModelFacts {
  contextTokens: number;
  /** Dollars for a million tokens, where the config says so. */
  cost?: { input: number; output: number };
}

/** A model that was found without being configured. */
export interface Found {
  provider: string;
  settings: ProviderSettings;
  model: string;
  /** Where it was found, for people: `ANTHROPIC_API_KEY`, `a local Ollama`. */
  by: string;
}

/** The window of a model nobody described: small enough for almost all of them. */
const cautiousWindow = 128_000;

export class Models {
  private readonly settings: ModelSettings;
  private readonly found: Found | undefined;
  private readonly notes = new Map<string, string>();
  private readonly loaded = new Map<string, Promise<LanguageModel>>();

  constructor(settings: ModelSettings, found: Found | undefined) {
    this.settings = settings;
    this.found = found;
  }

  /** Whether any model but the scripted one can answer. */
  get any(): boolean {
    return this.settings.model !== undefined || this.found !== undefined || Object.values(this.settings.agents).some(Boolean);
  }

  /** What to try for a session, in order. Empty when no model is configured. */
  choices(agentId: string, wanted: string | undefined): Choice[] {
    const own = this.settings.agents[agentId];
    const first = wanted
      ? this.parse(wanted, 'user')
      : own
        ? this.parse(own, 'agent')
        : this.settings.model
          ? this.parse(this.settings.model, 'default')
          : this.found && this.parse(`${this.found.provider}/${this.found.model}`, 'found');
    if (!first) return [];
    const rest = this.settings.fallbacks.map((ref) => this.parse(ref, 'fallback'));
    return [first, ...rest].filter((choice, index, all) => all.findIndex((one) => one.ref === choice.ref) === index);
  }

  /** The model a session runs on, for people; what cannot be one is shown as it is written. */
  describe(agentId: string, wanted: string | undefined): { model?: string; contextTokens?: number } {
    try {
      const [first] = this.choices(agentId, wanted);
      return first ? { model: first.ref, contextTokens: this.facts(first).contextTokens } : {};
    } catch {
      return {};
    }
  }

  /** Refuses what cannot be a model here, with the providers there are. */
  parse(ref: string, source: Choice['source']): Choice {
    const slash = ref.indexOf('/');
    const [provider, model] = [ref.slice(0, slash).trim(), ref.slice(slash + 1).trim()];
    if (slash < 1 || model === '')
      throw new InterlaneError('MODEL_UNKNOWN', `model ${JSON.stringify(ref.slice(0, 200))} is not one; write provider/model`);
    if (!this.provider(provider)) {
      const names = [...Object.keys(this.settings.providers), ...(this.found ? [this.found.provider] : [])];
      const [near] = nearest(provider, names);
      const hint = near ? `did you mean ${near}?` : `models.providers has: ${names.join(', ') || 'none'}`;
      throw new InterlaneError('MODEL_UNKNOWN', `model provider ${JSON.stringify(provider.slice(0, 100))} is not configured; ${hint}`);
    }
    return { ref: `${provider}/${model}`, provider, model, source };
  }

  facts({ provider, model }: Pick<Choice, 'provider' | 'model'>): ModelFacts {
    const known = this.provider(provider)?.models[model];
    return { contextTokens: known?.contextTokens ?? cautiousWindow, ...(known?.cost ? { cost: { ...known.cost } } : {}) };
  }

  type({ provider }: Pick<Choice, 'provider'>): ProviderType {
    return this.provider(provider)!.type;
  }

  /** Loads the provider's code at its first use. A profile chooses among the keys of a provider. */
  load(choice: Choice, profile: string | undefined): Promise<LanguageModel> {
    const key = `${choice.ref}\n${profile ?? ''}`;
    let model = this.loaded.get(key);
    if (!model) this.loaded.set(key, (model = this.make(choice, profile)));
    return model;
  }

  /** What a provider made of a thinking level that it does not have; nothing when it took it as it is. */
  noteThinking(ref: string, level: string, note: string | undefined): void {
    if (note === undefined) this.notes.delete(`${ref} ${level}`);
    else this.notes.set(`${ref} ${level}`, note);
  }

  thinkingNote(ref: string, level: string): string | undefined {
    return this.notes.get(`${ref} ${level}`);
  }

  private provider(name: string): ProviderSettings | undefined {
    if (Object.hasOwn(this.settings.providers, name)) return this.settings.providers[name];
    return this.found?.provider === name ? this.found.settings : undefined;
  }

  private async make({ provider, model }: Choice, profile: string | undefined): Promise<LanguageModel> {
    const settings = this.provider(provider)!;
    const apiKey = (profile === undefined ? undefined : settings.authProfiles[profile]?.apiKey) ?? settings.apiKey;
    const options = {
      ...(apiKey === undefined ? {} : { apiKey }),
      ...(settings.baseUrl === undefined ? {} : { baseURL: settings.baseUrl }),
    };
    switch (settings.type) {
      case 'anthropic':
        return (await import('@ai-sdk/anthropic')).createAnthropic(options)(model);
      case 'openai':
        return (await import('@ai-sdk/openai')).createOpenAI(options)(model);
      case 'google':
        return (await import('@ai-sdk/google')).createGoogleGenerativeAI(options)(model);
      case 'openai-compatible': {
        if (settings.baseUrl === undefined)
          throw new InterlaneError('MODEL_UNKNOWN', `model provider "${provider}" needs baseUrl, the address of its server`);
        const { createOpenAICompatible } = await import('@ai-sdk/openai-compatible');
        return createOpenAICompatible({ ...options, name: provider, baseURL: settings.baseUrl, includeUsage: true })(model);
      }
    }
  }
}

/** Keys that people have in their environment, the provider each is for, and a model that it surely has. */
const environmentKeys: { variables: string[]; provider: string; type: ProviderType; model: string; baseUrl?: string }[] = [
  { variables: ['ANTHROPIC_API_KEY'], provider: 'anthropic', type: 'anthropic', model: 'claude-sonnet-5-5' },
  { variables: ['OPENAI_API_KEY'], provider: 'openai', type: 'openai', model: 'gpt-6-sol' },
  { variables: ['GEMINI_API_KEY', 'GOOGLE_GENERATIVE_AI_API_KEY'], provider: 'google', type: 'google', model: 'gemini-flash-latest' },
  {
    variables: ['OPENROUTER_API_KEY'],
    provider: 'openrouter',
    type: 'openai-compatible',
    model: 'openrouter/auto',
    baseUrl: 'https://openrouter.ai/api/v1',
  },
];

const ollama = 'http://127.0.0.1:11434';
const lookMs = 500;

/** Looks for a key in the environment, then for a local Ollama. Asked only by `up`, and only when no model is configured. */
export async function findModel(
  { models, agents }: { models: { discover: boolean }; agents: { defaults: { model?: string | undefined } } },
  env: Record<string, string | undefined>,
  fetchUrl: typeof fetch,
): Promise<Found | undefined> {
  if (!models.discover || agents.defaults.model !== undefined) return undefined;
  for (const { variables, provider, type, model, baseUrl } of environmentKeys) {
    const by = variables.find((name) => env[name]?.trim());
    if (by === undefined) continue;
    const settings = { type, apiKey: env[by]!.trim(), authProfiles: {}, models: {}, ...(baseUrl === undefined ? {} : { baseUrl }) };
    return { provider, model, by, settings };
  }
  try {
    const answer = await fetchUrl(`${ollama}/api/tags`, { signal: AbortSignal.timeout(lookMs) });
    const { models } = (await answer.json()) as { models?: { name?: unknown }[] };
    const name = models?.find((one) => typeof one.name === 'string')?.name as string | undefined;
    if (name === undefined) return undefined;
    const settings: ProviderSettings = { type: 'openai-compatible', baseUrl: `${ollama}/v1`, authProfiles: {}, models: {} };
    return { provider: 'ollama', model: name, by: `a local Ollama at ${ollama}`, settings };
  } catch {
    return undefined; // nobody is there
  }
}
