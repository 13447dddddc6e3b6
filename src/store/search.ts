// The contract of a search index: it proposes entries by their words; the store and the caller's rights decide what is found.
import type { Pace } from '../pace.ts';

export interface Progress {
  /** Everything up to this feed position can be found; 0 while older entries are still being read. */
  indexedTo: number;
  latest: number;
}

export interface SearchedEntry {
  pk: number;
  sessionPk: number;
  seq: number;
  role: string;
  taint: number;
  at: number;
  text: string;
  /** Of its session: what decides who may see it. */
  sessionKey: string;
  agent: string;
  spawnedBy: string | null;
  level: number;
  /** 1 if this is the session's current life, and neither archived nor deleted. */
  live: number;
}

export interface SearchQuestion {
  text: string;
  limit?: number;
  /** Look only in these. With a few of them the cost no longer depends on what all others have written. */
  sessions?: number[];
  /** What the caller may read of an entry, or undefined for nothing. What is not readable is not found, counted or ranked. */
  readable: (entry: SearchedEntry) => string | undefined;
  /** Of the client who asks. */
  pace?: Pace;
}

/** How a warning about an index that cannot be written begins. */
export const searchTrouble = 'search index cannot be written';

export interface SearchHit {
  sessionPk: number;
  seq: number;
  at: number;
  /** How often the words are in it. */
  hits: number;
  snippet: string;
}

export interface SearchAnswer extends Progress {
  /** Most hits first, then newest first. */
  found: SearchHit[];
  /** There were more readable matches than are ranked; the newest ones were. */
  truncated: boolean;
}

/** Derived from a store and never the only place of anything: an index that is lost or wrong is made again from the store. */
export interface SearchIndex {
  search(question: SearchQuestion): Promise<SearchAnswer>;
  /** The store has entries that the index may not have read yet. Returns at once. */
  wake(): void;
  /** Drops purged sessions. Resolves with true when nothing of them is left, with false if the caller must ask again later. */
  forget(sessionPks: number[]): Promise<boolean>;
  progress(): Promise<Progress>;
  /** Why it cannot be written now; undefined if it can. */
  trouble(): string | undefined;
  close(): Promise<void>;
}
