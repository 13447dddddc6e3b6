// The file of the search index: an FTS5 table of words without their texts, and how far it has read.
import { existsSync, rmSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { setImmediate as tick } from 'node:timers/promises';
import { InterlaneError } from '../../errors.ts';
import type { Query } from '../contract.ts';
import type { Place } from '../search-feed.ts';
import type { EntryText } from '../tables/entries.ts';
import { wordsOf } from '../words.ts';
import { createPrivate, explain, keepPrivate, sqliteCode } from './database.ts';

export const searchName = 'search.db';
export const inMemory = ':memory:';

const applicationId = 0x696c_6173; // "ilas"
const version = 2;
const schema = `
  -- No text is kept here. The tokenizer cuts at the spaces between words that were already cut by words.ts.
  CREATE VIRTUAL TABLE words USING fts5 (session, said, content = '', contentless_delete = 1, tokenize = 'ascii');
  -- FTS5 would merge what it has written whenever it likes, for up to 200 ms. We merge in steps instead.
  INSERT INTO words (words, rank) VALUES ('automerge', 0), ('crisismerge', 1000);
  CREATE TABLE progress (pos INTEGER NOT NULL, below INTEGER NOT NULL, timeline TEXT NOT NULL) STRICT;
`;

const corrupt = 11;
const notDatabase = 26;
/** The other connection to the file locks it only for moments. */
const lockMs = 250;
const forgetEntries = 1000;
/** After each addition, so that the index stays in few parts. */
const mergesAtOnce = 8;
const mostNamed = 500;

/** One thing to write. `anew`: into an index that is empty, whatever is in the file. */
export type Job = Addition | { forget: number[] };

interface Addition {
  add: EntryText[];
  to: Place;
  anew: boolean;
}

/** `damaged`: the index must be made anew. `over`: the writer stopped before it was done. */
export type Written = 'done' | 'damaged' | 'over';

/** Returns false if the index is damaged. */
type Step = () => boolean;

/** One connection to the index. A file that is missing, damaged or of another version counts as an index that has read nothing. */
export class SearchFile {
  readonly path: string;
  private readonly mergePages: number;
  private database: DatabaseSync | undefined;

  /** `mergePages`: how much one step merges; 16 take about 1 ms. */
  constructor(path: string, mergePages: number) {
    this.path = path;
    this.mergePages = mergePages;
  }

  place(): Place | undefined {
    return this.using((index) => index.prepare('SELECT pos, below, timeline FROM progress').get() as unknown as Place);
  }

  /** Entries that have all these terms, newest first, below a pk. */
  propose(proposal: Query): number[] {
    const rows = this.using((index) => index.prepare(proposal.sql).all(...proposal.params));
    return (rows ?? []).map((row) => row['pk'] as number);
  }

  /** Writes in steps that are each short. Between two of them it lets others go on; `stopped` ends it there. */
  async write(job: Job, stopped: () => boolean): Promise<Written> {
    for (const step of 'add' in job ? this.adding(job) : this.forgetting(job.forget)) {
      if (stopped()) return 'over';
      if (!step()) return 'damaged';
      await tick();
    }
    return 'done';
  }

  close(): void {
    this.database?.close();
    this.database = undefined;
  }

  private *adding(job: Addition): Generator<Step> {
    yield () => this.add(job);
    yield* this.repeated(() => (index) => merge(index, this.mergePages), mergesAtOnce);
  }

  /** The rows and the new place, in one transaction. */
  private add({ add, to, anew }: Addition): boolean {
    if (anew) this.discard();
    const work = (index: DatabaseSync) => {
      const insert = index.prepare('INSERT OR REPLACE INTO words (rowid, session, said) VALUES (?, ?, ?)');
      index.exec('BEGIN IMMEDIATE');
      for (const { pk, session_pk, text } of add) {
        const words = wordsOf(text).map((word) => word.text);
        if (words.length > 0) insert.run(pk, sessionWord(session_pk), words.join(' '));
      }
      index.prepare('UPDATE progress SET pos = ?, below = ?, timeline = ?').run(to.pos, to.below, to.timeline);
      index.exec('COMMIT');
      return true;
    };
    return this.using(work, anew) ?? false;
  }

  /**
   * A deleted entry is first only marked; its words leave the file when what is left is written again, which the merges after the
   * deletions do.
   */
  private *forgetting(sessionPks: number[]): Generator<Step> {
    for (const pk of sessionPks) yield* this.repeated(() => (index) => forgetSome(index, pk));
    yield* this.repeated((first) => (index) => merge(index, first ? -this.mergePages : this.mergePages));
    yield () => this.using(truncateLog) !== undefined || !this.exists;
  }

  /** The same step for as long as it returns true, at most so many times. */
  private *repeated(step: (first: boolean) => (index: DatabaseSync) => boolean, most = Infinity): Generator<Step> {
    const state: { more: boolean | undefined } = { more: true };
    for (let times = 0; state.more && times < most; times++) {
      yield () => {
        state.more = this.using(step(times === 0));
        return state.more !== undefined || !this.exists;
      };
    }
  }

  private get exists(): boolean {
    return this.path === inMemory ? this.database !== undefined : existsSync(this.path);
  }

  /** Undefined if there is no index that can be used. With `create` an empty one is made where none is. */
  private using<R>(work: (index: DatabaseSync) => R, create = false): R | undefined {
    try {
      const index = this.open(create);
      return index && work(index);
    } catch (thrown) {
      if (this.database?.isTransaction) this.database.exec('ROLLBACK');
      const code = sqliteCode(thrown);
      if (code === undefined) throw thrown;
      if (code !== corrupt && code !== notDatabase) {
        throw new InterlaneError('STORE_FAILED', `search index ${this.path} failed: ${explain(thrown)}`, { cause: thrown });
      }
      this.close();
      return undefined;
    }
  }

  private open(create: boolean): DatabaseSync | undefined {
    if (this.database) return this.database;
    if (!create && !this.exists) return undefined;
    if (this.path !== inMemory) createPrivate(this.path);
    const index = (this.database = new DatabaseSync(this.path, { timeout: lockMs }));
    const { application, known, tables } = index
      .prepare(
        `SELECT application_id AS application, user_version AS known, (SELECT count(*) FROM sqlite_schema) AS tables
         FROM pragma_application_id, pragma_user_version`,
      )
      .get()!;
    const ours = application === applicationId && known === version;
    if (!ours && (!create || tables !== 0)) {
      this.close();
      return undefined;
    }
    index.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA temp_store = MEMORY; PRAGMA secure_delete = ON');
    if (tables === 0) {
      index.exec(`BEGIN IMMEDIATE; ${schema}; PRAGMA application_id = ${applicationId}; PRAGMA user_version = ${version};
        INSERT INTO progress (pos, below, timeline) VALUES (0, 0, ''); COMMIT`);
    }
    if (this.path !== inMemory) keepPrivate(this.path);
    return index;
  }

  private discard(): void {
    this.close();
    if (this.path !== inMemory) for (const end of ['-wal', '-shm', '']) rmSync(this.path + end, { force: true });
  }
}

/** The question that `propose` answers. */
export function proposalOf(terms: string[][], sessions: number[] | undefined, below: number, limit: number): Query {
  const sql = 'SELECT rowid AS pk FROM words WHERE words MATCH ? AND rowid < ? ORDER BY rowid DESC LIMIT ?';
  return { sql, params: [match(terms, sessions), below, limit], want: 'all' };
}

function forgetSome(index: DatabaseSync, sessionPk: number): boolean {
  const rows = index.prepare('SELECT rowid AS pk FROM words WHERE words MATCH ? LIMIT ?').all(match([], [sessionPk]), forgetEntries);
  const drop = index.prepare('DELETE FROM words WHERE rowid = ?');
  index.exec('BEGIN IMMEDIATE');
  for (const { pk } of rows) drop.run(pk!);
  index.exec('COMMIT');
  return rows.length === forgetEntries;
}

/** Returns whether there is more to write again. A negative number of pages begins. */
function merge(index: DatabaseSync, pages: number): boolean {
  const changes = () => Number(index.prepare('SELECT total_changes() AS n').get()!['n']);
  const before = changes();
  index.prepare(`INSERT INTO words (words, rank) VALUES ('merge', ?)`).run(pages);
  return changes() - before > 1;
}

/** What was deleted is in the log of the file too. */
function truncateLog(index: DatabaseSync): boolean {
  index.exec('PRAGMA wal_checkpoint(TRUNCATE)');
  return true;
}

const sessionWord = (sessionPk: number) => `s${sessionPk}`;

/** Words are letters and digits, so in quotes nothing of them can be an operator. */
function match(terms: string[][], sessions: number[] = []): string {
  const parts = terms.map((words) => `said : "${words.join(' ')}"`);
  if (sessions.length > 0 && sessions.length <= mostNamed) {
    parts.unshift(`session : (${sessions.map((pk) => `"${sessionWord(pk)}"`).join(' OR ')})`);
  }
  return parts.join(' AND ');
}
