// The model that answers: `provider/model` from a session, an agent, the defaults or discovery → the service, its key, its window.
import type { LanguageModel } from 'ai';
import { nearest } from '../../nearest.ts';
import type { SessionSettings } from '../../engine/policy.ts';
import type { ModelView } from '../../engine/runner.ts';
import { InterlaneError } from '../../errors.ts';
import type { Finding } from '../../finding.ts';
import type { Choice, Found, ProviderSettings, ProviderType } from './choice.ts';

export interface ModelSettings {
  providers: Record<string, ProviderSettings>;
  /** `agents.defaults`. */
  model?: string | undefined;
  fallbacks: string[];
  /** Models of single agents, by id. */
  agents: ReadonlyMap<string, string | undefined>;
  /** The thinking level of an agent, for sessions that set none. */
  thinking(agentId: string): string | undefined;
}

export interface ModelFacts {
  contextTokens: number;
  /** Dollars for a million tokens, if the config has a price. */
  cost?: { input: number; output: number };
}

/** The window of a model that the config does not describe: small enough for almost all of them. */
const cautiousWindow = 128_000;
/** A shorter text is not a key, and removing it would spoil messages. */
const shortestKey = 6;

/** Of a provider of type `openai-compatible`, which has no address of its own. */
export const needsAddress = 'needs baseUrl, the address of its server';

export class Models {
  private readonly settings: ModelSettings;
  private readonly found: Found | undefined;
  private readonly notes = new Map<string, string>();
  /** Thinking levels that a model's service has refused, as `ref level`. A new config clears them, so that they are tried again. */
  private readonly refused = new Set<string>();
  private readonly loaded = new Map<string, Promise<LanguageModel>>();

  constructor(settings: ModelSettings, found: Found | undefined) {
    this.settings = settings;
    this.found = found;
  }

  /** Whether a session has a real model. A model that the session sets counts even if it is unusable: the run then reports that. */
  answers(agentId: string, wanted: string | undefined): boolean {
    return wanted !== undefined || this.choices(agentId, undefined).length > 0;
  }

  /** The model of a session, as its row reports it. */
  view(agentId: string, settings: SessionSettings): ModelView | undefined {
    if (!this.answers(agentId, settings.model)) return undefined;
    const view: ModelView = { model: settings.model ?? '', modelSource: settings.model === undefined ? 'auto' : 'user' };
    const thinkingLevel = this.thinkingLevel(agentId, settings);
    if (thinkingLevel !== undefined)
      Object.assign(view, { thinkingLevel, thinkingLevelSource: settings.thinkingLevel === undefined ? 'auto' : 'user' });
    const [first] = this.choicesOrNone(agentId, settings.model);
    if (!first) return view; // its provider is no longer configured
    const thinkingNote = thinkingLevel === undefined ? undefined : this.notes.get(`${first.ref} ${thinkingLevel}`);
    const { contextTokens } = this.facts(first);
    return { ...view, model: first.ref, contextTokens, ...(thinkingNote === undefined ? {} : { thinkingNote }) };
  }

  thinkingLevel(agentId: string, settings: SessionSettings): string | undefined {
    return settings.thinkingLevel ?? this.settings.thinking(agentId);
  }

  /** The provider of a session's model. */
  providerOf(agentId: string, wanted: string | undefined): string | undefined {
    return this.choicesOrNone(agentId, wanted)[0]?.provider;
  }

  /** Throws for a model or a profile that cannot be set on a session. */
  check(agentId: string, { model, authProfile }: SessionSettings): void {
    const [first] = this.choices(agentId, model);
    if (authProfile === undefined) return;
    if (!first)
      throw new InterlaneError('MODEL_UNKNOWN', 'auth profile needs a model; set agents.defaults.model or the model of the session');
    this.keyOf(first.provider, authProfile, true);
  }

  /** Removes every configured key from a text, and everything that looks like a key. */
  withoutKeys(text: string): string {
    let clean = text;
    for (const { apiKey, authProfiles } of [...Object.values(this.settings.providers), ...(this.found ? [this.found.settings] : [])])
      for (const key of [apiKey, ...Object.values(authProfiles).map((profile) => profile.apiKey)])
        if (key !== undefined && key.length >= shortestKey) clean = clean.replaceAll(key, '[key]');
    return clean.replace(/\b(sk|key|pk|rk)[-_][\w-]{6,}/gi, '[key]').replace(/\/\/[^\s/@]+@/g, '//[key]@');
  }

