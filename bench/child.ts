// What is measured in a process of its own: memory that nothing else has touched, and gateways that are killed.
import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { performance } from 'node:perf_hooks';
import { createInterface } from 'node:readline';
import { fileURLToPath } from 'node:url';
import { Cursors } from '../src/cursor.ts';
import { partyOfRow } from '../src/engine/policy.ts';
import { current as sessionByKey } from '../src/store/tables/sessions.ts';
import { isTerminal } from '../src/protocol/run.ts';
import { compileWorld, type Party } from '../src/rules/decide.ts';
import { Script } from '../src/runtimes/scripted/scripted.ts';
import type { ReadQuery } from '../src/store/contract.ts';
import type { SessionRow } from '../src/store/rows.ts';
import type { Tool, ToolContext } from '../src/tools/define.ts';
import { sessionsHistory } from '../src/tools/sessions-history.ts';
import { sessionsList } from '../src/tools/sessions-list.ts';
import { mockProvider } from '../test/mock/provider.ts';
import { callerKey, chatKey, longKey, longSessions, longTranscript, rareCallerKey, startOfTime } from './data.ts';
import { pageMs, rate } from './measure.ts';
import { acceptance, configOf, instantModel, run, start, type Running, type Setting } from './setting.ts';

interface Page {
  name: string;
  /** Rows of the last page. */
  rows: number;
  ms: number;
}

export interface PagesReport {
  readyMs: number;
  pages: Page[];
  /** Resident bytes right after the last page, garbage and all. */
  memory: number;
  /** Resident bytes after a collection that gives free heap back to the system. */
  stays: number;
}

interface Child<R> {
  /** What it reported. */
  report: R;
  /** SIGKILL, and wait until it is gone. */
  kill(): Promise<void>;
}

/** Starts `bench/run.ts` as a child that does one thing and reports it. It stays until it is killed. */
export async function inChild<R>(role: string, ...args: string[]): Promise<Child<R>> {
  const run = fileURLToPath(new URL('run.ts', import.meta.url));
  const child = spawn(process.execPath, ['--expose-gc', run, '--child', role, ...args], { stdio: ['ignore', 'pipe', 'inherit'] });
  const stop = () => void child.kill('SIGKILL');
  process.once('exit', stop);
  const gone = new Promise<void>((resolve) => void child.once('exit', () => resolve()));
  void gone.then(() => process.off('exit', stop));
  for await (const line of createInterface({ input: child.stdout })) {
    return {
      report: JSON.parse(line) as R,
      kill() {
        stop();
        return gone;
      },
    };
  }
  throw new Error(`bench child "${role}" ended without a report`);
}

export async function runChild([role, directory = '', ...args]: string[]): Promise<void> {
  const report =
    role === 'fill'
      ? await fill(directory, args[0]!)
      : role === 'recover'
        ? await recover(directory)
        : role === 'model'
          ? { url: (await mockProvider(instantModel)).url }
          : await pages(directory, Number(args[0]));
  process.stdout.write(`${JSON.stringify(report)}\n`);
  setInterval(() => {}, 1_000_000);
}

/** Accepts 10,000 inputs, with turns under way that will never end. */
async function fill(directory: string, lanes: string): Promise<{ perSecond: number }> {
  const script = Script.parse([{ steps: [{ sleepMs: 1_000_000_000 }] }]);
  const gateway = await start(directory, 8, {}, { script });
  const perSecond = await rate(10_000, 16, (n) =>
    gateway.engine.accept(acceptance(chatKey(lanes === 'one' ? 0 : n), n, 'What is on the list for today, and who asked for it?')),
  );
  return { perSecond };
}

export interface RecoverReport {
  readyMs: number;
  /** Of the first runs that ended. */
  perSecond: number;
}

async function recover(directory: string): Promise<RecoverReport> {
  const config = configOf();
  const started = performance.now();
  const gateway = await run(config, { stateDir: directory });
  const ready = performance.now();
  let ended = 0;
  await new Promise<void>((resolve) => {
    setTimeout(resolve, 3_000).unref();
    gateway.store.follow((events) => {
      for (const event of events) if (event.kind === 'run' && isTerminal(event.state)) ended++;
      if (ended >= 500) resolve();
    });
  });
  return { readyMs: ready - started, perSecond: (ended * 1_000) / (performance.now() - ready) };
}

