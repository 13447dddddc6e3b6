// What an outside server sends, measured before anything parses it: the size and shape of each message, and how many come.
import { JsonShape } from '../json-shape.ts';

/** The most bytes of one answer: more than any result we accept, and little enough for memory. */
export const largestMessage = 8 * 1024 * 1024;
/** The most bytes of one message on a stream that lasts as long as the connection; these are small notifications. */
const largestNews = 1024 * 1024;
const shape = { depth: 64, values: 100_000 };
const mostMessages = 5_000;
const windowMs = 10_000;

/** Where a message ends: at a line, at an empty line, or with the stream. */
export type MessageEnd = 'line' | 'blank line' | 'stream';

export class Meter {
  private readonly elapsed: () => number;
  private messages = 0;
  private since: number;

  constructor(elapsed: () => number) {
    this.elapsed = elapsed;
    this.since = elapsed();
  }

  /** For one stream: each chunk goes through here first. Throws when the server sends what none needs to send. */
  stream(end: MessageEnd, news = false): (chunk: Uint8Array) => void {
    const largest = news ? largestNews : largestMessage;
    const json = new JsonShape(shape);
    let bytes = 0;
    let emptySoFar = true;
    return (chunk) => {
      let from = 0;
      const take = (to: number) => {
        bytes += to - from;
        if (bytes > largest) throw new Error(`sent a message larger than ${largest} bytes`);
        const tooMuch = json.add(chunk.subarray(from, to));
        if (tooMuch !== undefined) throw new Error(`sent a message that ${tooMuch}`);
        from = to;
      };
      if (end !== 'stream')
        for (let at = chunk.indexOf(newline); at >= 0; at = chunk.indexOf(newline, at + 1)) {
          const line = chunk.subarray(from, at);
          const empty = emptySoFar && (line.length === 0 || (line.length === 1 && line[0] === carriageReturn));
          take(at + 1);
          emptySoFar = true;
          if (end === 'blank line' && !empty) continue;
          bytes = 0;
          json.restart();
          this.count();
        }
      if (from < chunk.length) emptySoFar = false;
      take(chunk.length);
    };
  }

  private count(): void {
    const now = this.elapsed();
    if (now - this.since >= windowMs) {
      this.since = now;
      this.messages = 0;
    }
    if (++this.messages > mostMessages) throw new Error(`sent more than ${mostMessages} messages in ${windowMs / 1_000} s`);
  }
}

const newline = 0x0a;
const carriageReturn = 0x0d;
