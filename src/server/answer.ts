// The last limit of every answer. Pages keep far below it by themselves; what does not is refused instead of sent.
import { InterlaneError } from '../errors.ts';

const answerBytes = 8 * 1024 * 1024;

/** An answer as JSON text. */
export function answerText(answer: unknown, what: string): string {
  const text = JSON.stringify(answer);
  // A character has at most three bytes for each of its units.
  if (text.length * 3 > answerBytes && Buffer.byteLength(text) > answerBytes)
    throw new InterlaneError('INVALID_REQUEST', `answer to ${what} has more than 8 MiB; ask for less at once`);
  return text;
}
