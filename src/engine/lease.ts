// The lease of a run: only the gateway that claimed the run last may write for it.
import { InterlaneError } from '../errors.ts';
import type { Body } from '../store/contract.ts';
import type { RunRow, SessionRow } from '../store/rows.ts';
import * as runs from '../store/tables/runs.ts';
import type { Tx } from './feed.ts';

export interface Lease {
  runPk: number;
  epoch: number;
  lane: string;
}

export interface Claim extends Lease {
  run: RunRow;
  session: SessionRow;
  /** Whether runs waited behind it in its lane when it was claimed. */
  behind: boolean;
}

/** I3. Every write of a run calls this first. Throws LEASE_LOST if another gateway has claimed the run since. */
export function requireLease(t: Tx, lease: Lease): Body<runs.RunOfSession> {
  return leased(t, lease, runs.held);
}

/** I3. The same for the write that ends the run. */
export function requireLeaseToEnd(t: Tx, lease: Lease): Body<runs.RunOfSession & { loose: runs.LooseEnds }> {
  return leased(t, lease, runs.heldToEnd);
}

function* leased<Found>(
  t: Tx,
  { runPk, epoch, lane }: Lease,
  held: (t: Tx, runPk: number, epoch: number) => Body<Found | undefined>,
): Body<Found> {
  yield* t.lock(`lane:${lane}`);
  const found = yield* held(t, runPk, epoch);
  if (!found) throw new InterlaneError('LEASE_LOST', 'run is no longer leased by this gateway');
  return found;
}
