// The stage of the MCP tests: a gateway with a real port, an operator on its websocket, and real MCP clients.
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { onTestFinished } from 'vitest';
import { WebSocket } from 'ws';
import type { GatewayOptions } from '../../src/gateway.ts';
import type { MethodName, Params } from '../../src/protocol/method.ts';
import type { Results } from '../../src/protocol/result.ts';
import { HandClock } from '../clock.ts';
import { Stage, type ConfigText, type ScriptText } from '../story/stage.ts';

export const adminToken = 'the-operator-of-this-test';

/** How long a closing server waits for its connections. */
const goodbye = 1_000;

/** Made-up time in which a closing server does not wait for ever. */
class DoorClock extends HandClock {
  override after(ms: number, work: () => void) {
    const undo = super.after(ms, work);
    if (this.stopping && ms === goodbye) setImmediate(() => this.advance(goodbye));
    return undo;
  }
}

export class DoorStage extends Stage {
  constructor(stateDir?: string) {
    super(new DoorClock(), stateDir);
  }

  get url(): string {
    return this.gateway.server!.url;
  }

  /** One call of an operator. */
  async operator<M extends MethodName>(method: M, params: Params<M>): Promise<Results[M]> {
    const socket = new WebSocket(`${this.url.replace('http', 'ws')}/`);
    const answers = answersOf(socket);
    await new Promise((resolve, reject) => socket.once('open', resolve).once('error', reject));
    const ask = async (asked: string, given: unknown) => {
      socket.send(JSON.stringify({ type: 'req', id: asked, method: asked, params: given }));
      const answer = await answers(asked);
      if (!answer.ok) throw new Error(answer.error!.message);
      return answer.payload;
    };
    try {
      const client = { id: 'test', version: '1', platform: 'test', mode: 'cli' };
      await ask('connect', { minProtocol: 4, maxProtocol: 4, client, auth: { token: adminToken } });
      return (await ask(method, params)) as Results[M];
    } finally {
      socket.close();
    }
  }

  /** A real client, as whoever the token is. */
  async client(token: string, mode: 'auto' | 'legacy' = 'auto'): Promise<Guest> {
    const client = new Client({ name: 'test', version: '1' }, mode === 'auto' ? { versionNegotiation: { mode } } : {});
    const headers = { authorization: `Bearer ${token}` };
    await client.connect(new StreamableHTTPClientTransport(new URL('/mcp', this.url), { requestInit: { headers } }));
    onTestFinished(() => client.close());
    return new Guest(client);
  }
}

interface Answer {
  ok: boolean;
  payload?: unknown;
  error?: { message: string };
}

function answersOf(socket: WebSocket): (id: string) => Promise<Answer> {
  const waiting = new Map<string, PromiseWithResolvers<Answer>>();
  const of = (id: string) => {
    const found = waiting.get(id) ?? Promise.withResolvers<Answer>();
    waiting.set(id, found);
    return found;
  };
  socket.on('message', (data: Buffer) => {
    const frame = JSON.parse(data.toString()) as { type: string; id: string } & Answer;
    if (frame.type === 'res') of(frame.id).resolve(frame);
  });
  return (id) => of(id).promise;
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

export async function door(config: ConfigText = {}, script: ScriptText = [], more: Partial<GatewayOptions> = {}): Promise<DoorStage> {
  const stage = new DoorStage();
  onTestFinished(() => stage.end());
  return open(stage, config, script, more);
}

/** Opens the door, also for the second time on the same state. */
export function open(
  stage: DoorStage,
  config: ConfigText = {},
  script: ScriptText = [],
  more: Partial<GatewayOptions> = {},
): Promise<DoorStage> {
  return stage.start(config, script, { listen: { port: 0, token: adminToken, version: 'test' }, ...more });
}
