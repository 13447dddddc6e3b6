// Transcripts for viewers: pages from the end, messages after a cursor, and each message in the protocol's shape.
import { levelName, levelRank } from '../levels.ts';
import { unreadable, type Cursors } from '../cursor.ts';
import { InterlaneError } from '../errors.ts';
import type { WireMessage } from '../protocol/result.ts';
import type { TranscriptMessage } from '../protocol/transcript.ts';
import { ceilingOf, mayRead, type Viewer } from '../rules/viewer.ts';
import type { Body, Reading, ReadQuery } from '../store/contract.ts';
import type { EntryRow, SessionRow } from '../store/rows.ts';
import { entriesAfter, entriesBefore } from '../store/tables/entry-pages.ts';
import { runIdsOf } from '../store/tables/run-pages.ts';
import { messageOf } from '../store/views.ts';

export interface HistoryWish {
  sessionPk: number;
  limit: number;
  /** Entries strictly before this seq. */
  before?: number | undefined;
  includeTools: boolean;
  /** Include the run id of each message. */
  runIds?: boolean;
}

export interface HistoryPage {
  /** Oldest first. */
  messages: TranscriptMessage[];
  /** The page before this one ends before this seq. */
  next: number | undefined;
}

const pageRows = 50;
const mostScanned = 5_000;
/** The most characters of one page; the next page continues by cursor. */
const largestPage = 4_000_000;

/**
 * The end of a transcript. Entries above the viewer's level are left out, also in a session that it may see. A page looks through
 * a limited number of entries, so that it costs the same in any transcript.
 */
export const historyPage = (viewer: Viewer): ReadQuery<HistoryWish, HistoryPage> => ({
  name: 'history page',
  *body(t, { sessionPk, before, limit, includeTools, runIds = false }) {
    const rows: EntryRow[] = [];
    const done = function* (next: number | undefined): Body<HistoryPage> {
      return { messages: yield* messagesOf(t, rows.toReversed(), runIds), next };
    };
    let from = before ?? Number.MAX_SAFE_INTEGER;
    let chars = 0;
    for (let scanned = 0; scanned < mostScanned;) {
      const page = yield* entriesBefore(t, sessionPk, from, pageRows);
      scanned += page.length;
      for (const row of page) {
        if (rows.length === limit || chars > largestPage) return yield* done(from);
        from = row.seq;
        if ((includeTools || row.role !== 'toolResult') && mayRead(viewer, levelName(row.taint))) {
          rows.push(row);
          chars += row.text.length;
        }
      }
      if (page.length < pageRows) return yield* done(undefined);
    }
    return yield* done(from);
  },
});

/** The entries after a seq, oldest first. */
export const historyAfter = (
  viewer: Viewer,
): ReadQuery<{ sessionPk: number; after: number; limit: number }, { messages: TranscriptMessage[]; more: boolean }> => ({
  name: 'history after',
  *body(t, { sessionPk, after, limit }) {
    const level = levelRank(ceilingOf(viewer));
    const rows: EntryRow[] = [];
    let chars = 0;
    let more = true;
    for (let from = after; more && rows.length < limit && chars <= largestPage;) {
      const page = yield* entriesAfter(t, sessionPk, from, level, pageRows + 1);
      let taken = 0;
      for (const entry of page.slice(0, pageRows)) {
        if (rows.length === limit || chars > largestPage) break;
        rows.push(entry);
        chars += entry.text.length;
        from = entry.seq;
        taken++;
      }
      more = page.length > taken;
    }
    return { messages: yield* messagesOf(t, rows, true), more };
  },
});

function* messagesOf(t: Reading, rows: EntryRow[], runIds: boolean): Body<TranscriptMessage[]> {
  const pks = runIds ? new Set(rows.flatMap(({ run_pk }) => (run_pk === null ? [] : [run_pk]))) : [];
  const ids = new Map((yield* runIdsOf(t, [...pks])).map(({ pk, id }) => [pk, id]));
  return rows.map((row) => messageOf(row, row.run_pk === null ? undefined : ids.get(row.run_pk)));
}

/** The seq that a page of older messages ends before; undefined for the newest page. */
export function pageBefore(cursors: Cursors, { id, key }: SessionRow, cursor: string | undefined): number | undefined {
  if (cursor === undefined) return undefined;
  const before = cursors.seqOf('older', id, cursor);
  if (before === undefined) throw unreadable();
  if (before === 'elsewhere')
    throw new InterlaneError('SESSION_CHANGED', `session ${JSON.stringify(key)} was reset since that cursor; start without one`);
  return before;
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
    entry: { id: message.id, seq: message.seq },
  };
  if (message.runId !== undefined) {
    wire.entry.runId = message.runId;
    if (message.role === 'user') wire.entry.idempotencyKey = `${message.runId}:user`;
  }
  if (message.provenance && message.provenance.kind !== 'user') wire.provenance = message.provenance;
  if (message.toolCallId !== undefined) wire.toolCallId = message.toolCallId;
  if (message.toolName !== undefined) wire.toolName = message.toolName;
  if (message.isError) wire.isError = true;
  if (message.aborted) wire.stopReason = 'aborted';
  else if (message.cut !== undefined) wire.stopReason = message.cut === 'filter' ? 'content_filter' : 'length';
  if (message.summary) wire.summary = true;
  if (message.taint !== 'PUBLIC') wire.taint = message.taint;
  return wire;
}
