// The payloads of the websocket's events, as a client reads them. Fields without a value are left out.
import type { EventName } from './frame.ts';
import type { WireMessage, WireSession } from './result.ts';

/** A change of a session; a client resumes from `cursor` after a reconnect. */
interface Followed {
  sessionKey: string;
  agentId: string;
  sessionId: string;
  ts: number;
  cursor: string;
}

interface OfMessage {
  messageId: string;
  messageSeq: number;
  runId?: string;
}

export type SessionMessage = Followed & OfMessage & { message: WireMessage; usage?: { totalTokens: number } };

export type SessionsChanged =
  | (Followed & OfMessage & { phase: 'message'; session?: WireSession })
  | (Followed & { phase: 'end'; runId: string; state: string; error?: string; session?: WireSession })
  | (Followed & { phase?: never; reason: 'create' | 'patch' | 'reset' | 'archive' | 'delete'; session?: WireSession })
  /** The missed events are no longer kept: read the sessions again. */
  | { phase?: never; cursor?: never; sessionKey?: string; reason: 'resync'; ts: number };

interface OfRun {
  runId: string;
  sessionKey: string;
  agentId: string;
  seq: number;
}

/** A run in progress; these events are not stored. */
export type ChatEvent = OfRun &
  /**
   * `offset` is where the text begins in the text of the step, in UTF-16 units. With `replace`, `deltaText` is all of the step's text so
   * far: another attempt has begun, or the client came in the middle of the step.
   */
  (
    | { state: 'delta'; step: number; attempt: number; offset: number; deltaText: string; replace?: true }
    | { state: 'final' | 'aborted'; message?: WireMessage }
    | { state: 'error'; errorMessage: string }
  );

export type AgentEvent = OfRun & { stream: string; ts: number; data: Record<string, unknown> };

export interface EventPayloads extends Record<EventName, unknown> {
  'connect.challenge': { nonce: string; ts: number };
  tick: { ts: number };
  shutdown: { reason: string };
  chat: ChatEvent;
  agent: AgentEvent;
  'session.message': SessionMessage;
  'sessions.changed': SessionsChanged;
}
