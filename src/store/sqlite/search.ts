// The words of all transcripts: an index of its own beside the store, fed from the feed, and made anew whenever in doubt.
// It only proposes entries. What is shown, counted and ranked is read from the store, so what it has wrong or late is never an answer.
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { InterlaneError } from '../../errors.ts';
import { cutSnippet, findTerms, longestText, parseSearch, wordsOf } from '../words.ts';
import { createPrivate, explain, keepPrivate, openDatabase, sqliteCode, type Connection } from './database.ts';
import { databaseName } from './open.ts';

export const searchName = 'search.db';

const applicationId = 0x696c_6173; // "ilas"
const version = 1;
const schema = `
  -- No text is kept here. The tokenizer cuts at the spaces between words that were already cut by words.ts.
  CREATE VIRTUAL TABLE words USING fts5 (session, said, content = '', contentless_delete = 1, tokenize = 'ascii');
  -- Feed rows up to pos have been read. Entries below that pk are older than the index and still to be read, newest first.
  CREATE TABLE progress (pos INTEGER NOT NULL, below INTEGER NOT NULL) STRICT;
`;

const corrupt = 11;
const notDatabase = 26;
const batchChars = 1024 * 1024;
const windowEntries = 1000;
const windowChars = 4 * 1024 * 1024;
const mostHits = 100;
const mergePages = 200;
const mostNamed = 500;

export interface Progress {
  /** Everything up to this feed position can be found; 0 while older entries are still being read. */
  indexedTo: number;
  latest: number;
}

export interface SearchedEntry {
  sessionPk: number;
  seq: number;
  role: string;
  taint: number;
  at: number;
  text: string;
  /** Of its session: what decides who may see it. */
  sessionKey: string;
  agent: string;
  spawnedBy: string | null;
  level: number;
  /** The session's current life, and neither archived nor deleted. */
  live: number;
}

export interface SearchQuestion {
  text: string;
  limit?: number;
  /** Look only in these. With a few of them the cost no longer depends on what all others have written. */
  sessions?: number[];
  /** What the caller may read of an entry, or undefined for nothing. What is not readable is not found, counted or ranked. */
  readable: (entry: SearchedEntry) => string | undefined;
}

interface SearchHit {
  sessionPk: number;
  seq: number;
  at: number;
  /** How often the words are in it. */
  hits: number;
  snippet: string;
}

export interface SearchAnswer extends Progress {
  /** Most hits first, then newest first. */
  found: SearchHit[];
  /** There were more readable matches than are ranked; the newest ones were. */
  truncated: boolean;
}

interface Row {
  pk: number;
  session_pk: number;
  text: string;
}

export class Search {
  private readonly file: string;
  private readonly store: Connection;
  private index: DatabaseSync | undefined;

  /** The store must have been opened before, so that it has its tables. */
  constructor(stateDir: string) {
    this.file = join(stateDir, searchName);
    this.store = openDatabase(join(stateDir, databaseName), { durability: 'normal', readOnly: true });
  }

  /** Reads on from where it was: at most so many rows and about 1 MiB of text, in one transaction with the new position. */
  indexNext(limit = 500): Progress & { more: boolean } {
    return this.using((opened) => {
      let index = opened;
      if (this.hasLostItsPlace(index)) {
        this.discard();
        index = this.open();
      }
      const { pos, below } = progressOf(index);
      const fresh = this.readFeed(pos, limit);
      const older = this.readOlder(below, limit - fresh.read, batchChars - fresh.chars);
      const add = index.prepare('INSERT OR REPLACE INTO words (rowid, session, said) VALUES (?, ?, ?)');
      index.exec('BEGIN IMMEDIATE');
      for (const { pk, session_pk, text } of [...older.rows, ...fresh.rows]) {
        const words = wordsOf(text).map((word) => word.text);
        if (words.length > 0) add.run(pk, sessionWord(session_pk), words.join(' '));
      }
      index.prepare('UPDATE progress SET pos = ?, below = ?').run(fresh.pos, older.below);
      index.exec('COMMIT');
      const latest = this.latest();
      return { ...reached(index, latest), more: fresh.pos < latest || older.below > 0 };
    });
  }

