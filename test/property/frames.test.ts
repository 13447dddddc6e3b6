// Whatever bytes arrive, before or after the handshake and with whatever token: the gateway answers or closes, says nothing of its
// inside, does nothing that the token may not, and goes on serving others.
import * as fc from 'fast-check';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { errorTable } from '../../src/errors.ts';
import { type OperationName, operations } from '../../src/protocol/operations/all.ts';
import { testGateway, type TestGateway } from '../harness/gateway.ts';
import { bytes, connectParams, upgrading, Wire, type Frame } from '../harness/socket.ts';
import { soak } from '../soak.ts';

/** More of everything under `npm run soak`, with a seed of its own. */
const runs = soak ? 100_000 : 2_500;
const timeout = soak ? 600_000 : 60_000;

const names = Object.keys(operations) as OperationName[];
const codes = new Set(Object.keys(errorTable));

// Frames --------------------------------------------------------------------------------------------------------------

const strange = fc.oneof(
  fc.string({ unit: 'binary', maxLength: 40 }),
  fc.constantFrom(
    '',
    ' ',
    '\0',
    '\ud800',
    '💥'.repeat(100),
    '__proto__',
    'constructor',
    'global',
    'unknown',
    '../../etc/passwd',
    "' OR 1=1 --",
  ),
  fc.constantFrom(
    'main',
    'agent:main:main',
    'agent:main:other',
    'agent:',
    'agent:main:',
    ':',
    'subagent:x',
    'k',
    'admin',
    'low',
    'x'.repeat(5_000),
  ),
);
const value = fc.oneof(
  strange,
  fc.jsonValue({ maxDepth: 2 }),
  fc.constantFrom(-1, 0, 1, 1.5, 1e308, Number.MAX_SAFE_INTEGER, 2 ** 53, -0, null, true, {}, []),
);

/** Fields that any method knows, so that made-up parameters get past the first look. */
const fields = [
  ...new Set(
    names.flatMap((name) =>
      Object.keys((operations[name].params as { def?: { innerType?: { shape?: object }; shape?: object }; shape?: object }).shape ?? {}),
    ),
  ),
  'limit',
  'offset',
  'cursor',
  'search',
  'archived',
  'kinds',
  'activeMinutes',
  'label',
  'spawnedBy',
  'agentId',
];
/** Values that are often right, each for its field. */
const usual = {
  key: fc.constantFrom('main', 'agent:main:other'),
  sessionKey: fc.constantFrom('main', 'agent:main:other'),
  message: fc.constantFrom('hello', 'x'.repeat(2_000)),
  idempotencyKey: fc.constantFrom('a', 'b', 'k'),
  runId: fc.constantFrom('a', 'b', 'k', 'none'),
  limit: fc.constantFrom(1, 2, 50),
  cursor: fc.constantFrom('1', 'zz'),
  tool: fc.constantFrom('session_status', 'sessions_send', 'sessions_history', 'nothing'),
  args: fc.dictionary(fc.constantFrom('sessionKey', 'message', 'limit', 'label'), value, { maxKeys: 3 }),
  keys: fc.array(fc.constantFrom('main', 'x'), { minLength: 1, maxLength: 3 }),
  to: fc.constant('ana'),
  channel: fc.constantFrom('loopback', 'none'),
  timeoutMs: fc.constantFrom(0, 1),
};
const likely: fc.Arbitrary<Record<string, unknown>> = fc.record(usual, { requiredKeys: [] });
/** Calls that would change the tokens or wait for ever are left to the stories. */
const harmless = names.filter((name) => !name.startsWith('tokens.'));
const params = fc.oneof(
  likely,
  fc.dictionary(fc.constantFrom(...fields), value, { maxKeys: 5 }),
  fc
    .tuple(likely, fc.dictionary(fc.constantFrom(...fields, 'bogus', '__proto__'), value, { maxKeys: 2 }))
    .map(([a, b]) => ({ ...a, ...b })),
  fc.dictionary(strange, value, { maxKeys: 3 }),
  value,
);
/** The fields a method knows, most of them there: most of these are served. */
const fitting = (method: OperationName) => {
  const unknown = (name: string) =>
    operations[method].params.safeParse({ [name]: 0 }).error?.issues.some(({ code }) => code === 'unrecognized_keys');
  const known = Object.entries(usual).filter(([name]) => !unknown(name));
  const filled: Record<string, fc.Arbitrary<unknown>> = Object.fromEntries(known);
  return fc.oneof({ weight: 3, arbitrary: fc.record(filled) }, { weight: 2, arbitrary: fc.record(filled, { requiredKeys: [] }) });
};
const request = fc.oneof(
  fc
    .constantFrom(...harmless)
    .chain((method) => fc.record({ type: fc.constant('req'), method: fc.constant(method), params: fitting(method) })),
  fc.record({ type: fc.constant('req'), method: fc.oneof(fc.constantFrom(...names, 'connect', 'sessions.lst'), strange), params }),
  fc.record(
    { type: fc.oneof(fc.constantFrom('req', 'res', 'event'), value), method: value, params: value, extra: value },
    { requiredKeys: [] },
  ),
);

