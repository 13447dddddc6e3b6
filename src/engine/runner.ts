// The contract between the engine and whatever takes turns: a model loop, a script, an outside harness.
import type { CallRow } from '../store/rows.ts';
import type { Cut, TranscriptMessage } from '../protocol/transcript.ts';
import type { CallResult } from './end.ts';
import type { SessionSettings } from './policy.ts';
import type { Lease, PlannedCall } from './runs.ts';

/** What one step cost. Without a model's name it is a guess of the scripted one. */
export interface Usage {
  model?: string;
  /** Tokens read; all of the prompt. */
  input: number;
  output: number;
  /** How many of those read were cached. */
  cached?: number;
  /** Millionths of a dollar, where the price is known. */
  costMicros?: number;
}

/** What a provider wants to have back with its words; nobody else reads it. */
export type ProviderOptions = Record<string, Record<string, JsonValue>>;

/** A model's reasoning, kept to be given back to it; nobody else reads it. */
export interface Thought {
  type: 'reasoning';
  text: string;
  /** Whose model thought it; another has no use for it. */
  provider: string;
  providerOptions?: ProviderOptions;
}
type JsonValue = null | string | number | boolean | JsonValue[] | { [name: string]: JsonValue | undefined };

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
  /** What the turn is told beside this message. */
  context?: string;
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
  /** Tokens in use when the turn began. */
  totalTokens: number;
  /** Steps of the run that are kept, also those before it was parked or its gateway died. */
  readonly steps: number;
  signal: AbortSignal;
  /** The end of the transcript, oldest first. */
  prompt(limit: number): Promise<PromptMessage[]>;
  /** Calls of the last persisted step that have no result yet. */
  pending(): Promise<PendingCall[]>;
  /** Text as it comes; nobody relies on it. */
  delta(text: string): void;
  /** What was said since the last step does not count: it is tried again. */
  retract(): void;
  /** What the session is set to, now. */
  settings(): Promise<SessionSettings>;
  step(step: {
    text: string;
    calls: PlannedCall[];
    usage: Usage;
    reasoning?: Thought[] | undefined;
    cut?: Cut | undefined;
  }): Promise<PendingCall[]>;
  /** Puts a summary in the place of everything up to and with a seq; nothing is deleted. */
  compact(summary: { text: string; through: number; usage: Usage }): Promise<void>;
  startCall(call: PendingCall): Promise<void>;
  finishCall(call: PendingCall, result: CallResult): Promise<void>;
  /** Takes in what was queued to steer this turn; answers how many inputs. */
  steer(): Promise<number>;
  /** Gives the slot back while calls wait. True: stop here, the turn is called again when they are answered. */
  park(): Promise<boolean>;
  /** Gives the slot back until somebody outside has answered this turn. False: it is being stopped, so end it. */
  offer(): Promise<boolean>;
  end(end: { text: string; usage: Usage; cut?: Cut | undefined }): Promise<void>;
}

/** Returns when the turn has ended or is parked. What it throws ends the run as an error. */
export interface Runner {
  run(turn: Turn): Promise<void>;
}
