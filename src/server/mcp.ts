// MCP over HTTP: bearer token → the session it is bound to → that session's tools. Nothing is kept between requests.
import { createHash } from 'node:crypto';
import type { McpServer } from '@modelcontextprotocol/server';
import { InterlaneError } from '../errors.ts';
import type { CallerTools } from '../mcp/server.ts';
import { frameLimits } from '../protocol/frame.ts';
import { guestToolNames } from '../protocol/tool.ts';
import { mcpInstructions, quote } from '../wording.ts';
import type { World } from '../rules/decide.ts';
import { findSession } from '../sessions/find.ts';
import type { Store } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import type { Invoker } from '../tools/invoke.ts';
import { bearerOf } from './access.ts';
import type { Auth } from './auth.ts';
import { viewerOf, type Caller } from './rights.ts';
import { bytesOf } from './body.ts';
import { httpFailure } from './failure.ts';
import type { Remote } from './http.ts';
import { checkShape } from './json.ts';
import type { TokenClients } from './token-clients.ts';
import type { Report } from '../warn.ts';

export interface McpParts {
  store: Store;
  auth: Auth;
  clients: TokenClients;
  version: string;
  newId(): string;
  after(ms: number, work: () => void): () => void;
  world(): World;
  invoker: Invoker;
  /** Whether a session takes its own turns. */
  isGuest(session: SessionRow): boolean;
  /** Reports an internal failure to the operator; the client never sees it. */
  report: Report;
  /** For tests: more than our own tools, on the same stack. */
  extend?: ((server: McpServer) => void) | undefined;
}

export interface McpDoor {
  fetch(request: Request, remote: Remote): Promise<Response>;
  close(): Promise<void>;
}

export const mcpPath = '/mcp';
/** Under way at once with one token. */
const mostRequests = 64;
const goodbyeMs = 500;

interface Underway {
  /** Its calls are to answer now. */
  ended: AbortController;
  /** It is over, answered or not. */
  cut: AbortController;
  done: Promise<void>;
}

