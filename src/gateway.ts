// Config → a running gateway: every stage made and wired by hand, in the order a message meets them.
import { randomBytes, randomUUID } from 'node:crypto';
import { availableParallelism, hostname } from 'node:os';
import type { McpServer } from '@modelcontextprotocol/server';
import type { Channel } from './channels/channel.ts';
import type { Config } from './config/schema.ts';
import { Outbox } from './delivery/outbox.ts';
import type { Accepted } from './engine/accept.ts';
import { Engine, type Clock, type Delta } from './engine/engine.ts';
import { InterlaneError, reasonOf } from './errors.ts';
import { createBus, type Bus } from './events/bus.ts';
import type { FeedEvent } from './protocol/event.ts';
import { agentId as agentIdOf } from './protocol/ids.ts';
import { keyContext } from './rules/agents.ts';
import { compileWorld, type World } from './rules/decide.ts';
import { compileRoutes, type Routes } from './rules/route.ts';
import { formatSessionKey, mainKey, requireSessionKey } from './rules/session-key.ts';
import { guestRunner, Guests } from './runtime/guest.ts';
import { languageModel } from './runtime/language-model.ts';
import { modelRunner } from './runtime/loop.ts';
import { Models, type Found, type ModelSettings } from './runtime/models.ts';
import { scriptedModel, type Script } from './runtime/scripted.ts';
import { isLoopback } from './server/access.ts';
import { Auth } from './server/auth.ts';
import { writeCliFile } from './server/cli-file.ts';
import { Events, LiveRuns } from './server/events.ts';
import { createHttp } from './server/http.ts';
import { createMcpDoor, mcpPath } from './server/mcp.ts';
import { createMethods } from './server/methods.ts';
import { startServer } from './server/server.ts';
import { Sockets } from './server/ws.ts';
import { createInbound, type InboundMessage } from './session/inbound.ts';
import { createSessions } from './session/sessions.ts';
import type { Store } from './store/contract.ts';
import type { SessionRow } from './store/rows.ts';
import { lockState } from './store/sqlite/lock.ts';
import { startIndexer } from './store/sqlite/indexer.ts';
import { openSqliteStore } from './store/sqlite/open.ts';
import { Search } from './store/sqlite/search.ts';
import { allTools } from './tools/all.ts';
import type { Tool } from './tools/define.ts';
import { createInvoker } from './tools/invoke.ts';
import { sessionsSearch } from './tools/sessions-search.ts';

export interface GatewayOptions {
  stateDir: string;
  channels?: Channel[];
  /** What the scripted model follows, until a real model is configured. */
  script?: Script;
  /** Told what an operator should know. */
  warn?(message: string): void;
  /** Told when nobody knows what is on the disk; the process must end and start again. */
  fatal?(error: InterlaneError): void;
  onDelta?(delta: Delta): void;
  /** For tests: made-up time. */
  clock?: Clock;
  /** For tests: fewer slots than the machine would get. */
  caps?: Engine['caps'];
  /** For tests that search nothing: false saves the thread that keeps the index. */
  search?: boolean;
  /** More tools than the built-in ones. */
  tools?: Tool[];
  /** A model that was found on this machine, for when none is configured. */
  found?: Found | undefined;
  /** For tests: what is served over MCP beside a session's own tools. */
  extendMcp?(server: McpServer): void;
  /** Where clients connect; without it nobody can. */
  listen?: Listen;
}

interface Listen {
  /** Instead of what the config says. */
  host?: string | undefined;
  port?: number | undefined;
  /** A secret to accept as an admin's, for containers and tests. */
  token?: string | undefined;
  version: string;
}

export interface Gateway {
  world: World;
  routes: Routes;
  /** What the config says that is probably not meant. */
  warnings: string[];
  store: Store<FeedEvent>;
  bus: Bus;
  engine: Engine;
  /** What is on its way out, and an operator's word on what nobody knows the outcome of. */
  outbox: Outbox;
  /** A message from outside; resolves when it is safe. */
  receive(message: InboundMessage): Promise<Accepted>;
  /** The door for clients, if it was asked for. */
  server?: Door;
  close(): Promise<void>;
}

interface Door {
  url: string;
  port: number;
  /** The admin's secret, at the very first start; it is shown now or never. */
  adminToken: string | undefined;
  signInUrl: string;
}

/** How long live turns may go on after a stop was asked for. */
const graceMs = 5_000;

/** The longest a timer can be set for; whoever wakes early looks at the time anyway. */
const longestTimerMs = 2 ** 31 - 1;

export const systemClock: Clock = {
  now: () => Date.now(),
  elapsed: () => performance.now(),
  after(ms, work) {
    const timer = setTimeout(work, Math.min(ms, longestTimerMs));
    return () => clearTimeout(timer);
  },
};

