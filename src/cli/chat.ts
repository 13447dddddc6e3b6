// `interlane chat`: a conversation in the terminal, in a pipe, or as lines of JSON.
import { createInterface } from 'node:readline';
import { Conversation, type ConversationEvent } from '../client/conversation.ts';
import type { Item } from '../client/items.ts';
import { errorTable, reasonOf, type ErrorCode } from '../errors.ts';
import { toPeer } from '../protocol/compat/openclaw.ts';
import { completeCommand, readCommand, runCommand, type CommandAnswer, type CommandPort, type Read } from '../sessions/commands.ts';
import { Printer, summaryNote, type Paper } from './paper.ts';
import { lineOf, Prompt } from './prompt.ts';
import { reach, reached, type ReachFlags } from './reach.ts';
import { sessionMeant } from './session-meant.ts';
import { commandLine, quoted, type Terminal } from './terminal.ts';

export interface ChatFlags extends ReachFlags {
  /** How many earlier messages to show. */
  history: number;
  create?: boolean;
}

/** What a person or a program sees of the chat. */
interface View {
  event(event: ConversationEvent): void;
  answered(command: string, answer: CommandAnswer): void;
}

/** Returns the exit status. In a pipe it is that of the last message without an answer or refused command, as there is no one to see it. */
export async function chat(terminal: Terminal, session: string, flags: ChatFlags): Promise<number> {
  const key = await reached(terminal, flags, async (client) => {
    const found = await client.call('sessions.resolve', { key: await sessionMeant(terminal, client, session, flags.create) });
    if (!found.ok) return session;
    const { session: row } = await client.call('sessions.describe', { key: found.key });
    if (row?.orphaned)
      terminal.stderr.write(lineOf(terminal, `agent "${found.agentId}" is not in the config, so no message here gets an answer`, 'note'));
    return found.key;
  });
  const conversation = new Conversation({
    key,
    open: (signal) => reach(terminal, flags, signal, ['tool-events']),
    newId: () => terminal.newId(),
    sleep: (ms, signal) => terminal.sleep(ms, signal),
  });
  const prompt = terminal.stdin.isTTY && terminal.stdout.isTTY && !flags.json ? new Prompt(terminal) : undefined;
  const view = flags.json ? asJson(terminal) : asText(prompt ?? pipe(terminal), conversation, flags.history, prompt !== undefined);
  const leave = new AbortController();
  let status = 0;
  let armed = false;

  const obey = async (read: Exclude<Read, { kind: 'message' }>) => {
    const answer = await runCommand(
      read,
      portOf(conversation, (life) => commandLine(`history ${quoted(session)} --life ${life}`, flags)),
      { owner: await conversation.isOwner() },
    );
    if (!answer.ok) status = statusOf(answer.code);
    view.answered(read.kind === 'command' ? read.command.name : read.word, answer);
    return answer.say === undefined ? undefined : conversation.send(answer.say);
  };
  const submit = (line: string) => {
    armed = false;
    if (line.trim() === '') return;
    const read = readCommand(line);
    if (read.kind === 'message') return conversation.say(line, { afterAnswer: !prompt });
    const stops = read.kind === 'command' && read.command.name === 'stop';
    conversation.enqueue(() => obey(read), { afterAnswer: !prompt && !stops });
  };
  const interrupt = (empty: boolean) => {
    if (armed || (!prompt && !conversation.busy)) return leave.abort();
    armed = conversation.busy || empty;
    if (conversation.busy) conversation.interrupt();
    else if (empty) prompt!.lines('press Ctrl-C again or Ctrl-D to leave', 'note');
  };

  const broken = Promise.withResolvers<never>();
  /** Once the past is known: the prompt, or the lines of the pipe to their end. */
  const begin = async () => {
    if (prompt) {
      const history = conversation.items.flatMap((item) => (item.kind === 'message' && isTyped(item) ? [item.text] : [])).toReversed();
      prompt.open({ history, complete: completeCommand, line: submit, interrupt, closed: () => leave.abort() });
      return;
    }
    const input = createInterface({ input: terminal.stdin, crlfDelay: Number.POSITIVE_INFINITY });
    leave.signal.addEventListener('abort', () => input.close(), { once: true });
    for await (const line of input) submit(line);
    await conversation.done();
    leave.abort();
  };
  conversation.subscribe((event) => {
    if (event.type === 'refused') status = statusOf(event.error.code);
    if (event.type === 'ended' && event.run.status === 'error' && event.run.state !== 'aborted') status = statusOf(event.run.errorCode);
    view.event(event);
    if (event.type === 'ready') begin().catch(broken.reject);
    prompt?.working(conversation.busy);
  });

  const undo = [terminal.onSignal('SIGINT', () => interrupt(true)), terminal.onSignal('SIGTERM', () => leave.abort())];
  try {
    await Promise.race([conversation.run(leave.signal), broken.promise]);
  } finally {
    leave.abort();
    prompt?.close();
    for (const off of undo) off();
  }
  if (!prompt) return status;
  const going = conversation.busy ? ' The answer is still being written.' : '';
  terminal.stdout.write(
    lineOf(terminal, `nothing is lost.${going} Come back with: ${commandLine(`chat ${quoted(session)}`, flags)}`, 'note'),
  );
  return 0;
}

