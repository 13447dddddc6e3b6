// The newest messages of a session, in as many pages as it takes: a page of large messages is short.
import type { Params, Results } from '../protocol/operations/all.ts';
import type { WireMessage } from '../protocol/result.ts';

/** Messages, and characters of each text. */
export const past = { messages: 200, characters: 10_000 } as const;
const mostPages = 20;

type Call = (params: Params<'chat.history'>) => Promise<Results['chat.history']>;
type Page = Extract<Results['chat.history'], { sessionId: string }>;

/** The newest page, with the messages of older ones before its own. */
export async function readPages(call: Call, sessionKey: string): Promise<Page | undefined> {
  const read = async (limit: number, offset?: number): Promise<Page | undefined> => {
    const wish = { sessionKey, limit, maxChars: past.characters, ...(offset === undefined ? {} : { offset }) };
    const page = await call(wish);
    return 'sessionId' in page ? page : undefined;
  };
  const newest = await read(past.messages);
  if (!newest) return undefined;
  const messages: WireMessage[] = [...newest.messages];
  let { nextOffset: offset } = newest;
  for (let pages = 1; offset !== undefined && messages.length < past.messages && pages < mostPages; pages++) {
    const older = await read(past.messages - messages.length, offset);
    if (older?.sessionId !== newest.sessionId) break;
    // What was said in the meantime moves the offsets, so pages may overlap.
    const oldest = messages[0]?.entry.seq ?? Infinity;
    messages.unshift(...older.messages.filter(({ entry }) => entry.seq < oldest));
    offset = older.nextOffset;
  }
  return { ...newest, messages };
}
