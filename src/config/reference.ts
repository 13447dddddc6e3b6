// The schema as a flat list of settings: for error messages, load warnings and the reference page.
import { z } from 'zod';
import { Config } from './schema.ts';

/** The part of JSON Schema that our config schema uses, with our own marks. */
interface Node {
  type?: string;
  properties?: Record<string, Node>;
  additionalProperties?: Node | boolean;
  items?: Node;
  enum?: unknown[];
  const?: unknown;
  anyOf?: Node[];
  required?: string[];
  default?: unknown;
  description?: string;
  minimum?: number;
  maximum?: number;
  notYet?: boolean;
  secret?: boolean;
  restart?: boolean;
}

export interface Setting {
  /** `agents.list[].id`, `models.providers.<name>.type` */
  path: string;
  allowed: string;
  default: unknown;
  required: boolean;
  reason: string;
  notYet: boolean;
  secret: boolean;
  /** Applies only after a restart. */
  restart: boolean;
}

const root = z.toJSONSchema(Config, { io: 'input', unrepresentable: 'any' }) as Node;

/** Every setting, in the order of the schema. */
export function listSettings(): Setting[] {
  return [...walk(root, '', false, { notYet: false, secret: false, restart: false })];
}

type Marks = Pick<Setting, 'notYet' | 'secret' | 'restart'>;

function* walk(node: Node, path: string, required: boolean, above: Marks): Generator<Setting> {
  const marks = {
    notYet: above.notYet || node.notYet === true,
    secret: above.secret || node.secret === true,
    restart: above.restart || node.restart === true,
  };
  const leaf = isLeaf(node);
  if (path !== '' && (leaf || node.description !== undefined)) {
    yield { path, allowed: describeAllowed(node), default: node.default, required, reason: node.description ?? '', ...marks };
  }
  if (leaf) return;
  for (const [name, child] of Object.entries(node.properties ?? {})) {
    yield* walk(child, path ? `${path}.${name}` : name, node.required?.includes(name) ?? false, marks);
  }
  if (node.items) yield* walk(node.items, `${path}[]`, false, marks);
  if (typeof node.additionalProperties === 'object') yield* walk(node.additionalProperties, `${path}.<name>`, false, marks);
}

function isLeaf(node: Node): boolean {
  return !node.properties && !hasFields(node.items) && !hasFields(node.additionalProperties);
}

const hasFields = (node: Node | boolean | undefined): boolean =>
  typeof node === 'object' && (node.properties !== undefined || node.additionalProperties !== undefined || hasFields(node.items));

export interface SchemaPlace {
  allowed: string;
  names: string[];
  notYet: boolean;
  /** Whether the value is a secret or could contain one. */
  secret: boolean;
  restart: boolean;
}

/** The schema's facts about one place in a config; undefined for an unknown place. */
export function placeOf(path: PropertyKey[]): SchemaPlace | undefined {
  let node: Node | boolean | undefined = root;
  let notYet = false;
  let secret = false;
  let restart = false;
  for (const step of path) {
    if (typeof node !== 'object') return undefined;
    node = typeof step === 'number' ? node.items : (node.properties?.[String(step)] ?? node.additionalProperties);
    if (typeof node === 'object') {
      notYet ||= node.notYet === true;
      secret ||= node.secret === true;
      restart ||= node.restart === true;
    }
  }
  if (typeof node !== 'object') return undefined;
  return {
    allowed: describeAllowed(node),
    names: Object.keys(node.properties ?? {}),
    notYet,
    secret: secret || holdsSecret(node),
    restart,
  };
}

function holdsSecret(node: Node | boolean | undefined): boolean {
  if (typeof node !== 'object') return false;
  return (
    node.secret === true ||
    Object.values(node.properties ?? {}).some(holdsSecret) ||
    holdsSecret(node.additionalProperties) ||
    holdsSecret(node.items)
  );
}

function describeAllowed(node: Node): string {
  if (node.enum) return orList(node.enum.map((value) => JSON.stringify(value)));
  if (node.const !== undefined) return JSON.stringify(node.const);
  if (node.anyOf) return orList(node.anyOf.map(describeAllowed));
  switch (node.type) {
    case 'integer':
    case 'number':
      return describeNumber(node);
    case 'boolean':
      return 'true or false';
    case 'array':
      return node.items && !hasFields(node.items) ? `a list, each ${describeAllowed(node.items)}` : 'a list';
    case 'object':
      return typeof node.additionalProperties === 'object' && !hasFields(node.additionalProperties)
        ? `an object, each value ${describeAllowed(node.additionalProperties)}`
        : 'an object';
    default:
      return 'text';
  }
}

function describeNumber({ type, minimum, maximum }: Node): string {
  const noun = type === 'integer' ? 'a whole number' : 'a number';
  const low = minimum !== undefined && minimum > Number.MIN_SAFE_INTEGER ? minimum : undefined;
  const high = maximum !== undefined && maximum < Number.MAX_SAFE_INTEGER ? maximum : undefined;
  if (low !== undefined && high !== undefined) return `${noun} from ${low} to ${high}`;
  if (low !== undefined) return `${noun}, at least ${low}`;
  return high === undefined ? noun : `${noun}, at most ${high}`;
}

function orList(words: string[]): string {
  return words.length < 2 ? words.join('') : `${words.slice(0, -1).join(', ')} or ${words.at(-1)!}`;
}

/** The reference page, as Markdown. */
export function configReference(): string {
  const lines = [
    '# Interlane settings',
    '',
    'The config is one JSON5 file. Every setting is optional unless marked *required*; an unknown one is an error.',
    'In a text value, `${NAME}` is replaced by that environment variable, and `$${` means a plain `${`.',
    'Settings marked *not yet* are checked, but nothing reads them in this version.',
    'A running gateway follows a change of the file by itself; settings marked *restart* wait for the next start.',
  ];
  let section = '';
  for (const setting of listSettings()) {
    const top = /^\w+/.exec(setting.path)![0];
    if (top !== section) {
      section = top;
      lines.push('', `## ${section}`, '');
    }
    const marks = (['required', 'secret', 'notYet', 'restart'] as const).filter((mark) => setting[mark]).map((mark) => markWords[mark]);
    const fallback =
      setting.default === undefined || isEmptyObject(setting.default) ? '' : `; default \`${JSON.stringify(setting.default)}\``;
    lines.push(
      `- \`${setting.path}\`: ${setting.allowed}${fallback}${marks.length > 0 ? ` (${marks.join(', ')})` : ''}`,
      `  ${capital(setting.reason)}.`,
    );
  }
  return `${lines.join('\n')}\n`;
}

const markWords = { required: '*required*', secret: '*secret*', notYet: '*not yet*', restart: '*restart*' };

const isEmptyObject = (value: unknown) =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && Object.keys(value).length === 0;
const capital = (sentence: string) => sentence.charAt(0).toUpperCase() + sentence.slice(1);
