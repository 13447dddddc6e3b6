// A stage with its door open: requests over a real socket, and event streams read one event at a time.
import { connect, type Socket } from 'node:net';
import { onTestFinished } from 'vitest';
import { WebSocket } from 'ws';
import type { GatewayOptions } from '../../src/gateway.ts';
import { HandClock } from '../clock.ts';
import { forTest, Stage, type ConfigText, type ScriptText } from './stage.ts';

export const adminToken = 'the-token-of-the-tests';
const echo: ScriptText = [{ steps: [{ say: 're: {{input}}' }] }];

export interface Answer {
  status: number;
  headers: Headers;
  text: string;
  // oxlint-disable-next-line typescript/no-explicit-any -- what a client reads is its own business
  json: any;
}

export class Door extends Stage {
  /** Opens it, also again after `close()`. */
  open(config: ConfigText = {}, script: ScriptText = echo, more: Partial<GatewayOptions> = {}): Promise<this> {
    return this.start(config, script, { listen: { host: '127.0.0.1', port: 0, version: 'test', token: adminToken }, ...more });
  }

  get url(): string {
    return this.gateway.server!.url;
  }

  async ask(path: string, { token = adminToken, headers, ...init }: RequestInit & { token?: string } = {}): Promise<Answer> {
    const all = { ...(token === '' ? {} : { authorization: `Bearer ${token}` }), ...(headers as Record<string, string>) };
    const response = await fetch(this.url + path, { redirect: 'manual', ...init, headers: all });
    const text = await response.text();
    const isJson = response.headers.get('content-type')?.startsWith('application/json') && text !== '';
    return { status: response.status, headers: response.headers, text, json: isJson ? JSON.parse(text) : undefined };
  }

  post(path: string, body: unknown, init: RequestInit & { token?: string } = {}): Promise<Answer> {
    return this.ask(path, { method: 'POST', body: JSON.stringify(body), ...init });
  }

  /** Says something and waits for the answer. */
  async tell(session: string, message: string): Promise<void> {
    const { status, text } = await this.post(`/sessions/${encodeURIComponent(session)}/messages?wait=60`, { message });
    if (status !== 200) throw new Error(text);
  }

  async listen(path: string, { token = adminToken, headers = {} }: { token?: string; headers?: Record<string, string> } = {}) {
    const controller = new AbortController();
    onTestFinished(() => controller.abort());
    const response = await fetch(this.url + path, { headers: { authorization: `Bearer ${token}`, ...headers }, signal: controller.signal });
    return new Listener(response, controller);
  }

  /** A connection that a test reads when it wants to. */
  async socket(): Promise<Socket> {
    const socket = connect(this.gateway.server!.port, '127.0.0.1');
    onTestFinished(() => void socket.destroy());
    await new Promise<void>((resolve) => socket.once('connect', resolve));
    return socket;
  }
}

export const door = (stateDir?: string) => forTest(new Door(new HandClock(), stateDir));

interface Heard {
  event: string;
  id?: string;
  comment?: string;
  // oxlint-disable-next-line typescript/no-explicit-any
  data?: any;
}

class Listener {
  readonly response: Response;
  private readonly controller: AbortController;
  private readonly blocks: AsyncGenerator<Heard>;

  constructor(response: Response, controller: AbortController) {
    this.response = response;
    this.controller = controller;
    this.blocks = read(response.body!);
  }

  /** The next event or comment; undefined at the end of the stream. */
  async next(): Promise<Heard | undefined> {
    const { value, done } = await this.blocks.next();
    return done ? undefined : value;
  }

  /** Everything up to the event that fits, and that one. */
  async until(fits: (heard: Heard) => boolean): Promise<Heard[]> {
    const all: Heard[] = [];
    for (let heard = await this.next(); heard; heard = await this.next()) {
      all.push(heard);
      if (fits(heard)) return all;
    }
    throw new Error(`the stream ended after ${JSON.stringify(all)}`);
  }

  async rest(): Promise<Heard[]> {
    const all: Heard[] = [];
    for (let heard = await this.next(); heard; heard = await this.next()) all.push(heard);
    return all;
  }

  close(): void {
    this.controller.abort();
  }
}

async function* read(body: ReadableStream<Uint8Array>): AsyncGenerator<Heard> {
  let text = '';
  for await (const chunk of body.pipeThrough(new TextDecoderStream())) {
    text += chunk;
    const blocks = text.split('\n\n');
    text = blocks.pop()!;
    for (const block of blocks) {
      const heard: Heard = { event: '' };
      for (const line of block.split('\n')) {
        const [, name, value] = /^([a-z]*): (.*)$/.exec(line)!;
        if (name === '') heard.comment = value!;
        else if (name === 'data') heard.data = JSON.parse(value!);
        else if (name === 'id') heard.id = value!;
        else if (name === 'event') heard.event = value!;
      }
      if (heard.event !== '' || heard.comment !== undefined) yield heard;
    }
  }
}

/** What a reader has seen of a transcript: the numbers of its messages, in the order it got them. */
export function seqs(heard: Heard[]): number[] {
  return heard.flatMap(({ event, data }) => {
    if (event === 'history') return (data.messages as { __openclaw: { seq: number } }[]).map((message) => message.__openclaw.seq);
    return event === 'message' ? [data.messageSeq as number] : [];
  });
}

/** One request over the websocket. */
export async function rpc(stage: Door, method: string, params: object): Promise<{ token: string }> {
  const socket = new WebSocket(stage.url.replace('http', 'ws'));
  const answers = new Map<string, PromiseWithResolvers<{ token: string }>>();
  const send = (id: string, name: string, payload: object) => {
    answers.set(id, Promise.withResolvers());
    socket.send(JSON.stringify({ type: 'req', id, method: name, params: payload }));
    return answers.get(id)!.promise;
  };
  socket.on('message', (data: Buffer) => {
    const { type, id, ok, payload, error } = JSON.parse(data.toString());
    if (type === 'res' && ok) answers.get(id)!.resolve(payload);
    else if (type === 'res') answers.get(id)!.reject(new Error(error.message));
  });
  await new Promise<void>((resolve) => socket.once('open', () => resolve()));
  const client = { id: 'test', version: '1', platform: 'test', mode: 'test' };
  await send('1', 'connect', { minProtocol: 4, maxProtocol: 4, client, auth: { token: adminToken } });
  return send('2', method, params).finally(() => socket.close());
}

export const tokenFor = async (stage: Door, name: string, more: object = {}) =>
  (await rpc(stage, 'tokens.create', { name, ...more })).token;