const statusOf = (code: string | undefined) =>
  errorTable[code !== undefined && Object.hasOwn(errorTable, code) ? (code as ErrorCode) : 'UNAVAILABLE'].exit;

const portOf = (conversation: Conversation, toRead: (life: number) => string): CommandPort => ({
  reset: () => conversation.reset(),
  toRead,
  patch: (settings) => conversation.patch(settings),
  status: () => conversation.read(),
  stop: () => conversation.stop(),
});

const isTyped = (item: Item & { kind: 'message' }) => item.message.provenance === undefined;

/** The most lines of an old message to print. */
const mostPastLines = 12;

function showPast(paper: Paper, items: readonly Item[], limit: number): void {
  const past = items.filter(
    (item) => item.kind === 'message' || item.kind === 'summary' || (item.kind === 'answer' && item.state === 'kept'),
  );
  for (const item of limit === 0 ? [] : past.slice(-limit)) {
    if (item.kind === 'summary') paper.lines(summaryNote, 'note');
    if (item.kind !== 'message' && item.kind !== 'answer') continue;
    const lines = item.text.split('\n');
    const text = [...lines.slice(0, mostPastLines), ...(lines.length > mostPastLines ? ['…'] : [])].join('\n');
    if (item.kind === 'message') paper.lines(text, 'past', isTyped(item) ? '' : item.from);
    else if (text !== '') paper.lines(text, 'past');
  }
}

/** One event per line, as it is on the wire. */
function asJson(terminal: Terminal): View {
  const say = (event: string, payload: object) => void terminal.stdout.write(`${JSON.stringify({ event, ...payload })}\n`);
  return {
    event(one) {
      if (one.type === 'message') say('session.message', toPeer(one.event));
      else if (one.type === 'chat') say('chat', toPeer(one.event));
      else if (one.type === 'agent') say('agent', one.event);
      else if (one.type === 'changed') say('sessions.changed', one.event);
      else if (one.type === 'connected') say('connected', { cursor: one.cursor });
      else if (one.type === 'lost') say('lost', { reason: reasonOf(one.error) });
      else if (one.type === 'refused') say('refused', { code: one.error.code, message: one.error.message });
      else if (one.type === 'ended') say('ended', one.run);
    },
    answered: (command, answer) => say('command', { command, ...answer }),
  };
}

function asText(paper: Paper, conversation: Conversation, history: number, streams: boolean): View {
  const printer = new Printer(paper, streams);
  let gone = false;
  return {
    event(one) {
      if (one.type === 'ready') {
        if (streams) showPast(paper, conversation.items, history);
        printer.skip(conversation.items);
      }
      printer.print(conversation.items);
      if (one.type === 'connected' && gone) printer.note('connected again');
      if (one.type === 'connected') gone = false;
      if (one.type === 'lost' && !gone) printer.note('Connection lost. Reconnecting…');
      if (one.type === 'lost') gone = true;
      if (one.type === 'changed' && one.event.phase === undefined && one.event.reason === 'resync')
        printer.note('some events are no longer available; to read the messages: interlane history');
      if (one.type === 'refused') printer.note(one.error.message);
      if (one.type === 'ended' && one.run.state === 'ok' && one.run.terminalReply === undefined && streams)
        printer.note('the run ended without an answer');
    },
    answered: (_, { ok, text }) => printer.lines(text, streams ? 'past' : ok ? 'answer' : 'note'),
  };
}

/** Without a person: answers to standard output, everything else to standard error. */
function pipe(terminal: Terminal): Paper {
  return {
    piece() {},
    end() {},
    lines(text, kind, from) {
      const stream = kind === 'answer' ? terminal.stdout : terminal.stderr;
      stream.write(lineOf(terminal, text, kind, from));
    },
  };
}
