// Label and clearance: what a session has read, and how far it may rise. A ceiling comes from the creator and from the agent.
import { describe, expect, it } from 'vitest';
import { z } from 'zod';
import { defineTool } from '../../src/tools/plugin.ts';
import { testGateway, type ConfigText, type TestGateway } from '../harness/gateway.ts';

const secret = 'the launch code is 0000';
const hidden = 'agent:main:vault:direct:ana';

/** Counts its calls, so that a test sees whether it acted. */
const vault = () => {
  const tool = { calls: 0 };
  const vaultRead = defineTool({
    name: 'vault_read',
    description: 'Read the vault.',
    params: z.strictObject({}),
    effect: 'pure',
    run: () => {
      tool.calls++;
      return Promise.resolve({ value: { found: 'gold' } });
    },
  });
  return { tool, vaultRead };
};

const classified = {
  tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } },
  session: { dmScope: 'per-channel-peer' },
  classification: { channels: { vault: 'RESTRICTED', office: 'INTERNAL' }, tools: { Vault_Read: 'RESTRICTED' } },
  agents: { list: [{ id: 'main', tools: { allow: ['*'] } }] },
} as const satisfies ConfigText;

const write = (gw: TestGateway, channel: string, text: string) =>
  gw.receive({ origin: { channel, peer: { kind: 'direct', id: 'ana' } }, text });

async function stage(config: ConfigText = classified) {
  const { tool, vaultRead } = vault();
  const gw = await testGateway({ config, listen: true, tools: [vaultRead] });
  await gw.wait((await write(gw, 'vault', secret)).runId);
  return { gw, tool };
}

const refusalOf = async (gw: TestGateway, token: string) =>
  ((await gw.call('tools.invoke', { tool: 'vault_read' }, token)).result as { code?: string }).code;
const taintOf = async (gw: TestGateway, key: string) => (await gw.rows.session(key)).taint;

describe('the ceiling of a guest', () => {
  it("is its creator's level: a PUBLIC admin's guest gets no higher tool, and reads no hidden session", async () => {
    const { gw, tool } = await stage();
    const low = await gw.token('low', { scopes: ['operator.admin'], level: 'PUBLIC' });
    const { token, key } = await gw.call('guests.join', { name: 'fable', see: 'all' }, low);
    const guest = await gw.mcp(token);
    expect((await guest.client.listTools()).tools.map(({ name }) => name)).not.toContain('vault_read');
    await expect(guest.call('vault_read')).rejects.toThrow('vault_read');
    const asked = { tool: 'vault_read' };
    expect(await gw.call('tools.invoke', asked, token)).toMatchObject({ ok: false, result: { code: 'ABOVE_CLEARANCE' } });
    expect(await gw.post('/tools/vault_read', {}, { token })).toMatchObject({ status: 403, json: { error: { code: 'ABOVE_CLEARANCE' } } });
    expect(await guest.call('sessions_history', { sessionKey: hidden })).toMatchObject({ code: 'SESSION_NOT_FOUND' });
    expect(tool.calls).toBe(0);
    expect(await taintOf(gw, key)).toBe(0);
  });

  it('is found in every life: a reset neither raises nor drops it', async () => {
    const { gw } = await stage();
    const low = await gw.token('low', { scopes: ['operator.admin'], level: 'INTERNAL' });
    const { token, key } = await gw.call('guests.join', { name: 'fable', see: 'all' }, low);
    await gw.call('sessions.reset', { key });
    expect(await refusalOf(gw, token)).toBe('ABOVE_CLEARANCE');
  });

  it('of a guest that somebody with a higher level made is not for a lower token of the same guest', async () => {
    const { gw, tool } = await stage();
    const { token, key } = await gw.call('guests.join', { name: 'fable', see: 'all' });
    const low = await gw.token('low', { scopes: ['operator.admin'], level: 'PUBLIC' });
    const { token: lower } = await gw.call('tokens.create', { name: 'fable-2', sessionKey: key }, low);
    expect(await refusalOf(gw, lower)).toBe('ABOVE_CLEARANCE');
    expect(tool.calls).toBe(0);
    // The higher token raises the session, and from then on it is hidden from the lower one.
    expect(await (await gw.mcp(token)).call('vault_read')).toEqual({ found: 'gold' });
    expect(await taintOf(gw, key)).toBe(3);
    await expect(gw.mcp(lower)).rejects.toThrow('gone');
    expect(await gw.post('/tools/sessions_list', {}, { token: lower })).toMatchObject({ status: 404 });
  });
});

