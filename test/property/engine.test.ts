// Lanes, waits and exchanges against a tiny model: any order of inputs, sends, ends, aborts, resets and passing time.
import * as fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { derivedId } from '../../src/engine/ids.ts';
import { InterlaneError } from '../../src/errors.ts';
import { runClasses, type QueueMode, type RunClass, type RunOutcome } from '../../src/protocol/run.ts';
import { advanceExchange } from '../../src/rules/exchange.ts';
import { engineByHand, type Hand, type TakenTurn } from '../harness/engine.ts';

const agents = ['a', 'b', 'c'] as const;
type Lane = (typeof agents)[number];
const keyOf = (lane: string) => `agent:${lane}:main`;

// The model: what should happen, without transactions, leases or a store -----------------------------------------------

interface ModelRun {
  id: string;
  lane: Lane;
  life: number;
  class: RunClass;
  mode: QueueMode;
  state: 'queued' | 'running' | 'waiting' | RunOutcome;
  mergedInto?: string;
  hop: number;
  steps: number;
  exchange?: ModelExchange;
  budget: number;
  used: number;
  claimedAt: number;
}

interface ModelExchange {
  id: string;
  requester: { lane: Lane; life: number };
  target: { lane: Lane; life: number };
  phase: 'request' | 'reply' | 'announce' | 'over';
  turn: number;
  maxTurns: number;
  hop: number;
  turns: string[];
  at: number;
}

interface Wait {
  waiter: ModelRun;
  target: ModelRun;
  due: number;
}

class Model {
  now = 0;
  readonly runs = new Map<string, ModelRun>();
  readonly exchanges: ModelExchange[] = [];
  readonly lanes: Record<Lane, { life: number; active?: ModelRun | undefined; queue: ModelRun[] }>;
  waits: Wait[] = [];
  /** Who may be claimed: those that go on after a wait first, then heads of lanes; each in the order in which they became ready. */
  private resumed: ModelRun[] = [];
  private heads: ModelRun[] = [];
  readonly caps: Record<RunClass, number>;

  constructor(caps: Record<RunClass, number>) {
    this.caps = caps;
    const lane = () => ({ life: 1, queue: [] });
    this.lanes = { a: lane(), b: lane(), c: lane() };
  }

  running(): ModelRun[] {
    return [...this.runs.values()].filter((run) => run.state === 'running');
  }

  accept(id: string, lane: Lane, mode: QueueMode, budget: number): void {
    const { active, life } = this.lanes[lane];
    // Interrupt: one that waits ends before the new one is queued, one that runs hears of it afterwards.
    if (mode === 'interrupt' && active?.state === 'waiting' && active.life === life) this.end(active, 'aborted', '');
    this.enqueue({ id, lane, class: 'main', mode, hop: 0, budget });
    if (mode === 'interrupt' && active?.state === 'running' && active.life === life) this.end(active, 'aborted', '');
    this.claim();
  }

  abort(id: string): boolean {
    let run = this.runs.get(id)!;
    while (run.mergedInto !== undefined) run = this.runs.get(run.mergedInto)!;
    if (!['queued', 'running', 'waiting'].includes(run.state)) return false;
    this.end(run, 'aborted', '');
    this.claim();
    return true;
  }

  reset(lane: Lane): void {
    const own = this.lanes[lane];
    const life = own.life++;
    for (const run of own.queue.filter((one) => one.life === life)) this.end(run, 'aborted', '');
    if (own.active?.life === life) this.end(own.active, 'aborted', '');
    this.claim();
  }

