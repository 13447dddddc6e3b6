// A run whose turn goes on in the very commit in which it was parked is still this gateway's to stop.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { expect, it, onTestFinished } from 'vitest';
import { Config } from '../../src/config/schema.ts';
import { Engine } from '../../src/engine/engine.ts';
import type { Turn } from '../../src/engine/runner.ts';
import type { FeedEvent } from '../../src/protocol/event.ts';
import { compileWorld } from '../../src/rules/decide.ts';
import { openSqliteStore } from '../../src/store/sqlite/open.ts';

it('a run that goes on in the commit in which it was parked can still be aborted', async () => {
  const tick = () => new Promise((resolve) => setImmediate(resolve));
  const parts = {
    afterTick: (work: () => void) => void setImmediate(work),
    elapsed: () => 0,
    fatal: (error: Error) => {
      throw error;
    },
  };
  const stateDir = mkdtempSync(join(tmpdir(), 'interlane-parked-'));
  onTestFinished(() => rmSync(stateDir, { recursive: true, force: true }));
  const store = openSqliteStore<FeedEvent>(stateDir, 'normal', parts);
  const turns = new Map<string, { turn: Turn; leave: () => void }>();
  const runner = {
    run: (turn: Turn) =>
      new Promise<void>((resolve, reject) => {
        turn.signal.addEventListener('abort', () => reject(turn.signal.reason as Error));
        turns.set(turn.runId, { turn, leave: resolve });
      }),
  };
  const clock = { now: () => 1_800_000_000_000, elapsed: () => 0, after: () => () => {} };
  // Hears of commits before the engine does, and so gets its writes in before the engine's next claim.
  let then = () => {};
  store.onCommit((events) => {
    if (events.some((event) => event.kind === 'run' && event.runId === 'other' && event.state === 'ok')) then();
  });
  let ids = 0;
  const engine = new Engine(
    {
      store,
      clock,
      newId: () => `id${ids++}`,
      runner: () => runner,
      caps: { main: 4, nested: 4, subagent: 1, cron: 1 },
      host: { bootId: 'b', pid: 1, name: 'h' },
      warn() {},
    },
    compileWorld(Config.parse({ tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } } })),
  );
  await engine.start(['a', 'b', 'c'].map((agent) => ({ key: `agent:${agent}:main`, made: { agent, kind: 'main' } })));
  const accept = (runId: string, agent: string) =>
    engine.accept({
      sessionKey: `agent:${agent}:main`,
      runId,
      text: runId,
      provenance: { kind: 'user' },
      principal: 'p',
      taint: 0,
      mode: 'followup',
      class: 'main',
      deliver: false,
      now: clock.now(),
    });
  await accept('asks', 'a');
  await accept('other', 'c');
  for (let n = 0; n < 10; n++) await tick();
  const asks = turns.get('asks')!;
  const [call] = await asks.turn.step({
    text: '',
    calls: [{ providerId: 'x', tool: 'sessions_send', args: {}, effect: 'keyed' }],
    usage: { input: 0, output: 0 },
  });
  const target = await store.read(
    {
      name: 't',
      *body(t) {
        return (yield* t.one<{ pk: number }>(`SELECT pk FROM sessions WHERE key = 'agent:b:main'`))!.pk;
      },
    },
    {},
  );
  const sent = await engine.send({
    from: { ...asks.turn.lease, step: call!.step, idx: call!.idx },
    targetSessionPk: target,
    text: 'q',
    waitMs: 30_000,
    maxTurns: 0,
    now: clock.now(),
  });
  for (let n = 0; n < 10; n++) await tick();
  then = () => {
    void asks.turn.park().then(asks.leave);
    const answering = turns.get(sent.runId)!;
    void answering.turn.end({ text: '', usage: { input: 0, output: 0 } }).then(answering.leave);
  };
  const other = turns.get('other')!;
  await other.turn.end({ text: '', usage: { input: 0, output: 0 } });
  other.leave();
  for (let n = 0; n < 10; n++) await tick();
  expect(await engine.wait('asks', 0)).toMatchObject({ state: 'running' });
  await engine.abort('asks', 'enough');
  for (let n = 0; n < 10; n++) await tick();
  expect(await engine.wait('asks', 0)).toMatchObject({ state: 'aborted' });
  await engine.close(0);
  await store.close();
});
