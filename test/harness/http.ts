// Requests over a real socket with a token, and event streams read one event at a time.
import { onTestFinished } from 'vitest';

export interface Answer {
  status: number;
  headers: Headers;
  text: string;
  // oxlint-disable-next-line typescript/no-explicit-any -- what a client reads is its own business
  json: any;
}

export type Ask = RequestInit & {
  /** Empty for none. */
  token?: string;
};

export async function ask(url: string, { token = '', headers, ...init }: Ask): Promise<Answer> {
  const all = { ...(token === '' ? {} : { authorization: `Bearer ${token}` }), ...(headers as Record<string, string>) };
  const response = await fetch(url, { redirect: 'manual', ...init, headers: all });
  const text = await response.text();
  const isJson = response.headers.get('content-type')?.startsWith('application/json') && text !== '';
  return { status: response.status, headers: response.headers, text, json: isJson ? JSON.parse(text) : undefined };
}

export async function listenTo(url: string, token: string, headers: Record<string, string> = {}): Promise<Listener> {
  const controller = new AbortController();
  onTestFinished(() => controller.abort());
  const response = await fetch(url, { headers: { authorization: `Bearer ${token}`, ...headers }, signal: controller.signal });
  return new Listener(response, controller);
}

interface Heard {
  event: string;
  id?: string;
  comment?: string;
  // oxlint-disable-next-line typescript/no-explicit-any
  data?: any;
}

export class Listener {
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
