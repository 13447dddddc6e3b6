// The contract between the engine and whatever takes turns: a model loop, a script, an outside harness.
import type { CallRow, SessionRow } from '../store/rows.ts';
import type { Cut, TranscriptMessage, TurnContext } from '../protocol/transcript.ts';
import type { SessionSettings } from './policy.ts';
import type { Lease } from './lease.ts';
import type { CallResult, ProviderOptions, Step, Thought, Usage } from './step.ts';

export type { ProviderOptions, Thought, Usage } from './step.ts';

/** What a session is answered by: set on the session by a user, or chosen by the config and what was found. */
export interface ModelView {
  model: string;
  modelSource: 'user' | 'auto';
  /** The model's window. */
  contextTokens?: number;
  thinkingLevel?: string;
  thinkingLevelSource?: 'user' | 'auto';
  /** What the provider makes of a level that it does not have. */
  thinkingNote?: string;
}

export interface PromptMessage extends TranscriptMessage {
  /** How a message between sessions came about; words in older rows. */
  context?: TurnContext | string;
  reasoning?: Thought[];
  /** What the provider gave along with each call, in their order. */
  callOptions?: (ProviderOptions | null)[];
  /** Stands for everything before it. */
  summary?: true;
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
  /** What the session was set to when the turn began. */
  settings: SessionSettings;
  /** Tokens in use when the turn began. */
  totalTokens: number;
  /** Steps of the run that are kept, also those before it was parked or its gateway died. */
  readonly steps: number;
  signal: AbortSignal;
  /** The session as it is now, what it is set to, and the end of its transcript, oldest first. */
  look(limit: number): Promise<{ session: SessionRow; settings: SessionSettings; prompt: PromptMessage[] }>;
  /** Calls of the last persisted step that have no result yet. */
  pending(): Promise<PendingCall[]>;
  /** Text as it comes; nobody relies on it. */
  delta(text: string): void;
  /** What was said since the last step does not count: it is tried again. */
  retract(): void;
  step(step: Step): Promise<PendingCall[]>;
  /** A step that was carried out elsewhere: it and the results of its calls are stored, and nothing is left to do. */
  record(step: Step, results: CallResult[]): Promise<void>;
  /** Puts a summary in the place of everything up to and with a seq; nothing is deleted. */
  compact(summary: { text: string; through: number; usage: Usage }): Promise<void>;
  startCall(call: PendingCall): Promise<void>;
  finishCall(call: PendingCall, result: CallResult): Promise<void>;
  /** Takes in what was queued to steer this turn; answers how many inputs. */
  steer(): Promise<number>;
  /** Gives the slot back while calls wait. True: return `parked`; the turn is called again when they are answered. */
  park(): Promise<boolean>;
  /** Gives the slot back until a guest has answered this turn. False: the turn is being stopped, so end it. */
  offer(): Promise<boolean>;
  end(end: { text: string; usage: Usage; cut?: Cut | undefined }): Promise<void>;
}

/** Takes a turn until it has ended or is parked. What it throws ends the run as an error. */
export interface Runner {
  run(turn: Turn): Promise<'ended' | 'parked'>;
}
