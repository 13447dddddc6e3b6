// Everything that clients connect to, wired by hand: tokens, operations, websocket, HTTP and MCP on one port.
import type { Clock } from '../clock.ts';
import type { Sessions } from '../sessions/sessions.ts';
import type { LiveFacts } from '../sessions/describe.ts';
import type { Config } from '../config/schema.ts';
import type { Engine } from '../engine/engine.ts';
import type { Verdicts } from '../engine/verdicts.ts';
import { InterlaneError } from '../errors.ts';
import { type Bus } from '../events/bus.ts';
import { routesOf } from '../protocol/http.ts';
import { operations as allOperations, type Results } from '../protocol/operations/all.ts';
import type { Operations } from '../protocol/operations/operation.ts';
import { keyContext } from '../rules/agents.ts';
import type { World } from '../rules/decide.ts';
import type { Routes } from '../rules/route.ts';
import { formatSessionKey, mainKey } from '../rules/session-key.ts';
import { isLoopback } from './access.ts';
import { Auth } from './auth.ts';
import { allows } from './rights.ts';
import { writeCliFile } from './cli-file.ts';
import { createDispatch } from './dispatch.ts';
import { Events, type EventsParts } from './events.ts';
import type { LiveRuns } from './live-runs.ts';
import { createHistory } from './history.ts';
import { createHttp } from './http.ts';
import { createMcpDoor, mcpPath, type McpParts } from './mcp.ts';
import { watchLoop } from '../observe/loop-delay.ts';
import type { Metrics } from '../observe/metrics.ts';
import { createHandlers } from './operations/all.ts';
import { createRoutes } from './routes.ts';
import { startServer } from './server.ts';
import { Streams } from './sse.ts';
import { TokenClients } from './token-clients.ts';
import { Sockets } from './ws.ts';
import type { Pacer } from '../pace.ts';
import type { Store } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import type { Tool } from '../tools/define.ts';
import { type Invoker } from '../tools/invoke.ts';
import type { Report } from '../warn.ts';

export interface Listen {
  /** Instead of what the config says. */
  host?: string | undefined;
  port?: number | undefined;
  /** A secret to accept as an admin's, for containers and tests. */
  token?: string | undefined;
  version: string;
  /** Written to the file that the commands of this machine's user read. */
  configFile?: string | undefined;
  /** What clients may call; all operations, unless it is given. */
  operations?: Operations | undefined;
}

export interface Door {
  url: string;
  port: number;
  /** The admin's secret, at the very first start; it cannot be shown later. */
  adminToken: string | undefined;
  /** A new link that signs a browser in, once. */
  signInLink(): string;
}

export interface DoorParts {
  stateDir: string;
  clock: Clock;
  store: Store;
  pacer: Pacer;
  bus: Bus;
  engine: Engine;
  sessions: Sessions;
  invoker: Invoker;
  verdicts: Pick<Verdicts, 'run'>;
  tools: readonly Tool[];
  liveFacts: LiveFacts;
  events: EventsParts;
  live: LiveRuns;
  metrics: Metrics;
  channels: ReadonlySet<string>;
  newId(): string;
  /** Unguessable text of so many bytes, in characters of a URL. */
  secret(bytes: number): string;
  /** What follows from the config now. */
  current(): { config: Config; world: World; routes: Routes };
  /** The model of the default agent. */
  model(): string;
  warnings(): string[];
  /** What the last change of the config left undone. */
  pendingConfig(): Results['status']['config'];
  /** Whether the search index can be written. */
  searchable(): boolean;
  stopping(): boolean;
  /** False while the store cannot write or is damaged. */
  storeWell(): boolean;
  isGuest(session: SessionRow): boolean;
  extendMcp: McpParts['extend'];
  report: Report;
}

