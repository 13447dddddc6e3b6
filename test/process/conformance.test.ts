// The official conformance suite against our real HTTP stack: routes, Host and Origin, tokens, protocol. Each expected failure has its reason.
import { describe, expect, it } from 'vitest';
import { testGateway } from '../harness/gateway.ts';
import { withToken } from '../mcp/bearer.ts';
import { mountFixtures } from '../mcp/fixtures.ts';
import { start } from './child.ts';

const suite = 'node_modules/@modelcontextprotocol/conformance/dist/index.js';

describe.each(['2025-11-25', '2026-07-28'])('the conformance suite of %s', (revision) => {
  it('finds only the failures that are listed, and each of those', async () => {
    const stage = await testGateway({ listen: true, extendMcp: mountFixtures });
    const { token } = await stage.call('guests.join', { name: 'conformance' });
    const url = `${await withToken(stage.url, token)}/mcp`;
    const expected = `test/mcp/conformance-${revision}.yml`;
    const args = [suite, 'server', '--url', url, '--requirements', revision, '--expected-failures', expected];
    const { status, stdout, stderr } = await start(process.execPath, args, { env: { NO_COLOR: '1' } }).finished;
    expect(status === 0 ? '' : stdout + stderr).toBe('');
    expect(stage.warnings).toEqual([]);
  });
});
