// `interlane mcp`: an MCP server on standard input and output that is the session of its token, for harnesses that start a program.
import type { Readable, Writable } from 'node:stream';
import { InterlaneError } from '../errors.ts';
import { gatewayUrl, type ReachFlags } from './reach.ts';
import { visible, type Terminal } from './terminal.ts';
import { version } from './version.ts';

export async function mcp(terminal: Terminal, flags: ReachFlags): Promise<void> {
  const token = terminal.env['INTERLANE_GUEST_TOKEN'] || terminal.env['INTERLANE_TOKEN'];
  if (!token)
    throw new InterlaneError(
      'UNAUTHORIZED',
      'token is missing; set INTERLANE_GUEST_TOKEN to the token of a session ("interlane join <name>" creates one)',
    );
  const { serveBridge } = await import('../mcp/stdio.ts');
  await serveBridge({
    url: gatewayUrl(terminal, flags),
    token,
    version,
    // A process has real streams; nothing else serves over them.
    stdin: terminal.stdin as unknown as Readable,
    stdout: terminal.stdout as unknown as Writable,
    failed: (error) => terminal.stderr.write(`! ${visible(error.message)}\n`),
  });
}
