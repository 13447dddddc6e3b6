// Sessions ↔ lines of JSON: every life of a key with its transcript, level and settings. Runs, queues and deliveries stay where they are.
import { z } from 'zod';
import { levelName, levelRank } from '../levels.ts';
import { appendEntry, noteSession, type EngineCommand } from '../engine/feed.ts';
import { InterlaneError } from '../errors.ts';
import { Level } from '../protocol/labels.ts';
import { Cut, Provenance, TurnContext } from '../protocol/transcript.ts';
import { formatSessionKey, parseSessionKey } from '../rules/session-key.ts';
import { join } from '../rules/taint.ts';
import type { Body, Reading } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import { entriesAfter as entryRowsAfter, whole } from '../store/tables/entry-pages.ts';
import { hasRun } from '../store/tables/run-pages.ts';
import { currentByLabel, keyOfKeyOrId, keysByActivity, livesOfKey } from '../store/tables/session-pages.ts';
import { byId, deleteBlankLives, hasId, insertLife, writeLastAt, type NewLife } from '../store/tables/sessions.ts';
import { type EntryBody as StoredBody } from '../store/views.ts';
import { pageBytes } from './page-bytes.ts';

const Id = z.string().min(1).max(256);
const Time = z.int().min(0);
const Data = z.record(z.string(), z.unknown());

const header = { type: 'interlane-export', version: 1 } as const;
const Header = z.strictObject({ type: z.literal(header.type), version: z.literal(header.version) });

const Life = z.strictObject({
  type: z.literal('session'),
  key: z.string().min(1).max(4096),
  id: Id,
  life: z.int().min(1),
  current: z.boolean(),
  state: z.enum(['live', 'archived']),
  agent: z.string().min(1).max(64),
  kind: z.enum(['main', 'group', 'cron', 'hook', 'node', 'other']),
  label: z.string().min(1).max(512).optional(),
  user: z.string().optional(),
  /** The key of the session that spawned it. */
  spawnedBy: z.string().min(1).max(4096).optional(),
  depth: z.int().min(0),
  taint: Level,
  existTaint: Level,
  clearance: Level.default('RESTRICTED'),
  createdAt: Time,
  lastAt: Time,
  totalTokens: z.int().min(0),
  inputTokens: z.int().min(0).default(0),
  outputTokens: z.int().min(0).default(0),
  costMicros: z.int().min(0).default(0),
  /** The entry that sums up what was before it. */
  compactSeq: z.int().min(1).optional(),
  abortedLast: z.boolean(),
  systemSent: z.boolean(),
  archiveAt: Time.optional(),
  pinned: z.literal(true).optional(),
  settings: Data,
  delivery: Data.optional(),
  /** How many entries follow. */
  entries: z.int().min(0),
});
type Life = z.infer<typeof Life>;

const EntryBody = z.strictObject({
  context: z.union([TurnContext, z.string()]).optional(),
  calls: z.array(z.strictObject({ id: z.string(), name: z.string(), arguments: Data })).optional(),
  toolCallId: z.string().optional(),
  toolName: z.string().optional(),
  isError: z.boolean().optional(),
  aborted: z.literal(true).optional(),
  cut: Cut.optional(),
  reasoning: z.array(z.unknown()).optional(),
  callOptions: z.array(z.unknown()).optional(),
  compacted: z.strictObject({ through: z.int().min(0) }).optional(),
});

const Entry = z.strictObject({
  type: z.literal('entry'),
  seq: z.int().min(1),
  id: Id,
  role: z.enum(['user', 'assistant', 'toolResult']),
  taint: Level,
  at: Time,
  provenance: Provenance.optional(),
  text: z.string(),
  body: EntryBody.optional(),
});
type Entry = z.infer<typeof Entry>;

/** All lives of one key, oldest first. */
export interface Exported {
  key: string;
  lives: { life: Life; entries: Entry[] }[];
}

// Out -----------------------------------------------------------------------------------------------------------------

/** The key of a session given as key, as session id, or as a key of the agent `main`. */
export function* keyNamed(t: Reading, text: string): Body<string | undefined> {
  return (yield* keyOfKeyOrId(t, text)) ?? (yield* keyOfKeyOrId(t, `agent:main:${text}`));
}

/** A line of an export. */
export const lineOf = (value: object) => `${JSON.stringify(value)}\n`;
export const headerLine = lineOf(header);

/** Keys in the order in which they were last active, so that they come in again in that order. */
export const allKeys = keysByActivity;

export function* livesOf(t: Reading, key: string): Body<{ pk: number; line: Life }[]> {
  return (yield* livesOfKey(t, key)).map((row) => ({ pk: row.pk, line: lifeLine(row) }));
}

