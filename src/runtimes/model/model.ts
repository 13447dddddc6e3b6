// The contract of a model: one step at a time. The text and the calls of a step are stored before they take effect.
import type { SessionSettings } from '../../engine/policy.ts';
import type { PromptMessage, ProviderOptions, Thought, Usage } from '../../engine/runner.ts';
import type { Cut } from '../../protocol/transcript.ts';
import type { RecapFocus, Tool } from '../../tools/define.ts';

export interface StepRequest {
  agentId: string;
  /** The run whose step it is, if it is one's. */
  runId?: string;
  sessionKey: string;
  prompt: PromptMessage[];
  /** The tools of this session. Every attempt reads them again, so this must not be an iterator. */
  tools: readonly Tool[];
  /** The settings of this session; the agent's settings are the defaults. */
  settings: SessionSettings;
}

export interface StepResult {
  text: string;
  calls: { providerId: string; tool: string; args: Record<string, unknown>; providerOptions?: ProviderOptions }[];
  usage: Usage;
  /** Its reasoning, to be sent back with its calls. */
  reasoning?: Thought[];
  /** Why the text is incomplete, if it is. */
  cut?: Cut;
}

/** Callbacks while a step runs. */
export interface StepLive {
  signal: AbortSignal;
  delta(text: string): void;
  /** Takes back the text of this step so far, because the step is tried again. */
  again(): void;
}

export interface Model {
  /** The most entries of the transcript in one prompt. */
  promptEntries: number;
  /** Its window in tokens; without it there is no limit. */
  window?(request: StepRequest): number;
  step(request: StepRequest, live: StepLive): Promise<StepResult>;
  /** Summarises a transcript that no longer fits. Absent for a model without a limit. */
  summarize?(request: StepRequest, live: StepLive): Promise<StepResult>;
  /** Summarises the transcript for a caller of the tool `summarize`. */
  recap(request: StepRequest, live: StepLive, focus: RecapFocus): Promise<StepResult>;
}
