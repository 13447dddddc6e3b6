// Suggestions for a misspelt word.

/** The words nearest to a misspelt one, nearest first: at most `limit`, none that is further than a third of its length. */
export function nearest(word: string, known: Iterable<string>, limit = 1): string[] {
  const wanted = word.slice(0, 200).toLowerCase();
  const near: { text: string; distance: number }[] = [];
  for (const text of known) {
    const candidate = text.slice(0, 200).toLowerCase();
    const allowed = Math.max(1, Math.floor(Math.max(wanted.length, candidate.length) / 3));
    if (Math.abs(wanted.length - candidate.length) > allowed) continue;
    const distance = editDistance(wanted, candidate);
    if (distance <= allowed) near.push({ text, distance });
  }
  return near
    .toSorted((a, b) => a.distance - b.distance || (a.text < b.text ? -1 : 1))
    .slice(0, limit)
    .map((entry) => entry.text);
}

/** Edits between two short words, a swap of neighbours counting as one. */
function editDistance(a: string, b: string): number {
  let beforeLast: number[] = [];
  let last = Array.from({ length: b.length + 1 }, (_, j) => j);
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const substitution = last[j - 1]! + (a[i - 1] === b[j - 1] ? 0 : 1);
      let best = Math.min(last[j]! + 1, row[j - 1]! + 1, substitution);
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) best = Math.min(best, beforeLast[j - 2]! + 1);
      row.push(best);
    }
    beforeLast = last;
    last = row;
  }
  return last[b.length]!;
}
