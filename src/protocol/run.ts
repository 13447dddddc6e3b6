// A run as everyone sees it: one turn of a session, from an accepted input to one end.
import { z } from 'zod';

export const runStates = ['queued', 'running', 'waiting', 'ok', 'error', 'timeout', 'aborted'] as const;
export type RunState = (typeof runStates)[number];
export type RunOutcome = Exclude<RunState, 'queued' | 'running' | 'waiting'>;

export const runClasses = ['main', 'nested', 'subagent', 'cron'] as const;
export type RunClass = (typeof runClasses)[number];

export const queueModes = ['followup', 'collect', 'steer', 'interrupt'] as const;
export type QueueMode = (typeof queueModes)[number];

/** What real models read, wrote and cost. */
export const UsageView = z.object({
  inputTokens: z.int(),
  outputTokens: z.int(),
  /** In dollars, where the price is known. */
  cost: z.number().exactOptional(),
});
export type UsageView = z.infer<typeof UsageView>;

export interface RunView {
  runId: string;
  sessionKey: string;
  sessionId: string;
  state: RunState;
  class: RunClass;
  reply?: string;
  error?: string;
  errorCode?: string;
  queuedAt: number;
  startedAt?: number;
  endedAt?: number;
  /** The model that answered last. */
  model?: string;
  usage?: UsageView;
}

export function isTerminal(state: RunState): state is RunOutcome {
  return state === 'ok' || state === 'error' || state === 'timeout' || state === 'aborted';
}
