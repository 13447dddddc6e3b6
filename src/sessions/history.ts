// Transcripts for viewers: pages from the end, messages after a cursor, and each message in the protocol's shape.
import { levelName, levelRank } from '../levels.ts';
import { unreadable, type Cursors } from '../cursor.ts';
import { InterlaneError } from '../errors.ts';
import type { WireMessage } from '../protocol/result.ts';
import type { TranscriptMessage } from '../protocol/transcript.ts';
import { ceilingOf, mayRead, type Viewer } from '../rules/viewer.ts';
import type { Body, Reading, ReadQuery } from '../store/contract.ts';
import type { SessionRow } from '../store/rows.ts';
import { entriesAfter, entriesBefore, entryRows, whole, type PageEntry } from '../store/tables/entry-pages.ts';
import { runIdsOf } from '../store/tables/run-pages.ts';
import { messageOf } from '../store/views.ts';
import { howManyFit, pageBytes, textBound } from './page-bytes.ts';

export interface HistoryWish {
  sessionPk: number;
  limit: number;
  /** Entries strictly before this seq. */
  before?: number | undefined;
  includeTools: boolean;
  /** Include the run id of each message. */
  runIds?: boolean;
  /** The first characters of each text are enough. */
  chars?: number | undefined;
  /** The most bytes of the messages as JSON. */
  bytes?: number;
}

export interface HistoryPage {
  /** Oldest first. */
  messages: TranscriptMessage[];
  /** The page before this one ends before this seq. */
  next: number | undefined;
}

const mostScanned = 5_000;
/** The store reads a text to its end, also where its beginning is enough: a page of beginnings reads so many bytes at most. */
const mostRead = 64 * pageBytes;
/** A single message that is larger than a page is on a page of its own; above so many pages its text is cut. */
const largestMessage = 4;

/**
 * The end of a transcript. Entries above the viewer's level are left out, also in a session that it may see. A page looks through
 * a limited number of entries, so that it costs the same in any transcript, and has a limited size.
 */
export const historyPage = (viewer: Viewer): ReadQuery<HistoryWish, HistoryPage> => ({
  name: 'history page',
  rows: ({ limit }) => limit,
  *body(t, { sessionPk, before, limit, includeTools, runIds = false, chars, bytes: most = pageBytes }) {
    /** Newest first. */
    const messages: TranscriptMessage[] = [];
    let from = before ?? Number.MAX_SAFE_INTEGER;
    let bytes = 0;
    let read = 0;
    let scanned = 0;
    for (let more = true; more && scanned < mostScanned;) {
      // One more than is wanted tells whether there are more.
      const asked = Math.min(entryRows, limit - messages.length + 1);
      const page = yield* entriesBefore(t, sessionPk, from, asked);
      scanned += page.length;
      more = page.length === asked;
      const taken: PageEntry[] = [];
      let full = false;
      for (const row of page) {
        full = messages.length + taken.length === limit;
        if (full) break;
        if ((includeTools || row.role !== 'toolResult') && mayRead(viewer, levelName(row.taint))) {
          bytes += bytesOf(row, chars);
          read += row.bytes;
          full = (bytes > most || read > mostRead) && messages.length + taken.length > 0;
          if (full) break;
          taken.push(row);
        }
        from = row.seq;
      }
      // Shaped here, between two statements: no stretch of work has more than the rows of one.
      messages.push(...(yield* messagesOf(t, taken, runIds, most, chars)));
      if (full) return cutPage(messages, most, from);
    }
    return cutPage(messages, most, scanned < mostScanned ? undefined : from);
  },
});

/** Oldest first, and as many of the newest as fit. */
function cutPage(newestFirst: TranscriptMessage[], most: number, next: number | undefined): HistoryPage {
  const fit = howManyFit(newestFirst, most, messageBound);
  return fit === newestFirst.length
    ? { messages: newestFirst.toReversed(), next }
    : { messages: newestFirst.slice(0, fit).toReversed(), next: newestFirst[fit - 1]!.seq };
}

/** The entries after a seq, oldest first. */
export const historyAfter = (
  viewer: Viewer,
): ReadQuery<
  { sessionPk: number; after: number; limit: number; chars?: number | undefined },
  { messages: TranscriptMessage[]; more: boolean }
> => ({
  name: 'history after',
  rows: ({ limit }) => limit,
  *body(t, { sessionPk, after, limit, chars }) {
    const level = levelRank(ceilingOf(viewer));
    const messages: TranscriptMessage[] = [];
    let bytes = 0;
    let read = 0;
    let more = true;
    for (let from = after; more && messages.length < limit && bytes <= pageBytes && read <= mostRead;) {
      const page = yield* entriesAfter(t, sessionPk, from, level, Math.min(entryRows, limit - messages.length + 1));
      const taken: PageEntry[] = [];
      // The last row of a full page only says that there is more.
      for (const entry of page.slice(0, entryRows - 1)) {
        if (messages.length + taken.length === limit) break;
        bytes += bytesOf(entry, chars);
        read += entry.bytes;
        if ((bytes > pageBytes || read > mostRead) && messages.length + taken.length > 0) break;
        taken.push(entry);
        from = entry.seq;
      }
      more = page.length > taken.length;
      messages.push(...(yield* messagesOf(t, taken, true, pageBytes, chars)));
    }
    const fit = howManyFit(messages, pageBytes, messageBound);
    return { messages: messages.slice(0, fit), more: more || fit < messages.length };
  },
});

/** Of what is returned of an entry, about; the page is cut by its exact size afterwards. */
const bytesOf = (row: PageEntry, chars = Infinity) => Math.min(row.bytes - row.body_bytes, chars) + row.body_bytes;

function* messagesOf(t: Reading, rows: PageEntry[], runIds: boolean, page: number, chars?: number): Body<TranscriptMessage[]> {
  const pks = runIds ? new Set(rows.flatMap(({ run_pk }) => (run_pk === null ? [] : [run_pk]))) : [];
  const ids = new Map((yield* runIdsOf(t, [...pks])).map(({ pk, id }) => [pk, id]));
  const entries = yield* whole(t, rows, chars);
  return entries.map((row) => notTooLarge(messageOf(row, row.run_pk === null ? undefined : ids.get(row.run_pk)), largestMessage * page));
}

/** Never below the bytes of a message as JSON. */
export const messageBound = ({ content, provenance, toolCallId, toolName }: TranscriptMessage) => {
  let bound = 512 + textBound(provenance?.sourceSession) + textBound(toolCallId) + textBound(toolName);
  // Arguments are looked at when it gets close.
  for (const block of content) bound += block.type === 'text' ? textBound(block.text) : pageBytes;
  return bound;
};

function notTooLarge(message: TranscriptMessage, most: number): TranscriptMessage {
  const [text] = message.content;
  if (text?.type !== 'text' || 6 * text.text.length <= most) return message;
  let cut = text.text;
  while (Buffer.byteLength(JSON.stringify(cut)) > most) cut = cut.slice(0, Math.floor(cut.length / 2));
  return cut === text.text ? message : { ...message, content: [{ ...text, text: cut, truncated: true }, ...message.content.slice(1)] };
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
  if (message.withheld) wire.withheld = true;
  if (message.summary) wire.summary = true;
  if (message.taint !== 'PUBLIC') wire.taint = message.taint;
  return wire;
}