const mutate = (text: string, [kind, at, piece]: [number, number, string]) => {
  const from = Math.floor(at * text.length);
  if (kind === 0) return text.slice(0, from);
  if (kind === 1) return text.slice(0, from) + piece + text.slice(from);
  if (kind === 2) return text.slice(0, from) + piece + text.slice(from + piece.length);
  return `${text}${piece}`;
};
/** A frame and the id it asks under, if it is well made. */
const frame = fc.oneof(
  { weight: 6, arbitrary: request.map((made) => ({ made, data: undefined })) },
  {
    weight: 2,
    arbitrary: fc
      .tuple(request, fc.tuple(fc.nat(3), fc.double({ min: 0, max: 1, noNaN: true }), fc.string({ unit: 'binary', maxLength: 4 })))
      .map(([made, change]) => ({ made: undefined, data: mutate(JSON.stringify({ id: 'm', ...made }), change) as string | Buffer })),
  },
  {
    weight: 1,
    arbitrary: fc.uint8Array({ maxLength: 200 }).map((raw) => ({ made: undefined, data: Buffer.from(raw) as string | Buffer })),
  },
  { weight: 1, arbitrary: fc.string({ unit: 'binary' }).map((data) => ({ made: undefined, data: data as string | Buffer })) },
);

// What every answer must be -------------------------------------------------------------------------------------------

