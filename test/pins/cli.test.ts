// Exit statuses of the commands, and what they print with --json, compared with corpus/cli.txt.
import { expect, it } from 'vitest';
import { started } from '../harness/terminal.ts';
import { opened, parses, settledEvent } from './stage.ts';

it('the corpus of the command line', async () => {
  const all = await opened();
  const { corpus, gw, say, call } = all;
  const from = ['--state-dir', gw.stateDir];
  const away = ['--state-dir', `${gw.stateDir}/empty`];
  corpus.path(`${gw.stateDir}/empty`, '<empty>');
  /** The output of `--json`, and the exit status; other output is prose. */
  const run = async (line: string, more: { args?: string[]; where?: string[]; input?: string } = {}) => {
    const { args = [], where = from, input } = more;
    const argv = [...line.split(' '), ...args, ...where];
    const { status, stdout } = await started(argv, { now: () => gw.now(), ...(input === undefined ? {} : { input }) }).finished;
    corpus.line(['interlane', ...argv].join(' '), `exit ${status}`, ...(argv.includes('--json') ? printed(stdout) : []));
  };
  await call('sessions.create', { key: 'agent:main:project', label: 'Project' });
  await say('agent:main:project', 'hello', 'c1');
  await say('agent:main:project', 'status', 'c2');
  await say('agent:main:project', 'fail', 'c3');
  corpus.give('c4', 'c5');

  corpus.heading('the gateway');
  await run('status --json');
  await run('status');
  await run('status', { where: away });
  await run('status --json', { where: ['--url', 'http://127.0.0.1:1', '--token', 'x'] });
  await run('status', { where: ['--url', gw.url, '--token', 'wrong-token-of-16'] });
  await run('agents --json');
  await run('agents');
  await run('--version', { where: [] });
  await run('--help', { where: [] });
  await run('help send', { where: [] });
  await run('nonsense', { where: [] });
  await run('status --nonsense');
  corpus.heading('sessions');
  await run('sessions --json');
  await run('sessions --json --limit 1 --kind other --search proj --agent main --active 90m');
  await run('sessions --json --archived');
  await run('sessions');
  await run('sessions --keys');
  await run('sessions --tree');
  await run('sessions --limit x');
  await run('sessions --kind odd');
  await run('history agent:main:project --json --tools');
  await run('history agent:main:project --json --limit 1');
  await run('history agent:main:project');
  await run('history nowhere --json');
  await run('history');
  await run('send main --json', { args: ['hello you'] });
  await run('send main hello --idempotency-key c4');
  await run('send main --json --idempotency-key c4 hello');
  await run('send main --json --idempotency-key c4 other');
  await run('send main --no-wait --json --idempotency-key c5 hi');
  await run('wait c5 --json');
  await run('wait c5');
  await run('wait c3 --json');
  await run('wait c3');
  await run('wait nothing --json');
  await run('send main --json -', { input: 'from a pipe' });
  await run('send nowhere hello');
  await run('send main --json fail');
  await run('send main');
  await run('runs --json --limit 2');
  await run('runs agent:main:project --state error --json');
  await run('runs');
  await run('runs nowhere');
  await run('runs --state odd');
  await run('chat nowhere');
  await run('chat main', { input: 'one line\n' });
  await run('chat main --json', { input: 'one line\n' });
  corpus.heading('who may connect');
  await run('token create reader --json');
  await run('token create reader');
  await run('token create writer --scope write --level INTERNAL --json');
  await run('token create bound --session main --json');
  await run('token create brief --expires 30d --json');
  await run('token create odd --expires soon');
  await run('token create odd --scope odd');
  await run('token list --json');
  await run('token list');
  await run('token rotate reader --json');
  await run('token rotate nobody');
  await run('token revoke reader --json');
  await run('token revoke nobody --json');
  await run('token sign-in --json');
  await run('token');
  await run('join fable --json --see agent');
  await run('join fable');
  await run('join fable --rotate --json');
  await run('join Not!');
  await run('mcp');
  corpus.heading('the rules');
  const question = (value: object) => ({ args: [JSON.stringify(value)] });
  await run('explain route --json', question({ channel: 'loopback', peer: { kind: 'direct', id: 'rita' } }));
  await run('explain key --json', question({ key: 'agent:main:loopback:group:7' }));
  await run('explain key', question({ key: 'agent:main:cron:' }));
  await run('explain send --json', question({ session: { key: 'main', taint: 'CONFIDENTIAL' }, channel: 'loopback' }));
  await run('explain access --json', question({ caller: { key: 'main' }, target: { key: 'agent:research:main' } }));
  await run('explain tools --json', question({ session: { key: 'main' } }));
  await run('explain route not-json');
  await run('explain nothing');
  await run('config docs', { where: [] });
  await run('config check');
  await run('config check --config /no/such/file');
  corpus.heading('the data');
  await run(`backup ${gw.stateDir}/copy.db`);
  await run(`backup ${gw.stateDir}/copy.db`);
  await run(`export ${gw.stateDir}/out.jsonl`);
  await run('export --session nowhere');
  await run(`export ${gw.stateDir}/none.jsonl`, { where: away });
  await run(`import ${gw.stateDir}/out.jsonl --json`);
  await run(`import ${gw.stateDir}/out.jsonl --json`, { where: ['--state-dir', `${gw.stateDir}/other`] });
  await run(`import ${gw.stateDir}/out.jsonl --json`, { where: ['--state-dir', `${gw.stateDir}/other`] });
  await run(`import ${gw.stateDir}/out.jsonl --json --as-new --session agent:main:project`, {
    where: ['--state-dir', `${gw.stateDir}/other`],
  });
  await run(`import /no/such/file --json`);
  await run(`restore ${gw.stateDir}/copy.db`);
  await run(`restore ${gw.stateDir}/copy.db`, { where: ['--state-dir', `${gw.stateDir}/third`] });
  await run('restore /no/such/file');
  await run('doctor --json --port 0');
  await run('doctor --port 0', { where: ['--state-dir', '/dev/null/x'] });
  await run('completion bash', { where: [] });
  await run('completion nonsense', { where: [] });
  corpus.heading('tail');
  const tail = started(['tail', '--json', ...from]);
  await tail.printed('connected');
  await call('chat.send', { sessionKey: 'main', message: 'to be heard', idempotencyKey: 'c6' });
  await tail.printed('"phase":"end"');
  tail.interrupt();
  const { status, stdout } = await tail.finished;
  corpus.give('c6');
  corpus.line('interlane tail --json', ...printed(stdout), `exit ${status}`);
  await run('tail nowhere');
  expect(corpus.lines).toEqual(corpus.recorded('cli.txt'));
});

/** One value, or one on each line. How events of different kinds mix depends on what is read when, so each kind is together. */
function printed(stdout: string): object[] {
  if (stdout === '') return [];
  if (parses(stdout)) return [JSON.parse(stdout) as object];
  const events = stdout
    .trimEnd()
    .split('\n')
    .map((line) => settledEvent(JSON.parse(line) as Record<string, unknown>));
  return [...Map.groupBy(events, ({ event }) => event).values()].flat();
}
