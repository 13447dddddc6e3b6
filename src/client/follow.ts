// Events that survive a lost connection: subscribe → receive → lose → connect again from the last cursor; each event once, in order (I9).
import { InterlaneError, type ErrorCode } from '../errors.ts';
import type { ChatEvent, SessionMessage, SessionsChanged } from '../protocol/wire-event.ts';
import type { Client } from './client.ts';

export interface Follow {
  /** Connects; called again after each loss. */
  open(signal: AbortSignal): Promise<Client>;
  /** One session by its key, or all of them. */
  key?: string | undefined;
  /** Where to continue. Without it, events from now on. */
  cursor?: string | undefined;
  /** Ends following. */
  signal: AbortSignal;
  /** Resolves after the time, or rejects when the signal is aborted. */
  sleep(ms: number, signal: AbortSignal): Promise<void>;
  message(event: SessionMessage): void;
  changed?(event: SessionsChanged): void;
  /** Live text. It is lost with the connection; the message that it becomes is not. */
  chat?(event: ChatEvent): void;
  /** Called after each connection, with the cursor it continues from. */
  connected?(cursor: string, client: Client): void;
  lost?(error: unknown): void;
}

/** Milliseconds between attempts; doubled after each. */
const backoff = { first: 100, most: 10_000 } as const;
/** Refusals that a retry does not change. */
const final: ReadonlySet<ErrorCode> = new Set([
  'UNAUTHORIZED',
  'MISSING_SCOPE',
  'USAGE',
  'SESSION_KEY_INVALID',
  'SESSION_KEY_RESERVED',
  'INVALID_REQUEST',
]);

/** Returns when the signal is aborted. Throws if it can never connect or is not allowed to. */
export async function follow(options: Follow): Promise<void> {
  const { signal } = options;
  const place = new Place(options.cursor);
  let wait: number = backoff.first;
  let ever = false;
  while (!signal.aborted) {
    try {
      await once(options, place, () => {
        ever = true;
        wait = backoff.first;
      });
    } catch (thrown) {
      if (signal.aborted) return;
      if (!ever || (thrown instanceof InterlaneError && final.has(thrown.code))) throw thrown;
      options.lost?.(thrown);
    }
    await options.sleep(wait, signal).catch(() => {});
    wait = Math.min(wait * 2, backoff.most);
  }
}

/** One connection: subscribes, and throws the loss. */
async function once(options: Follow, place: Place, subscribed: () => void): Promise<never> {
  const { key, signal } = options;
  const client = await options.open(signal);
  const stop = () => client.close();
  signal.addEventListener('abort', stop, { once: true });
  const over = new AbortController();
  try {
    signal.throwIfAborted();
    client.on('session.message', (event) => {
      if (place.messageIsNew(event.cursor, key !== undefined)) options.message(event);
    });
    client.on('sessions.changed', (event) => {
      if (event.cursor !== undefined) place.at = event.cursor;
      options.changed?.(event);
    });
    if (options.chat) client.on('chat', options.chat);
    const from = place.at === undefined ? {} : { cursor: place.at };
    const answer =
      key === undefined
        ? await client.call('sessions.subscribe', from)
        : await client.call('sessions.messages.subscribe', { key, ...from });
    place.at ??= answer.cursor; // events may have come before the answer
    subscribed();
    options.connected?.(place.at, client);
    void endWhenSilent(client, options, over.signal);
    throw await client.closed;
  } finally {
    over.abort();
    signal.removeEventListener('abort', stop);
    client.close();
  }
}

/**
 * The cursor of the last event that was handled. For all sessions, a message is followed by `sessions.changed` with the same
 * cursor, which completes the position: a connection that was cut between the two gets both again, and this drops the message.
 */
class Place {
  at: string | undefined;
  private message: string | undefined;

  constructor(at: string | undefined) {
    this.at = at;
  }

  messageIsNew(cursor: string, alone: boolean): boolean {
    if (cursor === this.message) return false;
    this.message = cursor;
    if (alone) this.at = cursor;
    return true;
  }
}

/** Closes a connection without ticks: the gateway is gone, even if the network has not noticed. */
async function endWhenSilent(client: Client, { sleep }: Follow, signal: AbortSignal): Promise<void> {
  let alive = false;
  const undo = client.onAnything(() => (alive = true));
  try {
    for (;;) {
      alive = false;
      await sleep(client.hello.policy.tickIntervalMs * 2, signal);
      if (!alive) return client.close('the gateway is silent');
    }
  } catch {
    // the connection has ended
  } finally {
    undo();
  }
}
