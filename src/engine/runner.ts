// The contract between the engine and whatever takes turns: a model loop, a script, an outside harness.
import type { CallRow } from '../store/rows.ts';
import type { TranscriptMessage } from '../protocol/transcript.ts';
import type { CallResult } from './end.ts';
import type { Lease, PlannedCall } from './runs.ts';

export interface PromptMessage extends TranscriptMessage {
  /** What the turn is told beside this message. */
  context?: string;
}

export interface PendingCall {
  step: number;
  idx: number;
  tool: string;
  args: Record<string, unknown>;
  effect: CallRow['effect'];
  state: CallRow['state'];
  /** The same for the same call, also after a crash. */
  key: string;
}

/** One turn of a session, held by this gateway. Every method is one transaction and refuses once the lease is lost. */
export interface Turn {
  runId: string;
  lease: Lease;
  sessionPk: number;
  sessionId: string;
  sessionKey: string;
  agentId: string;
  signal: AbortSignal;
  /** The end of the transcript, oldest first. */
  prompt(limit: number): Promise<PromptMessage[]>;
  /** Calls of the last persisted step that have no result yet. */
  pending(): Promise<PendingCall[]>;
  /** Text as it comes; nobody relies on it. */
  delta(text: string): void;
  step(step: { text: string; calls: PlannedCall[]; tokens: number }): Promise<PendingCall[]>;
  startCall(call: PendingCall): Promise<void>;
  finishCall(call: PendingCall, result: CallResult): Promise<void>;
  /** Takes in what was queued to steer this turn; answers how many inputs. */
  steer(): Promise<number>;
  /** Gives the slot back while calls wait. True: stop here, the turn is called again when they are answered. */
  park(): Promise<boolean>;
  end(end: { text: string; tokens: number }): Promise<void>;
}

/** Returns when the turn has ended or is parked. What it throws ends the run as an error. */
export interface Runner {
  run(turn: Turn): Promise<void>;
}
