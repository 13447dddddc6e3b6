// Two configs → the settings that differ, and which of them need a restart.
import { watchFile, unwatchFile } from 'node:fs';
import { placeOf } from './reference.ts';
import type { Config } from './schema.ts';

export interface Change {
  /** Settings that apply now. */
  applied: string[];
  /** Settings that apply after a restart. */
  restart: string[];
}

export function changeOf(before: Config, after: Config): Change {
  const paths = [...differences(before, after, [])];
  const waits = (path: string[]) => placeOf(path)?.restart === true;
  return {
    applied: paths.filter((path) => !waits(path)).map((path) => path.join('.')),
    restart: paths.filter(waits).map((path) => path.join('.')),
  };
}

/** Lists are compared as a whole, because an insertion moves all later entries. */
function* differences(before: unknown, after: unknown, path: string[]): Generator<string[]> {
  if (JSON.stringify(before) === JSON.stringify(after)) return;
  if (!isRecord(before) || !isRecord(after)) {
    yield path;
    return;
  }
  for (const name of new Set([...Object.keys(before), ...Object.keys(after)]))
    yield* differences(before[name], after[name], [...path, name]);
}

const isRecord = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value);

/** Checks the file every second: editors write in many ways, and all of them change its time or size. Returns the undo. */
export function watchConfig(file: string, changed: () => void): () => void {
  const listener = () => changed();
  watchFile(file, { interval: 1_000, persistent: false }, listener);
  return () => unwatchFile(file, listener);
}