/** A stack, a path of ours, or the words of another library's error. */
const inside =
  /\n\s+at |\bat \S+ \(|\.[cm]?[jt]s:\d+|node_modules|node:internal|file:\/\/|\/tmp\/|SQLITE|SqliteError|TypeError|SyntaxError|RangeError|ZodError|Unhandled/;

function checkAnswer(answer: Frame, text: string, secrets: string[]): void {
  for (const secret of secrets) expect(text).not.toContain(secret);
  if (answer.type !== 'res' || answer.ok) return;
  const { error } = answer;
  expect(error!.message).not.toMatch(inside);
  expect(error!.message.length).toBeLessThan(2_000);
  expect(codes).toContain(error!.details!.code);
  expect(error!.details!.code).not.toBe('INTERNAL');
}

describe('any frame', () => {
  let stage: TestGateway;
  let port: number;
  let admin: string;
  const tokens: Record<string, string> = {};

  beforeAll(async () => {
    stage = await testGateway({ listen: { token: undefined }, clock: 'real', channels: [], shared: true });
    ({ port, admin } = stage);
    await stage.call('sessions.create', { key: 'other' });
    tokens['operator.write'] = await stage.token('writer', { scopes: ['operator.write'] });
    tokens['operator.read'] = await stage.token('reader', { scopes: ['operator.read'] });
    tokens['operator.admin'] = admin;
  });
  afterAll(() => stage.end());

  const healthy = async () => {
    expect(await stage.call('health')).toMatchObject({ ok: true });
    expect(stage.warnings).toEqual([]);
  };

  it(
    'before the handshake is refused and closed, and nothing is done',
    async () => {
      const before = await stage.rows.feed();
      let left = runs;
      let client = 0;
      await fc.assert(
        fc.asyncProperty(fc.array(frame, { minLength: 1, maxLength: 5 }), fc.boolean(), async (frames, connects) => {
          // From an address of its own: after ten wrong tokens an address waits.
          client++;
          const wire = new Wire(port, { localAddress: `127.1.${(client >> 7) & 127}.${1 + (client & 127)}` });
          await wire.event('connect.challenge');
          frames.forEach(({ made, data }, index) => {
            if (data !== undefined) wire.send(data);
            else if (connects) wire.ask('connect', { ...connectParams('wrong'), ...(made['params'] as object) }, `r${index}`);
            else wire.send(JSON.stringify({ id: `r${index}`, ...made }));
          });
          left -= frames.length;
          expect([1002, 1008]).toContain((await wire.closed).code);
          const answers = wire.frames.filter(({ type }) => type === 'res');
          expect(answers.length).toBeLessThanOrEqual(1);
          for (const [index, one] of wire.frames.entries()) checkAnswer(one, wire.texts[index]!, [admin]);
          expect(answers.some(({ ok }) => ok)).toBe(false);
        }),
        { numRuns: Math.ceil(runs / 3) },
      );
      expect(left).toBeLessThan(runs / 3);
      expect(await stage.rows.feed()).toEqual(before);
      await healthy();
    },
    timeout,
  );

  it.each(['operator.admin', 'operator.write', 'operator.read', 'session'] as const)(
    'after the handshake of a token with %s is answered, and does no more than that may',
    async (scope) => {
      const order = ['session', 'operator.read', 'operator.write', 'operator.admin'];
      const rights = new Set<string>(scope === 'session' ? ['session'] : order.slice(0, order.indexOf(scope) + 1));
      if (scope === 'session') {
        // A frame of another token may have deleted the session, and its token would have ended with it.
        await stage.call('sessions.create', { key: 'other' });
        tokens['session'] = await stage.token('bound', { sessionKey: 'agent:main:other' });
      }
      const secrets = [admin, ...Object.values(tokens)];
      const feed = () => stage.rows.feed();
      const before = await feed();
      let wire: Wire | undefined;
      let served = 0;
      let sent = 0;
      await fc.assert(
        fc.asyncProperty(fc.array(frame, { minLength: 5, maxLength: 12, size: 'max' }), async (frames) => {
          if (!wire) {
            wire = new Wire(port);
            await wire.event('connect.challenge');
            await wire.hello(tokens[scope]);
          }
          wire.frames.length = 0;
          wire.texts.length = 0;
          sent += frames.length;
          const asked: { id: string; method: unknown }[] = [];
          frames.forEach(({ made, data }, index) => {
            if (data !== undefined) return wire!.send(data);
            asked.push({ id: `q${index}`, method: made['method'] });
            wire!.send(JSON.stringify({ ...made, id: `q${index}` }));
          });
          // Answers may come in any order; each well-made request has one.
          for (const { id } of asked) await wire.frame((one) => one.type === 'res' && one.id === id);
          const last = wire.ask('health', {}, 'last');
          await wire.answer(last);
          for (const [index, one] of wire.frames.entries()) checkAnswer(one, wire.texts[index]!, secrets);
          for (const { id, method } of asked) {
            const answer = wire.frames.find((one) => one.id === id)!;
            if (!answer.ok) continue;
            served++;
            expect(typeof method === 'string' && Object.hasOwn(operations, method)).toBe(true);
            expect(rights).toContain(operations[method as OperationName].scope);
          }
        }),
        { numRuns: Math.ceil(runs / 8) },
      );
      await wire!.end();
      expect(sent).toBeGreaterThanOrEqual(runs);
      expect(served).toBeGreaterThan(scope === 'session' ? 10 : 200);
      // Who may only read has changed nothing.
      if (scope === 'operator.read') expect(await feed()).toEqual(before);
      await stage.finished();
      await healthy();
    },
    timeout,
  );
});

describe('any request', () => {
  it(
    'on the HTTP side of the port is answered without a word of the inside',
    async () => {
      await using stage = await testGateway({ listen: true, clock: 'real', shared: true });
      const { port } = stage;
      const line = fc.string({ unit: 'binary-ascii', maxLength: 30 });
      const path = fc.oneof(
        fc.constantFrom(
          '/healthz',
          '/readyz',
          '/signin',
          '/signin?code=x',
          '/',
          '/sessions/main/history',
          '//',
          '*',
          '/%',
          '/%00',
          '/..%2f..',
          'http://evil.example/',
          '/healthz?x=%ff',
          `/${'a'.repeat(20_000)}`,
        ),
        line.map((text) => `/${text}`),
      );
      const header = fc.oneof(
        fc.constantFrom(
          'Host: localhost',
          'Host: evil.example',
          'Host: ',
          'Origin: https://evil.example',
          'Origin: null',
          'Cookie: interlane=x',
          'Cookie: ;;;==',
          'Authorization: Bearer x',
          'Content-Length: -1',
          'Content-Length: 5',
          'Transfer-Encoding: chunked',
          'Expect: 100-continue',
          'Connection: close',
          'Upgrade: h2c',
          ...Object.entries(upgrading).map(([name, text]) => `${name}: ${text}`),
          'Sec-WebSocket-Version: 99',
          `X-Long: ${'a'.repeat(20_000)}`,
        ),
        fc.tuple(line, line).map(([name, text]) => `${name}: ${text}`),
      );
      const http = fc
        .tuple(
          fc.oneof(fc.constantFrom('GET', 'HEAD', 'POST', 'PUT', 'DELETE', 'OPTIONS', 'CONNECT', 'TRACE'), line),
          path,
          fc.constantFrom('HTTP/1.1', 'HTTP/1.0', 'HTTP/2.0', ''),
          fc.array(header, { maxLength: 6 }),
          line,
        )
        .map(
          ([method, to, version, headers, body]) =>
            `${method} ${to} ${version}\r\n${['Host: localhost', ...headers].join('\r\n')}\r\n\r\n${body}`,
        );
      const raw = fc.oneof(
        http,
        fc.uint8Array({ maxLength: 300 }).map((some) => Buffer.from(some)),
      );
      await fc.assert(
        fc.asyncProperty(raw, async (data) => {
          const answer = await bytes(port, data);
          expect(answer).not.toMatch(inside);
          expect(answer).not.toContain(stage.stateDir);
          if (answer !== '') expect(answer).toMatch(/^HTTP\/1\.[01] \d{3} /);
          expect(answer).not.toMatch(/^HTTP\/1\.[01] 5\d\d /);
          expect(answer).not.toMatch(/set-cookie/i);
        }),
        { numRuns: Math.ceil(runs / 4) },
      );
      expect(stage.warnings).toEqual([]);
      expect(await bytes(port, 'GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n')).toMatch(
        /^HTTP\/1\.1 200 [^]*\r\n\r\nok$/,
      );
    },
    timeout,
  );
});
