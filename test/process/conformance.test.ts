// The official conformance suite against our real HTTP stack: routes, Host and Origin, tokens, protocol. Each expected failure has its reason.
import { spawn } from 'node:child_process';
import { tmpdir } from 'node:os';
import { describe, expect, it } from 'vitest';
import { withToken } from '../mcp/bearer.ts';
import { door } from '../mcp/door.ts';
import { mountFixtures } from '../mcp/fixtures.ts';

describe.each(['2025-11-25', '2026-07-28'])('the conformance suite of %s', (revision) => {
  it('finds only the failures that are listed, and each of those', async () => {
    const stage = await door({}, [], { extendMcp: mountFixtures });
    const { token } = await stage.operator('guests.join', { name: 'conformance' });
    const url = await withToken(stage.url, token);
    const run = spawn(
      process.execPath,
      [
        'node_modules/@modelcontextprotocol/conformance/dist/index.js',
        'server',
        ...['--url', `${url}/mcp`, '--requirements', revision],
        ...['--expected-failures', `test/mcp/conformance-${revision}.yml`],
      ],
      { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, NO_COLOR: '1', TMPDIR: tmpdir() } },
    );
    let printed = '';
    for (const stream of [run.stdout, run.stderr]) stream.on('data', (data: Buffer) => (printed += data.toString()));
    const status = await new Promise((resolve) => run.on('close', resolve));
    expect(status === 0 ? '' : printed).toBe('');
  });
});
