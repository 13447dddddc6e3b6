// `interlane tail`: messages live, from one session or from all; a restart of the gateway loses and repeats nothing.
import { follow } from '../client/follow.ts';
import { isSaid, textOf } from '../client/messages.ts';
import { reasonOf } from '../errors.ts';
import { toPeer } from '../protocol/compat/openclaw.ts';
import type { ChatEvent, SessionMessage, SessionsChanged } from '../protocol/wire-event.ts';
import { heading, messageLine } from './messages.ts';
import { reach, type ReachFlags } from './reach.ts';
import { sessionMeant } from './session-meant.ts';
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

/** A misspelt session fails now, with a suggestion. */
async function start(terminal: Terminal, session: string, flags: TailFlags): Promise<{ key: string; cursor: string | undefined }> {
  const client = await reach(terminal, flags);
  try {
    const found = await client.call('sessions.resolve', { key: await sessionMeant(terminal, client, session) });
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

/** One event per line. The change that goes with a message is left out. */
function asJson(terminal: Terminal): Show {
  const say = (event: string, payload: object) => terminal.stdout.write(`${JSON.stringify({ event, ...payload })}\n`);
  return {
    message: (event) => say('session.message', toPeer(event)),
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
      if (stream?.finish(message.entry.runId, message.role === 'assistant' ? textOf(message, tools) : undefined)) return;
      if (tools || isSaid(message))
        terminal.stdout.write(messageLine(terminal, message, { tools, ...(alone ? {} : { before: sessionKey }) }));
    },
    changed(event) {
      if (event.phase === 'end') {
        if (event.state !== 'ok') note(endOf(`${event.sessionKey}: `, event.runId, event.state, event.error));
      } else if (event.phase === undefined) {
        if (event.reason === 'resync') note('some events are no longer available; to read the messages: interlane history');
        else if (event.reason !== 'patch') note(`${event.sessionKey}: ${words[event.reason]}`);
      }
    },
    chat(event) {
      stream?.delta(event, terminal.now());
      // A follower of one session gets only its messages, and a failed run may leave none.
      if (!alone || (event.state !== 'error' && event.state !== 'aborted')) return;
      stream?.cut();
      note(endOf('', event.runId, event.state, event.state === 'error' ? event.errorMessage : undefined));
    },
    connected() {
      gone = false;
      connections++;
      if (connections > 1) note('connected again');
      else if (terminal.stdout.isTTY) note(`following ${alone ? 'the session' : 'all sessions'}; Ctrl-C stops`);
    },
    lost() {
      stream?.cut();
      if (!gone) note('Connection lost. Reconnecting…');
      gone = true;
    },
  };
}

const endOf = (where: string, runId: string, state: string, error: string | undefined) =>
  `${where}run ${runId} ended with ${state}${error === undefined || error === state ? '' : `: ${error}`}`;

const words = { create: 'opened', reset: 'started over', archive: 'archived', delete: 'deleted' } as const;

/** Streams the text of one run at a time. Its message completes the text and does not repeat it. */
class Stream {
  private readonly terminal: Terminal;
  private runId: string | undefined;
  private said = '';

  constructor(terminal: Terminal) {
    this.terminal = terminal;
  }

  delta(event: ChatEvent, now: number): void {
    if (event.state !== 'delta' || (this.runId !== undefined && this.runId !== event.runId)) return;
    if (this.runId === undefined) {
      if (event.deltaText === '') return;
      this.runId = event.runId;
      this.terminal.stdout.write(`${heading(this.terminal, { role: 'assistant', timestamp: now })}\n  `);
    }
    const { deltaText, replace } = event;
    if (!replace) return this.write(deltaText);
    // The text so far repeats what is on the screen, unless the model has started over.
    if (deltaText.startsWith(this.said)) return this.write(deltaText.slice(this.said.length));
    this.said = '';
    this.terminal.stdout.write('\n  ');
    this.write(deltaText);
  }

  /** Returns true if the message is now completely on the screen. */
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
