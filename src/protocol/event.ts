// Events in the order of the feed: each is published after its commit and has its position.
import type { Level } from './labels.ts';
import type { RunClass, RunState } from './run.ts';
import type { TranscriptMessage } from './transcript.ts';

interface Happened {
  /** Position in the feed; a cursor is the last position that a client has read. */
  pos: number;
  sessionId: string;
  sessionKey: string;
  agentId: string;
  /** The lowest level whose callers may learn that the session exists. */
  level: Level;
  at: number;
}

export type FeedEvent = Happened &
  (
    | { kind: 'entry'; message: TranscriptMessage }
    | { kind: 'run'; runId: string; class: RunClass; state: RunState; error?: string }
    | { kind: 'session'; change: 'created' | 'changed' | 'reset' | 'archived' | 'deleted' }
    | { kind: 'exchange'; exchangeId: string; state: string; turn: number; reason?: string }
    | { kind: 'delivery'; deliveryId: string; state: string; channel: string; recipient: string; error?: string }
  );
