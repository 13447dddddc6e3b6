// Messages on their way out, for operators: listed by page and level, sent again once, settled, over every door.
import { describe, expect, it, vi } from 'vitest';
import type { Channel, Outbound, SendOutcome } from '../../src/channels/channel.ts';
import { adminToken, testGateway } from '../harness/gateway.ts';
import { started } from '../harness/terminal.ts';

// Nothing here depends on how long it takes; a machine with other work to do may take its time.
vi.setConfig({ testTimeout: 30_000, hookTimeout: 30_000 });

async function open(...answers: SendOutcome[]) {
  const got: Outbound[] = [];
  const channel: Channel = {
    name: 'loopback',
    // oxlint-disable-next-line require-await -- asynchronous by contract
    async send(message) {
      got.push(message);
      return answers.shift() ?? { outcome: 'sent' };
    },
  };
  const gw = await testGateway({ config: { session: { dmScope: 'per-peer' } }, channels: [channel], listen: true });
  const settled = () => gw.until(async () => (await gw.rows.open()) === 0);
  const say = async (text: string, from: string) => {
    await gw.answer(text, { from });
    await settled();
  };
  return { gw, got, say, settled, answers };
}
const failed: SendOutcome = { outcome: 'refused', error: 'blocked by ana' };
const unknown: SendOutcome = { outcome: 'unknown', error: 'silence' };

