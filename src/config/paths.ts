// The paths of the state directory and the config file: from flags, then the environment, then the home directory.
import { join, resolve } from 'node:path';
import { InterlaneError, isDenied, stateUnusable } from '../errors.ts';
import { isThere } from '../there.ts';

export interface PathFlags {
  config?: string | undefined;
  stateDir?: string | undefined;
}

export interface Paths {
  stateDir: string;
  /** Undefined if no file was named and the default path has none: then the built-in defaults apply. */
  configFile: string | undefined;
  usualConfigFile: string;
}

export function findPaths(flags: PathFlags, env: Record<string, string | undefined>, home: string): Paths {
  for (const [flag, value] of [
    ['--config', flags.config],
    ['--state-dir', flags.stateDir],
  ] as const) {
    if (value?.trim() === '') throw new InterlaneError('USAGE', `${flag} is empty; name a path, or leave it out`);
  }
  const stateDir = resolve(flags.stateDir || env['INTERLANE_STATE_DIR'] || join(home, '.interlane'));
  const usualConfigFile = join(stateDir, 'interlane.json5');
  const named = flags.config || env['INTERLANE_CONFIG'];
  if (named) return { stateDir, usualConfigFile, configFile: resolve(named) };
  return { stateDir, usualConfigFile, configFile: isUsual(stateDir, usualConfigFile) ? usualConfigFile : undefined };
}

/** If we may not look into the state directory, the directory is the problem, not a file that may not even exist. */
function isUsual(stateDir: string, file: string): boolean {
  try {
    return isThere(file);
  } catch (thrown) {
    throw thrown instanceof InterlaneError && isDenied(thrown.cause) ? stateUnusable(stateDir, thrown.cause) : thrown;
  }
}

/** The file in which a running gateway tells local commands how to connect. */
export const cliFile = (stateDir: string) => join(stateDir, 'cli.json');