  /** Whether there are entries that cannot be found yet. Leaves nothing open: who reads on may make the index anew. */
  behind(): boolean {
    try {
      return this.using((index) => {
        const { pos, below } = progressOf(index);
        if (below > 0 || this.hasLostItsPlace(index)) return true;
        const sql = `SELECT 1 FROM feed WHERE pos > ? AND kind = 'entry' LIMIT 1`;
        return this.store.answer({ sql, params: [pos], want: 'one' }) !== undefined;
      });
    } finally {
      this.index?.close();
      this.index = undefined;
    }
  }

  search({ text, limit = 20, sessions, readable }: SearchQuestion): SearchAnswer {
    const terms = parseSearch(text);
    const named = sessions && new Set(sessions);
    return this.using((index) => {
      const proposed =
        named?.size === 0
          ? []
          : index.prepare('SELECT rowid AS pk FROM words WHERE words MATCH ? ORDER BY rowid DESC').iterate(match(terms, sessions));
      const found: { pk: number; hit: SearchHit }[] = [];
      let chars = 0;
      let truncated = false;
      for (const { pk } of proposed as Iterable<{ pk: number }>) {
        const entry = this.entry(pk);
        if (!entry || named?.has(entry.sessionPk) === false) continue;
        const seen = readable(entry);
        const place = seen === undefined ? undefined : findTerms(seen, terms);
        if (seen === undefined || !place) continue;
        // The window counts only what is readable, so that what is hidden can push nothing out of it.
        truncated = found.length === windowEntries || chars > windowChars;
        if (truncated) break;
        chars += seen.length;
        const { sessionPk, seq, at } = entry;
        found.push({ pk, hit: { sessionPk, seq, at, hits: place.hits, snippet: cutSnippet(seen, place.at) } });
      }
      const ranked = found.toSorted((a, b) => b.hit.hits - a.hit.hits || b.pk - a.pk).slice(0, Math.min(Math.max(limit, 1), mostHits));
      return { found: ranked.map(({ hit }) => hit), truncated, ...reached(index, this.latest()) };
    });
  }

  /** Drops a session that was purged from the store, a bounded number of entries at a time. */
  forget(sessionPk: number, limit = 1000): { more: boolean } {
    return this.using((index) => {
      const rows = index.prepare('SELECT rowid AS pk FROM words WHERE words MATCH ? LIMIT ?').all(match([], [sessionPk]), limit);
      const drop = index.prepare('DELETE FROM words WHERE rowid = ?');
      index.exec('BEGIN IMMEDIATE');
      for (const { pk } of rows) drop.run(pk!);
      index.exec('COMMIT');
      return { more: rows.length === limit };
    });
  }

  /**
   * A deleted entry is first only marked; its words leave the file when what is left is written anew, which this does a step at
   * a time. The first step says so; call until there is no more.
   */
  compact(first: boolean): { more: boolean } {
    return this.using((index) => {
      const changes = () => Number(index.prepare('SELECT total_changes() AS n').get()!['n']);
      const before = changes();
      index.prepare(`INSERT INTO words (words, rank) VALUES ('merge', ?)`).run(first ? -mergePages : mergePages);
      const more = changes() - before > 1;
      if (!more) index.exec('PRAGMA wal_checkpoint(TRUNCATE)');
      return { more };
    });
  }

  /** Throws the index away; `indexNext` fills a new one, newest entries first. */
  rebuild(): void {
    this.discard();
  }

  close(): void {
    this.index?.close();
    this.index = undefined;
    this.store.close();
  }

  /** A damaged index is thrown away and the work done again. If it fails then, the fault is elsewhere. */
  private using<R>(work: (index: DatabaseSync) => R): R {
    for (let again = false; ; again = true) {
      try {
        return work(this.open());
      } catch (thrown) {
        if (this.index?.isTransaction) this.index.exec('ROLLBACK');
        const code = sqliteCode(thrown);
        if (code === undefined) throw thrown;
        if (again || (code !== corrupt && code !== notDatabase)) {
          throw new InterlaneError('STORE_FAILED', `search index ${this.file} failed: ${explain(thrown)}`, { cause: thrown });
        }
        this.discard();
      }
    }
  }

  private open(): DatabaseSync {
    if (this.index) return this.index;
    createPrivate(this.file);
    this.index = new DatabaseSync(this.file, { timeout: 0 });
    const { application, known, tables } = this.index
      .prepare(
        `SELECT application_id AS application, user_version AS known, (SELECT count(*) FROM sqlite_schema) AS tables
         FROM pragma_application_id, pragma_user_version`,
      )
      .get()!;
    if (Number(tables) > 0 && (application !== applicationId || known !== version)) {
      this.discard();
      return this.open();
    }
    this.index.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA temp_store = MEMORY; PRAGMA secure_delete = ON');
    if (tables === 0) this.create(this.index);
    keepPrivate(this.file);
    return this.index;
  }

