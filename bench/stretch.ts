// How long one request keeps the main thread: the longest turn of the event loop during each operation, in processor time, with 20,000
// sessions and messages of a megabyte. The client runs in a thread of its own.
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { isMainThread, parentPort, Worker, workerData } from 'node:worker_threads';
import { connect } from '../src/client/client.ts';
import type { OperationName } from '../src/protocol/operations/all.ts';
import { databaseName } from '../src/store/sqlite/files.ts';
import { callerKey, longKey, makeState, startOfTime } from './data.ts';
import { inTemporary, median, progress, table } from './measure.ts';
import { start } from './setting.ts';

const sessions = 20_000;
const bigKey = (n: number) => `agent:a1:telegram:direct:${n}`;
const repeats = 12;
const longestMs = 10;

type Wish = { method: OperationName; params: object } | { path: string };

const operations: [name: string, wish: Wish][] = [
  ['sessions.list, 50 rows', { method: 'sessions.list', params: { limit: 50 } }],
  ['sessions.list, 1,000 rows', { method: 'sessions.list', params: { limit: 1000, includeLastMessage: true } }],
  ['sessions.list, a word in no key', { method: 'sessions.list', params: { search: 'nowhere', limit: 1000 } }],
  ['sessions.list, a word, offset 2,000', { method: 'sessions.list', params: { search: 'telegram', offset: 2000, limit: 1000 } }],
  ['chat.history, 50 messages', { method: 'chat.history', params: { sessionKey: longKey(0), limit: 50 } }],
  ['chat.history, 400 messages', { method: 'chat.history', params: { sessionKey: longKey(0), limit: 1000 } }],
  ['chat.history, messages of 1 MB', { method: 'chat.history', params: { sessionKey: bigKey(101), limit: 1000 } }],
  ['chat.history, messages of 100 kB', { method: 'chat.history', params: { sessionKey: bigKey(161), limit: 1000 } }],
  [
    'sessions.preview, 100 × 1 key',
    { method: 'sessions.preview', params: { keys: Array.from({ length: 100 }, () => bigKey(101)), limit: 50, maxChars: 10_000 } },
  ],
  [
    'sessions.preview, 100 keys',
    { method: 'sessions.preview', params: { keys: Array.from({ length: 100 }, (_, n) => bigKey(1001 + 20 * n)), limit: 50 } },
  ],
  ['runs.list, 1,000', { method: 'runs.list', params: { limit: 1000 } }],
  ['sessions_list, 50 rows', { method: 'tools.invoke', params: { tool: 'sessions_list', args: {}, sessionKey: callerKey } }],
  [
    'sessions_list, 200 × 20 messages',
    { method: 'tools.invoke', params: { tool: 'sessions_list', args: { limit: 200, messageLimit: 20 }, sessionKey: callerKey } },
  ],
  [
    'sessions_history, 50 messages',
    { method: 'tools.invoke', params: { tool: 'sessions_history', args: { sessionKey: longKey(0) }, sessionKey: callerKey } },
  ],
  [
    'sessions_history, messages of 1 MB',
    { method: 'tools.invoke', params: { tool: 'sessions_history', args: { sessionKey: bigKey(101), limit: 1000 }, sessionKey: callerKey } },
  ],
  [
    'sessions_search, words in all',
    { method: 'tools.invoke', params: { tool: 'sessions_search', args: { query: 'message session', limit: 100 }, sessionKey: callerKey } },
  ],
  [
    'sessions_search, words never together',
    { method: 'tools.invoke', params: { tool: 'sessions_search', args: { query: 'message nowhere' }, sessionKey: callerKey } },
  ],
  ['GET /sessions/{key}/history', { path: `/sessions/${longKey(0)}/history?limit=1000` }],
  ['GET /metrics', { path: '/metrics' }],
];

