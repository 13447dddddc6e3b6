// What the tools cost a model before anything is said, and what a list costs it: counted at the model's door, on committed fixtures.
import { readFileSync } from 'node:fs';
import { expect, it, onTestFinished, vi } from 'vitest';
import type { DeliveryContext } from '../../src/protocol/session.ts';
import { toolNames } from '../../src/protocol/tool.ts';
import { HandClock, RealClock } from '../clock.ts';
import { mockProvider } from '../mock/provider.ts';
import { forTest, say, Stage } from './stage.ts';

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
  const { gateway } = await forTest(new Stage(new RealClock())).start({ models, agents: { defaults: { model: 'mock/m' } } }, []);
  const { runId } = await say(gateway, 'hi');
  expect((await gateway.engine.wait(runId, 60_000)).reply).toBe('Hello.');
  const { messages, tools } = provider.asked[0]!.body as { messages: { content: string }[]; tools: { function: { name: string } }[] };
  const prompt = tokens(messages[0]!.content);
  const definitions = tokens(JSON.stringify(tools));
  console.log(`system prompt ${prompt} + ${tools.length} tool definitions ${definitions} = ${prompt + definitions} tokens`);
  expect(tools.map((tool) => tool.function.name)).toEqual([...toolNames]);
  expect(prompt + definitions).toBeLessThanOrEqual(2_500);
});

it('sessions_list with 50 ordinary rows is at most 4,000 tokens', async () => {
  const calls = [{ tool: 'sessions_list', args: { limit: 51 } }];
  const stage = await forTest(new Stage(new HandClock())).start({ tools: { sessions: { visibility: 'agent' } } }, [
    { when: 'list', steps: [{ calls }, { say: '{{result}}' }] },
    { steps: [{ say: 'ok' }] },
  ]);
  const { engine, store } = stage.gateway;
  for (const { key, kind, sessionId, label, displayName, delivery, totalTokens, systemSent, settings } of ordinary) {
    const runId = `run of ${sessionId}`;
    const input = {
      text: 'hi',
      provenance: { kind: 'user' as const },
      principal: 'you',
      taint: 0,
      mode: 'followup' as const,
      deliver: false,
    };
    await engine.accept({
      sessionKey: key,
      open: { id: sessionId, agent: 'main', kind, label, user: 'you' },
      runId,
      class: 'main',
      now: 0,
      ...input,
    });
    await engine.wait(runId, 60_000);
    const set = [JSON.stringify({ displayName, ...settings }), delivery ? JSON.stringify(delivery) : null, totalTokens, systemSent ? 1 : 0];
    const sql = 'UPDATE sessions SET settings = ?, delivery = ?, total_tokens = ?, system_sent = ?, last_at = ? WHERE key = ?';
    await store.write({ name: 'ordinary', body: (t) => t.run(sql, ...set, stage.clock.now(), key) }, {});
  }
  const { runId } = await say(stage.gateway, 'list them');
  const answer = (await engine.wait(runId, 60_000)).reply!;
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
