// sessions_search: words in the transcripts the caller may read.
import { z } from 'zod';
import { levelName, levelRank } from '../levels.ts';
import { joinAll } from '../rules/taint.ts';
import { canSee, mayRead } from '../rules/viewer.ts';
import { howManyFit, textBound } from '../sessions/page-bytes.ts';
import { sessionsPage } from '../sessions/pages.ts';
import type { Progress, SearchedEntry, SearchIndex } from '../store/search.ts';
import { defineTool, lookOf, type Tool } from './define.ts';
import { largestAnswer } from './page.ts';

/** A caller who sees no more sessions than this is searched by naming them, at a cost that others do not change. */
const mostNamed = 500;

export function sessionsSearch(search: SearchIndex): Tool {
  return defineTool({
    name: 'sessions_search',
    description: 'Find messages by words, in the sessions you can reach.',
    effect: 'pure',
    params: z.strictObject({
      query: z.string().min(1).max(1000).describe('words that must all occur'),
      limit: z.number().min(1).optional().describe('at most this many hits (default 20, at most 100)'),
    }),
    async run(context, args) {
      const look = lookOf(context);
      const { world, viewer } = look;
      const { rows, next, scope } = await context.store.read(sessionsPage(look), { limit: mostNamed }, context);
      const sessions = next === undefined ? { sessions: rows.map((row) => row.pk) } : {};
      const keys = new Map<number, { key: string; level: number }>();
      // Asked for every match before it is counted or ranked: what is hidden changes nothing in the answer.
      const readable = (entry: SearchedEntry) => {
        const { sessionKey: key, agent, spawnedBy } = entry;
        const seen =
          entry.live === 1 &&
          entry.role !== 'toolResult' &&
          mayRead(viewer, levelName(entry.taint)) &&
          canSee(world, viewer, { key, agent, spawnedBy: spawnedBy ?? undefined, level: levelName(entry.level) });
        if (!seen) return undefined;
        keys.set(entry.sessionPk, { key: entry.sessionKey, level: entry.level });
        return entry.text;
      };
      const limit = Math.min(Math.floor(args.limit ?? 20), 100);
      const answer = await search.search({
        text: args.query,
        limit,
        ...sessions,
        readable,
        pace: context,
      });
      const all = answer.found.map(({ sessionPk, seq, at, snippet }) => ({ sessionKey: keys.get(sessionPk)!.key, seq, at, snippet }));
      const found = all.slice(
        0,
        howManyFit(all, largestAnswer, (hit) => 64 + textBound(hit.sessionKey) + textBound(hit.snippet)),
      );
      const cut = answer.truncated || found.length < all.length;
      const behind = rows.filter((row) => row.last_pos > answer.indexedTo).length;
      const notes = { ...(cut ? { truncated: true } : {}), indexed: howFar(answer, behind, next !== undefined) };
      const taint = levelRank(joinAll(answer.found.map((hit) => levelName(keys.get(hit.sessionPk)!.level))));
      return { value: { count: found.length, scope: scope.visibility, found, ...notes }, taint };
    },
  });
}

/** How far the index has read, told by the sessions the caller can see: what happens in others shows nowhere. */
function howFar({ indexedTo }: Progress, behind: number, more: boolean): string {
  if (behind === 0 && !more) return 'all';
  if (indexedTo === 0) return 'the newest messages; older ones are still being read';
  return behind === 0
    ? 'all but perhaps the newest messages'
    : `all but the newest messages of ${behind === 1 ? '1 session' : `${behind} sessions`}`;
}
