// The search index of one gateway: feed of the store → words in a file beside it → proposed entries → what the caller may read of them.
// The index is derived. What is shown, counted and ranked is read from the store, so an index that is wrong or late gives no wrong answer.
import { setImmediate as tick, setTimeout as sleep } from 'node:timers/promises';
import { InterlaneError, reasonOf } from '../../errors.ts';
import type { Pace } from '../../pace.ts';
import { statementBytes, type Query, type ReadQuery, type Store } from '../contract.ts';
import { nextPiece, searchedEntries, type Place, type Timeline } from '../search-feed.ts';
import type { Progress, SearchAnswer, SearchedEntry, SearchHit, SearchIndex, SearchQuestion } from '../search.ts';
import { cutSnippet, findTerms, longestText, parseSearch } from '../words.ts';
import { IndexThread } from './indexer.ts';
import { Reader } from './reader.ts';
import { inMemory, proposalOf, SearchFile, type Job, type Written } from './search-file.ts';

export interface SearchParts {
  store: Pick<Store, 'read'>;
  /** The file of the index, or `:memory:` for one that ends with the process. */
  path: string;
  /** Called when the index can no longer be written. It is tried again after pauses that grow. */
  failed(error: unknown): void;
  /** Called when it can be written again. */
  recovered(): void;
  /** Does the work after a delay. Returns the undo. */
  after(ms: number, work: () => void): () => void;
  /** More entries than this in one piece start the thread. */
  threadAfter?: number;
  /** An index that has read further than this is asked in a thread. */
  readerAfter?: number;
  /** Which history of the store the positions of its feed belong to. */
  timeline?: Timeline;
}

/** What the thread gets at a time. */
const piece = { rows: 500, chars: 256 * 1024 };
/** What is written without the thread: about 1 ms for a slice of chat messages. */
const slice = { rows: 16, chars: 8 * 1024 };
/** After so many slices with more to come the thread takes over. It costs 15 to 25 MB of memory, so a quiet gateway never starts it. */
const mostSlices = 40;
/** A larger text goes to the thread at once. */
const sliceTextChars = 32 * 1024;
const slicePages = 16;
/** Between two looks at the feed: while much is written, the index gets fewer and larger pieces. */
const restMs = 50;

/** After a failure, such as a full disk: the pause doubles up to a minute. */
const firstRetryMs = 1_000;
const longestRetryMs = 60_000;

/** Up to here a question takes a few milliseconds at most. */
const largeIndex = 20_000;
const pageEntries = 128;
/** Characters of one slice, and what an entry costs beside its text. */
const lookedAt = 16 * 1024;
const perEntry = 128;
const windowEntries = 1000;
const windowChars = 4 * 1024 * 1024;
const mostHits = 100;

export class SqliteSearch implements SearchIndex {
  private readonly parts: SearchParts;
  private readonly feed: ReturnType<typeof nextPiece>;
  private readonly file: SearchFile;
  private readonly ending = new AbortController();
  private thread: IndexThread | undefined;
  private feeding: Promise<void> | undefined;
  private reading = false;
  /** Something was written since the last look at the feed. */
  private woken = false;
  /** Why it could not be written the last time, and how often in a row. */
  private broken: { why: string; times: number } | undefined;
  /** While it is broken, until the next attempt. */
  private cancelRetry: (() => void) | undefined;
  /** The last of the steps that write; the next one waits for it. */
  private last: Promise<unknown> = Promise.resolve();
  /** Answers questions to a large index. */
  private reader: Reader | undefined;
  /** While another file is put in the place of this one. */
  private renewing: Promise<unknown> | undefined;

  constructor(parts: SearchParts) {
    this.parts = parts;
    this.feed = nextPiece(parts.timeline ?? noTimeline);
    this.file = new SearchFile(parts.path, slicePages);
  }

  wake(): void {
    if (this.over) return;
    this.woken = true;
    if (this.reading || this.cancelRetry) return;
    this.reading = true;
    this.feeding = this.readFeed().catch((thrown: unknown) => this.fail(thrown));
  }

  trouble(): string | undefined {
    return this.broken?.why;
  }

