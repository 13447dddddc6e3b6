// Sessions with their details: row, settings, model and activity. Many at once.
import { levelName } from '../levels.ts';
import { deliveryOf, settingsOf, type SessionSettings } from '../engine/policy.ts';
import type { ModelView } from '../engine/runner.ts';
import type { RunState } from '../protocol/run.ts';
import type { DeliveryContext } from '../protocol/session.ts';
import { isKnownAgent, keyContext } from '../rules/agents.ts';
import { requireSessionKey, type SessionKey } from '../rules/session-key.ts';
import { mayRead, type Viewer } from '../rules/viewer.ts';
import type { Body, Reading } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import { of as marksOf } from '../store/tables/read-marks.ts';
import { newestTexts } from '../store/tables/entry-pages.ts';
import { workOf } from '../store/tables/run-pages.ts';
import { levelsOfKeys } from '../store/tables/session-pages.ts';
import type { Look } from './pages.ts';
import { unreadOf } from './read-marks.ts';

/** Facts about sessions that are not in the store. */
export interface LiveFacts {
  /** The model that answers in a session. */
  modelOf(row: SessionRow): ModelView | undefined;
  /** Whether the guest of a session is connected. */
  online(sessionKey: string): boolean;
  /** The file of a transcript, if it was written to one. */
  transcriptPath(sessionId: string): string | undefined;
}

/** Details that cost extra queries or work. */
export interface Details {
  /** Runs: the active one, the end of the last one, and how many wait. */
  work?: boolean;
  /** The session that spawned it. */
  origin?: boolean;
  /** The beginning of its newest message. */
  preview?: boolean;
  /** The model that would answer if nothing was set on the session. */
  usualModel?: boolean;
  /** The operator whose unread messages to count. */
  reader?: string | undefined;
}

export interface Described {
  row: SessionRow;
  key: SessionKey;
  settings: SessionSettings;
  delivery: DeliveryContext | undefined;
  model: ModelView | undefined;
  usualModel: ModelView | undefined;
  online: boolean | undefined;
  /** Its agent is not in the config, so it gets no turn. */
  orphaned: boolean;
  transcriptPath: string | undefined;
  active: { runId: string; state: RunState; since: number | null } | undefined;
  lastState: RunState | undefined;
  queued: number;
  spawnedBy: string | undefined;
  preview: string | undefined;
  unread: number | undefined;
}

const previewLength = 200;

/** At most one query for each detail and 256 sessions. */
export function* describe(t: Reading, look: Look & LiveFacts, rows: readonly SessionRow[], details: Details): Body<Described[]> {
  const { world, viewer } = look;
  const pks = rows.map((row) => row.pk);
  const work = new Map((details.work ? yield* workOf(t, pks) : []).map((one) => [one.session_pk, one]));
  const origins = details.origin ? yield* namedOrigins(t, viewer, rows) : new Set<string>();
  const texts = new Map((details.preview ? yield* newestTexts(t, pks, previewLength) : []).map((one) => [one.session_pk, one.text]));
  const read = new Map(
    (details.reader === undefined ? [] : yield* marksOf(t, details.reader, pks)).map((one) => [one.session_pk, one.seq]),
  );
  return rows.map((row) => {
    const key = requireSessionKey(row.key, keyContext(world.agents, row.agent));
    const { active_id, active_state, active_since, last_state, queued } = work.get(row.pk) ?? {};
    return {
      row,
      key,
      settings: settingsOf(row),
      delivery: contextOf(row),
      model: look.modelOf(row),
      usualModel: details.usualModel ? look.modelOf({ ...row, settings: '{}' }) : undefined,
      online: key.shape === 'guest' ? look.online(row.key) : undefined,
      orphaned: !isKnownAgent(world.agents, row.agent),
      transcriptPath: look.transcriptPath(row.id),
      active: active_id && active_state ? { runId: active_id, state: active_state, since: active_since ?? null } : undefined,
      lastState: last_state ?? undefined,
      queued: queued ?? 0,
      spawnedBy: row.parent_key !== null && origins.has(row.parent_key) ? row.parent_key : undefined,
      preview: texts.get(row.pk),
      unread: details.reader === undefined ? undefined : unreadOf(row.next_seq - 1, read.get(row.pk) ?? 0),
    };
  });
}

/** Rules use the kind of chat; clients do not get it. */
function contextOf(row: SessionRow): DeliveryContext | undefined {
  const delivery = deliveryOf(row);
  if (!delivery) return undefined;
  const { chatType: _, ...context } = delivery;
  return context;
}

/** Names a deleted parent too, but not one above the viewer's level. */
function* namedOrigins(t: Reading, viewer: Viewer, rows: readonly SessionRow[]): Body<Set<string>> {
  const keys = new Set(rows.flatMap((row) => (row.parent_key === null ? [] : [row.parent_key])));
  for (const { key, level } of yield* levelsOfKeys(t, [...keys])) if (!mayRead(viewer, levelName(level))) keys.delete(key);
  return keys;
}
