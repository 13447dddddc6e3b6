// Runs that are killed again and again: progress between the kills counts, and a run that kills takes no other run with it.
import { rmSync } from 'node:fs';
import { expect, it, onTestFinished } from 'vitest';
import { testGateway, type ScriptText, type TestGateway } from '../harness/gateway.ts';
import { copyOfState } from '../harness/rows.ts';

const gate = (name: string) => ({ calls: [{ tool: 'gate', args: { name } }] });
const started = (script: ScriptText, stateDir?: string) =>
  testGateway({
    config: { session: { dmScope: 'per-peer' } },
    script,
    stops: true,
    ...(stateDir === undefined ? {} : { stateDir }),
  });

/** A gateway on the state that a kill at this moment leaves. */
async function killed(gw: TestGateway, script: ScriptText): Promise<TestGateway> {
  const stateDir = copyOfState(gw.stateDir);
  onTestFinished(() => rmSync(stateDir, { recursive: true, force: true }));
  await gw.end();
  return started(script, stateDir);
}

it('a run of 40 steps that is killed 30 times completes, each step once', async () => {
  const names = Array.from({ length: 40 }, (_, n) => `step ${n + 1}`);
  const script = [{ steps: [...names.map(gate), { say: 'There.' }] }];
  let gw = await started(script);
  const runId = await gw.say('go');
  for (const name of names.slice(0, 30)) {
    await gw.stops.entered(name);
    gw = await killed(gw, script);
    gw.stops.open(name);
  }
  for (const name of names) gw.stops.open(name);
  expect(await gw.wait(runId)).toMatchObject({ state: 'ok', reply: 'There.' });
  const session = await gw.rows.session('agent:main:direct:you');
  const entries = await gw.rows.entries({ session_pk: session.pk }, 'role');
  expect(entries.map(({ role }) => role)).toEqual(['user', ...names.flatMap(() => ['assistant', 'toolResult']), 'assistant']);
});

it('a run that stores a step before each of its kills does not take a run beside it along', async () => {
  const names = Array.from({ length: 8 }, (_, n) => `deadly ${n + 1}`);
  const script = [{ when: 'deadly', steps: [...names.map(gate), { say: 'Survived.' }] }, { steps: [gate('long'), { say: 'Done.' }] }];
  let gw = await started(script);
  const deadly = await gw.say('deadly', { from: 'ann' });
  const other = await gw.say('long', { from: 'bob' });
  let alone = false;
  for (const name of names) {
    let kills = false;
    void gw.stops.entered(name).then(() => (kills = true));
    void gw.stops.entered('long').then(() => (alone = !kills));
    await gw.settled();
    if (!kills) break;
    gw = await killed(gw, script);
    gw.stops.open(name);
  }
  expect(alone).toBe(true);
  for (const name of ['long', ...names]) gw.stops.open(name);
  expect(await gw.wait(other)).toMatchObject({ state: 'ok', reply: 'Done.' });
  expect(await gw.wait(deadly)).toMatchObject({ state: 'ok', reply: 'Survived.' });
});
