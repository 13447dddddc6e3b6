// `interlane export` and `interlane import`: sessions as lines of JSON, out of a store at any time, and into one that no gateway uses.
import { createReadStream, createWriteStream, mkdirSync, openSync, statSync } from 'node:fs';
import { hostname } from 'node:os';
import { resolve } from 'node:path';
import { createInterface } from 'node:readline';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { InterlaneError, isDenied, reasonOf, stateUnusable, systemReason } from '../errors.ts';
import {
  allKeys,
  asNew,
  entriesAfter,
  headerLine,
  importSession,
  keyNamed,
  lineOf,
  livesOf,
  readExport,
  standing,
  type Exported,
} from '../sessions/transfer.ts';
import { writeTranscript } from '../sessions/transcripts.ts';
import type { Store } from '../store/contract.ts';
import { refuseOldStore, snapshot } from '../store/sqlite/inspect.ts';
import { lockState } from '../store/sqlite/lock.ts';
import { openSqliteStore } from '../store/sqlite/open.ts';
import { isThere, requireReadable } from '../there.ts';
import { answer, count, oneLine, readAll, type Terminal } from './terminal.ts';

export interface ExportFlags {
  session?: string;
}

export interface ImportFlags {
  session?: string;
  asNew?: boolean;
  json?: boolean;
}

type Snapshot = ReturnType<typeof snapshot>;

export async function exportSessions(terminal: Terminal, stateDir: string, name: string | undefined, flags: ExportFlags): Promise<void> {
  const source = snapshot(stateDir);
  try {
    const keys = flags.session === undefined ? source.read(allKeys) : [named(source, flags.session)];
    const lines = Readable.from(linesOf(source, keys));
    if (name === undefined || name === '-') await pipeline(lines, terminal.stdout, { end: false });
    else {
      await pipeline(lines, createWriteStream('', { fd: create(resolve(name)) }));
      terminal.stderr.write(`Exported ${count(keys.length, 'session')} to ${oneLine(name)}.\n`);
    }
    await writeTranscripts(terminal, stateDir, source, keys);
  } finally {
    source.close();
  }
}

function named(source: Snapshot, session: string): string {
  const key = source.read((t) => keyNamed(t, session));
  if (key === undefined)
    throw new InterlaneError('SESSION_NOT_FOUND', `session ${JSON.stringify(session.slice(0, 200))} is not in the store`);
  return key;
}

/** Transcripts are private. An existing file is not overwritten. */
function create(file: string): number {
  try {
    return openSync(file, 'wx', 0o600);
  } catch (thrown) {
    const exists = (thrown as NodeJS.ErrnoException).code === 'EEXIST';
    throw new InterlaneError(
      isDenied(thrown) ? 'FILE_DENIED' : 'INVALID_REQUEST',
      `export ${file} ${exists ? 'exists already' : `cannot be written: ${systemReason(thrown)}`}; choose another name`,
    );
  }
}

function* linesOf(source: Snapshot, keys: string[]): Generator<string> {
  yield headerLine;
  for (const key of keys) for (const life of source.read((t) => livesOf(t, key))) yield* lifeLines(source, life);
}

function* lifeLines(source: Snapshot, { pk, line }: { pk: number; line: object }): Generator<string> {
  yield lineOf(line);
  for (
    let seq = 0, page = source.read((t) => entriesAfter(t, pk, seq));
    page.length > 0;
    page = source.read((t) => entriesAfter(t, pk, seq))
  ) {
    for (const entry of page) yield lineOf(entry);
    seq = page.at(-1)!.seq;
  }
}

/** Beside the export, each life gets its own file, which rows name as `transcriptPath`. The export is complete without them. */
async function writeTranscripts(terminal: Terminal, stateDir: string, source: Snapshot, keys: string[]): Promise<void> {
  try {
    for (const key of keys)
      for (const life of source.read((t) => livesOf(t, key)))
        await writeTranscript(stateDir, life.line.id, [headerLine, ...lifeLines(source, life)]);
  } catch (thrown) {
    terminal.stderr.write(`Transcripts in ${oneLine(stateDir)} were not written: ${oneLine(reasonOf(thrown))}\n`);
  }
}

interface Imported {
  imported: string[];
  /** Exists already, identical to the export. */
  same: string[];
  renamed: Record<string, string>;
}