  /** A step of a run with one send per target. Answers what each of them is told. */
  send(run: ModelRun, targets: Lane[], waitMs: number, maxTurns: number): string[] {
    const step = ++run.steps;
    const said = targets.map((lane, idx) => {
      const { life } = this.lanes[lane];
      if (lane === run.lane) return 'SEND_TO_SELF';
      const recent = this.exchanges.filter(
        (one) =>
          one.requester.lane === run.lane &&
          one.requester.life === run.life &&
          one.target.lane === lane &&
          one.target.life === life &&
          one.at > this.now - 60_000,
      );
      if (run.hop + 1 > 12 || recent.length >= 30) return 'LOOP_LIMIT';
      if (waitMs > 0 && this.waitsFor(lane, run.lane)) return 'CYCLIC_WAIT';
      const exchange: ModelExchange = {
        id: derivedId(run.id, step, idx, 'exchange'),
        requester: { lane: run.lane, life: run.life },
        target: { lane, life },
        phase: 'request',
        turn: 0,
        maxTurns,
        hop: run.hop + 1,
        turns: [],
        at: this.now,
      };
      this.exchanges.push(exchange);
      const first = this.enqueueTurn(exchange, lane, 0, run.budget);
      if (waitMs > 0) this.waits.push({ waiter: run, target: first, due: this.now + waitMs });
      return waitMs > 0 ? 'waiting' : 'accepted';
    });
    if (said.includes('waiting')) {
      run.state = 'waiting';
      run.used += this.now - run.claimedAt;
    }
    this.claim();
    return said;
  }

  steer(run: ModelRun): void {
    this.absorb(run, 'steer');
  }

  finish(run: ModelRun, outcome: RunOutcome, reply: string): void {
    this.end(run, outcome, reply);
    this.claim();
  }

  /** Time passes: waits end, and so do turns that have used up their time. The two never fall on the same instant. */
  pass(until: number): void {
    for (;;) {
      const due = Math.min(...this.waits.map((wait) => wait.due));
      const expiring = this.running().filter((run) => run.budget > 0);
      const expiry = (run: ModelRun) => run.claimedAt + run.budget - run.used;
      const first = Math.min(...expiring.map(expiry));
      if (Math.min(due, first) > until) break;
      this.now = Math.min(due, first);
      if (due <= first) for (const wait of this.waits.filter((one) => one.due <= this.now)) this.answer(wait);
      else
        this.end(
          expiring.find((run) => expiry(run) === first)!,
          'timeout',
          '',
        );
      this.claim();
    }
    this.now = until;
  }

  private enqueue(made: Pick<ModelRun, 'id' | 'lane' | 'class' | 'mode' | 'hop' | 'budget'> & { exchange?: ModelExchange }): ModelRun {
    const own = this.lanes[made.lane];
    const run: ModelRun = { ...made, life: own.life, state: 'queued', steps: 0, used: 0, claimedAt: 0 };
    this.runs.set(run.id, run);
    own.queue.push(run);
    if (!own.active && own.queue.length === 1) this.heads.push(run);
    return run;
  }

  private enqueueTurn(exchange: ModelExchange, lane: Lane, turn: number, budget: number): ModelRun {
    const id = derivedId(exchange.id, turn);
    exchange.turns.push(id);
    exchange.turn = turn;
    return this.enqueue({ id, lane, class: 'nested', mode: 'followup', hop: exchange.hop, budget, exchange });
  }

  private end(run: ModelRun, outcome: RunOutcome, reply: string): void {
    const own = this.lanes[run.lane];
    run.state = outcome;
    own.queue = own.queue.filter((one) => one !== run);
    if (own.active === run) own.active = undefined;
    this.heads = this.heads.filter((one) => one !== run);
    this.resumed = this.resumed.filter((one) => one !== run);
    this.waits = this.waits.filter((wait) => wait.waiter !== run);
    for (const wait of this.waits.filter((one) => one.target === run)) this.answer(wait);
    const [head] = own.queue;
    if (!own.active && head && !this.heads.includes(head)) this.heads.push(head);
    if (run.exchange) this.advance(run.exchange, run, outcome, outcome === 'ok' ? reply : '');
  }

  private answer(wait: Wait): void {
    this.waits = this.waits.filter((one) => one !== wait);
    if (!this.waits.some((one) => one.waiter === wait.waiter)) this.resumed.push(wait.waiter);
  }

