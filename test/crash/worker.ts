// A gateway under test: does a list of operations, writes down what was acknowledged, and kills itself at a chosen point.
import { appendFileSync, existsSync, readFileSync } from 'node:fs';
import { request } from 'node:http';
import { z } from 'zod';
import type { Clock } from '../../src/clock.ts';
import { loopbackPost } from '../../src/channels/loopback/loopback.ts';
import { readConfig } from '../../src/config/load.ts';
import type { AcceptArgs } from '../../src/engine/accept.ts';
import { ensureSession } from '../../src/engine/sessions.ts';
import { assemble } from '../../src/gateway.ts';
import { Script } from '../../src/runtimes/scripted/scripted.ts';
import type { Query, Reading, WriteOptions } from '../../src/store/contract.ts';
import { Connection } from '../../src/store/sqlite/database.ts';
import { SqliteStore } from '../../src/store/sqlite/store.ts';
import { defineTool } from '../../src/tools/define.ts';

export type Op =
  | {
      id: string;
      do: 'message';
      channel: 'loopback';
      kind: 'direct' | 'group';
      peer: string;
      text: string;
      mode?: 'followup' | 'collect' | 'steer' | 'interrupt';
    }
  | { id: string; do: 'reset'; key: string }
  | { id: string; do: 'abort'; of: string };

export interface Task {
  stateDir: string;
  receiver: string;
  /** Acknowledged operations, one JSON line each. */
  acked: string;
  /** Where the kill is written down just before it happens. */
  killed: string;
  ops: Op[];
  /** Do this many operations at once. */
  parallel: number;
  /** The point to die at: its number, or its name with the how-manieth of that name it is. 0: never. */
  dieAt: number | string;
  mutant?: string;
  /** Commit every command alone, so that each has points of its own. */
  alone?: boolean;
  /** A model service; without it a script answers. */
  provider?: string;
}

/** What an operation was told: the run of a message, or the run that is being stopped. */
interface Done {
  runId: string;
  aborted?: string;
}

const task = JSON.parse(readFileSync(process.argv[2]!, 'utf8')) as Task;

// Points: before and after each commit, and before and after each outside effect -------------------------------------------

const points: string[] = [];
const seen = new Map<string, number>();
function point(name: string): void {
  const times = (seen.get(name) ?? 0) + 1;
  seen.set(name, times);
  points.push(`${name} #${times}`);
  if (points.length !== task.dieAt && points.at(-1) !== task.dieAt) return;
  appendFileSync(task.killed, `${JSON.stringify({ name })}\n`);
  process.kill(process.pid, 'SIGKILL');
  for (;;); // until the signal arrives
}

function acknowledge(op: Op, { runId, aborted }: Done): void {
  appendFileSync(task.acked, `${JSON.stringify({ op: op.id, runId, aborted })}\n`);
}

let since: string[] = [];
let changed = false;
/** The savepoints that are open, outermost first. */
let savepoints: string[] = [];
function follow(sql: string): void {
  const [, verb, name] = /^(SAVEPOINT|RELEASE|COMMIT|ROLLBACK)(?: (\w+))?$/.exec(sql) ?? [];
  if (verb === 'SAVEPOINT') savepoints.push(name!);
  else if (verb === 'RELEASE') savepoints.length = savepoints.lastIndexOf(name!);
  else if (verb !== undefined) savepoints = [];
}
const answer = Connection.prototype.answer;
Connection.prototype.answer = function (this: Connection, query: Query): unknown {
  if (query.sql !== 'COMMIT') {
    const result = answer.call(this, mutate(this, query));
    follow(query.sql);
    changed ||=
      query.sql.startsWith('INSERT') ||
      (query.want === 'run' && (result as { changes: number }).changes > 0 && !/^(SAVEPOINT|RELEASE|ROLLBACK|BEGIN)/.test(query.sql));
    return result;
  }
  // A commit that changes nothing is no point: there is nothing before it that is not after it.
  const names = changed ? [...new Set(since)].join(', ') : undefined;
  since = [];
  changed = false;
  if (names !== undefined) point(`before commit of ${names}`);
  const result = answer.call(this, query);
  follow(query.sql);
  if (names !== undefined) point(`after commit of ${names}`);
  return result;
};
const write = SqliteStore.prototype.write;
SqliteStore.prototype.write = function (this: SqliteStore, command, args, options?: WriteOptions) {
  const body: typeof command.body = function* (t, given) {
    since.push(command.name);
    const result = yield* command.body(t, given);
    // Mutant: acknowledged before the commit.
    if (task.mutant === 'early-ack' && command.name === 'accept') {
      const { text, runId } = (given as AcceptArgs).input;
      acknowledge(
        task.ops.find((op) => op.do === 'message' && op.text === text)!,
        { runId },
      );
    }
    return result;
  };
  return write.call(this, { ...command, body }, args, options);
} as typeof write;

