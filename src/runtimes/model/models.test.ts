import { expect, it } from 'vitest';
import { Config } from '../../config/schema.ts';
import { findModel } from './models.ts';

const speaker = { name: 'qwen3:8b', details: { family: 'qwen3', families: ['qwen3'] } };

it.each<[string, object[], string | undefined]>([
  ['the first there is', [speaker, { name: 'other' }], 'qwen3:8b'],
  ['not one that embeds, by its name', [{ name: 'Nomic-Embed-text:latest' }, speaker], 'qwen3:8b'],
  ['not one that embeds, by its family', [{ name: 'all-minilm', details: { family: 'bert' } }, speaker], 'qwen3:8b'],
  [
    'not one that embeds, by one of its families',
    [{ name: 'arctic', details: { family: 'x', families: ['nomic-bert'] } }, speaker],
    'qwen3:8b',
  ],
  ['none where all embed', [{ name: 'mxbai-embed-large' }], undefined],
  ['none where there are none', [], undefined],
])('of a local Ollama is taken %s', async (_, models, expected) => {
  const found = await findModel(Config.parse({}), {}, () => Promise.resolve(Response.json({ models })));
  expect(found?.model).toBe(expected);
});
