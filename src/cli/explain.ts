// `interlane explain …`: a question as JSON → the answer of the running gateway, or of the rules and the stored sessions, as text or JSON.
import { join } from 'node:path';
import { z } from 'zod';
import type { LoadedConfig } from '../config/load.ts';
import type { Paths } from '../config/paths.ts';
import { InterlaneError, reasonOf } from '../errors.ts';
import type { Explanation } from '../protocol/decision.ts';
import type { Params } from '../protocol/operations/all.ts';
import { agentNamed, keyContext } from '../rules/agents.ts';
import type { World } from '../rules/decide.ts';
import { toolNamesOf } from '../rules/explain.ts';
import { formatSessionKey, mainKey } from '../rules/session-key.ts';
import { answers, type Knowledge } from '../sessions/explain.ts';
import { snapshot } from '../store/sqlite/inspect.ts';
import type { SessionRow } from '../store/rows.ts';
import { databaseName } from '../store/sqlite/files.ts';
import { livesById } from '../store/tables/session-pages.ts';
import { current as currentLife } from '../store/tables/sessions.ts';
import { isThere } from '../there.ts';
import { setupHere } from './config-check.ts';
import { reachedIfRunning, unaskable } from './reach.ts';
import { sayAgent, sessionMeant } from './session-meant.ts';
import { columns, oneLine, paint, readAll, type Terminal } from './terminal.ts';
import { topics, type TopicName } from './topics.ts';

interface Answered {
  explanation: Explanation;
  /** Where the rules come from. */
  config: string;
  /** What the answer assumes, if no gateway gave it. */
  note?: string;
}

export interface ExplainFlags {
  json?: boolean;
  /** A config that the user names is asked about, not the gateway that runs on another. */
  named: boolean;
}

const largestQuestion = 1024 * 1024;

export async function explain(
  terminal: Terminal,
  name: TopicName,
  written: string | undefined,
  open: () => Promise<{ paths: Paths; loaded: LoadedConfig }>,
  stateDir: string,
  flags: ExplainFlags,
): Promise<void> {
  const { example, schema } = topics[name];
  const text = written ?? (await questionFromInput(terminal, name, example));
  const question = readQuestion(schema, parseQuestion(name, text, example), example);
  const answered =
    (flags.named ? undefined : await fromGateway(terminal, name, question, stateDir)) ??
    (await fromConfig(terminal, name, question, open, flags));
  const { explanation, ...source } = answered;
  terminal.stdout.write(flags.json ? `${JSON.stringify({ ...explanation, ...source }, null, 2)}\n` : render(terminal, answered));
}

async function fromGateway(terminal: Terminal, name: TopicName, question: unknown, stateDir: string): Promise<Answered | undefined> {
  const explanation = await reachedIfRunning(terminal, stateDir, async (client) => {
    const ask = (asked: unknown) => client.call(`explain.${name}`, asked as Params<'explain.route'>);
    const said = await ask(question);
    const meant = isBareKey(name, question) ? await sessionMeant(terminal, client, question.key) : undefined;
    return meant === undefined || meant === said.facts['sessionKey'] ? said : ask({ key: meant });
  });
  return explanation && { explanation, config: 'the running gateway' };
}

/** The same functions as in the gateway, on the config and, if they can be read, the stored sessions. */
async function fromConfig(
  terminal: Terminal,
  name: TopicName,
  question: unknown,
  open: () => Promise<{ paths: Paths; loaded: LoadedConfig }>,
  { named }: ExplainFlags,
): Promise<Answered> {
  const { paths, loaded } = await open();
  const { world, routes } = await setupHere(terminal, paths, loaded);
  const stored = openStored(paths.stateDir);
  const known: Knowledge = { world, routes, tools: toolNamesOf(world), decided: (decision) => decision() };
  if (stored.read) known.session = (key) => Promise.resolve(stored.read!(key));
  try {
    const asked = isBareKey(name, question) ? { key: keyOf(terminal, world, question.key, stored) } : question;
    const explanation = await (answers[name] as (question: unknown, known: Knowledge) => Promise<Explanation>)(asked, known);
    const unread = unaskable(paths.stateDir);
    const none = unread === undefined ? `no gateway runs on ${paths.stateDir}` : `no gateway was asked: ${unread}`;
    const why = named ? 'the running gateway was not asked, because a config is named' : none;
    return { explanation, config: paths.configFile ?? 'the built-in defaults', note: `${why}; ${stored.says}` };
  } finally {
    stored.close();
  }
}

/** A key alone is what a person would write after a command, so it means the same. */
const isBareKey = (name: TopicName, question: unknown): question is { key: string } =>
  name === 'key' && (question as Params<'explain.key'>).agentId === undefined;

/** What `sessionMeant` says of a running gateway. */
function keyOf(terminal: Terminal, { agents }: World, name: string, stored: Stored): string {
  const agent = agentNamed([...agents.byId.keys()], agents.mainKey, name);
  if (agent === undefined) return stored.byId?.(name)?.key ?? name;
  const main = formatSessionKey(mainKey(keyContext(agents, agent)));
  sayAgent(terminal, agent, main);
  return main;
}

interface Stored {
  read?: (key: string) => SessionRow | undefined;
  byId?: (id: string) => SessionRow | undefined;
  says: string;
  close(): void;
}

function openStored(stateDir: string): Stored {
  const assumed = 'sessions are assumed to be as the question says';
  try {
    if (!isThere(join(stateDir, databaseName))) return { says: `nothing is stored yet, so ${assumed}`, close: () => {} };
    const { read, close } = snapshot(stateDir);
    const byId = (id: string) => read((t) => livesById(t, id)).find((row) => row.current === 1);
    return { read: (key) => read((t) => currentLife(t, key)), byId, says: 'the answer is from the config and the stored sessions', close };
  } catch (thrown) {
    return { says: `the stored sessions cannot be read (${reasonOf(thrown)}), so ${assumed}`, close: () => {} };
  }
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

function render(terminal: Terminal, { explanation: { answer, facts, rules }, config, note }: Answered): string {
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
    `decided by ${config}`,
    ...(note === undefined ? [] : [note]),
    '',
  ].join('\n');
}

const lowerFirst = (text: string) => text.charAt(0).toLowerCase() + text.slice(1);
