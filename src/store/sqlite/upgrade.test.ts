// A store of an older schema: it is copied before it is migrated, and left alone where that is not possible.
import { existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { expect, it, onTestFinished } from 'vitest';
import { migrations } from '../migrations.ts';
import { openDatabase } from './database.ts';
import { databaseName } from './files.ts';

const old = 'test/fixtures/state-d35cbfc/interlane.sql';

function oldStore(): { directory: string; file: string } {
  const directory = mkdtempSync(join(tmpdir(), 'interlane-upgrade-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  const file = join(directory, databaseName);
  const database = new DatabaseSync(file);
  database.exec(readFileSync(old, 'utf8'));
  database.close();
  return { directory, file };
}

const open = (file: string, freeBytes?: () => number) => {
  const lines: string[] = [];
  const say = (line: string) => void lines.push(line);
  openDatabase(file, { durability: 'full', upgrade: { say, ...(freeBytes ? { freeBytes } : {}) } }).close();
  return lines;
};

function facts(file: string) {
  const database = new DatabaseSync(file, { readOnly: true });
  try {
    const number = (sql: string) => Number(Object.values(database.prepare(sql).get()!)[0]);
    return {
      version: number('PRAGMA user_version'),
      application: number('PRAGMA application_id'),
      entries: number('SELECT count(*) FROM entries'),
    };
  } finally {
    database.close();
  }
}

it('a store is copied before its migration, whole and private, and each step is told', () => {
  const { directory, file } = oldStore();
  const before = facts(file);
  const lines = open(file);
  const copy = `${file}.schema-3`;
  expect(facts(copy)).toEqual(before);
  expect(facts(file)).toEqual({ ...before, version: migrations.length });
  expect(statSync(copy).mode & 0o777).toBe(0o600);
  expect(lines).toHaveLength(1 + migrations.length - 3);
  expect(lines[0]).toContain(copy);
  expect(lines.slice(1)).toEqual(
    migrations.slice(3).map((_, index) => `store ${databaseName} gets schema ${index + 4} of ${migrations.length}`),
  );
  // A store that needs nothing is not copied, and nothing is told.
  rmSync(copy);
  expect(open(file)).toEqual([]);
  expect(readdirSync(directory)).toEqual([databaseName]);
});

it('a store whose disk has no room for the copy is refused and left as it was', () => {
  const { directory, file } = oldStore();
  const before = readFileSync(file);
  expect(() => open(file, () => 1_000_000)).toThrow(
    /needs \d+ MB of free disk space .* from schema 3 to \d+, and there are 1 MB; nothing was changed/,
  );
  expect(readFileSync(file)).toEqual(before);
  expect(readdirSync(directory)).toEqual([databaseName]);
});

it('what an interrupted copy left behind is replaced', () => {
  const { file } = oldStore();
  const partial = `${file}.schema-3.partial`;
  new DatabaseSync(partial).close();
  const other = new DatabaseSync(`${file}.schema-3`);
  other.exec('CREATE TABLE other (x)');
  other.close();
  open(file);
  expect(facts(`${file}.schema-3`).version).toBe(3);
  expect(existsSync(partial)).toBe(false);
});

it('a new store is not copied', () => {
  const directory = mkdtempSync(join(tmpdir(), 'interlane-upgrade-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  expect(open(join(directory, databaseName), () => 0)).toEqual([]);
  expect(readdirSync(directory)).toEqual([databaseName]);
});
