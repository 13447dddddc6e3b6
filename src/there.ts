// Whether a file is there. A file that may not be looked at is neither there nor missing: that is an error of its own.
import { statSync } from 'node:fs';
import { InterlaneError } from './errors.ts';

/** Throws if the system does not let us look. */
export function isThere(path: string): boolean {
  try {
    return statSync(path, { throwIfNoEntry: false }) !== undefined;
  } catch (thrown) {
    const { code } = thrown as NodeJS.ErrnoException;
    if (code === 'ENOTDIR') return false;
    const why = code === 'EACCES' || code === 'EPERM' ? 'permission denied' : code === 'ELOOP' ? 'its links go in a circle' : String(code);
    throw new InterlaneError('FILE_UNREADABLE', `file ${path} cannot be looked at: ${why}; check the rights of its directories`);
  }
}
