// Durations as people write them: `90s`, `1h30m`, `1.5h`.

const dayMs = 24 * 3_600_000;
const units = [
  ['w', 7 * dayMs],
  ['d', dayMs],
  ['h', 3_600_000],
  ['m', 60_000],
  ['s', 1_000],
  ['ms', 1],
] as const;
/** Ten years. */
const longestMs = 3_660 * dayMs;

/** Largest unit first, each unit once. Returns milliseconds, or undefined for anything else. */
export function parseDuration(text: string): number | undefined {
  const part = /(\d{1,15}(?:\.\d{1,6})?)(ms|[wdhms])/y;
  let total = 0;
  let lastUnit = -1;
  while (part.lastIndex < text.length) {
    const found = part.exec(text);
    if (!found) return undefined;
    const unit = units.findIndex(([name]) => name === found[2]);
    if (unit <= lastUnit) return undefined;
    lastUnit = unit;
    total += Number(found[1]) * units[unit]![1];
  }
  const ms = Math.round(total);
  return ms > 0 && ms <= longestMs ? ms : undefined;
}
