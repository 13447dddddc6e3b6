// What goes wrong around a gateway that lives: a broken flow, a stolen lease, a second gateway, a clock that jumps, too much at once.
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Gateway, GatewayOptions } from '../../src/gateway.ts';
import type { FeedEvent } from '../../src/protocol/event.ts';
import { Connection } from '../../src/store/sqlite/database.ts';
import { RealClock } from '../clock.ts';
import { eventOf, forTest, say, Stage, type ConfigText, type ScriptText } from './stage.ts';

const config: ConfigText = {
  agents: { list: [{ id: 'a', default: true }, { id: 'b' }] },
  session: { dmScope: 'per-peer' },
  tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } },
};
const script: ScriptText = [
  {
    agent: 'a',
    when: 'ask',
    steps: [
      { calls: [{ tool: 'sessions_send', args: { sessionKey: 'agent:b:main', message: 'q', timeoutSeconds: 60 } }] },
      { say: '{{result}}' },
    ],
  },
  { when: 'slow', steps: [{ say: 'late', sleepMs: 50 }] },
  { steps: [{ say: 'reply' }] },
];

async function start(
  more: Partial<GatewayOptions> = {},
  clock = new RealClock(),
): Promise<Gateway & { stateDir: string; warned: string[] }> {
  const { gateway, stateDir, warnings } = await forTest(new Stage(clock, more.stateDir)).start(config, script, more);
  return Object.assign(gateway, { stateDir, warned: warnings });
}

const next = (gateway: Gateway, wanted: (event: FeedEvent) => boolean) => eventOf(gateway, wanted);

/** A hand in the database while the gateway runs. */
function meddle(stateDir: string, sql: string): void {
  const db = new DatabaseSync(join(stateDir, 'interlane.db'), { timeout: 5_000 });
  db.exec(sql);
  db.close();
}

describe('a flow that cannot be advanced', () => {
  it('does not keep its run from ending, is failed, and is told to the operator', async () => {
    const gateway = await start();
    meddle(
      gateway.stateDir,
      `CREATE TRIGGER broken BEFORE INSERT ON exchange_turns WHEN NEW.turn > 0 BEGIN SELECT RAISE(ABORT, 'broken on purpose'); END`,
    );
    const failed = next(gateway, (event) => event.kind === 'exchange' && event.state === 'failed');
    const { runId } = await say(gateway, 'ask');
    expect(await gateway.engine.wait(runId, 10_000)).toMatchObject({ state: 'ok', reply: expect.stringContaining('"status":"ok"') });
    expect(await failed).toMatchObject({ reason: expect.stringContaining('broken on purpose') });
    expect(gateway.warned.join()).toContain('broken on purpose');
  });
});

/** A run in the middle of its turn, whose lease another gateway takes. */
const stolen = async (gateway: Awaited<ReturnType<typeof start>>) => {
  const running = next(gateway, (event) => event.kind === 'run' && event.state === 'running');
  const { runId } = await say(gateway, 'slow');
  await running;
  meddle(gateway.stateDir, `UPDATE runs SET epoch = epoch + 1`);
  return runId;
};

describe('a stale holder', () => {
  it('cannot write: another gateway took the run, so its end is refused and nothing of it is kept', async () => {
    const gateway = await start();
    const runId = await stolen(gateway);
    const { runId: other } = await say(gateway, 'slow', 'q');
    await gateway.engine.wait(other, 10_000);
    expect(await gateway.engine.wait(runId, 0)).toMatchObject({ state: 'running' });
    await gateway.close();
    // The next start finds it as it was, and brings it to its one end.
    const again = await start({ stateDir: gateway.stateDir });
    expect(await again.engine.wait(runId, 10_000)).toMatchObject({ state: 'ok', reply: 'late' });
  });
});

describe('the check of the lease', () => {
  it('is what refuses a stale holder: without it the stale end is kept', async () => {
    const { answer } = Connection.prototype;
    Connection.prototype.answer = function (this: Connection, query) {
      return answer.call(this, { ...query, sql: query.sql.replace('pk = ? AND epoch = ?', 'pk = ? AND ? > 0') });
    };
    onTestFinished(() => {
      Connection.prototype.answer = answer;
    });
    const gateway = await start();
    const runId = await stolen(gateway);
    expect(await gateway.engine.wait(runId, 10_000)).toMatchObject({ state: 'ok', reply: 'late' });
  });
});

describe('a second gateway on the same state', () => {
  it('is refused and names the first', async () => {
    const gateway = await start();
    await expect(start({ stateDir: gateway.stateDir })).rejects.toMatchObject({
      code: 'STATE_IN_USE',
      message: expect.stringContaining(`process ${process.pid}`),
    });
    const { runId } = await say(gateway, 'hello');
    expect(await gateway.engine.wait(runId, 10_000)).toMatchObject({ state: 'ok' });
  });
});

describe('a clock that jumps', () => {
  it.each([-86_400_000, 86_400_000])('by %d ms loses nothing: runs, waits and exchanges end as ever', async (jump) => {
    const clock = new RealClock();
    const gateway = await start({}, clock);
    const over = next(gateway, (event) => event.kind === 'exchange' && event.state === 'done');
    const asking = next(gateway, (event) => event.kind === 'run' && event.state === 'waiting');
    const { runId } = await say(gateway, 'ask');
    await asking;
    clock.jumped = jump;
    const { runId: later } = await say(gateway, 'hello', 'q');
    expect(await gateway.engine.wait(later, 10_000)).toMatchObject({ state: 'ok' });
    expect(await gateway.engine.wait(runId, 10_000)).toMatchObject({ state: 'ok' });
    expect(await over).toMatchObject({ kind: 'exchange' });
  });
});

describe('100,000 inputs at once', () => {
  it('are taken or refused as BUSY, and every one that was taken is there', async () => {
    const gateway = await start({ caps: { main: 0, nested: 0, subagent: 0, cron: 0 } });
    let busy = 0;
    let other = 0;
    const taken = await Promise.all(
      Array.from({ length: 100_000 }, (_, n) =>
        say(gateway, 'x', `p${n % 500}`).then(
          () => 1,
          (error: { code?: string }) => {
            if (error.code === 'BUSY') busy++;
            else other++;
            return 0;
          },
        ),
      ),
    );
    expect(other).toBe(0);
    expect(busy).toBeGreaterThan(50_000);
    const accepted = taken.filter((one) => one === 1).length;
    expect(accepted).toBeGreaterThan(9_000);
    await gateway.close();
    const db = new DatabaseSync(join(gateway.stateDir, 'interlane.db'), { readOnly: true });
    expect(db.prepare('SELECT count(*) AS n FROM runs').get()).toEqual({ n: accepted });
    db.close();
  }, 60_000);
});
