// One port for everything: HTTP requests go to the routes, upgrades to the sockets, both after a check of Host and Origin.
import type { IncomingMessage, Server as HttpServer, ServerResponse } from 'node:http';
import type { AddressInfo, Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { InterlaneError, reasonOf } from '../errors.ts';
import { mostInFlight } from '../protocol/frame.ts';
import { hostAllowed, originAllowed } from './access.ts';
import type { Remote } from './http.ts';
import { Shares } from './shares.ts';
import { turnAway, type Sockets } from './ws.ts';

export interface ServerParts {
  host: string;
  port: number;
  /** Names, beside addresses and localhost, that clients may call us by. */
  names: ReadonlySet<string>;
  fetch(request: Request, remote: Remote): Response | Promise<Response>;
  sockets: Sockets;
  after(ms: number, work: () => void): () => void;
}

export interface Server {
  host: string;
  port: number;
  url: string;
  /** Stops listening, tells the connections, and gives them a moment. */
  close(reason: string): Promise<void>;
}

const goodbyeMs = 1_000;
const mostStrangers = 1_024;
const timeouts = { requestTimeout: 60_000, headersTimeout: 15_000, connectionsCheckingInterval: 5_000 };

/** Not imported: that would read every name the module has, and one of them loads all of `fetch`. */
const { createServer } = process.getBuiltinModule('node:http');

export async function startServer(parts: ServerParts): Promise<Server> {
  const { names, sockets } = parts;
  const refusal = ({ headers }: IncomingMessage): [number, string] | undefined => {
    if (!hostAllowed(headers.host, names)) return [421, 'host is not one of ours; add it to gateway.names if it is'];
    if (!originAllowed(headers.origin, headers.host)) return [403, 'origin is another site'];
    return undefined;
  };
  /** A client may send requests on one connection without waiting for the answers. */
  const inFlight = new WeakMap<Socket, number>();
  const tooMany = ({ socket }: IncomingMessage): [number, string] | undefined =>
    inFlight.get(socket)! > mostInFlight ? [503, `connection has ${mostInFlight} unanswered requests; wait for answers`] : undefined;
  /** Connections on which no request had a token yet. */
  const strangers = new Shares(mostStrangers);
  const places = new WeakMap<Duplex, () => void>();
  const known = (socket: Duplex) => places.get(socket)?.();
  let listener: Listener | undefined;
  const ask = async (request: IncomingMessage, response: ServerResponse) => {
    listener ??= await requestListener(parts, known);
    await listener(request, response);
  };
  const server = createServer({ ...timeouts, maxHeaderSize: 16 * 1024 }, (request, response) => {
    const { socket } = request;
    inFlight.set(socket, (inFlight.get(socket) ?? 0) + 1);
    response.on('close', () => {
      inFlight.set(socket, inFlight.get(socket)! - 1);
      // Once nothing new is taken, a connection ends with its answer.
      if (!server.listening) server.closeIdleConnections();
    });
    const refused = refusal(request) ?? tooMany(request);
    if (refused) answer(response, ...refused);
    else void (listener ?? ask)(request, response);
  });
  server.on('connection', (socket) => {
    const leave = strangers.take(socket.remoteAddress ?? '', () => socket.destroy());
    places.set(socket, leave);
    socket.once('close', leave);
  });
  server.on('upgrade', (request, socket, head) => {
    known(socket);
    socket.on('error', () => socket.destroy());
    const refused = refusal(request);
    if (refused) turnAway(socket, `${refused[0]} Refused`, JSON.stringify(failure(...refused)));
    else sockets.upgrade(request, socket, head);
  });
  server.on('clientError', (_, socket) => {
    // The other side may never close its half, so the socket is destroyed as soon as the answer has left.
    if (socket.writable) socket.end('HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n', () => socket.destroy());
    else socket.destroy();
  });
  await listen(server, parts);
  const { port } = server.address() as AddressInfo;
  const shown = parts.host === '0.0.0.0' || parts.host === '::' ? '127.0.0.1' : parts.host;
  return {
    host: parts.host,
    port,
    url: `http://${shown.includes(':') ? `[${shown}]` : shown}:${port}`,
    close: (reason) =>
      new Promise((resolve) => {
        const cancel = parts.after(goodbyeMs, () => {
          sockets.terminate();
          server.closeAllConnections();
        });
        server.close(() => {
          cancel();
          resolve();
        });
        sockets.close(reason);
        server.closeIdleConnections();
      }),
  };
}

type Listener = (request: IncomingMessage, response: ServerResponse) => Promise<void>;

/** Loaded with the first request: it loads the classes of `fetch`, 20 ms and 5 MB, which websockets do not need. */
async function requestListener(parts: ServerParts, known: (socket: Duplex) => void): Promise<Listener> {
  const { getRequestListener } = await import('@hono/node-server');
  return getRequestListener((request, env) => parts.fetch(request, remoteOf(env, known)), { overrideGlobalObjects: false });
}

function listen(server: HttpServer, { host, port }: ServerParts): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      const reasons: Record<string, string> = {
        EADDRINUSE: `port ${port} on ${host} is taken; choose another with --port, or 0 for any`,
        EACCES: `port ${port} may not be used by this user; choose one above 1023 with --port`,
        ENOTFOUND: `address ${host} is not known: no address was found for this name; choose another with --host`,
        EAI_AGAIN: `address ${host} cannot be looked up now; choose another with --host, or try again`,
        EADDRNOTAVAIL: `address ${host} is not one of this machine; choose another with --host`,
      };
      reject(
        new InterlaneError('PORT_UNUSABLE', reasons[error.code ?? ''] ?? `port ${port} on ${host} cannot be used: ${reasonOf(error)}`),
      );
    });
    server.listen({ host, port }, resolve);
  });
}

const kinds: Record<number, { type: string; code: string }> = {
  403: { type: 'forbidden', code: 'ORIGIN_REFUSED' },
  421: { type: 'misdirected', code: 'HOST_REFUSED' },
  503: { type: 'unavailable', code: 'BUSY' },
};

const failure = (status: number, message: string) => ({ ok: false, error: { ...kinds[status], message } });

function answer(response: ServerResponse, status: number, message: string): void {
  response.writeHead(status, { 'content-type': 'application/json', connection: 'close' });
  response.end(JSON.stringify(failure(status, message)));
}

function remoteOf(env: unknown, known: (socket: Duplex) => void): Remote {
  const socket = (env as { incoming?: IncomingMessage }).incoming?.socket;
  return {
    remoteAddress: socket?.remoteAddress ?? '',
    localPort: socket?.localPort,
    drop: () => socket?.destroy(),
    identified: () => socket && known(socket),
  };
}
