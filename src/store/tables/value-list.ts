// Lists of values in SQL: `IN (?, ?, …)` for a few fixed lengths, so that there are few different statements to prepare.
import type { Body, Value } from '../contract.ts';

const longest = 256;

/** Asks once for every 256 values. A list is filled up to the next power of two with its last value, which changes no answer. */
export function* inBatches<T>(values: readonly Value[], query: (marks: string, params: Value[]) => Body<T[]>): Body<T[]> {
  const found: T[] = [];
  for (let from = 0; from < values.length; from += longest) {
    const some = values.slice(from, from + longest);
    const length = 2 ** Math.ceil(Math.log2(some.length));
    const params = [...some, ...Array.from({ length: length - some.length }, () => some.at(-1)!)];
    found.push(...(yield* query(params.map(() => '?').join(', '), params)));
  }
  return found;
}