  /** The models to try for a session, in order. Empty if no model is configured. */
  choices(agentId: string, wanted: string | undefined): Choice[] {
    const own = this.settings.agents.get(agentId);
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

  /** Throws for an unknown model, with the configured providers. */
  parse(ref: string, source: Choice['source']): Choice {
    const wrong = this.problem(ref);
    if (wrong) {
      const hint = wrong.meant === undefined ? '' : `; did you mean "${wrong.meant}"?`;
      throw new InterlaneError('MODEL_UNKNOWN', `model ${JSON.stringify(ref.slice(0, 200))} ${wrong.says}${hint}`);
    }
    const { provider, model } = partsOf(ref);
    return { ref: `${provider}/${model}`, provider, model, source };
  }

  /** Why a model cannot be used; undefined if it can. */
  problem(ref: string): Pick<Finding, 'says' | 'meant'> | undefined {
    const { provider, model } = partsOf(ref);
    if (provider === '' || model === '') return { says: 'is unknown; write provider/model, for example openai/gpt-5' };
    if (this.service(provider)) return undefined;
    const names = [...Object.keys(this.settings.providers), ...(this.found ? [this.found.provider] : [])];
    const [near] = nearest(provider, names);
    const says = 'names a provider that is not configured';
    if (near !== undefined) return { says, meant: `${near}/${model}` };
    return { says: `${says}; ${toAdd(provider) ?? `models.providers has: ${names.join(', ') || 'none'}`}` };
  }

  facts({ provider, model }: Pick<Choice, 'provider' | 'model'>): ModelFacts {
    const models = this.service(provider)?.models ?? {};
    const facts = Object.hasOwn(models, model) ? models[model] : undefined;
    return { contextTokens: facts?.contextTokens ?? cautiousWindow, ...(facts?.cost ? { cost: { ...facts.cost } } : {}) };
  }

  type({ provider }: Pick<Choice, 'provider'>): ProviderType {
    return this.service(provider)!.type;
  }

  /** Loads the provider's code at its first use. A profile chooses among the keys of a provider. */
  async load(choice: Choice, profile: string | undefined): Promise<LanguageModel> {
    const key = JSON.stringify([choice.ref, choice.source === 'fallback', profile]);
    let model = this.loaded.get(key);
    if (!model) this.loaded.set(key, (model = this.make(choice, profile)));
    return model;
  }

  /** What a provider does with a thinking level that it does not support; undefined if it supports the level. */
  noteThinking(ref: string, level: string, note: string | undefined): void {
    if (note === undefined) this.notes.delete(`${ref} ${level}`);
    else this.notes.set(`${ref} ${level}`, note);
  }

  refuseThinking(ref: string, level: string): void {
    this.refused.add(`${ref} ${level}`);
    this.noteThinking(ref, level, 'the service refuses it, so requests omit it');
  }

  refusesThinking(ref: string, level: string): boolean {
    return this.refused.has(`${ref} ${level}`);
  }

  private choicesOrNone(agentId: string, wanted: string | undefined): Choice[] {
    try {
      return this.choices(agentId, wanted);
    } catch {
      return [];
    }
  }

  /** The service that has this name in the config, or that was found. */
  service(name: string): ProviderSettings | undefined {
    if (Object.hasOwn(this.settings.providers, name)) return this.settings.providers[name];
    return this.found?.provider === name ? this.found.settings : undefined;
  }

  /** A profile belongs to the provider of the session's model. No other key replaces it; a fallback model uses its own. */
  private keyOf(provider: string, profile: string | undefined, own: boolean): string | undefined {
    const { apiKey, authProfiles } = this.service(provider)!;
    if (profile === undefined) return apiKey;
    const keys = new Map(Object.entries(authProfiles).flatMap(([name, { apiKey: key }]) => (key === undefined ? [] : [[name, key]])));
    const chosen = keys.get(profile);
    if (chosen !== undefined) return chosen;
    if (!own) return apiKey;
    const names = [...keys.keys()];
    throw new InterlaneError(
      'MODEL_UNKNOWN',
      `auth profile ${JSON.stringify(profile.slice(0, 100))} does not exist at provider "${provider}"; it has: ${names.join(', ') || 'none'}`,
    );
  }

  private async make({ provider, model, source }: Choice, profile: string | undefined): Promise<LanguageModel> {
    const settings = this.service(provider)!;
    const apiKey = this.keyOf(provider, profile, source !== 'fallback');
    const options = {
      // The library reads a key from the environment. That key is for the provider's own address and must not go to another.
      ...(apiKey === undefined && settings.baseUrl === undefined ? {} : { apiKey: apiKey ?? '' }),
      ...(settings.baseUrl === undefined ? {} : { baseURL: settings.baseUrl }),
    };
    switch (settings.type) {
      case 'anthropic':
        return (await import('@ai-sdk/anthropic')).createAnthropic(options)(model);
      case 'openai': // its responses API; a server that only has /chat/completions is `openai-compatible`
        return (await import('@ai-sdk/openai')).createOpenAI(options)(model);
      case 'google':
        return (await import('@ai-sdk/google')).createGoogleGenerativeAI(options)(model);
      case 'openai-compatible': {
        if (settings.baseUrl === undefined) throw new InterlaneError('MODEL_UNKNOWN', `model provider "${provider}" ${needsAddress}`);
        const { createOpenAICompatible } = await import('@ai-sdk/openai-compatible');
        return createOpenAICompatible({ ...options, name: provider, baseURL: settings.baseUrl, includeUsage: true })(model);
      }
    }
  }
}

function partsOf(ref: string): { provider: string; model: string } {
  const slash = ref.indexOf('/');
  return { provider: ref.slice(0, Math.max(0, slash)).trim(), model: ref.slice(slash + 1).trim() };
}

/** Common environment variables with keys, their providers, and a model that each provider has. */
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

/** What to write for a well-known provider. */
function toAdd(provider: string): string | undefined {
  const known = environmentKeys.find((one) => one.provider === provider);
  if (!known) return undefined;
  const { variables, type, baseUrl } = known;
  const address = baseUrl === undefined ? '' : `, baseUrl: '${baseUrl}'`;
  return `add it: models: { providers: { ${provider}: { type: '${type}'${address}, apiKey: '\${${variables[0]!}}' } } }`;
}

const ollama = 'http://127.0.0.1:11434';
const lookMs = 500;

/** Whether a model only makes embeddings, by its name or its families. */
const onlyEmbeds = ({ name, details }: { name?: unknown; details?: unknown }) =>
  /embed|bert/i.test(JSON.stringify([name, details ?? null]));

/** Looks for a key in the environment, then for a local Ollama. Only `up` without a model calls it; INTERLANE_DISCOVER=0 disables it. */
export async function findModel(
  { models, agents }: { models: { discover: boolean }; agents: { defaults: { model?: string | undefined } } },
  env: Record<string, string | undefined>,
  fetchUrl: typeof fetch,
): Promise<Found | undefined> {
  if (!models.discover || env['INTERLANE_DISCOVER'] === '0' || agents.defaults.model !== undefined) return undefined;
  for (const { variables, provider, type, model, baseUrl } of environmentKeys) {
    const by = variables.find((name) => env[name]?.trim());
    if (by === undefined) continue;
    const settings = { type, apiKey: env[by]!.trim(), authProfiles: {}, models: {}, ...(baseUrl === undefined ? {} : { baseUrl }) };
    return { provider, model, by, settings };
  }
  try {
    const answer = await fetchUrl(`${ollama}/api/tags`, { signal: AbortSignal.timeout(lookMs) });
    const { models } = (await answer.json()) as { models?: { name?: unknown; details?: unknown }[] };
    const name = models?.find((one) => typeof one.name === 'string' && !onlyEmbeds(one))?.name as string | undefined;
    if (name === undefined) return undefined;
    const settings: ProviderSettings = { type: 'openai-compatible', baseUrl: `${ollama}/v1`, authProfiles: {}, models: {} };
    return { provider: 'ollama', model: name, by: `a local Ollama at ${ollama}`, settings };
  } catch {
    return undefined; // no Ollama runs here
  }
}
