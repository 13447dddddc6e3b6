// A fixed scenario is run once to count its commits and outside effects, then killed before and after each of them.
import { mkdtempSync, rmSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { soak } from '../soak.ts';
import { chosen, crash, eachPoint, startReceiver, type Receiver } from './harness.ts';
import { asked, scenario, stopped, visit } from './scenarios.ts';
import type { Op } from './worker.ts';

const directory = mkdtempSync(join(tmpdir(), 'interlane-receiver-'));
let receiver: Receiver;
beforeAll(async () => {
  receiver = await startReceiver(directory);
});
afterAll(() => {
  receiver.stop();
  rmSync(directory, { recursive: true, force: true });
});

describe('a gateway that is killed', () => {
  it('before and after every commit and every outside effect of a scenario loses nothing and does nothing twice', async () => {
    const whole = await crash(receiver, scenario, [], { alone: true });
    expect(whole.violations).toEqual([]);
    const found: string[] = [];
    const kills = new Set<string>();
    await eachPoint(chosen(whole.points), async (point) => {
      const { violations, kills: where } = await crash(receiver, scenario, [point], { alone: true });
      for (const kill of where) kills.add(kill);
      for (const violation of violations) found.push(`killed ${point}: ${violation}`);
    });
    expect(found).toEqual([]);
    const commands = [
      'join store',
      'ensure session',
      'accept',
      'claim runs',
      'persist step',
      'start call',
      'finish call',
      'send to session',
      'park run',
      'end run',
      'begin sending',
      'settle delivery',
      'reset session',
      'abort run',
    ];
    const expected = [
      ...commands.flatMap((name) => [`before commit of ${name}`, `after commit of ${name}`]),
      'before delivery',
      'after delivery',
      'before tool',
      'after tool',
    ];
    expect(expected.filter((name) => !kills.has(name))).toEqual([]);
  });

  it('before and after a turn is offered to a guest, taken or answered loses none and takes each answer once', async () => {
    const whole = await crash(receiver, visit, [], { alone: true });
    expect(whole.violations).toEqual([]);
    const points = whole.points.filter((point) => /commit of (offer turn|take offer|answer turn)/.test(point));
    expect(points).toHaveLength(18); // before and after three commits of three turns: request, reply, announce
    const found: string[] = [];
    await eachPoint(chosen(points), async (point) => {
      const { violations } = await crash(receiver, visit, [point], { alone: true });
      for (const violation of violations) found.push(`killed ${point}: ${violation}`);
    });
    expect(found).toEqual([]);
  });

  it('by the same run again and again gives that run up after three crashes, and nothing else', async () => {
    const ops: Op[] = ['boom', 'hello'].map((text, index) => ({
      id: `m${index}`,
      do: 'message',
      channel: 'loopback',
      kind: 'direct',
      peer: `u${index}`,
      text: `m${index} ${text}`,
    }));
    const { violations, kills, directory: kept } = await crash(receiver, ops, [], { keep: true });
    const db = new DatabaseSync(join(kept, 'interlane.db'), { readOnly: true });
    const ends = db.prepare(`SELECT lane, state, error_code FROM runs ORDER BY lane`).all();
    db.close();
    rmSync(kept, { recursive: true, force: true });
    expect(violations).toEqual([]);
    expect(kills).toEqual(['boom', 'boom', 'boom', 'boom']);
    expect(ends).toMatchObject([
      { lane: 'agent:ana:direct:u0', state: 'error', error_code: 'POISON' },
      { lane: 'agent:ana:direct:u1', state: 'ok' },
    ]);
  });
});

describe('the checker', () => {
  const mutants: [mutant: string, mistake: string, where: RegExp, when: 'always' | 'soak'][] = [
    ['early-ack', 'acknowledges before the commit', /before commit of accept/, 'always'],
    ['flow-outside', 'advances the flow outside the ending transaction', /after commit of end run/, 'soak'],
    ['no-idempotency', 'ignores the idempotency key', /after commit of accept/, 'always'],
    ['early-sent', 'marks a delivery before its attempt', /before delivery/, 'soak'],
    ['resend', 'sends again what may have arrived', /after delivery/, 'always'],
    ['rerun-once', 'runs a tool again that may act only once', /after tool/, 'always'],
  ];

  it('finds a gateway that keeps a stop in memory only', async () => {
    const { points } = await crash(receiver, stopped, [], { alone: true, mutant: 'forget-abort' });
    const point = points.findLast((one) => one.startsWith('before commit of end run'))!;
    expect((await crash(receiver, stopped, [point], { alone: true })).violations).toEqual([]);
    const { violations } = await crash(receiver, stopped, [point], { alone: true, mutant: 'forget-abort' });
    expect(violations.join()).toMatch(/a1 was told that run \S+ is stopped, but it ended ok/);
  });

  it('finds a gateway that tells a call what did not happen', async () => {
    const { violations } = await crash(receiver, asked, [], { alone: true, mutant: 'lie' });
    expect(violations.join()).toMatch(/was told "Another\.", but run \S+ ended ok with "The answer\."/);
  });

  it.each(mutants.filter(([, , , when]) => soak || when === 'always'))(
    'finds a gateway that makes the mistake "%s": it %s',
    async (mutant, _, where) => {
      // It is the crash that shows the mistake: without one, everything comes to its end.
      const { points, violations } = await crash(receiver, scenario, [], { alone: true, mutant });
      expect(violations).toEqual([]);
      const candidates = points.filter((point) => where.test(point));
      const found: string[] = [];
      await eachPoint(candidates, async (point) => {
        if (found.length === 0) found.push(...(await crash(receiver, scenario, [point], { alone: true, mutant })).violations);
      });
      expect(found).not.toEqual([]);
    },
  );
});
