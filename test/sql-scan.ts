// TypeScript source → the SQL in it: which tables each literal touches, and which functions pass SQL through.
import { stripTypeScriptTypes } from 'node:module';
import { parse, type Comment } from 'acorn';

interface Node {
  type: string;
  start: number;
  end: number;
  [field: string]: unknown;
}

interface Touched {
  line: number;
  /** Known tables by name; `?` where the name is computed. */
  tables: string[];
  /** Tables that the doc comments around it name after `Joins:`. */
  joins: string[];
}

export interface Scan {
  touched: Touched[];
  /** Lines of `t.one`, `t.all` and `t.run`. */
  queries: number[];
  /** Those whose SQL is a parameter of the function around them. */
  passed: number[];
}

const computed = '\u0000';
const name = `["\`]?(${computed}|\\w+)["\`]?`;
const list = new RegExp(
  `\\b(?:FROM|JOIN|INTO|UPDATE(?: OR \\w+)?|TABLE(?: IF (?:NOT )?EXISTS)?)\\s+((?:${name}(?:\\s+(?:AS\\s+)?\\w+)?\\s*,\\s*)*${name})`,
  'g',
);

/** The tables that a piece of SQL names where a table stands. Keywords are upper case, as in all our SQL, so that prose is not SQL. */
export function tablesIn(sql: string, known: ReadonlySet<string>): string[] {
  const named = [...sql.matchAll(list)].flatMap(([, tables]) => tables!.split(',').map((one) => new RegExp(name).exec(one)![1]!));
  return [...new Set(named.filter((table) => table === computed || known.has(table)))].map((table) => (table === computed ? '?' : table));
}

export function scan(source: string, known: ReadonlySet<string>): Scan {
  const comments: Comment[] = [];
  const code = stripTypeScriptTypes(source);
  const program = parse(code, { ecmaVersion: 'latest', sourceType: 'module', onComment: comments }) as unknown as Node;
  const docs = comments.filter(({ type, value }) => type === 'Block' && value.startsWith('*'));
  const joinsAt = ({ start }: Node) =>
    docs
      .filter(({ end }) => end <= start && code.slice(end, start).trim() === '')
      .flatMap(({ value }) => [...(/\bJoins: ([\w, ]+)\./.exec(value)?.[1]?.split(/,\s*/) ?? [])]);
  const lineAt = (position: number) => code.slice(0, position).split('\n').length;
  const found: Scan = { touched: [], queries: [], passed: [] };
  const visit = (node: Node, around: Node[]) => {
    const sql = textOf(node);
    const tables = sql === undefined ? [] : tablesIn(sql, known);
    if (tables.length > 0) found.touched.push({ line: lineAt(node.start), tables, joins: [...around, node].flatMap(joinsAt) });
    const asked = queryOf(node);
    if (asked) {
      found.queries.push(lineAt(node.start));
      const parameters = around.flatMap((one) => namesOf(one['params']));
      if (asked.type === 'Identifier' && parameters.includes(asked['name'] as string)) found.passed.push(lineAt(node.start));
    }
    for (const child of childrenOf(node)) visit(child, [...around, node]);
  };
  visit(program, []);
  return found;
}

/** The text of a literal, with a mark for what is computed. */
function textOf(node: Node): string | undefined {
  if (node.type === 'Literal' && typeof node['value'] === 'string') return node['value'];
  if (node.type !== 'TemplateLiteral') return undefined;
  return (node['quasis'] as { value: { cooked: string } }[]).map(({ value }) => value.cooked).join(computed);
}

/** The first argument of `t.one(…)`, `t.all(…)` or `t.run(…)`. */
function queryOf(node: Node): Node | undefined {
  if (node.type !== 'CallExpression') return undefined;
  const { object, property } = node['callee'] as { object?: Node; property?: Node };
  const isQuery = object?.['name'] === 't' && ['one', 'all', 'run'].includes(property?.['name'] as string);
  return isQuery ? (node['arguments'] as Node[])[0] : undefined;
}

/** Every name in a list of parameters. */
const namesOf = (part: unknown): string[] =>
  isNode(part) && part.type === 'Identifier' ? [part['name'] as string] : nodesIn(part).flatMap(namesOf);

const isNode = (value: unknown): value is Node => typeof value === 'object' && value !== null && 'type' in value;
const nodesIn = (value: unknown): Node[] => (Array.isArray(value) ? value.filter(isNode) : isNode(value) ? childrenOf(value) : []);
const childrenOf = (node: Node): Node[] => Object.values(node).flatMap((value) => (isNode(value) ? [value] : nodesIn(value)));
