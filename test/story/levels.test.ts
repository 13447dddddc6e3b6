// What a viewer below a session's level can do to it and learn about it: while a message waits, after a reset, and by taking its key.
import { describe, expect, it } from 'vitest';
import { Wire } from '../harness/socket.ts';
import { testGateway, type ConfigText, type TestGateway } from '../harness/gateway.ts';

const classified = {
  session: { dmScope: 'per-peer' },
  classification: { channels: { vault: 'RESTRICTED' } },
} as const satisfies ConfigText;

const group = (gw: TestGateway, id: string, text = 'the launch code is 0000') =>
  gw.receive({ origin: { channel: 'vault', peer: { kind: 'group', id } }, sender: 'ceo', text });
const low = (gw: TestGateway) => gw.token('low', { scopes: ['operator.admin'], level: 'PUBLIC' });
const codeOf = (answer: Promise<unknown>) =>
  answer.then(
    () => 'ok',
    (thrown: unknown) => (thrown as { details?: { code?: string }; code?: string }).details?.code ?? (thrown as { code: string }).code,
  );

describe('the key of a chat', () => {
  it('of a channel above an operator is answered like a reserved one, whether it exists or not', async () => {
    const gw = await testGateway({ config: classified, listen: true });
    const token = await low(gw);
    await gw.wait((await group(gw, 'there')).runId);
    for (const id of ['there', 'free']) {
      const sessionKey = `agent:main:vault:group:${id}`;
      const spoken = { sessionKey, message: 'mine', idempotencyKey: `k-${id}` };
      expect(await codeOf(gw.call('chat.send', spoken, token))).toBe('SESSION_KEY_RESERVED');
      expect(await codeOf(gw.call('agent', spoken, token))).toBe('SESSION_KEY_RESERVED');
      expect(await codeOf(gw.call('sessions.create', { key: sessionKey }, token))).toBe('SESSION_KEY_RESERVED');
    }
    expect(await gw.wait((await group(gw, 'free')).runId)).toMatchObject({ state: 'ok' });
  });

  it('that an operator opened first takes messages up to the clearance of its agent, in every life', async () => {
    const gw = await testGateway({ config: { session: { dmScope: 'per-peer' } }, listen: true });
    const token = await low(gw);
    const keys = ['agent:main:direct:ana', 'agent:main:vault:group:old'];
    for (const key of keys) await gw.call('sessions.create', { key }, token);
    await gw.reload(classified);
    const write = (kind: 'direct' | 'group', id: string) => gw.receive({ origin: { channel: 'vault', peer: { kind, id } }, text: 'hello' });
    expect(await gw.wait((await write('direct', 'ana')).runId)).toMatchObject({ state: 'ok' });
    await gw.call('sessions.reset', { key: keys[1]! });
    expect(await gw.wait((await write('group', 'old')).runId)).toMatchObject({ state: 'ok' });
  });

  it('whose agent is not cleared for a message: the refusal is in the log', async () => {
    const gw = await testGateway({ config: { ...classified, agents: { list: [{ id: 'main', clearance: 'PUBLIC' }] } } });
    await expect(group(gw, '9')).rejects.toMatchObject({ code: 'ABOVE_CLEARANCE' });
    expect(gw.warnings.join()).toContain('message from channel "vault" was refused');
  });
});

it('a message that waits for its turn shows nothing below its level', async () => {
  const script = [
    { when: 'block', steps: [{ calls: [{ tool: 'gate', args: { name: 'x' } }] }, { say: 'done' }] },
    { steps: [{ say: 'ok' }] },
  ];
  const caps = { main: 1, nested: 1, subagent: 1, cron: 1 };
  const gw = await testGateway({ config: classified, script, listen: true, stops: true, caps });
  const token = await low(gw);
  const viewer = await Wire.connect(gw.port, token);
  const key = 'agent:main:vault:group:q';
  await viewer.call('sessions.subscribe', {});
  await viewer.call('sessions.messages.subscribe', { key });
  await gw.say('block');
  await gw.stops.entered('x');
  const { runId } = await group(gw, 'q');
  // This one shows until a message from the vault waits behind it.
  const { runId: before } = await gw.receive({ origin: { channel: 'office', peer: { kind: 'direct', id: 'ana' } }, text: 'hello' });
  await gw.call('agent.wait', { runId: before, timeoutMs: 0 }, token);
  await gw.receive({ origin: { channel: 'vault', peer: { kind: 'direct', id: 'ana' } }, sender: 'ceo', text: 'secret' });
  expect((await gw.call('sessions.describe', { key }, token)).session).toBeNull();
  expect(await codeOf(gw.call('runs.list', { key }, token))).toBe('SESSION_NOT_FOUND');
  expect(await codeOf(gw.call('chat.history', { sessionKey: key }, token))).toBe('SESSION_NOT_FOUND');
  const unknown = await codeOf(gw.call('agent.wait', { runId: 'none', timeoutMs: 0 }, token));
  for (const id of [runId, before]) expect(await codeOf(gw.call('agent.wait', { runId: id, timeoutMs: 0 }, token))).toBe(unknown);
  const known = [
    await gw.call('sessions.list', {}, token),
    await gw.call('runs.list', {}, token),
    await gw.call('feed.read', {}, token),
    viewer.events('sessions.changed'),
  ];
  expect(JSON.stringify(known)).not.toMatch(/vault|ceo/);
  expect(JSON.stringify(viewer.events('sessions.changed'))).toContain('agent:main:direct:ana');
  gw.stops.open('x');
  await gw.finished();
});

describe('a reset', () => {
  const named = { label: 'merger', displayName: 'Project Falcon', pinned: true };

  it('of a chat of a channel keeps it hidden below the level of the channel, with its names', async () => {
    const gw = await testGateway({ config: classified, listen: true });
    const token = await low(gw);
    const key = 'agent:main:vault:group:9';
    await gw.wait((await group(gw, '9')).runId);
    await gw.call('sessions.patch', { key, ...named });
    await gw.call('sessions.reset', { key });
    expect((await gw.call('sessions.describe', { key }, token)).session).toBeNull();
    expect((await gw.call('sessions.describe', { key })).session).toMatchObject({ ...named, life: 2, lastTo: '9' });
    expect((await gw.rows.session(key)).taint).toBe(0);
  });

  it('of another session that had risen lowers it, and takes off the names and the chats of the higher life', async () => {
    const gw = await testGateway({ config: classified, listen: true });
    const token = await low(gw);
    const key = 'agent:main:direct:ana';
    const write = (channel: string) => gw.receive({ origin: { channel, peer: { kind: 'direct', id: 'ana' } }, text: 'hello' });
    await gw.wait((await write('office')).runId);
    await gw.call('sessions.patch', { key, ...named, sendPolicy: 'deny' });
    await gw.call('sessions.reset', { key });
    expect((await gw.call('sessions.describe', { key }, token)).session).toMatchObject({ ...named, lastChannel: 'office' });
    await gw.wait((await write('vault')).runId);
    await gw.call('sessions.reset', { key });
    const { session } = await gw.call('sessions.describe', { key }, token);
    expect(session).toMatchObject({ life: 3, sendPolicy: 'deny' });
    expect(JSON.stringify(session)).not.toMatch(/merger|Falcon|pinned|vault/);
  });
});
