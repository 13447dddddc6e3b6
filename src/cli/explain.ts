// `interlane explain …`: a question as JSON → the rules' answer with the full trace, as text or JSON.
import { z } from 'zod';
import type { Config } from '../config/schema.ts';
import { InterlaneError, reasonOf } from '../errors.ts';
import { compileWorld } from '../rules/decide.ts';
import type { Explanation } from '../protocol/decision.ts';
import { explainAccess, explainKey, explainRoute, explainSend, explainTools, toolNamesOf } from '../rules/explain.ts';
import { compileRoutes } from '../rules/route.ts';
import { columns, oneLine, paint, readAll, type Terminal } from './terminal.ts';
import { topics, type TopicName } from './topics.ts';

type Question<N extends TopicName> = z.infer<(typeof topics)[N]['schema']>;

const answers: { [N in TopicName]: (config: Config, question: Question<N>) => Explanation } = {
  route: (config, origin) => explainRoute(compileRoutes(config, compileWorld(config).agents), origin),
  key: (config, question) => explainKey(compileWorld(config), question),
  send: (config, question) => explainSend(compileWorld(config), question),
  access: (config, question) => explainAccess(compileWorld(config), question),
  tools: (config, question) => {
    const world = compileWorld(config);
    return explainTools(world, question, toolNamesOf(world));
  },
};

interface Decided {
  explanation: Explanation;
  /** Where the rules come from. */
  config: string;
}

export interface Deciders {
  config(): Promise<{ config: Config; configName: string }>;
  /** Only a running gateway knows its sessions and the tools of outside servers. Returns undefined if there is none to ask. */
  gateway(question: Question<'tools'>): Promise<Decided | undefined>;
}

const largestQuestion = 1024 * 1024;

export async function explain(
  terminal: Terminal,
  name: TopicName,
  written: string | undefined,
  by: Deciders,
  json: boolean,
): Promise<void> {
  const { example, schema } = topics[name];
  const text = written ?? (await questionFromInput(terminal, name, example));
  const question = readQuestion(schema, parseQuestion(name, text, example), example);
  const decided =
    (name === 'tools' ? await by.gateway(question as Question<'tools'>) : undefined) ?? (await fromConfig(name, question, by));
  const { explanation, config } = decided;
  terminal.stdout.write(json ? `${JSON.stringify({ ...explanation, config }, null, 2)}\n` : render(terminal, explanation, config));
}

async function fromConfig(name: TopicName, question: unknown, by: Deciders): Promise<Decided> {
  const { config, configName } = await by.config();
  return { explanation: (answers[name] as (config: Config, question: unknown) => Explanation)(config, question), config: configName };
}

async function questionFromInput(terminal: Terminal, name: string, example: string): Promise<string> {
  if (terminal.stdin.isTTY)
    throw new InterlaneError('USAGE', `question is missing; write it as JSON, for example: interlane explain ${name} '${example}'`);
  const text = await readAll(terminal.stdin, largestQuestion);
  if (text === undefined) throw new InterlaneError('INVALID_REQUEST', `question is too large; the limit is ${largestQuestion} bytes`);
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
  throw new InterlaneError('INVALID_REQUEST', `question is not valid:\n${lines.join('\n')}\n  an example: ${example}`);
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
  const trace = columns(rules.map(({ rule, why }) => [rule, oneLine(why)])).map(
    (line, index) => `  ${marks[rules[index]!.effect]}${line.slice(1)}`,
  );
  return [
    paint(terminal, 'bold', oneLine(answer)),
    '',
    ...columns(known),
    '',
    'rules, in order:',
    ...trace,
    '',
    `decided by ${configName}`,
    '',
  ].join('\n');
}

const lowerFirst = (text: string) => text.charAt(0).toLowerCase() + text.slice(1);
