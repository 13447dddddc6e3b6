// Text rules in a running gateway: they read decoded text at every hook, before the transaction that needs the verdict.
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import type { PolicyRule } from '../../src/protocol/settings.ts';
import { defineTool } from '../../src/tools/plugin.ts';
import { withheldAnswer } from '../../src/wording.ts';
import { countSearches } from '../harness/inside.ts';
import { testGateway, type ScriptText } from '../harness/gateway.ts';

const main = 'agent:main:main';
const ssn = '\\b\\d{3}-\\d{2}-\\d{4}\\b';
const rule = (hook: PolicyRule['hook'], effect: PolicyRule['effect'], match: PolicyRule['match']) => ({ id: 'r', hook, effect, match });

/** A tool that takes anything, keeps it, and returns it. */
function tools(kept: unknown[] = []) {
  const params = z.strictObject({ value: z.unknown() });
  const keep = defineTool({
    name: 'keep',
    description: 'Keep a value.',
    effect: 'once',
    params,
    run: async (_, { value }) => ({ value: { kept: kept.push(value) } }),
  });
  const give = defineTool({ name: 'give', description: 'Give a value.', effect: 'pure', params, run: async (_, { value }) => ({ value }) });
  const fail = defineTool({
    name: 'fail',
    description: 'Fail.',
    effect: 'pure',
    params,
    run: async (_, { value }) => {
      throw new Error(String(value));
    },
  });
  return [keep, give, fail];
}

describe('a rule at PRE_TOOL_CALL', () => {
  it.each<[string, string, unknown]>([
    ['after a newline', ssn, 'it is\n123-45-6789'],
    ['with a quote', 'say "yes"', { deep: [{ text: 'say "yes"' }] }],
    ['in the name of a field', ssn, { '123-45-6789': 1 }],
    ['in JSON with escapes', ssn, '{"n":"\\u0031\\u0032\\u0033-45-6789"}'],
    ['in pieces', ssn, ['123-', { more: '45-' }, 6789]],
  ])('finds a text %s, and the tool does not act', async (_, text, value) => {
    const kept: unknown[] = [];
    const gw = await testGateway({
      caller: main,
      tools: tools(kept),
      config: { policy: { rules: [rule('PRE_TOOL_CALL', 'BLOCK', { tool: 'keep', text })] } },
    });
    expect(await gw.tool('keep', { value })).toMatchObject({ status: 'error', code: 'POLICY_BLOCKED' });
    expect(kept).toEqual([]);
    expect(await gw.tool('keep', { value: 'fine' })).toEqual({ kept: 1 });
  });
});

describe('a rule at POST_TOOL_RESPONSE', () => {
  it('takes out decoded text, of a failure too, and leaves the rest of the result as it was', async () => {
    const gw = await testGateway({
      caller: main,
      tools: tools(),
      config: { policy: { rules: [rule('POST_TOOL_RESPONSE', 'REDACT', { text: ssn })] } },
    });
    const given = await gw.tool('give', { value: { a: ['id\n123-45-6789'], '123-45-6789': true, b: 'say "x"' } });
    expect(given).toEqual({ a: ['id\n[redacted]'], '[redacted]': true, b: 'say "x"' });
    expect(await gw.tool('fail', { value: 'no\n123-45-6789' })).toMatchObject({ code: 'TOOL_FAILED', error: 'no\n[redacted]' });
  });

  it.each(['BLOCK', 'REDACT'] as const)('applies to a reply that a call has waited for: %s', async (effect) => {
    const script: ScriptText = [{ when: 'what is it', steps: [{ say: 'it is\n123-45-6789' }] }, { steps: [{ say: 'ok' }] }];
    const gw = await testGateway({
      caller: main,
      script,
      config: {
        agents: { list: [{ id: 'main' }, { id: 'bo' }] },
        tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } },
        policy: { rules: [rule('POST_TOOL_RESPONSE', effect, { tool: 'sessions_send', text: ssn })] },
      },
    });
    const reply = await gw.tool('sessions_send', { sessionKey: 'agent:bo:main', message: 'what is it', timeoutSeconds: 60 });
    expect(JSON.stringify(reply)).not.toContain('6789');
    expect(reply).toMatchObject(effect === 'BLOCK' ? { code: 'POLICY_BLOCKED' } : { status: 'ok', reply: 'it is\n[redacted]' });
  });
});

describe('a rule at PRE_OUTPUT', () => {
  it('reads a text of 200 KiB in a thread, and a changed rule stops what is queued', async () => {
    const long = `${'word '.repeat(40_000)}123-45-6789`;
    const script: ScriptText = [{ steps: [{ say: long }] }];
    const config = (effect: PolicyRule['effect'], text: string) => ({ policy: { rules: [rule('PRE_OUTPUT', effect, { text })] } });
    const gw = await testGateway({ script, config: config('REDACT', ssn), listen: true });
    await gw.answer('hello');
    await gw.finished();
    const sent = gw.sent.map(({ text }) => text).join('');
    expect(sent).toHaveLength(long.length - '123-45-6789'.length + '[redacted]'.length);
    expect(sent).toMatch(/word \[redacted\]$/);
    await gw.reload(config('BLOCK', '6789$'));
    const session = { key: main, deliveryContext: { channel: 'loopback', to: 'you' } };
    expect((await gw.call('explain.send', { session, text: long })).facts).toMatchObject({ effect: 'BLOCK', code: 'POLICY_BLOCKED' });
    await gw.answer('hello');
    await gw.finished();
    expect((await gw.rows.deliveries()).at(-2)).toMatchObject({ state: 'dead', text: '' });
    expect(gw.sent.map(({ text }) => text).slice(-1)).toEqual([withheldAnswer]);
  });
});

it('no transaction searches a text, at any hook', async () => {
  const hooks = ['PRE_TOOL_CALL', 'POST_TOOL_RESPONSE', 'PRE_CONTEXT_INJECTION', 'PRE_OUTPUT'] as const;
  const script: ScriptText = [
    {
      agent: 'main',
      when: 'ask',
      steps: [
        { calls: [{ tool: 'sessions_send', args: { sessionKey: 'agent:bo:main', message: 'q', timeoutSeconds: 60 } }] },
        { say: 'done 1' },
      ],
    },
    { steps: [{ say: 'answer 2' }] },
  ];
  const gw = await testGateway({
    script,
    config: {
      agents: { list: [{ id: 'main', default: true }, { id: 'bo' }] },
      tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } },
      policy: { rules: hooks.map((hook) => ({ id: hook, hook, effect: 'REDACT', match: { text: '\\d' } })) },
    },
  });
  const searches = countSearches();
  await gw.receive({ origin: { channel: 'loopback', peer: { kind: 'direct', id: 'me' } }, text: 'ask' });
  await gw.finished();
  expect(gw.sent.map(({ text }) => text)).toEqual(['done [redacted]']);
  expect(searches.all).toBeGreaterThan(4);
  expect(searches.inTransactions).toBe(0);
});
