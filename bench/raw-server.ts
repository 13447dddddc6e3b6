// The raw limit of the gateway: a bare `ws` and HTTP server that answers with frames of the same size.
import { createServer, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import { performance } from 'node:perf_hooks';
import { WebSocketServer } from 'ws';
import { answerParent } from './talk.ts';

/** What the clients need to know. */
export interface Address {
  url: string;
  token: string;
}

/** The frames that one message makes for a subscriber, and the one that it makes for a follower. */
export interface Frames {
  socket: string[];
  stream: string;
}

/** Processor time of the server since it started, and when each message of a session was committed (or, by the raw server, sent). */
export interface Spent {
  cpuMs: number;
  at: number[];
}

export type ServerWish = { open: true } | { frames: Frames } | { spent: true };

export const epochNow = () => performance.timeOrigin + performance.now();
export const cpuMs = () => {
  const { user, system } = process.cpuUsage();
  return (user + system) / 1_000;
};

/** Echoes; but a frame with a number is a message that all who have connected to `/subscribe` or `/follow` are told of. */
export async function serveRaw(): Promise<void> {
  let frames: Frames = { socket: [], stream: '' };
  let at: number[] = [];
  const followers = new Set<ServerResponse>();
  const subscribers = new WebSocketServer({ noServer: true, perMessageDeflate: false });
  const others = new WebSocketServer({ noServer: true, perMessageDeflate: false });
  const server = createServer((_, response) => {
    response.writeHead(200, { 'content-type': 'text/event-stream' });
    response.write('retry: 1000\n\n');
    followers.add(response);
    response.on('close', () => void followers.delete(response));
  });
  server.on('upgrade', (request, socket, head) => {
    if (request.url === '/subscribe') return subscribers.handleUpgrade(request, socket, head, () => {});
    others.handleUpgrade(request, socket, head, (ws) => {
      ws.on('message', (data: Buffer) => {
        const text = data.toString('utf8');
        ws.send(text);
        const number = /"publish":(\d+)/.exec(text)?.[1];
        if (number === undefined) return;
        at[Number(number)] = epochNow();
        for (const frame of frames.socket) {
          const numbered = withNumber(frame, number);
          for (const subscriber of subscribers.clients) subscriber.send(numbered);
        }
        const told = withNumber(frames.stream, number);
        for (const follower of followers) follower.write(told);
      });
    });
  });
  await new Promise<void>((resolve) => void server.listen(0, '127.0.0.1', resolve));
  const { port } = server.address() as AddressInfo;
  answerParent((wish: ServerWish) => {
    if ('open' in wish) return { url: `http://127.0.0.1:${port}`, token: '' } satisfies Address;
    if ('frames' in wish) return void ({ frames } = wish);
    const spent: Spent = { cpuMs: cpuMs(), at };
    at = [];
    return spent;
  });
}

/** As long as it was: the sample was made with a number of four digits. */
function withNumber(frame: string, number: string): string {
  return frame.replace(/"messageSeq":\d+/, `"messageSeq":${number}`);
}
