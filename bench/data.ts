// State directories with many sessions in them, made by bulk inserts into the real schema.
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { drive, reading } from '../src/store/contract.ts';
import { openDatabase } from '../src/store/sqlite/database.ts';
import { databaseName } from '../src/store/sqlite/files.ts';
import { searchName } from '../src/store/sqlite/search-file.ts';
import { SqliteSearch } from '../src/store/sqlite/search.ts';

/** Agents that have most of the sessions (`a0` …), and agents that have hardly any (`rare0` …). */
export const agentCount = 20;
export const rareCount = 100;
/** Transcripts with this many entries; all others have two. */
export const longTranscript = 400;
export const longSessions = 20;
export const startOfTime = 1_700_000_000_000;

/** The caller of most lists: a main session whose agent has half of all sessions, and that spawned every fifth. */
export const callerKey = 'agent:a0:main';
export const rareCallerKey = 'agent:rare0:main';
/** The chats of `makeChats`, and the few sessions with a long transcript that every state has. */
export const chatKey = (n: number) => `agent:a1:chat-${n}`;
export const longKey = (n: number) => `agent:a1:long-${n}`;

/** A state directory with so many sessions: 20 agents, six kinds, four levels, activity in no order. */
export async function makeState(directory: string, sessions: number): Promise<void> {
  mkdirSync(directory, { recursive: true, mode: 0o700 });
  const connection = openDatabase(join(directory, databaseName), { durability: 'normal' });
  const { database } = connection;
  database.exec('PRAGMA synchronous = OFF; PRAGMA cache_size = -400000; PRAGMA wal_autocheckpoint = 100000');
  const indexes = database.prepare(`SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL`).all();
  for (const { name } of indexes) database.exec(`DROP INDEX "${String(name)}"`);
  // Recent activity is spread over the whole table, as it is after a while: position is a permutation of the number.
  let stride = Math.floor(sessions * 0.618);
  while (stride % 2 === 0 || stride % 5 === 0) stride++;
  const tenth = Math.floor(sessions / 10);
  database.exec('BEGIN');
  database.exec(`
    WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < ${sessions}),
    made AS (
      SELECT n, 1 + (n * ${stride}) % ${sessions} AS pos,
        CASE WHEN n = 1 THEN 'a0' WHEN n = 2 THEN 'rare0' WHEN n BETWEEN 10 AND ${9 + longSessions} THEN 'a1'
             WHEN n % ${tenth} = 57 THEN 'rare' || (n / ${tenth}) WHEN n % 2 = 0 THEN 'a0' ELSE 'a' || (n % ${agentCount}) END AS agent,
        CASE WHEN n IN (1, 2) THEN 'main' WHEN n % ${tenth} = 53 THEN 'cron' WHEN n % ${tenth} = 47 THEN 'hook'
             WHEN n % 3 = 0 AND n > 99 THEN 'group' ELSE 'other' END AS kind,
        CASE WHEN n > 99 AND (n % 5 = 2 OR n % ${tenth} = 47) THEN 'agent:a0:main' END AS parent,
        CASE WHEN n IN (1, 2) THEN 3 WHEN n <= 99 THEN 0 WHEN n % 10 < 7 THEN 0 ELSE n % 10 - 6 END AS level
      FROM numbers
    )
    INSERT INTO sessions (pk, id, key, life, current, agent, kind, parent_key, depth, next_seq, taint, level, created_at, last_pos, last_at, delivery)
    SELECT n, printf('%08x-0000-4000-8000-%012x', n, n),
      CASE WHEN kind = 'main' THEN 'agent:' || agent || ':main' WHEN n BETWEEN 10 AND ${9 + longSessions} THEN 'agent:a1:long-' || (n - 10)
           WHEN kind IN ('cron', 'hook') THEN 'agent:' || agent || ':' || kind || ':' || n
           WHEN parent IS NOT NULL THEN 'agent:' || agent || ':subagent:' || n
           WHEN kind = 'group' THEN 'agent:' || agent || ':telegram:group:-100' || n
           ELSE 'agent:' || agent || ':telegram:direct:' || n END,
      1, 1, agent, kind, parent, parent IS NOT NULL,
      1 + CASE WHEN n BETWEEN 10 AND ${9 + longSessions} THEN ${longTranscript} ELSE 2 END, level, level,
      ${startOfTime}, pos, ${startOfTime} + pos * 1000,
      CASE WHEN parent IS NULL THEN json_object('channel', 'telegram', 'to', '' || n, 'accountId', 'default') END
    FROM made;

    WITH RECURSIVE turns (seq) AS (SELECT 1 UNION ALL SELECT seq + 1 FROM turns WHERE seq < ${longTranscript})
    INSERT INTO entries (session_pk, seq, id, role, taint, provenance, text, at)
    SELECT s.pk, seq, printf('e%08x-%05x', s.pk, seq), CASE WHEN seq % 2 = 1 THEN 'user' ELSE 'assistant' END, s.level,
      CASE WHEN seq % 2 = 1 THEN '{"kind":"user","channel":"telegram"}' END,
      printf('Message %d of session %d, as long as people write them in a chat: a line or two, a question and what it is about.', seq, s.pk), s.last_at
    FROM sessions AS s CROSS JOIN turns WHERE seq < s.next_seq;

    INSERT INTO feed (pos, session_pk, kind, ref_pk, state, level, at) SELECT ${sessions} + 1, 1, 'session', 1, 'changed', 3, ${startOfTime};
  `);
  for (const { sql } of indexes) database.exec(String(sql));
  database.exec('COMMIT; PRAGMA wal_checkpoint(TRUNCATE)');
  connection.close();
  await skipIndexing(directory);
}