const read = SqliteStore.prototype.read;
/** The mutant `forget-steps`: after a crash a turn begins anew, whatever it had done. A thread may carry out the read, so its body is changed. */
SqliteStore.prototype.read = function (this: SqliteStore, query, args, pace) {
  if (task.mutant !== 'forget-steps' || !existsSync(task.killed)) return read.call(this, query, args, pace);
  function* body(...given: Parameters<typeof query.body>): ReturnType<typeof query.body> {
    const inner = query.body(...given);
    let step = inner.next();
    while (!step.done) {
      const ask = step.value;
      const prompt = 'sql' in ask && ask.sql.includes('FROM entries WHERE session_pk = ? AND seq < ? AND seq > ?');
      step = inner.next(yield prompt ? { ...ask, sql: ask.sql.replace('AND seq > ?', `AND seq > ? AND role = 'user'`) } : ask);
    }
    return step.value;
  }
  return read.call(this, { ...query, body }, args, pace);
} as typeof read;

/** Mutants: the mistakes that the checker must find. */
function mutate(connection: Connection, query: Query): Query {
  const { sql } = query;
  switch (task.mutant) {
    case 'flow-outside':
      // The run's ending is committed before its exchange is advanced.
      if (sql.startsWith('SELECT * FROM exchanges WHERE pk = ? AND end_reason IS NULL')) {
        const again = ['BEGIN IMMEDIATE', ...savepoints.map((name) => `SAVEPOINT ${name}`)];
        for (const step of ['COMMIT', ...again]) connection.answer({ sql: step, params: [], want: 'run' });
      }
      return query;
    case 'no-idempotency':
      if (sql.startsWith('SELECT hash, run_pk FROM idempotency')) return { ...query, sql: `${sql} AND 0` };
      if (sql.startsWith('INSERT INTO idempotency')) return { ...query, sql: sql.replace('INSERT INTO', 'INSERT OR REPLACE INTO') };
      return query;
    case 'early-sent':
      if (/^(UPDATE deliveries SET state = 'sending'|SELECT \* FROM deliveries WHERE pk = \? AND state = 'sending')/.test(sql))
        return { ...query, sql: sql.replace(`'sending'`, `'sent'`) };
      return query;
    case 'resend':
      // What was being sent when the process died is sent again in silence.
      if (sql.startsWith(`UPDATE deliveries SET state = 'unknown'`)) return { ...query, sql: sql.replace(`'unknown'`, `'pending'`) };
      return query;
    case 'rerun-once':
      // A tool that may act only once is run again after a crash.
      if (sql.startsWith(`UPDATE tool_calls SET state = 'started'`)) return { ...query, sql: sql.replace(`'started'`, `'planned'`) };
      return query;
    case 'forget-abort':
      // That a run was stopped is kept in memory only.
      if (sql.startsWith('UPDATE runs SET abort_requested')) return { ...query, sql: `${sql} AND 0` };
      return query;
    case 'lie':
      // A call is told a reply that was never given.
      if (sql.startsWith('INSERT INTO entries') && query.params.includes('toolResult'))
        return { ...query, params: query.params.map((one) => (typeof one === 'string' ? one.replace('The answer.', 'Another.') : one)) };
      return query;
    default:
      return query;
  }
}

// The gateway ------------------------------------------------------------------------------------------------------------

const model = task.provider ? `models: { providers: { mock: { type: 'openai-compatible', baseUrl: '${task.provider}' } } },` : '';
const config = `{
  ${model}
  agents: { defaults: { ${model && `model: 'mock/m'`} }, list: [{ id: 'ana', default: true }, { id: 'bo' }, { id: 'carl' }] },
  session: { dmScope: 'per-peer', agentToAgent: { maxPingPongTurns: 2 } },
  bindings: [
    { agentId: 'bo', match: { channel: 'loopback', peer: { kind: 'group', id: 'kitchen' } } },
    { agentId: 'carl', match: { channel: 'loopback', peer: { kind: 'direct', id: 'steered' } } },
  ],
  tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } },
}`;

