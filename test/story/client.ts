// A client of the gateway's websocket for stories: connects, calls, and keeps every event it hears.
import { WebSocket } from 'ws';

interface Heard {
  event: string;
  payload: Record<string, unknown>;
}

export class Client {
  readonly events: Heard[] = [];
  private readonly ws: WebSocket;
  private readonly open = new Map<string, PromiseWithResolvers<unknown>>();
  private news = Promise.withResolvers<void>();
  private calls = 0;

  private constructor(ws: WebSocket) {
    this.ws = ws;
    ws.on('message', (data: Buffer) => this.heard(JSON.parse(data.toString('utf8')) as Record<string, unknown>));
  }

  static async connect(url: string, token: string): Promise<Client> {
    const client = new Client(new WebSocket(url.replace(/^http/, 'ws')));
    await client.event(({ event }) => event === 'connect.challenge');
    const about = { id: 'story', version: '1', platform: 'test', mode: 'test' };
    await client.call('connect', { minProtocol: 4, maxProtocol: 4, client: about, caps: ['tool-events'], auth: { token } });
    return client;
  }

  call(method: string, params: object): Promise<unknown> {
    const id = String(++this.calls);
    const answer = Promise.withResolvers<unknown>();
    this.open.set(id, answer);
    this.ws.send(JSON.stringify({ type: 'req', id, method, params }));
    return answer.promise;
  }

  /** The first event that fits, from the beginning on. */
  async event(fits: (heard: Heard) => boolean): Promise<Heard> {
    for (;;) {
      const found = this.events.find(fits);
      if (found) return found;
      await this.news.promise;
    }
  }

  close(): void {
    this.ws.terminate();
  }

  private heard(frame: Record<string, unknown>): void {
    if (frame['type'] === 'event') {
      this.events.push(frame as unknown as Heard);
      this.news.resolve();
      this.news = Promise.withResolvers<void>();
      return;
    }
    const answer = this.open.get(frame['id'] as string);
    if (frame['ok']) answer?.resolve(frame['payload']);
    else answer?.reject(new Error((frame['error'] as { message: string }).message));
  }
}
