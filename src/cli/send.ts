// `interlane send` and `interlane wait`: send a message and print its reply; wait again for a reply that took longer.
import { longestMessage } from '../protocol/operations/fields.ts';
import type { Client } from '../client/client.ts';
import { InterlaneError, isErrorCode } from '../errors.ts';
import type { WaitAnswer } from '../protocol/result.ts';
import type { ReachFlags } from './reach.ts';
import { sessionMeant } from './session-meant.ts';
import { answer, commandLine, readAll, span, visible, type Terminal } from './terminal.ts';

export interface WaitFlags extends Pick<ReachFlags, 'stateDir' | 'url'> {
  json?: boolean;
  /** Milliseconds. */
  timeout: number;
}

export interface SendFlags extends WaitFlags {
  wait: boolean;
  idempotencyKey?: string;
  create?: boolean;
}

/** Bytes of standard input: a message of the greatest length, with four bytes per character. */
const longestInput = 4_000_000;
const longestWaitMs = 86_400_000;

export async function send(terminal: Terminal, client: Client, session: string, words: string[], flags: SendFlags): Promise<void> {
  const message = await messageOf(terminal, words);
  const key = await sessionMeant(terminal, client, session, flags.create);
  const started = await client.call('sessions.send', { key, message, idempotencyKey: flags.idempotencyKey ?? terminal.newId() });
  const { runId, sessionKey } = started;
  if (flags.wait) return wait(terminal, client, runId, flags, sessionKey);
  answer(terminal, flags.json, started, () => `${runId}\n`);
  if (terminal.stdout.isTTY && !flags.json)
    terminal.stderr.write(`Run started. To print its reply: ${commandLine(`wait ${runId}`, flags)}\n`);
}

async function messageOf(terminal: Terminal, words: string[]): Promise<string> {
  const text = words.join(' ') === '-' ? (await readAll(terminal.stdin, longestInput))?.replace(/\r?\n$/, '') : words.join(' ');
  if (text === undefined || text.length > longestMessage)
    throw new InterlaneError('INVALID_REQUEST', `message is too long; the limit is ${longestMessage} characters`);
  if (text.trim() === '')
    throw new InterlaneError('USAGE', 'message is empty; write it after the session, or "-" to read it from standard input');
  return text;
}

/** Waits until the run has ended, the time is up, or the user presses Ctrl-C. The run continues in any case. */
export async function wait(terminal: Terminal, client: Client, runId: string, flags: WaitFlags, session = 'it'): Promise<void> {
  const again = `run ${runId} is still going; to wait again: ${commandLine(`wait ${runId}`, flags)}`;
  const stop = new AbortController();
  const undo = terminal.onSignal('SIGINT', () => stop.abort(new InterlaneError('BUSY', again)));
  const quiet = spin(terminal, `${session} is working`);
  let ended: WaitAnswer;
  try {
    ended = await client.call('agent.wait', { runId, timeoutMs: Math.min(flags.timeout, longestWaitMs) }, { signal: stop.signal });
  } catch (thrown) {
    const lost = thrown instanceof InterlaneError && thrown.code === 'UNAVAILABLE';
    throw lost ? new InterlaneError('UNAVAILABLE', `${thrown.message}; ${again}`) : thrown;
  } finally {
    quiet();
    undo();
  }
  if (flags.json) answer(terminal, true, ended, () => '');
  if (ended.status === 'timeout') throw new InterlaneError('BUSY', `no reply after ${span(flags.timeout)}; ${again}`);
  if (ended.status === 'error') throw failure(ended);
  const reply = ended.terminalReply?.text ?? '';
  if (!flags.json && reply !== '') terminal.stdout.write(`${visible(reply)}\n`);
  if (!flags.json && reply === '' && terminal.stdout.isTTY) terminal.stderr.write('(the run ended without an answer)\n');
}

function failure({ runId, state, error, errorCode }: WaitAnswer): InterlaneError {
  const code = errorCode !== undefined && isErrorCode(errorCode) ? errorCode : 'UNAVAILABLE';
  return new InterlaneError(code, `run ${runId} ended with ${state}${error === undefined ? '' : `: ${error}`}`);
}

const frames = ['⠋', '⠙', '⠹', '⠸', '⠼', '⠴', '⠦', '⠧', '⠇', '⠏'];
const frameMs = 80;

/** Shows a spinner on a terminal. Returns a function that ends it. */
function spin(terminal: Terminal, text: string): () => void {
  if (!terminal.stderr.isTTY) return () => {};
  const over = new AbortController();
  const turn = async () => {
    const began = terminal.now();
    for (let at = 0; ; at++) {
      terminal.stderr.write(`\r${frames[at % frames.length]!} ${visible(text)} (${span(terminal.now() - began)})`);
      await terminal.sleep(frameMs, over.signal);
    }
  };
  void turn().catch(() => {});
  return () => {
    over.abort();
    terminal.stderr.write('\r\u001b[K'); // the line is free again
  };
}
