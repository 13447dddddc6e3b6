// All websockets: taking them in, ticks and health for everyone, the end of tokens and of the gateway.
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { WebSocketServer } from 'ws';
import { frameLimits, tickIntervalMs } from '../protocol/frame.ts';
import { closing, Connection, type ConnectionParts } from './connection.ts';
import { Shares } from './shares.ts';

/** Websockets that have not identified themselves. */
const mostStrangers = 256;

export class Sockets {
  private readonly parts: ConnectionParts;
  private readonly server = new WebSocketServer({
    noServer: true,
    maxPayload: frameLimits.before,
    perMessageDeflate: false,
    clientTracking: false,
  });
  private readonly connections = new Set<Connection>();
  private readonly strangers = new Shares(mostStrangers);
  private cancelTick = () => {};
  private readonly undoEnd: () => void;
  private closed = false;
  private toldWell: boolean | undefined;

  constructor(parts: ConnectionParts) {
    this.parts = parts;
    this.undoEnd = parts.auth.onEnd((tokenId, why) => {
      for (const one of this.connections) if (one.caller?.tokenId === tokenId) one.tokenEnded(why);
    });
    this.tick();
  }

  get size(): number {
    return this.connections.size;
  }

  /** The caller has checked Host and Origin. */
  upgrade(request: IncomingMessage, socket: Duplex, head: Buffer): void {
    if (this.closed) {
      turnAway(socket, '503 Service Unavailable', JSON.stringify({ error: { type: 'unavailable', message: 'gateway is stopping' } }));
      return;
    }
    this.server.handleUpgrade(request, socket, head, (ws) => {
      const connection = new Connection(ws, socket, request, this.parts, {
        identified: () => leave(),
        closed: () => this.connections.delete(connection),
      });
      const leave = this.strangers.take(request.socket.remoteAddress ?? '', () => {
        connection.close(closing.refused, 'others of this address are waiting to sign in');
        connection.terminate();
      });
      this.connections.add(connection);
      connection.start();
    });
  }

  /** Sends `shutdown` to all, flushes, and closes. */
  close(reason: string): void {
    if (this.closed) return;
    this.closed = true;
    this.undoEnd();
    this.cancelTick();
    for (const one of this.connections) {
      void one.event('shutdown', JSON.stringify({ reason }));
      one.close(closing.restart, reason);
    }
    this.server.close();
  }

  /** Connections that do not close by themselves. */
  terminate(): void {
    for (const one of this.connections) one.terminate();
  }

  private tick(): void {
    this.cancelTick = this.parts.after(tickIntervalMs, () => {
      const ts = this.parts.now();
      const payload = JSON.stringify({ ts });
      const well = this.parts.well();
      for (const one of this.connections) {
        one.tick(payload);
        // Sent at the start and when it changes.
        if (well !== this.toldWell) void one.news('health', JSON.stringify({ ok: well, ts }));
      }
      this.toldWell = well;
      this.tick();
    });
  }
}

/** Refuses an upgrade. The HTTP server no longer watches this socket, so it is ours to end. */
export function turnAway(socket: Duplex, status: string, body: string): void {
  socket.once('finish', () => socket.destroy());
  socket.end(
    `HTTP/1.1 ${status}\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`,
  );
}
