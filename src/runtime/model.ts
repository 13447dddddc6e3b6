// The contract of a model: one step at a time. What it said and wants to call is persisted before anything is done with it.
import type { PromptMessage } from '../engine/runner.ts';
import type { Tool } from '../tools/define.ts';

interface StepRequest {
  agentId: string;
  sessionKey: string;
  prompt: PromptMessage[];
  tools: Iterable<Tool>;
}

export interface StepSaid {
  text: string;
  calls: { providerId: string; tool: string; args: Record<string, unknown> }[];
  tokens: number;
}

export interface Model {
  step(request: StepRequest, live: { signal: AbortSignal; delta(text: string): void }): Promise<StepSaid>;
}
