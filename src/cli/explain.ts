// `interlane explain …`: a question as JSON → the rules' answer with the full trace, as text or JSON.
import { z } from 'zod';
import type { Config } from '../config/schema.ts';
import { InterlaneError, reasonOf } from '../errors.ts';
import { ExplainAccess, ExplainKey, ExplainRoute, ExplainSend, ExplainTools } from '../protocol/explain.ts';
import { compileWorld } from '../rules/decide.ts';
import type { Explanation } from '../protocol/decision.ts';
import { explainAccess, explainKey, explainRoute, explainSend, explainTools, toolNamesOf } from '../rules/explain.ts';
import { compileRoutes } from '../rules/route.ts';
import { columns, paint, readAll, visible, type Terminal } from './terminal.ts';

interface Topic {
  about: string;
  example: string;
  /** The fields of the question, for the help page. */
  fields: string[];
  explain: (config: Config, question: unknown) => Explanation;
}

const topic = <S extends z.ZodType>(
  about: string,
  example: string,
  schema: S,
  explain: (config: Config, question: z.infer<S>) => Explanation,
): Topic => ({
  about,
  example,
  fields: fieldsOf(z.toJSONSchema(schema, { io: 'input' }) as SchemaNode),
  explain: (config, question) => explain(config, readQuestion(schema, question, example)),
});

interface SchemaNode {
  properties?: Record<string, SchemaNode>;
  required?: string[];
  enum?: string[];
  type?: string;
}

function fieldsOf(node: SchemaNode, prefix = ''): string[] {
  return Object.entries(node.properties ?? {}).flatMap(([name, child]) => {
    const inner = fieldsOf(child, `${prefix}${name}.`);
    if (inner.length > 0) return inner;
    const allowed = child.enum ? child.enum.map((word) => `"${word}"`).join(' | ') : (child.type ?? 'text');
    return [
      `${prefix}${name}${node.required?.includes(name) ? '' : '?'}: ${allowed.replace('string', 'text').replace('integer', 'number')}`,
    ];
  });
}

/** The questions, as commands. */
export const topics: Record<string, Topic> = {
  route: topic(
    'which agent and session a message goes to',
    '{"channel":"telegram","peer":{"kind":"direct","id":"42"}}',
    ExplainRoute,
    (config, origin) => explainRoute(compileRoutes(config, compileWorld(config).agents), origin),
  ),
  key: topic('what a session key means', '{"key":"agent:main:telegram:group:-100:topic:7"}', ExplainKey, (config, question) =>
    explainKey(compileWorld(config), question),
  ),
  send: topic(
    "whether a session's text may go to a channel",
    '{"session":{"key":"agent:main:discord:group:9"},"text":"hello"}',
    ExplainSend,
    (config, question) => explainSend(compileWorld(config), question),
  ),
  access: topic(
    'whether one session may list, read, check or send to another',
    '{"action":"read","caller":{"key":"agent:main:main"},"target":{"key":"agent:work:main"}}',
    ExplainAccess,
    (config, question) => explainAccess(compileWorld(config), question),
  ),
  tools: topic('which tools a session gets, and why', '{"session":{"key":"agent:main:main"}}', ExplainTools, (config, question) => {
    const world = compileWorld(config);
    return explainTools(world, question, toolNamesOf(world));
  }),
};

const largestQuestion = 1024 * 1024;

export async function explain(
  terminal: Terminal,
  name: string,
  written: string | undefined,
  config: Config,
  options: { json: boolean; configName: string },
): Promise<void> {
  const { example, explain: answer } = topics[name]!;
  const text = written ?? (await questionFromInput(terminal, name, example));
  const explanation = answer(config, parseQuestion(name, text, example));
  terminal.stdout.write(
    options.json
      ? `${JSON.stringify({ ...explanation, config: options.configName }, null, 2)}\n`
      : render(terminal, explanation, options.configName),
  );
}

async function questionFromInput(terminal: Terminal, name: string, example: string): Promise<string> {
  if (terminal.stdin.isTTY)
    throw new InterlaneError('USAGE', `question is missing; write it as JSON, for example: interlane explain ${name} '${example}'`);
  const text = await readAll(terminal.stdin, largestQuestion);
  if (text === undefined) throw new InterlaneError('INVALID_REQUEST', `question is too large; at most ${largestQuestion} bytes are read`);
  return text;
}

/** A key may be given as it is; everything else is JSON. */
function parseQuestion(name: string, text: string, example: string): unknown {
  if (name === 'key' && !/^\s*[{"]/.test(text)) return { key: text };
  try {
    const value: unknown = JSON.parse(text);
    return name === 'key' && typeof value === 'string' ? { key: value } : value;
  } catch (thrown) {
    throw new InterlaneError('INVALID_REQUEST', `question is not valid JSON: ${reasonOf(thrown)}\n  an example: ${example}`);
  }
}

function readQuestion<S extends z.ZodType>(schema: S, question: unknown, example: string): z.infer<S> {
  const read = schema.safeParse(question);
  if (read.success) return read.data;
  const lines = read.error.issues
    .slice(0, 10)
    .map((issue) => `  ${z.core.toDotPath(issue.path) || 'the question'}: ${lowerFirst(issue.message)}`);
  throw new InterlaneError('INVALID_REQUEST', `question does not fit:\n${lines.join('\n')}\n  an example: ${example}`);
}

function render(terminal: Terminal, { answer, facts, rules }: Explanation, configName: string): string {
  const marks = {
    ALLOW: paint(terminal, 'green', '✓'),
    BLOCK: paint(terminal, 'red', '✗'),
    REDACT: paint(terminal, 'yellow', '~'),
    NOTE: paint(terminal, 'gray', '·'),
  };
  const known = Object.entries(facts).flatMap(([name, value]): [string, string][] =>
    value === undefined ? [] : [[name, oneLine(String(value))]],
  );
  const asked = columns(rules.map(({ rule, why }) => [rule, oneLine(why)])).map(
    (line, index) => `  ${marks[rules[index]!.effect]}${line.slice(1)}`,
  );
  return [
    paint(terminal, 'bold', oneLine(answer)),
    '',
    ...columns(known),
    '',
    'rules, in the order they were asked:',
    ...asked,
    '',
    `decided by ${configName}`,
    '',
  ].join('\n');
}

const oneLine = (text: string) => visible(text.replaceAll('\n', '\\n'));
const lowerFirst = (text: string) => text.charAt(0).toLowerCase() + text.slice(1);
