// A gateway for one test: real state directory, real port if it is asked for, scripted model, one clock, and everything a test asks of it.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { onTestFinished } from 'vitest';
import type { z } from 'zod';
import type { Outbound } from '../../src/channels/channel.ts';
import { loopbackTo } from '../../src/channels/loopback/loopback.ts';
import { connect, type Client, type ConnectOptions } from '../../src/client/client.ts';
import type { Places } from '../../src/config/places.ts';
import { Config } from '../../src/config/schema.ts';
import type { Accepted } from '../../src/engine/accept.ts';
import { acceptArgs, type AcceptMore } from './accept.ts';
import type { Gateway, GatewayOptions } from '../../src/embed.ts';
import { assemble, type Parts } from '../../src/gateway.ts';
import type { FeedEvent } from '../../src/protocol/event.ts';
import type { OperationName, Params, Results } from '../../src/protocol/operations/all.ts';
import type { QueueMode, RunState, RunView } from '../../src/protocol/run.ts';
import { Script } from '../../src/runtimes/scripted/scripted.ts';
import type { InboundMessage } from '../../src/sessions/inbound.ts';
import type { EntryRow } from '../../src/store/rows.ts';
import { backupStore, restoreStore } from '../../src/store/sqlite/backup.ts';
import { ManualClock, RealClock } from './clock.ts';
import { gates } from './gates.ts';
import { mcpClient, type Guest, type McpMode } from './guest.ts';
import { ask, listenTo, type Answer, type Ask, type Listener } from './http.ts';
import { insideOf, rowwise, type Inside } from './inside.ts';
import { Rows } from './rows.ts';
import { Wire } from './socket.ts';

export type ConfigText = z.input<typeof Config>;
export type ScriptText = z.input<typeof Script>;
export type Refused = { status: 'error'; code: string; error: string };

/** The admin's secret, unless a test asks for a start without one. */
export const adminToken = 'the-token-of-the-tests';

/** The first rule of the script is a caller's turn. Each call of a test puts its own steps there. */
const callRule: ScriptText[number] = { when: '^\\ncall$', steps: [{ say: 'nothing to do' }] };
const echo: ScriptText = [{ steps: [{ say: 're: {{input}}' }] }];
const everyone = { wants: () => true, reset() {} };

export interface TestOptions extends Omit<Partial<GatewayOptions>, 'clock' | 'script' | 'listen' | 'stateDir'> {
  config?: ConfigText;
  /** A config that was read already, instead of `config`. */
  parsed?: Config;
  /** Without one, every message is answered with `re:` and itself. */
  script?: ScriptText;
  /** `manual` unless a test needs real time. */
  clock?: 'manual' | 'real';
  /** A port for clients. */
  listen?: boolean | Partial<NonNullable<GatewayOptions['listen']>>;
  /** True for the tool `gate`, see `gw.stops`. */
  stops?: boolean;
  /** Whose tools `tool` calls, unless the call names another session. */
  caller?: string;
  /** A state directory to start on; without it a new one, which is deleted after the test. */
  stateDir?: string;
  /** True for a gateway of a whole file: whoever made it calls `end()`. */
  shared?: boolean;
}

/** Started, and ended when the test is over, however it ends. */
export async function testGateway(options: TestOptions = {}): Promise<TestGateway> {
  const gateway = new TestGateway(options);
  if (!options.shared) onTestFinished(() => gateway.end());
  return gateway.start();
}

export class TestGateway implements AsyncDisposable {
  readonly stateDir: string;
  /** What the model follows. It is kept by reference, so a test can write the next turn. */
  readonly script: Script = [];
  readonly sent: Outbound[] = [];
  readonly warnings: string[] = [];
  /** The tool `gate` stops a turn until the test lets it go on. */
  readonly stops = gates();
  readonly rows: Rows;
  private options: TestOptions;
  private readonly time: ManualClock | RealClock;
  private readonly clients = new Map<string, Promise<Client>>();
  private readonly connections = new Set<Client>();
  private gateway: Gateway | undefined;
  private parts: Parts | undefined;
  private secret = '';
  private lastPort = 0;
  private toolRuns = 0;
  private over = false;

