// What the store keeps, behind names: the only SQL of the stories, the MCP tests and the properties.
import { mkdtempSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import type { TokenRow } from '../../src/store/tables/tokens.ts';
import type { WorkspaceRow } from '../../src/store/tables/workspaces.ts';
import type {
  CallRow,
  DeliveryRow,
  EntryRow,
  ExchangeRow,
  InjectionRow,
  InputRow,
  OfferRow,
  RunRow,
  SessionRow,
  StopRow,
  WaitRow,
} from '../../src/store/rows.ts';
import type { TurnContext } from '../../src/protocol/transcript.ts';
import { contextText } from '../../src/wording.ts';
import type { Value } from '../../src/store/contract.ts';
import { databaseName } from '../../src/store/sqlite/files.ts';

interface FeedRow {
  pos: number;
  session_pk: number;
  kind: string;
  ref_pk: number;
  state: string | null;
  detail: string | null;
  at: number;
}

/** Reads and writes rows of a store. */
export interface Rowwise {
  all<T>(sql: string, ...params: Value[]): Promise<T[]>;
  run(sql: string, ...params: Value[]): Promise<void>;
}

/** Rows of a table that have these values, oldest first; all fields, or those named. */
type Reader<Row> = <F extends keyof Row & string = keyof Row & string>(where?: Partial<Row>, ...fields: F[]) => Promise<Pick<Row, F>[]>;

export class Rows {
  private readonly on: Rowwise;
  readonly sessions = this.table<SessionRow>('sessions', 'pk');
  readonly runs = this.table<RunRow>('runs', 'pk');
  readonly inputs = this.table<InputRow>('inputs', 'pk');
  readonly entries = this.table<EntryRow>('entries', 'pk');
  readonly calls = this.table<CallRow>('tool_calls', 'run_pk, step, idx');
  readonly waits = this.table<WaitRow>('waits', 'pk');
  readonly injections = this.table<InjectionRow>('injections', 'pk');
  readonly offers = this.table<OfferRow>('offers', 'run_pk');
  readonly stops = this.table<StopRow>('stops', 'lane, upto');
  readonly exchanges = this.table<ExchangeRow>('exchanges', 'pk');
  readonly deliveries = this.table<DeliveryRow>('deliveries', 'pk');
  readonly feed = this.table<FeedRow>('feed', 'pos');
  readonly tokens = this.table<TokenRow>('tokens', 'name');
  readonly workspaces = this.table<WorkspaceRow>('workspaces', 'name');
  readonly forgets = this.table<{ session_pk: number; id: string | null }>('forgets', 'session_pk');

  constructor(on: Rowwise) {
    this.on = on;
  }

  private table<Row>(name: string, order: string): Reader<Row> {
    return (where = {}, ...fields) => {
      const given = Object.entries(where) as [string, Value][];
      const filter = given.length === 0 ? '' : ` WHERE ${given.map(([column]) => `"${column}" IS ?`).join(' AND ')}`;
      const columns = fields.length === 0 ? '*' : fields.map((field) => `"${field}"`).join(', ');
      return this.on.all(`SELECT ${columns} FROM ${name}${filter} ORDER BY ${order}`, ...given.map(([, value]) => value));
    };
  }

  /** Copies a row, each with another id. */
  async multiply(table: 'runs' | 'deliveries' | 'feed', where: { column: string; is: Value }, count: number): Promise<void> {
    const [row] = await this.on.all<object>(`SELECT * FROM ${table} WHERE ${where.column} = ?`, where.is);
    const columns = Object.keys(row!).filter((name) => name !== 'pk');
    const values = columns.map((name) =>
      name === 'id' ? `id || '-' || n` : name === 'part' ? 'part + n' : name === 'pos' ? 'pos + n' : name,
    );
    await this.on.run(
      `WITH RECURSIVE counted (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counted WHERE n < ?)
       INSERT INTO ${table} (${columns.join(', ')}) SELECT ${values.join(', ')} FROM ${table}, counted WHERE ${where.column} = ?`,
      count,
      where.is,
    );
  }

  // What stories read -------------------------------------------------------------------------------------------------

  /** The present life of a key. */
  async session(key: string): Promise<SessionRow> {
    const [row] = await this.sessions({ key, current: 1 });
    if (!row) throw new Error(`there is no session ${key}`);
    return row;
  }

  /** Runs that a flow started (`exchange`), or that nothing but their own input did, oldest first. */
  async runsOf(flow: 'exchange' | 'none', where: Partial<RunRow> = {}): Promise<RunRow[]> {
    const flows = new Map((await this.inputs()).map((input) => [input.run_pk, input.flow]));
    return (await this.runs(where)).filter(({ pk }) => (flows.get(pk) ?? 'none') === flow);
  }

  /** `role: text` of the present life of a key. */
  async transcript(key: string): Promise<string[]> {
    const { pk } = await this.session(key);
    return (await this.entries({ session_pk: pk })).map(({ role, text }) => `${role}: ${text}`);
  }

  /** `[run id, state]` of everything that happened to runs, in the order of the feed. */
  async runHistory(): Promise<[string, string][]> {
    const rows = await this.on.all<{ id: string; state: string }>(
      `SELECT runs.id, feed.state FROM feed JOIN runs ON runs.pk = ref_pk WHERE feed.kind = 'run' ORDER BY pos`,
    );
    return rows.map(({ id, state }) => [id, state]);
  }

  /** The turns of all exchanges: who was asked what, and said what. */
  turns(): Promise<{ turn: number; lane: string; state: string; reply: string | null; text: string }[]> {
    return this.on.all(
      `SELECT turn, lane, runs.state, entries.text AS reply, asked.text AS text FROM exchange_turns AS e JOIN runs ON runs.pk = e.run_pk
       LEFT JOIN entries ON entries.session_pk = runs.session_pk AND entries.seq = reply_seq
       LEFT JOIN inputs ON inputs.run_pk = e.run_pk LEFT JOIN entries AS asked ON asked.session_pk = runs.session_pk AND asked.seq = entry_seq
       ORDER BY exchange_pk, turn`,
    );
  }

  /** What turns were told beside their messages, oldest first; only of one kind of provenance, if it is given. */
  async contexts(kind?: string): Promise<string[]> {
    return (await this.entries()).flatMap(({ body, provenance }) => {
      const { context } = body === null ? {} : (JSON.parse(body) as { context?: TurnContext | string });
      const isKind = kind === undefined || (provenance !== null && (JSON.parse(provenance) as { kind: string }).kind === kind);
      return context !== undefined && isKind ? [typeof context === 'string' ? context : contextText(context)] : [];
    });
  }

  /** The results of a run's calls, in the order of the calls. */
  async results(runId: string): Promise<EntryRow[]> {
    return this.on.all<EntryRow>(
      `SELECT entries.* FROM entries JOIN runs ON runs.pk = run_pk WHERE role = 'toolResult' AND runs.id = ?
       ORDER BY CAST(substr(body ->> 'toolCallId', 3) AS INTEGER)`,
      runId,
    );
  }

  /** Exchanges with the runs of their turns, in the order of the turns. */
  async exchangeRuns(): Promise<{ id: string; state: string; runIds: string[] }[]> {
    const rows = await this.on.all<{ id: string; state: string; runs: string }>(
      `SELECT exchanges.id, exchanges.state, (SELECT group_concat(runs.id, ' ') FROM
         (SELECT run_pk FROM exchange_turns WHERE exchange_pk = exchanges.pk ORDER BY turn) JOIN runs ON runs.pk = run_pk) AS runs
       FROM exchanges ORDER BY pk`,
    );
    return rows.map(({ id, state, runs }) => ({ id, state, runIds: runs.split(' ') }));
  }

  /** What breaks a law of the store: nothing, whenever nothing is under way. */
  async faults(): Promise<Record<string, unknown[]>> {
    const found: Record<string, unknown[]> = {};
    for (const [what, sql] of Object.entries(faults)) {
      const rows = await this.on.all(sql);
      if (rows.length > 0) found[what] = rows;
    }
    return found;
  }

  /** Destinations with something open and another number of heads than one, and heads that are settled. */
  faultsOfHeads(): Promise<unknown[]> {
    return this.on.all(
      `SELECT dest_key, sum(head) AS heads FROM deliveries WHERE state IN ('pending', 'sending') GROUP BY dest_key HAVING heads != 1
       UNION ALL SELECT dest_key, head FROM deliveries WHERE state NOT IN ('pending', 'sending') AND head = 1`,
    );
  }

  /** How many runs, exchanges and deliveries are open. */
  async open(): Promise<number> {
    const rows = await this.on.all(
      `SELECT 1 FROM runs WHERE ended_at IS NULL UNION ALL SELECT 1 FROM exchanges WHERE end_reason IS NULL
       UNION ALL SELECT 1 FROM deliveries WHERE state IN ('pending', 'sending')`,
    );
    return rows.length;
  }

  async undelivered(): Promise<number> {
    return (await this.on.all(`SELECT 1 FROM deliveries WHERE state IN ('pending', 'sending')`)).length;
  }

  // What stories arrange ----------------------------------------------------------------------------------------------

  /** Writes fields of the present life of a key. */
  async setSession(key: string, fields: Partial<SessionRow>): Promise<void> {
    const given = Object.entries(fields) as [string, Value][];
    const set = given.map(([column]) => `"${column}" = ?`).join(', ');
    await this.on.run(`UPDATE sessions SET ${set} WHERE key = ? AND current = 1`, ...given.map(([, value]) => value), key);
  }

  /** Entries of a session that has none, without taking that many turns. */
  async addEntries(
    key: string,
    count: number,
    text: (index: number) => string,
    role: (index: number) => string = () => 'user',
  ): Promise<void> {
    const { pk, created_at } = await this.session(key);
    const made = Array.from({ length: count }, (_, index) => ({ text: text(index), role: role(index) }));
    await this.on.run(
      `INSERT INTO entries (session_pk, seq, id, role, taint, text, at)
       SELECT ?, key + 1, 'entry' || ? || '.' || key, value ->> 'role', 0, value ->> 'text', ? FROM json_each(?)`,
      pk,
      pk,
      created_at,
      JSON.stringify(made),
    );
    await this.setSession(key, { next_seq: count + 1 });
  }

  /** Deletes what follows an entry. */
  async cutEntries(key: string, after: number): Promise<void> {
    await this.on.run('DELETE FROM entries WHERE seq > ? AND session_pk = ?', after, (await this.session(key)).pk);
  }

  /** Takes the texts of a session away. */
  async emptyEntries(key: string): Promise<void> {
    await this.on.run(`UPDATE entries SET text = '' WHERE session_pk = ?`, (await this.session(key)).pk);
  }

  /** A session that another one has spawned. */
  addChild(key: string, parent: string): Promise<void> {
    return this.on.run(
      `INSERT INTO sessions (id, key, life, current, agent, kind, parent_key, created_at, last_at, last_pos)
       SELECT ?1, ?1, 1, 1, 'main', 'other', key, 0, 0, pk FROM sessions WHERE key = ?2`,
      key,
      parent,
    );
  }

  /** Sessions of the main agent with these keys. */
  addNamed(keys: string[]): Promise<void> {
    return this.on.run(
      `INSERT INTO sessions (id, key, life, current, agent, kind, created_at, last_pos, last_at)
       SELECT 'named' || key, value, 1, 1, 'main', 'other', 0, 1000000 + key, 0 FROM json_each(?)`,
      JSON.stringify(keys),
    );
  }

  /** Lives of a session before its present one, which gets the number after them. Only the first can be read by everyone. */
  async addLives(key: string, count: number): Promise<void> {
    await this.on.run(`UPDATE sessions SET life = ? WHERE key = ? AND current = 1`, count + 1, key);
    await this.on.run(
      `INSERT INTO sessions (id, key, life, current, agent, kind, taint, level, created_at, last_pos, last_at)
       SELECT 'life' || value, ?, value, 0, 'main', 'main', CASE value WHEN 1 THEN 0 ELSE 2 END, CASE value WHEN 1 THEN 0 ELSE 2 END, 0,
         1000000 + value, 0 FROM json_each(?)`,
      key,
      JSON.stringify(Array.from({ length: count }, (_, n) => n + 1)),
    );
  }

  /** Sessions of every level and kind, some spawned by others, some archived, each with a message and a run. */
  async addCrowd(count: number, kinds: string[]): Promise<void> {
    const sessions = Array.from({ length: count }, (_, n) => ({
      n,
      key: `agent:a${n % 4}:crowd-${n}`,
      agent: `a${n % 4}`,
      kind: kinds[n % kinds.length],
      label: n % 9 === 0 ? `label ${n}` : null,
      parent: n % 5 === 0 ? 'agent:main:main' : n % 7 === 0 ? 'agent:a3:crowd-3' : null,
      level: n % 4,
      state: n % 11 === 0 ? 'archived' : 'live',
      settings: JSON.stringify(n % 3 === 0 ? { displayName: `crowd ${n}`, thinkingLevel: 'low' } : {}),
      run: n % 13 === 0 ? 'waiting' : n % 2 === 0 ? 'ok' : 'error',
    }));
    const crowd = JSON.stringify(sessions);
    await this.on.run(
      `INSERT INTO sessions (id, key, life, current, agent, kind, label, parent_key, taint, level, state, created_at, last_at, last_pos, next_seq, settings)
       SELECT 'crowd-' || (value ->> 'n'), value ->> 'key', 1, 1, value ->> 'agent', value ->> 'kind', value ->> 'label', value ->> 'parent',
         value ->> 'level', value ->> 'level', value ->> 'state', 1, 1, 1000000 + (value ->> 'n'), 2, value ->> 'settings' FROM json_each(?)`,
      crowd,
    );
    await this.on.run(
      `INSERT INTO entries (session_pk, seq, id, role, taint, text, at)
       SELECT pk, 1, 'entry-' || (value ->> 'n'), 'user', value ->> 'level', 'message ' || (value ->> 'n'), 1
       FROM json_each(?) JOIN sessions ON sessions.key = value ->> 'key'`,
      crowd,
    );
    await this.on.run(
      `INSERT INTO runs (id, session_pk, lane, class, deliver, queued_at, state, started_at, ended_at)
       SELECT 'run-' || (value ->> 'n'), pk, sessions.key, 'main', 0, 1, value ->> 'run', 1, CASE value ->> 'run' WHEN 'waiting' THEN NULL ELSE 1 END
       FROM json_each(?) JOIN sessions ON sessions.key = value ->> 'key'`,
      crowd,
    );
  }

  /** Adds fields beside the text of every step that made calls. */
  addToCalls(fields: object): Promise<void> {
    return this.on.run(
      `UPDATE entries SET body = json_patch(body, ?) WHERE role = 'assistant' AND body LIKE '%"calls"%'`,
      JSON.stringify(fields),
    );
  }

  /** The feed forgets what is before a position. */
  forgetFeed(before: number): Promise<void> {
    return this.on.run('DELETE FROM feed WHERE pos < ?', before);
  }

  /** Many more deliveries like the first one, for the same destination. */
  addDeliveries(prefix: string, count: number, state: 'pending' | 'unknown'): Promise<void> {
    return this.on.run(
      `WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?2)
       INSERT INTO deliveries (id, session_pk, cause, cause_pk, part, dest_key, channel, recipient, taint, text, state, due_at, first_at, head)
       SELECT ?1 || n, session_pk, 'test', 1, n, dest_key, channel, recipient, taint, ?1 || n, ?3, 0, 0, ?3 = 'pending' AND n = 1
       FROM n, (SELECT * FROM deliveries LIMIT 1)`,
      prefix,
      count,
      state,
    );
  }

  async readMarks(): Promise<number> {
    return (await this.on.all<{ n: number }>('SELECT count(*) AS n FROM read_marks'))[0]!.n;
  }

  /** What came of a delivery cannot be written, as if the disk were full. */
  failToSettle(failing: boolean): Promise<void> {
    return this.on.run(
      failing
        ? `CREATE TRIGGER full BEFORE UPDATE OF platform_id ON deliveries BEGIN SELECT RAISE(ABORT, 'the disk is full, say'); END`
        : 'DROP TRIGGER full',
    );
  }

  /** Many more queued runs like the first one. */
  addQueued(count: number): Promise<void> {
    return this.on.run(
      `WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?)
       INSERT INTO runs (id, session_pk, lane, class, deliver, queued_at) SELECT 'many' || n, session_pk, lane, class, deliver, queued_at
       FROM n, (SELECT * FROM runs ORDER BY pk LIMIT 1)`,
      count,
    );
  }

  /** Many sessions that were active last of all in the order of the feed, and never by the clock. */
  addOldSessions(count: number): Promise<void> {
    return this.on.run(
      `WITH RECURSIVE n (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM n WHERE n < ?)
       INSERT INTO sessions (id, key, life, current, agent, kind, created_at, last_pos, last_at)
       SELECT 'old' || n, 'agent:main:old-' || n, 1, 1, 'main', 'other', 0, 1000000 + n, 0 FROM n`,
      count,
    );
  }

  /** No exchange can be advanced any more. */
  breakExchanges(): Promise<void> {
    return this.on.run(`UPDATE exchanges SET state = 'nonsense'`);
  }

  /** A run's first call waits for another run, too. */
  addWaitFor(runId: string, target: string): Promise<void> {
    return this.on.run(
      `INSERT INTO waits (run_pk, step, idx, lane, target_kind, target_pk, target_lane, due_at)
       SELECT r.pk, 1, 0, r.lane, 'run', o.pk, o.lane, 9e15 FROM runs AS r, runs AS o WHERE r.id = ? AND o.id = ?`,
      runId,
      target,
    );
  }

  /** A run's first call waits, without an end, for something that is elsewhere. */
  addWait(runId: string): Promise<void> {
    return this.on.run(
      `INSERT INTO waits (run_pk, step, idx, lane, target_kind, target_pk, target_lane, due_at)
       SELECT pk, 1, 0, lane, 'run', 99, 'elsewhere', 9e15 FROM runs WHERE id = ?`,
      runId,
    );
  }
}

/** Each query finds what must not be there whenever nothing is under way. */
const faults: Record<string, string> = {
  'two active runs in a lane': `SELECT lane FROM runs WHERE state IN ('running', 'waiting') GROUP BY lane HAVING count(*) > 1`,
  'a run that is claimable but not the head of a free lane': `SELECT id FROM runs AS r WHERE ready_pos IS NOT NULL AND state = 'queued'
    AND EXISTS (SELECT 1 FROM runs AS o WHERE o.lane = r.lane AND (o.state IN ('running', 'waiting') OR o.state = 'queued' AND o.pk < r.pk))`,
  'a free lane whose head is not claimable': `SELECT lane FROM runs AS r WHERE state = 'queued' GROUP BY lane
    HAVING NOT EXISTS (SELECT 1 FROM runs AS o WHERE o.lane = r.lane AND (o.state IN ('running', 'waiting') OR o.ready_pos IS NOT NULL))`,
  'an ended run that does not say when, or a live one that does': `SELECT id FROM runs WHERE (ended_at IS NULL) != (state IN ('queued', 'running', 'waiting'))`,
  'a run with another number of ends than one': `SELECT runs.id FROM runs LEFT JOIN feed ON kind = 'run' AND ref_pk = runs.pk AND feed.state IN ('ok', 'error', 'timeout', 'aborted')
    WHERE ended_at IS NOT NULL GROUP BY runs.pk HAVING count(feed.pos) != 1`,
  'an aborted run without a reason': `SELECT id FROM runs WHERE state = 'aborted' AND error IS NULL`,
  'a gap in a transcript': `SELECT session_pk FROM entries GROUP BY session_pk HAVING max(seq) != count(*) OR min(seq) != 1`,
  'a transcript counter that is off': `SELECT key FROM sessions WHERE next_seq != 1 + (SELECT count(*) FROM entries WHERE session_pk = sessions.pk)`,
  'an input that is neither waiting, nor in the transcript, nor ended with a reason': `SELECT inputs.pk FROM inputs JOIN runs ON runs.pk = run_pk WHERE NOT (
    inputs.state = 'queued' AND runs.state = 'queued' AND entry_seq IS NULL
    OR inputs.state = 'consumed' AND runs.state != 'queued' AND EXISTS (SELECT 1 FROM entries WHERE session_pk = inputs.session_pk AND seq = entry_seq AND role = 'user')
    OR inputs.state = 'aborted' AND runs.state = 'aborted' AND reason IS NOT NULL AND entry_seq IS NULL)`,
  'an entry that two inputs became':
    'SELECT entry_seq FROM inputs WHERE entry_seq IS NOT NULL GROUP BY session_pk, entry_seq HAVING count(*) > 1',
  'a wait of a run that does not wait': `SELECT waits.pk FROM waits JOIN runs ON runs.pk = run_pk WHERE state != 'waiting'`,
  'a wait for a run that has ended': `SELECT waits.pk FROM waits JOIN runs ON runs.pk = target_pk WHERE ended_at IS NOT NULL`,
  'a run that waits for nothing and is not claimable': `SELECT id FROM runs WHERE state = 'waiting' AND ready_pos IS NULL AND NOT EXISTS (SELECT 1 FROM waits WHERE run_pk = runs.pk)`,
  'an open exchange with another number of open turns than one': `SELECT exchanges.pk FROM exchanges LEFT JOIN exchange_turns ON exchange_pk = exchanges.pk LEFT JOIN runs ON runs.pk = run_pk AND ended_at IS NULL
    WHERE end_reason IS NULL GROUP BY exchanges.pk HAVING count(runs.pk) != 1`,
  'a closed exchange with an open turn': `SELECT exchanges.pk FROM exchanges JOIN exchange_turns ON exchange_pk = exchanges.pk JOIN runs ON runs.pk = run_pk WHERE end_reason IS NOT NULL AND ended_at IS NULL`,
  'a flow that failed': `SELECT id FROM exchanges WHERE state = 'failed'`,
  'two current lives of a key': 'SELECT key FROM sessions WHERE current = 1 GROUP BY key HAVING count(*) > 1',
  'runs of a lane that started out of order': `SELECT later.id FROM feed AS begun JOIN runs AS later ON later.pk = begun.ref_pk JOIN runs AS earlier ON earlier.lane = later.lane AND earlier.pk < later.pk AND earlier.merged_into IS NULL
    JOIN feed AS other ON other.kind = 'run' AND other.ref_pk = earlier.pk AND other.state = 'running' WHERE begun.kind = 'run' AND begun.state = 'running' AND other.pos > begun.pos`,
};

/** Makes a closed state look as if its gateway had died during a run. */
export function asIfKilled(stateDir: string, runId: string, more: { abort_requested?: string } = {}): void {
  const database = new DatabaseSync(join(stateDir, databaseName));
  database
    .prepare(`UPDATE runs SET state = 'running', owner = 0, ready_pos = NULL, abort_requested = ? WHERE id = ?`)
    .run(more.abort_requested ?? null, runId);
  database.close();
}

export interface TokenChange {
  /** The name of the tokens, as a pattern. */
  like: string;
  name?: string;
  level?: number;
}

/** Changes of a dump's tokens, to be loaded after it. */
export const changedTokens = (changes: TokenChange[]): string =>
  changes
    .map(({ like, ...set }) => {
      const [field, value] = Object.entries(set)[0]!;
      return `UPDATE tokens SET ${field} = '${value}' WHERE name LIKE '${like}'`;
    })
    .join(';');

const keyed = ['runs lane', 'waits lane', 'waits target_lane', 'offers lane', 'tokens session_key', 'sessions parent_key', 'sessions key'];

/** Changes of a dump: a session is the shared chat of `session.scope: "global"` as it was stored, and the main session has another key. */
export function sharedChat(key: string, main: string): string {
  const moved = keyed.map((place) => {
    const [table, column] = place.split(' ');
    return `UPDATE ${table} SET ${column} = 'global' WHERE ${column} = '${key}'`;
  });
  return ['', ...moved, `UPDATE sessions SET key = '${main}' WHERE key = 'agent:main:main'`].join(';\n');
}

/** Writes a dump into a state directory, before a gateway starts there. */
export function loadState(stateDir: string, dump: string): void {
  const database = new DatabaseSync(join(stateDir, databaseName));
  database.exec(dump);
  database.close();
}

/** The schema of a store in a state directory. */
export function schemaOf(stateDir: string, name: string): number {
  const database = new DatabaseSync(join(stateDir, name), { readOnly: true });
  const [version] = Object.values(database.prepare('PRAGMA user_version').get()!);
  database.close();
  return Number(version);
}

/** The state as a kill leaves it at this moment, in a directory of its own, which the caller deletes. */
export function copyOfState(stateDir: string): string {
  const copy = mkdtempSync(join(tmpdir(), 'interlane-killed-'));
  const database = new DatabaseSync(join(stateDir, databaseName));
  database.exec(`VACUUM INTO '${join(copy, databaseName)}'`);
  database.close();
  return copy;
}

const meddling = {
  /** The turns that follow a first reply cannot be written. */
  'no reply turns': `CREATE TRIGGER broken BEFORE INSERT ON exchange_turns WHEN NEW.turn > 0 BEGIN SELECT RAISE(ABORT, 'broken on purpose'); END`,
  /** Another gateway has taken every run. */
  'steal runs': 'UPDATE runs SET epoch = epoch + 1',
  /** Exchanges should have ended long ago. */
  'late exchanges': 'UPDATE exchanges SET due_at = 1',
  /** The clock was ahead when the newest event happened. */
  'events of the future': 'UPDATE feed SET at = 4000000000000',
};

/** A hand in the database while the gateway runs. */
export function meddle(stateDir: string, how: keyof typeof meddling): void {
  const database = new DatabaseSync(join(stateDir, databaseName), { timeout: 5_000 });
  database.exec(meddling[how]);
  database.close();
}

/** How many runs a closed state holds. */
export function countRuns(stateDir: string): number {
  const database = new DatabaseSync(join(stateDir, databaseName), { readOnly: true });
  const row = database.prepare('SELECT count(*) AS n FROM runs').get();
  database.close();
  return row!['n'] as number;
}
