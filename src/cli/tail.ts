// `interlane tail`: what is said, as it is said, in one session or in all; over restarts of the gateway nothing is missed or doubled.
import { follow } from '../client/follow.ts';
import { reasonOf } from '../errors.ts';
import type { ChatEvent, SessionMessage, SessionsChanged } from '../protocol/wire-event.ts';
import { heading, messageLine, wordsOf } from './messages.ts';
import { reach, type ReachFlags } from './reach.ts';
import { isSaid } from './sessions.ts';
import { oneLine, paint, visible, type Terminal } from './terminal.ts';

export interface TailFlags extends ReachFlags {
  tools?: boolean;
  cursor?: string;
}

export async function tail(terminal: Terminal, session: string | undefined, flags: TailFlags): Promise<void> {
  const stop = new AbortController();
  const undo = (['SIGINT', 'SIGTERM'] as const).map((name) => terminal.onSignal(name, () => stop.abort()));
  const show = flags.json ? asJson(terminal) : asText(terminal, session !== undefined, flags.tools === true);
  try {
    const { key, cursor } = session === undefined ? { cursor: flags.cursor } : await start(terminal, session, flags);
    await follow({
      open: (signal) => reach(terminal, flags, signal),
      key,
      cursor,
      signal: stop.signal,
      sleep: (ms, signal) => terminal.sleep(ms, signal),
      ...show,
    });
  } finally {
    for (const off of undo) off();
  }
}

/** A misspelt session is told now, with what was probably meant; it is not waited for. */
async function start(terminal: Terminal, session: string, flags: TailFlags): Promise<{ key: string; cursor: string | undefined }> {
  const client = await reach(terminal, flags);
  try {
    const found = await client.call('sessions.resolve', { key: session });
    return { key: found.ok ? found.key : session, cursor: flags.cursor };
  } finally {
    client.close();
  }
}

interface Show {
  message(event: SessionMessage): void;
  changed(event: SessionsChanged): void;
  chat?(event: ChatEvent): void;
  connected(cursor: string): void;
  lost(error: unknown): void;
}

/** One event per line. A message is told once: the change that goes with it is left out. */
function asJson(terminal: Terminal): Show {
  const say = (event: string, payload: object) => terminal.stdout.write(`${JSON.stringify({ event, ...payload })}\n`);
  return {
    message: (event) => say('session.message', event),
    changed: (event) => event.phase !== 'message' && say('sessions.changed', event),
    connected: (cursor) => say('connected', { cursor }),
    lost: (error) => say('lost', { reason: reasonOf(error) }),
  };
}

function asText(terminal: Terminal, alone: boolean, tools: boolean): Show {
  const note = (text: string) => terminal.stderr.write(`${paint(terminal, 'gray', `(${oneLine(text)})`)}\n`);
  const stream = terminal.stdout.isTTY && alone ? new Stream(terminal) : undefined;
  let connections = 0;
  let gone = false;
  return {
    message({ sessionKey, message }) {
      if (stream?.finish(message.__openclaw.runId, message.role === 'assistant' ? wordsOf(message, tools) : undefined)) return;
      if (tools || isSaid(message))
        terminal.stdout.write(messageLine(terminal, message, { tools, ...(alone ? {} : { before: sessionKey }) }));
    },
    changed(event) {
      if (event.phase === 'end') {
        if (event.state !== 'ok') note(endOf(`${event.sessionKey}: `, event.runId, event.state, event.error));
      } else if (event.phase === undefined) {
        if (event.reason === 'resync') note('some of what happened is no longer kept; see: interlane history');
        else if (event.reason !== 'patch') note(`${event.sessionKey}: ${words[event.reason]}`);
      }
    },
    chat(event) {
      stream?.heard(event, terminal.now());
      // Who follows one session hears only its messages, and a run that fails may leave none.
      if (!alone || (event.state !== 'error' && event.state !== 'aborted')) return;
      stream?.cut();
      note(endOf('', event.runId, event.state, event.state === 'error' ? event.errorMessage : undefined));
    },
    connected() {
      gone = false;
      connections++;
      if (connections > 1) note('connected again');
      else if (terminal.stdout.isTTY) note(`following ${alone ? 'the session' : 'all sessions'}; Ctrl-C ends it`);
    },
    lost(error) {
      stream?.cut();
      if (!gone) note(`${reasonOf(error)}; trying again`);
      gone = true;
    },
  };
}

const endOf = (where: string, runId: string, state: string, error: string | undefined) =>
  `${where}run ${runId} ended with ${state}${error === undefined || error === state ? '' : `: ${error}`}`;

const words = { create: 'opened', reset: 'a new life begins', archive: 'archived', delete: 'deleted' } as const;

/** Text of one run at a time as it is made. What was streamed is completed, not repeated, when its message comes. */
class Stream {
  private readonly terminal: Terminal;
  private runId: string | undefined;
  private said = '';

  constructor(terminal: Terminal) {
    this.terminal = terminal;
  }

  heard(event: ChatEvent, now: number): void {
    if (event.state !== 'delta' || (this.runId !== undefined && this.runId !== event.runId)) return;
    if (this.runId === undefined) {
      this.runId = event.runId;
      this.terminal.stdout.write(`${heading(this.terminal, { role: 'assistant', timestamp: now })}\n  `);
    }
    this.write(event.deltaText);
  }

  /** True when the message is on the screen already, now to its end. */
  finish(runId: string | undefined, text: string | undefined): boolean {
    if (this.runId === undefined) return false;
    const whole = runId === this.runId && text?.startsWith(this.said) === true;
    if (whole) this.write(text.slice(this.said.length));
    this.cut();
    return whole;
  }

  cut(): void {
    if (this.runId === undefined) return;
    this.terminal.stdout.write('\n');
    this.runId = undefined;
    this.said = '';
  }

  private write(text: string): void {
    this.said += text;
    this.terminal.stdout.write(visible(text).replaceAll('\n', '\n  '));
  }
}