  constructor(options: TestOptions) {
    this.options = options;
    this.stateDir = options.stateDir ?? mkdtempSync(join(tmpdir(), 'interlane-test-'));
    this.time = options.clock === 'real' ? new RealClock() : new ManualClock();
    this.rows = new Rows(
      rowwise({ read: (query, args) => this.inside.read(query, args), write: (command, args) => this.inside.write(command, args) }),
    );
  }

  // Its life ----------------------------------------------------------------------------------------------------------

  /** Starts it on its state, also again after `close()`, with what has changed since. The port stays the same. */
  async start(changes: TestOptions = {}): Promise<this> {
    this.options = { ...this.options, ...changes };
    const {
      config = {},
      parsed,
      script = echo,
      listen,
      caller,
      tools = [],
      stops = false,
      clock: _,
      stateDir: __,
      shared: ___,
      ...more
    } = this.options;
    if (this.script.length === 0 || changes.script)
      this.script.splice(0, Infinity, ...Script.parse([...(caller === undefined ? [] : [callRule]), ...script]));
    const token = adminToken;
    const { gateway, parts } = await assemble(parsed ?? Config.parse(config), {
      stateDir: this.stateDir,
      script: this.script,
      clock: this.time,
      channels: [loopbackTo((message) => this.sent.push(message))],
      warn: (message) => this.warnings.push(message),
      search: false,
      graceMs: 0,
      ...more,
      tools: [...(stops ? [this.stops.tool] : []), ...tools],
      ...(listen
        ? { listen: { host: '127.0.0.1', port: this.lastPort, version: '0.0.0-test', token, ...(listen === true ? {} : listen) } }
        : {}),
    });
    this.gateway = gateway;
    this.parts = parts;
    const given = typeof listen === 'object' && 'token' in listen ? listen.token : token;
    this.lastPort = this.gateway.server?.port ?? 0;
    this.secret = this.gateway.server?.adminToken ?? given ?? this.secret;
    return this;
  }

  /** Stops it; live turns get no time to finish. Under the manual clock the time that a close waits for passes at once. */
  async close(): Promise<void> {
    const { gateway, time } = this;
    if (!gateway) return;
    await (time instanceof ManualClock ? time.hurrying(gateway.close(), 10_000) : gateway.close());
    for (const client of this.connections) client.close();
    this.connections.clear();
    this.clients.clear();
    this.gateway = undefined;
    this.parts = undefined;
  }

  /** Closes it and starts it again on the same state. */
  async restart(changes: TestOptions = {}): Promise<this> {
    await this.close();
    return this.start(changes);
  }

  /** Backs up its state, does the work, and starts it again on the backup: what happened meanwhile is lost. */
  async restoredAfter(work: () => Promise<void>): Promise<this> {
    const directory = mkdtempSync(join(tmpdir(), 'interlane-backup-'));
    try {
      const file = join(directory, 'backup.db');
      await backupStore(this.stateDir, file);
      await work();
      await this.close();
      await restoreStore(file, this.stateDir, { pid: process.pid, host: 'here', startedAt: 0 });
      return await this.start();
    } finally {
      rmSync(directory, { recursive: true, force: true });
    }
  }

  async end(): Promise<void> {
    this.over = true;
    await this.close();
    if (this.options.stateDir === undefined) rmSync(this.stateDir, { recursive: true, force: true });
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.end();
  }

  private get started(): Gateway {
    if (!this.gateway) throw new Error('the gateway is not started');
    return this.gateway;
  }

  /** What only the harness and tests of the inside use. */
  get inside(): Inside {
    if (!this.parts) throw new Error('the gateway is not started');
    return insideOf(this.parts, () => this.now());
  }

  // Time --------------------------------------------------------------------------------------------------------------

  get clock(): ManualClock {
    if (this.time instanceof RealClock) throw new Error('this gateway runs on real time');
    return this.time;
  }

  /** The real clock, whose wall time can jump. */
  get realClock(): RealClock {
    if (this.time instanceof ManualClock) throw new Error('this gateway runs on made-up time');
    return this.time;
  }

  now(): number {
    return this.time.now();
  }

  /** Nothing is under way that could go on without time passing. */
  settled(): Promise<void> {
    return this.time.settled();
  }

  /** Looks again at every turn of the event loop until it holds: for what comes from threads, processes and sockets. */
  async until(holds: () => boolean | Promise<boolean>): Promise<void> {
    while (!(await holds())) {
      if (this.over) throw new Error('the test is over, and it never held');
      await new Promise<void>((resolve) => setImmediate(resolve));
    }
  }

