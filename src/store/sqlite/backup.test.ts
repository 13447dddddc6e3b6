import {
  chmodSync,
  copyFileSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { describe, expect, it, onTestFinished } from 'vitest';
import { migrations } from '../migrations.ts';
import { backupStore, restoreStore } from './backup.ts';
import { openDatabase } from './database.ts';
import { lockState } from './lock.ts';
import { databaseName } from './files.ts';

const me = { pid: process.pid, host: 'here', startedAt: 0 };

function scratch(): string {
  const directory = mkdtempSync(join(tmpdir(), 'interlane-backup-'));
  onTestFinished(() => rmSync(directory, { recursive: true, force: true }));
  return directory;
}

/** A state directory whose database holds these notes, closed. */
function state(...notes: string[]): string {
  const directory = join(scratch(), 'state');
  mkdirSync(directory);
  const { database } = openDatabase(join(directory, databaseName), { durability: 'full' });
  for (const note of notes) database.prepare(`INSERT INTO meta VALUES (?, ?)`).run(note, 'x'.repeat(5000));
  database.close();
  return directory;
}

function edit(file: string, sql: string): void {
  const database = new DatabaseSync(file);
  database.exec(sql);
  database.close();
}

function notes(file: string): string[] {
  const database = new DatabaseSync(file);
  const rows = database.prepare('SELECT key FROM meta ORDER BY key').all();
  database.close();
  return rows.map((row) => String(row['key'])).filter((key) => key !== 'from backup'); // the mark of a restore itself
}

const mode = (file: string) => (statSync(file).mode & 0o777).toString(8);
const failed = (code: string, message: string) => expect.objectContaining({ code, message });

/** Everything in a directory but the lock: what a refusal must leave as it was. */
const contents = (directory: string) =>
  readdirSync(directory)
    .filter((name) => !['lock.db', 'holder.json'].includes(name))
    .toSorted()
    .map((name) => [name, readFileSync(join(directory, name)).toString('base64')]);

describe('a backup', () => {
  it('holds what is committed in a database that is open, in one private file', async () => {
    const from = state('a', 'b');
    const { database } = openDatabase(join(from, databaseName), { durability: 'full' });
    database.exec(`INSERT INTO meta VALUES ('c', '')`);
    database.exec(`BEGIN; INSERT INTO meta VALUES ('uncommitted', '')`);
    const file = join(scratch(), 'b.db');
    const before = process.umask(0);
    onTestFinished(() => void process.umask(before));
    const { bytes } = await backupStore(from, file);
    database.exec('COMMIT');
    database.close();
    expect(readdirSync(join(file, '..'))).toEqual(['b.db']);
    expect([mode(file), statSync(file).size]).toEqual(['600', bytes]);
    expect(notes(file)).toEqual(['a', 'b', 'c']);
  });

  it('is never written over a file that exists', async () => {
    const file = join(scratch(), 'b.db');
    writeFileSync(file, 'precious');
    await expect(backupStore(state(), file)).rejects.toEqual(
      failed('INVALID_REQUEST', `backup ${file} exists already; choose another name`),
    );
    expect(readFileSync(file, 'utf8')).toBe('precious');
    expect(readdirSync(join(file, '..'))).toEqual(['b.db']);
  });

  it('has one writer: two at the same time do not mix', async () => {
    const from = state('a');
    const file = join(scratch(), 'b.db');
    const outcomes = await Promise.allSettled([backupStore(from, file), backupStore(from, file)]);
    expect(outcomes.map((one) => one.status)).toEqual(['fulfilled', 'rejected']);
    expect(outcomes[1]).toMatchObject({
      reason: failed(
        'STORE_FAILED',
        `backup ${file} cannot be written: it is being written, or was interrupted: if nobody is at it, remove ${file}.partial`,
      ),
    });
    expect(notes(file)).toEqual(['a']);
  });

  it('is refused by name where there is nothing to back up, or nowhere to write', async () => {
    const empty = scratch();
    await expect(backupStore(empty, join(empty, 'b.db'))).rejects.toEqual(
      failed('FILE_UNREADABLE', `state directory ${empty} has no interlane.db to back up; check --state-dir`),
    );
    const nowhere = join(empty, 'missing', 'b.db');
    await expect(backupStore(state(), nowhere)).rejects.toMatchObject({
      code: 'STORE_FAILED',
      message: expect.stringContaining(`backup ${nowhere} cannot be written: its directory does not exist`),
    });
  });

  it.each([
    ['damaged inside', (file: string) => overwrite(file), /^store .* cannot be backed up: it is damaged/],
    ['cut short', (file: string) => truncateSync(file, statSync(file).size / 2), /^store .* cannot be backed up: it is damaged$/],
    ['no database', (file: string) => writeFileSync(file, 'text '.repeat(2000)), /^store .* cannot be backed up: it is not a database$/],
    [
      'of somebody else',
      (file: string) => (rmSync(file), edit(file, 'CREATE TABLE x (y)')),
      /^store .* it is not a database of Interlane$/,
    ],
  ])('of a database that is %s is not left behind', async (_, fault, message) => {
    const from = state(...Array.from({ length: 40 }, (_each, index) => `n${index}`));
    fault(join(from, databaseName));
    const target = scratch();
    await expect(backupStore(from, join(target, 'b.db'))).rejects.toMatchObject({
      code: 'STORE_UNUSABLE',
      message: expect.stringMatching(message),
    });
    expect(readdirSync(target)).toEqual([]);
  });
});

describe('a restore', () => {
  async function backedUp(...kept: string[]): Promise<string> {
    const file = join(scratch(), 'b.db');
    await backupStore(state(...kept), file);
    return file;
  }

  it('puts the backup in place, private, and keeps what was there', async () => {
    const file = await backedUp('old');
    const to = state('new');
    writeFileSync(join(to, 'search.db'), 'made from the other');
    const { kept } = await restoreStore(file, to, me);
    expect(kept).toBe(join(to, 'interlane.db.replaced-1'));
    expect(notes(join(to, databaseName))).toEqual(['old']);
    expect(notes(kept!)).toEqual(['new']);
    expect(
      readdirSync(to)
        .filter((name) => !/-(wal|shm)$/.test(name))
        .toSorted(),
    ).toEqual(['holder.json', 'interlane.db', 'interlane.db.replaced-1', 'lock.db']);
    expect(mode(join(to, databaseName))).toBe('600');
    const again = await restoreStore(file, to, me);
    expect(again.kept).toBe(join(to, 'interlane.db.replaced-2'));
    openDatabase(join(to, databaseName), { durability: 'full' }).close();
  });

  it('ends the timeline of the backup, and of nothing else', async () => {
    const file = await backedUp('a', 'timeline');
    const to = state('timeline');
    const { kept } = await restoreStore(file, to, me);
    expect(notes(join(to, databaseName))).toEqual(['a']);
    expect([notes(kept!), notes(file)]).toEqual([['timeline'], ['a', 'timeline']]);
  });

  it('leaves the backup as it is, also where nothing can be written', async () => {
    const file = await backedUp('a');
    const directory = join(file, '..');
    const before = readFileSync(file);
    chmodSync(file, 0o400);
    chmodSync(directory, 0o500);
    await restoreStore(file, state(), me);
    expect(readdirSync(directory)).toEqual(['b.db']);
    expect(readFileSync(file).equals(before)).toBe(true);
    chmodSync(directory, 0o700);
  });

  it('makes a state directory, private, if there is none', async () => {
    const to = join(scratch(), 'new', 'state');
    expect(await restoreStore(await backedUp('a'), to, me)).toEqual({ kept: undefined });
    expect([mode(to), notes(join(to, databaseName))]).toEqual(['700', ['a']]);
  });

  it('takes the copy of a database with its WAL beside it', async () => {
    const from = state('a');
    const { database } = openDatabase(join(from, databaseName), { durability: 'full' });
    database.exec(`INSERT INTO meta VALUES ('only in the WAL', '')`);
    const copy = join(scratch(), 'copy.db');
    for (const end of ['', '-wal']) copyFileSync(join(from, databaseName) + end, copy + end);
    database.close();
    const to = state();
    await restoreStore(copy, to, me);
    expect(notes(join(to, databaseName))).toEqual(['a', 'only in the WAL']);
  });

  it('keeps what a killed gateway had committed: its WAL is folded into the kept database', async () => {
    // The files of a database that was not closed: copied while it was open.
    const live = state('a');
    const { database } = openDatabase(join(live, databaseName), { durability: 'full' });
    database.exec(`INSERT INTO meta VALUES ('only in the WAL', '')`);
    const to = join(scratch(), 'state');
    mkdirSync(to);
    for (const end of ['', '-wal']) copyFileSync(join(live, databaseName) + end, join(to, databaseName) + end);
    database.close();
    const { kept } = await restoreStore(await backedUp('restored'), to, me);
    expect(readdirSync(to).filter((name) => name.endsWith('-wal'))).toEqual([]);
    expect(notes(join(to, databaseName))).toEqual(['restored']);
    expect(notes(kept!)).toEqual(['a', 'only in the WAL']);
  });

  it('keeps the old database whole while somebody still reads it', async () => {
    const to = state('a');
    const database = join(to, databaseName);
    edit(database, `INSERT INTO meta VALUES ('b', '')`);
    const reader = new DatabaseSync(database, { readOnly: true });
    reader.exec('BEGIN');
    reader.prepare('SELECT count(*) FROM meta').get();
    edit(database, `INSERT INTO meta VALUES ('only in the WAL', '')`);
    const { kept } = await restoreStore(await backedUp('restored'), to, me);
    expect(notes(database)).toEqual(['restored']);
    expect(reader.prepare('SELECT count(*) AS n FROM meta').get()).toEqual({ n: 2 });
    reader.close();
    expect(notes(kept!)).toEqual(['a', 'b', 'only in the WAL']);
  });

  it('replaces a damaged database and keeps it byte for byte', async () => {
    const to = state('a');
    const database = join(to, databaseName);
    writeFileSync(database, 'no longer a database '.repeat(500));
    const { kept } = await restoreStore(await backedUp('restored'), to, me);
    expect(notes(database)).toEqual(['restored']);
    expect(readFileSync(kept!, 'utf8')).toBe('no longer a database '.repeat(500));
  });

  it('takes a backup of an older schema', async () => {
    const file = join(scratch(), 'schema-1.db');
    edit(file, readFileSync('test/fixtures/schema-1.sql', 'utf8'));
    const to = state('new');
    await restoreStore(file, to, me);
    const { database } = openDatabase(join(to, databaseName), { durability: 'full' });
    expect(database.prepare('SELECT count(*) AS n FROM sessions').get()).toEqual({ n: 2 });
    database.close();
  });

  const refusals: [string, (file: string) => void, string][] = [
    ['of another program', (file) => (rmSync(file), edit(file, 'CREATE TABLE x (y)')), 'it is not a database of Interlane'],
    ['that is empty', (file) => truncateSync(file), 'it is not a database of Interlane'],
    ['that is text', (file) => writeFileSync(file, 'text '.repeat(2000)), 'it is not a database'],
    ['that was cut short', (file) => truncateSync(file, statSync(file).size / 2), 'it is damaged'],
    ['that is damaged inside', (file) => overwrite(file), 'it is damaged ('],
    [
      'of a newer version',
      (file) => edit(file, 'PRAGMA user_version = 99'),
      `it was written by a newer Interlane (schema 99, this one knows ${migrations.length}); use that version`,
    ],
  ];

  it.each(refusals)('refuses a backup %s by name and touches nothing', async (_, fault, why) => {
    const file = await backedUp(...Array.from({ length: 40 }, (_each, index) => `n${index}`));
    fault(file);
    const to = state('new');
    writeFileSync(join(to, 'search.db'), 'stays');
    const before = contents(to);
    await expect(restoreStore(file, to, me)).rejects.toMatchObject({
      code: 'STORE_UNUSABLE',
      message: expect.stringContaining(`backup ${file} cannot be restored: ${why}`),
    });
    expect(contents(to)).toEqual(before);
    lockState(to, me)();
  });

  it('refuses a backup that is not there', async () => {
    const file = join(scratch(), 'missing.db');
    const to = join(scratch(), 'state');
    await expect(restoreStore(file, to, me)).rejects.toEqual(
      failed('FILE_UNREADABLE', `backup ${file} is not a file that exists; check its name`),
    );
    expect(() => statSync(to)).toThrow('ENOENT');
  });

  it('refuses while the state is in use, and touches nothing', async () => {
    const file = await backedUp('old');
    const to = state('new');
    const release = lockState(to, me);
    const before = contents(to);
    await expect(restoreStore(file, to, me)).rejects.toMatchObject({ code: 'STATE_IN_USE' });
    expect(contents(to)).toEqual(before);
    release();
    await restoreStore(file, to, me);
    expect(notes(join(to, databaseName))).toEqual(['old']);
  });

  it('leaves another restore alone that is under way', async () => {
    const file = await backedUp('old');
    const to = state('new');
    const [first, second] = await Promise.allSettled([restoreStore(file, to, me), restoreStore(file, to, me)]);
    expect(first).toMatchObject({ status: 'fulfilled' });
    expect(second).toMatchObject({ status: 'rejected', reason: { code: 'STATE_IN_USE' } });
    expect(notes(join(to, databaseName))).toEqual(['old']);
  });

  it('takes no WAL that was left without its database for its own', async () => {
    const to = state('new');
    const { database } = openDatabase(join(to, databaseName), { durability: 'full' });
    database.exec(`INSERT INTO meta VALUES ('only in the WAL', '')`);
    const left = join(scratch(), 'state');
    mkdirSync(left);
    copyFileSync(join(to, `${databaseName}-wal`), join(left, `${databaseName}-wal`));
    database.close();
    expect(await restoreStore(await backedUp('old'), left, me)).toEqual({ kept: undefined });
    expect(notes(join(left, databaseName))).toEqual(['old']);
  });

  it('refuses a state directory that is a file, by name', async () => {
    const file = await backedUp('old');
    await expect(restoreStore(file, file, me)).rejects.toMatchObject({
      code: 'STATE_UNUSABLE',
      message: expect.stringContaining(`state directory ${file} cannot be used`),
    });
  });

  it('is not stopped by what an interrupted one left behind', async () => {
    const to = state('new');
    writeFileSync(join(to, 'interlane.db.restoring'), 'half');
    writeFileSync(join(to, 'interlane.db.restoring-journal'), 'half');
    await restoreStore(await backedUp('old'), to, me);
    expect(notes(join(to, databaseName))).toEqual(['old']);
    expect(readdirSync(to).filter((name) => name.includes('restoring'))).toEqual([]);
  });
});

/** Damage that only a look at every page can find. */
function overwrite(file: string): void {
  const bytes = readFileSync(file);
  writeFileSync(file, bytes.fill(0xa5, bytes.length - 4096 * 3));
}
