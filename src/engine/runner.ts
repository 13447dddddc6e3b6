// The contract between the engine and its runners: a model loop, a script, an outside harness.
import type { CallRow, SessionRow } from '../store/rows.ts';
import type { Cut, TranscriptMessage, TurnContext } from '../protocol/transcript.ts';
import type { Destination } from '../protocol/session.ts';
import type { SessionSettings } from './policy.ts';
import type { Lease } from './lease.ts';
import type { CallResult, ProviderOptions, Step, Thought, Usage } from './step.ts';

export type { ProviderOptions, Thought, Usage } from './step.ts';

/** The model that answers in a session: set on the session by a user, or chosen by the config and discovery. */
export interface ModelView {
  model: string;
  modelSource: 'user' | 'auto';
  /** The model's window. */
  contextTokens?: number;
  thinkingLevel?: string;
  thinkingLevelSource?: 'user' | 'auto';
  /** What the provider does with a level that it does not support. */
  thinkingNote?: string;
}

export interface PromptMessage extends TranscriptMessage {
  /** How a message between sessions came about; words in older rows. */
  context?: TurnContext | string;
  reasoning?: Thought[];
  /** The provider's options of each call, in call order. */
  callOptions?: (ProviderOptions | null)[];
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

/** One turn of a session, leased by this gateway. Every method is one transaction and throws once the lease is lost. */
export interface Turn {
  runId: string;
  lease: Lease;
  sessionPk: number;
  sessionId: string;
  sessionKey: string;
  agentId: string;
  /** Where its answer goes, if not where the session speaks. */
  destination: Destination | undefined;
  /** The session's settings when the turn began. */
  settings: SessionSettings;
  /** Tokens in use when the turn began. */
  totalTokens: number;
  /** The number of stored steps of the run, including those before it was parked or its gateway died. */
  readonly steps: number;
  signal: AbortSignal;
  /** The session as it is now, its settings, and the end of its transcript, oldest first. */
  look(limit: number): Promise<{ session: SessionRow; settings: SessionSettings; prompt: PromptMessage[] }>;
  /** Calls of the last persisted step that have no result yet. */
  pending(): Promise<PendingCall[]>;
  /** Streams text while the model writes it. Nothing stores it. */
  delta(text: string): void;
  /** Takes back the text since the last step, because the step is tried again. */
  retract(): void;
  step(step: Step): Promise<PendingCall[]>;
  /** Stores a step that was carried out elsewhere, with the results of its calls. */
  record(step: Step, results: CallResult[]): Promise<void>;
  /** Replaces everything up to and including a seq by a summary in later prompts; nothing is deleted. */
  compact(summary: { text: string; through: number; usage: Usage }): Promise<void>;
  startCall(call: PendingCall): Promise<void>;
  finishCall(call: PendingCall, result: CallResult): Promise<void>;
  /** Absorbs inputs that were queued to steer this turn. Returns how many. */
  steer(): Promise<number>;
  /** Gives up the slot while calls wait. If true, return `parked`; the runner is called again when they have results. */
  park(): Promise<boolean>;
  /** Gives up the slot until a guest has answered this turn. If false, the turn is being stopped, so end it. */
  offer(): Promise<boolean>;
  end(end: { text: string; usage: Usage; cut?: Cut | undefined }): Promise<void>;
}

/** Runs a turn until it has ended or is parked. If it throws, the run ends with an error. */
export interface Runner {
  run(turn: Turn): Promise<'ended' | 'parked'>;
}