  private advance(exchange: ModelExchange, run: ModelRun, outcome: RunOutcome, reply: string): void {
    const { phase, turn, maxTurns, requester, target } = exchange;
    if (phase === 'over' || exchange.turns.at(-1) !== run.id) return;
    const alive = (side: { lane: Lane; life: number }) => this.lanes[side.lane].life === side.life;
    const state = { phase, turn, maxTurns, canReplyBack: alive(requester) };
    const step = advanceExchange(state, { ok: outcome === 'ok', reply, mayFlow: reply !== '' });
    exchange.phase = 'over';
    if (step.next === 'turn') {
      const speaker = step.side === 'requester' ? requester : target;
      if (!alive(speaker)) return;
      exchange.phase = 'reply';
      this.enqueueTurn(exchange, speaker.lane, step.turn, run.budget);
    } else if (step.next === 'announce' && alive(target)) {
      exchange.phase = 'announce';
      this.enqueueTurn(exchange, target.lane, maxTurns + 1, run.budget);
    }
  }

  private claim(): void {
    for (const runClass of runClasses) {
      for (;;) {
        const busy = this.running().filter((run) => run.class === runClass).length;
        const next = [...this.resumed, ...this.heads].find((run) => run.class === runClass);
        if (busy >= this.caps[runClass] || !next) break;
        const own = this.lanes[next.lane];
        const fresh = next.state === 'queued';
        this.heads = this.heads.filter((run) => run !== next);
        this.resumed = this.resumed.filter((run) => run !== next);
        next.state = 'running';
        next.claimedAt = this.now;
        own.active = next;
        if (fresh) own.queue.shift();
        if (fresh && next.mode === 'collect') this.absorb(next, 'collect');
      }
    }
  }

  private absorb(run: ModelRun, mode: QueueMode): void {
    const own = this.lanes[run.lane];
    while (own.queue[0]?.mode === mode && !own.queue[0].exchange && !run.exchange && own.queue[0].life === run.life) {
      Object.assign(own.queue.shift()!, { state: 'ok', mergedInto: run.id });
    }
  }

  private waitsFor(from: Lane, to: Lane, seen = new Set<Lane>()): boolean {
    if (from === to) return true;
    if (seen.has(from)) return false;
    seen.add(from);
    return this.waits.some((wait) => wait.waiter.lane === from && this.waitsFor(wait.target.lane, to, seen));
  }
}

// The real thing: the engine on the in-memory twin, with made-up time and turns that are taken by hand -------------------

interface Real {
  hand: Hand;
  accepted: number;
}

const start = async (caps: Record<RunClass, number>, seed: number): Promise<Real> => ({
  hand: await engineByHand({ agents, caps, seed }),
  accepted: 0,
});

// What must hold whenever nothing is under way ----------------------------------------------------------------------------

async function nothingWrong(real: Real): Promise<void> {
  expect(await real.hand.rows.faults()).toEqual({});
}

/** The store says of every run, lane, exchange and wait what the model says. */
async function agrees(model: Model, real: Real): Promise<void> {
  await nothingWrong(real);
  expect(real.hand.warnings).toEqual([]);
  const runs = await real.hand.rows.runs();
  const ids = new Map(runs.map(({ pk, id }) => [pk, id]));
  expect(runs.map(({ id, state, merged_into }) => [id, state, merged_into === null ? null : ids.get(merged_into)])).toEqual(
    [...model.runs.values()].map((run) => [run.id, run.state, run.mergedInto ?? null]),
  );
  for (const lane of agents) {
    const queue = runs.filter((run) => run.lane === keyOf(lane) && run.state === 'queued').map(({ id }) => id);
    expect(queue).toEqual(model.lanes[lane].queue.map(({ id }) => id));
  }
  expect([...real.hand.turns.keys()].toSorted()).toEqual(
    model
      .running()
      .map(({ id }) => id)
      .toSorted(),
  );
  expect((await real.hand.rows.exchangeRuns()).map(({ id, state, runIds }) => [id, state, runIds])).toEqual(
    model.exchanges.map(({ id, phase, turns }) => [id, phase === 'over' ? 'done' : phase, turns]),
  );
  const waits = await real.hand.rows.waits();
  expect(waits.map(({ run_pk, target_pk }) => [ids.get(run_pk), ids.get(target_pk)])).toEqual(
    model.waits.map(({ waiter, target }) => [waiter.id, target.id]),
  );
}

