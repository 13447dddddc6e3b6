// Verdicts of text patterns: ready before the body that needs them, of the policy that the body meets, and never late.
import { expect, it, onTestFinished } from 'vitest';
import { Config } from '../config/schema.ts';
import { compileWorld, type World } from '../rules/decide.ts';
import { findText } from '../rules/hooks.ts';
import type { Body, Command } from '../store/contract.ts';
import { memoryStore } from '../store/memory.ts';
import { Verdicts } from './verdicts.ts';

const worldOf = (text: string): World =>
  compileWorld(Config.parse({ policy: { rules: [{ id: 'r', hook: 'PRE_OUTPUT', match: { text }, effect: 'REDACT' }] } }));

function opened(world: World) {
  const now = { world };
  const verdicts = new Verdicts(() => now);
  const raw = memoryStore({ rerun: 0 });
  onTestFinished(async () => {
    await raw.close();
    await verdicts.close();
  });
  const bodies: string[] = [];
  // oxlint-disable-next-line require-yield -- it asks for nothing but the verdict
  function* verdictOf(policy: World['policy'], text: string): Body<unknown> {
    return verdicts.find(policy, 'PRE_OUTPUT', text);
  }
  /** A body that asks for the verdict on a text inside of a savepoint, as a flow does. */
  const ask = (texts?: Command<{ text: string }, unknown>['texts']): Command<{ text: string }, unknown> => ({
    name: 'ask',
    ...(texts ? { texts } : {}),
    *body(t, { text }) {
      bodies.push(text.slice(0, 10));
      const { policy } = now.world;
      const asked = yield* t.attempt(verdictOf(policy, text));
      return asked.ok ? asked.value : asked;
    },
  });
  return { now, verdicts, store: verdicts.over(raw), bodies, ask };
}

it('a body that names its texts runs once, another one is undone and runs again', async () => {
  const { store, bodies, ask } = opened(worldOf('4711'));
  const found = [[[0, 4, 8]]];
  expect(
    await store.write(
      ask(({ text }) => [{ hook: 'PRE_OUTPUT', text }]),
      { text: 'pin 4711' },
    ),
  ).toEqual(found);
  expect(bodies.splice(0)).toEqual(['pin 4711']);
  expect(await store.write(ask(), { text: 'pin 4711' })).toEqual(found);
  expect(bodies).toEqual(['pin 4711', 'pin 4711']);
});

it('a body that meets another policy gets the verdict of that one', async () => {
  const { now, store, bodies, ask } = opened(worldOf('4711'));
  const command = ask(({ text }) => [{ hook: 'PRE_OUTPUT', text }]);
  const written = store.write(
    {
      ...command,
      *body(t, args) {
        if (bodies.length === 0) now.world = worldOf('pin');
        return yield* command.body(t, args);
      },
    },
    { text: 'pin 4711' },
  );
  expect(await written).toEqual([[[0, 0, 3]]]);
  expect(bodies).toHaveLength(2);
});

it('a thread searches a long text, with the same result', async () => {
  const world = worldOf('4711|x+y');
  const { store, verdicts, ask } = opened(world);
  const text = `${'word '.repeat(20_000)}4711`;
  expect(await store.write(ask(), { text })).toEqual(findText(world.policy, 'PRE_OUTPUT', text));
  // Closed in the middle of a search: a text that was not searched does not pass.
  const cut = store.write(ask(), { text: `${text} ${'x'.repeat(2_000_000)}` });
  await Promise.resolve();
  await verdicts.close();
  expect(await cut).toEqual([{ failed: expect.any(String) as string }]);
});

it('after the close no thread is started: a text that was not searched does not pass', async () => {
  const { store, verdicts, ask } = opened(worldOf('4711'));
  await verdicts.close();
  expect(await store.write(ask(), { text: 'x'.repeat(200_000) })).toEqual([{ failed: 'the gateway is stopping' }]);
});
