// Whatever is sent to the port: it is answered as data, nobody learns more than they may, and the gateway goes on.
import { request } from 'node:http';
import * as fc from 'fast-check';
import { expect, it, vi } from 'vitest';
import { routes } from '../../src/protocol/http.ts';
import { adminToken, testGateway, type TestGateway } from '../harness/gateway.ts';

vi.setConfig({ testTimeout: 600_000, hookTimeout: 30_000 });

const piece = fc.oneof(
  fc.constantFrom(
    'main',
    'agent:main:main',
    'global',
    'unknown',
    '%',
    '%25',
    '%00',
    '..',
    '%2e%2e',
    '%2F',
    'history',
    'agent:',
    '{key}',
    '%E0%A4',
  ),
  fc.string({ maxLength: 20 }).map((text) => encodeURIComponent(text.toWellFormed())),
  // What is not encoded at all, but can stand in a request line.
  fc.stringMatching(/^[!-~]{1,30}$/),
);
const place = fc.constantFrom(...Object.keys(routes).map((name) => name.split(' ')[1]!));
const path = fc.oneof(
  fc.tuple(place, piece).map(([path, text]) => path.replace(/\{\w+\}/, () => text)),
  fc.array(piece, { maxLength: 4 }).map((pieces) => `/${pieces.join('/')}`),
);
const field = fc.constantFrom(
  'limit',
  'cursor',
  'includeTools',
  'follow',
  'wait',
  'kinds',
  'sessionKey',
  'code',
  '__proto__',
  'constructor',
);
const query = fc.array(fc.tuple(field, fc.oneof(fc.constantFrom('', '0', '1', '-1', 'true', 'a.b', '1e9', '9'.repeat(40)), piece)), {
  maxLength: 3,
});
const body = fc.oneof(
  fc.constant(''),
  fc.json(),
  fc.json().map((text) => text.slice(1)),
  fc
    .record(
      { message: fc.string(), tool: fc.constantFrom('sessions_list', 'sessions_send', 'nothing'), args: fc.jsonValue() },
      { requiredKeys: [] },
    )
    .map((value) => JSON.stringify(value)),
  fc.string(),
);
const header = fc.record(
  {
    authorization: fc.constantFrom(`Bearer ${adminToken}`, 'bound', 'Bearer wrong', 'Bearer', 'Basic eDp5', ''),
    cookie: fc.constantFrom('interlane=x', 'interlane', ';;;', '='),
    accept: fc.constantFrom('text/event-stream', '*/*'),
    origin: fc.constantFrom('null', 'http://elsewhere.example', 'x'),
    'last-event-id': fc.constantFrom('0', 'zzzzzzzzzzz', '?', ''),
    'idempotency-key': fc.stringMatching(/^[!-~]{0,300}$/),
    'content-type': fc.constantFrom('application/json', 'text/plain', 'x'),
  },
  { requiredKeys: [] },
);
const method = fc.constantFrom('GET', 'POST', 'HEAD', 'PUT', 'DELETE', 'OPTIONS', 'PATCH', 'TRACE', 'PROPFIND');

/** The status and as much of the answer as there is; a stream is left when it begins. */
function send(stage: TestGateway, what: { method: string; path: string; headers: Record<string, string>; body: string }) {
  return new Promise<{ status: number; text: string; stream: boolean }>((resolve, reject) => {
    const asked = request(stage.url, { method: what.method, path: what.path, headers: what.headers, agent: false }, (response) => {
      const stream = response.headers['content-type']?.startsWith('text/event-stream') ?? false;
      let text = '';
      const done = () => resolve({ status: response.statusCode!, text, stream });
      response.on('data', (chunk: Buffer) => (text += chunk.toString()));
      response.on('error', done);
      response.on('end', done);
      if (!stream) return;
      done();
      asked.destroy();
    });
    asked.on('error', reject);
    // Only of these does this client tell where the body ends.
    asked.end(['POST', 'PUT', 'PATCH'].includes(what.method) ? what.body : undefined);
  });
}

it('any request is answered without a stack, and without a word to those who may not', async () => {
  const stage = await testGateway({ listen: true });
  await stage.write('main', 'the secret of the house');
  const bound = await stage.token('bound', { sessionKey: 'main' });
  await fc.assert(
    fc.asyncProperty(method, path, query, header, body, async (method, path, query, headers, body) => {
      const asked = query.length === 0 ? '' : `?${query.map(([name, value]) => `${name}=${value}`).join('&')}`;
      const authorization = headers.authorization === 'bound' ? `Bearer ${bound}` : headers.authorization;
      const known = authorization?.endsWith(adminToken) === true || authorization?.endsWith(bound) === true;
      const all = { ...headers, ...(authorization === undefined ? {} : { authorization }) };
      const { status, text, stream } = await send(stage, { method, path: path + asked, headers: all, body });
      expect([200, 202, 400, 401, 403, 404, 405, 409, 413, 429]).toContain(status);
      expect(text).not.toMatch(/\n {4}at |node_modules|\.ts:\d/);
      if (!known) {
        expect(text).not.toContain('secret of the house');
        expect(stream).toBe(false);
      }
    }),
  );
  expect(stage.warnings).toEqual([]);
  expect((await stage.http('/healthz')).text).toBe('ok');
  const left = /interlane_connections\{door="sse"\} 0/;
  while (!left.test((await stage.http('/metrics')).text));
});
