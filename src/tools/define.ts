// What a tool is: a name and words for a model, a closed schema, its effect, and a function of a caller it cannot choose.
import type { z } from 'zod';
import type { Engine } from '../engine/engine.ts';
import type { Turn } from '../engine/runner.ts';
import type { SendOrigin } from '../engine/send.ts';
import type { FeedEvent } from '../protocol/event.ts';
import type { Party, World } from '../rules/decide.ts';
import type { Store } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';

/** I7. Who calls and with what right, made by the gateway for each call; arguments never name the caller. */
export interface ToolContext {
  store: Store<FeedEvent>;
  engine: Engine;
  world: World;
  now: number;
  maxPingPongTurns: number;
  /** Whether somebody takes the turns of a guest's session. */
  online(sessionKey: string): boolean;
  /** What the call is made by: a run's step, or a caller from outside that is this session. */
  origin: SendOrigin;
  /** The turn that calls, if one does. */
  turn?: Turn | undefined;
  /** The same for the same call, also after a crash: what an outside effect is keyed by. */
  key: string;
  signal: AbortSignal;
  session: SessionRow;
  caller: Party;
}

/** A value goes to the model as JSON; `pending` means that the result will be written by whoever answers the wait. */
export type ToolOutcome = { value: unknown; isError?: boolean; taint?: number } | { pending: true };

export interface Tool {
  name: string;
  description: string;
  params: z.ZodType<Record<string, unknown>>;
  /** What a crash in the middle means: `pure` and `keyed` are done again, `once` is reported as unknown. */
  effect: 'pure' | 'keyed' | 'once';
  run(context: ToolContext, args: Record<string, unknown>): Promise<ToolOutcome>;
}

export function defineTool<P extends z.ZodType<Record<string, unknown>>>(tool: {
  name: string;
  description: string;
  params: P;
  effect: Tool['effect'];
  run(context: ToolContext, args: z.infer<P>): Promise<ToolOutcome>;
}): Tool {
  return tool;
}
