// The lease of a run: the gateway that claimed it last may write for it, and nobody else.
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
  /** Runs that waited behind it in its lane when it was claimed; 0 or more. */
  behind: number;
}

/** I3. Every write of a run passes here first; a stale holder's is refused. */
export function* held(t: Tx, { runPk, epoch, lane }: Lease): Body<{ run: RunRow; session: SessionRow }> {
  yield* t.lock(`lane:${lane}`);
  const found = yield* runs.held(t, runPk, epoch);
  if (!found) throw new InterlaneError('LEASE_LOST', 'run is no longer held by this gateway');
  return found;
}