/** The search index of a state directory that no gateway has open. */
export function openIndex(directory: string): { index: SqliteSearch; close(): Promise<void> } {
  const connection = openDatabase(join(directory, databaseName), { durability: 'normal', readOnly: true });
  const index = new SqliteSearch({
    // oxlint-disable-next-line require-await -- asynchronous by contract
    store: { read: async (query, args) => drive(query.body(reading, args), (ask) => connection.answerAll(ask)) },
    path: join(directory, searchName),
    failed(error) {
      throw error;
    },
    recovered: () => {},
    after: () => () => {},
  });
  return {
    index,
    async close() {
      await index.close();
      connection.close();
    },
  };
}

/** As if the search index had read everything, so that it does not catch up while something else is measured. */
async function skipIndexing(directory: string): Promise<void> {
  const { index, close } = openIndex(directory);
  await index.indexNext(1);
  await close();
  const file = new DatabaseSync(join(directory, searchName));
  file.exec('UPDATE progress SET below = 0');
  file.close();
}

/** Many chats without a past, for runs and appends. */
export async function makeChats(directory: string, chats: number): Promise<void> {
  await makeState(directory, 1_000);
  const connection = openDatabase(join(directory, databaseName), { durability: 'normal' });
  connection.database.exec(`
    WITH RECURSIVE numbers (n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n < ${chats - 1})
    INSERT INTO sessions (id, key, life, current, agent, kind, created_at, last_at)
    SELECT 'chat-' || n, 'agent:a1:chat-' || n, 1, 1, 'a1', 'other', ${startOfTime}, ${startOfTime} FROM numbers;
    PRAGMA wal_checkpoint(TRUNCATE)
  `);
  connection.close();
}

/** Text of about so many characters from 5,000 made-up words, a few of them frequent. */
export function writeText(characters: number, seed: number): string {
  let state = seed * 2_654_435_761 + 1;
  const words: string[] = [];
  for (let length = 0; length < characters;) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    const word = Math.floor(5_000 * (state / 2 ** 32) ** 3)
      .toString(26)
      .replaceAll(/\d/g, (digit) => 'qrstuvwxyz'[Number(digit)]!);
    words.push(`w${word}`);
    length += word.length + 2;
  }
  return words.join(' ').slice(0, characters);
}
