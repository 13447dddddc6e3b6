// How a new input reaches a busy session: it waits, joins a queued turn, joins the running turn, or stops it.
import type { QueueMode } from '../protocol/run.ts';
import type { Provenance } from '../protocol/transcript.ts';

/** Inputs with the same merge key may become one turn: they have the same kind of source, the same principal and the same destination. */
export function mergeKey(provenance: Provenance, principal: string, destination: string): string {
  return JSON.stringify([provenance.kind, principal, destination]);
}

export interface QueuedInput {
  mode: QueueMode;
  mergeKey: string;
}

/** How many of the inputs queued behind a turn, in lane order, the turn may absorb. It stops at the first input that may not join. */
export function takeable(turn: QueuedInput, queued: QueuedInput[], mode: 'collect' | 'steer'): number {
  const stop = queued.findIndex((input) => input.mode !== mode || input.mergeKey !== turn.mergeKey);
  return stop < 0 ? queued.length : stop;
}