export function* lifeById(t: Reading, id: string): Body<{ pk: number; line: Life } | undefined> {
  const row = yield* byId(t, id);
  return row && row.state !== 'deleted' ? { pk: row.pk, line: lifeLine(row) } : undefined;
}

/** The next page of entries, of about a megabyte at most; the last one is empty. */
export function* entriesAfter(t: Reading, pk: number, seq: number): Body<Entry[]> {
  const rows = yield* entryRowsAfter(t, pk, seq, levelRank('RESTRICTED'));
  let bytes = 0;
  const end = rows.findIndex((row, index) => (bytes += row.bytes) > pageBytes && index > 0);
  return (yield* whole(t, end < 0 ? rows : rows.slice(0, end))).map((row) => ({
    type: 'entry',
    seq: row.seq,
    id: row.id,
    role: row.role,
    taint: levelName(row.taint),
    at: row.at,
    ...(row.provenance === null ? {} : { provenance: JSON.parse(row.provenance) as Provenance }),
    text: row.text,
    ...(row.body === null ? {} : { body: JSON.parse(row.body) as Entry['body'] }),
  }));
}

function lifeLine(row: SessionRow): Life {
  return {
    type: 'session',
    key: row.key,
    id: row.id,
    life: row.life,
    current: row.current === 1,
    state: row.state === 'archived' ? 'archived' : 'live',
    agent: row.agent,
    kind: row.kind as Life['kind'],
    ...(row.label === null ? {} : { label: row.label }),
    ...(row.opened_by === null ? {} : { user: row.opened_by }),
    ...(row.parent_key === null ? {} : { spawnedBy: row.parent_key }),
    depth: row.depth,
    taint: levelName(row.taint),
    existTaint: levelName(row.exist_taint),
    clearance: levelName(row.clearance),
    createdAt: row.created_at,
    lastAt: row.last_at,
    totalTokens: row.total_tokens,
    inputTokens: row.input_tokens,
    outputTokens: row.output_tokens,
    costMicros: row.cost_micros,
    ...(row.compact_seq === null ? {} : { compactSeq: row.compact_seq }),
    abortedLast: row.aborted_last === 1,
    systemSent: row.system_sent === 1,
    ...(row.archive_at === null ? {} : { archiveAt: row.archive_at }),
    ...(row.pinned === 1 ? { pinned: true } : {}),
    settings: JSON.parse(row.settings) as Record<string, unknown>,
    ...(row.delivery === null ? {} : { delivery: JSON.parse(row.delivery) as Record<string, unknown> }),
    entries: row.next_seq - 1,
  };
}

// In ------------------------------------------------------------------------------------------------------------------

/** Lines → keys, each checked and whole. Lines of one key follow each other. */
export async function* readExport(lines: AsyncIterable<string>): AsyncGenerator<Exported> {
  let number = 0;
  let open: Exported | undefined;
  const refuse = (why: string): never => {
    throw new InterlaneError('INVALID_REQUEST', `line ${number} of the export ${why}; make the export again`);
  };
  const read = <S extends z.ZodType>(schema: S, value: unknown): z.infer<S> => {
    const found = schema.safeParse(value);
    if (found.success) return found.data;
    const [issue] = found.error.issues;
    return refuse(`does not fit: ${z.core.toDotPath(issue!.path) || 'it'} ${issue!.message.toLowerCase()}`);
  };
  const whole = (unit: Exported) => {
    const { life, entries } = unit.lives.at(-1)!;
    if (entries.length !== life.entries)
      refuse(`comes too early: session ${life.key} has ${life.entries} entries, and ${entries.length} are here`);
    return unit;
  };
  for await (const line of lines) {
    number++;
    if (line.trim() === '') continue;
    const value = parseLine(line) ?? refuse('is not JSON');
    if (number === 1) {
      read(Header, value);
      continue;
    }
    if ((value as { type?: unknown }).type === 'session') {
      const life = keyed(read(Life, value));
      checkKey(life, refuse);
      if (open) whole(open);
      if (open && open.key === life.key) {
        if (life.life <= open.lives.at(-1)!.life.life) refuse('is out of order');
        open.lives.push({ life, entries: [] });
      } else {
        if (open) yield open;
        open = { key: life.key, lives: [{ life, entries: [] }] };
      }
    } else {
      // Validated, but stored as written, so that a new export has the same line.
      const entry = { ...read(Entry, value), ...pickBody(value) };
      const { entries } = open?.lives.at(-1) ?? refuse('belongs to no session');
      if (entry.seq !== entries.length + 1) refuse('is out of order');
      entries.push(entry);
    }
  }
  number++;
  if (number === 1) refuse('is missing');
  if (open) yield whole(open);
}

const pickBody = (value: unknown): Pick<Entry, 'body'> => {
  const { body } = value as Entry;
  return body === undefined ? {} : { body };
};