/** Two sessions whose messages are large, and runs to list. */
function addLarge(directory: string): void {
  const database = new DatabaseSync(join(directory, databaseName));
  const pkOf = (key: string) => Number(database.prepare('SELECT pk FROM sessions WHERE key = ?').get(key)!['pk']);
  const insert = database.prepare(
    `INSERT INTO entries (session_pk, seq, id, role, taint, text, at) VALUES (?, ?, ?, 'user', 0, ?, ${startOfTime})`,
  );
  database.exec('BEGIN');
  for (const [key, length] of [
    [bigKey(101), 1_000_000],
    [bigKey(161), 100_000],
  ] as const) {
    const pk = pkOf(key);
    for (let seq = 3; seq < 63; seq++) insert.run(pk, seq, `large-${pk}-${seq}`, 'word '.repeat(length / 5));
    database.prepare('UPDATE sessions SET next_seq = 63, level = 0, taint = 0 WHERE pk = ?').run(pk);
  }
  database.exec(`
    INSERT INTO runs (id, session_pk, lane, class, deliver, state, queued_at, started_at, ended_at)
    SELECT 'run-' || pk, pk, key, 'main', 0, 'ok', unixepoch() * 1000, unixepoch() * 1000, unixepoch() * 1000 FROM sessions LIMIT 5000;
    COMMIT`);
  database.close();
}

/** The processor time of the longest turn since the last look. */
function meter() {
  let longest = 0;
  let all = 0;
  let before = process.threadCpuUsage();
  let running = true;
  const turn = () => {
    const spent = process.threadCpuUsage(before);
    before = process.threadCpuUsage();
    const ms = (spent.user + spent.system) / 1_000;
    longest = Math.max(longest, ms);
    all += ms;
    if (running) setImmediate(turn);
  };
  setImmediate(turn);
  return {
    look() {
      const seen = { longest, all };
      longest = all = 0;
      return seen;
    },
    stop: () => void (running = false),
  };
}

export async function benchStretch(): Promise<void> {
  await inTemporary(async (parent) => {
    const directory = join(parent, 'state');
    progress('stretch: making 20,000 sessions');
    await makeState(directory, sessions);
    addLarge(directory);
    const token = 'a-secret-that-is-long-enough';
    const gateway = await start(directory, 8, {}, { search: true, listen: { host: '127.0.0.1', port: 0, token, version: 'bench' } });
    const client = new Worker(new URL(import.meta.url), { workerData: { url: gateway.server!.url, token } });
    const ask = (wish: Wish) =>
      new Promise<number>((resolve) => {
        client.once('message', resolve);
        client.postMessage(wish);
      });
    await new Promise((resolve) => client.once('message', resolve));
    const measured = meter();
    const rows: string[][] = [];
    for (const [name, wish] of operations) {
      progress(`stretch: ${name}`);
      for (let n = 0; n < 3; n++) await ask(wish);
      const seen: { longest: number; ms: number }[] = [];
      let bytes = 0;
      for (let n = 0; n < repeats; n++) {
        measured.look();
        const started = performance.now();
        bytes = await ask(wish);
        seen.push({ longest: measured.look().longest, ms: performance.now() - started });
      }
      const longest = Math.max(...seen.map((one) => one.longest));
      const usual = median(seen.map((one) => one.longest));
      rows.push([
        name,
        `${usual.toFixed(1)} ms`,
        `${longest.toFixed(1)} ms`,
        `${median(seen.map((one) => one.ms)).toFixed(1)} ms`,
        `${Math.round(bytes / 1024)} KiB`,
        usual <= longestMs ? 'reached' : 'NOT REACHED',
      ]);
    }
    measured.stop();
    await client.terminate();
    await gateway.close();
    process.stdout.write(`\nthe longest turn of the main thread in an operation, processor time, ${repeats} times each\n\n`);
    process.stdout.write(table(['', 'median', 'worst', 'answer after', 'answer', `at most ${longestMs} ms`], rows));
  });
}

/** The client: a wish in, the bytes of its answer out. */
async function serveWishes({ url, token }: { url: string; token: string }): Promise<void> {
  const client = await connect({ url, token, client: { id: 'bench', version: '1', platform: 'bench', mode: 'bench' } });
  parentPort!.on('message', (wish: Wish) => {
    const asked =
      'path' in wish
        ? fetch(url + wish.path, { headers: { authorization: `Bearer ${token}` } }).then((answer) => answer.text())
        : client.request(wish.method, wish.params as never).then((answer) => JSON.stringify(answer));
    void asked.then((text) => parentPort!.postMessage(text.length));
  });
  parentPort!.postMessage(0);
}

if (!isMainThread) await serveWishes(workerData as { url: string; token: string });
