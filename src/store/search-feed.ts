// What a search index reads of a store: the feed in order, older entries backwards, and the entries that it proposes.
import type { Body, Reading, ReadQuery } from './contract.ts';
import type { SearchedEntry } from './search.ts';
import * as entries from './tables/entries.ts';
import * as feed from './tables/feed.ts';
import { longestText } from './words.ts';

/** How far an index has read. */
export interface Place {
  /** Feed rows up to here have been read. */
  pos: number;
  /** Entries below this pk are older than the index and not read yet; 0 if there are none. */
  below: number;
  /** The history that the positions belong to: a store that was put back from a backup begins another one. */
  timeline: string;
}

export interface Piece {
  /** True if `from` is not a place in this store: the index must be emptied first. */
  anew: boolean;
  rows: entries.EntryText[];
  /** The place after these rows. */
  to: Place;
  more: boolean;
}

interface Wanted {
  from: Place | undefined;
  /** At most so many entries, and about so many characters. */
  rows: number;
  chars: number;
}

export type Timeline = (t: Reading) => Body<string>;

/** The next piece of what an index has to read: first what is new, then what is older than the index, newest first. */
export function nextPiece(timelineOf: Timeline): ReadQuery<Wanted, Piece> {
  return {
    name: 'search feed',
    *body(t, { from, rows, chars }) {
      const [latest, oldest, timeline] = yield* t.together(feed.latest(t), feed.oldest(t), timelineOf(t));
      const known = from !== undefined && from.timeline === timeline && reaches(from.pos, oldest, latest) ? from : undefined;
      // What the store has now is read from the entries, for the feed forgets; what comes later is read from the feed.
      const place = known ?? { pos: latest, below: yield* afterNewest(t), timeline };
      const fresh = within(yield* feed.newEntries(t, place.pos, rows), chars);
      const full = fresh.cut || fresh.rows.length === rows;
      const pos = full ? fresh.rows.at(-1)!.pos : latest;
      const left = { rows: rows - fresh.rows.length, chars: chars - fresh.chars };
      const looks = place.below > 0 && left.rows > 0 && left.chars > 0;
      const older = within(looks ? yield* entries.sizesBefore(t, place.below, left.rows) : [], left.chars);
      const ended = looks && !older.cut && older.rows.length < left.rows;
      const below = ended ? 0 : (older.rows.at(-1)?.pk ?? place.below);
      const texts = yield* entries.texts(
        t,
        [...older.rows, ...fresh.rows].map((row) => row.pk),
      );
      return { anew: known === undefined, rows: texts, to: { pos, below, timeline }, more: full || below > 0 };
    },
  };
}

/** False if the position is beyond the store, or before what the feed still has. */
function reaches(pos: number, oldest: number | undefined, latest: number): boolean {
  return pos === latest || (pos < latest && oldest !== undefined && oldest <= pos + 1);
}

function* afterNewest(t: Reading): Body<number> {
  const newest = yield* entries.newestPk(t);
  return newest === undefined ? 0 : newest + 1;
}

/** The first of these texts, until they have about so many characters; `cut` if there are more. */
function within<Row extends { bytes: number }>(rows: Row[], most: number): { rows: Row[]; chars: number; cut: boolean } {
  let chars = 0;
  const end = rows.findIndex((row) => (chars += Math.min(row.bytes, longestText)) > most);
  return end < 0 ? { rows, chars, cut: false } : { rows: rows.slice(0, end + 1), chars, cut: true };
}

interface Proposed {
  /** Newest first. */
  pks: number[];
  chars: number;
}

/** Entries as a search looks at them: as many of the proposed ones as have about so many characters. `taken` says how many. */
export const searchedEntries: ReadQuery<Proposed, { entries: SearchedEntry[]; taken: number; latest: number }> = {
  name: 'searched entries',
  rows: ({ pks }) => pks.length,
  *body(t, { pks, chars }) {
    const [sizes, latest] = yield* t.together(entries.sizes(t, pks), feed.latest(t));
    const bytes = new Map(sizes.map((row) => [row.pk, row.bytes]));
    const { rows } = within(
      pks.map((pk) => ({ pk, bytes: bytes.get(pk) ?? 0 })),
      chars,
    );
    const found = yield* entries.withSessions(
      t,
      rows.map((row) => row.pk).filter((pk) => bytes.has(pk)),
    );
    return { entries: found.toSorted((a, b) => b.pk - a.pk), taken: rows.length, latest };
  },
};
