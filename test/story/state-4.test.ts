// A state directory of commit 90d51b4 (schema 4), killed in the middle of its work: it is copied, migrated, and goes on.
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished, vi } from 'vitest';
import { testGateway, TestGateway } from '../harness/gateway.ts';
import { loadState, schemaOf } from '../harness/rows.ts';
import { started } from '../harness/terminal.ts';

// Nothing here depends on how long it takes; a machine with other work to do may take its time.
vi.setConfig({ testTimeout: 30_000, hookTimeout: 30_000 });

const fixture = 'test/fixtures/state-90d51b4';
const names = JSON.parse(readFileSync(join(fixture, 'names.json'), 'utf8')) as {
  time: number;
  tokens: Record<'admin' | 'reader' | 'fable', string>;
  sessions: { firstLife: string };
};

function oldState(): string {
  const stateDir = mkdtempSync(join(tmpdir(), 'interlane-old-'));
  onTestFinished(() => rmSync(stateDir, { recursive: true, force: true }));
  loadState(stateDir, readFileSync(join(fixture, 'interlane.sql'), 'utf8'));
  return stateDir;
}

it('a state of schema 4 opens with a copy beside it, everything in it is there, and its work goes on', async () => {
  const stateDir = oldState();
  const gw = new TestGateway({
    config: {
      agents: { list: [{ id: 'main', default: true }, { id: 'ops' }] },
      session: { dmScope: 'per-peer' },
      tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } },
    },
    script: [
      { when: 'REPLY_SKIP', steps: [{ say: 'REPLY_SKIP' }] },
      { when: 'ANNOUNCE_SKIP', steps: [{ say: 'ANNOUNCE_SKIP' }] },
      { when: 'ask ops', steps: [{ say: '' }, { say: 'Ops: {{result}}' }] },
      { when: 'gate', steps: [{ say: '' }, { say: 'It is up.' }] },
      { steps: [{ say: 're: {{input}}' }] },
    ],
    stops: true,
    stateDir,
    listen: { token: undefined },
  });
  onTestFinished(() => gw.end());
  gw.clock.jump(names.time + 60_000 - gw.now());
  gw.stops.open('up');
  await gw.start();
  expect(schemaOf(stateDir, 'interlane.db.schema-4')).toBe(4);
  expect(schemaOf(stateDir, 'interlane.db')).toBeGreaterThan(4);
  expect(gw.warnings).toEqual([expect.stringContaining('from schema 4 to'), expect.stringContaining('gets schema 5')]);

  const admin = await gw.client({ token: names.tokens.admin });
  // The call that waited gets its answer, and what was queued behind it runs.
  expect(await gw.wait('asking')).toMatchObject({ state: 'ok', reply: expect.stringContaining('It is up.') as string });
  expect(await gw.wait('behind')).toMatchObject({ state: 'ok', reply: 're: behind it' });
  expect(await admin.call('chat.history', { sessionKey: 'plans' })).toMatchObject({ messages: [{ content: 'second life' }, {}] });
  expect(await admin.call('sessions.describe', { key: 'plans', life: 1 })).toMatchObject({
    session: { sessionId: names.sessions.firstLife, ended: true },
  });
  const { deliveries } = await admin.call('deliveries.list', { states: ['unknown', 'failed', 'sent'] });
  expect(deliveries.map(({ recipient, state }) => `${recipient} ${state}`)).toEqual(
    expect.arrayContaining(['ana unknown', 'bo failed', 'cy sent']),
  );
  const unknown = deliveries.find(({ state }) => state === 'unknown')!;
  expect(await admin.call('deliveries.resend', { deliveryId: unknown.deliveryId })).toMatchObject({ changed: true });
  await gw.until(() => gw.sent.some(({ recipient, text }) => recipient === 'ana' && text === 're: lost one'));
  // Its text was dropped by the version that sent it.
  const failed = deliveries.find(({ state }) => state === 'failed')!;
  await expect(admin.call('deliveries.resend', { deliveryId: failed.deliveryId })).rejects.toMatchObject({ code: 'DELIVERY_SETTLED' });
  expect((await gw.http('/sessions', { token: names.tokens.reader })).status).toBe(200);
  const guest = await gw.mcp(names.tokens.fable);
  expect(JSON.stringify(await guest.inbox())).toContain('Which colour?');
});

it('an import into a state of an older schema is refused and migrates nothing', async () => {
  const stateDir = oldState();
  const source = await testGateway();
  await source.answer('hello', { from: 'ana' });
  await source.close();
  const { stdout: input } = await started(['export', '--state-dir', source.stateDir]).finished;
  const { status, stderr } = await started(['import', '-', '--state-dir', stateDir], { input }).finished;
  expect([status, stderr]).toEqual([74, expect.stringContaining('older Interlane (schema 4')]);
  expect(schemaOf(stateDir, 'interlane.db')).toBe(4);
  expect(existsSync(join(stateDir, 'interlane.db.schema-4'))).toBe(false);
});
