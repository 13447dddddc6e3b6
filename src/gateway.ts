// Config → a running gateway: every stage made and wired by hand, in the order a message meets them.
import { randomBytes, randomUUID } from 'node:crypto';
import { existsSync } from 'node:fs';
import { availableParallelism, homedir, hostname } from 'node:os';
import { join } from 'node:path';
import type { McpServer } from '@modelcontextprotocol/server';
import type { Channel } from './channels/channel.ts';
import { sleep, systemClock, type Clock } from './clock.ts';
import { changeOf, type Change } from './config/change.ts';
import type { Config } from './config/schema.ts';
import { Outbox } from './delivery/outbox.ts';
import type { Accepted } from './engine/accept.ts';
import { Engine, type Delta } from './engine/engine.ts';
import { asFlow } from './engine/flow.ts';
import { settingsOf } from './engine/policy.ts';
import { exchangeFlow } from './flows/exchange.ts';
import { sendToSession } from './flows/send.ts';
import type { Runner } from './engine/runner.ts';
import { InterlaneError, reasonOf } from './errors.ts';
import { createBus, type Bus } from './events/bus.ts';
import { OutsideServers } from './mcp/outside.ts';
import { agentId as agentIdOf } from './protocol/ids.ts';
import type { Level } from './protocol/labels.ts';
import { keyContext } from './rules/agents.ts';
import { compileWorld, type World } from './rules/decide.ts';
import { compileRoutes, type Routes } from './rules/route.ts';
import { formatSessionKey, mainKey, requireSessionKey } from './rules/session-key.ts';
import { guestRunner, Guests } from './runtimes/guest/guest.ts';
import { languageModel } from './runtimes/model/language-model.ts';
import { modelRunner } from './runtimes/model/loop.ts';
import type { Choice, Found } from './runtimes/model/choice.ts';
import { Models, type ModelSettings } from './runtimes/model/models.ts';
import { scriptedModel, type Script } from './runtimes/scripted/scripted.ts';
import { LiveRuns } from './server/events.ts';
import { logEvents, type Log } from './observe/log.ts';
import { Metrics } from './observe/metrics.ts';
import { createInbound, type InboundMessage } from './sessions/inbound.ts';
import { openDoor, type Door, type Listen } from './server/door.ts';
import { createSessions } from './sessions/sessions.ts';
import type { Store } from './store/contract.ts';
import type { SessionRow } from './store/rows.ts';
import { lockState } from './store/sqlite/lock.ts';
import { startIndexer } from './store/sqlite/indexer.ts';
import { openSqliteStore } from './store/sqlite/open.ts';
import { Search } from './store/sqlite/search.ts';
import { builtInTools } from './tools/all.ts';
import type { Tool } from './tools/define.ts';
import { createInvoker, type Invoker } from './tools/invoke.ts';
import { forgetWorkspaces, workspaceDirs } from './tools/workspaces.ts';