export function createMcpDoor(parts: McpParts): McpDoor {
  const { auth } = parts;
  /** What is under way, by token; ended with it. */
  const open = new Map<string, Set<Underway>>();
  /** So that a request that was let in a moment before its token ended ends with it, too. Ids are never used again. */
  const gone = new Set<string>();
  /** Calls answer with the reason; what has no answer to give, such as a stream of news, is cut a moment later. */
  const end = (ones: Iterable<Underway>, why: InterlaneError) =>
    new Promise<void>((resolve) => {
      const all = [...ones];
      for (const one of all) one.ended.abort(why);
      const cancel = parts.after(goodbyeMs, () => {
        for (const one of all) one.cut.abort(why);
        resolve();
      });
      void Promise.all(all.map((one) => one.done)).then(() => {
        cancel();
        resolve();
      });
    });
  const undo = auth.onEnd((tokenId) => {
    gone.add(tokenId);
    void end(open.get(tokenId) ?? [], revoked());
  });
  // The library is large, so it is loaded with the first request that needs it.
  const load = async () => {
    const { definitionOf, mcpHandler } = await import('../mcp/server.ts');
    return { definitionOf, handler: mcpHandler(parts.version, parts.extend ?? (() => {})) };
  };
  let loading: ReturnType<typeof load> | undefined;
  const loaded = () => (loading ??= load());

  /** I7. The token says which session calls; nothing in the request can. */
  const identify = async (request: Request, remoteAddress: string): Promise<Caller & { sessionKey: string }> => {
    const presented = bearerOf(request.headers.get('authorization') ?? undefined);
    if (presented === undefined)
      throw new InterlaneError(
        'UNAUTHORIZED',
        'token is missing; send it as "Authorization: Bearer <token>" ("interlane join <name>" makes one)',
      );
    const caller = await auth.identify(presented, remoteAddress);
    if (typeof caller === 'string')
      throw caller === 'too many'
        ? new InterlaneError('AUTH_RATE_LIMITED', 'too many wrong tokens from this address; wait a minute')
        : new InterlaneError('UNAUTHORIZED', 'token is wrong, ended or expired; ask the operator for a new one');
    const { sessionKey } = caller;
    if (caller.kind !== 'session' || sessionKey === undefined)
      throw new InterlaneError(
        'MISSING_SCOPE',
        `token "${caller.name}" is an operator's and no session; over MCP a caller is one: "interlane join <name>" makes a guest with a token, "interlane token create <name> --session <key>" a token for a session that is there`,
      );
    return { ...caller, sessionKey };
  };

  const toolsOfCaller = async (caller: Caller & { sessionKey: string }, ended: AbortSignal): Promise<CallerTools> => {
    const client = parts.clients.of(caller.tokenId);
    const look = { world: parts.world(), viewer: viewerOf(caller) };
    const session = await parts.store.read(findSession(look), { session: caller.sessionKey }, client.pace(ended));
    if (!session)
      throw new InterlaneError('SESSION_NOT_FOUND', `session ${caller.sessionKey} of this token is gone; ask the operator for a new one`);
    const { invoker, isGuest } = parts;
    const { definitionOf } = await loaded();
    return {
      instructions: mcpInstructions(session.key, isGuest(session)),
      tools: (await invoker.toolsFor(session.pk, { signal: ended, ceiling: caller.level })).map(definitionOf),
      async call({ tool, args, idempotencyKey }, signal) {
        const callId = idempotencyKey === undefined ? parts.newId() : hash(`${caller.name}\n${idempotencyKey}`);
        try {
          const pace = client.pace(AbortSignal.any([signal, ended]));
          const answer = await invoker.callAs(session.pk, { tool, args, callId, by: 'session', ceiling: caller.level }, pace);
          // A harness reads results without a prompt of ours around them. What a guest's own tools return has gateway lines of ours.
          return guestToolNames.includes(tool) ? answer : { ...answer, text: quote(answer.text) };
        } catch (thrown) {
          if (signal.aborted) throw thrown;
          if (ended.aborted) return refused(ended.reason as InterlaneError);
          parts.report(`tool ${tool}`, thrown, { session: session.key, request: idempotencyKey });
          return refused(new InterlaneError('INTERNAL', 'call failed inside the gateway; its log says why'));
        }
      },
    };
  };

  return {
    async fetch(request, remote) {
      const { promise: done, resolve } = Promise.withResolvers<void>();
      const one: Underway = { ended: new AbortController(), cut: new AbortController(), done };
      let caller: Caller;
      let callerTools: CallerTools;
      let body: Uint8Array<ArrayBuffer> | null = null;
      try {
        const known = await identify(request, remote.remoteAddress);
        remote.identified();
        if (request.method === 'POST') body = await bytesOf(request, frameLimits.tools);
        await parts.clients.of(known.tokenId).pace(one.ended.signal).pause();
        if (body) checkShape(body, 'body');
        [caller, callerTools] = [known, await toolsOfCaller(known, one.ended.signal)];
      } catch (thrown) {
        if (!(thrown instanceof InterlaneError)) parts.report('MCP request', thrown);
        return refusal(thrown);
      }
      if (gone.has(caller.tokenId)) return refusal(revoked());
      const mine = open.get(caller.tokenId) ?? new Set();
      if (mine.size >= mostRequests)
        return refusal(new InterlaneError('BUSY', `token has ${mostRequests} requests under way; wait for some of them`));
      open.set(caller.tokenId, mine.add(one));
      const over = () => {
        resolve();
        mine.delete(one);
        if (mine.size === 0 && open.get(caller.tokenId) === mine) open.delete(caller.tokenId);
      };
      const cut = new Promise<Response>((answer) =>
        one.cut.signal.addEventListener('abort', () => answer(refusal(one.cut.signal.reason)), { once: true }),
      );
      try {
        const served = new Request(request.url, {
          method: request.method,
          headers: request.headers,
          body,
          signal: AbortSignal.any([request.signal, one.cut.signal]),
        });
        const { handler } = await loaded();
        const answer = handler.fetch(served, { authInfo: { token: '', clientId: caller.tokenId, scopes: [], extra: { callerTools } } });
        return whenRead(await Promise.race([answer, cut]), one.cut.signal, over);
      } catch (thrown) {
        over();
        parts.report('MCP request', thrown);
        return refusal(thrown);
      }
    },
    async close() {
      undo();
      const why = new InterlaneError('UNAVAILABLE', 'the gateway is stopping; call again in a moment');
      await end(
        [...open.values()].flatMap((ones) => [...ones]),
        why,
      );
      await (await loading)?.handler.close();
    },
  };
}

/** An answer that comes in pieces is under way until the last of them, or until it is cut. */
function whenRead(response: Response, cut: AbortSignal, over: () => void): Response {
  if (!response.body || !response.headers.get('content-type')?.startsWith('text/event-stream')) {
    over();
    return response;
  }
  const passed = new TransformStream<Uint8Array, Uint8Array>();
  void response.body
    .pipeTo(passed.writable, { signal: cut, preventAbort: true })
    .catch(() => passed.writable.close()) // cut: what was written so far is all there is
    .catch(() => {}) // the client is gone
    .then(over);
  return new Response(passed.readable, { status: response.status, headers: response.headers });
}

const revoked = () => new InterlaneError('UNAUTHORIZED', 'token has ended');

function refusal(thrown: unknown): Response {
  const { status, body } = httpFailure(thrown);
  return Response.json(body, { status, headers: status === 401 ? { 'www-authenticate': 'Bearer' } : {} });
}

const refused = ({ code, message }: InterlaneError) => ({ text: JSON.stringify({ status: 'error', code, error: message }), isError: true });
const hash = (text: string) => createHash('sha256').update(text).digest('base64url').slice(0, 22);
