// What an answer to a model may hold: text cut to a length, messages cut to a size.
import type { TranscriptMessage } from '../protocol/transcript.ts';

export const longestBlock = 4_000;
/** Bytes of the rows and messages in one answer. */
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

export const sizeOf = (item: unknown) => Buffer.byteLength(JSON.stringify(item)) + 1;

/** The most characters of a result, whatever the tool. Our own tools stay below 80 KiB. */
const largestResult = 1024 * 1024;

/** After the operator's rules have seen all of it: of a result that is too large only the beginning is kept. */
export function cutResult(text: string): string {
  if (text.length <= largestResult) return text;
  return JSON.stringify({ truncated: true, length: text.length, beginning: text.slice(0, largestAnswer) });
}
