// `interlane chat`: a session in the terminal, in a pipe, or as lines of JSON; keys and signals → the talk → what is seen of it.
import { createInterface } from 'node:readline';
import { follow } from '../client/follow.ts';
import { errorTable, reasonOf, type ErrorCode, type InterlaneError } from '../errors.ts';
import type { WireMessage } from '../protocol/result.ts';
import { completeCommand } from '../sessions/commands.ts';
import { Answers, sourceOf, summedUp, type Paper } from './answers.ts';
import { isSummary, wordsOf } from './messages.ts';
import { lineOf, Prompt } from './prompt.ts';
import { reach, reached, type ReachFlags } from './reach.ts';
import { sessionMeant } from './session-meant.ts';
import { isSaid } from './sessions.ts';
import { Talk, type TalkView } from './talk.ts';
import type { Terminal } from './terminal.ts';

export interface ChatFlags extends ReachFlags {
  /** How many messages of before are shown. */
  history: number;
}

/** Returns the exit status. In a pipe it is that of the last message without an answer or command that was refused, for nobody is there to see it. */
export async function chat(terminal: Terminal, session: string, flags: ChatFlags): Promise<number> {
  const key = await reached(terminal, flags, async (client) => {
    const found = await client.call('sessions.resolve', { key: await sessionMeant(terminal, client, session) });
    return found.ok ? found.key : session;
  });
  const leave = new AbortController();
  const prompt = terminal.stdin.isTTY && terminal.stdout.isTTY && !flags.json ? new Prompt(terminal) : undefined;
  const own = new Set<string>();
  const failed = { status: 0 };
  const view = flags.json ? asJson(terminal) : asText(prompt ?? pipe(terminal), own, prompt !== undefined);
  const trouble = Promise.withResolvers<never>();
  const talk = new Talk({ key, own, newId: () => terminal.newId(), view: noting(view, failed), failed: trouble.reject });

  let armed = false;
  const interrupt = (empty: boolean) => {
    if (armed || (!prompt && !talk.busy)) return leave.abort();
    armed = talk.busy || empty;
    if (talk.busy) talk.interrupt();
    else if (empty) prompt!.lines('Ctrl-C once more, or Ctrl-D, leaves', 'note');
  };
  const submit = (line: string) => {
    armed = false;
    if (line.trim() !== '') talk.submit(line, { afterAnswer: !prompt });
  };
  const undo = [terminal.onSignal('SIGINT', () => interrupt(true)), terminal.onSignal('SIGTERM', () => leave.abort())];

  /** On the first connection: what was said before, then the prompt; or the lines of the pipe to their end. */
  const begin = async () => {
    await talk.begin((past) => {
      if (!prompt) return;
      showPast(prompt, past, flags.history);
      const history = past.filter(isOwnWord).map((message) => wordsOf(message, false));
      prompt.open({ history: history.toReversed(), complete: completeCommand, line: submit, interrupt, closed: () => leave.abort() });
      talk.onBusy = (busy) => prompt.working(busy);
    });
    if (!prompt) {
      const input = createInterface({ input: terminal.stdin, crlfDelay: Number.POSITIVE_INFINITY });
      leave.signal.addEventListener('abort', () => input.close(), { once: true });
      for await (const line of input) submit(line);
      await talk.done();
      leave.abort();
    }
  };

  try {
    const following = follow({
      open: async (signal) => talk.hear(await reach(terminal, flags, signal, ['tool-events'])),
      key,
      signal: leave.signal,
      sleep: (ms, signal) => terminal.sleep(ms, signal),
      message: (event) => talk.message(event),
      changed: (event) => talk.changed(event),
      chat: (event) => talk.chat(event),
      connected: (cursor, client) => {
        if (talk.connected(cursor, client) === 1) begin().catch(trouble.reject);
      },
      lost: (error) => talk.lost(error),
    });
    await Promise.race([following, trouble.promise]);
  } finally {
    leave.abort();
    prompt?.close();
    for (const off of undo) off();
  }
  if (!prompt) return failed.status;
  const going = talk.busy ? ' The answer is still being made.' : '';
  terminal.stdout.write(lineOf(terminal, `nothing is lost.${going} Come back with: interlane chat ${session}`, 'note'));
  return 0;
}

