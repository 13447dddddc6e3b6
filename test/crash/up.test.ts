// The real `interlane up` under load through its port, killed at random and started again, with followers over websocket, SSE and MCP.
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { spawn, type ChildProcess } from 'node:child_process';
import { DatabaseSync } from 'node:sqlite';
import { tmpdir } from 'node:os';
import { join, resolve } from 'node:path';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { InterlaneError } from '../../src/errors.ts';
import type { Params, Results } from '../../src/protocol/operations/all.ts';
import { findViolations } from './checker.ts';
import { asGuest, missed, overEventStream, overWebsocket, reach, type Seen } from './followers.ts';
import { startProvider, type Receiver } from './harness.ts';
import { seeded } from './scenarios.ts';

const kills = Math.ceil(Number(process.env['CRASH_KILLS'] ?? 30) / 5);
const seed = Number(process.env['CRASH_SEED'] ?? 20_261_115);
const token = 'the-token-of-the-crash-tests';
const keys = ['agent:ana:one', 'agent:ana:two', 'agent:ana:three'];
const words = ['hello', 'ask', 'tell', 'both', 'chain', 'visit'];

const directory = mkdtempSync(join(tmpdir(), 'interlane-up-'));
let provider: Receiver;
beforeAll(async () => {
  provider = await startProvider(directory);
});
afterAll(() => {
  provider.stop();
  rmSync(directory, { recursive: true, force: true });
});

/** The command, its port and its death. */
class Up {
  readonly state = join(directory, 'state');
  url = '';
  private child: ChildProcess | undefined;
  private up = Promise.withResolvers<void>();

  constructor() {
    writeFileSync(
      join(directory, 'interlane.json5'),
      JSON.stringify({
        agents: { defaults: { model: 'mock/m' }, list: [{ id: 'ana', default: true }, { id: 'bo' }, { id: 'carl' }] },
        models: { providers: { mock: { type: 'openai-compatible', baseUrl: provider.url } } },
        session: { agentToAgent: { maxPingPongTurns: 1 } },
        tools: { sessions: { visibility: 'all' }, agentToAgent: { enabled: true } },
      }),
    );
  }

  async start(): Promise<void> {
    const port = this.url === '' ? '0' : new URL(this.url).port;
    const args = ['up', '--port', port, '--state-dir', this.state, '--config', join(directory, 'interlane.json5')];
    const env = { ...process.env, INTERLANE_TOKEN: token, INTERLANE_DISCOVER: '0' };
    const child = spawn(process.execPath, [resolve('bin/interlane.cjs'), ...args], { env, stdio: ['ignore', 'pipe', 'pipe'] });
    let said = '';
    let wrong = '';
    child.stderr.setEncoding('utf8').on('data', (text: string) => (wrong += text));
    await new Promise<void>((done, failed) => {
      child.stdout.setEncoding('utf8').on('data', (text: string) => {
        said += text;
        if (said.includes('Up. Press Ctrl-C')) done();
      });
      child.once('exit', (status) => failed(new Error(`up ended with ${status}: ${said}${wrong.slice(-2_000)}`)));
    });
    this.child = child;
    this.url = (JSON.parse(readFileSync(join(this.state, 'cli.json'), 'utf8')) as { url: string }).url;
    this.up.resolve();
  }

  async end(signal: 'SIGKILL' | 'SIGTERM'): Promise<number | null> {
    const child = this.child!;
    this.up = Promise.withResolvers<void>();
    const over = new Promise<number | null>((done) => child.once('exit', done));
    child.kill(signal);
    return over;
  }

  /** Tries again for as long as the gateway is away; with an idempotency key that is the same request. */
  async call<M extends 'chat.send' | 'chat.abort' | 'agent.wait' | 'status' | 'guests.join'>(
    method: M,
    params: Params<M>,
  ): Promise<Results[M]> {
    for (;;) {
      await this.up.promise;
      try {
        const client = await reach(this.url, token);
        try {
          return await client.call(method, params);
        } finally {
          client.close();
        }
      } catch (thrown) {
        if (!(thrown instanceof InterlaneError) || (thrown.code !== 'UNAVAILABLE' && thrown.code !== 'AUTH_RATE_LIMITED')) throw thrown;
        await new Promise((next) => setImmediate(next));
      }
    }
  }
}

