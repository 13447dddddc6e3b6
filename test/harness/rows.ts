// What the store keeps, behind names: the only SQL of the stories, the MCP tests and the properties.
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import type {
  CallRow,
  DeliveryRow,
  EntryRow,
  ExchangeRow,
  InputRow,
  OfferRow,
  RunRow,
  SessionRow,
  StopRow,
  WaitRow,
} from '../../src/store/rows.ts';
import type { Value } from '../../src/store/contract.ts';
import { databaseName } from '../../src/store/sqlite/open.ts';

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
  readonly offers = this.table<OfferRow>('offers', 'run_pk');
  readonly stops = this.table<StopRow>('stops', 'lane, upto');
  readonly exchanges = this.table<ExchangeRow>('exchanges', 'pk');
  readonly deliveries = this.table<DeliveryRow>('deliveries', 'pk');
  readonly feed = this.table<FeedRow>('feed', 'pos');
  readonly forgets = this.table<{ session_pk: number }>('forgets', 'session_pk');

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

  // What stories read -------------------------------------------------------------------------------------------------

  /** The present life of a key. */
  async session(key: string): Promise<SessionRow> {
    const [row] = await this.sessions({ key, current: 1 });
    if (!row) throw new Error(`there is no session ${key}`);
    return row;
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
      const { context } = body === null ? {} : (JSON.parse(body) as { context?: string });
      const isKind = kind === undefined || (provenance !== null && (JSON.parse(provenance) as { kind: string }).kind === kind);
      return context !== undefined && isKind ? [context] : [];
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

  /** No exchange can be advanced any more. */
  breakExchanges(): Promise<void> {
    return this.on.run(`UPDATE exchanges SET state = 'nonsense'`);
  }

  /** A run's first call waits, without an end, for something that is elsewhere. */
  addWait(runId: string): Promise<void> {
    return this.on.run(
      `INSERT INTO waits (run_pk, step, idx, lane, target_run_pk, target_lane, due_at)
       SELECT pk, 1, 0, lane, 99, 'elsewhere', 9e15 FROM runs WHERE id = ?`,
      runId,
    );
  }
}

/** Makes a closed state look as if its gateway had died during a run. */
export function asIfKilled(stateDir: string, runId: string, more: { abort_requested?: string } = {}): void {
  const database = new DatabaseSync(join(stateDir, databaseName));
  database
    .prepare(`UPDATE runs SET state = 'running', owner = 0, ready_pos = NULL, abort_requested = ? WHERE id = ?`)
    .run(more.abort_requested ?? null, runId);
  database.close();
}