  /** What the store holds now is read from the entries, for the feed forgets; what comes later is read from the feed. */
  private create(index: DatabaseSync): void {
    this.store.database.exec('BEGIN');
    const pos = this.latest();
    const newest = this.store.answer({ sql: 'SELECT max(pk) AS pk FROM entries', params: [], want: 'one' }) as { pk: number | null };
    this.store.database.exec('COMMIT');
    index.exec(`BEGIN IMMEDIATE; ${schema}; PRAGMA application_id = ${applicationId}; PRAGMA user_version = ${version}`);
    index.prepare('INSERT INTO progress (pos, below) VALUES (?, ?)').run(pos, newest.pk === null ? 0 : newest.pk + 1);
    index.exec('COMMIT');
  }

  private discard(): void {
    this.index?.close();
    this.index = undefined;
    for (const end of ['-wal', '-shm', '']) rmSync(this.file + end, { force: true });
  }

  /** The position is beyond a store that was put back from a backup, or before what the feed still has. */
  private hasLostItsPlace(index: DatabaseSync): boolean {
    const { pos } = progressOf(index);
    const latest = this.latest();
    const { first } = this.store.answer({ sql: 'SELECT min(pos) AS first FROM feed', params: [], want: 'one' }) as { first: number | null };
    return latest < pos || (latest > pos && (first === null || first > pos + 1));
  }

  private latest(): number {
    const row = this.store.answer({ sql: `SELECT seq FROM sqlite_sequence WHERE name = 'feed'`, params: [], want: 'one' });
    return (row as { seq: number } | undefined)?.seq ?? 0;
  }

  private readFeed(after: number, limit: number): { rows: Row[]; read: number; chars: number; pos: number } {
    const statement = this.store.database.prepare(
      `SELECT f.pos, e.pk, e.session_pk, e.text
       FROM feed f LEFT JOIN entries e ON f.kind = 'entry' AND e.pk = f.ref_pk
       WHERE f.pos > ? ORDER BY f.pos LIMIT ?`,
    );
    const rows: Row[] = [];
    let [read, chars, pos] = [0, 0, after];
    for (const row of statement.iterate(after, limit) as Iterable<(Row | { pk: null }) & { pos: number }>) {
      read++;
      pos = row.pos;
      if (row.pk === null) continue;
      rows.push(row);
      chars += Math.min(row.text.length, longestText);
      if (chars > batchChars) break;
    }
    return { rows, read, chars, pos };
  }

  private readOlder(below: number, limit: number, charsLeft: number): { rows: Row[]; below: number } {
    if (below === 0 || limit <= 0 || charsLeft <= 0) return { rows: [], below };
    const statement = this.store.database.prepare('SELECT pk, session_pk, text FROM entries WHERE pk < ? ORDER BY pk DESC LIMIT ?');
    const rows: Row[] = [];
    let chars = 0;
    for (const row of statement.iterate(below, limit) as unknown as Iterable<Row>) {
      rows.push(row);
      chars += Math.min(row.text.length, longestText);
      if (chars > charsLeft) return { rows: rows.toReversed(), below: row.pk };
    }
    return { rows: rows.toReversed(), below: rows.length < limit ? 0 : rows.at(-1)!.pk };
  }

  private entry(pk: number): SearchedEntry | undefined {
    const sql = `SELECT e.session_pk AS sessionPk, e.seq, e.role, e.taint, e.at, e.text, s.key AS sessionKey, s.agent, s.parent_key AS spawnedBy, s.level,
        coalesce(s.current = 1 AND s.state = 'live', 0) AS live
      FROM entries e LEFT JOIN sessions s ON s.pk = e.session_pk WHERE e.pk = ?`;
    return this.store.answer({ sql, params: [pk], want: 'one' }) as SearchedEntry | undefined;
  }
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

function progressOf(index: DatabaseSync): { pos: number; below: number } {
  return index.prepare('SELECT pos, below FROM progress').get() as { pos: number; below: number };
}

function reached(index: DatabaseSync, latest: number): Progress {
  const { pos, below } = progressOf(index);
  return { indexedTo: below > 0 ? 0 : pos, latest };
}
