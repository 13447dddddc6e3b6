// What a shell sees of the real program: exit statuses and the output of --json, compared with test/pins/corpus/processes.txt.
import { writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, it } from 'vitest';
import { Recorder } from '../pins/recorder.ts';
import { interlane, scratch, startInterlane } from './child.ts';

it('the corpus of processes', async () => {
  const corpus = new Recorder();
  const directory = scratch();
  corpus.path(directory, '<directory>');
  const state = join(directory, 'state');
  const [file, config] = [join(directory, 'file'), join(directory, 'bad.json5')];
  writeFileSync(file, '');
  writeFileSync(config, '{ agents: 1 }');
  const record = (args: string[], { status, stdout }: { status: number | null; stdout: string }) => {
    const json = args.includes('--json') && stdout !== '' ? [JSON.parse(stdout) as object] : [];
    corpus.line(['interlane', ...args].join(' '), `exit ${status}`, ...json);
  };

  const up = startInterlane(['up', '--port', '0', '--state-dir', state]);
  await up.printed('Up. Press Ctrl-C to stop.');
  const status = ['status', '--json', '--state-dir', state];
  record(status, await interlane(status)); // before anything runs
  corpus.give('k1');
  const asked: string[][] = [
    ['--version'],
    ['nonsense'],
    ['status', '--state-dir', join(directory, 'none')],
    ['send', 'main', 'hello', '--json', '--idempotency-key', 'k1', '--state-dir', state],
    ['history', 'nowhere', '--state-dir', state],
    ['token', 'rotate', 'nobody', '--state-dir', state],
    ['up', '--port', '0', '--state-dir', state],
    ['up', '--port', '0', '--state-dir', file],
    ['up', '--port', '0', '--config', config, '--state-dir', join(directory, 'other')],
    ['config', 'check', '--config', config],
    ['mcp', '--state-dir', state],
  ];
  const finished = await Promise.all(asked.map((args) => interlane(args)));
  for (const [index, args] of asked.entries()) record(args, finished[index]!);
  up.child.kill('SIGTERM');
  record(['up', '--port', '0', '--state-dir', state], await up.finished);
  expect(corpus.lines).toEqual(corpus.recorded('processes.txt'));
});
