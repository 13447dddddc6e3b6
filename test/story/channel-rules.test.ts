// Rules with a channel apply where a turn really goes: its own destination, else the chat of the session's last message.
import { describe, expect, it } from 'vitest';
import { loopbackTo } from '../../src/channels/loopback/loopback.ts';
import { toolsOf } from '../harness/inside.ts';
import { testGateway, type ConfigText, type ScriptText } from '../harness/gateway.ts';

const main = 'agent:main:main';
const loopback = loopbackTo(() => {});
const channels = [loopback, { ...loopback, name: 'vault' }];
const script: ScriptText = [
  { when: 'look', steps: [{ calls: [{ tool: 'session_status', args: {} }] }, { say: '{{result}}' }] },
  { steps: [{ say: 're: {{input}}' }] },
];
const start = (config: ConfigText) => testGateway({ config, channels, script, listen: true });
type Gw = Awaited<ReturnType<typeof start>>;

const from = (gw: Gw, channel: string, text: string, kind: 'direct' | 'group' = 'direct') =>
  gw.receive({ origin: { channel, peer: { kind, id: 'you' } }, text });
const told = async (gw: Gw, channel: string, text = 'hello') => gw.wait((await from(gw, channel, text)).runId);
const refusal = (call: Promise<unknown>) =>
  call.then(
    () => 'ok',
    (thrown: { code?: string }) => thrown.code,
  );
const states = async (gw: Gw) => (await gw.rows.deliveries()).map(({ state }) => state);
const explainedTools = async (gw: Gw) => {
  const { facts } = await gw.call('explain.tools', { session: { key: main } });
  return String(facts.tools).split(', ');
};

describe('tools.channels', () => {
  it('applies to a main session from its first message on that channel on, and explain says the same', async () => {
    const gw = await start({ tools: { channels: { loopback: { deny: ['sessions_*'] } } } });
    expect(await explainedTools(gw)).toContain('sessions_list');
    await told(gw, 'loopback');
    const given = [...(await toolsOf(gw, main)).keys()];
    expect(given).not.toContain('sessions_list');
    expect(given).toContain('session_status');
    expect(await explainedTools(gw)).toEqual(given);
  });

  it('applies to the destination of the turn, also if the session has spoken elsewhere since', async () => {
    const gw = await start({ tools: { channels: { vault: { deny: ['session_status'] } } } });
    await told(gw, 'vault');
    expect(await told(gw, 'loopback', 'look')).toMatchObject({ reply: expect.not.stringContaining('TOOL_NOT_ALLOWED') as string });
    // Two turns: the first is for the vault, and the session's last chat is the loopback before it starts.
    const [vault] = await Promise.all([from(gw, 'vault', 'look'), from(gw, 'loopback', 'hello')]);
    expect(await gw.wait(vault.runId)).toMatchObject({ reply: expect.stringContaining('TOOL_NOT_ALLOWED') as string });
  });
});

describe('a policy rule with a channel', () => {
  it.each(['main', 'per-peer'] as const)('blocks the calls of a session with dmScope "%s" that speaks there', async (dmScope) => {
    const rule = { id: 'r', hook: 'PRE_TOOL_CALL' as const, match: { channel: 'vault' }, effect: 'BLOCK' as const };
    const gw = await start({ session: { dmScope }, policy: { rules: [rule] } });
    expect(await told(gw, 'loopback', 'look')).toMatchObject({ reply: expect.not.stringContaining('POLICY_BLOCKED') as string });
    expect(await told(gw, 'vault', 'look')).toMatchObject({ reply: expect.stringContaining('POLICY_BLOCKED') as string });
  });
});

describe('the send policy', () => {
  const spoken = (idempotencyKey: string) => ({ sessionKey: main, message: 'hi', idempotencyKey });

  it('that denies by default allows a session that speaks where a rule allows it', async () => {
    const rules = [{ match: { channel: 'loopback', chatType: 'dm' as const }, action: 'allow' as const }];
    const gw = await start({ session: { sendPolicy: { rules, default: 'deny' } } });
    expect(await refusal(gw.call('agent', { ...spoken('a'), deliver: true }))).toBe('SEND_POLICY_DENIED');
    await told(gw, 'loopback');
    expect(await gw.call('agent', { ...spoken('b'), deliver: true })).toMatchObject({ status: 'ok' });
    expect(await gw.call('chat.send', spoken('c'))).toMatchObject({ runId: 'c' });
    await gw.finished();
    expect(await states(gw)).toEqual(['sent', 'sent']);
    await told(gw, 'vault');
    expect(await refusal(gw.call('agent', { ...spoken('d'), deliver: true }))).toBe('SEND_POLICY_DENIED');
  });

  it('that denies a channel refuses chat.send and agent of a main session that speaks there, as explain says', async () => {
    const gw = await start({ session: { sendPolicy: { rules: [{ match: { channel: 'loopback' }, action: 'deny' }] } } });
    expect(await gw.call('chat.send', spoken('a'))).toMatchObject({ runId: 'a' });
    await told(gw, 'loopback');
    expect(await refusal(gw.call('chat.send', spoken('b')))).toBe('SEND_POLICY_DENIED');
    expect(await refusal(gw.call('agent', { ...spoken('c'), deliver: true }))).toBe('SEND_POLICY_DENIED');
    expect(await gw.call('agent', { ...spoken('d'), deliver: false })).toMatchObject({ status: 'ok' });
    expect((await gw.call('explain.send', { session: { key: main } })).facts).toMatchObject({
      effect: 'BLOCK',
      code: 'SEND_POLICY_DENIED',
    });
  });

  it('takes the kind of chat from the destination, at the message and at each attempt', async () => {
    const deny = { rules: [{ match: { chatType: 'group' as const }, action: 'deny' as const }] };
    const gw = await start({ session: { sendPolicy: deny } });
    // The answer of a group goes to a group, wherever the session's key says it is.
    await gw.accept('g', {
      sessionKey: main,
      destination: { channel: 'loopback', to: 'friends', chatType: 'group' },
      deliver: true,
      text: 'hello',
    });
    await gw.wait('g');
    await gw.finished();
    expect(await states(gw)).toEqual(['dead']);
    await told(gw, 'loopback');
    await gw.finished();
    // A chat that is not the session's own has no known kind, so the kind in the session's key says nothing about it.
    const send = (to: string, idempotencyKey: string) =>
      gw.call('send', { to, message: 'hi', channel: 'loopback', sessionKey: main, idempotencyKey });
    await gw.reload({ session: { sendPolicy: { rules: [{ match: { chatType: 'direct' }, action: 'deny' }] } } });
    expect(await refusal(send('you', 'a'))).toBe('SEND_POLICY_DENIED');
    expect(await send('friends', 'b')).toMatchObject({ status: 'queued' });
  });
});