export async function openDoor(listen: Listen, parts: DoorParts): Promise<Door & { close(): Promise<void> }> {
  const { cursors } = parts.events;
  const { stateDir, clock, store, bus, engine, sessions, invoker, verdicts, tools, liveFacts, live, metrics, newId, report, isGuest } =
    parts;
  const world = () => parts.current().world;
  const { config } = parts.current();
  const { host = config.gateway.host, port = config.gateway.port } = listen;
  const auth = new Auth({ store, now: () => clock.now(), after: (ms, work) => clock.after(ms, work), secret: parts.secret });
  if (!isLoopback(host) && !listen.token && !(await auth.hasOperator()))
    throw new InterlaneError(
      'PORT_UNUSABLE',
      `address ${host} is open to others, and there is no token yet; set INTERLANE_TOKEN, or start once on this machine only to get one`,
    );
  if (listen.token) {
    const stored = await auth.check(listen.token);
    // A session's or a program's token in INTERLANE_TOKEN must not become an admin's.
    if (stored && !allows(stored, 'operator.admin'))
      throw new InterlaneError('USAGE', `INTERLANE_TOKEN is the token "${stored.name}" of this gateway and not an admin's; unset it`);
    if (!stored) auth.accept('environment', listen.token);
  }
  const events = new Events(parts.events);
  const began = clock.elapsed();
  const bootId = newId();
  let url = '';
  const signInUrl = (code: string) => `${url}/signin?code=${code}`;
  const uptimeMs = () => Math.round(clock.elapsed() - began);
  const handlers = createHandlers({
    store,
    cursors,
    engine,
    sessions,
    invoker,
    verdicts,
    liveFacts,
    auth,
    now: () => clock.now(),
    elapsed: () => clock.elapsed(),
    newId,
    current: parts.current,
    channels: parts.channels,
    position: () => events.position(),
    signInUrl,
    mcpUrl: () => `${url}${mcpPath}`,
    facts: () => ({
      version: listen.version,
      uptimeMs: uptimeMs(),
      pid: process.pid,
      connections: sockets.size,
      store: { kind: 'sqlite', durability: config.store.durability, path: stateDir },
      model: parts.model(),
      config: parts.pendingConfig(),
      warnings: parts.warnings(),
    }),
  });
  const { operations = allOperations } = listen;
  const dispatch = createDispatch(operations, handlers);
  const well = () => parts.storeWell() && !parts.stopping();
  const clients = new TokenClients(parts.pacer, auth);
  const sockets = new Sockets({
    well,
    auth,
    pacer: parts.pacer,
    dispatch,
    events,
    live,
    now: () => clock.now(),
    newId,
    after: (ms, work) => clock.after(ms, work),
    hello: () => ({
      server: { version: listen.version, connId: newId(), bootId },
      snapshot: {
        uptimeMs: uptimeMs(),
        sessionDefaults: {
          defaultAgentId: world().agents.defaultId,
          mainKey: world().agents.mainKey,
          mainSessionKey: formatSessionKey(mainKey(keyContext(world().agents, world().agents.defaultId))),
          scope: parts.current().config.session.scope,
        },
      },
    }),
    report,
  });
  const streams = new Streams({ auth, now: () => clock.now(), after: (ms, work) => clock.after(ms, work) });
  const loop = watchLoop();
  metrics.watch({
    store,
    now: () => clock.now(),
    loop,
    searchable: parts.searchable,
    lag: () => bus.lag(),
    connections: () => ({ ws: sockets.size, sse: streams.size }),
  });
  const history = createHistory({ store, bus, live, cursors, world, report });
  const routes = routesOf(operations);
  const answers = createRoutes({ dispatch, history, streams, metrics, table: routes, tools, invoker, version: listen.version, newId });
  const http = createHttp({ auth, clients, routes, handlers: answers, report, newId, ready: well });
  const mcp = createMcpDoor({
    store,
    auth,
    clients,
    version: listen.version,
    newId,
    after: (ms, work) => clock.after(ms, work),
    world,
    invoker,
    isGuest,
    report,
    extend: parts.extendMcp,
  });
  const server = await startServer({
    host,
    port,
    names: new Set(config.gateway.names.map((name) => name.toLowerCase())),
    fetch: (request, remote) => (new URL(request.url).pathname === mcpPath ? mcp : http).fetch(request, remote),
    sockets,
    after: (ms, work) => clock.after(ms, work),
  }).catch((thrown: unknown) => {
    sockets.close('there is no port'); // its timers would keep the process alive
    throw thrown;
  });
  ({ url } = server);
  const undoDeletions = store.follow((happened) => {
    for (const event of happened) if (event.kind === 'session' && event.change === 'deleted') auth.sessionDeleted(event.sessionKey);
  });
  let forget = () => {};
  const close = async () => {
    loop.close();
    forget();
    live.close();
    streams.close();
    http.close();
    auth.stopWaits(); // the server waits for its requests, and these would wait for their turn
    await mcp.close();
    await server.close('the gateway is stopping');
    undoDeletions();
    auth.close(); // the last request may have watched one more token
  };
  // The commands of this machine's own user need no setup: they read the address and a secret that lives as long as this process.
  const secret = parts.secret(32);
  auth.accept('cli', secret);
  try {
    live.start();
    forget = writeCliFile(stateDir, { url, token: secret, pid: process.pid, config: listen.configFile });
    // Made last: a start that fails before must not use up the only time that the secret is shown.
    const adminToken = await auth.start();
    return { url, port: server.port, adminToken, signInLink: () => signInUrl(auth.signInCode().code), close };
  } catch (thrown) {
    await close();
    throw thrown;
  }
}
