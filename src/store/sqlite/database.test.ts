import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it, onTestFinished } from 'vitest';
import { applicationId, migrations } from '../migrations.ts';
import { explain, migrate, openDatabase, sqliteCode } from './database.ts';

function scratch(name = 'interlane.db'): string {
  const directory = mkdtempSync(join(tmpdir(), 'interlane-database-'));
  onTestFinished(() => rmSync(directory, { recursive: true }));
  return join(directory, name);
}

/** A database of ours with some content, closed. */
function made(): string {
  const file = scratch();
  const { database } = openDatabase(file, { durability: 'full' });
  database.exec(`WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 200)
     INSERT INTO meta SELECT i, hex(randomblob(500)) FROM n`);
  database.close();
  return file;
}

function edit(file: string, sql: string): void {
  const database = new DatabaseSync(file);
  database.exec(sql);
  database.close();
}

const open = (file: string) => openDatabase(file, { durability: 'full' });
const refused = (message: string) => expect.objectContaining({ code: 'STORE_UNUSABLE', message });
const firstOf = (database: DatabaseSync, sql: string) => Object.values(database.prepare(sql).get()!)[0];

/** Everything but the spaces in it. */
const schemaOf = (database: DatabaseSync) =>
  database
    .prepare(`SELECT type, name, sql FROM sqlite_schema ORDER BY type, name`)
    .all()
    .map((row) => [row['type'], row['name'], String(row['sql']).replace(/\s+/g, '')]);

describe('opening', () => {
  it('makes a new database and finds it again', () => {
    const file = made();
    const { database } = open(file);
    expect(firstOf(database, 'SELECT count(*) FROM meta')).toBe(200);
    expect(firstOf(database, 'PRAGMA application_id')).toBe(applicationId);
    expect(firstOf(database, 'PRAGMA user_version')).toBe(migrations.length);
    database.close();
  });

  it('makes a database private that was copied here open to others', () => {
    const file = made();
    chmodSync(file, 0o644);
    const { database } = open(file);
    expect(['', '-wal', '-shm'].map((end) => statSync(file + end).mode & 0o777)).toEqual([0o600, 0o600, 0o600]);
    database.close();
  });

  it('refuses a database of a newer version, says which, and leaves it as it is', () => {
    const file = made();
    edit(file, 'PRAGMA user_version = 99');
    const before = readFileSync(file);
    expect(() => open(file)).toThrow(
      refused(
        `store ${file} was written by a newer Interlane (schema 99, this one knows ${migrations.length}); use that version, or another --state-dir`,
      ),
    );
    expect(readFileSync(file).equals(before)).toBe(true);
  });

  it.each([
    ['with tables', 'CREATE TABLE notes (text)'],
    ['with tables and a version', 'CREATE TABLE notes (text); PRAGMA user_version = 1'],
    ['with a mark of its own', 'PRAGMA application_id = 7'],
  ])('refuses the database of another program %s, and leaves it as it is', (_, sql) => {
    const file = scratch();
    edit(file, sql);
    const before = readFileSync(file);
    expect(() => open(file)).toThrow(refused(`store ${file} is a database of another program; choose another --state-dir`));
    expect(readFileSync(file).equals(before)).toBe(true);
  });

  it('takes an empty file for a new database', () => {
    const file = scratch();
    writeFileSync(file, '');
    const { database } = open(file);
    expect(firstOf(database, 'PRAGMA user_version')).toBe(migrations.length);
    database.close();
  });

  it.each([
    ['short text', 'hello'],
    ['long text', 'hello, '.repeat(10_000)],
  ])('refuses %s by name, and leaves it as it is', (_, text) => {
    const file = scratch();
    writeFileSync(file, text);
    expect(() => open(file)).toThrow(
      refused(`store ${file} cannot be opened: the file is not a database; move it away, or choose another --state-dir`),
    );
    expect(readFileSync(file, 'utf8')).toBe(text);
  });

  const damage = 'the file is damaged; restore a backup with "interlane restore"';

  it('refuses a file that was cut short, by name', () => {
    const file = made();
    truncateSync(file, statSync(file).size / 2);
    expect(() => open(file)).toThrow(refused(`store ${file} cannot be opened: ${damage}`));
  });

  it('refuses a file whose first page is damaged, by name', () => {
    const file = made();
    const bytes = readFileSync(file);
    bytes.fill(0xa5, 100, 4096);
    writeFileSync(file, bytes);
    expect(() => open(file)).toThrow(refused(`store ${file} cannot be opened: ${damage}`));
  });

  it('refuses a directory and a path that does not exist, by name', () => {
    const directory = scratch();
    mkdirSync(directory);
    const why = 'the file cannot be opened; check that the directory exists and is yours';
    expect(() => open(directory)).toThrow(refused(`store ${directory} cannot be opened: ${why}`));
    expect(statSync(directory).mode & 0o700).toBe(0o700);
    const nowhere = join(directory, 'missing', 'interlane.db');
    expect(() => open(nowhere)).toThrow(refused(`store ${nowhere} cannot be opened: ${why}`));
  });

  it('refuses a file that can only be read, by name: not at the first write but at once', () => {
    // Permissions do not bind root, so the file is made read-only by the way it is named; SQLite then says what it says of permissions.
    const named = `file:${made()}?mode=ro`;
    expect(() => open(named)).toThrow(refused(`store ${named} cannot be opened: it is read-only; check who owns the file`));
  });

  it('refuses a file that another process is writing, by name', () => {
    const file = made();
    const other = new DatabaseSync(file);
    other.exec('BEGIN IMMEDIATE');
    expect(() => open(file)).toThrow(refused(`store ${file} cannot be opened: it is locked by another process`));
    other.close();
  });

  it('for reading only does not write', () => {
    const file = made();
    const connection = openDatabase(file, { durability: 'full', readOnly: true });
    const write = () => connection.answer({ sql: 'DELETE FROM meta', params: [], want: 'run' });
    expect(write).toThrow('readonly');
    try {
      write();
    } catch (thrown) {
      expect([sqliteCode(thrown), explain(thrown)]).toEqual([8, 'it is read-only; check who owns the file']);
    }
    connection.close();
  });
});

