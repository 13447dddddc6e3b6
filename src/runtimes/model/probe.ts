// Checks that a model's service answers and accepts the key: requests its list of models, which costs nothing.
import { reasonOf } from '../../errors.ts';
import type { ProviderSettings } from './choice.ts';

const homes = {
  anthropic: 'https://api.anthropic.com/v1',
  openai: 'https://api.openai.com/v1',
  google: 'https://generativelanguage.googleapis.com/v1beta',
  'openai-compatible': '',
} as const;

const patienceMs = 5_000;

/** Returns the problem, or undefined if there is none. The text never contains the key. */
export async function probe(settings: ProviderSettings, fetchUrl: typeof fetch): Promise<string | undefined> {
  const { type, apiKey } = settings;
  const base = settings.baseUrl ?? homes[type];
  try {
    const headers = apiKey === undefined ? {} : keyHeaders[type](apiKey);
    const { status } = await fetchUrl(`${base.replace(/\/$/, '')}/models`, { headers, signal: AbortSignal.timeout(patienceMs) });
    if (status === 401 || status === 403) return apiKey === undefined ? 'it wants a key, and there is none' : 'it refuses the key';
    // Some services have no such list; any answer is enough.
    return status >= 500 ? `it answers with status ${status}` : undefined;
  } catch (thrown) {
    const { cause } = thrown as { cause?: unknown };
    return `it cannot be reached: ${reasonOf(cause ?? thrown)}`;
  }
}

const keyHeaders: Record<ProviderSettings['type'], (key: string) => Record<string, string>> = {
  anthropic: (key) => ({ 'x-api-key': key, 'anthropic-version': '2023-06-01' }),
  openai: (key) => ({ authorization: `Bearer ${key}` }),
  google: (key) => ({ 'x-goog-api-key': key }),
  'openai-compatible': (key) => ({ authorization: `Bearer ${key}` }),
};
