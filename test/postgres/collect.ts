// For every test file: what its stores are asked is kept for the check at the end of the run.
import { afterAll, inject } from 'vitest';
import { Connection } from '../../src/store/sqlite/database.ts';
import { isForEveryStore, writeStatements } from './statements.ts';

/** Of this test file. */
export const seen = new Set<string>();
const { answer } = Connection.prototype;
Connection.prototype.answer = function (this: Connection, query) {
  if (!seen.has(query.sql) && isForEveryStore(query.sql)) seen.add(query.sql);
  return answer.call(this, query);
};
afterAll(() => writeStatements(inject('statements'), seen));