function parseLine(line: string): unknown {
  try {
    return JSON.parse(line);
  } catch {
    return undefined;
  }
}

/** Older exports have the shared chat of `session.scope: "global"` under a key of its own. */
const keyed = (life: Life): Life => (life.key === 'global' ? { ...life, key: `agent:${life.agent}:main` } : life);

/** Accepts a key only in its canonical form, and only for its own agent. */
function checkKey({ key, agent }: Life, refuse: (why: string) => never): void {
  const parsed = parseSessionKey(key, { agentId: agent, mainKey: 'main' });
  if (!parsed.ok || formatSessionKey(parsed.key) !== key || parsed.key.agent !== agent) refuse('has an invalid session key');
}

/** Compares a key with the store: missing, the same as in the export, or different. */
export function* standing(t: Reading, { key, lives }: Exported): Body<'new' | 'same' | 'taken'> {
  const here = yield* livesOfKey(t, key);
  const same =
    here.length === lives.length && here.every((row, at) => row.id === lives[at]!.life.id && row.next_seq - 1 === lives[at]!.life.entries);
  if (here.length > 0) return same ? 'same' : (yield* isBlank(t, here)) ? 'new' : 'taken';
  for (const { life } of lives) if (yield* hasId(t, life.id)) return 'taken';
  return 'new';
}

/** A main session that was opened at the first start and never used. */
function* isBlank(t: Reading, [row, ...more]: SessionRow[]): Body<boolean> {
  if (!row || more.length > 0 || row.next_seq > 1 || row.kind !== 'main') return false;
  return !(yield* hasRun(t, row.pk));
}

/** One key with all its lives, in one transaction. */
export const importSession: EngineCommand<{ exported: Exported }, void> = {
  name: 'import session',
  *body(t, { exported }) {
    if ((yield* standing(t, exported)) !== 'new')
      throw new InterlaneError(
        'SESSION_CHANGED',
        `session ${exported.key} already exists and was not changed; import it as a copy with --as-new`,
      );
    yield* t.lock(`lane:${exported.key}`);
    yield* deleteBlankLives(t, exported.key); // one, or there is none
    for (const { life, entries } of exported.lives) {
      if (life.current && life.label !== undefined && (yield* currentByLabel(t, life.label, life.agent)).length > 0)
        throw new InterlaneError('LABEL_IN_USE', `label ${JSON.stringify(life.label)} of ${life.key} is in use; take it off and try again`);
      const session = yield* insertLife(t, lifeRow(life));
      noteSession(t, session, 'created', life.createdAt);
      for (const entry of entries) {
        const { id, role, text, provenance } = entry;
        yield* appendEntry(
          t,
          session,
          { id, role, text, provenance, body: entry.body as StoredBody, taint: levelRank(entry.taint) },
          entry.at,
        );
      }
      yield* writeLastAt(t, session.pk, life.lastAt);
    }
  },
};

function lifeRow(life: Life): NewLife {
  const { taint, existTaint } = life;
  return {
    id: life.id,
    key: life.key,
    life: life.life,
    current: life.current ? 1 : 0,
    agent: life.agent,
    kind: life.kind,
    label: life.label ?? null,
    opened_by: life.user ?? null,
    parent_key: life.spawnedBy ?? null,
    depth: life.depth,
    taint: levelRank(taint),
    exist_taint: levelRank(existTaint),
    level: levelRank(join(taint, existTaint)),
    clearance: levelRank(life.clearance),
    state: life.state,
    created_at: life.createdAt,
    last_at: life.lastAt,
    total_tokens: life.totalTokens,
    input_tokens: life.inputTokens,
    output_tokens: life.outputTokens,
    cost_micros: life.costMicros,
    compact_seq: life.compactSeq ?? null,
    aborted_last: life.abortedLast ? 1 : 0,
    system_sent: life.systemSent ? 1 : 0,
    archive_at: life.archiveAt ?? null,
    pinned: life.pinned ? 1 : 0,
    settings: JSON.stringify(life.settings),
    delivery: life.delivery === undefined ? null : JSON.stringify(life.delivery),
  };
}

/** A copy under a new key. It has no label and no delivery: those stay with the existing session. */
export function asNew(exported: Exported, newId: () => string): Exported {
  const [{ life: first }] = exported.lives as [Exported['lives'][0]];
  const key = `agent:${first.agent}:imported:${newId()}`;
  const lives = exported.lives.map(({ life, entries }) => {
    const { label: _label, delivery: _delivery, spawnedBy: _spawnedBy, archiveAt: _archiveAt, ...kept } = life;
    return {
      life: { ...kept, key, id: newId(), kind: 'other' as const },
      entries: entries.map((entry) => ({ ...entry, id: newId() })),
    };
  });
  return { key, lives };
}
