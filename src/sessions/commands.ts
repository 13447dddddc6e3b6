// Chat commands: a text → a command of the table, or an ordinary message → its effect through a port → its answer.
import { nearest } from '../nearest.ts';
import { InterlaneError, type ErrorCode } from '../errors.ts';
import { type Params, operations } from '../protocol/operations/all.ts';
import { type WireSession } from '../protocol/result.ts';

/** The session that commands act on, over the wire or in the gateway. It throws refusals as `InterlaneError`. */
export interface CommandPort {
  /** Starts over with an empty transcript. Resolves with the new life of the session. */
  reset(): Promise<WireSession>;
  /** How a person reads an earlier life, if there is a way. */
  toRead?(life: number): string;
  /** `null` clears a setting. Resolves with the changed session. */
  patch(settings: Settings): Promise<WireSession>;
  status(): Promise<WireSession>;
  /** Resolves with false if there was nothing to stop. */
  stop(): Promise<boolean>;
}

type Settings = Pick<Params<'sessions.patch'>, 'model' | 'thinkingLevel' | 'verboseLevel' | 'sendPolicy'>;

export interface CommandAnswer {
  text: string;
  /** False if the command was refused; `code` says why. */
  ok: boolean;
  code?: ErrorCode;
  /** A message to send now. */
  say?: string;
}

interface Command {
  name: string;
  aliases: readonly string[];
  /** Its arguments. */
  usage: string;
  about: string;
  /** Owner commands need `operator.admin` on the wire. */
  who: 'anybody' | 'owner';
  /** Completions of its argument. */
  words: readonly string[];
  /** Its argument is one word, so text with more words is a message. */
  oneWord: boolean;
  run(port: CommandPort, argument: string): Promise<string | { text: string; say: string }>;
}

// The levels come from sessions.patch.
const patchable = operations['sessions.patch'].params.shape;
const levelsOf = (name: 'thinkingLevel' | 'verboseLevel'): readonly string[] => patchable[name].unwrap().unwrap().options;

const command = (
  name: string,
  about: string,
  run: Command['run'],
  { aliases = [], usage = '', who = 'anybody', words = [], oneWord = false }: Partial<Command> = {},
): Command => ({ name, about, run, aliases, usage, who, words, oneWord });

/** A command that shows a setting, sets it, or resets it to the config. */
function setting(
  name: 'thinkingLevel' | 'verboseLevel',
  noun: string,
  textOf: (session: WireSession) => string,
): Partial<Command> & Pick<Command, 'run'> {
  const words = [...levelsOf(name), 'default'];
  return {
    words,
    oneWord: true,
    usage: `[${words.join('|')}]`,
    async run(port, argument) {
      if (argument === '') return textOf(await port.status());
      const word = argument.toLowerCase();
      const value = patchable[name].safeParse(word === 'default' ? null : word);
      if (!value.success) throw unfit(noun, argument, words);
      return textOf(await port.patch({ [name]: value.data }));
    },
  };
}

const thinking = setting(
  'thinkingLevel',
  'thinking level',
  (session) => `${sentence('Thinking', session.thinkingLevel, session.thinkingLevelSource)}${note(session)}`,
);
const verbose = setting('verboseLevel', 'verbose level', ({ verboseLevel, verboseLevelSource }) =>
  sentence('Verbose', verboseLevel, verboseLevelSource),
);
/** Words for a send policy, and their values in a patch. */
const sending = { on: 'allow', off: 'deny', inherit: null } as const;

export const commands: readonly Command[] = [
  command(
    'new',
    'start over with an empty transcript; text after it becomes the first message',
    async (port, argument) => {
      const { life } = await port.reset();
      const read = port.toRead ? `; to read it: ${port.toRead(life - 1)}` : '.';
      const text = `Started a new session. The previous transcript was kept as life ${life - 1}${read}`;
      return argument === '' ? text : { text, say: argument };
    },
    { aliases: ['reset'], usage: '[message]', who: 'owner' },
  ),
  command(
    'status',
    'show the state of this session',
    async (port, argument) => alone('status', argument) ?? statusText(await port.status()),
  ),
  command(
    'model',
    'show or set the model of this session',
    async (port, argument) => {
      if (argument === '') return modelText(await port.status());
      const value = patchable.model.safeParse(argument === 'default' ? null : argument);
      if (!value.success) throw new InterlaneError('USAGE', 'model name is too long');
      return modelText(await port.patch({ model: value.data }));
    },
    { usage: '[name|default]', words: ['default'] },
  ),
  command('think', 'show or set the thinking level', thinking.run, { ...thinking, aliases: ['thinking'] }),
  command('verbose', 'what to show of tools: off (nothing), on (calls; the default), full (calls and results)', verbose.run, verbose),
  command(
    'send',
    'whether answers are delivered to a channel',
    async (port, argument) => {
      const words = Object.keys(sending);
      const word = argument.toLowerCase();
      if (word === '') return sendText(await port.status());
      if (!Object.hasOwn(sending, word)) throw unfit('send policy', argument, words);
      return sendText(await port.patch({ sendPolicy: sending[word as keyof typeof sending] }));
    },
    { usage: '[on|off|inherit]', words: Object.keys(sending), oneWord: true, who: 'owner' },
  ),
  command(
    'stop',
    'stop the current answer',
    async (port, argument) => alone('stop', argument) ?? ((await port.stop()) ? 'Stopped.' : 'Nothing to stop.'),
    { aliases: ['abort'] },
  ),
  command('help', 'list the commands', async () => helpText(), { aliases: ['commands'] }),
];

const byName = new Map(commands.flatMap((one) => [one.name, ...one.aliases].map((name) => [name, one])));

