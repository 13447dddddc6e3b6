// Every string in a value of JSON, at any depth.

/** Deeper values are read as their JSON. */
const mostDepth = 100;

/** A value of JSON with each of its strings changed: strings, numbers as text, and the names of fields, in the order of the document. */
export function mapStrings(value: unknown, change: (text: string, isName: boolean) => string, depth = 0): unknown {
  switch (typeof value) {
    case 'string':
      return change(value, false);
    case 'number':
    case 'boolean': {
      const text = String(value);
      const changed = change(text, false);
      return changed === text ? value : changed;
    }
    case 'object': {
      if (value === null) return value;
      if (depth >= mostDepth) return change(JSON.stringify(value), false);
      if (Array.isArray(value)) return value.map((one) => mapStrings(one, change, depth + 1));
      const fields = Object.entries(value).map(([name, one]) => [change(name, true), mapStrings(one, change, depth + 1)] as const);
      const taken = new Map<string, number>();
      return Object.fromEntries(fields.map(([name, one]) => [numbered(taken, name), one]));
    }
    default:
      return value;
  }
}

/** Two names that became the same must not become one field. */
function numbered(taken: Map<string, number>, name: string): string {
  const before = taken.get(name) ?? 0;
  taken.set(name, before + 1);
  return before === 0 ? name : `${name} ${before + 1}`;
}
