// Requests over HTTP and MCP as clients of the pacer: all that come with one token are one client, over however many sockets.
import type { Client, Pacer } from '../pace.ts';
import type { Auth } from './auth.ts';

export class TokenClients {
  private readonly pacer: Pacer;
  private readonly auth: Auth;
  private readonly clients = new Map<string, Client>();

  constructor(pacer: Pacer, auth: Auth) {
    this.pacer = pacer;
    this.auth = auth;
    auth.onEnd((tokenId) => this.clients.delete(tokenId));
  }

  of(tokenId: string): Client {
    const known = this.clients.get(tokenId);
    if (known) return known;
    const client = this.pacer.client();
    // No end would delete the client of a token that is over.
    if (!this.auth.isOver({ tokenId })) this.clients.set(tokenId, client);
    return client;
  }
}
