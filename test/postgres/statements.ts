// Which statements a test run makes: each worker writes those it has seen into the run's directory, and the end of the run reads them all.
import { randomUUID } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const mark = '/* of a test */';

/** Marks SQL that a test makes for itself. It may use whatever SQLite has. */
export const ofTest = (sql: string) => `${sql} ${mark}`;

/** Each store says these in its own way. */
const transaction = /^(BEGIN IMMEDIATE|COMMIT|ROLLBACK|SAVEPOINT \w+|RELEASE \w+|ROLLBACK TO \w+)$/;

/** Whether PostgreSQL must take it, too: everything that is not marked. */
export const isForEveryStore = (sql: string) => !sql.endsWith(mark) && !transaction.test(sql);

export function writeStatements(directory: string, statements: ReadonlySet<string>): void {
  if (statements.size > 0) writeFileSync(join(directory, `${randomUUID()}.json`), JSON.stringify([...statements]));
}

/** The distinct statements of all workers, in one order. */
export function readStatements(directory: string): string[] {
  const lists = readdirSync(directory).map((file) => JSON.parse(readFileSync(join(directory, file), 'utf8')) as string[]);
  return [...new Set(lists.flat())].toSorted();
}
