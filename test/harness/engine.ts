// The engine alone, on a store in memory or on disk, with a manual clock and turns that a test takes by hand.
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Config } from '../../src/config/schema.ts';
import { acceptArgs, type AcceptMore } from './accept.ts';
import { Engine } from '../../src/engine/engine.ts';
import { asFlow, type Flow } from '../../src/engine/flow.ts';
import { exchangeFlow } from '../../src/flows/exchange.ts';
import { sendToSession } from '../../src/flows/send.ts';
import type { Runner, Turn } from '../../src/engine/runner.ts';
import { InterlaneError } from '../../src/errors.ts';
import type { FeedEvent } from '../../src/protocol/event.ts';
import type { RunClass, RunView } from '../../src/protocol/run.ts';
import { compileWorld } from '../../src/rules/decide.ts';
import type { Store } from '../../src/store/contract.ts';
import { memoryStore } from '../../src/store/memory.ts';
import { openSqliteStore } from '../../src/store/sqlite/open.ts';
import { ManualClock } from './clock.ts';
import { rowwise } from './inside.ts';
import { Rows } from './rows.ts';

export interface TakenTurn {
  turn: Turn;
  /** The runner returns. */
  leave(): void;
  /** The runner throws. */
  fail(error: Error): void;
}

interface HandOptions {
  agents?: readonly string[];
  config?: Parameters<typeof Config.parse>[0];
  caps?: Record<RunClass, number>;
  /** In memory, with commands that are undone and run again at random; or on disk. */
  store?: 'memory' | 'sqlite';
  seed?: number;
  /** Takes the turns, instead of the test. */
  runner?(clock: ManualClock): Runner;
  /** More flows than the exchange. */
  flows?: Flow[];
  /** True for a runner that does not stop when its turn is aborted. */
  deaf?: boolean;
  /** Hears of commits before the engine does. */
  onCommit?(events: FeedEvent[]): void;
}

const ones = { main: 1, nested: 1, subagent: 1, cron: 1 };
const reaching = { tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } } };
const keyOf = (agent: string) => `agent:${agent}:main`;

/** Started; the caller closes it. */
export async function engineByHand(options: HandOptions = {}): Promise<Hand> {
  const hand = new Hand(options);
  await hand.start();
  return hand;
}

export class Hand implements AsyncDisposable {
  /** One quiet turn of the event loop is enough in memory: nothing there waits for anything else. */
  readonly clock: ManualClock;
  readonly rows: Rows;
  /** The turns that are being taken, by run id. */
  readonly turns = new Map<string, TakenTurn>();
  readonly warnings: string[] = [];
  private readonly store: Store;
  private readonly sending: ReturnType<typeof sendToSession>;
  private readonly make: () => Engine;
  private engine: Engine;
  private readonly agents: readonly string[];
  private readonly awaited = new Map<string, PromiseWithResolvers<TakenTurn>>();
  private readonly forget: () => void;

  constructor(options: HandOptions) {
    const { agents = ['main'], config = reaching, caps = ones, store = 'memory', seed = 6, deaf = false, onCommit } = options;
    this.agents = agents;
    this.clock = new ManualClock(store === 'memory' ? 1 : 10);
    const made = store === 'memory' ? inMemory(seed) : onDisk(this.clock);
    this.store = made.store;
    this.forget = made.forget;
    this.rows = new Rows(rowwise(this.store));
    if (onCommit) this.store.follow(onCommit);
    const byHand: Runner = {
      run: (turn) => {
        const { promise, resolve, reject } = Promise.withResolvers<'ended' | 'parked'>();
        if (!deaf) turn.signal.addEventListener('abort', () => reject(turn.signal.reason as Error));
        let how: 'ended' | 'parked' = 'ended';
        const watched = { ...turn, park: async () => ((await turn.park()) ? ((how = 'parked'), true) : false) };
        const taken = { turn: Object.defineProperty(watched, 'steps', { get: () => turn.steps }), leave: () => resolve(how), fail: reject };
        this.turns.set(turn.runId, taken);
        this.taking(turn.runId).resolve(taken);
        return promise.finally(() => this.turns.get(turn.runId) === taken && this.turns.delete(turn.runId));
      },
    };
    const runner = options.runner?.(this.clock) ?? byHand;
    let ids = 0;
    const kernel = {
      world: compileWorld(Config.parse({ agents: { list: agents.map((id) => ({ id })) }, ...(config as object) })),
      flows: new Map([asFlow(exchangeFlow), ...(options.flows ?? [])].map((flow) => [flow.kind, flow])),
    };
    const current = () => kernel;
    this.sending = sendToSession(current);
    this.make = () =>
      new Engine({
        current,
        store: this.store,
        clock: this.clock,
        newId: () => `id${ids++}`,
        runner: () => runner,
        caps,
        host: { bootId: `boot${ids++}`, pid: 1, name: 'here' },
        warn: (message) => this.warnings.push(message),
        failed: (what, error) => this.warnings.push(`${what}: ${String(error)}`),
      });
    this.engine = this.make();
  }

