// Runs for viewers: pages, the active run of a session, and the counts of open work.
import { levelName, levelRank } from '../levels.ts';
import { withoutGaps } from '../gaps.ts';
import type { Level } from '../protocol/labels.ts';
import type { WireRun } from '../protocol/result.ts';
import { type RunState } from '../protocol/run.ts';
import { canSee, ceilingOf, type Fact } from '../rules/viewer.ts';
import type { ReadQuery } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import { byId } from '../store/tables/runs.ts';
import { activeRunId, openRunCounts, runsBefore, sessionOfRun, type RunOfSession } from '../store/tables/run-pages.ts';
import { openCounts } from '../store/tables/deliveries.ts';
import { usageOf } from '../store/views.ts';
import { currentLevel } from './list.ts';
import { howManyFit, pageBytes, textBound } from './page-bytes.ts';
import type { Look } from './pages.ts';

/** A list looks at no more rows that the viewer may know and then gives a cursor. Hidden rows do not count, and end no page. */
const mostScanned = 5_000;
const pageRows = 200;

export interface RunsWish {
  sessionPk?: number | undefined;
  states?: RunState[] | undefined;
  before?: number | undefined;
  limit: number;
}

export const runsPage = ({ world, viewer }: Look): ReadQuery<RunsWish, { runs: WireRun[]; next: number | undefined }> => ({
  name: 'runs page',
  rows: ({ states, limit }) => limit + (states === undefined ? 0 : mostScanned),
  *body(t, { sessionPk, states, before: start = Number.MAX_SAFE_INTEGER, limit }) {
    const runs: WireRun[] = [];
    const pks: number[] = [];
    const done = (next: number | undefined) => {
      const fit = howManyFit(runs, pageBytes, runBound);
      return fit === runs.length ? { runs, next } : { runs: runs.slice(0, fit), next: pks[fit - 1] };
    };
    let before = start;
    for (let scanned = 0; scanned < mostScanned;) {
      const asked = scanned === 0 && states === undefined ? Math.min(pageRows, limit + 1) : pageRows;
      const page = yield* runsBefore(t, before, asked, { sessionPk, level: levelRank(ceilingOf(viewer)) });
      scanned += page.length;
      for (const row of page) {
        before = row.pk;
        const { session_key: key, session_agent: agent, session_parent: parent_key, session_level: level } = row;
        if (!canSee(world, viewer, factOf({ key, agent, parent_key, level })) || (states && !states.includes(row.state))) continue;
        // There is a next page if there is another run that the viewer may see; hidden ones do not make one.
        if (runs.length === limit) return done(pks.at(-1));
        runs.push(wireRun(row));
        pks.push(row.pk);
      }
      if (page.length < asked) return done(undefined);
    }
    return done(before);
  },
});

function wireRun(row: RunOfSession): WireRun {
  return withoutGaps<WireRun>({
    runId: row.id,
    sessionKey: row.session_key,
    sessionId: row.session_id,
    state: row.state,
    class: row.class,
    queuedAt: row.queued_at,
    startedAt: row.started_at ?? undefined,
    endedAt: row.ended_at ?? undefined,
    error: row.error ?? undefined,
    errorCode: row.error_code ?? undefined,
    model: row.model ?? undefined,
    usage: usageOf(row),
  });
}

const runBound = ({ sessionKey, error, model }: WireRun) => 1024 + textBound(sessionKey) + textBound(error) + textBound(model);

/** The active run of a session, if any. */
export const activeRun: ReadQuery<{ key: string }, string | undefined> = {
  name: 'active run',
  *body(t, { key }) {
    return yield* activeRunId(t, key);
  },
};

/** Whether a viewer may see a run, and the run belongs to the session, if one is given. */
export const knownRun = ({ world, viewer }: Look): ReadQuery<{ runId: string; key?: string | undefined }, boolean> => ({
  name: 'known run',
  *body(t, { runId, key }) {
    const session = yield* sessionOfRun(t, runId);
    if (!session || (key !== undefined && key !== session.key)) return false;
    return canSee(world, viewer, factOf(session));
  },
});

const factOf = ({ key, agent, parent_key, level }: Pick<SessionRow, 'key' | 'agent' | 'parent_key' | 'level'>): Fact => ({
  key,
  agent,
  spawnedBy: parent_key ?? undefined,
  level: levelName(level),
});

/** Counts open work only, never all rows. */
export const counts: ReadQuery<
  object,
  { runs: Record<'queued' | 'running' | 'waiting', number>; deliveries: Record<'pending' | 'unknown' | 'dead', number> }
> = {
  name: 'counts',
  *body(t) {
    return { runs: yield* openRunCounts(t), deliveries: yield* openCounts(t) };
  },
};

/** Whether a step of a run is still being written, and the level of its session. */
export const openStep: ReadQuery<{ key: string; runId: string; step: number }, { open: boolean; level: Level | undefined }> = {
  name: 'open step',
  *body(t, { key, runId, step }) {
    const run = yield* byId(t, runId);
    return { open: run?.state === 'running' && run.step + 1 === step, level: yield* currentLevel.body(t, { key }) };
  },
};
