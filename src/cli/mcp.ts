// `interlane mcp`: an MCP server on standard input and output that is the session of its token, for harnesses that start a program.
import { readFileSync } from 'node:fs';
import type { Readable, Writable } from 'node:stream';
import { cliFile } from '../config/paths.ts';
import { InterlaneError } from '../errors.ts';
import { visible, type Terminal } from './terminal.ts';
import { version } from './version.ts';

export async function mcp(terminal: Terminal, stateDir: string): Promise<void> {
  const token = terminal.env['INTERLANE_TOKEN'];
  if (!token)
    throw new InterlaneError(
      'UNAUTHORIZED',
      'token is missing; set INTERLANE_TOKEN to the one of a session ("interlane join <name>" makes one)',
    );
  const { serveBridge } = await import('../mcp/stdio.ts');
  await serveBridge({
    url: terminal.env['INTERLANE_URL'] || runningHere(stateDir),
    token,
    version,
    // A process has real streams; nothing else serves over them.
    stdin: terminal.stdin as unknown as Readable,
    stdout: terminal.stdout as unknown as Writable,
    failed: (error) => terminal.stderr.write(`! ${visible(error.message)}\n`),
  });
}

/** The address of this machine's own gateway. Its secret is the operator's, and not for guests. */
function runningHere(stateDir: string): string {
  try {
    return (JSON.parse(readFileSync(cliFile(stateDir), 'utf8')) as { url: string }).url;
  } catch {
    throw new InterlaneError('UNAVAILABLE', `gateway of ${stateDir} is not running; start it with "interlane up", or set INTERLANE_URL`);
  }
}
