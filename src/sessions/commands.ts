// Chat commands: a text → a command of the table, or a message like any other → what it does through a port → its answer in plain words.
import { nearest } from '../nearest.ts';
import { InterlaneError, type ErrorCode } from '../errors.ts';
import { type Params, operations } from '../protocol/operations/all.ts';
import { type WireSession } from '../protocol/result.ts';

/** What commands act on: one session, over the wire or in the gateway. Refusals are thrown as `InterlaneError`. */
export interface CommandPort {
  /** A new life with an empty transcript. */
  reset(): Promise<void>;
  /** `null` clears. Resolves with the session as it is then. */
  patch(settings: Settings): Promise<WireSession>;
  status(): Promise<WireSession>;
  /** Whether there was anything to stop. */
  stop(): Promise<boolean>;
}

type Settings = Pick<Params<'sessions.patch'>, 'model' | 'thinkingLevel' | 'verboseLevel' | 'sendPolicy'>;

export interface CommandAnswer {
  text: string;
  /** False when nothing was done; then there is a code. */
  ok: boolean;
  code?: ErrorCode;
  /** A message to be sent now. */
  say?: string;
}

interface Command {
  name: string;
  aliases: readonly string[];
  /** What may stand after it. */
  usage: string;
  about: string;
  /** Owners may what needs `operator.admin` on the wire. */
  who: 'anybody' | 'owner';
  /** The words that complete it. */
  words: readonly string[];
  run(port: CommandPort, argument: string): Promise<string | { text: string; say: string }>;
}

// The levels are those of sessions.patch, and of nothing else.
const patchable = operations['sessions.patch'].params.shape;
const levelsOf = (name: 'thinkingLevel' | 'verboseLevel'): readonly string[] => patchable[name].unwrap().unwrap().options;

const command = (
  name: string,
  about: string,
  run: Command['run'],
  { aliases = [], usage = '', who = 'anybody', words = [] }: Partial<Command> = {},
): Command => ({ name, about, run, aliases, usage, who, words });

