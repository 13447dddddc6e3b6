// A gateway as a member of the store: it owns the runs it claims and the deliveries it is sending.
import * as instances from '../store/tables/instances.ts';
import type { EngineCommand } from './feed.ts';

export const joinStore: EngineCommand<{ bootId: string; name: string; pid: number; now: number }, number> = {
  name: 'join store',
  *body(t, member) {
    return yield* instances.join(t, member);
  },
};
