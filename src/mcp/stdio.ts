// `interlane mcp`: a client on standard input and output ↔ the gateway's /mcp. The gateway identifies the caller by the token.
import type { Readable, Writable } from 'node:stream';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
// oxlint-disable-next-line no-restricted-imports -- not our server
import { serveStdio, StdioServerTransport } from '@modelcontextprotocol/server/stdio';
import { InterlaneError, reasonOf } from '../errors.ts';
import { idempotencyMeta, mcpServer, type CallerTools } from './server.ts';

export interface Bridge {
  /** The URL of the gateway, without a path. */
  url: string;
  token: string;
  version: string;
  stdin: Readable;
  stdout: Writable;
  failed(error: Error): void;
}

/** Longer than any tool waits by itself; the client's own limit comes first. */
const longestCallMs = 3_700_000;

/** Serves until the client closes its side. */
export async function serveBridge(bridge: Bridge): Promise<void> {
  const client = await connect(bridge);
  const callerTools: CallerTools = {
    instructions: client.getInstructions() ?? '',
    tools: (await client.listTools()).tools.map(({ name, description = '', inputSchema, annotations }) => ({
      name,
      description,
      inputSchema,
      readOnly: annotations?.readOnlyHint === true,
      openWorld: annotations?.openWorldHint === true,
    })),
    async call({ tool, args, idempotencyKey }, signal) {
      const meta = idempotencyKey === undefined ? {} : { _meta: { [idempotencyMeta]: idempotencyKey } };
      try {
        const { content, isError } = await client.callTool({ name: tool, arguments: args, ...meta }, { signal, timeout: longestCallMs });
        return { text: content.map((block) => (block.type === 'text' ? block.text : '')).join(''), isError: isError === true };
      } catch (thrown) {
        if (signal.aborted) throw thrown;
        const error = `the gateway did not answer: ${reasonOf(thrown)}; it may be restarting, try again`;
        return { text: JSON.stringify({ status: 'error', code: 'UNAVAILABLE', error }), isError: true };
      }
    },
  };
  const transport = new StdioServerTransport(bridge.stdin, bridge.stdout);
  const closed = new Promise<void>((resolve) => bridge.stdin.once('close', resolve).once('end', resolve));
  const served = serveStdio(() => mcpServer(bridge.version, callerTools), { transport, onerror: (error) => bridge.failed(error) });
  await closed;
  await served.close();
  await client.close();
}

async function connect({ url, token, version }: Bridge): Promise<Client> {
  const client = new Client({ name: 'interlane-stdio', version }, { versionNegotiation: { mode: 'auto' } });
  const transport = new StreamableHTTPClientTransport(new URL('/mcp', url), {
    requestInit: { headers: { authorization: `Bearer ${token}` } },
  });
  try {
    await client.connect(transport);
  } catch (thrown) {
    throw new InterlaneError(
      'UNAVAILABLE',
      `gateway at ${url} refused the connection: ${reasonOf(thrown)}; check INTERLANE_URL and INTERLANE_GUEST_TOKEN`,
    );
  }
  return client;
}
