// One connection to an outside MCP server: a child process or an address → list, call, ping, close. Nothing it sends is trusted.
import type { CallToolResult, PriorDiscovery, Tool } from '@modelcontextprotocol/client';
import type { Clock } from '../clock.ts';
import type { Config } from '../config/schema.ts';
import type { Readable } from 'node:stream';
import { reasonOf } from '../errors.ts';
import { largestMessage, Meter, type MessageEnd } from './meter.ts';

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
  /** Called when the server is gone: what it did wrong, if we ended it, and the end of a child process's standard error. */
  onClose(fault: string | undefined, lastOutput: string): void;
  onToolsChanged(): void;
  clock: Clock;
}

/** A server that does not know `server/discover` may never answer it. */
const probeMs = 3_000;
const lastOutputLength = 500;
/** After each piece of a child's standard error, the next is read this much later: the child waits, and we do not read for ever. */
const outputPauseMs = 50;
/** Disables the timeouts of the protocol library: callers set their own limits. */
const noLimitMs = 2 ** 31 - 1;

/** Whether the server itself answered with an error: then it works, and refused. */
export class Refused extends Error {}

/** Nothing listens at the address of the server, so the request was never sent. */
export class NotSent extends Error {}

/** If connecting fails, settles only after the child process has ended. */
export async function connect(settings: OutsideSettings, options: ConnectOptions): Promise<Connection> {
  const { signal, era, onClose, onToolsChanged, clock } = options;
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
  let fault: string | undefined;
  let gone = () => {};
  const meter = new Meter(() => clock.elapsed());
  /** Puts a chunk through the meter. A server that sends too much is ended at once. */
  const measured = (measure: (chunk: Uint8Array) => void) => (chunk: Uint8Array) => {
    try {
      measure(chunk);
    } catch (thrown) {
      if (fault === undefined) {
        fault = reasonOf(thrown);
        const tell = gone;
        void close().catch(() => {});
        tell();
      }
      throw thrown;
    }
  };
  // Important errors also fail a request or close the connection.
  Object.assign(client, { onclose: () => gone(), onerror: () => {} });
  const transport =
    settings.url === undefined
      ? await childTransport(settings, measured(meter.stream('line')), clock, (text) => {
          lastOutput = (lastOutput + text).slice(-lastOutputLength);
        })
      : new StreamableHTTPClientTransport(new URL(settings.url), {
          requestInit: { headers: settings.headers },
          fetch: (url, init) => limitedFetch(url, init, (end, news) => measured(meter.stream(end, news))),
        });
  const limits = (until: AbortSignal) => ({ signal: until, timeout: noLimitMs });
  const close = async () => {
    gone = () => {};
    await client.close();
    await transport.close();
  };
  const stop = () => void close().catch(() => {});
  signal.addEventListener('abort', stop, { once: true });
  try {
    await client.connect(transport, { ...limits(signal), ...(era ? { prior: era } : {}) });
    signal.throwIfAborted();
  } catch (thrown) {
    await close().catch(() => {});
    const why = fault === undefined ? thrown : new Error(`it ${fault}`);
    throw lastOutput === '' ? why : new Error(reasonOf(why), { cause: lastOutput.trim() });
  } finally {
    signal.removeEventListener('abort', stop);
  }
  gone = () => onClose(fault, lastOutput.trim());
  const discovered = client.getDiscoverResult();
  const answered = async <T>(work: Promise<T>): Promise<T> => {
    try {
      return await work;
    } catch (thrown) {
      if (fault !== undefined) throw new Error(`it ${fault}`, { cause: thrown });
      if (ProtocolError.isInstance(thrown)) throw new Refused(thrown.message);
      for (let one = thrown; one instanceof Error; one = one.cause) if (one instanceof NotSent) throw one;
      throw thrown;
    }
  };
  return {
    era: discovered ? { kind: 'modern', discover: discovered } : { kind: 'legacy' },
    list: async (until) => (await answered(client.listTools(undefined, { ...limits(until), cacheMode: 'refresh' }))).tools,
    call: (name, args, key, until) =>
      answered(client.callTool({ name, arguments: args, _meta: { 'interlane/idempotencyKey': key } }, limits(until))),
    ping: async (until) => {
      // The newest protocol has no ping; any answer is enough.
      await answered(discovered ? client.listTools(undefined, { ...limits(until), cacheMode: 'bypass' }) : client.ping(limits(until)));
    },
    close,
  };
}

/** The child gets a few harmless variables and what the config lists: never our own environment, which contains keys. */
async function childTransport(
  { command, args, env }: OutsideSettings,
  measure: (chunk: Uint8Array) => void,
  clock: Clock,
  onWords: (text: string) => void,
) {
  const { StdioClientTransport } = await import('@modelcontextprotocol/client/stdio');
  const transport = new StdioClientTransport({ command: command!, args, env, stderr: 'pipe', maxBufferSize: largestMessage });
  // The library parses each line as it comes. Relies on a private field of its transport; a test covers it.
  const { _readBuffer: buffer } = transport as unknown as { _readBuffer: { append(chunk: Buffer): void } };
  const append = buffer.append.bind(buffer);
  buffer.append = (chunk) => {
    const { pid } = transport;
    try {
      measure(chunk);
    } catch (thrown) {
      // It has lost the right to a moment for its goodbye.
      if (pid !== null) process.kill(pid, 'SIGKILL');
      throw thrown;
    }
    append(chunk);
  };
  const stderr = transport.stderr as Readable | null;
  stderr?.on('data', (chunk: Buffer) => {
    onWords(chunk.subarray(-4 * lastOutputLength).toString('utf8'));
    stderr.pause();
    clock.after(outputPauseMs, () => stderr.resume());
  });
  return transport;
}

/** Measures a response while it arrives: an answer as a whole, a stream message by message. */
async function limitedFetch(
  url: string | URL,
  init: RequestInit | undefined,
  measureOf: (end: MessageEnd, news: boolean) => (chunk: Uint8Array) => void,
): Promise<Response> {
  const isAnswer = init?.method === 'POST';
  const response = await fetch(url, init).catch((thrown: unknown) => {
    const { code } = ((thrown as Error).cause ?? {}) as NodeJS.ErrnoException;
    // A stream that is opened again may belong to a request that was sent before.
    throw isAnswer && code === 'ECONNREFUSED' ? new NotSent('connection refused', { cause: thrown }) : thrown;
  });
  if (!response.body) return response;
  const isStream = response.headers.get('content-type')?.startsWith('text/event-stream') ?? false;
  const measure = measureOf(isStream ? 'blank line' : 'stream', !isAnswer);
  let bytes = 0;
  const limit = new TransformStream<Uint8Array, Uint8Array>({
    transform(chunk, controller) {
      bytes += chunk.byteLength;
      if (isAnswer && bytes > largestMessage) throw new Error(`its answer is larger than ${largestMessage} bytes`);
      measure(chunk);
      controller.enqueue(chunk);
    },
  });
  const { status, statusText, headers } = response;
  const limited = new Response(response.body.pipeThrough(limit), { status, statusText, headers });
  Object.defineProperty(limited, 'url', { value: response.url });
  return limited;
}
