import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { expect, it, onTestFinished } from 'vitest';
import { probe } from './probe.ts';

/** A service that answers with a status and notes what it was shown. */
async function service(status: number) {
  const seen: { url: string | undefined; key: string | undefined }[] = [];
  const server = createServer((request, response) => {
    seen.push({ url: request.url, key: request.headers.authorization ?? (request.headers['x-api-key'] as string | undefined) });
    response.writeHead(status).end('{}');
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => void server.close());
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`, seen, server };
}

const settings = (type: 'anthropic' | 'openai-compatible', baseUrl: string, apiKey?: string) => ({
  type,
  baseUrl,
  ...(apiKey === undefined ? {} : { apiKey }),
  authProfiles: {},
  models: {},
});

it.each([
  [200, 'secret', undefined],
  [404, 'secret', undefined],
  [401, 'secret', 'it refuses the key'],
  [403, undefined, 'it wants a key, and there is none'],
  [503, 'secret', 'it answers with status 503'],
])('a service that answers %s to the key %s: %s', async (status, key, wrong) => {
  const { url, seen } = await service(status);
  expect(await probe(settings('openai-compatible', url, key), fetch)).toBe(wrong);
  expect(seen).toEqual([{ url: '/v1/models', key: key && `Bearer ${key}` }]);
});

it('shows the key the way each service wants it', async () => {
  const { url, seen } = await service(200);
  await probe(settings('anthropic', `${url}/`, 'secret'), fetch);
  expect(seen).toEqual([{ url: '/v1/models', key: 'secret' }]);
});

it('says that nobody is there, without the key', async () => {
  const { url, server } = await service(200);
  await new Promise((resolve) => server.close(resolve));
  const wrong = await probe(settings('openai-compatible', url, 'secret'), fetch);
  expect(wrong).toMatch(/^it cannot be reached: .*ECONNREFUSED/);
  expect(wrong).not.toContain('secret');
});