  async start(): Promise<void> {
    await this.engine.start(
      this.agents.map((agent) => ({ key: keyOf(agent), made: { agent, kind: 'main', clearance: 'RESTRICTED' as const } })),
    );
  }

  /** The engine lets go of everything, and another one begins on the same store. */
  async restart(): Promise<void> {
    await this.clock.hurrying(this.engine.close(0), 0);
    this.engine = this.make();
    await this.start();
  }

  async close(): Promise<void> {
    await this.clock.hurrying(this.engine.close(0), 0);
    await this.store.close();
    this.forget();
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close();
  }

  settled(): Promise<void> {
    return this.clock.settled();
  }

  /** The turn of a run, when the engine has handed it out. */
  turn(runId: string): Promise<TakenTurn> {
    return this.taking(runId).promise;
  }

  private taking(runId: string): PromiseWithResolvers<TakenTurn> {
    const found = this.awaited.get(runId) ?? Promise.withResolvers<TakenTurn>();
    this.awaited.set(runId, found);
    return found;
  }

  accept(runId: string, { agent = this.agents[0]!, ...more }: AcceptMore & { agent?: string } = {}) {
    return this.engine.accept(acceptArgs(runId, { sessionKey: keyOf(agent), principal: 'you', now: this.clock.now(), ...more }));
  }

  wait(runId: string, timeoutMs: number): Promise<RunView> {
    return this.engine.wait(runId, timeoutMs);
  }

  abort(runId: string, reason = 'enough') {
    return this.engine.abort(runId, reason);
  }

  reset(agent: string) {
    return this.engine.reset(keyOf(agent));
  }

  /** What a guest finds when it looks for a turn. */
  look(agent = this.agents[0]!) {
    return this.engine.look(keyOf(agent), { again: false, replyMs: 600_000 });
  }

  /** A guest's answer to a turn it has found. */
  answer(turnId: string, text: string, agent = this.agents[0]!) {
    return this.engine.answer(keyOf(agent), turnId, text);
  }

  /** One call of `sessions_send`, as the tool makes it. */
  async send(turn: Turn, call: { step: number; idx: number }, to: string, more: { waitMs: number; maxTurns: number; text?: string }) {
    const { pk } = await this.rows.session(keyOf(to));
    const from = { ...turn.lease, step: call.step, idx: call.idx };
    return this.store.write(this.sending, { from, targetSessionPk: pk, text: 'question', ...more, now: this.clock.now() });
  }

  /** As the tools do it: the step is persisted, each call is made, a refusal is its result, and what waits is parked. */
  async sends({ turn, leave }: TakenTurn, targets: string[], waitMs: number, maxTurns: number): Promise<string[]> {
    const calls = targets.map(() => ({ providerId: 'call', tool: 'sessions_send', args: {}, effect: 'keyed' as const }));
    const said: string[] = [];
    for (const call of await turn.step({ text: '', calls, usage: { input: 0, output: 0 } })) {
      try {
        const sent = await this.send(turn, call, targets[call.idx]!, { waitMs, maxTurns });
        said.push(sent.waiting ? 'waiting' : 'accepted');
      } catch (thrown) {
        if (!(thrown instanceof InterlaneError)) throw thrown;
        said.push(thrown.code);
      }
      if (said.at(-1) !== 'waiting') await turn.finishCall(call, { text: said.at(-1)!, isError: false, taint: 0 });
    }
    if (said.includes('waiting') && (await turn.park())) leave();
    return said;
  }
}

interface Made {
  store: Store;
  forget(): void;
}

function inMemory(seed: number): Made {
  let state = (seed % 2_147_483_646) + 1;
  const random = () => (state = (state * 48_271) % 2_147_483_647) / 2_147_483_647;
  return { store: memoryStore({ rerun: 0.5, random }), forget() {} };
}

function onDisk(clock: ManualClock): Made {
  const stateDir = mkdtempSync(join(tmpdir(), 'interlane-engine-'));
  const store = openSqliteStore(stateDir, 'normal', {
    afterTick: (work) => void setImmediate(work),
    elapsed: () => clock.elapsed(),
    fatal: (error) => {
      throw error;
    },
  });
  return { store, forget: () => rmSync(stateDir, { recursive: true, force: true }) };
}
