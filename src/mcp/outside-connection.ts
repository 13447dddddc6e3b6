// One connection to an outside MCP server: a child process or an address → list, call, ping, close. Nothing it sends is trusted.
import type { CallToolResult, PriorDiscovery, Tool } from '@modelcontextprotocol/client';
import type { Config } from '../config/schema.ts';
import { reasonOf } from '../errors.ts';

export type OutsideSettings = Config['mcp']['servers'][string];

export interface Connection {
  list(signal: AbortSignal): Promise<Tool[]>;
  /** `key` is the same for the same call, for a server that dedupes by it. */
  call(name: string, args: Record<string, unknown>, key: string, signal: AbortSignal): Promise<CallToolResult>;
  ping(signal: AbortSignal): Promise<void>;
  /** Ends the child process, by force if necessary. */
  close(): Promise<void>;
  /** The protocol of the server, so that the next connection need not detect it. */
  era: PriorDiscovery;
}

export interface ConnectOptions {
  /** Covers the whole connecting. On abort a half-open connection is closed. */
  signal: AbortSignal;
  era: PriorDiscovery | undefined;
  /** Called when the server is gone, with the end of a child process's standard error. */
  onClose(lastOutput: string): void;
  onToolsChanged(): void;
}

/** The most bytes of one message: more than any result we accept, and little enough for memory. */
const largestMessage = 8 * 1024 * 1024;
/** A server that does not know `server/discover` may never answer it. */
const probeMs = 3_000;
const lastOutputLength = 500;
/** Disables the timeouts of the protocol library: callers set their own limits. */
const noLimitMs = 2 ** 31 - 1;

/** Whether the server itself answered with an error: then it works, and refused. */
export class Refused extends Error {}

/** If connecting fails, settles only after the child process has ended. */
export async function connect(settings: OutsideSettings, { signal, era, onClose, onToolsChanged }: ConnectOptions): Promise<Connection> {
  const { Client, ProtocolError, StreamableHTTPClientTransport } = await import('@modelcontextprotocol/client');
  const client = new Client(
    { name: 'interlane', version: '1' },
    {
      versionNegotiation: { mode: 'auto', probe: { timeoutMs: probeMs } },
      // Their schemas may contain patterns that take for ever. A result is text for a model, so it is not validated.
      jsonSchemaValidator: { getValidator: () => (input) => ({ valid: true, data: input as never, errorMessage: undefined }) },
      listChanged: { tools: { autoRefresh: false, debounceMs: 0, onChanged: onToolsChanged } },
    },
  );
  let lastOutput = '';
  let gone = () => {};
  // Important errors also fail a request or close the connection.
  Object.assign(client, { onclose: () => gone(), onerror: () => {} });
  const transport =
    settings.url === undefined
      ? await childTransport(settings, (text) => (lastOutput = (lastOutput + text).slice(-lastOutputLength)))
      : new StreamableHTTPClientTransport(new URL(settings.url), { requestInit: { headers: settings.headers }, fetch: limitedFetch });
  const options = (until: AbortSignal) => ({ signal: until, timeout: noLimitMs });
  const close = async () => {
    gone = () => {};
    await client.close();
    await transport.close();
  };
  const stop = () => void close().catch(() => {});
  signal.addEventListener('abort', stop, { once: true });
  try {
    await client.connect(transport, { ...options(signal), ...(era ? { prior: era } : {}) });
    signal.throwIfAborted();
  } catch (thrown) {
    await close().catch(() => {});
    throw lastOutput === '' ? thrown : new Error(reasonOf(thrown), { cause: lastOutput.trim() });
  } finally {
    signal.removeEventListener('abort', stop);
  }
  gone = () => onClose(lastOutput.trim());
  const discovered = client.getDiscoverResult();
  const answered = async <T>(work: Promise<T>): Promise<T> => {
    try {
      return await work;
    } catch (thrown) {
      throw ProtocolError.isInstance(thrown) ? new Refused(thrown.message) : thrown;
    }
  };
  return {
    era: discovered ? { kind: 'modern', discover: discovered } : { kind: 'legacy' },
    list: async (until) => (await answered(client.listTools(undefined, { ...options(until), cacheMode: 'refresh' }))).tools,
    call: (name, args, key, until) =>
      answered(client.callTool({ name, arguments: args, _meta: { 'interlane/idempotencyKey': key } }, options(until))),
    ping: async (until) => {
      // The newest protocol has no ping; any answer is enough.
      await answered(discovered ? client.listTools(undefined, { ...options(until), cacheMode: 'bypass' }) : client.ping(options(until)));
    },
    close,
  };
}

/** The child gets a few harmless variables and what the config lists: never our own environment, which contains keys. */
async function childTransport({ command, args, env }: OutsideSettings, onWords: (text: string) => void) {
  const { StdioClientTransport } = await import('@modelcontextprotocol/client/stdio');
  const transport = new StdioClientTransport({ command: command!, args, env, stderr: 'pipe', maxBufferSize: largestMessage });
  transport.stderr?.on('data', (chunk: Buffer) => onWords(chunk.toString('utf8')));
  return transport;
}

/** Cuts off a response that is too large while it arrives. */
async function limitedFetch(url: string | URL, init?: RequestInit): Promise<Response> {
  const response = await fetch(url, init);
  // The stream of a GET lasts as long as the connection; its messages are small notifications.
  if (!response.body || init?.method !== 'POST') return response;
  let bytes = 0;
  const limit = new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      bytes += chunk.byteLength;
      if (bytes > largestMessage) controller.error(new Error(`its answer is larger than ${largestMessage} bytes`));
      else controller.enqueue(chunk);
    },
  });
  const { status, statusText, headers } = response;
  const limited = new Response(response.body.pipeThrough(limit), { status, statusText, headers });
  Object.defineProperty(limited, 'url', { value: response.url });
  return limited;
}