// Commands --------------------------------------------------------------------------------------------------------------

type Command = fc.AsyncCommand<Model, Real>;

/** Done to both, and compared. */
function command(text: string, check: (model: Model) => boolean, run: (model: Model, real: Real) => Promise<void>): Command {
  return {
    check,
    async run(model, real) {
      await run(model, real);
      await real.hand.settled();
      await agrees(model, real);
    },
    toString: () => text,
  };
}

/** One of the turns that are being taken, and the same in the model. */
function taken(model: Model, real: Real, which: number): { run: ModelRun; hand: TakenTurn } {
  const running = model.running();
  const run = running[which % running.length]!;
  return { run, hand: real.hand.turns.get(run.id)! };
}
const anyRunning = (model: Model) => model.running().length > 0;

const accept = (lane: Lane, mode: QueueMode, budget: number) =>
  command(
    `accept(${lane}, ${mode}, ${budget})`,
    () => true,
    async (model, real) => {
      const id = `r${real.accepted++}`;
      await real.hand.accept(id, { agent: lane, mode, budgetMs: budget });
      model.accept(id, lane, mode, budget);
    },
  );

const abort = (which: number) =>
  command(
    `abort(${which})`,
    (model) => model.runs.size > 0,
    async (model, real) => {
      const id = [...model.runs.keys()].at(-1 - (which % model.runs.size))!;
      const { aborted } = await real.hand.abort(id, 'enough');
      expect(aborted).toBe(model.abort(id));
    },
  );

const reset = (lane: Lane) =>
  command(
    `reset(${lane})`,
    () => true,
    async (model, real) => {
      const { session } = await real.hand.reset(lane);
      model.reset(lane);
      expect(session.life).toBe(model.lanes[lane].life);
    },
  );

/** Targets are counted from the sender: 0 is itself. */
const send = (which: number, offsets: number[], waitMs: number, maxTurns: number) =>
  command(`send(${which} → ${offsets.join()}, wait ${waitMs}, turns ${maxTurns})`, anyRunning, async (model, real) => {
    const { run, hand } = taken(model, real, which);
    const targets = offsets.map((offset) => agents[(agents.indexOf(run.lane) + offset) % agents.length]!);
    const said = await real.hand.sends(hand, targets, waitMs, maxTurns);
    expect(said).toEqual(model.send(run, targets, waitMs, maxTurns));
  });

const finish = (which: number, reply: string) =>
  command(`finish(${which}, ${JSON.stringify(reply)})`, anyRunning, async (model, real) => {
    const { run, hand } = taken(model, real, which);
    await hand.turn.end({ text: reply, usage: { input: 0, output: 1 } });
    hand.leave();
    model.finish(run, 'ok', reply);
  });

const fail = (which: number) =>
  command(`fail(${which})`, anyRunning, async (model, real) => {
    const { run, hand } = taken(model, real, which);
    hand.fail(new Error('no'));
    await real.hand.settled();
    model.finish(run, 'error', '');
  });

const steer = (which: number) =>
  command(`steer(${which})`, anyRunning, async (model, real) => {
    const { run, hand } = taken(model, real, which);
    await hand.turn.steer();
    model.steer(run);
  });

const pass = (seconds: number) =>
  command(
    `pass(${seconds} s)`,
    () => true,
    async (model, real) => {
      await real.hand.clock.advance(seconds * 1_000);
      model.pass(model.now + seconds * 1_000);
    },
  );

