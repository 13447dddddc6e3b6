// A model that may answer, and how to reach its service. Types only, so that a user's declarations need no provider package.

export type ProviderType = 'openai-compatible' | 'openai' | 'anthropic' | 'google';

export interface ProviderSettings {
  type: ProviderType;
  baseUrl?: string | undefined;
  apiKey?: string | undefined;
  authProfiles: Record<string, { apiKey?: string | undefined }>;
  models: Record<string, { contextTokens?: number | undefined; cost?: { input: number; output: number } | undefined }>;
}

/** A model to try, and the setting that names it. */
export interface Choice {
  ref: string;
  provider: string;
  model: string;
  source: 'user' | 'agent' | 'default' | 'fallback' | 'found';
}

/** A model that discovery found; it is not configured. */
export interface Found {
  provider: string;
  settings: ProviderSettings;
  model: string;
  /** Where it was found, for people: `ANTHROPIC_API_KEY`, `a local Ollama`. */
  by: string;
}