const scenarios: {
  name: string;
  tool: Tool;
  setting: Setting;
  args(random: (below: number) => number, sessions: number): Record<string, unknown>;
  caller?: string;
}[] = [
  { name: 'sessions_list, visibility self', tool: sessionsList, setting: { visibility: 'self' }, args: () => ({}) },
  { name: 'sessions_list, tree', tool: sessionsList, setting: { visibility: 'tree' }, args: anyPage },
  { name: 'sessions_list, agent', tool: sessionsList, setting: { visibility: 'agent' }, args: anyPage },
  { name: 'sessions_list, all, newest page', tool: sessionsList, setting: {}, args: () => ({}) },
  { name: 'sessions_list, all, any page', tool: sessionsList, setting: {}, args: anyPage },
  {
    name: 'sessions_list, all, kinds: group',
    tool: sessionsList,
    setting: {},
    args: (...from) => ({ ...anyPage(...from), kinds: ['group'] }),
  },
  { name: 'sessions_list, all, a kind that 10 of them have', tool: sessionsList, setting: {}, args: () => ({ kinds: ['cron'] }) },
  {
    name: 'sessions_list, tree, a kind that 9 of them have',
    tool: sessionsList,
    setting: { visibility: 'tree' },
    args: () => ({ kinds: ['hook'] }),
  },
  { name: 'sessions_list, all, 20 of 120 agents allowed', tool: sessionsList, setting: { allow: ['a*'] }, args: anyPage },
  {
    name: 'sessions_list, all, 20 allowed agents have 10',
    tool: sessionsList,
    setting: { allow: Array.from({ length: 20 }, (_, n) => `rare${n}`) },
    caller: rareCallerKey,
    args: beforeStart,
  },
  {
    name: 'sessions_list, all, 100 allowed agents have 10',
    tool: sessionsList,
    setting: { allow: ['rare*'] },
    caller: rareCallerKey,
    args: beforeStart,
  },
  {
    name: 'sessions_list, agent, active last 10 minutes',
    tool: sessionsList,
    setting: { visibility: 'agent' },
    args: () => ({ activeMinutes: 10 }),
  },
  {
    name: 'sessions_list, all, one message each',
    tool: sessionsList,
    setting: {},
    args: (...from) => ({ ...anyPage(...from), messageLimit: 1 }),
  },
  {
    name: 'sessions_history, newest page',
    tool: sessionsHistory,
    setting: {},
    args: (random) => ({ sessionKey: longKey(random(longSessions)) }),
  },
  {
    name: 'sessions_history, any page',
    tool: sessionsHistory,
    setting: {},
    args: (random) => ({ sessionKey: longKey(random(longSessions)), before: 60 + random(longTranscript - 60) }),
  },
];

/** From anywhere in the newer half of the list, so that a full page follows. */
function anyPage(random: (below: number) => number, sessions: number): Record<string, unknown> {
  return { before: sessions / 2 + random(sessions / 2) };
}

/** Without the main sessions that the start of the gateway has just opened. */
function beforeStart(_random: (below: number) => number, sessions: number): Record<string, unknown> {
  return { before: sessions };
}

/** `before`, a position or a seq, as the cursor that a page would have given. */
async function withCursor(gateway: Running, { cursors }: ToolContext, { before, ...args }: Record<string, unknown>) {
  if (before === undefined) return args;
  const position = Math.floor(Number(before));
  if (args['sessionKey'] === undefined) return { ...args, cursor: cursors.page('sessions', position) };
  const { id } = (await gateway.store.read(
    { name: 'session', body: (t, key: string) => sessionByKey(t, key) },
    args['sessionKey'] as string,
  ))!;
  return { ...args, cursor: cursors.place('older', id, position) };
}

/** Every kind of page, as a tool gives it to a model: read, cut to the caller's scope, every row shown. */
async function pages(directory: string, sessions: number): Promise<PagesReport> {
  const started = performance.now();
  const gateway = await start(directory, 8);
  const readyMs = performance.now() - started;
  let state = 1;
  const random = (below: number) => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return Math.floor((state / 2 ** 32) * below);
  };
  const measured: Page[] = [];
  for (const { name, tool, setting, args, caller = callerKey } of scenarios) {
    const context = await contextOf(gateway, setting, caller, startOfTime + sessions * 1_000);
    let rows = 0;
    const ms = await pageMs(200, async () => {
      const outcome = await tool.run(context, await withCursor(gateway, context, args(random, sessions)));
      const { value } = outcome as { value: { sessions?: unknown[]; messages?: unknown[] } };
      JSON.stringify(value);
      rows = (value.sessions ?? value.messages)!.length;
    });
    measured.push({ name, rows, ms });
  }
  const memory = process.memoryUsage.rss();
  globalThis.gc!({ type: 'major', execution: 'sync', flavor: 'last-resort' });
  return { readyMs, pages: measured, memory, stays: process.memoryUsage.rss() };
}

async function contextOf(gateway: Running, setting: Setting, key: string, now: number): Promise<ToolContext> {
  const world = compileWorld(configOf(setting));
  const caller: ReadQuery<object, { session: SessionRow; caller: Party }> = {
    name: 'caller',
    *body(t) {
      const session = (yield* sessionByKey(t, key))!;
      return { session, caller: partyOfRow(world, session) };
    },
  };
  const seen = await gateway.store.read(caller, {});
  return {
    store: gateway.store,
    cursors: new Cursors('bench', randomBytes),
    engine: gateway.engine,
    send: () => Promise.reject(new Error('nothing is sent here')),
    client: {},
    pause: () => Promise.resolve(),
    world,
    now,
    ...seen,
    maxPingPongTurns: 0,
    modelOf: () => undefined,
    online: () => false,
    transcriptPath: () => undefined,
    workspace: () => ({ path: '', counted: '', name: '', older: '' }),
    highest: 'RESTRICTED',
    room: { bytes: 0, files: 0 },
    recap: () => Promise.reject(new Error('nothing is summed up here')),
    toolsOf: () => [],
    origin: { sessionPk: seen.session.pk, callId: 'bench' },
    key: 'bench',
    signal: new AbortController().signal,
  };
}