  // In ----------------------------------------------------------------------------------------------------------------

  receive(message: InboundMessage): ReturnType<Gateway['receive']> {
    return this.started.receive(message);
  }

  /** A person writes; resolves with the run id. */
  async say(text: string, { from = 'you', mode, id }: { from?: string; mode?: QueueMode; id?: string } = {}): Promise<string> {
    const more = { ...(mode === undefined ? {} : { mode }), ...(id === undefined ? {} : { messageId: id }) };
    return (await this.receive({ origin: { channel: 'loopback', peer: { kind: 'direct', id: from } }, text, ...more })).runId;
  }

  /** A person writes; resolves with the end of the turn. */
  async answer(text: string, more: { from?: string; mode?: QueueMode; id?: string } = {}): Promise<RunView> {
    return this.wait(await this.say(text, more));
  }

  /** An input that no channel can make: any class, time or label, by default into the main session. */
  accept(runId: string, more: AcceptMore = {}): Promise<Accepted> {
    return this.inside.accept(acceptArgs(runId, { now: this.now(), ...more }));
  }

  /** An input into a session, opened if need be; resolves when its turn is over. */
  async tell(key: string, text: string, more: { taint?: number; kind?: string; label?: string } = {}): Promise<RunView> {
    const { taint = 0, kind = 'other', label } = more;
    const runId = `run${this.toolRuns++}`;
    const open = { id: `id of ${key}`, agent: key.split(':')[1]!, kind, label, user: 'loopback:you', clearance: 'RESTRICTED' as const };
    await this.accept(runId, { sessionKey: key, open, text, principal: 'you', taint });
    return this.wait(runId);
  }

  abort(runId: string, reason = 'enough') {
    return this.inside.abort(runId, reason);
  }

  reset(key: string) {
    return this.inside.reset(key);
  }

  closeSession(key: string, to: 'archived' | 'deleted', force = false) {
    return this.inside.closeSession(key, to, force);
  }

  reload(config: ConfigText, places?: Places) {
    return this.started.reload(Config.parse(config), places);
  }

  // What happens ------------------------------------------------------------------------------------------------------

  /** The end of a run, or what it does when the time is over. */
  wait(runId: string, timeoutMs = 3_600_000_000, signal?: AbortSignal): Promise<RunView> {
    return this.inside.wait(runId, timeoutMs, signal);
  }

  /** How runs ended, and what they replied. */
  async ended(...runIds: string[]): Promise<string[]> {
    const views = await Promise.all(runIds.map((runId) => this.wait(runId)));
    return views.map(({ state, reply }) => (reply === undefined ? state : `${state}: ${reply}`));
  }

  /** The first event that fits, or the nth: of all after a position, by default of the whole feed. */
  async event(
    fits: (event: FeedEvent) => boolean,
    { after = 0, nth = 1 }: { after?: number | undefined; nth?: number } = {},
  ): Promise<FeedEvent> {
    const found = Promise.withResolvers<FeedEvent>();
    let left = nth;
    const deliver = (event: FeedEvent) => void (--left === 0 && found.resolve(event));
    const undo = this.inside.subscribe({ ...everyone, wants: fits, deliver, failed: found.reject }, after);
    return await found.promise.finally(undo);
  }

  /** The nth time a run came into a state. */
  run(runId: string, state: RunState, nth = 1): Promise<FeedEvent> {
    return this.event((event) => event.kind === 'run' && event.runId === runId && event.state === state, { nth });
  }

  /** What a subscriber hears, from a position or from now on. */
  hear(cursor?: number): { events: FeedEvent[]; failures: unknown[]; resets(): number; stop(): void } {
    const events: FeedEvent[] = [];
    const failures: unknown[] = [];
    let resets = 0;
    const stop = this.inside.subscribe(
      {
        wants: () => true,
        deliver: (event) => void events.push(event),
        reset: () => void resets++,
        failed: (error) => void failures.push(error),
      },
      cursor,
    );
    return { events, failures, resets: () => resets, stop };
  }

  /** No run, exchange or delivery is open any more. */
  finished(): Promise<void> {
    return this.none(() => this.rows.open());
  }