export interface GatewayOptions {
  stateDir: string;
  channels?: Channel[];
  /** What the scripted model follows, until a real model is configured. */
  script?: Script;
  /** Told what an operator should know. */
  warn?(message: string): void;
  /** Told what happens, line by line. */
  log?: Log;
  /** Told when nobody knows what is on the disk; the process must end and start again. */
  fatal?(error: InterlaneError): void;
  onDelta?(delta: Delta): void;
  /** For tests: made-up time. */
  clock?: Clock;
  /** How long live turns and messages on their way out may go on after `close()` is called. */
  graceMs?: number;
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

export interface Gateway {
  world: World;
  routes: Routes;
  /** What the config says that is probably not meant. */
  warnings: string[];
  store: Store;
  bus: Bus;
  engine: Engine;
  /** Which tools a session gets, and the one way to call them. */
  invoker: Invoker;
  /** What is on its way out, and an operator's word on what nobody knows the outcome of. */
  outbox: Outbox;
  /** A message from outside; resolves when it is safe. */
  receive(message: InboundMessage): Promise<Accepted>;
  /** Takes up another config where that is safe, from the next transaction on; says what waits for a restart. */
  reload(config: Config): Promise<Change>;
  /** What answers an agent's sessions that set nothing else; undefined where it is the scripted model. */
  modelOf(agentId: string): Choice | undefined;
  /** The door for clients, if it was asked for. */
  server?: Door;
  close(): Promise<void>;
}

export async function startGateway(initial: Config, options: GatewayOptions): Promise<Gateway> {
  const { stateDir, clock = systemClock, warn = () => {}, fatal = () => process.exit(70), graceMs = 5_000 } = options;
  const newId = () => randomUUID();
  const cores = availableParallelism();

  // 1. the policy door and routing: pure, from the config alone
  const metrics = new Metrics();
  const worldOf = (from: Config): World => ({ ...compileWorld(from), decided: metrics.decided });
  let config = initial;
  let world = worldOf(config);
  let routes = compileRoutes(config, world.agents);

  // the models, from the config and what was found; what it names must be there
  const modelsOf = (from: Config) => {
    const made = new Models(modelSettings(from), from.models.discover ? options.found : undefined);
    const unusable = made.problems();
    if (unusable.length > 0) throw new InterlaneError('CONFIG_INVALID', unusable.join('\n'));
    return made;
  };
  let models = modelsOf(config);

  const entryOf = (agentId: string) => config.agents.list.find((entry) => agentIdOf(entry.id) === agentId);
  const workspacesOf = (from: Config, within: World) => workspaceDirs(within, from.agents.list, { stateDir, home: homedir() });
  let workspaceDir = workspacesOf(config, world);

  // 2. the state: ours alone, then the store in it
  const unlock = lockState(stateDir, { pid: process.pid, host: hostname(), startedAt: clock.now() });
  const parts = {
    afterTick: (work: () => void) => void setImmediate(work),
    elapsed: () => clock.elapsed(),
    fatal,
    observe: metrics.committed,
  };
  let store: Store;
  try {
    store = openSqliteStore(stateDir, config.store.durability, parts);
  } catch (thrown) {
    unlock();
    throw thrown;
  }

  // 3. events, published after their commit
  const bus = createBus(store);
  const undoCounting = store.follow(metrics.heard);

  // 4. the words of transcripts, indexed beside the store by a thread of its own
  const search = new Search(stateDir);
  const indexer = options.search === false ? undefined : startIndexer(stateDir, (error) => warn(`search index stopped: ${error.message}`));
  const undoIndexing = store.follow((events) => {
    if (events.some((event) => event.kind === 'entry')) indexer?.wake();
  });
  const catchUp = () => {
    try {
      if (indexer && !indexer.started && search.behind()) indexer.wake();
    } catch (thrown) {
      warn(`search index stopped: ${reasonOf(thrown)}`);
    }
  };

  // Failures that nobody is waiting for end up with the operator.
  const report = (what: string, error: unknown) => warn(`${what} failed: ${reasonOf(error)}`);
  const isGuest = ({ key, agent }: SessionRow) => requireSessionKey(key, keyContext(world.agents, agent)).shape === 'guest';
  const shown = {
    online: (key: string) => guests.online(key),
    modelOf: (row: SessionRow) => engine.modelOf(row),
    transcriptPath: (sessionId: string) => {
      const file = join(stateDir, 'transcripts', `${sessionId}.jsonl`);
      return existsSync(file) ? file : undefined;
    },
  };
  const eventParts = {
    store,
    bus,
    world: () => world,
    shown,
    now: () => clock.now(),
    after: (ms: number, work: () => void) => clock.after(ms, work),
    failed: (error: unknown) => report('live events', error),
  };
  const live = new LiveRuns(eventParts);

  // 5. the engine; its runner is made below, from the tools that need the engine
  const flows = new Map([exchangeFlow].map((flow) => [flow.kind, asFlow(flow)]));
  const current = () => ({ world, flows });
  const engine: Engine = new Engine({
    current,
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
    forget: async (sessionPks) => {
      await forgetWorkspaces(stateDir, store);
      return (await indexer?.forget(sessionPks)) ?? false;
    },
    host: { bootId: newId(), pid: process.pid, name: hostname() },
    warn,
    modelOf: (session) =>
      isGuest(session) || entryOf(session.agent)?.runtime === 'scripted' ? undefined : models.view(session.agent, settingsOf(session)),
    onDelta: (delta) => {
      live.delta(delta);
      options.onDelta?.(delta);
    },
  });

  // 6. tools, and 7. the runtime that calls them
  const pause = (ms: number, signal: AbortSignal) => sleep(clock, ms, signal);
  const scripted = scriptedModel({ ...(options.script ? { script: options.script } : {}), sleep: pause });
  const language = languageModel({
    get models() {
      return models;
    },
    setting: ({ agentId, sessionKey }) => ({
      agentId,
      name: entryOf(agentId)?.name,
      instructions: entryOf(agentId)?.instructions,
      sessionKey,
      visibility: world.visibility,
      date: new Date(clock.now()).toISOString().slice(0, 10),
    }),
    sleep: pause,
    after: (ms, work) => clock.after(ms, work),
    warn,
  });
  const answerer = (agentId: string, model: string | undefined) =>
    entryOf(agentId)?.runtime !== 'scripted' && models.answers(agentId, model) ? language : scripted;
  const modelOf = (agentId: string) => (answerer(agentId, undefined) === language ? models.choices(agentId, undefined)[0] : undefined);
  const guests: Guests = new Guests({
    store,
    engine,
    now: () => clock.now(),
    after: (ms, work) => clock.after(ms, work),
    get replyMs() {
      return config.guests.replyMinutes * 60_000;
    },
  });
  const send = sendToSession(current);
  const outside = new OutsideServers(config.mcp.servers, { clock, warn });
  const tools = [...builtInTools({ search }), ...(options.tools ?? [])];
  const invoker = createInvoker([...tools, ...guests.tools], {
    store,
    engine,
    send: (args) => store.write(send, args, { bytes: args.text.length }),
    now: () => clock.now(),
    get maxPingPongTurns() {
      return config.session.agentToAgent.maxPingPongTurns;
    },
    get toolLevels() {
      return config.classification.tools;
    },
    transcriptPath: shown.transcriptPath,
    online: shown.online,
    workspaceDir: (session) => workspaceDir(session),
    recap: (session, focus, prompt, signal) => {
      const { agent: agentId, key: sessionKey } = session;
      const settings = settingsOf(session);
      const request = { agentId, sessionKey, prompt, tools: [], settings };
      return answerer(agentId, settings.model).recap(request, { signal, delta: () => {}, again: () => {} }, focus);
    },
    outside,
  });
  const runners = new Map([scripted, language].map((model) => [model, modelRunner(model, invoker)]));
  // A session can have a model where its agent has none.
  const either: Runner = {
    run: (turn) => runners.get(answerer(turn.agentId, turn.settings.model))!.run(turn),
  };
  const runner = (session: SessionRow) => {
    if (isGuest(session)) return guestRunner;
    const usual = answerer(session.agent, undefined);
    return usual === language || entryOf(session.agent)?.runtime === 'scripted' ? runners.get(usual)! : either;
  };

  // 8. the way out
  const channels = new Map((options.channels ?? []).map((channel) => [channel.name, channel]));
  const outbox = new Outbox({
    store,
    clock,
    current,
    channels,
    warn,
  });

  // 9. the way in
  const channelLevel = (channel: string) => (world.channelLevels.get(channel) ?? 'PUBLIC') as Level;
  const budgetMs = () => config.agents.defaults.timeoutSeconds * 1_000;
  const receive = createInbound({
    get routes() {
      return routes;
    },
    engine,
    now: () => clock.now(),
    newId,
    channelLevel,
    get collectMs() {
      return config.session.queue.collectMs;
    },
    get budgetMs() {
      return budgetMs();
    },
  });

  // 10. the doors: who may, what they may, and the port
  const sessions = createSessions({
    store,
    engine,
    now: () => clock.now(),
    newId,
    channelLevel,
    budgetMs,
    get models() {
      return models;
    },
  });

  let door: (Door & { close(): Promise<void> }) | undefined;
  const undoLog = options.log ? logEvents(bus, options.log) : () => {};
  const closeAll = async () => {
    await door?.close();
    await engine.close(graceMs);
    await outside.close();
    await outbox.close(graceMs);
    undoLog();
    guests.close();
    bus.close();
    undoCounting();
    undoIndexing();
    await indexer?.close();
    search.close();
    await store.close();
    unlock();
  };
  const reload = async (next: Config): Promise<Change> => {
    const change = changeOf(config, next);
    const nextModels = modelsOf(next);
    const nextWorld = worldOf({ ...next, mcp: config.mcp });
    const nextWorkspaceDir = workspacesOf(next, nextWorld);
    // What a running gateway cannot take up stays as it was, so that nobody acts on half of it.
    config = { ...next, gateway: config.gateway, store: config.store, mcp: config.mcp };
    world = nextWorld;
    routes = compileRoutes(config, world.agents);
    models = nextModels;
    workspaceDir = nextWorkspaceDir;
    await engine.openMains(mainSessions(world));
    return change;
  };
  let closing: Promise<void> | undefined;
  const close = () => (closing ??= closeAll());
  try {
    const member = await engine.start(mainSessions(world));
    await outbox.start(member);
    if (options.listen)
      door = await openDoor(options.listen, {
        stateDir,
        clock,
        store,
        bus,
        engine,
        sessions,
        invoker,
        tools,
        shown,
        events: eventParts,
        live,
        metrics,
        channels: new Set(channels.keys()),
        newId,
        secret: (bytes) => randomBytes(bytes).toString('base64url'),
        config: () => config,
        routes: () => routes,
        model: () => modelOf(world.agents.defaultId)?.ref ?? 'scripted',
        warnings: () => [...routes.warnings, ...outside.warnings()],
        stopping: () => closing !== undefined,
        isGuest,
        extendMcp: options.extendMcp,
        report,
      });
    catchUp();
  } catch (thrown) {
    await close();
    throw thrown;
  }
  return {
    get world() {
      return world;
    },
    get routes() {
      return routes;
    },
    get warnings() {
      return routes.warnings;
    },
    store,
    bus,
    engine,
    invoker,
    outbox,
    receive,
    reload,
    modelOf,
    close,
    ...(door ? { server: door } : {}),
  };
}

function modelSettings({ models, agents }: Config): ModelSettings {
  const { model, fallbacks } = agents.defaults;
  const levels = new Map(agents.list.map((entry) => [agentIdOf(entry.id), entry.thinking]));
  return {
    providers: models.providers,
    model,
    fallbacks,
    agents: new Map(agents.list.map((entry) => [agentIdOf(entry.id), entry.model])),
    thinking: (agentId) => levels.get(agentId) ?? agents.defaults.thinking,
  };
}

/** Every configured agent's main session exists from the start, so that it can be addressed on day one. */
function mainSessions({ agents }: World) {
  const ids = new Set([agents.defaultId, ...agents.byId.keys()]);
  return [...ids].map((id) => ({ key: formatSessionKey(mainKey(keyContext(agents, id))), made: { agent: id, kind: 'main' } }));
}
