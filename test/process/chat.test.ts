// `interlane chat` in a pseudo-terminal: real keys, raw mode, and a shell that gets its terminal back.
import { expect, it } from 'vitest';
import { scratch, start, startInterlane } from './child.ts';

it('a person chats, pastes, leaves, and the terminal is as it was', async () => {
  const state = scratch();
  const up = startInterlane(['up', '--port', '0', '--state-dir', state]);
  await up.printed('Up. Press Ctrl-C to stop.');
  const command = `stty sane; "${process.execPath}" bin/interlane.cjs chat --state-dir "${state}"; echo "status $?"; stty -a`;
  const person = start('script', ['-qec', command, '/dev/null'], { open: true, env: { TERM: 'xterm', SHELL: '/bin/sh' } });
  await person.printed('› ');
  person.child.stdin!.write('hello\r');
  await person.printed('You said: hello');
  person.child.stdin!.write('\u001b[200~two\nlines\u001b[201~\r');
  await person.printed('You said: two\r\nlines');
  person.child.stdin!.write('\u0004');
  await person.printed('Come back with: interlane chat main');
  await person.printed('status 0');
  await person.printed('echoe');
  person.child.stdin!.end();
  const { stdout } = await person.finished;
  expect(stdout.slice(stdout.indexOf('status 0'))).toMatch(/(^|\s)icanon(\s|;)[^]*(^|\s)echo(\s|;)/m);
  up.child.kill('SIGTERM');
  expect((await up.finished).status).toBe(0);
});
