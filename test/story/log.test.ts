// The log says what happened, and never what was said or by which secret.
import { expect, it } from 'vitest';
import { createLog } from '../../src/observe/log.ts';
import { testGateway } from '../harness/gateway.ts';

function lines(level?: string) {
  const written: string[] = [];
  const log = createLog({ level, terminal: false, write: (line) => void written.push(line) });
  return { log, written, read: () => written.map((line) => JSON.parse(line) as Record<string, unknown>) };
}

it('has a line for each run, delivery and change of a session, without their words', async () => {
  const { log, written, read } = lines();
  const script = [{ when: 'break', steps: [{ fail: 'as asked' }] }, { steps: [{ say: 'the secret answer' }] }];
  const stage = await testGateway({ script, log });
  const good = await stage.answer('the secret question');
  await stage.answer('break');
  await stage.finished();
  expect(read().map(({ level, msg, outcome, state, change }) => [level, msg, outcome ?? state ?? change])).toEqual([
    ['info', 'session changed', 'created'],
    ['info', 'run ended', 'ok'],
    ['info', 'delivery settled', 'sent'],
    ['warn', 'run ended', 'error'],
  ]);
  expect(read()[1]).toMatchObject({ session: 'agent:main:main', run: good.runId, time: expect.any(String) });
  expect(written.join('')).not.toMatch(/secret|question|answer/);
});

it('cuts out whatever carries a secret by name', () => {
  const { log, written } = lines();
  log.info({ token: 'aaa', headers: { authorization: 'bbb' }, request: { cookie: 'ccc', apiKey: 'ddd' } }, 'asked');
  expect(written.join('')).not.toMatch(/aaa|bbb|ccc|ddd/);
  expect(written.join('')).toContain('asked');
});

it('says only what is worth a look to a person at a terminal, in short lines', () => {
  const written: string[] = [];
  const log = createLog({ level: undefined, terminal: true, write: (line) => void written.push(line) });
  log.info('news');
  log.warn({ session: 'agent:main:main' }, 'careful');
  expect(written).toEqual([expect.stringMatching(/^! \d\d:\d\d:\d\d careful session=agent:main:main\n$/)]);
});

it('is as quiet as it is told to be', () => {
  const { log, written } = lines('silent');
  log.error('nobody hears this');
  expect(written).toEqual([]);
});
