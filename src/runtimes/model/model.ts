// The contract of a model: one step at a time. What it said and wants to call is persisted before anything is done with it.
import type { SessionSettings } from '../../engine/policy.ts';
import type { PromptMessage, ProviderOptions, Thought, Usage } from '../../engine/runner.ts';
import type { Cut } from '../../protocol/transcript.ts';
import type { RecapFocus, Tool } from '../../tools/define.ts';

export interface StepRequest {
  agentId: string;
  sessionKey: string;
  prompt: PromptMessage[];
  /** What this session gets. Read again by every attempt, so it must not be an iterator. */
  tools: readonly Tool[];
  /** What this session is set to; without it the agent's settings hold. */
  settings: SessionSettings;
}

export interface StepSaid {
  text: string;
  calls: { providerId: string; tool: string; args: Record<string, unknown>; providerOptions?: ProviderOptions }[];
  usage: Usage;
  /** What it thought, to be given back to it with its calls. */
  reasoning?: Thought[];
  /** Why it ends before its end, if it does. */
  cut?: Cut;
}

/** What a step passes on while it lasts. */
export interface StepLive {
  signal: AbortSignal;
  delta(text: string): void;
  /** What was said in this step so far does not count: it is tried again. */
  again(): void;
}

export interface Model {
  /** How many entries of the transcript it wants at most. */
  promptEntries: number;
  /** Tokens that fit; unlimited without it. */
  window?(request: StepRequest): number;
  step(request: StepRequest, live: StepLive): Promise<StepSaid>;
  /** The transcript in a few words, when it no longer fits. Absent for a model that never fills up. */
  summarize?(request: StepRequest, live: StepLive): Promise<StepSaid>;
  /** The transcript in a few words, for whoever asked. */
  recap(request: StepRequest, live: StepLive, focus: RecapFocus): Promise<StepSaid>;
}
