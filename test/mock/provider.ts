// A model service on loopback that says what a test tells it to: OpenAI-shaped and Anthropic-shaped streams, faults included.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface Say {
  text?: string;
  /** Pieces the text is sent in; one when absent. */
  pieces?: string[];
  calls?: { name: string; args: object | string }[];
  usage?: { input: number; output: number };
  /** An HTTP error instead of an answer. */
  status?: number;
  headers?: Record<string, string>;
  body?: string;
  /** The stream is broken off after the text, as if the service had died. */
  cut?: true;
  /** Not a stream at all. */
  garbage?: true;
  /** Waits for this before it ends. */
  hold?: Promise<void>;
}

export interface Asked {
  path: string;
  headers: IncomingMessage['headers'];
  body: { model?: string; messages?: { role: string; content: unknown }[]; tools?: unknown[] } & Record<string, unknown>;
  /** Resolves when the client has gone away before the end. */
  closed: Promise<void>;
}

export interface MockProvider {
  url: string;
  asked: Asked[];
  close(): Promise<void>;
}

/** Answers each request with what `answer` says; the shape follows the path. */
export async function mockProvider(answer: (asked: Asked, index: number) => Say | Promise<Say>): Promise<MockProvider> {
  const asked: Asked[] = [];
  const server = createServer((request, response) => {
    const chunks: Buffer[] = [];
    request.on('data', (chunk: Buffer) => chunks.push(chunk));
    request.on('end', () => {
      const gone = Promise.withResolvers<void>();
      response.on('close', () => void (response.writableEnded || gone.resolve()));
      const one: Asked = {
        path: request.url ?? '',
        headers: request.headers,
        body: JSON.parse(Buffer.concat(chunks).toString('utf8') || '{}') as Asked['body'],
        closed: gone.promise,
      };
      asked.push(one);
      void reply(one, asked.length - 1, response);
    });
  });
  const reply = async (one: Asked, index: number, response: ServerResponse) => {
    const say = await answer(one, index);
    if (say.status !== undefined) {
      response.writeHead(say.status, { 'content-type': 'application/json', ...say.headers });
      response.end(say.body ?? JSON.stringify({ error: { message: `status ${say.status}`, type: 'error' } }));
      return;
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    if (say.garbage) {
      response.end('data: {"this is": not json\n\n');
      return;
    }
    if (one.path.endsWith('/messages')) await anthropic(say, response);
    else await openai(say, response);
  };
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  return {
    url: `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`,
    asked,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}

async function openai({ text = '', pieces, calls = [], usage = { input: 10, output: 5 }, cut, hold }: Say, response: ServerResponse) {
  const send = (choices: object[], more: object = {}) =>
    response.write(`data: ${JSON.stringify({ id: 'x', object: 'chat.completion.chunk', created: 1, model: 'm', choices, ...more })}\n\n`);
  for (const content of pieces ?? (text === '' ? [] : [text])) send([{ index: 0, delta: { role: 'assistant', content } }]);
  await hold;
  if (cut) return void response.destroy();
  const toolCalls = calls.map(({ name, args }, index) => ({
    index,
    id: `provider_${index}`,
    type: 'function',
    function: { name, arguments: typeof args === 'string' ? args : JSON.stringify(args) },
  }));
  if (toolCalls.length > 0) send([{ index: 0, delta: { tool_calls: toolCalls } }]);
  send([{ index: 0, delta: {}, finish_reason: calls.length > 0 ? 'tool_calls' : 'stop' }]);
  send([], { usage: { prompt_tokens: usage.input, completion_tokens: usage.output, total_tokens: usage.input + usage.output } });
  response.end('data: [DONE]\n\n');
}

async function anthropic({ text = '', pieces, calls = [], usage = { input: 10, output: 5 }, cut, hold }: Say, response: ServerResponse) {
  const send = (type: string, data: object) => response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`);
  send('message_start', {
    message: {
      id: 'msg',
      type: 'message',
      role: 'assistant',
      model: 'm',
      content: [],
      stop_reason: null,
      stop_sequence: null,
      usage: { input_tokens: usage.input, output_tokens: 0 },
    },
  });
  let index = 0;
  const parts = pieces ?? (text === '' ? [] : [text]);
  if (parts.length > 0) {
    send('content_block_start', { index, content_block: { type: 'text', text: '' } });
    for (const part of parts) send('content_block_delta', { index, delta: { type: 'text_delta', text: part } });
    await hold;
    if (cut) return void response.destroy();
    send('content_block_stop', { index: index++ });
  }
  for (const { name, args } of calls) {
    send('content_block_start', { index, content_block: { type: 'tool_use', id: `toolu_${index}`, name, input: {} } });
    const json = typeof args === 'string' ? args : JSON.stringify(args);
    send('content_block_delta', { index, delta: { type: 'input_json_delta', partial_json: json } });
    send('content_block_stop', { index: index++ });
  }
  send('message_delta', {
    delta: { stop_reason: calls.length > 0 ? 'tool_use' : 'end_turn', stop_sequence: null },
    usage: { output_tokens: usage.output },
  });
  send('message_stop', {});
  response.end();
}