describe('a call from outside', () => {
  it.each(['mcp', 'http', 'websocket'] as const)('raises the session that reads the result, over %s', async (door) => {
    const { gw } = await stage();
    const { token, key } = await gw.call('guests.join', { name: 'fable', see: 'all' });
    const answer =
      door === 'mcp'
        ? await (await gw.mcp(token)).call('vault_read')
        : door === 'http'
          ? ((await gw.post('/tools/vault_read', {}, { token })).json.result as unknown)
          : (await gw.call('tools.invoke', { tool: 'vault_read' }, token)).result;
    expect(answer).toEqual({ found: 'gold' });
    expect(await taintOf(gw, key)).toBe(3);
  });

  it("of an operator reads up to the token's level, and raises nothing", async () => {
    const { gw, tool } = await stage();
    const low = await gw.token('low', { scopes: ['operator.read'], level: 'CONFIDENTIAL' });
    const asked = { tool: 'vault_read', sessionKey: 'main' };
    expect(await gw.call('tools.invoke', asked, low)).toMatchObject({ ok: false, result: { code: 'ABOVE_CLEARANCE' } });
    expect(tool.calls).toBe(0);
    expect(await gw.call('tools.invoke', asked)).toMatchObject({ ok: true, result: { found: 'gold' } });
    expect(await taintOf(gw, 'agent:main:main')).toBe(0);
  });
});

describe("an agent's clearance", () => {
  const cleared = (clearance: 'PUBLIC' | 'INTERNAL' | 'RESTRICTED') => ({
    ...classified,
    agents: { list: [{ id: 'main', clearance }] },
  });

  it('is the ceiling of its sessions: a message above it is refused, and leaves nothing behind', async () => {
    const gw = await testGateway({ config: cleared('INTERNAL'), listen: true });
    await expect(write(gw, 'vault', secret)).rejects.toMatchObject({ code: 'ABOVE_CLEARANCE' });
    expect((await gw.call('sessions.list', {})).sessions.map(({ key }) => key)).toEqual(['agent:main:main']);
    const { runId } = await write(gw, 'office', 'hello');
    expect(await gw.wait(runId)).toMatchObject({ state: 'ok' });
  });

  it('follows the config, and a session that is above it already keeps its label and rises no further', async () => {
    const { vaultRead, tool } = vault();
    const gw = await testGateway({ config: cleared('RESTRICTED'), tools: [vaultRead], caller: 'agent:main:main', listen: true });
    await gw.reload(cleared('PUBLIC'));
    expect(await gw.tool('vault_read')).toMatchObject({ code: 'ABOVE_CLEARANCE' });
    await gw.reload(cleared('RESTRICTED'));
    expect(await gw.tool('vault_read')).toEqual({ found: 'gold' });
    await gw.reload(cleared('INTERNAL'));
    expect(await gw.tool('vault_read')).toMatchObject({ code: 'ABOVE_CLEARANCE' });
    expect(tool.calls).toBe(1);
    expect(await taintOf(gw, 'agent:main:main')).toBe(3);
  });
});

it('a result whose own level is above the clearance is withheld, and raises nothing', async () => {
  const sneaky = defineTool({
    name: 'sneaky',
    description: 'Says its level too late.',
    params: z.strictObject({}),
    effect: 'pure',
    run: () => Promise.resolve({ value: secret, level: 'CONFIDENTIAL' }),
  });
  const config: ConfigText = { agents: { list: [{ id: 'main', clearance: 'INTERNAL' }] } };
  const gw = await testGateway({ config, tools: [sneaky], caller: 'agent:main:main' });
  const [row] = await gw.tools([{ tool: 'sneaky' }]);
  expect(row!.text).toContain('ABOVE_CLEARANCE');
  expect(row!.text).not.toContain('0000');
  expect(await taintOf(gw, 'agent:main:main')).toBe(0);
});

it('a channel without a level has the default one, for what comes in and for what goes out', async () => {
  const gw = await testGateway({ config: { classification: { default: 'INTERNAL', channels: { loopback: 'PUBLIC' } } } });
  await gw.wait((await write(gw, 'office', 'hello')).runId);
  expect(await taintOf(gw, 'agent:main:main')).toBe(1);
  await gw.answer('and now in public?');
  await gw.finished();
  expect(gw.sent).toEqual([]);
});
