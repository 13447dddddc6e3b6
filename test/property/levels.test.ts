// A caller with a ceiling tries whatever it can, while others work above it: it never reads a word from above, labels only rise, and
// nothing that it makes has a higher ceiling than its own.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import * as fc from 'fast-check';
import { expect, it } from 'vitest';
import { z } from 'zod';
import { levelRank } from '../../src/levels.ts';
import { levels, type Level } from '../../src/protocol/labels.ts';
import type { OperationName } from '../../src/protocol/operations/all.ts';
import { defineTool } from '../../src/tools/plugin.ts';
import { testGateway, type ConfigText, type TestGateway } from '../harness/gateway.ts';
import { soak } from '../soak.ts';

const main = 'agent:main:main';
/** A text of a level has its mark, so that a leak is seen in any answer. */
const mark = (level: Level) => `mark-${level}`;
const vaults = levels.map((level) =>
  defineTool({
    name: `vault_${level.toLowerCase()}`,
    description: 'Read a vault.',
    params: z.strictObject({}),
    effect: 'pure',
    run: () => Promise.resolve({ value: { found: mark(level) } }),
  }),
);
/** A tool that says its level only with its result. */
const late = defineTool({
  name: 'late',
  description: 'Says its level too late.',
  params: z.strictObject({ level: z.enum(levels) }),
  effect: 'pure',
  run: (_, { level }) => Promise.resolve({ value: { found: mark(level) }, level }),
});

const configOf = (workspace: string, clearance: Level): ConfigText => ({
  agents: { list: [{ id: 'main', workspace, tools: { allow: ['*'] }, clearance }] },
  session: { dmScope: 'per-channel-peer' },
  tools: { sessions: { visibility: 'all' } },
  classification: {
    channels: Object.fromEntries(levels.map((level) => [level.toLowerCase(), level])),
    tools: Object.fromEntries(levels.map((level) => [`vault_${level.toLowerCase()}`, level])),
  },
});

const level = fc.constantFrom(...levels);
const sessionKey = fc.constantFrom(
  main,
  'agent:main:own',
  'agent:main:guest:g1',
  ...levels.map((one) => `agent:main:${one.toLowerCase()}:direct:ana`),
);
const answering = sessionKey.filter((key) => !key.includes(':guest:'));
/** Which of the tokens that the caller has: its own first, then those it made. */
const holder = fc.nat(3);

/** What others do, with rights that the caller does not have. */
const others = fc.oneof(
  fc.record({ do: fc.constant('message' as const), level }),
  // Not into the guest, which would have to answer.
  fc.record({ do: fc.constant('into' as const), key: fc.oneof(fc.constant(main), answering), level }),
  fc.record({ do: fc.constant('file' as const), level }),
  fc.record({ do: fc.constant('reset' as const), key: fc.oneof(fc.constant(main), sessionKey) }),
  fc.record({ do: fc.constant('restart' as const) }),
);
const tool = fc.oneof(
  fc.constantFrom(...vaults).map(({ name }) => ({ tool: name, args: {} })),
  level.map((one) => ({ tool: 'late', args: { level: one } })),
  sessionKey.map((key) => ({ tool: 'sessions_history', args: { sessionKey: key } })),
  sessionKey.map((key) => ({ tool: 'session_status', args: { sessionKey: key } })),
  sessionKey.map((key) => ({ tool: 'sessions_send', args: { sessionKey: key, message: 'tell me', timeoutSeconds: 0 } })),
  fc.constantFrom(
    { tool: 'sessions_list', args: { messageLimit: 5 } },
    { tool: 'files_list', args: {} },
    { tool: 'files_read', args: { path: 'note' } },
    { tool: 'files_write', args: { path: 'own', text: 'mine' } },
  ),
);
const call = (method: OperationName, params: fc.Arbitrary<object>) =>
  fc.record({ do: fc.constant('call' as const), holder, method: fc.constant(method), params });
const name = fc.constantFrom('t1', 't2');
const attempts = fc.oneof(
  { weight: 8, arbitrary: call('tools.invoke', tool) },
  { weight: 1, arbitrary: call('guests.join', fc.record({ name: fc.constant('g1'), see: fc.constant('all'), rotate: fc.boolean() })) },
  {
    weight: 1,
    arbitrary: call('tokens.create', fc.record({ name, scopes: fc.constant(['operator.admin']), level }, { requiredKeys: ['name'] })),
  },
  { weight: 1, arbitrary: call('tokens.create', fc.record({ name, sessionKey })) },
  { weight: 1, arbitrary: call('tokens.rotate', fc.record({ name: fc.oneof(name, fc.constantFrom('admin', 'guest:main:g1')) })) },
  {
    weight: 1,
    arbitrary: call('sessions.create', fc.record({ key: sessionKey, label: fc.constantFrom('one', 'two') }, { requiredKeys: ['key'] })),
  },
  { weight: 1, arbitrary: call('sessions.reset', fc.record({ key: sessionKey })) },
  { weight: 1, arbitrary: call('sessions.delete', fc.record({ key: sessionKey, force: fc.constant(true) })) },
  { weight: 1, arbitrary: call('sessions.list', fc.constant({ includeLastMessage: true })) },
  { weight: 1, arbitrary: call('chat.history', fc.record({ sessionKey })) },
  { weight: 1, arbitrary: call('chat.send', fc.record({ sessionKey, message: fc.constant('tell me'), idempotencyKey: fc.uuid() })) },
  { weight: 1, arbitrary: call('runs.list', fc.constant({})) },
  { weight: 1, arbitrary: call('status', fc.constant({})) },
);
type Step = typeof others | typeof attempts extends fc.Arbitrary<infer S> ? S : never;

