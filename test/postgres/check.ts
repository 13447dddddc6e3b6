// Statements → those that PostgreSQL refuses, and what it says. They are prepared on our schema, in a transaction that is undone.
import { randomUUID } from 'node:crypto';
import { Client } from 'pg';
import { reasonOf } from '../../src/errors.ts';
import { migrations } from '../../src/store/migrations.ts';
import { foldedNames, toPostgres } from './dialect.ts';
import { toPostgresSchema } from './schema.ts';

interface Refused {
  sql: string;
  message: string;
}

/** Throws the statements that PostgreSQL refuses. */
export async function demandAll(url: string, statements: readonly string[]): Promise<void> {
  const refused = await refusedBy(url, statements);
  if (refused.length === 0) return;
  const list = refused.map(({ sql, message }) => `\n\n${sql}\n→ ${message}`).join('');
  throw new Error(
    `PostgreSQL refuses ${refused.length} of ${statements.length} statements; spell them so that both databases take them${list}\n`,
  );
}

export async function refusedBy(url: string, statements: readonly string[]): Promise<Refused[]> {
  const client = new Client({ connectionString: url });
  await client.connect();
  try {
    await openSchema(client);
    const refused: Refused[] = [];
    for (const sql of statements) {
      const message = foldedMessage(sql) ?? (await refusal(client, sql));
      if (message !== undefined) refused.push({ sql, message });
    }
    return refused;
  } finally {
    await client.end();
  }
}

/** Nothing of this outlives the connection. */
export async function openSchema(client: Client): Promise<void> {
  const name = `interlane_check_${randomUUID().replaceAll('-', '')}`;
  await client.query('BEGIN');
  await client.query(`CREATE SCHEMA ${name}`);
  await client.query(`SET LOCAL search_path = ${name}`);
  for (const statement of toPostgresSchema(migrations)) await client.query(statement);
}

async function refusal(client: Client, sql: string): Promise<string | undefined> {
  await client.query('SAVEPOINT before');
  try {
    await client.query(`PREPARE one AS ${toPostgres(sql)}`);
    await client.query('DEALLOCATE one');
    return undefined;
  } catch (thrown) {
    await client.query('ROLLBACK TO before');
    return reasonOf(thrown);
  }
}

function foldedMessage(sql: string): string | undefined {
  const names = foldedNames(sql);
  return names.length === 0 ? undefined : `${names.join(', ')} would be returned in lower case; write names in snake_case`;
}