  /** Reads one piece of what it has not read yet. */
  async indexNext(rows = piece.rows): Promise<Progress & { more: boolean }> {
    const more = await this.alone(() => this.step({ ...piece, rows }));
    return { ...(await this.progress()), more };
  }

  async progress(): Promise<Progress> {
    while (this.renewing) await this.renewing;
    const reached = this.file.place();
    const { latest } = await this.parts.store.read(searchedEntries, { pks: [], chars: 0 });
    return { indexedTo: indexedTo(reached), latest };
  }

  async search({ text, limit = 20, sessions, readable, pace }: SearchQuestion): Promise<SearchAnswer> {
    const terms = parseSearch(text);
    const named = sessions && new Set(sessions);
    // Read first, so that it promises nothing that was indexed after the last look.
    const progress = await this.progress();
    const found: { pk: number; hit: SearchHit }[] = [];
    let chars = 0;
    let truncated = false;
    if (named?.size !== 0) {
      for await (const entry of this.proposed(terms, sessions, pace)) {
        if (named?.has(entry.sessionPk) === false) continue;
        const seen = readable(entry);
        const place = seen === undefined ? undefined : findTerms(seen, terms);
        if (seen === undefined || !place) continue;
        // The window counts only what is readable, so that what is hidden can push nothing out of it.
        truncated = found.length === windowEntries || chars > windowChars;
        if (truncated) break;
        chars += seen.length;
        const { pk, sessionPk, seq, at } = entry;
        found.push({ pk, hit: { sessionPk, seq, at, hits: place.hits, snippet: cutSnippet(seen, place.at) } });
      }
    }
    const ranked = found.toSorted((a, b) => b.hit.hits - a.hit.hits || b.pk - a.pk).slice(0, Math.min(Math.max(limit, 1), mostHits));
    return { found: ranked.map(({ hit }) => hit), truncated, ...progress };
  }

  /** Waits for the piece that is being written: it may have words of these sessions that were read before the purge. */
  forget(sessionPks: number[]): Promise<boolean> {
    return this.alone(async () => {
      if (this.over || this.cancelRetry) return false;
      const written = await this.write({ forget: sessionPks });
      if (written === 'damaged') await this.step(piece); // makes it anew, from what the store has left
      return written !== 'over';
    }).catch((thrown: unknown) => {
      this.fail(thrown);
      return false;
    });
  }

  async close(): Promise<void> {
    this.ending.abort();
    this.cancelRetry?.();
    await this.thread?.close();
    await this.last.catch(() => {});
    await this.feeding;
    await this.reader?.close();
    this.file.close();
  }

  private get over(): boolean {
    return this.ending.signal.aborted;
  }

  private async readFeed(): Promise<void> {
    const { signal } = this.ending;
    while (this.woken && !this.over && !this.cancelRetry) {
      this.woken = false;
      for (let slices = 0, more = true; more && !this.over && !this.cancelRetry; slices++) {
        const inSlices = this.parts.path === inMemory || (!this.thread && slices < mostSlices);
        more = await this.alone(() => this.step(inSlices ? slice : piece));
      }
      // A pause that nothing depends on; the end of the index ends it.
      if (!this.over) await sleep(restMs, undefined, { signal, ref: false }).catch(() => {});
    }
    this.reading = false; // with the last look at `woken`, so that no wake is lost
  }

  /** Returns whether there is more to read. */
  private async step(most: { rows: number; chars: number }): Promise<boolean> {
    const from = this.file.place();
    const { rows, to, anew, more } = await this.parts.store.read(this.feed, { from, ...most });
    if (!anew && from?.pos === to.pos && from.below === to.below) return false;
    const add = rows.map((row) => ({ ...row, text: row.text.slice(0, longestText) }));
    const written = await this.write({ add, to, anew });
    if (written === 'done' && this.broken) {
      this.broken = undefined;
      this.parts.recovered();
    }
    return written === 'damaged' || (written === 'done' && more);
  }