class Story {
  readonly gw: TestGateway;
  readonly ceiling: Level;
  /** The secrets of the caller. */
  readonly tokens: string[];
  private readonly seen = new Map<number, number>();
  private readonly leaks: string[] = [];
  private readonly rooms = new Map<string, number>();

  constructor(gw: TestGateway, ceiling: Level, own: string) {
    this.gw = gw;
    this.ceiling = ceiling;
    this.tokens = [own];
  }

  async take(step: Step): Promise<void> {
    const { gw } = this;
    switch (step.do) {
      case 'message': {
        const origin = { channel: step.level.toLowerCase(), peer: { kind: 'direct' as const, id: 'ana' } };
        const accepted = await gw.receive({ origin, text: mark(step.level) }).catch(() => undefined);
        if (accepted) await gw.wait(accepted.runId);
        return;
      }
      case 'into': {
        // As a flow inside the gateway may: text of any level, unless the session's clearance refuses it.
        if (await gw.rows.sessions({ key: step.key, current: 1 }).then((rows) => rows.length > 0))
          await gw.tell(step.key, mark(step.level), { taint: levelRank(step.level) }).catch(() => undefined);
        return;
      }
      case 'file': {
        // The main session writes down what it has read, and starts over.
        await gw.tell(main, mark(step.level), { taint: levelRank(step.level) }).catch(() => undefined);
        const { taint } = await gw.rows.session(main);
        await gw.tool('files_write', { path: 'note', text: mark(levels[taint]!) });
        await gw.call('sessions.reset', { key: main });
        return;
      }
      case 'reset':
        await gw.call('sessions.reset', { key: step.key }).catch(() => undefined);
        return;
      case 'restart':
        await gw.restart();
        return;
      case 'call': {
        const token = this.tokens[step.holder % this.tokens.length]!;
        const answer: unknown = await gw.call(step.method, step.params as never, token).catch((thrown: unknown) => thrown);
        const text = answer instanceof Error ? `${answer.message} ${JSON.stringify(answer)}` : JSON.stringify(answer);
        for (const above of levels.slice(levelRank(this.ceiling) + 1))
          if (text.includes(mark(above))) this.leaks.push(`${step.method} told a word of ${above}`);
        // A token that has ended is not tried again: guesses of one address wait for each other.
        if ((answer as { code?: string }).code === 'AUTH_TOKEN_MISMATCH') this.tokens.splice(this.tokens.indexOf(token), 1);
        const { token: made } = (answer ?? {}) as { token?: string };
        if (typeof made === 'string') this.tokens.push(made);
      }
    }
  }

  /** Words from above in the answers, labels that fell, lives and things of the caller with too high a ceiling. */
  async faults(step: Step): Promise<string[]> {
    const { gw } = this;
    const found = this.leaks.splice(0);
    const highest = levelRank(this.ceiling);
    const known = new Map<string, number>();
    for (const { pk, key, level: now, clearance, state } of await gw.rows.sessions()) {
      const before = known.get(key);
      if (now < (this.seen.get(pk) ?? 0)) found.push(`the label of ${key} fell`);
      if (before !== undefined && clearance !== before) found.push(`a new life of ${key} has another ceiling`);
      if (before === undefined && step.do === 'call' && !this.seen.has(pk) && clearance > highest)
        found.push(`the ceiling of ${key} is too high`);
      this.seen.set(pk, now);
      if (state === 'deleted') known.delete(key);
      else known.set(key, clearance);
    }
    for (const { name: room, level: now } of await gw.rows.workspaces()) {
      if (now < (this.rooms.get(room) ?? 0)) found.push(`the level of ${room} fell`);
      this.rooms.set(room, now);
    }
    const mine = new Set(this.tokens.map((token) => token.split('_')[1]));
    for (const token of await gw.rows.tokens())
      if (mine.has(token.id) && token.level > highest) found.push(`token ${token.name} is too high`);
    return found;
  }
}

it('no chain of operations shows a caller what is above its ceiling', async () => {
  await fc.assert(
    fc.asyncProperty(
      fc.constantFrom<Level>('PUBLIC', 'INTERNAL', 'CONFIDENTIAL'),
      fc.constantFrom<Level>('RESTRICTED', 'RESTRICTED', 'RESTRICTED', 'CONFIDENTIAL'),
      fc.array(fc.oneof({ weight: 2, arbitrary: others }, { weight: 5, arbitrary: attempts }), {
        minLength: 15,
        maxLength: 25,
        size: 'max',
      }),
      async (ceiling, clearance, steps) => {
        const workspace = mkdtempSync(join(tmpdir(), 'interlane-levels-'));
        const tools = [...vaults, late];
        const gw = await testGateway({ config: configOf(workspace, clearance), tools, caller: main, listen: true, shared: true });
        try {
          const story = new Story(gw, ceiling, await gw.token('low', { scopes: ['operator.admin'], level: ceiling }));
          const first = { do: 'message', level: 'RESTRICTED' } as const;
          await story.take(first);
          expect(await story.faults(first)).toEqual([]);
          // Chains begin here: the caller is a guest, and the main session, too.
          const own = { do: 'call', holder: 0 } as const;
          await story.take({ ...own, method: 'guests.join', params: { name: 'g1', see: 'all' } });
          await story.take({ ...own, method: 'tokens.create', params: { name: 't1', sessionKey: main } });
          for (const step of steps) {
            await story.take(step);
            expect(await story.faults(step)).toEqual([]);
          }
        } finally {
          await gw.end();
          rmSync(workspace, { recursive: true, force: true });
        }
      },
    ),
    { numRuns: soak ? 500 : 25 },
  );
});
