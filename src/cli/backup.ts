// `interlane backup <file>` and `interlane restore <file>`: the whole database in one private file, and back.
import { hostname } from 'node:os';
import { resolve } from 'node:path';
import { backupStore, restoreStore } from '../store/sqlite/backup.ts';
import { size, visible, type Terminal } from './terminal.ts';

export async function backup(terminal: Terminal, stateDir: string, name: string): Promise<void> {
  const file = resolve(name);
  const { bytes } = await backupStore(stateDir, file);
  say(terminal, `Backed up ${stateDir} to ${file} (${size(bytes)}).`);
}

export async function restore(terminal: Terminal, stateDir: string, name: string): Promise<void> {
  const file = resolve(name);
  const { kept } = await restoreStore(file, stateDir, {
    pid: process.pid,
    host: hostname(),
    startedAt: Math.round(performance.timeOrigin),
  });
  say(terminal, `Restored ${file} to ${stateDir}${kept === undefined ? '' : `; the old database is kept as ${kept}`}.`);
}

const say = (terminal: Terminal, line: string) => terminal.stdout.write(`${visible(line)}\n`);
