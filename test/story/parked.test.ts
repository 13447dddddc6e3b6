// A run whose turn goes on in the very commit in which it was parked is still this gateway's to stop.
import { expect, it } from 'vitest';
import { engineByHand } from '../harness/engine.ts';

it('a run that goes on in the commit in which it was parked can still be aborted', async () => {
  // Hears of commits before the engine does, and so gets its writes in before the engine's next claim.
  let then = () => {};
  await using hand = await engineByHand({
    agents: ['a', 'b', 'c'],
    store: 'sqlite',
    caps: { main: 4, nested: 4, subagent: 1, cron: 1 },
    onCommit: (events) => {
      if (events.some((event) => event.kind === 'run' && event.runId === 'other' && event.state === 'ok')) then();
    },
  });
  await hand.accept('asks', { agent: 'a' });
  await hand.accept('other', { agent: 'c' });
  const [asks, other] = [await hand.turn('asks'), await hand.turn('other')];
  const [call] = await asks.turn.step({
    text: '',
    calls: [{ providerId: 'x', tool: 'sessions_send', args: {}, effect: 'keyed' }],
    usage: { input: 0, output: 0 },
  });
  const sent = await hand.send(asks.turn, call!, 'b', { waitMs: 30_000, maxTurns: 0 });
  const answering = await hand.turn(sent.runId);
  then = () => {
    void asks.turn.park().then(asks.leave);
    void answering.turn.end({ text: '', usage: { input: 0, output: 0 } }).then(answering.leave);
  };
  await other.turn.end({ text: '', usage: { input: 0, output: 0 } });
  other.leave();
  await hand.settled();
  expect(await hand.wait('asks', 0)).toMatchObject({ state: 'running' });
  await hand.abort('asks');
  await hand.settled();
  expect(await hand.wait('asks', 0)).toMatchObject({ state: 'aborted' });
});
