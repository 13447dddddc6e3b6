// Runs as an operator reads them: pages, the one under way, and how much there is of everything that is open.
import { levelRank } from '../levels.ts';
import { withoutGaps } from '../gaps.ts';
import type { Level } from '../protocol/labels.ts';
import type { WireRun } from '../protocol/result.ts';
import { type RunState } from '../protocol/run.ts';
import type { Body, ReadQuery } from '../store/contract.ts';
import type { RunRow } from '../store/rows.ts';
import { usageOf } from '../store/views.ts';
import type { View } from './overview.ts';

/** A list reads at most this many rows and then gives a cursor, so that one request stays short. */
const mostScanned = 5_000;
const pageRows = 200;

export interface RunsWish {
  sessionPk?: number | undefined;
  states?: RunState[] | undefined;
  before?: number | undefined;
  limit: number;
}

export const runsPage: ReadQuery<View & { wish: RunsWish }, { runs: WireRun[]; next: number | undefined }> = {
  name: 'runs page',
  *body(t, { level, wish }) {
    const runs: WireRun[] = [];
    let before = wish.before ?? Number.MAX_SAFE_INTEGER;
    for (let scanned = 0; scanned < mostScanned;) {
      const columns = 'runs.*, sessions.key AS session_key, sessions.id AS session_id, sessions.level AS session_level';
      const page: (RunRow & { session_key: string; session_id: string; session_level: number })[] =
        wish.sessionPk === undefined
          ? yield* t.all(
              `SELECT ${columns} FROM runs JOIN sessions ON sessions.pk = runs.session_pk WHERE runs.pk < ? ORDER BY runs.pk DESC LIMIT ?`,
              before,
              pageRows,
            )
          : yield* t.all(
              `SELECT ${columns} FROM runs JOIN sessions ON sessions.pk = runs.session_pk WHERE runs.session_pk = ? AND runs.pk < ? ORDER BY runs.pk DESC LIMIT ?`,
              wish.sessionPk,
              before,
              pageRows,
            );
      scanned += page.length;
      for (const row of page) {
        if (runs.length === wish.limit) return { runs, next: before };
        before = row.pk;
        if (row.session_level > levelRank(level) || (wish.states && !wish.states.includes(row.state))) continue;
        runs.push(
          withoutGaps<WireRun>({
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
          }),
        );
      }
      if (page.length < pageRows) return { runs, next: undefined };
    }
    return { runs, next: before };
  },
};

/** The run under way in a session's lane, if there is one. */
export const activeRun: ReadQuery<{ key: string }, string | undefined> = {
  name: 'active run',
  *body(t, { key }) {
    return (yield* t.one<{ id: string }>(`SELECT id FROM runs WHERE lane = ? AND state IN ('running', 'waiting')`, key))?.id;
  },
};

/** Whether an operator of this level may know a run, and it is one of the session, if one is named. */
export const knownRun: ReadQuery<{ runId: string; level: Level; key?: string | undefined }, boolean> = {
  name: 'known run',
  *body(t, { runId, level, key }) {
    const row = yield* t.one<{ level: number; key: string }>(
      'SELECT sessions.level, sessions.key FROM runs JOIN sessions ON sessions.pk = runs.session_pk WHERE runs.id = ?',
      runId,
    );
    return row !== undefined && row.level <= levelRank(level) && (key === undefined || key === row.key);
  },
};

/** How much is going on, by counting what is open; never all that ever was. */
export const counts: ReadQuery<
  object,
  { runs: Record<'queued' | 'running' | 'waiting', number>; deliveries: Record<'pending' | 'unknown' | 'dead', number> }
> = {
  name: 'counts',
  *body(t) {
    const count = function* (sql: string): Body<number> {
      return (yield* t.one<{ n: number }>(`SELECT count(*) AS n FROM (${sql} LIMIT 100000)`))!.n;
    };
    return {
      runs: {
        queued: yield* count(`SELECT 1 FROM runs WHERE state = 'queued'`),
        running: yield* count(`SELECT 1 FROM runs WHERE state = 'running'`),
        waiting: yield* count(`SELECT 1 FROM runs WHERE state IN ('running', 'waiting') AND state = 'waiting'`),
      },
      deliveries: {
        pending: yield* count(`SELECT 1 FROM deliveries WHERE state = 'pending'`),
        unknown: yield* count(`SELECT 1 FROM deliveries WHERE state = 'unknown'`),
        dead: yield* count(`SELECT 1 FROM deliveries WHERE state IN ('sent', 'failed', 'dead') AND state = 'dead'`),
      },
    };
  },
};
