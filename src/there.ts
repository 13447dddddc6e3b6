// Whether a file is there. A file that may not be looked at is neither there nor missing: that is an error of its own.
import { accessSync, constants, statSync } from 'node:fs';
import { InterlaneError, isDenied, systemReason } from './errors.ts';

/** Throws if the system does not let us look. */
export function isThere(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch (thrown) {
    const { code } = thrown as NodeJS.ErrnoException;
    if (code === 'ENOTDIR') return false;
    throw new InterlaneError(
      isDenied(thrown) ? 'FILE_DENIED' : 'FILE_UNREADABLE',
      `file ${path} cannot be looked at: ${systemReason(thrown)}; check the rights of its directories`,
      { cause: thrown },
    );
  }
}

/** Throws for an existing file that this user may not read. `noun` begins the message. */
export function requireReadable(file: string, noun: string): void {
  try {
    accessSync(file, constants.R_OK);
  } catch (thrown) {
    throw new InterlaneError(
      isDenied(thrown) ? 'FILE_DENIED' : 'FILE_UNREADABLE',
      `${noun} ${file} cannot be read: ${systemReason(thrown)}; use the account that it belongs to`,
    );
  }
}
