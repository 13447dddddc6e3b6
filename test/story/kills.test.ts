// Runs that are killed again and again: progress between the kills counts, a run that kills takes no other run with it, and what an
// operator injects in the meantime is never between a call and its result.
import { rmSync } from 'node:fs';
import { expect, it, onTestFinished } from 'vitest';
import { testGateway, type ScriptText, type TestGateway } from '../harness/gateway.ts';
import { copyOfState } from '../harness/rows.ts';

const gate = (name: string) => ({ calls: [{ tool: 'gate', args: { name } }] });
const started = (script: ScriptText, stateDir?: string, listen = false) =>
  testGateway({
    listen,
    config: { session: { dmScope: 'per-peer' } },
    script,
    stops: true,
    ...(stateDir === undefined ? {} : { stateDir }),
  });

/** A gateway on the state that a kill at this moment leaves. */
async function killed(gw: TestGateway, script: ScriptText, listen = false): Promise<TestGateway> {
  const stateDir = copyOfState(gw.stateDir);
  onTestFinished(() => rmSync(stateDir, { recursive: true, force: true }));
  await gw.end();
  return started(script, stateDir, listen);
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

it('a message that is injected while calls are open follows their results, once, also after a kill', async () => {
  const names = ['one', 'two'];
  const script = [{ steps: [{ calls: names.map((name) => ({ tool: 'gate', args: { name } })) }, { say: 'Done.' }] }];
  let gw = await started(script, undefined, true);
  await gw.restart(); // only a first start makes the admin's token, and the caller must be the same throughout
  const sessionKey = 'agent:main:direct:you';
  const inject = (message: string) => gw.call('chat.inject', { sessionKey, message, idempotencyKey: message });
  const runId = await gw.say('go');
  for (const name of names) await gw.stops.entered(name);
  const note = await inject('A note.');
  expect(note).toEqual({ ok: true, messageId: expect.any(String) });
  gw.stops.open('one');
  await gw.until(async () => (await gw.rows.entries({ role: 'toolResult' })).length === 1);
  gw = await killed(gw, script, true);
  await gw.stops.entered('two');
  expect(await inject('A note.')).toEqual(note);
  await expect(gw.call('chat.inject', { sessionKey, message: 'other', idempotencyKey: 'A note.' })).rejects.toMatchObject({
    code: 'IDEMPOTENCY_CONFLICT',
  });
  await inject('Another.');
  gw.stops.open('two');
  expect(await gw.wait(runId)).toMatchObject({ state: 'ok', reply: 'Done.' });
  const transcript = await gw.rows.transcript(sessionKey);
  expect(transcript.map((line) => line.replace(/(toolResult): .*/, '$1'))).toEqual([
    'user: go',
    'assistant: ',
    'toolResult',
    'toolResult',
    'assistant: A note.',
    'assistant: Another.',
    'assistant: Done.',
  ]);
  expect(await inject('A note.')).toEqual({ ...note, messageSeq: 5 });
  expect(await gw.rows.injections()).toEqual([]);
  // Without an open call it is there at once.
  expect(await inject('Later.')).toMatchObject({ messageSeq: 8 });
});

it('a message that is injected into a turn that is then stopped follows the results of its calls', async () => {
  const gw = await started([{ steps: [gate('one'), { say: 'Done.' }] }], undefined, true);
  const sessionKey = 'agent:main:direct:you';
  const runId = await gw.say('go');
  await gw.stops.entered('one');
  await gw.call('chat.inject', { sessionKey, message: 'A note.' });
  await gw.call('chat.abort', { sessionKey });
  expect(await gw.wait(runId)).toMatchObject({ state: 'aborted' });
  expect((await gw.rows.transcript(sessionKey)).map((line) => line.split(':')[0])).toEqual([
    'user',
    'assistant',
    'toolResult',
    'assistant',
  ]);
  expect((await gw.rows.transcript(sessionKey)).at(-1)).toBe('assistant: A note.');
});
