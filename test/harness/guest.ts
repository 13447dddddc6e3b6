// A real MCP client over HTTP, with words for what guests do.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { onTestFinished } from 'vitest';

export type McpMode = 'auto' | 'legacy';

/** A client as the session that the token is bound to. */
export async function mcpClient(url: string, token: string, mode: McpMode = 'auto'): Promise<Guest> {
  const client = new Client({ name: 'test', version: '1' }, mode === 'auto' ? { versionNegotiation: { mode } } : {});
  const headers = { authorization: `Bearer ${token}` };
  await client.connect(new StreamableHTTPClientTransport(new URL('/mcp', url), { requestInit: { headers } }));
  onTestFinished(() => client.close());
  return new Guest(client);
}

/** A client with words for what guests do. */
export class Guest {
  readonly client: Client;
  constructor(client: Client) {
    this.client = client;
  }

  /** The tool's own answer, read from the text; the structured one must be the same. */
  async call(tool: string, args: Record<string, unknown> = {}, options: { signal?: AbortSignal; key?: string } = {}): Promise<ToolAnswer> {
    const meta = options.key === undefined ? {} : { _meta: { 'interlane/idempotencyKey': options.key } };
    const result = await this.client.callTool({ name: tool, arguments: args, ...meta }, options.signal ? { signal: options.signal } : {});
    const [block] = result.content as { type: string; text: string }[];
    const value = JSON.parse(block!.text) as Record<string, unknown>;
    if (JSON.stringify(result.structuredContent) !== JSON.stringify(value)) throw new Error('text and structured content differ');
    return { ...value, ...(result.isError ? { isError: true } : {}) };
  }

  inbox(args: Record<string, unknown> = {}): Promise<ToolAnswer> {
    return this.call('inbox', args);
  }

  /** The next message; asked for until it is there. */
  async message(): Promise<Message> {
    const answer = await this.inbox();
    if (answer['status'] !== 'message') throw new Error(`expected a message: ${JSON.stringify(answer)}`);
    return answer as unknown as Message;
  }

  reply(turnId: string, text: string): Promise<ToolAnswer> {
    return this.call('reply', { turnId, text });
  }
}

export type ToolAnswer = Record<string, unknown>;
export interface Message {
  turnId: string;
  attempt?: number;
  messages: { from: string; text: string; note?: string }[];
  queued: number;
  stopped?: { turnId: string; why: string }[];
}