  private async write(job: Job): Promise<Written> {
    if ('forget' in job || !job.anew) return this.writeTo(job);
    const renew = async () => {
      // Closed before the file is removed: a connection that closes later would remove the log of the new one.
      this.file.close();
      await this.reader?.close();
      this.reader = undefined;
      return this.writeTo(job);
    };
    const written = renew();
    const over = () => void (this.renewing = undefined);
    this.renewing = written.then(over, over);
    return written;
  }

  private writeTo(job: Job): Promise<Written> {
    if (this.parts.path === inMemory || (!this.thread && this.isSmall(job))) return this.file.write(job, () => this.over);
    this.thread ??= new IndexThread(this.parts.path, (error) => this.fail(error));
    return this.thread.write(job);
  }

  /** Forgetting is never small: it writes much of the index again. */
  private isSmall(job: Job): boolean {
    const { threadAfter = slice.rows } = this.parts;
    return 'add' in job && job.add.length <= threadAfter && job.add.reduce((sum, row) => sum + row.text.length, 0) <= sliceTextChars;
  }

  private async *proposed(terms: string[][], sessions: number[] | undefined, pace: Pace | undefined) {
    for (let below = Number.MAX_SAFE_INTEGER; ;) {
      while (this.renewing) await this.renewing;
      const pks = await this.propose(proposalOf(terms, sessions, below, pageEntries), pace);
      if (pks.length === 0) return;
      const { entries, taken } = await this.parts.store.read(searchedEntries, { pks, chars: statementBytes }, pace);
      yield* inSlices(entries, pace);
      if (taken === pks.length && pks.length < pageEntries) return;
      below = pks[taken - 1]!;
      await rest(pace);
    }
  }

  /** Words that are in many entries, but never in one together, take long in a large index. So that is asked in a thread. */
  private async propose(proposal: Query, pace: Pace | undefined): Promise<number[]> {
    const { path, readerAfter = largeIndex } = this.parts;
    if (path === inMemory || (this.file.place()?.pos ?? 0) <= readerAfter) return this.file.propose(proposal);
    // A read has a time limit between its statements. This one is a single statement, so it needs no clock.
    this.reader ??= new Reader(path, () => 0);
    try {
      return (await this.reader.read(asked, proposal, pace)).map(({ pk }) => pk);
    } catch (thrown) {
      if (!(thrown instanceof InterlaneError && thrown.code === 'STORE_FAILED')) throw thrown;
      return this.file.propose(proposal); // says what is wrong, or that there is no index
    }
  }

  private alone<R>(work: () => Promise<R>): Promise<R> {
    const done = this.last.then(work, work);
    this.last = done;
    done.catch(() => {});
    return done;
  }

  /** What could not be written is still in the store, so it is read again from the place that was reached. */
  private fail(thrown: unknown): void {
    this.reading = false;
    if (this.over || this.cancelRetry) return;
    if (!this.broken) this.parts.failed(thrown);
    const times = (this.broken?.times ?? 0) + 1;
    this.broken = { why: reasonOf(thrown), times };
    this.file.close();
    void this.thread?.close();
    this.thread = undefined;
    this.cancelRetry = this.parts.after(Math.min(firstRetryMs * 2 ** (times - 1), longestRetryMs), () => {
      this.cancelRetry = undefined;
      this.wake();
    });
  }
}

/** A search of many pages lets others go on between them. */
const rest = (pace: Pace | undefined) => (pace ? pace.pause() : tick());

/** Looking for words in a slice takes about a millisecond. */
async function* inSlices(entries: SearchedEntry[], pace: Pace | undefined): AsyncGenerator<SearchedEntry> {
  let chars = 0;
  for (const entry of entries) {
    if (chars > lookedAt) {
      await rest(pace);
      chars = 0;
    }
    chars += perEntry + Math.min(entry.text.length, longestText);
    yield entry;
  }
}

// oxlint-disable-next-line require-yield -- a store without a timeline is asked nothing
function* noTimeline() {
  return '';
}

/** A question to the index. It has no tables of the store. */
const asked: ReadQuery<Query, { pk: number }[]> = {
  name: 'search',
  *body(_, proposal) {
    return (yield proposal) as { pk: number }[];
  },
};

const indexedTo = (place: Place | undefined) => (!place || place.below > 0 ? 0 : place.pos);
