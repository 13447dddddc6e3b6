// Rows → what everyone else sees: levels by name, transcript messages, the common part of events.
import { levelName } from '../levels.ts';
import type { Block, Cut, Provenance, TranscriptMessage, TurnContext } from '../protocol/transcript.ts';
import type { UsageView } from '../protocol/run.ts';
import type { EntryRow, SessionRow } from './rows.ts';

/** What an entry holds beside its text. */
export interface EntryBody {
  /** How a message between sessions came about: part of the prompt, not of the message. Older rows have it as words. */
  context?: TurnContext | string;
  calls?: { id: string; name: string; arguments: Record<string, unknown> }[];
  toolCallId?: string;
  toolName?: string;
  isError?: boolean;
  aborted?: true;
  /** The model was stopped by its own limit, or by its provider's filter. */
  cut?: Cut;
  /** A rule withheld this reply from the chat that it was for. */
  withheld?: true;
  /** A model's reasoning that belongs to its calls. */
  reasoning?: unknown[];
  /** What the provider wants back with each call, in their order. */
  callOptions?: unknown[];
  /** This entry is a summary of all entries up to and with this seq. */
  compacted?: { through: number };
}

/** What a feed row keeps of its moment. */
export interface FeedDetail {
  turn?: number;
  reason?: string;
  error?: string;
}

/** The common part of every event. */
export function happened(session: Pick<SessionRow, 'id' | 'key' | 'agent' | 'level'>, at: number) {
  return { sessionId: session.id, sessionKey: session.key, agentId: session.agent, level: levelName(session.level), at };
}

/** Nothing where no real model has answered. */
export function usageOf(row: Pick<SessionRow, 'input_tokens' | 'output_tokens' | 'cost_micros'>): UsageView | undefined {
  const { input_tokens: inputTokens, output_tokens: outputTokens, cost_micros: micros } = row;
  if (inputTokens + outputTokens === 0) return undefined;
  return { inputTokens, outputTokens, ...(micros > 0 ? { cost: micros / 1e6 } : {}) };
}

export function messageOf(row: EntryRow, runId: string | undefined): TranscriptMessage {
  const body = row.body === null ? {} : (JSON.parse(row.body) as EntryBody);
  const content: Block[] = row.text === '' && body.calls ? [] : [{ type: 'text', text: row.text }];
  for (const call of body.calls ?? []) content.push({ type: 'toolCall', ...call });
  const message: TranscriptMessage = { id: row.id, seq: row.seq, role: row.role, content, taint: levelName(row.taint), timestamp: row.at };
  if (row.provenance !== null) message.provenance = JSON.parse(row.provenance) as Provenance;
  if (body.toolCallId !== undefined) message.toolCallId = body.toolCallId;
  if (body.toolName !== undefined) message.toolName = body.toolName;
  if (body.isError) message.isError = true;
  if (body.aborted) message.aborted = true;
  if (body.cut !== undefined) message.cut = body.cut;
  if (body.withheld) message.withheld = true;
  if (body.compacted !== undefined) message.summary = true;
  if (runId !== undefined) message.runId = runId;
  return message;
}