const lane = fc.constantFrom(...agents);
const which = fc.nat({ max: 5 });
// Deadlines of turns are odd, those of waits are not, so that no two of them fall on the same instant.
const budget = fc.constantFrom(0, 0, 0, 0, 2_001, 9_001);
const replies = fc.constantFrom('yes', 'yes', 'yes', 'yes', '', 'REPLY_SKIP', ' ANNOUNCE_SKIP ');
const offsets = fc.array(fc.constantFrom(1, 1, 1, 2, 2, 2, 0), { minLength: 1, maxLength: 2 });
const waitMs = fc.constantFrom(0, 3_000, 30_000, 30_000);
const maxTurns = fc.constantFrom(0, 1, 2, 5);
const anyMode = fc.constantFrom<QueueMode>('followup', 'followup', 'steer', 'steer', 'collect', 'interrupt');
const sending = fc.tuple(which, offsets, waitMs, maxTurns).map((args) => send(...args));
const finishing = fc.tuple(which, replies).map((args) => finish(...args));
const accepting = fc.tuple(lane, anyMode, budget).map((args) => accept(...args));
const commands = [
  accepting,
  accepting,
  accepting,
  sending,
  sending,
  sending,
  finishing,
  finishing,
  finishing,
  finishing,
  which.map((one) => fail(one)),
  which.map((one) => steer(one)),
  lane.map((one) => reset(one)),
  which.map((one) => abort(one)),
  fc.constantFrom(1, 3, 10, 40).map((seconds) => pass(seconds)),
];
const caps = fc.record({
  main: fc.integer({ min: 1, max: 3 }),
  nested: fc.integer({ min: 1, max: 3 }),
  subagent: fc.constant(1),
  cron: fc.constant(1),
});
const numRuns = Math.ceil((fc.readConfigureGlobal().numRuns ?? 100) / 5);

/** Every turn that can be taken is taken, and every wait ends; then nothing may be left. */
async function drain(model: Model, real: Real): Promise<void> {
  for (let rounds = 0; [...model.runs.values()].some((run) => ['queued', 'running', 'waiting'].includes(run.state)); rounds++) {
    if (rounds > 500) throw new Error('it does not come to an end');
    await (anyRunning(model) ? finish(0, '') : pass(30)).run(model, real);
  }
}

const openWork = async ({ hand: { rows } }: Real) => (await rows.open()) + (await rows.waits()).length;

describe('the engine', () => {
  it('does what the model says, whatever happens in whatever order, and always comes to an end', async () => {
    await fc.assert(
      fc.asyncProperty(fc.commands(commands, { maxCommands: 50, size: 'max' }), caps, fc.nat(), async (steps, slots, seed) => {
        const model = new Model(slots);
        const real = await start(slots, seed);
        await real.hand.settled();
        try {
          await fc.asyncModelRun(() => ({ model, real }), steps);
          await drain(model, real);
          expect(await openWork(real)).toBe(0);
        } finally {
          await real.hand.close();
        }
      }),
      { numRuns },
    );
  }, 600_000);
});

// The same without waiting for one thing before the next begins ------------------------------------------------------------

type Op =
  | { do: 'accept'; lane: Lane; mode: QueueMode; budget: number }
  | { do: 'send'; which: number; targets: Lane[]; waitMs: number; maxTurns: number }
  | { do: 'finish'; which: number; reply: string }
  | { do: 'fail' | 'steer' | 'say' | 'abort' | 'wait'; which: number }
  | { do: 'reset'; lane: Lane }
  | { do: 'pass'; seconds: number };

const op: fc.Arbitrary<Op> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ do: fc.constant('accept' as const), lane, mode: anyMode, budget }) },
  {
    weight: 4,
    arbitrary: fc.record({
      do: fc.constant('send' as const),
      which,
      targets: fc.array(lane, { minLength: 1, maxLength: 2 }),
      waitMs,
      maxTurns,
    }),
  },
  { weight: 4, arbitrary: fc.record({ do: fc.constant('finish' as const), which, reply: replies }) },
  {
    weight: 3,
    arbitrary: fc.record({
      do: fc.constantFrom('fail' as const, 'steer' as const, 'say' as const, 'abort' as const, 'wait' as const),
      which,
    }),
  },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('reset' as const), lane }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant('pass' as const), seconds: fc.constantFrom(1, 3, 40) }) },
);