const isOwnWord = ({ role, provenance }: WireMessage) => role === 'user' && provenance === undefined;

/** Lines of an old message that are shown. */
const mostPastLines = 12;

function showPast(paper: Paper, past: WireMessage[], limit: number): void {
  for (const message of limit === 0 ? [] : past.filter(isSaid).slice(-limit)) {
    const lines = wordsOf(message, false).split('\n');
    const text = [...lines.slice(0, mostPastLines), ...(lines.length > mostPastLines ? ['…'] : [])].join('\n');
    if (isSummary(message)) paper.lines(summedUp, 'note');
    else if (message.role === 'user') paper.lines(text, 'past', isOwnWord(message) ? '' : sourceOf(message));
    else if (text !== '') paper.lines(text, 'past');
  }
}

/** The exit status of what went wrong. */
function noting(view: TalkView, failed: { status: number }): TalkView {
  const statusOf = (code: string | undefined) =>
    errorTable[code !== undefined && Object.hasOwn(errorTable, code) ? (code as ErrorCode) : 'UNAVAILABLE'].exit;
  return {
    ...view,
    refused(error: InterlaneError) {
      failed.status = statusOf(error.code);
      view.refused(error);
    },
    ended(run) {
      if (run.status === 'error' && run.state !== 'aborted') failed.status = statusOf(run.errorCode);
      view.ended(run);
    },
    answered(command, answer) {
      if (!answer.ok) failed.status = statusOf(answer.code);
      view.answered(command, answer);
    },
  };
}

/** One event per line. */
function asJson(terminal: Terminal): TalkView {
  const say = (event: string, payload: object) => void terminal.stdout.write(`${JSON.stringify({ event, ...payload })}\n`);
  return {
    message: (event) => say('session.message', event),
    chat: (event) => say('chat', event),
    agent: (event) => say('agent', event),
    changed: (event) => say('sessions.changed', event),
    session() {},
    connected: (cursor) => say('connected', { cursor }),
    lost: (error) => say('lost', { reason: reasonOf(error) }),
    current() {},
    refused: ({ code, message }) => say('refused', { code, message }),
    ended: (run) => say('ended', run),
    answered: (command, answer) => say('command', { command, ...answer }),
    active: () => false,
  };
}

function asText(paper: Paper, own: ReadonlySet<string>, streams: boolean): TalkView {
  const answers = new Answers(paper, own, streams);
  let gone = false;
  return {
    message: (event) => answers.message(event),
    chat: (event) => answers.chat(event),
    agent: (event) => answers.agent(event),
    changed(event) {
      if (event.phase === undefined && event.reason === 'resync')
        paper.lines('some of what happened is no longer kept; see: interlane history', 'note');
    },
    session: ({ verboseLevel }) => answers.verbose(verboseLevel),
    connected() {
      if (gone) paper.lines('connected again', 'note');
      gone = false;
    },
    lost(error) {
      answers.lost();
      if (!gone) paper.lines(`${reasonOf(error)}; trying again`, 'note');
      gone = true;
    },
    current: () => answers.current(),
    refused: (error) => paper.lines(error.message, 'note'),
    ended({ state, error, terminalReply }) {
      if (state === 'aborted') paper.lines('stopped', 'note');
      else if (state !== 'ok') paper.lines(`no answer: ${error ?? state}`, 'note');
      else if (terminalReply === undefined && streams) paper.lines('it ended without a word', 'note');
    },
    answered: (_, { ok, text }) => paper.lines(text, streams ? 'past' : ok ? 'answer' : 'note'),
    active: () => answers.active.size > 0,
  };
}

/** Without a person: answers to standard output, what is told beside them to the other one. */
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
