// What happened, in the order of the feed: each event follows its commit and carries its position.
import type { Level } from './labels.ts';
import type { RunClass, RunState } from './run.ts';
import type { TranscriptMessage } from './transcript.ts';

interface Happened {
  /** Position in the feed; a cursor is the last one seen. */
  pos: number;
  sessionId: string;
  sessionKey: string;
  agentId: string;
  /** The level from which the session may be known. */
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