/** What callers were promised. */
interface Told {
  waits: Promise<unknown>[];
  /** Runs that are stopped, as whoever asked for it was told. */
  stopped: string[];
}

/** Begins one operation; resolves when it is over, however it went. A turn that is over refuses, and that is right. */
async function begin(real: Real, one: Op, ids: string[], told: Told): Promise<void> {
  const hand = 'which' in one ? [...real.hand.turns.values()].at(one.which % Math.max(1, real.hand.turns.size)) : undefined;
  const id = 'which' in one && ids.length > 0 ? ids[one.which % ids.length] : undefined;
  try {
    switch (one.do) {
      case 'accept': {
        const made = `r${real.accepted++}`;
        await real.hand.accept(made, { agent: one.lane, mode: one.mode, budgetMs: one.budget });
        ids.push(made);
        break;
      }
      case 'send':
        if (hand) await real.hand.sends(hand, one.targets, one.waitMs, one.maxTurns);
        break;
      case 'finish':
        if (hand) await hand.turn.end({ text: one.reply, usage: { input: 0, output: 1 } });
        hand?.leave();
        break;
      case 'fail':
        hand?.fail(new Error('no'));
        break;
      case 'steer':
        await hand?.turn.steer();
        break;
      case 'say':
        hand?.turn.delta('half a ');
        break;
      case 'abort':
        if (id !== undefined && (await real.hand.abort(id, 'enough')).aborted) told.stopped.push(id);
        break;
      case 'wait':
        if (id !== undefined) told.waits.push(real.hand.wait(id, 10 ** 12));
        break;
      case 'reset':
        await real.hand.reset(one.lane);
        break;
      case 'pass':
        await real.hand.clock.advance(one.seconds * 1_000);
        break;
    }
  } catch (thrown) {
    const lost = thrown instanceof InterlaneError && thrown.code === 'LEASE_LOST';
    if (!lost && !hand?.turn.signal.aborted) throw thrown;
    hand?.fail(new Error('the turn is over'));
  }
}

describe('the engine, when everything happens at once', () => {
  it('keeps every lane in order, ends every run once, and answers everybody who waits', async () => {
    const ops = fc.array(fc.record({ op, gap: fc.nat({ max: 12 }) }), { maxLength: 60, size: 'max' });
    await fc.assert(
      fc.asyncProperty(ops, caps, fc.nat(), async (plan, slots, seed) => {
        const real = await start(slots, seed);
        try {
          const ids: string[] = [];
          const told: Told = { waits: [], stopped: [] };
          const begun: Promise<void>[] = [];
          for (const { op: one, gap } of plan) {
            begun.push(begin(real, one, ids, told));
            for (let hop = 0; hop < gap; hop++) await Promise.resolve();
          }
          await Promise.all(begun);
          for (let rounds = 0; (await openWork(real)) > 0; rounds++) {
            if (rounds > 500) throw new Error('it does not come to an end');
            await begin(real, real.hand.turns.size > 0 ? { do: 'finish', which: 0, reply: '' } : { do: 'pass', seconds: 30 }, ids, told);
            await real.hand.settled();
          }
          await nothingWrong(real);
          const ended = await real.hand.rows.runsOf('none', { class: 'main' });
          expect(ended.map(({ id }) => id).toSorted()).toEqual(ids.toSorted());
          // Nobody is left waiting, and everybody is told an end.
          const views = (await Promise.all(told.waits)) as { state: string }[];
          expect(views.filter(({ state }) => ['queued', 'running', 'waiting'].includes(state))).toEqual([]);
          for (const id of told.stopped) expect((await real.hand.wait(id, 0)).state).not.toBe('ok');
        } finally {
          await real.hand.close();
        }
      }),
      { numRuns: numRuns * 2 },
    );
  }, 600_000);
});