export async function startGateway(config: Config, options: GatewayOptions): Promise<Gateway> {
  const { stateDir, clock = systemClock, warn = () => {}, fatal = () => process.exit(70) } = options;
  const newId = () => randomUUID();
  const cores = availableParallelism();

  // 1. the policy door and routing: pure, from the config alone
  const world = compileWorld(config);
  const routes = compileRoutes(config, world.agents);

  // 2. the state: ours alone, then the store in it
  const unlock = lockState(stateDir, { pid: process.pid, host: hostname(), startedAt: clock.now() });
  const parts = { afterTick: (work: () => void) => void setImmediate(work), elapsed: () => clock.elapsed(), fatal };
  let store: Store<FeedEvent>;
  try {
    store = openSqliteStore<FeedEvent>(stateDir, config.store.durability, parts);
  } catch (thrown) {
    unlock();
    throw thrown;
  }

  // 3. events, published after their commit
  const bus = createBus(store);

  // 4. the words of transcripts, indexed beside the store by a thread of its own
  const search = new Search(stateDir);
  const indexer = options.search === false ? undefined : startIndexer(stateDir, (error) => warn(`search index stopped: ${error.message}`));
  const undoIndexing = store.onCommit((events) => {
    if (events.some((event) => event.kind === 'entry')) indexer?.wake();
  });

  // Failures that nobody is waiting for end up with the operator.
  const report = (what: string, error: unknown) => warn(`${what} failed: ${reasonOf(error)}`);
  const eventParts = {
    store,
    bus,
    world: () => world,
    now: () => clock.now(),
    after: (ms: number, work: () => void) => clock.after(ms, work),
    failed: (error: unknown) => report('live events', error),
  };
  const live = new LiveRuns(eventParts);

  // 5. the engine; its runner is made below, from the tools that need the engine
  const engine: Engine = new Engine(
    {
      store,
      clock,
      newId,
      runner: (session) => runner(session),
      caps: options.caps ?? {
        main: config.agents.defaults.maxConcurrent ?? 4 * cores,
        nested: 4 * cores,
        subagent: config.agents.defaults.subagents.maxConcurrent,
        cron: 4,
      },
      keepMs: config.store.keepDays * 86_400_000,
      // Without the thread the index is made good at the next start with it.
      forget: (sessionPks) => indexer?.forget(sessionPks) ?? Promise.resolve(false),
      host: { bootId: newId(), pid: process.pid, name: hostname() },
      warn,
      onDelta: (delta) => {
        live.delta(delta);
        options.onDelta?.(delta);
      },
    },
    world,
  );

  // 6. tools, and 7. the runtime that calls them
  const { maxPingPongTurns } = config.session.agentToAgent;
  const guests: Guests = new Guests({
    store,
    engine,
    now: () => clock.now(),
    after: (ms, work) => clock.after(ms, work),
    replyMs: config.guests.replyMinutes * 60_000,
  });
  const tools = [...allTools, sessionsSearch(search), ...(options.tools ?? [])];
  const toolParts = {
    store,
    engine,
    now: () => clock.now(),
    maxPingPongTurns,
    toolLevels: config.classification.tools,
    online: (key: string) => guests.online(key),
  };
  const invoker = createInvoker(tools, toolParts);
  const guestInvoker = createInvoker([...tools, ...guests.tools], toolParts);
  const models = new Models(modelSettings(config), options.found);
  const pause = (ms: number, signal: AbortSignal) => sleep(clock, ms, signal);
  const scripted = modelRunner(scriptedModel({ ...(options.script ? { script: options.script } : {}), sleep: pause }), invoker);
  const entryOf = new Map(config.agents.list.map((entry) => [agentIdOf(entry.id), entry]));
  const thinking = modelRunner(
    languageModel({
      models,
      setting: ({ agentId, sessionKey }) => ({
        agentId,
        name: entryOf.get(agentId)?.name,
        instructions: entryOf.get(agentId)?.instructions,
        sessionKey,
        visibility: world.visibility,
        date: new Date(clock.now()).toISOString().slice(0, 10),
      }),
      thinking: (agentId) => entryOf.get(agentId)?.thinking ?? config.agents.defaults.thinking,
      sleep: pause,
      after: (ms, work) => clock.after(ms, work),
      warn,
    }),
    invoker,
  );
  const isGuest = ({ key, agent }: SessionRow) => requireSessionKey(key, keyContext(world.agents, agent)).shape === 'guest';
  const runner = (session: SessionRow) => {
    if (isGuest(session)) return guestRunner;
    return models.any && entryOf.get(session.agent)?.runtime !== 'scripted' ? thinking : scripted;
  };
  /** What a session may call from outside. */
  const toolsOf = (session: SessionRow) => (isGuest(session) ? { invoker: guestInvoker, guest: true } : { invoker, guest: false });

  // 8. the way out
  const channels = new Map((options.channels ?? []).map((channel) => [channel.name, channel]));
  const outbox = new Outbox({ store, clock, world, channels, warn });

  // 9. the way in
  const receive = createInbound({
    routes,
    engine,
    now: () => clock.now(),
    newId,
    channelLevels: config.classification.channels,
    collectMs: config.session.queue.collectMs,
    budgetMs: config.agents.defaults.timeoutSeconds * 1_000,
  });

  // 10. the doors: who may, what they may, and the port
  const sessions = createSessions({
    store,
    engine,
    now: () => clock.now(),
    newId,
    channelLevel: (channel) => config.classification.channels[channel] ?? 'PUBLIC',
  });
  const openDoor = async (listen: Listen): Promise<Door & { close(): Promise<void> }> => {
    const { host = config.gateway.host, port = config.gateway.port } = listen;
    const auth = new Auth({ store, now: () => clock.now(), secret: (bytes) => randomBytes(bytes).toString('base64url') });
    if (!isLoopback(host) && listen.token === undefined && !(await auth.hasOperator()))
      throw new InterlaneError(
        'PORT_UNUSABLE',
        `address ${host} is open to others, and there is no token yet; set INTERLANE_TOKEN, or start once on this machine only to get one`,
      );
    const adminToken = await auth.start();
    if (listen.token !== undefined) auth.accept('environment', listen.token);
    const events = new Events(eventParts);
    const began = clock.elapsed();
    const bootId = newId();
    let url = '';
    const signInUrl = (code: string) => `${url}/signin?code=${code}`;
    const uptimeMs = () => Math.round(clock.elapsed() - began);
    const methods = createMethods({
      store,
      engine,
      sessions,
      invoker,
      auth,
      now: () => clock.now(),
      elapsed: () => clock.elapsed(),
      newId,
      routes: () => routes,
      channels: new Set(channels.keys()),
      position: () => events.position(),
      signInUrl,
      mcpUrl: () => `${url}${mcpPath}`,
      online: (key) => guests.online(key),
      facts: () => ({
        version: listen.version,
        uptimeMs: uptimeMs(),
        pid: process.pid,
        connections: sockets.size,
        store: { kind: 'sqlite', durability: config.store.durability, path: stateDir },
        model: models.choices(world.agents.defaultId, undefined)[0]?.ref ?? 'scripted',
        warnings: routes.warnings,
      }),
    });
    const sockets = new Sockets({
      auth,
      methods,
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
            defaultAgentId: world.agents.defaultId,
            mainKey: world.agents.mainKey,
            mainSessionKey: formatSessionKey(mainKey(keyContext(world.agents, world.agents.defaultId))),
            scope: config.session.scope,
          },
        },
      }),
      report,
    });
    const mcp = createMcpDoor({
      store,
      auth,
      version: listen.version,
      newId,
      after: (ms, work) => clock.after(ms, work),
      world: () => world,
      toolsOf,
      report,
      extend: options.extendMcp,
    });
    const app = createHttp({ auth, report, ready: () => closing === undefined });
    const server = await startServer({
      host,
      port,
      names: new Set(config.gateway.names.map((name) => name.toLowerCase())),
      fetch: (request, env) => (new URL(request.url).pathname === mcpPath ? mcp.fetch(request, env) : app.fetch(request, env)),
      sockets,
      after: (ms, work) => clock.after(ms, work),
    });
    ({ url } = server);
    live.start();
    // This machine's own user needs no setup: the address and a secret that lives as long as this process.
    const secret = randomBytes(32).toString('base64url');
    auth.accept('cli', secret);
    const forget = writeCliFile(stateDir, { url, token: secret, pid: process.pid });
    return {
      url,
      port: server.port,
      adminToken,
      signInUrl: signInUrl(auth.signInCode().code),
      async close() {
        forget();
        live.close();
        await mcp.close();
        await server.close('the gateway is stopping');
      },
    };
  };

  let door: (Door & { close(): Promise<void> }) | undefined;
  const closeAll = async () => {
    await door?.close();
    await engine.close(graceMs);
    await outbox.close();
    guests.close();
    bus.close();
    undoIndexing();
    await indexer?.close();
    search.close();
    await store.close();
    unlock();
  };
  let closing: Promise<void> | undefined;
  const close = () => (closing ??= closeAll());
  try {
    await engine.start(mainSessions(world));
    await outbox.start();
    if (options.listen) door = await openDoor(options.listen);
  } catch (thrown) {
    await close();
    throw thrown;
  }
  return { world, routes, warnings: routes.warnings, store, bus, engine, outbox, receive, close, ...(door ? { server: door } : {}) };
}

function modelSettings({ models, agents }: Config): ModelSettings {
  const { model, fallbacks } = agents.defaults;
  return {
    providers: models.providers,
    model,
    fallbacks,
    agents: Object.fromEntries(agents.list.map((entry) => [agentIdOf(entry.id), entry.model])),
  };
}

/** Every configured agent's main session exists from the start, so that it can be addressed on day one. */
function mainSessions({ agents }: World) {
  const ids = new Set([agents.defaultId, ...agents.byId.keys()]);
  return [...ids].map((id) => ({ key: formatSessionKey(mainKey(keyContext(agents, id))), made: { agent: id, kind: 'main' } }));
}

function sleep(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const stop = () => {
      cancel();
      reject(signal.reason as Error);
    };
    const cancel = clock.after(ms, () => {
      signal.removeEventListener('abort', stop);
      resolve();
    });
    if (signal.aborted) stop();
    else signal.addEventListener('abort', stop, { once: true });
  });
}