describe('an operator', () => {
  it('lists deliveries by state and session, in pages, and only those of sessions it may see', async () => {
    const { gw, say } = await open(failed, unknown);
    await say('one', 'ana');
    await say('two', 'bo');
    for (let n = 0; n < 5; n++) await say(`more ${n}`, 'cy');
    const all = await gw.call('deliveries.list', {});
    expect(all.deliveries.map(({ state, recipient }) => `${state} ${recipient}`)).toEqual([
      ...Array.from({ length: 5 }, () => 'sent cy'),
      'unknown bo',
      'failed ana',
    ]);
    expect(all.deliveries.at(-1)).toMatchObject({
      sessionKey: 'agent:main:direct:ana',
      attempts: 1,
      error: 'blocked by ana',
      preview: 're: one',
    });
    expect((await gw.call('deliveries.list', { states: ['failed', 'unknown'] })).deliveries.map(({ recipient }) => recipient)).toEqual([
      'bo',
      'ana',
    ]);
    expect((await gw.call('deliveries.list', { states: ['unknown', 'unknown'] })).deliveries).toHaveLength(1);
    expect((await gw.call('deliveries.list', { key: 'agent:main:direct:cy', states: ['failed'] })).deliveries).toEqual([]);
    const seen: string[] = [];
    let cursor: string | undefined;
    do {
      const page: { deliveries: { deliveryId: string }[]; nextCursor?: string } = await gw.call('deliveries.list', {
        limit: 3,
        ...(cursor === undefined ? {} : { cursor }),
      });
      seen.push(...page.deliveries.map(({ deliveryId }) => deliveryId));
      cursor = page.nextCursor;
    } while (cursor !== undefined);
    expect(seen).toEqual(all.deliveries.map(({ deliveryId }) => deliveryId));
    expect((await gw.http('/deliveries?states=unknown')).json.deliveries).toHaveLength(1);
    expect((await gw.http('/deliveries?states=bogus')).status).toBe(400);

    await gw.tell('agent:main:direct:bo', 'psst', { taint: 3 });
    const low = await gw.token('low', { scopes: ['operator.write'], level: 'PUBLIC' });
    const visible = await gw.call('deliveries.list', { states: ['failed', 'unknown'] }, low);
    expect(visible.deliveries.map(({ recipient }) => recipient)).toEqual(['ana']);
    const hidden = all.deliveries.find(({ recipient }) => recipient === 'bo')!.deliveryId;
    for (const deliveryId of [hidden, 'nobody']) {
      await expect(gw.call('deliveries.resend', { deliveryId }, low)).rejects.toMatchObject({ code: 'DELIVERY_NOT_FOUND' });
      await expect(gw.call('deliveries.settle', { deliveryId, as: 'sent' }, low)).rejects.toMatchObject({ code: 'DELIVERY_NOT_FOUND' });
    }
    const reader = await gw.token('reader', { scopes: ['operator.read'] });
    await expect(gw.call('deliveries.resend', { deliveryId: hidden }, reader)).rejects.toMatchObject({ code: 'MISSING_SCOPE' });
  });

  it.each([
    ['failed', failed],
    ['unknown', unknown],
  ])('has one that is %s sent again, once, however often it asks', async (state, outcome) => {
    const { gw, got, say, settled, answers } = await open(outcome);
    await say('one', 'ana');
    const [before] = (await gw.call('deliveries.list', {})).deliveries;
    expect(before).toMatchObject({ state, attempts: 1 });
    const { deliveryId } = before!;
    answers.push(outcome);
    const request = { deliveryId, attempts: 1 };
    expect(await gw.call('deliveries.resend', request)).toMatchObject({ ok: true, changed: true, delivery: { state: 'pending' } });
    await settled();
    await gw.until(() => got.length === 2);
    // The same request again, after the attempt, is the request that was carried out.
    await gw.until(async () => (await gw.call('deliveries.list', {})).deliveries[0]!.state === state);
    expect(await gw.call('deliveries.resend', request)).toMatchObject({ changed: false, delivery: { state, attempts: 2 } });
    expect(got).toHaveLength(2);
    expect(got[1]).toEqual(got[0]);
    const url = `/deliveries/${deliveryId}/resend`;
    const again = await (state === 'failed' ? gw.http(url, { method: 'POST' }) : gw.post(url, { attempts: 2 }));
    expect([again.status, again.json.changed]).toEqual([200, true]);
    await gw.until(async () => (await gw.call('deliveries.list', {})).deliveries[0]!.state === 'sent');
    expect(got).toHaveLength(3);
    await expect(gw.call('deliveries.resend', { deliveryId })).rejects.toMatchObject({ code: 'DELIVERY_SETTLED' });
    expect((await gw.call('deliveries.list', {})).deliveries[0]).not.toHaveProperty('preview');
  });

  it('does the same from the command line', async () => {
    const { gw, got, say, settled } = await open(failed, unknown);
    await say('one', 'ana');
    await say('two', 'bo');
    const run = async (...argv: string[]) => {
      const { status, stdout, stderr } = await started(argv, { env: { INTERLANE_TOKEN: adminToken, INTERLANE_URL: gw.url } }).finished;
      return { status, stdout, stderr };
    };
    const listed = JSON.parse((await run('deliveries', '--json')).stdout) as { deliveries: { deliveryId: string; state: string }[] };
    expect(listed.deliveries.map(({ state }) => state)).toEqual(['unknown', 'failed']);
    const [bo, ana] = listed.deliveries.map(({ deliveryId }) => deliveryId);
    expect((await run('deliveries', '--state', 'failed')).stdout).toContain('blocked by ana');
    expect((await run('deliveries', 'resend', ana!)).stdout).toBe(`${ana} is pending after 1 attempt\n`);
    await settled();
    await gw.until(() => got.length === 3);
    expect(await run('deliveries', 'settle', bo!)).toMatchObject({ status: 64 });
    expect((await run('deliveries', 'settle', bo!, '--as', 'sent')).stdout).toBe(`${bo} is sent after 1 attempt\n`);
    expect((await run('deliveries', 'settle', bo!, '--as', 'sent')).stdout).toBe(`${bo} is sent after 1 attempt; nothing changed\n`);
    expect(await run('deliveries', 'settle', bo!, '--as', 'failed')).toMatchObject({ status: 65 });
    expect(await run('deliveries', 'resend', 'nobody')).toMatchObject({ status: 66 });
    expect(got).toHaveLength(3);
  });
});