export type Read = { kind: 'message' } | { kind: 'command'; command: Command; argument: string } | { kind: 'unknown'; word: string };

/**
 * A command begins with "/" and a known word; "/etc/hosts is broken" and "/send off right now" are messages. An unknown word alone is
 * taken for a typo and not sent. A line that begins with a space is always a message.
 */
export function readCommand(text: string): Read {
  const found = /^\/([a-z][a-z0-9_-]*)(?:\s+([^]*))?$/i.exec(text.trimEnd());
  if (!found) return { kind: 'message' };
  const [, word, argument = ''] = found;
  const known = byName.get(word!.toLowerCase());
  if (known?.oneWord && /\s/.test(argument.trim())) return { kind: 'message' };
  if (known) return { kind: 'command', command: known, argument: argument.trim() };
  return argument === '' ? { kind: 'unknown', word: word! } : { kind: 'message' };
}

/** Throws only bugs. A refusal is an answer. */
export async function runCommand(
  read: Exclude<Read, { kind: 'message' }>,
  port: CommandPort,
  who: { owner: boolean },
): Promise<CommandAnswer> {
  if (read.kind === 'unknown') {
    const [near] = nearest(read.word, byName.keys());
    const hint = near === undefined ? '' : ` Did you mean /${near}?`;
    const text = `Unknown command /${read.word}.${hint} /help lists the commands; to send it as text, start the line with a space.`;
    return { ok: false, code: 'USAGE', text };
  }
  const { command, argument } = read;
  if (command.who === 'owner' && !who.owner) return { ok: false, code: 'MISSING_SCOPE', text: `/${command.name} is for owners only.` };
  try {
    const answer = await command.run(port, argument);
    return typeof answer === 'string' ? { ok: true, text: answer } : { ok: true, ...answer };
  } catch (thrown) {
    if (!(thrown instanceof InterlaneError)) throw thrown;
    return { ok: false, code: thrown.code, text: capital(/[.?!]$/.test(thrown.message) ? thrown.message : `${thrown.message}.`) };
  }
}

/** Completions of a line: commands, or the arguments of one. */
export function completeCommand(line: string): string[] {
  const [, word, partial] = /^\/(\S*)(?:\s+(\S*))?$/.exec(line) ?? [];
  if (word === undefined) return [];
  if (partial === undefined) return [...byName.keys()].filter((name) => name.startsWith(word.toLowerCase())).map((name) => `/${name}`);
  return (byName.get(word.toLowerCase())?.words ?? []).filter((one) => one.startsWith(partial)).map((one) => `/${word} ${one}`);
}

// Words ---------------------------------------------------------------------------------------------------------------

function helpText(): string {
  const line = ({ name, aliases, usage, about, who }: Command) => {
    const names = [name, ...aliases].map((one) => `/${one}`).join(', ');
    return `${names}${usage === '' ? '' : ` ${usage}`}: ${about}${who === 'owner' ? ' (owners only)' : ''}`;
  };
  return commands.map(line).join('\n');
}

function statusText(session: WireSession): string {
  const { key, sessionId, messageCount, totalTokens, contextTokens, usage } = session;
  const queued = session.queuedRuns === undefined ? '' : `, ${session.queuedRuns} queued`;
  const run = session.activeRunIds?.[0];
  const ended = session.status === undefined || session.status === 'done' ? '' : `; the last run: ${session.status}`;
  const doing = run === undefined ? `idle${queued}${ended}` : `working${queued} (run ${run})`;
  const channel = session.lastChannel === undefined ? '' : ` Channel: ${session.lastChannel}.`;
  const tokens =
    totalTokens === undefined ? '' : `, ${totalTokens}${contextTokens === undefined ? '' : ` of ${contextTokens}`} tokens used`;
  const cost = usage?.cost === undefined ? '' : `, $${usage.cost.toFixed(4)}`;
  return [
    `${key} is ${doing}.`,
    `${modelText(session)} ${sentence('Thinking', session.thinkingLevel, session.thinkingLevelSource)}${note(session)} ${sentence('Verbose', session.verboseLevel, session.verboseLevelSource)}`,
    `${sendText(session)}${channel} Level: ${session.taint ?? 'PUBLIC'}.`,
    `Messages: ${messageCount}${tokens}${cost}. Session ${sessionId}, since ${new Date(session.createdAt).toISOString().slice(0, 16).replace('T', ' ')} UTC.`,
  ].join('\n');
}

const modelText = ({ model, modelSource }: WireSession) =>
  model === undefined ? "Model: the agent's own." : sentence('Model', model, modelSource, 'from config or auto-detected');
const sendText = ({ sendPolicy }: WireSession) =>
  sendPolicy === undefined ? 'Delivery: per config.' : `Delivery: ${sendPolicy === 'allow' ? 'on' : 'off'} (set for this session).`;
const note = ({ thinkingNote }: WireSession) => (thinkingNote === undefined ? '' : ` (${thinkingNote})`);

function sentence(noun: string, value: string | undefined, source: 'user' | 'auto' | undefined, otherwise = 'from config'): string {
  return value === undefined ? `${noun}: default.` : `${noun}: ${value} (${source === 'user' ? 'set for this session' : otherwise}).`;
}

function alone(name: string, argument: string): undefined {
  if (argument !== '') throw new InterlaneError('USAGE', `/${name} takes no argument`);
}

function unfit(noun: string, given: string, words: readonly string[]): InterlaneError {
  const [near] = nearest(given, words);
  const hint = near === undefined ? '' : `; did you mean ${near}?`;
  return new InterlaneError('USAGE', `${noun} ${JSON.stringify(given.slice(0, 100))} is not one of ${words.join(', ')}${hint}`);
}

const capital = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);
