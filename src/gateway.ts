// Config → a running gateway: every stage made and wired by hand, in the order a message meets them.
import { randomBytes, randomUUID } from 'node:crypto';
import { availableParallelism, hostname } from 'node:os';
import { join } from 'node:path';
import { systemClock, watchJumps } from './clock.ts';
import type { Config } from './config/schema.ts';
import { Outbox } from './delivery/outbox.ts';
import type { Gateway, GatewayOptions } from './embed.ts';
import { Engine } from './engine/engine.ts';
import { Verdicts } from './engine/verdicts.ts';
import { reasonOf } from './errors.ts';
import { createBus, type Bus } from './events/bus.ts';
import { sendToSession } from './flows/send.ts';
import { LiveSetup } from './live-setup.ts';
import { OutsideServers } from './mcp/outside.ts';
import { logEvents } from './observe/log.ts';
import { Metrics } from './observe/metrics.ts';
import { StoreHealth } from './observe/store-health.ts';
import { openStore } from './open-store.ts';
import type { RunClass } from './protocol/run.ts';
import { keyContext } from './rules/agents.ts';
import type { World } from './rules/decide.ts';
import { formatSessionKey, mainKey } from './rules/session-key.ts';
import { Guests } from './runtimes/guest/guest.ts';
import { Runtimes } from './runtimes/runtimes.ts';
import { openDoor, type Door, type Listen } from './server/door.ts';
import { LiveRuns } from './server/live-runs.ts';
import { createInbound } from './sessions/inbound.ts';
import { createSessions } from './sessions/sessions.ts';
import { createTranscripts, transcriptPath } from './sessions/transcripts.ts';
import type { CurrentSetup } from './setup.ts';
import type { Store } from './store/contract.ts';
import type { SessionRow } from './store/rows.ts';
import { searchTrouble } from './store/search.ts';
import { inMemory, searchName } from './store/sqlite/search-file.ts';
import { SqliteSearch } from './store/sqlite/search.ts';
import { probeStore, timelineName } from './store/tables/meta.ts';
import { builtInTools } from './tools/all.ts';
import { createInvoker, type Invoker } from './tools/invoke.ts';
import { forgetWorkspaces } from './tools/workspaces.ts';
import { Pacer } from './pace.ts';
import type { Report } from './warn.ts';

/** As large as an ordinary turn. */
const probeBytes = 256 * 1024;

/** The parts of a gateway, for those who look inside: the demo, tests and benchmarks. */
export interface Parts {
  current: CurrentSetup;
  store: Store;
  bus: Bus;
  engine: Engine;
  invoker: Invoker;
}

