// How much of a page fits into one answer.

/** The most bytes of the items of one answer, as JSON. What is left out is on the next page. */
export const pageBytes = 1024 * 1024;

/** How many of the first items fit, at least one. `bound` is never below an item's bytes as JSON, and cheap: mostly it is all it takes. */
export function howManyFit<T>(items: readonly T[], most: number, bound: (item: T) => number): number {
  let rough = 0;
  for (const item of items) rough += bound(item);
  if (rough <= most) return items.length;
  let bytes = 0;
  for (const [index, item] of items.entries()) {
    bytes += Buffer.byteLength(JSON.stringify(item)) + 1;
    if (bytes > most && index > 0) return index;
  }
  return items.length;
}

/** The most bytes of a text as JSON: a control character takes six. */
export const textBound = (text: string | undefined | null) => 6 * (text?.length ?? 0) + 2;
