// JSON5 text → plain value, with the place of every value and name for error messages.
import { parse, type ValueNode } from '@humanwhocodes/momoa';
import { reasonOf } from '../errors.ts';

export interface Place {
  line: number;
  column: number;
}

interface Problem {
  path: PropertyKey[];
  at: Place;
  message: string;
}

export interface Source {
  value: unknown;
  problems: Problem[];
  /** The place of a value, or of the nearest value around it. */
  valueAt(path: PropertyKey[]): Place;
  /** The place of a setting's name. */
  nameAt(path: PropertyKey[]): Place;
  /** A value as it was written, before `${NAME}` was replaced. */
  written(path: PropertyKey[]): string | undefined;
}

/** No setting is nested deeper than this, by far. */
const deepest = 100;

const startOf = (node: { loc: { start: Place } }): Place => ({ line: node.loc.start.line, column: node.loc.start.column });

interface Spot {
  value: Place;
  name: Place;
  range: [number, number];
}

/** Throws `SourceError` for text that is not JSON5. A mistake in a single value becomes a problem instead. */
export function readSource(text: string, env: Record<string, string | undefined>): Source {
  const spots = new Map<string, Spot>();
  const problems: Problem[] = [];

  const build = (node: ValueNode, path: PropertyKey[], name?: Place): unknown => {
    if (path.length > deepest) throw new SourceError(startOf(node), 'is nested too deeply');
    const place = startOf(node);
    spots.set(spotKey(path), { value: place, name: name ?? place, range: node.range as [number, number] });
    switch (node.type) {
      case 'Object': {
        const members = new Map<string, unknown>();
        for (const member of node.members) {
          const key = member.name.type === 'Identifier' ? member.name.name : member.name.value;
          const at = startOf(member.name);
          if (key === '__proto__') problems.push({ path: [...path, key], at, message: 'is not a usable name' });
          if (members.has(key)) problems.push({ path: [...path, key], at, message: 'is given twice; keep one' });
          members.set(key, build(member.value, [...path, key], at));
        }
        return Object.fromEntries(members); // own properties only, also for a name like __proto__
      }
      case 'Array':
        return node.elements.map((element, index) => build(element.value, [...path, index]));
      case 'String':
        return expand(node.value, env, (message) => problems.push({ path, at: place, message }));
      case 'Number':
      case 'Boolean':
        return node.value;
      case 'Null':
        return null;
      case 'NaN':
        return Number.NaN;
      case 'Infinity':
        return node.sign === '-' ? Number.NEGATIVE_INFINITY : Number.POSITIVE_INFINITY;
    }
  };

  const spotOf = (path: PropertyKey[]): Spot => {
    for (let length = path.length; length > 0; length--) {
      const spot = spots.get(spotKey(path.slice(0, length)));
      if (spot) return spot;
    }
    return spots.get(spotKey([]))!;
  };

  const value = build(parseJson5(text), []);
  return {
    value,
    problems,
    valueAt: (path) => spotOf(path).value,
    nameAt: (path) => spotOf(path).name,
    written: (path) => {
      const spot = spots.get(spotKey(path));
      return spot && text.slice(...spot.range);
    },
  };
}

export class SourceError extends Error {
  readonly at: Place;

  constructor(at: Place, message: string) {
    super(message);
    this.at = at;
  }
}

function parseJson5(text: string): ValueNode {
  try {
    return parse(text, { mode: 'json5', ranges: true }).body;
  } catch (thrown) {
    if (thrown instanceof RangeError) throw new SourceError({ line: 1, column: 1 }, 'is nested too deeply');
    const { line = 1, column = 1 } = thrown as { line?: number; column?: number };
    throw new SourceError({ line, column }, `is not valid JSON5: ${inPlainWords(reasonOf(thrown))}`);
  }
}

/** What the parser calls its tokens, as they are written. */
const tokens: Record<string, string> = {
  LBrace: '"{"',
  RBrace: '"}"',
  LBracket: '"["',
  RBracket: '"]"',
  Comma: 'a comma',
  Colon: 'a colon',
  Identifier: 'a word',
  String: 'a text',
  Number: 'a number',
  Boolean: 'true or false',
  Null: 'null',
};

function inPlainWords(reason: string): string {
  const [, token] = /^Unexpected token (\w+) found/.exec(reason) ?? [];
  if (token !== undefined) return `${tokens[token] ?? token.toLowerCase()} does not fit here; look for a missing comma, quote or bracket`;
  if (reason.startsWith('Unexpected end of input')) return 'it ends too early; look for a missing quote or bracket';
  return reason
    .replace(/ \(\d+:\d+\)$/, '')
    .replace(/\.$/, '')
    .toLowerCase();
}

function expand(text: string, env: Record<string, string | undefined>, complain: (message: string) => void): string {
  return text.replace(/\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)\}|\$\{/g, (written, variable?: string) => {
    if (written === '$${') return '${';
    if (variable === undefined) complain('has a "${" without a variable name and "}"; write "$${" for a plain "${"');
    else if (Object.hasOwn(env, variable) && env[variable] !== undefined) return env[variable];
    else complain(`needs the environment variable ${variable}, which is not set`);
    return written;
  });
}

const spotKey = (path: PropertyKey[]) => JSON.stringify(path);
