// Pages of rows that may be rare: found in windows of keys, so that each statement stays short however many rows between them do not fit.
import type { Body } from './contract.ts';

/** Keys of one statement. */
export const windowKeys = 5_000;

/**
 * The newest rows strictly before a key, up to a limit. Fewer than the limit means that there are no more: rows that do not fit never
 * end a page, so a page tells nothing about them.
 */
export function* inWindows<R>(
  ends: { oldest: number | null; newest: number | null } | undefined,
  before: number,
  limit: number,
  read: (from: number, before: number, limit: number) => Body<R[]>,
): Body<R[]> {
  const found: R[] = [];
  const { oldest = null, newest = null } = ends ?? {};
  if (oldest === null || newest === null) return found;
  for (let end = Math.min(before, newest + 1); end > oldest && found.length < limit; end -= windowKeys)
    found.push(...(yield* read(end - windowKeys, end, limit - found.length)));
  return found;
}
