// Transcripts as files: `transcripts/<sessionId>.jsonl` in the state directory, each an export of one life. Archive and export write them.
import { createWriteStream, existsSync } from 'node:fs';
import { mkdir, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { Readable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { FeedEvent } from '../protocol/event.ts';
import type { ReadQuery, Store } from '../store/contract.ts';
import { transcriptsFolder } from '../store/sqlite/files.ts';
import { entriesAfter, headerLine, lifeById, lineOf } from './transfer.ts';

/** A name of a file that is the id itself, unless the id has characters that a path could not have. */
export const fileNameOf = (id: string) => encodeURIComponent(id).replaceAll('.', '%2E');

/** The id that a file or directory has its name from; undefined if the gateway gives no such name. */
export function idOfFile(name: string): string | undefined {
  try {
    const id = decodeURIComponent(name);
    return fileNameOf(id) === name ? id : undefined;
  } catch {
    return undefined; // a percent sign without a code
  }
}

const fileOf = (stateDir: string, sessionId: string) => join(stateDir, transcriptsFolder, `${fileNameOf(sessionId)}.jsonl`);

/** The file of a transcript, if there is one. */
export function transcriptPath(stateDir: string, sessionId: string): string | undefined {
  const file = fileOf(stateDir, sessionId);
  return existsSync(file) ? file : undefined;
}

/** A private file that appears whole, in the place of an older one. */
export async function writeTranscript(stateDir: string, sessionId: string, lines: Iterable<string> | AsyncIterable<string>): Promise<void> {
  const file = fileOf(stateDir, sessionId);
  // Several processes may write the same transcript: the gateway and an export.
  const part = `${file}.${process.pid}`;
  await mkdir(join(stateDir, transcriptsFolder), { recursive: true, mode: 0o700 });
  try {
    await pipeline(Readable.from(lines), createWriteStream(part, { mode: 0o600, flush: true }));
    await rename(part, file);
  } catch (thrown) {
    await rm(part, { force: true });
    throw thrown;
  }
}

export interface TranscriptsParts {
  stateDir: string;
  store: Pick<Store, 'read'>;
  report(what: string, error: unknown): void;
}

/** Writes the transcripts of sessions that are archived, one after the other. */
export function createTranscripts({ stateDir, store, report }: TranscriptsParts) {
  let work = Promise.resolve();
  const write = async (sessionId: string) => {
    const life = await store.read(lifeQuery, { sessionId });
    if (life) await writeTranscript(stateDir, sessionId, linesOf(store, life));
  };
  return {
    archived(events: FeedEvent[]): void {
      for (const event of events)
        if (event.kind === 'session' && event.change === 'archived')
          work = work.then(() => write(event.sessionId)).catch((error: unknown) => report('transcript', error));
    },

    /** Deletes the files of sessions that no longer exist, after what is being written. */
    forget(sessionIds: string[]): Promise<void> {
      const removed = work.then(async () => {
        for (const sessionId of sessionIds) await rm(fileOf(stateDir, sessionId), { force: true });
      });
      work = removed.catch(() => {});
      return removed;
    },

    close: () => work,
  };
}

interface ExportedLife {
  pk: number;
  line: object;
}

const lifeQuery: ReadQuery<{ sessionId: string }, ExportedLife | undefined> = {
  name: 'life of a transcript',
  *body(t, { sessionId }) {
    return yield* lifeById(t, sessionId);
  },
};

const entriesQuery: ReadQuery<{ pk: number; seq: number }, { seq: number }[]> = {
  name: 'entries of a transcript',
  *body(t, { pk, seq }) {
    return yield* entriesAfter(t, pk, seq);
  },
};

async function* linesOf(store: Pick<Store, 'read'>, { pk, line }: ExportedLife): AsyncGenerator<string> {
  yield headerLine;
  yield lineOf(line);
  for (let seq = 0; ;) {
    const page = await store.read(entriesQuery, { pk, seq });
    if (page.length === 0) return;
    for (const entry of page) yield lineOf(entry);
    seq = page.at(-1)!.seq;
  }
}
