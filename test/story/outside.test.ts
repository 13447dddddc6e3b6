// Outside MCP servers that mean harm: what they send is bounded, and the gateway goes on.
import { describe, expect, it } from 'vitest';
import { testGateway, type Refused, type TestGateway } from '../harness/gateway.ts';
import { hostileServer, oneTool } from '../mock/mcp-hostile.ts';

const open = (url: string) =>
  testGateway({ config: { mcp: { servers: { mock: { url, effect: 'pure' } } } }, caller: 'agent:main:main', channels: [] });
const echo = async (gw: TestGateway) => (await gw.tools([{ tool: 'mock__echo' }]))[0]!.text;
const changed = 'data: {"jsonrpc":"2.0","method":"notifications/tools/list_changed"}\n\n';

describe('an outside server', () => {
  it('that says 2,000 times that its tools changed is asked once more, and again a second later', async () => {
    const server = await hostileServer();
    const gw = await open(server.url);
    const lists = () => server.asked.filter((method) => method === 'tools/list').length;
    expect(await echo(gw)).toBe('hello');
    expect(lists()).toBe(1);
    await gw.until(() => server.streams.size === 1);
    const [stream] = server.streams;
    for (let n = 0; n < 2_000; n++) stream!.write(changed);
    await gw.until(() => lists() === 2);
    await gw.settled();
    for (let n = 0; n < 2_000; n++) stream!.write(changed);
    expect(await echo(gw)).toBe('hello');
    await gw.settled();
    expect(lists()).toBe(2);
    await gw.clock.advance(1_000);
    await gw.until(() => lists() === 3);
    await gw.settled();
    expect(lists()).toBe(3);
    expect(gw.warnings).toEqual([]);
  });

  it.each<[what: string, piece: string, pieces: number, why: RegExp]>([
    ['a line that never ends', 'x'.repeat(65_536), 64, /larger than 1048576 bytes/],
    ['an event that never ends', `data: ${'x'.repeat(65_536)}\n`, 64, /larger than 1048576 bytes/],
    ['an event of many values', `data: [${'1,'.repeat(30_000)}\n`, 10, /more than 100000 values/],
    ['an event that is deep', `data: ${'['.repeat(100)}\n\n`, 1, /deeper than 64 levels/],
    ['a flood of events', changed.repeat(500), 12, /more than 5000 messages/],
  ])('that sends %s is cut off, and the operator is told', async (_, piece, pieces, why) => {
    const server = await hostileServer();
    const gw = await open(server.url);
    expect(await echo(gw)).toBe('hello');
    await gw.until(() => server.streams.size === 1);
    const [stream] = server.streams;
    let sent = 0;
    const more = () => {
      while (sent < pieces && !stream!.destroyed) {
        sent++;
        if (!stream!.write(piece)) return void stream!.once('drain', more);
      }
    };
    more();
    await gw.until(() => gw.warnings.some((warning) => warning.startsWith('mcp.servers.mock') && why.test(warning)));
    await gw.until(() => stream!.destroyed);
    // It is started again when it is needed, like one that has died.
    expect(await echo(gw)).toBe('hello');
  });

  it.each<[what: string, method: string, text: string]>([
    ['an answer of a million values', 'tools/call', `{"jsonrpc":"2.0","id":1,"result":{"content":[],"x":[${'1,'.repeat(1_000_000)}1]}}`],
    ['an answer that is deep', 'tools/call', `{"jsonrpc":"2.0","id":1,"result":{"x":${'['.repeat(500_000)}${']'.repeat(500_000)}}}`],
    ['a list of a million values', 'tools/list', `{"jsonrpc":"2.0","id":1,"result":{"tools":[${'{},'.repeat(1_000_000)}{}]}}`],
  ])('that sends %s is cut off before that is parsed', async (_, method, text) => {
    const server = await hostileServer((asked) => (asked === method ? text : undefined));
    const gw = await open(server.url);
    const refused = JSON.parse(await echo(gw)) as Refused;
    expect(refused.code).toBe('UNAVAILABLE');
    expect(gw.warnings.join('\n')).toMatch(/mcp\.servers\.mock .*more than 100000 values|deeper than 64 levels/);
  });

  it('that has a huge schema offers the other tools', async () => {
    const schema = {
      type: 'object',
      properties: Object.fromEntries(Array.from({ length: 5_000 }, (_, n) => [`p${n}`, { type: 'string' }])),
    };
    const { tools } = oneTool as { tools: object[] };
    const server = await hostileServer((asked) =>
      asked === 'tools/list' ? { tools: [{ name: 'huge', inputSchema: schema }, ...tools] } : undefined,
    );
    const gw = await open(server.url);
    expect(await echo(gw)).toBe('hello');
    expect(gw.warnings).toEqual([expect.stringContaining('huge')]);
  });
});