const send = (sessionKey: string, message: string, timeoutSeconds?: number) => ({
  tool: 'sessions_send',
  args: { sessionKey, message, ...(timeoutSeconds === undefined ? {} : { timeoutSeconds }) },
});
const script = Script.parse([
  { agent: 'bo', when: 'The exchange with', steps: [{ say: 'Announced.' }] },
  { when: 'Reply from session', steps: [{ say: 'And back.' }] },
  { agent: 'bo', when: 'question', steps: [{ say: 'The answer.' }] },
  {
    when: 'ask',
    steps: [
      { say: '', calls: [{ tool: 'sessions_send', args: { sessionKey: 'agent:bo:loopback:group:kitchen', message: 'question' } }] },
      { say: 'Asked: {{result}}' },
    ],
  },
  {
    when: 'visit',
    steps: [
      { say: '', calls: [{ tool: 'sessions_send', args: { sessionKey: 'agent:bo:guest:g', message: 'question' } }] },
      { say: 'Visited: {{result}}' },
    ],
  },
  { when: ' tell$', steps: [{ say: '', calls: [send('agent:bo:loopback:group:kitchen', 'question', 0)] }, { say: 'Told: {{result}}' }] },
  {
    when: ' both$',
    steps: [{ say: '', calls: ['agent:bo:main', 'agent:carl:main'].map((key) => send(key, 'question')) }, { say: 'Both: {{result}}' }],
  },
  { when: ' chain$', steps: [{ say: '', calls: [send('agent:bo:main', 'relay')] }, { say: 'Chained: {{result}}' }] },
  { agent: 'bo', when: 'relay$', steps: [{ say: '', calls: [send('agent:carl:main', 'question')] }, { say: 'Relayed: {{result}}' }] },
  { when: ' nap$', steps: [{ say: 'Slept.', sleepMs: 200 }] },
  { when: 'act', steps: [{ say: 'Acting.', calls: [{ tool: 'act' }, { tool: 'session_status' }] }, { say: 'Acted.' }] },
  { when: 'boom', steps: [{ say: '', calls: [{ tool: 'boom' }] }, { say: 'Survived.' }] },
  { when: 'slow', steps: [{ say: 'Too late.', sleepMs: 60_000 }] },
  { when: 'fail', steps: [{ fail: 'as asked' }] },
  { steps: [{ say: 'Heard {{input}}', sleepMs: 2, stream: 4 }] },
]);

/** Acts outside, and cannot be done twice: the receiver counts. */
const act = defineTool({
  name: 'act',
  description: 'Act outside.',
  effect: 'once',
  params: z.strictObject({}),
  async run({ key }) {
    point('before tool');
    await post(`${task.receiver}/act`, { id: key });
    point('after tool');
    return { value: 'done' };
  },
});

/** Takes the whole process with it, every time. */
const boom = defineTool({
  name: 'boom',
  description: 'Die.',
  effect: 'pure',
  params: z.strictObject({}),
  // oxlint-disable-next-line require-await -- asynchronous by contract
  async run() {
    appendFileSync(task.killed, `${JSON.stringify({ name: 'boom' })}\n`);
    process.kill(process.pid, 'SIGKILL');
    for (;;);
  },
});

function post(url: string, body: object): Promise<void> {
  return new Promise((resolve, reject) => {
    const posting = request(url, { method: 'POST' }, (response) => response.resume().on('end', resolve));
    posting.on('error', reject).end(JSON.stringify(body));
  });
}

const channel = loopbackPost(`${task.receiver}/message`);
const sending = {
  name: 'loopback',
  async send(...[message, signal]: Parameters<typeof channel.send>) {
    point('before delivery');
    const result = await channel.send(message, signal);
    point('after delivery');
    return result;
  },
};

const answered = globalThis.fetch;
globalThis.fetch = async (...args) => {
  point('before model');
  const response = await answered(...args);
  point('after model');
  return response;
};

// A stopwatch that leaps makes every batch full after one command.
let leaps = 0;
const clock: Clock = {
  now: () => Date.now(),
  elapsed: () => (task.alone ? (leaps += 10) : performance.now()),
  after(ms, work) {
    const timer = setTimeout(work, ms);
    return () => clearTimeout(timer);
  },
};

