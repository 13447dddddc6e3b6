// A gateway as a member of the store: it owns the runs it claims and the deliveries it is sending.
import * as calls from '../store/tables/tool-calls.ts';
import * as instances from '../store/tables/instances.ts';
import * as meta from '../store/tables/meta.ts';
import type { EngineCommand } from './feed.ts';

/** What acts outside may have acted after the backup was made, so a call that was planned in it counts as one with an unknown outcome. */
export const doubtRestoredCalls: EngineCommand<object, void> = {
  name: 'doubt restored calls',
  *body(t) {
    if (yield* meta.isRestored(t)) yield* calls.assumeStarted(t);
  },
};

export const joinStore: EngineCommand<{ bootId: string; name: string; pid: number; now: number }, number> = {
  name: 'join store',
  *body(t, member) {
    return yield* instances.join(t, member);
  },
};
