// What an answer to a model may hold: text cut to a length, messages cut to a size, cursors that lead on.
import { InterlaneError } from '../errors.ts';
import type { TranscriptMessage } from '../protocol/transcript.ts';

const longestBlock = 4_000;
/** Bytes of messages in one answer. */
export const largestAnswer = 80 * 1024;

/** Long text and long arguments are cut, and say so. */
export function shorten(message: TranscriptMessage): TranscriptMessage {
  const content = message.content.map((block) => {
    if (block.type === 'text')
      return block.text.length <= longestBlock ? block : { ...block, text: block.text.slice(0, longestBlock), truncated: true as const };
    return JSON.stringify(block.arguments).length <= longestBlock ? block : { ...block, arguments: { truncated: true } };
  });
  return { ...message, content };
}

export const sizeOf = (message: TranscriptMessage) => Buffer.byteLength(JSON.stringify(message));

export const writeCursor = (position: number) => position.toString(36);

export function readCursor(cursor: string | undefined): number | undefined {
  if (cursor === undefined) return undefined;
  const position = /^[0-9a-z]{1,11}$/.test(cursor) ? Number.parseInt(cursor, 36) : Number.NaN;
  if (!Number.isSafeInteger(position))
    throw new InterlaneError('INVALID_REQUEST', 'cursor is not one; use nextCursor of the page before as it is');
  return position;
}
