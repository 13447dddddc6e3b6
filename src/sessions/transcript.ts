// Transcripts as an operator reads them: pages from the end, what is new, and each message in the protocol's shape.
import { levelRank } from '../levels.ts';
import { readHistory } from '../engine/lists.ts';
import type { WireMessage } from '../protocol/result.ts';
import type { TranscriptMessage } from '../protocol/transcript.ts';
import type { Body, Reading, ReadQuery } from '../store/contract.ts';
import type { EntryRow, SessionRow } from '../store/rows.ts';
import { messageOf } from '../store/views.ts';
import type { View } from './overview.ts';

export interface HistoryWish {
  limit: number;
  /** Entries strictly before this seq. */
  before?: number | undefined;
  includeTools: boolean;
}

/** A page from the end of a transcript, oldest first; `next` leads to the page before it. */
export const historyPage: ReadQuery<
  View & { row: SessionRow; wish: HistoryWish },
  { messages: TranscriptMessage[]; next: number | undefined }
> = {
  name: 'history page',
  *body(t, { level, row, wish }) {
    const { rows, next } = yield* readHistory.body(t, { sessionPk: row.pk, ...wish, level: levelRank(level) });
    return { messages: yield* withRuns(t, rows.toReversed()), next };
  },
};

/** Characters of one page of a delta; the cursor leads on. */
const largestDelta = 4_000_000;
const deltaRows = 50;

/** What was appended after a seq, oldest first. */
export const historyAfter: ReadQuery<
  View & { row: SessionRow; after: number; limit: number },
  { messages: TranscriptMessage[]; more: boolean }
> = {
  name: 'history after',
  *body(t, { level, row, after, limit }) {
    const rows: EntryRow[] = [];
    let chars = 0;
    let more = true;
    for (let from = after; more && rows.length < limit && chars <= largestDelta;) {
      const page = yield* t.all<EntryRow>(
        'SELECT * FROM entries WHERE session_pk = ? AND seq > ? AND taint <= ? ORDER BY seq LIMIT ?',
        row.pk,
        from,
        levelRank(level),
        deltaRows + 1,
      );
      let taken = 0;
      for (const entry of page.slice(0, deltaRows)) {
        if (rows.length === limit || chars > largestDelta) break;
        rows.push(entry);
        chars += entry.text.length;
        from = entry.seq;
        taken++;
      }
      more = page.length > taken;
    }
    return { messages: yield* withRuns(t, rows), more };
  },
};

function* withRuns(t: Reading, rows: EntryRow[]): Body<TranscriptMessage[]> {
  const ids = new Map<number, string | undefined>();
  for (const { run_pk } of rows) {
    if (run_pk === null || ids.has(run_pk)) continue;
    ids.set(run_pk, (yield* t.one<{ id: string }>('SELECT id FROM runs WHERE pk = ?', run_pk))?.id);
  }
  return rows.map((row) => messageOf(row, row.run_pk === null ? undefined : ids.get(row.run_pk)));
}

/** A message in the protocol's shape: people's text as a string, an assistant's as parts. */
export function wireMessage(message: TranscriptMessage, maxChars = Infinity): WireMessage {
  const content = message.content.map((block) =>
    block.type === 'text' && block.text.length > maxChars
      ? { ...block, text: block.text.slice(0, maxChars), truncated: true as const }
      : block,
  );
  const [only] = content;
  const plain = message.role === 'user' && content.length === 1 && only!.type === 'text' && !only!.truncated;
  const wire: WireMessage = {
    role: message.role,
    content: plain ? (only as { text: string }).text : content,
    timestamp: message.timestamp,
    __openclaw: { id: message.id, seq: message.seq },
  };
  if (message.runId !== undefined) {
    wire.__openclaw.runId = message.runId;
    if (message.role === 'user') wire.__openclaw.idempotencyKey = `${message.runId}:user`;
  }
  if (message.provenance && message.provenance.kind !== 'user') wire.provenance = message.provenance;
  if (message.toolCallId !== undefined) wire.toolCallId = message.toolCallId;
  if (message.toolName !== undefined) wire.toolName = message.toolName;
  if (message.isError) wire.isError = true;
  if (message.aborted) wire.stopReason = 'aborted';
  else if (message.cut !== undefined) wire.stopReason = message.cut === 'filter' ? 'content_filter' : 'length';
  if (message.taint !== 'PUBLIC') wire.taint = message.taint;
  return wire;
}
