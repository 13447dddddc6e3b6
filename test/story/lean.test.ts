// What the tools cost a model before anything is said, and what a list costs it: counted at the model's door, on committed fixtures.
import { readFileSync } from 'node:fs';
import { expect, it, onTestFinished, vi } from 'vitest';
import type { DeliveryContext } from '../../src/protocol/session.ts';
import { toolNames } from '../../src/protocol/tool.ts';
import { testGateway } from '../harness/gateway.ts';
import { mockProvider } from '../mock/provider.ts';

// Nothing here depends on how long it takes.
vi.setConfig({ testTimeout: 60_000 });

/** As many characters make a token, about. */
const tokens = (text: string) => Math.ceil(text.length / 4);

interface Ordinary {
  key: string;
  kind: string;
  sessionId: string;
  label?: string;
  displayName?: string;
  delivery?: DeliveryContext;
  totalTokens: number;
  systemSent: boolean;
  settings?: Record<string, unknown>;
}
const ordinary = JSON.parse(readFileSync('test/fixtures/ordinary-sessions.json', 'utf8')) as Ordinary[];

it('system prompt and all tool definitions of a main session are at most 2,500 tokens', async () => {
  const provider = await mockProvider(() => ({ text: 'Hello.' }));
  onTestFinished(() => provider.close());
  const models = { providers: { mock: { type: 'openai-compatible' as const, baseUrl: provider.url } } };
  const gateway = await testGateway({ config: { models, agents: { defaults: { model: 'mock/m' } } }, clock: 'real' });
  expect((await gateway.answer('hi')).reply).toBe('Hello.');
  const { messages, tools } = provider.asked[0]!.body as { messages: { content: string }[]; tools: { function: { name: string } }[] };
  const prompt = tokens(messages[0]!.content);
  const definitions = tokens(JSON.stringify(tools));
  console.log(`system prompt ${prompt} + ${tools.length} tool definitions ${definitions} = ${prompt + definitions} tokens`);
  expect(tools.map((tool) => tool.function.name)).toEqual([...toolNames]);
  expect(prompt + definitions).toBeLessThanOrEqual(2_500);
});

it('sessions_list with 50 ordinary rows is at most 4,000 tokens', async () => {
  const calls = [{ tool: 'sessions_list', args: { limit: 51 } }];
  const stage = await testGateway({
    config: { tools: { sessions: { visibility: 'agent' } } },
    script: [{ when: 'list', steps: [{ calls }, { say: '{{result}}' }] }, { steps: [{ say: 'ok' }] }],
  });
  for (const { key, kind, sessionId, label, displayName, delivery, totalTokens, systemSent, settings } of ordinary) {
    const runId = `run of ${sessionId}`;
    const open = { id: sessionId, agent: 'main', kind, label, user: 'you', clearance: 'RESTRICTED' as const };
    await stage.accept(runId, { sessionKey: key, open, text: 'hi', now: 0 });
    await stage.wait(runId);
    await stage.rows.setSession(key, {
      settings: JSON.stringify({ displayName, ...settings }),
      delivery: delivery ? JSON.stringify(delivery) : null,
      total_tokens: totalTokens,
      system_sent: systemSent ? 1 : 0,
      last_at: stage.now(),
    });
  }
  const answer = (await stage.answer('list them')).reply!;
  const { sessions } = JSON.parse(answer) as { sessions: { key: string }[] };
  const rows = sessions.filter(({ key }) => key !== 'agent:main:main');
  console.log(`sessions_list with ${rows.length} rows: ${tokens(JSON.stringify(rows))} tokens`);
  expect(rows.map(({ key }) => key).toSorted()).toEqual(ordinary.map(({ key }) => key).toSorted());
  expect(tokens(answer)).toBeLessThanOrEqual(4_000);
  // Lean is not less: what a row has of its own is there.
  const thread = ordinary.find(({ delivery }) => delivery?.threadId)!;
  expect(rows.find(({ key }) => key === thread.key)).toMatchObject({
    deliveryContext: thread.delivery,
    totalTokens: thread.totalTokens,
    systemSent: true,
  });
  const child = ordinary.find(({ settings }) => settings)!;
  expect(rows.find(({ key }) => key === child.key)).toMatchObject({ ...child.settings, label: child.label, sessionId: child.sessionId });
});
