// What a new input does to a session that is busy: wait its turn, join what is queued, join what is running, or stop it.
import type { QueueMode } from '../protocol/run.ts';
import type { Provenance } from '../protocol/transcript.ts';

/** Inputs with the same merge key may become one turn: the same kind of source, the same principal, the same way out. */
export function mergeKey(provenance: Provenance, principal: string, destination: string): string {
  return JSON.stringify([provenance.kind, principal, destination]);
}

export interface QueuedInput {
  mode: QueueMode;
  mergeKey: string;
}

/** How many of the inputs queued behind a turn, in lane order, it may take in. The first that may not be taken stops it. */
export function takeable(turn: QueuedInput, queued: QueuedInput[], mode: 'collect' | 'steer'): number {
  const stop = queued.findIndex((input) => input.mode !== mode || input.mergeKey !== turn.mergeKey);
  return stop < 0 ? queued.length : stop;
}
