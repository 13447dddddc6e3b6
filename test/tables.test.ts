// Every table has one owner file: all other code calls it. A query that joins tables of others names them in its doc comment.
import { readdirSync, readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { scan, tablesIn } from './sql-scan.ts';

const folder = 'store/tables';
const schema = readFileSync('src/store/migrations.ts', 'utf8');
const renamed = new Map([...schema.matchAll(/ALTER TABLE (\w+) RENAME TO (\w+)/g)].map(([, from, to]) => [from!, to!]));
const tables = new Set([...schema.matchAll(/CREATE (?:TABLE|VIEW) (\w+)/g)].map(([, made]) => renamed.get(made!) ?? made!));
const known = new Set([...tables, 'sqlite_sequence']);

/** The files of tables whose name is not the name of their only file. */
const owners: Record<string, string[]> = {
  sessions: ['sessions.ts', 'session-pages.ts'],
  entries: ['entries.ts', 'entry-pages.ts'],
  runs: ['runs.ts', 'run-lanes.ts', 'run-pages.ts'],
  exchange_turns: ['exchanges.ts'],
  feed_head: ['feed.ts'],
  sqlite_sequence: ['feed.ts'],
};
const ownersOf = (table: string) => (owners[table] ?? [`${table.replaceAll('_', '-')}.ts`]).map((file) => `${folder}/${file}`);

/** What is wrong in one file. */
function faultsOf(file: string, source: string): string[] {
  const { touched, queries, passed } = scan(source, known);
  const owner = [...known].filter((table) => ownersOf(table).includes(file));
  const foreign = touched.flatMap(({ line, tables: named, joins }) =>
    named
      .filter((table) => !owner.includes(table) && !(owner.length > 0 && joins.includes(table)))
      .map((table) => `${file}:${line} touches ${table === '?' ? 'a table whose name is computed' : table}`),
  );
  const outside = owner.length > 0 ? [] : queries.map((line) => `${file}:${line} asks the store itself`);
  return [...foreign, ...outside, ...passed.map((line) => `${file}:${line} passes SQL through`)];
}

describe('every table has one owner', () => {
  const files = readdirSync('src', { recursive: true, encoding: 'utf8' })
    .filter((file) => file.endsWith('.ts') && !file.endsWith('.test.ts') && file !== 'store/migrations.ts')
    .map((file) => ({ file, source: readFileSync(`src/${file}`, 'utf8') }));

  it('and the SQL is read at all', () => {
    expect([...tables]).toEqual(expect.arrayContaining(['sessions', 'runs', 'entries', 'feed', 'tokens', 'feed_head']));
    const touched = new Set(files.flatMap(({ source }) => scan(source, known).touched.flatMap((one) => one.tables)));
    expect([...tables].filter((table) => !touched.has(table))).toEqual([]);
  });

  it('whose file is there', () => {
    const paths = new Set(files.map(({ file }) => file));
    const missing = [...tables].filter((table) => !ownersOf(table).every((file) => paths.has(file)));
    expect(missing).toEqual([]);
  });

  it('and nothing else touches it, but for joins that are named', () => {
    expect(files.flatMap(({ file, source }) => faultsOf(file, source))).toEqual([]);
  });

  it('and no file is an owner without a table', () => {
    const owned = new Set([...known].flatMap(ownersOf));
    const others = files.map(({ file }) => file).filter((file) => file.startsWith(folder) && !owned.has(file));
    expect(others).toEqual([`${folder}/value-list.ts`]);
  });
});

describe('the scanner', () => {
  const runs = `${folder}/runs.ts`;
  const query = (sql: string) => `export function* all(t: Reading): Body<object[]> { return yield* t.all<object>(${sql}); }`;

  it.each<[string, string[]]>([
    ['SELECT * FROM runs', ['runs']],
    ['SELECT 1 FROM runs AS r, sessions WHERE 1', ['runs', 'sessions']],
    ['SELECT (SELECT 1 FROM waits) FROM runs LEFT JOIN "inputs" ON 1', ['waits', 'runs', 'inputs']],
    ['INSERT OR IGNORE INTO feed SELECT 1', ['feed']],
    ['UPDATE runs SET state = 1 WHERE pk IN (SELECT run_pk FROM offers)', ['runs', 'offers']],
    ['UPDATE OR IGNORE runs SET state = 1', ['runs']],
    ['DELETE\n  FROM\n  tokens', ['tokens']],
    ['ALTER TABLE runs ADD COLUMN x', ['runs']],
    ['SELECT 1 FROM (SELECT 1) AS counted', []],
    ['the runs of a session are taken from runs, into feed', []],
  ])('finds the tables of %j', (sql, expected) => expect(tablesIn(sql, known)).toEqual(expected));

  it('finds a table of another owner, unless the function names it', () => {
    const join = query('`SELECT * FROM runs JOIN sessions ON sessions.pk = runs.session_pk`');
    expect(faultsOf(runs, join)).toEqual([`${runs}:1 touches sessions`]);
    expect(faultsOf(runs, `/** Joins: waits. Whatever. */\n${join}`)).toEqual([`${runs}:2 touches sessions`]);
    expect(faultsOf(runs, `/** Joins: waits, sessions. Whatever. */\n${join}`)).toEqual([]);
    expect(faultsOf(runs, `/** Joins: sessions. Whatever. */\nconst other = 1;\n${join}`)).toEqual([`${runs}:3 touches sessions`]);
    expect(faultsOf('sessions/find.ts', `/** Joins: runs. No owner. */ const sql = 'SELECT 1 FROM runs';`)).toEqual([
      'sessions/find.ts:1 touches runs',
    ]);
  });

  it('finds pieces of SQL, names that are computed, and SQL that is passed through', () => {
    expect(faultsOf(runs, 'const rest = ` WHERE pk IN (SELECT run_pk FROM offers)`;')).toEqual([`${runs}:1 touches offers`]);
    expect(faultsOf(runs, 'const one = (table: string) => `SELECT * FROM ${table}`;')).toEqual([
      `${runs}:1 touches a table whose name is computed`,
    ]);
    const passes = 'export function* run(t: Writing, { sql }: { sql: string }) { yield* t.run(sql, 1); }';
    expect(faultsOf(runs, passes)).toEqual([`${runs}:1 passes SQL through`]);
    expect(faultsOf('engine/end.ts', query('sql'))).toEqual(['engine/end.ts:1 asks the store itself']);
  });
});