  /** Looks again at every event, until there is none. */
  async none(count: () => Promise<number>): Promise<void> {
    for (;;) {
      // Listening starts before looking, so that what happens in between is not missed.
      const news = Promise.withResolvers<void>();
      const undo = this.inside.subscribe({ ...everyone, deliver: () => news.resolve(), failed: news.reject });
      const left = await count();
      if (left > 0) await news.promise;
      undo();
      if (left === 0) return;
    }
  }

  /** What has left, once nothing more is on its way out. */
  async outgoing(): Promise<string[]> {
    await this.none(() => this.rows.undelivered());
    return this.sent.map(({ text }) => text);
  }

  transcript(key = 'agent:main:main'): Promise<string[]> {
    return this.rows.transcript(key);
  }

  // Tools -------------------------------------------------------------------------------------------------------------

  /** A session calls tools in a turn of its own, all in one step; resolves with their results in the order of the calls. */
  async tools(calls: { tool: string; args?: Record<string, unknown> }[], session = this.options.caller!): Promise<EntryRow[]> {
    const steps = Script.parse([{ steps: [{ calls }, { say: 'done' }] }])[0]!.steps;
    this.script[0]!.steps.splice(0, Infinity, ...steps);
    const view = await this.tell(session, 'call');
    if (view.state !== 'ok' || view.reply !== 'done') throw new Error(`the run of the calls did not go on: ${JSON.stringify(view)}`);
    return this.rows.results(view.runId);
  }

  /** What a tool answers to a session. */
  async tool<T = Refused>(tool: string, args: Record<string, unknown> = {}, session = this.options.caller!): Promise<T> {
    const [row] = await this.tools([{ tool, args }], session);
    return JSON.parse(row!.text) as T;
  }

  // Clients -----------------------------------------------------------------------------------------------------------

  get server(): NonNullable<Gateway['server']> {
    const { server } = this.started;
    if (!server) throw new Error('the gateway has no port; start it with listen');
    return server;
  }

  /** The port it listens at, or listened at last. */
  get port(): number {
    return this.lastPort;
  }

  get url(): string {
    return this.server.url;
  }

  get admin(): string {
    return this.secret;
  }

  /** A connection of the product's own client, closed with the gateway. */
  async client(more: Partial<ConnectOptions> = {}): Promise<Client> {
    const about = { id: 'test', version: '1', platform: 'test', mode: 'test' };
    const client = await connect({ url: this.url, client: about, token: this.admin, ...more });
    this.connections.add(client);
    return client;
  }

  /** One call of an operator, over a connection that is kept for its token. */
  async call<M extends OperationName>(method: M, params?: Params<M>, token = this.admin): Promise<Results[M]> {
    const kept = await this.clients.get(token);
    if (!kept || kept.isClosed) this.clients.set(token, this.client({ token }));
    const client = await this.clients.get(token)!;
    return client.request(method, params) as Promise<Results[M]>;
  }

  /** A new token's secret. */
  async token(name: string, more: Omit<Params<'tokens.create'>, 'name'> = {}): Promise<string> {
    return (await this.call('tokens.create', { name, ...more })).token;
  }

  /** A bare websocket that was challenged: for malformed frames. */
  raw(options?: ConstructorParameters<typeof Wire>[1]): Promise<Wire> {
    return Wire.open(this.port, options);
  }

  http(path: string, init: Ask = {}): Promise<Answer> {
    return ask(this.url + path, { token: this.admin, ...init });
  }

  post(path: string, body: unknown, init: Ask = {}): Promise<Answer> {
    return this.http(path, { method: 'POST', body: JSON.stringify(body), ...init });
  }

  /** An operator writes over HTTP; resolves when it is answered. */
  async write(session: string, message: string): Promise<void> {
    const { status, text } = await this.post(`/sessions/${encodeURIComponent(session)}/messages?wait=60`, { message });
    if (status !== 200) throw new Error(text);
  }

  sse(path: string, { token = this.admin, headers }: { token?: string; headers?: Record<string, string> } = {}): Promise<Listener> {
    return listenTo(this.url + path, token, headers);
  }

  /** An MCP client of the session that the token is bound to. */
  mcp(token: string, mode?: McpMode): Promise<Guest> {
    return mcpClient(this.url, token, mode);
  }

  /** A guest joins and connects. */
  async guest(name: string, { see = 'agent', mode }: { see?: 'tree' | 'agent' | 'all'; mode?: McpMode } = {}): Promise<Guest> {
    return this.mcp((await this.call('guests.join', { name, see })).token, mode);
  }
}
