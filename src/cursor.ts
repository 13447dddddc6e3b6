// Cursors: where a page ended, as text that a client hands back.
import { InterlaneError } from './errors.ts';

export const writeCursor = (position: number) => position.toString(36);

export function readCursor(cursor: string | undefined): number | undefined {
  if (cursor === undefined) return undefined;
  const position = /^[0-9a-z]{1,11}$/.test(cursor) ? Number.parseInt(cursor, 36) : Number.NaN;
  if (!Number.isSafeInteger(position))
    throw new InterlaneError('INVALID_REQUEST', 'cursor is not one; use nextCursor of the page before as it is');
  return position;
}