it(
  `the real gateway loses nothing in ${kills} kills, seed ${seed}, and tells its clients, followers and guests what happened`,
  async () => {
    const random = seeded(seed);
    const pick = <T>(list: readonly T[]): T => list[Math.floor(random() * list.length)]!;
    const up = new Up();
    await up.start();
    const { token: guestToken } = await up.call('guests.join', { name: 'fable', agentId: 'ana' });
    const subscribed = Promise.withResolvers<void>();
    const websocket = overWebsocket(up.url, token, () => subscribed.resolve());
    await subscribed.promise;
    const guest = asGuest(up.url, guestToken);
    const acked = join(directory, 'acked.jsonl');
    const sent = new Map<string, string>();
    const runs: string[] = [];
    let eventStream: ReturnType<typeof overEventStream> | undefined;
    let left = kills;
    let n = 0;

    // Clients: each sends, now and then stops a run, until all kills are done.
    const client = async () => {
      for (const more = () => left > 0 || n < 20; more();) {
        const op = `m${n++}`;
        const text = `${op} ${pick(words)}`;
        const sessionKey = pick(keys);
        sent.set(op, text);
        const { runId } = await up.call('chat.send', { sessionKey, message: text, idempotencyKey: op });
        appendFileSync(acked, `${JSON.stringify({ op, runId })}\n`);
        runs.push(runId);
        eventStream ??= overEventStream(up.url, token, sessionKey);
        if (random() < 0.15) {
          const { aborted, runIds } = await up.call('chat.abort', { sessionKey, runId });
          if (aborted) for (const one of runIds) appendFileSync(acked, `${JSON.stringify({ op: `a${op}`, runId: '', aborted: one })}\n`);
        }
        // A few at a time: the next ones come when some of these have ended.
        if (runs.length > 6) await up.call('agent.wait', { runId: runs[runs.length - 6]!, timeoutMs: 3_600_000 });
      }
    };
    // Kills come after so many more messages that the follower has seen, wherever the gateway is then.
    const killer = async () => {
      for (; left > 0; left--) {
        await websocket.reached(websocket.count() + 1 + Math.floor(random() * 25));
        await up.end('SIGKILL');
        await up.start();
      }
    };
    await Promise.all([client(), client(), killer()]);

    // Everything comes to its end, and every client is told what that was.
    const told = new Map<string, Results['agent.wait']>();
    for (const runId of runs) told.set(runId, await up.call('agent.wait', { runId, timeoutMs: 3_600_000 }));
    for (;;) {
      const { queued, running, waiting } = (await up.call('status', {})).runs!;
      if (queued + running + waiting === 0) break;
    }
    const database = join(up.state, 'interlane.db');
    const db = new DatabaseSync(database, { readOnly: true });
    const count = (sql: string, ...params: string[]) => Number(db.prepare(`SELECT count(*) AS n FROM ${sql}`).get(...params)!['n']);
    await websocket.reached(count('entries'));
    const [streamed = ''] = [...eventStream!.seen.keys()];
    await eventStream!.reached(count('entries JOIN sessions ON sessions.pk = session_pk WHERE key = ?', streamed));
    await guest.stop();
    await websocket.stop();
    await eventStream!.stop();
    expect(await up.end('SIGTERM')).toBe(0);

    const lies: string[] = [];
    const found = (runId: string) =>
      db
        .prepare(
          `SELECT state, (SELECT text FROM entries WHERE entries.session_pk = runs.session_pk AND seq = runs.reply_seq) AS reply FROM runs WHERE id = ?`,
        )
        .get(runId) as { state: string; reply: string | null };
    for (const [runId, { state, terminalReply }] of told) {
      const run = found(runId);
      const reply = run.state === 'ok' ? (run.reply ?? '') : '';
      if (run.state !== state || (terminalReply?.text ?? '') !== reply)
        lies.push(`a client was told ${state} "${terminalReply?.text}" of ${runId}, which is ${run.state} "${run.reply}"`);
    }
    for (const [turnId, text] of guest.told) {
      const run = found(turnId.replace(/[./#:]\d+$/, ''));
      if (run?.reply !== text) lies.push(`a guest was told that "${text}" was taken, but ${turnId} has "${run?.reply}"`);
    }
    const all = db
      .prepare('SELECT key FROM sessions WHERE current = 1 AND next_seq > 1')
      .all()
      .map((row) => String(row['key']));
    const exchanges = count('exchanges');
    db.close();
    expect([
      ...findViolations({ database, acked, received: join(directory, 'none'), prefix: '/none', sent }),
      ...missed('the websocket', websocket.seen, database, all),
      ...missed('the event stream', eventStream!.seen, database, [streamed]),
      ...lies,
    ]).toEqual([]);
    expect(guest.told.size).toBeGreaterThan(0);
    expect(exchanges).toBeGreaterThan(10);
  },
  600_000 + kills * 60_000,
);

describe('the comparison of what a follower saw', () => {
  it.each([
    ['a gap', [1, 3]],
    ['a message twice', [1, 2, 2, 3]],
    ['another order', [1, 3, 2]],
    ['a missing end', [1, 2]],
  ])('finds %s', (_, seqs) => {
    const file = join(directory, 'compared.db');
    const db = new DatabaseSync(file);
    db.exec(
      `CREATE TABLE IF NOT EXISTS sessions (key TEXT, current INTEGER, next_seq INTEGER); DELETE FROM sessions; INSERT INTO sessions VALUES ('k', 1, 4)`,
    );
    db.close();
    const seen = (numbers: number[]): Seen => new Map([['k', numbers]]);
    expect([...missed('one', seen([1, 2, 3]), file, ['k'])]).toEqual([]);
    expect([...missed('one', seen(seqs), file, ['k'])]).toHaveLength(1);
  });
});
