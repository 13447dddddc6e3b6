// A model service on loopback that says what a test tells it to, in the shapes of four providers, faults included.
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';

export interface Say {
  /** What it says, in pieces; a promise among them is waited for. */
  text?: string | (string | Promise<void>)[];
  calls?: { name: string; args: object | string; signature?: string }[];
  /** Said before all else, and to be given back with the calls. */
  thinking?: { text: string; signature: string };
  /** `null`: it does not count (`openai-compatible` only). */
  usage?: { input: number; output: number } | null;
  /** An HTTP error instead of an answer. */
  status?: number;
  headers?: Record<string, string>;
  body?: string;
  /** After the text: the connection breaks, or the stream just ends, or an error comes in it. */
  ends?: 'break' | 'stop' | 'error';
  /** The reason it gives for ending, in the provider's words. */
  finish?: string;
  /** Not a stream at all. */
  garbage?: true;
}

export interface Asked {
  path: string;
  headers: IncomingMessage['headers'];
  body: { model?: string; messages?: { role: string; content: unknown }[]; tools?: unknown[] } & Record<string, unknown>;
  /** The whole request as text, for looking whether something is in it. */
  text: string;
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
      const text = Buffer.concat(chunks).toString('utf8') || '{}';
      const body = JSON.parse(text) as Asked['body'];
      const one: Asked = { path: request.url ?? '', headers: request.headers, body, text, closed: gone.promise };
      asked.push(one);
      void reply(one, asked.length - 1, response);
    });
  });
  const reply = async (one: Asked, index: number, response: ServerResponse) => {
    const say = await answer(one, index);
    if (say.status !== undefined) {
      response.writeHead(say.status, { 'content-type': 'application/json', ...say.headers });
      response.end(
        say.body ?? JSON.stringify({ type: 'error', error: { message: `status ${say.status}`, type: 'error', code: say.status } }),
      );
      return;
    }
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    if (say.garbage) return void response.end('data: {"this is": not json\n\n');
    await shapeOf(one.path)(say, response);
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

type Shape = (say: Say, response: ServerResponse) => Promise<void>;

function shapeOf(path: string): Shape {
  if (path.endsWith('/messages')) return anthropic;
  if (path.endsWith('/responses')) return responses;
  return path.includes(':streamGenerateContent') ? google : chat;
}

/** Says the pieces. True: the answer goes on; else it has been broken off as told. */
async function spoken({ text = [], ends }: Say, response: ServerResponse, piece: (text: string) => void, fault: object): Promise<boolean> {
  for (const one of typeof text === 'string' ? [text].filter(Boolean) : text) {
    if (typeof one === 'string') piece(one);
    else await one;
  }
  if (ends === undefined) return true;
  if (ends === 'break') response.destroy();
  else response.end(ends === 'stop' ? '' : `event: error\ndata: ${JSON.stringify(fault)}\n\n`);
  return false;
}

const written = (args: object | string) => (typeof args === 'string' ? args : JSON.stringify(args));
const some = { input: 10, output: 5 };

/** `openai-compatible`: /chat/completions. */
const chat: Shape = async (say, response) => {
  const { calls = [], usage = some, thinking } = say;
  const send = (choices: object[], more: object = {}) =>
    response.write(`data: ${JSON.stringify({ id: 'x', object: 'chat.completion.chunk', created: 1, model: 'm', choices, ...more })}\n\n`);
  if (thinking) send([{ index: 0, delta: { role: 'assistant', reasoning_content: thinking.text } }]);
  const piece = (content: string) => send([{ index: 0, delta: { role: 'assistant', content } }]);
  if (!(await spoken(say, response, piece, { error: { message: 'overloaded', type: 'server_error', code: 503 } }))) return;
  const toolCalls = calls.map(({ name, args }, index) => ({
    index,
    id: `provider_${index}`,
    type: 'function',
    function: { name, arguments: written(args) },
  }));
  if (toolCalls.length > 0) send([{ index: 0, delta: { tool_calls: toolCalls } }]);
  send([{ index: 0, delta: {}, finish_reason: say.finish ?? (calls.length > 0 ? 'tool_calls' : 'stop') }]);
  if (usage) send([], { usage: { prompt_tokens: usage.input, completion_tokens: usage.output, total_tokens: usage.input + usage.output } });
  response.end('data: [DONE]\n\n');
};

const anthropic: Shape = async (say, response) => {
  const { calls = [], thinking } = say;
  const usage = say.usage ?? some;
  const send = (type: string, data: object) => response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`);
  const message = { id: 'msg', type: 'message', role: 'assistant', model: 'm', content: [], stop_reason: null, stop_sequence: null };
  send('message_start', { message: { ...message, usage: { input_tokens: usage.input, output_tokens: 0 } } });
  let index = 0;
  if (thinking) {
    send('content_block_start', { index, content_block: { type: 'thinking', thinking: '' } });
    send('content_block_delta', { index, delta: { type: 'thinking_delta', thinking: thinking.text } });
    send('content_block_delta', { index, delta: { type: 'signature_delta', signature: thinking.signature } });
    send('content_block_stop', { index: index++ });
  }
  if (say.text !== undefined && say.text !== '') {
    send('content_block_start', { index, content_block: { type: 'text', text: '' } });
    const piece = (text: string) => send('content_block_delta', { index, delta: { type: 'text_delta', text } });
    if (!(await spoken(say, response, piece, { type: 'error', error: { type: 'overloaded_error', message: 'overloaded' } }))) return;
    send('content_block_stop', { index: index++ });
  }
  for (const { name, args } of calls) {
    send('content_block_start', { index, content_block: { type: 'tool_use', id: `toolu_${index}`, name, input: {} } });
    send('content_block_delta', { index, delta: { type: 'input_json_delta', partial_json: written(args) } });
    send('content_block_stop', { index: index++ });
  }
  const stop_reason = say.finish ?? (calls.length > 0 ? 'tool_use' : 'end_turn');
  send('message_delta', { delta: { stop_reason, stop_sequence: null }, usage: { output_tokens: usage.output } });
  send('message_stop', {});
  response.end();
};

/** `openai`: /responses. */
const responses: Shape = async (say, response) => {
  const { calls = [], thinking } = say;
  const usage = say.usage ?? some;
  const send = (type: string, data: object) => response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`);
  const about = { id: 'resp', created_at: 1, model: 'm' };
  send('response.created', { response: about });
  let output_index = 0;
  if (thinking) {
    const item = { id: 'rs_1', type: 'reasoning', encrypted_content: thinking.signature, summary: [] };
    send('response.output_item.added', { output_index, item });
    send('response.output_item.done', { output_index: output_index++, item });
  }
  if (say.text !== undefined && say.text !== '') {
    const item = { id: 'msg_1', type: 'message', role: 'assistant', content: [] };
    send('response.output_item.added', { output_index, item });
    const piece = (delta: string) => send('response.output_text.delta', { item_id: 'msg_1', output_index, delta });
    const fault = { type: 'error', sequence_number: 9, error: { type: 'server_error', code: 'server_error', message: 'overloaded' } };
    if (!(await spoken(say, response, piece, fault))) return;
    send('response.output_item.done', { output_index: output_index++, item });
  }
  for (const [index, { name, args }] of calls.entries()) {
    const item = { id: `fc_${index}`, type: 'function_call', call_id: `call_x${index}`, name, arguments: '' };
    send('response.output_item.added', { output_index, item });
    send('response.function_call_arguments.delta', { item_id: item.id, output_index, delta: written(args) });
    send('response.output_item.done', { output_index: output_index++, item: { ...item, arguments: written(args), status: 'completed' } });
  }
  const counted = { input_tokens: usage.input, output_tokens: usage.output, total_tokens: usage.input + usage.output };
  send('response.completed', { response: { ...about, usage: counted } });
  response.end();
};

const google: Shape = async (say, response) => {
  const { calls = [] } = say;
  const usage = say.usage ?? some;
  const send = (parts: object[], more: object = {}, top: object = {}) =>
    response.write(`data: ${JSON.stringify({ candidates: [{ content: { role: 'model', parts }, index: 0, ...more }], ...top })}\n\n`);
  const fault = { error: { code: 503, message: 'overloaded', status: 'UNAVAILABLE' } };
  if (!(await spoken(say, response, (text) => send([{ text }]), fault))) return;
  const parts = calls.map(({ name, args, signature }) => ({
    functionCall: { name, args },
    ...(signature === undefined ? {} : { thoughtSignature: signature }),
  }));
  if (parts.length > 0) send(parts);
  const counted = { promptTokenCount: usage.input, candidatesTokenCount: usage.output, totalTokenCount: usage.input + usage.output };
  send([], { finishReason: say.finish ?? 'STOP' }, { usageMetadata: counted });
  response.end();
};
