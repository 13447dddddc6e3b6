// Inputs that no channel can make: any class, time or label.
import type { AcceptArgs } from '../../src/engine/accept.ts';

/** The fields of an input and those around it, side by side. */
export type AcceptMore = Partial<Omit<AcceptArgs, 'input'> & AcceptArgs['input']>;

export function acceptArgs(runId: string, more: AcceptMore): AcceptArgs {
  const { sessionKey = 'agent:main:main', open, deliveryContext, operator, idempotency, now = 0, ...input } = more;
  return {
    sessionKey,
    ...(open ? { open } : {}),
    ...(deliveryContext ? { deliveryContext } : {}),
    ...(operator ? { operator } : {}),
    ...(idempotency ? { idempotency } : {}),
    now,
    input: {
      runId,
      text: runId,
      provenance: { kind: 'user' },
      principal: 'operator',
      taint: 0,
      mode: 'followup',
      class: 'main',
      deliver: false,
      ...input,
    },
  };
}
