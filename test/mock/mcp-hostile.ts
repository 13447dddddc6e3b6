// A hostile MCP server behind an address: it speaks just enough of the protocol to be connected, and then does as the test says.
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { onTestFinished } from 'vitest';

type Result = Record<string, unknown>;

export interface Hostile {
  url: string;
  /** The methods that were asked for, in order. */
  asked: string[];
  /** Streams of news that are open. */
  streams: Set<ServerResponse>;
}

const initialized: Result = {
  protocolVersion: '2025-06-18',
  capabilities: { tools: { listChanged: true } },
  serverInfo: { name: 'hostile', version: '1' },
};
export const oneTool: Result = { tools: [{ name: 'echo', inputSchema: { type: 'object' } }] };

/** `answer` says the result of a method, or the whole text of the response. */
export async function hostileServer(answer: (method: string) => Result | string | undefined = () => undefined): Promise<Hostile> {
  const asked: string[] = [];
  const streams = new Set<ServerResponse>();
  const server = createServer((request, response) => {
    response.on('error', () => {});
    if (request.method === 'GET') {
      response.writeHead(200, { 'content-type': 'text/event-stream' }).flushHeaders();
      streams.add(response);
      response.on('close', () => streams.delete(response));
      return;
    }
    let text = '';
    request.setEncoding('utf8').on('data', (piece: string) => (text += piece));
    request.on('end', () => {
      const { id, method = '' } = (text === '' ? {} : JSON.parse(text)) as { id?: number; method?: string };
      asked.push(method);
      if (id === undefined) return response.writeHead(202).end();
      const known: Record<string, Result> = {
        initialize: initialized,
        'tools/list': oneTool,
        'tools/call': { content: [{ type: 'text', text: 'hello' }] },
        ping: {},
      };
      const result = answer(method) ?? known[method];
      response.writeHead(200, { 'content-type': 'application/json', 'mcp-session-id': 's' });
      if (typeof result === 'string') return response.end(result);
      const body = result === undefined ? { error: { code: -32601, message: 'unknown method' } } : { result };
      return response.end(JSON.stringify({ jsonrpc: '2.0', id, ...body }));
    });
  });
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  onTestFinished(() => {
    server.close();
    server.closeAllConnections();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/mcp`, asked, streams };
}
