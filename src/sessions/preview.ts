// The last messages of several sessions, shortened: what a client shows beside a list.
import type { Results } from '../protocol/operations/all.ts';
import type { ReadQuery } from '../store/contract.ts';
import { findSession } from './find.ts';
import { historyPage } from './history.ts';
import { pageBytes } from './page-bytes.ts';
import type { Look } from './pages.ts';

type Previews = Pick<Results['sessions.preview'], 'previews' | 'truncated'>;

/** A key that is given twice, in whatever spelling, is answered once. What does not fit is left out; the client asks again for those keys. */
export const previewSessions = (look: Look): ReadQuery<{ keys: string[]; limit: number; maxChars: number }, Previews> => ({
  name: 'preview sessions',
  rows: ({ keys, limit }) => new Set(keys).size * (limit + 8),
  *body(t, { keys, limit, maxChars }) {
    const previews: Previews['previews'] = [];
    const shown = new Set<string>();
    let bytes = 0;
    for (const session of new Set(keys)) {
      const row = yield* findSession(look).body(t, { session });
      const key = row?.key ?? session;
      if (shown.has(key)) continue;
      shown.add(key);
      const wish = { limit, includeTools: false, chars: maxChars + 1 };
      const { messages } = row ? yield* historyPage(look.viewer).body(t, { sessionPk: row.pk, ...wish }) : { messages: [] };
      const items = messages.map(({ role, content }) => {
        const text = content.map((block) => (block.type === 'text' ? block.text : `[${block.name}]`)).join(' ');
        return { role, text: text.length > maxChars ? `${text.slice(0, maxChars - 1)}…` : text };
      });
      const preview = { key, status: row ? ('ok' as const) : ('missing' as const), items };
      bytes += Buffer.byteLength(JSON.stringify(preview));
      if (bytes > pageBytes && previews.length > 0) return { previews, truncated: true };
      previews.push(preview);
    }
    return { previews };
  },
});