/** Reads and checks the whole export before it writes anything. */
export async function importSessions(terminal: Terminal, stateDir: string, name: string, flags: ImportFlags): Promise<void> {
  const units = await readable(terminal, name, flags.session);
  const keys = new Set<string>();
  for await (const { key } of units()) {
    if (keys.has(key)) throw new InterlaneError('INVALID_REQUEST', `export has session ${key} twice; make the export again`);
    keys.add(key);
  }
  if (keys.size === 0) throw new InterlaneError('INVALID_REQUEST', 'export has no such session; nothing was changed');
  const done = await withStore(terminal, stateDir, async (store) => {
    if (!flags.asNew) await refuseTaken(store, units());
    return importAll(terminal, store, units(), flags.asNew === true);
  });
  answer(terminal, flags.json, done, () => {
    const renamed = Object.entries(done.renamed).map(([from, to]) => `${oneLine(from)} was imported as ${oneLine(to)}\n`);
    const same = done.same.length === 0 ? '' : ` Unchanged: ${done.same.length}.`;
    return `${renamed.join('')}Imported ${count(done.imported.length, 'session')}.${same}\n`;
  });
}

/** A file is read twice; standard input can be read once, and is kept. */
async function readable(terminal: Terminal, name: string, session: string | undefined): Promise<() => AsyncGenerator<Exported>> {
  const kept = name === '-' ? await readAll(terminal.stdin, 1024 ** 3) : undefined;
  const open = () => (kept === undefined ? createReadStream('', { fd: openFile(resolve(name)) }) : Readable.from([kept]));
  return async function* () {
    for await (const unit of readExport(createInterface({ input: open(), crlfDelay: Number.POSITIVE_INFINITY }))) {
      if (session === undefined || unit.key === session || unit.key === `agent:main:${session}`) yield unit;
    }
  };
}

function openFile(file: string): number {
  if (!isThere(file)) throw new InterlaneError('FILE_UNREADABLE', `export ${file} does not exist; check its name`);
  if (statSync(file).isDirectory()) throw new InterlaneError('FILE_UNREADABLE', `export ${file} is a directory; name a file`);
  requireReadable(file, 'export');
  return openSync(file, 'r');
}

async function withStore<R>(terminal: Terminal, stateDir: string, work: (store: Store) => Promise<R>): Promise<R> {
  try {
    mkdirSync(stateDir, { recursive: true, mode: 0o700 });
  } catch (thrown) {
    throw stateUnusable(stateDir, thrown);
  }
  const unlock = lockState(stateDir, { pid: process.pid, host: hostname(), startedAt: terminal.now() });
  try {
    refuseOldStore(stateDir);
    const store = openSqliteStore(stateDir, 'full', {
      afterTick: queueMicrotask,
      elapsed: () => performance.now(),
      fatal: () => {},
    });
    try {
      return await work(store);
    } finally {
      await store.close();
    }
  } finally {
    unlock();
  }
}

async function refuseTaken(store: Store, units: AsyncGenerator<Exported>): Promise<void> {
  const taken: string[] = [];
  for await (const unit of units) if ((await standingOf(store, unit)) === 'taken') taken.push(unit.key);
  if (taken.length === 0) return;
  const some = taken.slice(0, 5).join(', ') + (taken.length > 5 ? ` and ${taken.length - 5} more` : '');
  throw new InterlaneError(
    'SESSION_CHANGED',
    `import would overwrite ${count(taken.length, 'session')} (${some}); nothing was changed; use --as-new to import them under new keys`,
  );
}

async function importAll(terminal: Terminal, store: Store, units: AsyncGenerator<Exported>, renaming: boolean): Promise<Imported> {
  const done: Imported = { imported: [], same: [], renamed: {} };
  for await (const unit of units) {
    const found = await standingOf(store, unit);
    if (found === 'same') {
      done.same.push(unit.key);
      continue;
    }
    const exported = found === 'taken' && renaming ? asNew(unit, () => terminal.newId()) : unit;
    await store.write(importSession, { exported });
    done.imported.push(exported.key);
    if (exported.key !== unit.key) done.renamed[unit.key] = exported.key;
  }
  return done;
}

const standingOf = (store: Store, unit: Exported) =>
  store.read({ name: 'standing', body: (t, exported: Exported) => standing(t, exported) }, unit);
