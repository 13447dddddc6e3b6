// One session in two shapes: the row of the protocol, and the row for models.
import { levelName } from '../levels.ts';
import { withoutGaps } from '../gaps.ts';
import { byUser } from '../engine/policy.ts';
import type { SessionKind } from '../protocol/labels.ts';
import type { WireSession } from '../protocol/result.ts';
import { isTerminal } from '../protocol/run.ts';
import { keyChatType, sessionChannel } from '../rules/session-key.ts';
import { usageOf } from '../store/views.ts';
import type { Described } from './describe.ts';

const ended = { ok: 'done', error: 'failed', timeout: 'timeout', aborted: 'killed' } as const;

/** The row of the protocol. */
export function wireSession(described: Described): WireSession {
  const { row, key, settings, delivery, active, lastState } = described;
  const chat = keyChatType(key);
  return withoutGaps<WireSession>({
    key: row.key,
    kind: chat === 'group' || chat === 'channel' ? 'group' : 'direct',
    sessionKind: row.kind as SessionKind,
    sessionId: row.id,
    life: row.life,
    ended: row.current === 0 || undefined,
    agentId: row.agent,
    updatedAt: row.last_at,
    createdAt: row.created_at,
    isMain: row.kind === 'main' || undefined,
    runtime: key.shape === 'guest' ? 'guest' : undefined,
    online: described.online,
    see: settings.see,
    archived: row.state === 'archived' || undefined,
    pinned: row.pinned === 1 || undefined,
    orphaned: described.orphaned || undefined,
    label: row.label ?? undefined,
    displayName: settings.displayName,
    channel: channelOf(described),
    user: row.opened_by ?? undefined,
    status: active ? 'running' : lastState && (isTerminal(lastState) ? ended[lastState] : 'queued'),
    hasActiveRun: active !== undefined || undefined,
    activeRunIds: active && [active.runId],
    queuedRuns: described.queued || undefined,
    spawnedBy: described.spawnedBy,
    totalTokens: row.total_tokens || undefined,
    messageCount: row.next_seq - 1,
    contextTokens: undefined,
    usage: usageOf(row),
    model: settings.model,
    modelSource: byUser(settings.model),
    thinkingLevel: settings.thinkingLevel,
    thinkingLevelSource: byUser(settings.thinkingLevel),
    thinkingNote: undefined,
    ...described.model,
    verboseLevel: settings.verboseLevel,
    verboseLevelSource: byUser(settings.verboseLevel),
    authProfile: settings.authProfile,
    authProfileSource: byUser(settings.authProfile),
    sendPolicy: settings.sendPolicy,
    systemSent: row.system_sent === 1 || undefined,
    abortedLastRun: row.aborted_last === 1 || undefined,
    lastChannel: delivery?.channel,
    lastTo: delivery?.to,
    deliveryContext: delivery,
    transcriptPath: described.transcriptPath,
    taint: row.taint === 0 ? undefined : levelName(row.taint),
    lastMessagePreview: described.preview,
    unread: described.unread === undefined ? undefined : described.unread > 0,
    unreadCount: described.unread,
  });
}

/** The row of a tool for a caller of this agent: every field that has a value of its own, or all of them. */
export function toolSession(described: Described, verbose = false): Record<string, unknown> {
  const { row, key, settings, delivery, model: own, usualModel: usual } = described;
  const { displayName, model, thinkingLevel, verboseLevel = 'off', sendPolicy } = settings;
  /** Omits a value that equals the default. */
  const unless = <V>(value: V, as: V) => (verbose || value !== as ? value : undefined);
  const all = {
    key: row.key,
    kind: row.kind,
    ...(described.orphaned ? { orphaned: true } : {}),
    ...(key.shape === 'guest' ? { runtime: 'guest', online: described.online } : {}),
    channel: channelOf(described),
    user: row.opened_by,
    label: row.label,
    displayName,
    updatedAt: row.last_at,
    sessionId: row.id,
    life: unless(row.life, 1),
    model: unless(own?.model ?? model, usual?.model),
    contextTokens: unless(own?.contextTokens, usual?.contextTokens),
    totalTokens: unless(row.total_tokens, 0),
    thinkingLevel: unless(own?.thinkingLevel ?? thinkingLevel, usual?.thinkingLevel),
    verboseLevel: unless(verboseLevel, 'off'),
    systemSent: unless(row.system_sent === 1, false),
    abortedLastRun: unless(row.aborted_last === 1, false),
    sendPolicy,
    lastChannel: delivery?.channel,
    lastTo: delivery?.to,
    // Omitted if it adds nothing to the two fields before it.
    deliveryContext: verbose || delivery?.threadId !== undefined || isOther(delivery?.accountId) ? delivery : undefined,
    transcriptPath: described.transcriptPath,
  };
  return Object.fromEntries(Object.entries(all).filter(([, value]) => value !== undefined && value !== null));
}

const channelOf = ({ key, settings, delivery }: Described) =>
  sessionChannel(key, { channel: settings.channel, lastChannel: delivery?.channel });
const isOther = (account: string | undefined) => account !== undefined && account !== 'default';
