// The mock MCP server behind an address of this machine.
import { serve, type ServerType } from '@hono/node-server';
import { createMcpHandler } from '@modelcontextprotocol/server';
import type { AddressInfo } from 'node:net';
import { toolServer } from './mcp-tools.ts';

export interface HttpToolServer {
  url: string;
  port: number;
  /** Headers of each request. */
  asked: Headers[];
  close(): Promise<void>;
}

export async function httpToolServer(port = 0): Promise<HttpToolServer> {
  const handler = createMcpHandler(() => toolServer(undefined));
  const asked: Headers[] = [];
  const server = await new Promise<ServerType>((resolve) => {
    const made = serve(
      {
        port,
        hostname: '127.0.0.1',
        fetch: (request) => {
          asked.push(request.headers);
          return handler.fetch(request);
        },
      },
      () => resolve(made),
    );
  });
  const taken = (server.address() as AddressInfo).port;
  return {
    url: `http://127.0.0.1:${taken}/mcp`,
    port: taken,
    asked,
    async close() {
      await handler.close();
      await new Promise<void>((resolve) => {
        server.close(() => resolve());
        if ('closeAllConnections' in server) server.closeAllConnections();
      });
    },
  };
}