/** A command that shows a setting, sets it, or gives it back to the config. */
function setting(
  name: 'thinkingLevel' | 'verboseLevel',
  noun: string,
  shown: (session: WireSession) => string,
): Partial<Command> & Pick<Command, 'run'> {
  const words = [...levelsOf(name), 'default'];
  return {
    words,
    usage: `[${words.join('|')}]`,
    async run(port, argument) {
      if (argument === '') return shown(await port.status());
      const word = argument.toLowerCase();
      const value = patchable[name].safeParse(word === 'default' ? null : word);
      if (!value.success) throw unfit(noun, argument, words);
      return shown(await port.patch({ [name]: value.data }));
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
/** What is written for a send policy, and what it is in a patch. */
const sending = { on: 'allow', off: 'deny', inherit: null } as const;

export const commands: readonly Command[] = [
  command(
    'new',
    'start over with an empty transcript; a message after it is the first one',
    async (port, argument) => {
      await port.reset();
      const text = 'A new life begins; what was said before is kept apart.';
      return argument === '' ? text : { text, say: argument };
    },
    { aliases: ['reset'], usage: '[message]', who: 'owner' },
  ),
  command(
    'status',
    'what is known of this session',
    async (port, argument) => alone('status', argument) ?? statusText(await port.status()),
  ),
  command(
    'model',
    'show or set what answers here',
    async (port, argument) => {
      if (argument === '') return modelText(await port.status());
      const value = patchable.model.safeParse(argument === 'default' ? null : argument);
      if (!value.success) throw new InterlaneError('USAGE', 'model name is too long; nothing was changed');
      return modelText(await port.patch({ model: value.data }));
    },
    { usage: '[name|default]', words: ['default'] },
  ),
  command('think', 'show or set how hard it thinks', thinking.run, { ...thinking, aliases: ['thinking'] }),
  command(
    'verbose',
    'how much the terminal tells of tools: off nothing, on (if not set) each call, full also its result',
    verbose.run,
    verbose,
  ),
  command(
    'send',
    'whether answers may leave for a channel',
    async (port, argument) => {
      const words = Object.keys(sending);
      const word = argument.toLowerCase();
      if (word === '') return sendText(await port.status());
      if (!Object.hasOwn(sending, word)) throw unfit('send policy', argument, words);
      return sendText(await port.patch({ sendPolicy: sending[word as keyof typeof sending] }));
    },
    { usage: '[on|off|inherit]', words: Object.keys(sending), who: 'owner' },
  ),
  command(
    'stop',
    'stop the answer that is being made',
    async (port, argument) => alone('stop', argument) ?? ((await port.stop()) ? 'Stopped.' : 'There is nothing to stop.'),
    { aliases: ['abort'] },
  ),
  command('help', 'these lines', async () => helpText(), { aliases: ['commands'] }),
];

const byName = new Map(commands.flatMap((one) => [one.name, ...one.aliases].map((name) => [name, one])));

export type Read = { kind: 'message' } | { kind: 'command'; command: Command; argument: string } | { kind: 'unknown'; word: string };

/**
 * Only what begins with "/" and a known word is a command; "/etc/hosts is broken" is a message. An unknown word that stands alone
 * is taken for a slip and not sent. Whoever means it as a message begins it with a blank.
 */
export function readCommand(text: string): Read {
  const found = /^\/([a-z][a-z0-9_-]*)(?:\s+([^]*))?$/i.exec(text.trimEnd());
  if (!found) return { kind: 'message' };
  const [, word, argument = ''] = found;
  const known = byName.get(word!.toLowerCase());
  if (known) return { kind: 'command', command: known, argument: argument.trim() };
  return argument === '' ? { kind: 'unknown', word: word! } : { kind: 'message' };
}

/** Never throws what a person can do something about: that is the answer. */
export async function runCommand(
  read: Exclude<Read, { kind: 'message' }>,
  port: CommandPort,
  who: { owner: boolean },
): Promise<CommandAnswer> {
  if (read.kind === 'unknown') {
    const [near] = nearest(read.word, byName.keys());
    const hint = near === undefined ? '' : ` did you mean /${near}?`;
    const text = `There is no /${read.word};${hint} /help lists the commands; with a blank before it, it is sent as it is.`;
    return { ok: false, code: 'USAGE', text };
  }
  const { command, argument } = read;
  if (command.who === 'owner' && !who.owner)
    return { ok: false, code: 'MISSING_SCOPE', text: `/${command.name} is for owners only; nothing was done.` };
  try {
    const answer = await command.run(port, argument);
    return typeof answer === 'string' ? { ok: true, text: answer } : { ok: true, ...answer };
  } catch (thrown) {
    if (!(thrown instanceof InterlaneError)) throw thrown;
    return { ok: false, code: thrown.code, text: capital(/[.?!]$/.test(thrown.message) ? thrown.message : `${thrown.message}.`) };
  }
}

/** What could stand where a person is writing: commands, or the words of one. */
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
  const doing = run === undefined ? `idle${queued}${ended}` : `at work${queued} (run ${run})`;
  const channel = session.lastChannel === undefined ? '' : ` Channel: ${session.lastChannel}.`;
  const tokens =
    totalTokens === undefined ? '' : `, ${totalTokens}${contextTokens === undefined ? '' : ` of ${contextTokens}`} tokens in use`;
  const cost = usage?.cost === undefined ? '' : `, $${usage.cost.toFixed(4)}`;
  return [
    `${key} is ${doing}.`,
    `${modelText(session)} ${sentence('Thinking', session.thinkingLevel, session.thinkingLevelSource)}${note(session)} ${sentence('Verbose', session.verboseLevel, session.verboseLevelSource)}`,
    `${sendText(session)}${channel} Level: ${session.taint ?? 'PUBLIC'}.`,
    `Messages: ${messageCount}${tokens}${cost}. Session ${sessionId}, since ${new Date(session.createdAt).toISOString().slice(0, 16).replace('T', ' ')} UTC.`,
  ].join('\n');
}

const modelText = ({ model, modelSource }: WireSession) =>
  model === undefined
    ? "Model: the agent's own."
    : sentence('Model', model, modelSource, 'chosen by the config, or found where it has none');
const sendText = ({ sendPolicy }: WireSession) =>
  sendPolicy === undefined
    ? 'Send: as the policy of the config says.'
    : `Send: ${sendPolicy === 'allow' ? 'on' : 'off'} (set for this session).`;
const note = ({ thinkingNote }: WireSession) => (thinkingNote === undefined ? '' : ` (${thinkingNote})`);

function sentence(noun: string, value: string | undefined, source: 'user' | 'auto' | undefined, otherwise = 'from the config'): string {
  return value === undefined ? `${noun}: default.` : `${noun}: ${value} (${source === 'user' ? 'set for this session' : otherwise}).`;
}

function alone(name: string, argument: string): undefined {
  if (argument !== '') throw new InterlaneError('USAGE', `/${name} stands alone; nothing was done`);
}

function unfit(noun: string, given: string, words: readonly string[]): InterlaneError {
  const [near] = nearest(given, words);
  const hint = near === undefined ? 'nothing was changed' : `did you mean ${near}?`;
  return new InterlaneError('USAGE', `${noun} ${JSON.stringify(given.slice(0, 100))} is not one of ${words.join(', ')}; ${hint}`);
}

const capital = (text: string) => text.charAt(0).toUpperCase() + text.slice(1);