describe('migrations', () => {
  const steps = ['CREATE TABLE one (x); INSERT INTO one VALUES (1)', 'CREATE TABLE two (x); INSERT INTO two SELECT x + 1 FROM one'];
  const version = (database: DatabaseSync) => firstOf(database, 'PRAGMA user_version');
  const tables = (database: DatabaseSync) =>
    database
      .prepare(`SELECT name FROM sqlite_schema ORDER BY name`)
      .all()
      .map((row) => row['name']);

  it('are applied once, in order, from wherever the database is', () => {
    const database = new DatabaseSync(scratch());
    onTestFinished(() => database.close());
    migrate(database, 'x', steps.slice(0, 1));
    expect([version(database), tables(database)]).toEqual([1, ['one']]);
    migrate(database, 'x', steps);
    migrate(database, 'x', steps);
    expect([version(database), firstOf(database, 'SELECT group_concat(x) FROM two')]).toEqual([2, '2']);
    expect(() => migrate(database, 'x', steps.slice(0, 1))).toThrow('newer Interlane (schema 2, this one knows 1)');
  });

  it('leave the version before it when a step fails, and go on from there when it is mended', () => {
    const file = scratch();
    const database = new DatabaseSync(file);
    const broken = [...steps, 'CREATE TABLE three (x); DELETE FROM one; INSERT INTO nowhere VALUES (1)'];
    expect(() => migrate(database, file, broken)).toThrow('no such table: nowhere');
    database.close();

    const again = new DatabaseSync(file);
    onTestFinished(() => again.close());
    expect([version(again), tables(again), firstOf(again, 'SELECT count(*) FROM one')]).toEqual([2, ['one', 'two'], 1]);
    migrate(again, file, [...steps, 'CREATE TABLE three (x)']);
    expect([version(again), tables(again)]).toEqual([3, ['one', 'three', 'two']]);
  });

  describe.each([['schema-1.sql', 1]])('from test/fixtures/%s', (name, number) => {
    const text = readFileSync(join('test/fixtures', name), 'utf8');

    /** Every row of every table, without the columns that came later. */
    /** Columns that later steps renamed. What they moved to another table is not compared. */
    const renamed: Record<string, string> = { 'sessions.user': 'opened_by', 'waits.target_run_pk': 'target_pk' };
    const moved = new Set(['runs.cause', 'runs.cause_pk']);
    const contents = (database: DatabaseSync, columns: Record<string, string[]>, nameOf: (column: string) => string | undefined) =>
      Object.fromEntries(
        Object.entries(columns).map(([table, names]) => {
          const kept = names.filter((column) => !moved.has(`${table}.${column}`));
          const list = kept.map((column) => `"${nameOf(`${table}.${column}`) ?? column}" AS "${column}"`);
          return [table, database.prepare(`SELECT ${list.join(', ')} FROM ${table}`).all()];
        }),
      );
    const columnsOf = (database: DatabaseSync) =>
      Object.fromEntries(
        database
          .prepare(`SELECT m.name AS "table", group_concat(c.name) AS names FROM sqlite_schema m, pragma_table_info(m.name) c
                    WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite%' GROUP BY m.name`)
          .all()
          .map((row) => [String(row['table']), String(row['names']).split(',')]),
      );

    it('keep every row, and end in the schema of a new database', () => {
      const file = scratch();
      edit(file, text);
      const old = new DatabaseSync(file);
      const columns = columnsOf(old);
      const before = contents(old, columns, () => undefined);
      old.close();
      expect(Object.values(before).flat().length).toBeGreaterThan(10);

      const { database } = open(file);
      const fresh = open(scratch());
      onTestFinished(() => (database.close(), fresh.close()));
      expect(contents(database, columns, (column) => renamed[column])).toEqual(before);
      expect(schemaOf(database)).toEqual(schemaOf(fresh.database));
      expect(firstOf(database, 'PRAGMA integrity_check')).toBe('ok');
      expect(firstOf(database, 'PRAGMA user_version')).toBe(migrations.length);
    });

    it('are what that version was: a released step never changes', () => {
      const stored = new DatabaseSync(':memory:');
      stored.exec(text);
      const stepped = new DatabaseSync(':memory:');
      migrate(stepped, 'x', migrations.slice(0, number));
      expect(schemaOf(stored)).toEqual(schemaOf(stepped));
      expect([version(stored), firstOf(stored, 'PRAGMA application_id')]).toEqual([number, applicationId]);
    });
  });
});