const assembled = await assemble(readConfig(config, 'crash', {}).config, {
  clock,
  stateDir: task.stateDir,
  script,
  channels: [sending],
  tools: [act, boom],
  warn: (message) => process.stderr.write(`${message}\n`),
  ...(task.provider ? { search: false, onDelta: () => point('during answer') } : {}),
});
const gateway = { ...assembled.parts, ...assembled.gateway };

// A guest: an outside harness that forgets everything when the gateway dies, and takes up again what it had ---------------------

const guestKey = 'agent:bo:guest:g';
let guesting = Promise.resolve();
const stopGuest = task.ops.some((op) => op.do === 'message' && op.text.includes('visit')) ? await startGuest() : async () => {};
async function startGuest(): Promise<() => Promise<void>> {
  const made = { id: 'guest', agent: 'bo', kind: 'other', clearance: 'RESTRICTED' as const };
  await gateway.store.write(ensureSession, { key: guestKey, made, now: clock.now() });
  const takeTurns = async () => {
    for (;;) {
      const { turn } = await gateway.engine.look(guestKey, { again: true, replyMs: 60_000 });
      if (!turn) return;
      const announce = turn.messages[0]!.text === 'Announce the result.';
      await gateway.engine.answer(guestKey, turn.turnId, announce ? 'ANNOUNCE_SKIP' : 'So says the guest.');
    }
  };
  const next = () => void (guesting = guesting.then(takeTurns));
  const undo = gateway.bus.subscribe({ wants: (event) => event.sessionKey === guestKey, deliver: next, reset() {}, failed: next });
  next();
  return async () => {
    undo();
    await guesting;
  };
}

// The operations: those not acknowledged yet, in order ----------------------------------------------------------------------

const acks = new Map<string, Done>();
if (existsSync(task.acked)) {
  for (const line of readFileSync(task.acked, 'utf8').split('\n').filter(Boolean)) {
    const { op, ...done } = JSON.parse(line) as Done & { op: string };
    acks.set(op, done);
  }
}

async function perform(op: Op): Promise<Done> {
  switch (op.do) {
    case 'message': {
      const origin = { channel: op.channel, peer: { kind: op.kind, id: op.peer } };
      return { runId: (await gateway.receive({ origin, text: op.text, messageId: op.id, ...(op.mode ? { mode: op.mode } : {}) })).runId };
    }
    case 'reset':
      await gateway.engine.reset(op.key).catch(() => undefined); // not opened yet: nothing to reset
      return { runId: '' };
    case 'abort': {
      while (!acks.has(op.of)) await new Promise((next) => setImmediate(next));
      const { runId } = acks.get(op.of)!;
      const stopped = await gateway.engine.abort(runId, 'the test says so').catch(() => undefined); // a mutant may have lost it
      return { runId: '', ...(stopped?.aborted ? { aborted: runId } : {}) };
    }
  }
}

const queue = task.ops.filter((op) => !acks.has(op.id));
async function worker(): Promise<void> {
  for (let op = queue.shift(); op; op = queue.shift()) {
    const done = await perform(op);
    acks.set(op.id, done);
    acknowledge(op, done);
  }
}
await Promise.all(Array.from({ length: task.parallel }, worker));

// Everything must come to its end by itself -----------------------------------------------------------------------------------

const open = {
  name: 'open work',
  *body(t: Reading) {
    return (yield* t.one<{ n: number }>(
      `SELECT (SELECT count(*) FROM runs WHERE ended_at IS NULL) + (SELECT count(*) FROM exchanges WHERE end_reason IS NULL)
            + (SELECT count(*) FROM deliveries WHERE state IN ('pending', 'sending')) AS n`,
    ))!.n;
  },
};
const drained = new Promise<void>((resolve, reject) => {
  const late = setTimeout(() => reject(new Error('not everything came to its end within 5 minutes')), 300_000);
  const look = async () => {
    if ((await gateway.store.read(open, {})) > 0) return;
    clearTimeout(late);
    resolve();
  };
  gateway.bus.subscribe({ wants: () => true, deliver: look, reset() {}, failed: reject });
  void look();
});
await drained;
await stopGuest();
await gateway.close();
process.stdout.write(JSON.stringify(points));
