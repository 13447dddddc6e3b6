// The raw limit: the statements the engine wrote, with the same values, replayed by a bare loop with the same pragmas.
import { join } from 'node:path';
import { performance } from 'node:perf_hooks';
import type { Query } from '../src/store/contract.ts';
import { Connection, openDatabase } from '../src/store/sqlite/database.ts';
import { databaseName } from '../src/store/sqlite/files.ts';

/** The writes of one operation, one list for each commit it took. */
export type Written = Query[][];

/** Does operations one after the other and notes every row that each of them writes, commit by commit. Reads and savepoints are left out. */
export async function record(count: number, work: (n: number) => Promise<unknown>): Promise<Written[]> {
  const answer = Connection.prototype.answer;
  let commits: Query[][] = [];
  let open: Query[] = [];
  Connection.prototype.answer = function (query) {
    if (query.sql === 'COMMIT') {
      if (open.length > 0) commits.push(open);
      open = [];
    } else if (/^\s*(INSERT|REPLACE|UPDATE|DELETE)\b/.test(query.sql)) open.push(query);
    return answer.call(this, query);
  };
  try {
    const written: Written[] = [];
    for (let n = 0; n < count; n++) {
      commits = [];
      await work(n);
      written.push(commits);
    }
    return written;
  } finally {
    Connection.prototype.answer = answer;
  }
}

/** So many operations side by side: the first commits of all of them are one commit, and so on. */
export function grouped(written: Written[], size: number): Query[][] {
  const commits: Query[][] = [];
  for (let from = 0; from < written.length; from += size) {
    const group = written.slice(from, from + size);
    const most = Math.max(...group.map((operation) => operation.length));
    for (let commit = 0; commit < most; commit++) commits.push(group.flatMap((operation) => operation[commit] ?? []));
  }
  return commits;
}

/** Commits per second. */
export function replay(stateDir: string, commits: Query[][]): number {
  const { database } = openDatabase(join(stateDir, databaseName), { durability: 'full' });
  const texts = new Set(commits.flatMap((commit) => commit.map((query) => query.sql)));
  const statements = new Map([...texts].map((sql) => [sql, database.prepare(sql)]));
  const [begin, end] = [database.prepare('BEGIN IMMEDIATE'), database.prepare('COMMIT')];
  const started = performance.now();
  for (const commit of commits) {
    begin.run();
    for (const { sql, params } of commit) statements.get(sql)!.run(...params);
    end.run();
  }
  const taken = performance.now() - started;
  database.close();
  return (commits.length * 1_000) / taken;
}