export async function assemble(initial: Config, options: GatewayOptions): Promise<{ gateway: Gateway; parts: Parts }> {
  const { stateDir, warn = () => {}, graceMs = 5_000 } = options;
  const clock = watchJumps(options.clock ?? systemClock, (ms) => clockJumped(ms));
  let clockJumped: (ms: number) => void = () => {};
  const now = () => clock.now();
  const after = (ms: number, work: () => void) => clock.after(ms, work);
  const afterTick = (work: () => void) => void setImmediate(work);
  const newId = () => randomUUID();
  // A failure that no caller waits for goes to the operator.
  const report: Report = (what, error, about) => health.report(`${what} failed`, error, about);

  const pacer = new Pacer({
    afterTick,
    // A next tick that a microtask asks for runs when no microtask is left.
    afterPiece: (work) => queueMicrotask(() => process.nextTick(work)),
    elapsed: () => clock.elapsed(),
  });

  // 1. what follows from the config alone
  const metrics = new Metrics();
  const verdicts: Verdicts = new Verdicts(() => current());
  const setupParts = {
    stateDir,
    found: options.found,
    onDecision: metrics.countDecision,
    findText: verdicts.find,
    known: { tools: (options.tools ?? []).map(({ name }) => name), channels: (options.channels ?? []).map(({ name }) => name) },
  };
  const setups = new LiveSetup({ config: initial, places: options.places }, setupParts);
  const { current } = setups;
  const { config } = current();

  // 2. the state and the store in it
  const probe = async () => {
    // A commit of a few bytes may find room where the next message does not.
    await store.write(probeStore, { value: 'x'.repeat(probeBytes) }, { urgent: true });
    await store.write(probeStore, { value: String(now()) }, { urgent: true });
  };
  const health = new StoreHealth({ clock, warn, probe });
  const failed: Report = (what, error, about) => health.report(what, error, about);
  const {
    store: opened,
    cursors,
    unlock,
    lost,
  } = await openStore(config, options, {
    clock,
    afterTick,
    random: randomBytes,
    observe: (commit) => {
      metrics.countCommit(commit);
      health.look();
    },
    trouble: (trouble) => health.failed(trouble),
  });
  health.watch(lost);
  const store = verdicts.over(opened);

  // 3. events, in the order of the feed
  const bus = createBus(store);
  const undoCounting = store.follow(metrics.countEvents);
  const undoLog = options.log ? logEvents(bus, options.log) : () => {};

  // 4. the words of transcripts, in an index beside the store; and transcripts as files, once a session is archived
  const search = new SqliteSearch({
    store,
    path: options.store ? inMemory : join(stateDir, searchName),
    failed: (error) => warn(`${searchTrouble}, and is tried again: ${reasonOf(error)}`),
    recovered: () => warn('search index can be written again'),
    after,
    timeline: timelineName,
  });
  const indexes = options.search !== false;
  const undoIndexing = store.follow((events) => {
    if (indexes && events.some((event) => event.kind === 'entry')) search.wake();
  });

  const transcripts = createTranscripts({ stateDir, store, report });
  const undoTranscripts = store.follow(transcripts.archived);

  // 5. what answers: scripted and language models, guests
  const runtimes = new Runtimes({ current, clock, script: options.script, warn });
  const liveFacts = {
    modelOf: (row: SessionRow) => runtimes.viewOf(row),
    online: (key: string) => guests.online(key),
    transcriptPath: (sessionId: string) => transcriptPath(stateDir, sessionId),
  };

  // 6. the engine; its runners need the tools, and the tools need the engine
  const eventParts = {
    store,
    bus,
    cursors,
    world: () => current().world,
    liveFacts,
    now,
    after,
    failed: (error: unknown) => report('live events', error),
  };
  const live = new LiveRuns(eventParts);
  const engine: Engine = new Engine({
    current,
    store,
    clock,
    newId,
    runner: (session) => runnerOf(session),
    caps: options.caps ?? capsOf(config),
    keepMs: config.store.keepDays * 86_400_000,
    forget: async (purged) => {
      await forgetWorkspaces(stateDir, store);
      await transcripts.forget(purged.flatMap(({ id }) => id ?? []));
      return indexes && (await search.forget(purged.map(({ pk }) => pk)));
    },
    host: { bootId: newId(), pid: process.pid, name: hostname() },
    warn,
    failed,
    onDelta: (delta) => {
      live.delta(delta);
      options.onDelta?.(delta);
    },
    onResumed: (run) => live.resumed(run),
  });

  // 7. tools, and the runners that call them
  const guests: Guests = new Guests({ store, engine, now, after, replyMs: () => current().config.guests.replyMinutes * 60_000 });
  const outside = new OutsideServers(config.mcp.servers, { clock, warn });
  const tools = [...builtInTools({ search }), ...(options.tools ?? [])];
  const send = sendToSession(current);
  const invoker = createInvoker([...tools, ...guests.tools], {
    current,
    verdicts,
    store,
    cursors,
    engine,
    send: (args) => {
      const by = 'sessionPk' in args.from ? `session:${args.from.sessionPk}` : undefined;
      return store.write(send, args, { bytes: args.text.length, by });
    },
    now,
    ...liveFacts,
    workspace: (session) => current().workspace(session),
    recap: (session, focus, prompt, signal) => runtimes.recap(session, focus, prompt, signal),
    outside,
    pacer,
  });
  const runnerOf = runtimes.runners(invoker);

  // 8. out to channels, and in from them
  const channels = new Map((options.channels ?? []).map((channel) => [channel.name, channel]));
  const outbox = new Outbox({ store, clock, current, channels, warn, failed });
  const receive = createInbound({ current, engine, now, newId, warn });

  // 9. the port for clients
  const sessions = createSessions({ current, store, engine, now, newId });
  let closing: Promise<void> | undefined;
  const open = (listen: Listen) =>
    openDoor(listen, {
      stateDir,
      clock,
      current,
      store,
      pacer,
      bus,
      engine,
      sessions,
      invoker,
      verdicts,
      tools,
      liveFacts,
      events: eventParts,
      live,
      metrics,
      channels: new Set(channels.keys()),
      newId,
      secret: (bytes) => randomBytes(bytes).toString('base64url'),
      model: () => runtimes.choiceOf(current().world.agents.defaultId)?.ref ?? 'scripted',
      warnings: () => [
        ...health.warnings(),
        ...(options.notes?.() ?? []),
        ...current().warnings,
        ...outside.warnings(),
        ...searchWarnings(search.trouble()),
      ],
      searchable: () => search.trouble() === undefined,
      pendingConfig: () => setups.pending,
      stopping: () => closing !== undefined,
      storeWell: () => health.well,
      isGuest: (session) => runtimes.isGuest(session),
      extendMcp: options.extendMcp,
      report,
    });

  // 10. start in this order, stop in the other
  let door: (Door & { close(): Promise<void> }) | undefined;
  const closeAll = () => {
    clockJumped = () => {};
    return eachEvenIfOneFails([
      () => door?.close(),
      () => engine.close(graceMs),
      () => outside.close(),
      () => outbox.close(graceMs),
      undoLog,
      () => guests.close(),
      () => bus.close(),
      undoCounting,
      undoIndexing,
      undoTranscripts,
      () => transcripts.close(),
      () => search.close(),
      () => health.close(),
      () => store.close(),
      () => verdicts.close(),
      unlock,
    ]);
  };
  const close = () => (closing ??= closeAll());
  try {
    clockJumped = (ms) => void engine.clockJumped(ms).catch((thrown: unknown) => report('move of due times', thrown));
    await outbox.doubtRestored(); // before the engine makes deliveries, which no backup has
    const member = await engine.start(mainSessions(current().world));
    await outbox.start(member);
    if (options.listen) door = await open(options.listen);
    if (indexes) search.wake();
  } catch (thrown) {
    await close().catch(() => {}); // on a disk that is full, closing fails of the same cause
    throw thrown;
  }
  const gateway: Gateway = {
    get warnings() {
      return current().warnings;
    },
    get defaultAgentId() {
      return current().world.agents.defaultId;
    },
    receive: async (message) => {
      const { stopping: _, ...accepted } = await receive(message);
      return accepted;
    },
    wait: (runId, timeoutMs, signal) => engine.wait(runId, timeoutMs, signal),
    reload: async (next, places) => {
      const change = setups.reload({ config: next, places });
      await engine.openMains(mainSessions(current().world));
      return change;
    },
    configRejected: (why) => setups.rejected(why),
    modelOf: (agentId) => runtimes.choiceOf(agentId),
    close,
    ...(door ? { server: door } : {}),
  };
  return { gateway, parts: { current, store, bus, engine, invoker } };
}

/** One part that cannot be closed must not keep the others open: a listener or a timer would keep the process alive. */
async function eachEvenIfOneFails(steps: (() => unknown)[]): Promise<void> {
  const failures: unknown[] = [];
  for (const step of steps) {
    try {
      await step();
    } catch (thrown) {
      failures.push(thrown);
    }
  }
  if (failures.length > 0) throw failures[0];
}

/** Of an index that cannot be written. */
const searchWarnings = (why: string | undefined) =>
  why === undefined ? [] : [`${searchTrouble}, so new messages are not found yet; it is tried again by itself: ${why}`];

function capsOf({ agents: { defaults } }: Config): Record<RunClass, number> {
  const cores = availableParallelism();
  const { maxConcurrent: main = 4 * cores, subagents } = defaults;
  return { main, nested: 4 * cores, subagent: subagents.maxConcurrent, cron: 4 };
}

/** Every configured agent's main session exists from the start, so that it can be addressed on day one. */
function mainSessions({ agents }: World) {
  return [...agents.byId.keys()].map((id) => ({
    key: formatSessionKey(mainKey(keyContext(agents, id))),
    made: { agent: id, kind: 'main', clearance: 'RESTRICTED' as const },
  }));
}
