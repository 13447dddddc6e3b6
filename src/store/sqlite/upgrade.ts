// Before a store of an older schema is migrated: enough room on its disk, and a copy of it beside it, so that nothing can be lost.
import { closeSync, fsyncSync, openSync, renameSync, rmSync, statfsSync } from 'node:fs';
import { basename, dirname } from 'node:path';
import type { DatabaseSync } from 'node:sqlite';
import { InterlaneError } from '../../errors.ts';

export interface Upgrade {
  /** One line before each part of the work, which may take long. */
  say?(line: string): void;
  /** Free bytes of the disk of a directory. */
  freeBytes?(directory: string): number;
}

/** Room beside the copy and the migration itself. */
const spareBytes = 16 * 1024 * 1024;

/** The copy of a store of a schema: beside the store, and named by the schema. */
const copyName = (file: string, schema: number) => `${file}.schema-${schema}`;

/** Writes the copy. An interrupted one leaves nothing that could be taken for a whole one. */
export function prepareUpgrade(database: DatabaseSync, file: string, from: number, to: number, upgrade: Upgrade = {}): void {
  const { say = () => {}, freeBytes = freeBytesOf } = upgrade;
  const number = (sql: string) => Number(Object.values(database.prepare(sql).get()!)[0]);
  const bytes = number('PRAGMA page_count') * number('PRAGMA page_size');
  // A step may write every page of the store once more before the old ones are free.
  const needed = 2 * bytes + spareBytes;
  const free = freeBytes(dirname(file));
  if (free < needed)
    throw new InterlaneError(
      'STORE_UNUSABLE',
      `store ${file} needs ${megabytes(needed)} of free disk space for the migration from schema ${from} to ${to}, and there are ${megabytes(free)}; nothing was changed; free some space and start again`,
    );
  const copy = copyName(file, from);
  say(`store ${basename(file)} (${megabytes(bytes)}) is migrated from schema ${from} to ${to}; first it is copied to ${copy}`);
  const partial = `${copy}.partial`;
  rmSync(partial, { force: true });
  closeSync(openSync(partial, 'wx', 0o600));
  try {
    // One consistent copy, also while another process reads.
    database.prepare('VACUUM INTO ?').run(partial);
    sync(partial);
    renameSync(partial, copy);
    sync(dirname(file));
  } finally {
    rmSync(partial, { force: true });
  }
}

const freeBytesOf = (directory: string): number => {
  const { bavail, bsize } = statfsSync(directory);
  return bavail * bsize;
};

const megabytes = (bytes: number) => `${Math.ceil(bytes / 1_000_000).toLocaleString('en-US')} MB`;

function sync(path: string): void {
  const opened = openSync(path, 'r');
  try {
    fsyncSync(opened);
  } finally {
    closeSync(opened);
  }
}
