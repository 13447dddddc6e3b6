import { systemClock } from '../../clock.ts';
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import * as fc from 'fast-check';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { findTerms, parseSearch, wordsOf } from '../words.ts';
import { drive, reading, type Command, type Store } from '../contract.ts';
import { memoryStore } from '../memory.ts';
import type { SearchedEntry, SearchQuestion } from '../search.ts';
import { insert } from '../tables/entries.ts';
import { openDatabase } from './database.ts';
import { databaseName } from './files.ts';
import { inMemory, searchName, SearchFile } from './search-file.ts';
import { SqliteSearch } from './search.ts';

interface Said {
  session: number;
  text: string;
  taint?: number;
}

/** A store whose transcripts are written directly, and its index. */
function opened({ readerAfter }: { readerAfter?: number } = {}) {
  const directory = mkdtempSync(join(tmpdir(), 'interlane-search-'));
  const connection = openDatabase(join(directory, databaseName), { durability: 'normal' });
  const { database } = connection;
  // Another connection, so that it reads nothing that is not committed.
  const reader = openDatabase(join(directory, databaseName), { durability: 'normal', readOnly: true });
  const store: Pick<Store, 'read'> = {
    // oxlint-disable-next-line require-await -- asynchronous by contract
    read: async (query, args) => drive(query.body(reading, args), (ask) => reader.answerAll(ask)),
  };
  const failures: unknown[] = [];
  const history = { timeline: 'one' };
  const open = () =>
    new SqliteSearch({
      store,
      path: join(directory, searchName),
      failed: (error) => failures.push(error),
      recovered: () => {},
      after: (ms, work) => systemClock.after(ms, work),
      ...(readerAfter === undefined ? {} : { readerAfter }),
      // oxlint-disable-next-line require-yield -- known without a look at the store
      *timeline() {
        return history.timeline;
      },
    });
  const seqs = new Map<number, number>();
  let number = 0;
  let search = open();
  onTestFinished(async () => {
    await search.close();
    reader.close();
    connection.close();
    rmSync(directory, { recursive: true });
    expect(failures).toEqual([]);
  });

  const say = (said: Said[]) => {
    database.exec('BEGIN');
    const entry = database.prepare(
      `INSERT INTO entries (session_pk, seq, id, role, taint, text, at) VALUES (?, ?, ?, 'user', ?, ?, ?) RETURNING pk`,
    );
    const feed = database.prepare(`INSERT INTO feed (session_pk, kind, ref_pk, level, at) VALUES (?, 'entry', ?, 0, 0)`);
    for (const { session, text, taint = 0 } of said) {
      const seq = (seqs.get(session) ?? 0) + 1;
      seqs.set(session, seq);
      feed.run(session, Number(entry.get(session, seq, `e${++number}`, taint, text, session * 1000 + seq)!['pk']));
    }
    database.exec('COMMIT');
  };
  const catchUp = async (limit?: number) => {
    while ((await search.indexNext(limit)).more);
  };
  const ask = (text: string, more: Partial<SearchQuestion> = {}) => search.search({ text, readable: (entry) => entry.text, ...more });
  const found = async (text: string, more?: Partial<SearchQuestion>) =>
    (await ask(text, more)).found.map((hit) => `${hit.sessionPk}/${hit.seq}`);
  /** The index is closed, something happens to its file, and it is opened again. */
  const meanwhile = async (work: (file: string) => void) => {
    await search.close();
    work(join(directory, searchName));
    search = open();
  };
  return { directory, database, history, say, catchUp, ask, found, meanwhile, index: () => search };
}

describe('words', () => {
  it.each([
    ['The Invoice, please!', 'invoice', true, 'case and punctuation do not count'],
    ['invoices', 'invoice', false, 'a part of a word is another word'],
    ['un café à Zürich', 'CAFE zurich', true, 'accents do not count'],
    ['Ｆｕｌｌ ｗｉｄｔｈ ﬁle', 'full width file', true, 'what looks alike is alike'],
    ['see node:sqlite and foo_bar', 'node:sqlite FOO-BAR', true, 'a term of several words is found in one piece'],
    ['sqlite in node', 'node:sqlite', false, 'and only in one piece'],
    ['東京タワーに行く', 'タワー', true, 'scripts without spaces are cut into letters'],
    ['東京タワーに行く', '京東', false, 'in their order'],
    ['привет, Мир', 'мир', true, 'every script'],
    ['ΟΔΟΣ', 'οδος', true, 'also with letters of two small forms'],
    ["don't", "don't", true, 'an apostrophe is no end'],
    ['हिन्दी में', 'हिन्दी', true, 'marks belong to their word'],
    ['हिन्दी में', 'हन्दी', false, 'and are not accents'],
    ['e\u0301tat', 'état', true, 'composed or not'],
    ['room ½', '1 2', true, 'a sign of several letters is those'],
    ['one two', 'one three', false, 'all words must be there'],
  ])('in %j, %j: %s, for %s', async (text, asked, expected) => {
    expect(findTerms(text, parseSearch(asked)) !== undefined).toBe(expected);
    const { say, catchUp, found } = opened();
    say([{ session: 1, text }]);
    await catchUp();
    expect(await found(asked)).toEqual(expected ? ['1/1'] : []);
  });

  it('of any text are all found in it', async () => {
    const { say, catchUp, found } = opened();
    const texts = fc.sample(fc.string({ unit: 'grapheme', minLength: 1, maxLength: 40 }), 300);
    texts.push('a\0b', '\ud800 lone', 'x'.repeat(5000), '😀 emoji', '" OR *');
    say(texts.map((text, index) => ({ session: index + 1, text })));
    await catchUp();
    for (const [index, text] of texts.entries()) {
      for (const { text: word } of wordsOf(text).slice(0, 5)) {
        expect(await found(word, { sessions: [index + 1] })).toEqual([`${index + 1}/1`]);
      }
    }
  });

  it.each([
    ['', 'search text has no word in it; write at least one'],
    [' !? "" * ', 'search text has no word in it; write at least one'],
    ['x'.repeat(1001), 'search text is too long; at most 1000 characters are looked for'],
    [Array.from({ length: 17 }, (_, index) => `w${index}`).join(' '), 'search text has too many words; at most 16 are looked for'],
  ])('are refused when there is nothing or too much to look for: %j', async (text, message) => {
    await expect(opened().ask(text)).rejects.toThrow(expect.objectContaining({ code: 'INVALID_REQUEST', message }));
  });
});

describe('a question', () => {
  it.each([
    'alpha OR zulu',
    'alpha NOT beta',
    'NEAR(alpha beta)',
    'words:alpha',
    'session:s1',
    '"alpha',
    'alph*',
    '^alpha',
    '{words} : alpha',
    "'; --",
  ])('is text and never an expression: %j', async (text) => {
    const { say, catchUp, found } = opened();
    say([{ session: 1, text: 'alpha beta' }]);
    await catchUp();
    const expected = findTerms('alpha beta', parseSearch(`${text} x`).slice(0, -1)) ? ['1/1'] : [];
    expect(await found(`${text} alpha`)).toEqual(expected);
  });

  it('is answered by hits, then by newness, each with the line around its first hit', async () => {
    const { say, catchUp, ask } = opened();
    const long = `${'before '.repeat(40)}needle\nin a\thaystack ${'after '.repeat(40)}`;
    say([
      { session: 1, text: 'one needle' },
      { session: 2, text: 'needle and needle' },
      { session: 1, text: 'no thread' },
      { session: 1, text: long },
      { session: 2, text: 'the last needle' },
    ]);
    await catchUp();
    const { found, truncated, indexedTo, latest } = await ask('Needle');
    expect(found.map(({ sessionPk, seq, hits, at }) => [sessionPk, seq, hits, at])).toEqual([
      [2, 1, 2, 2001],
      [2, 2, 1, 2002],
      [1, 3, 1, 1003],
      [1, 1, 1, 1001],
    ]);
    expect(found[0]!.snippet).toBe('needle and needle');
    expect(found[2]!.snippet).toMatch(/^….*before needle in a haystack after.*…$/);
    expect(found[2]!.snippet.length).toBeLessThanOrEqual(242);
    expect([truncated, indexedTo, latest]).toEqual([false, 5, 5]);
  });

  it('is answered with at most 100 entries, at least one, 20 unless told', async () => {
    const { say, catchUp, found } = opened();
    say(Array.from({ length: 150 }, (_, index) => ({ session: index + 1, text: 'same' })));
    await catchUp();
    const counts = [undefined, 1, 0, -5, 7, 1e9].map(async (limit) => (await found('same', limit === undefined ? {} : { limit })).length);
    expect(await Promise.all(counts)).toEqual([20, 1, 1, 1, 7, 100]);
  });

  it('is answered from the newest 1,000 matches that are readable, and says so', { timeout: 60_000 }, async () => {
    const { say, catchUp, ask } = opened();
    const readable = (entry: SearchedEntry) => (entry.taint === 0 ? entry.text : undefined);
    say([{ session: 1, text: 'word word word' }]);
    say(Array.from({ length: 999 }, () => ({ session: 2, text: 'word' })));
    say(Array.from({ length: 3000 }, () => ({ session: 3, text: 'word', taint: 3 })));
    await catchUp();
    expect(await ask('word', { limit: 1, readable })).toMatchObject({ found: [{ sessionPk: 1, hits: 3 }], truncated: false });
    say([{ session: 2, text: 'word' }]);
    await catchUp();
    expect(await ask('word', { limit: 1, readable })).toMatchObject({ found: [{ sessionPk: 2, seq: 1000, hits: 1 }], truncated: true });
  });

  it('about some sessions is answered from those alone', async () => {
    const { say, catchUp, found } = opened();
    say(Array.from({ length: 600 }, (_, index) => ({ session: index + 1, text: 's2 word' })));
    await catchUp();
    expect(await found('word', { sessions: [3, 5, 9999] })).toEqual(['5/1', '3/1']);
    expect(await found('s2', { sessions: [3] })).toEqual(['3/1']);
    expect(await found('word', { sessions: [] })).toEqual([]);
    const many = Array.from({ length: 550 }, (_, index) => index + 1);
    expect(await found('word', { sessions: many.slice(0, 500), limit: 1 })).toEqual(['500/1']);
    expect(await found('word', { sessions: many, limit: 1 })).toEqual(['550/1']);
  });

  it('is answered by what the caller may read of an entry, not by what stands there', async () => {
    const { say, catchUp, ask } = opened();
    say([{ session: 1, text: 'the password is swordfish' }]);
    await catchUp();
    const readable = (entry: SearchedEntry) => entry.text.replace('swordfish', '[hidden]');
    expect((await ask('swordfish', { readable })).found).toEqual([]);
    expect((await ask('password', { readable })).found[0]!.snippet).toBe('the password is [hidden]');
  });
});

describe('properties', () => {
  const vocabulary = ['red', 'green', 'blue', 'cyan'];
  const text = fc
    .array(fc.tuple(fc.constantFrom(...vocabulary), fc.constantFrom(' ', ', ', '\n', '-', ' … ')), { minLength: 1, maxLength: 6 })
    .map((words) => words.flat().join(''));
  const said = fc.record({ session: fc.integer({ min: 1, max: 4 }), text, taint: fc.integer({ min: 0, max: 1 }) });
  const asked = fc.uniqueArray(fc.constantFrom(...vocabulary), { minLength: 1, maxLength: 3 });
  const count = (whole: string, words: string[]) => whole.split(/[^a-z]+/).filter((word) => words.includes(word)).length;

  /** One store serves all runs: the words of each have an ending of their own. */
  const marked = (whole: string, ending: string) => whole.replaceAll(/[a-z]+/g, (word) => word + ending);
  const plenty = { timeout: 600_000 };

  it('every entry with all the words is found, and every one that is found has them', plenty, async () => {
    const { say, catchUp, ask } = opened();
    let run = 0;
    await fc.assert(
      fc.asyncProperty(fc.array(said, { maxLength: 25 }), asked, fc.integer({ min: 1, max: 30 }), async (all, words, step) => {
        const ending = `${++run}`;
        say(all.map(({ session, text: whole }) => ({ session, text: marked(whole, ending) })));
        await catchUp(step);
        const { found } = await ask(marked(words.join(' '), ending), { limit: 100 });
        const expected = all
          .filter((one) => words.every((word) => one.text.split(/[^a-z]+/).includes(word)))
          .map((one) => `${one.session} ${count(one.text, words)}`);
        expect(found.map((hit) => `${hit.sessionPk} ${hit.hits}`).toSorted()).toEqual(expected.toSorted());
        for (const hit of found) expect(words.every((word) => hit.snippet.includes(word + ending))).toBe(true);
        expect(found.map((hit) => hit.hits)).toEqual(found.map((hit) => hit.hits).toSorted((a, b) => b - a));
      }),
    );
  });

  it('what is hidden never changes an answer', plenty, async () => {
    const { say, catchUp, ask } = opened();
    const readable = (entry: SearchedEntry) => (entry.taint === 0 ? entry.text : undefined);
    let run = 0;
    const answer = async (all: Said[], words: string[], limit: number) => {
      const ending = `${++run}`;
      say(all.map(({ text: whole, ...rest }) => ({ ...rest, text: marked(whole, ending) })));
      await catchUp();
      const { found, truncated } = await ask(marked(words.join(' '), ending), { limit, readable });
      return { found: found.map((hit) => [hit.sessionPk, hit.hits, hit.snippet.replaceAll(ending, '')]), truncated };
    };
    await fc.assert(
      fc.asyncProperty(fc.array(said, { maxLength: 25 }), asked, fc.integer({ min: 1, max: 5 }), async (all, words, limit) => {
        const visible = all.filter((one) => one.taint === 0);
        expect(await answer(all, words, limit)).toEqual(await answer(visible, words, limit));
      }),
    );
  });
});

describe('the index', () => {
  it('reads what is committed, in bounded steps, and says how far it is', async () => {
    const { database, say, index, ask, found } = opened();
    expect(await index().indexNext()).toEqual({ indexedTo: 0, latest: 0, more: false });
    say(Array.from({ length: 5 }, (_, each) => ({ session: 1, text: `word number${each}` })));
    database.exec(`INSERT INTO feed (session_pk, kind, ref_pk, state, level, at) VALUES (1, 'run', 1, 'ok', 0, 0)`);
    expect(await ask('word')).toMatchObject({ found: [], indexedTo: 0, latest: 6 });
    expect(await index().indexNext(2)).toEqual({ indexedTo: 2, latest: 6, more: true });
    expect(await found('word')).toEqual(['1/2', '1/1']);
    expect(await index().indexNext(3)).toEqual({ indexedTo: 5, latest: 6, more: true });
    expect(await index().indexNext(3)).toEqual({ indexedTo: 6, latest: 6, more: false });

    database.exec('BEGIN');
    database.exec(`INSERT INTO entries (session_pk, seq, id, role, taint, text, at) VALUES (1, 6, 'x', 'user', 0, 'word uncommitted', 0)`);
    database.exec(`INSERT INTO feed (session_pk, kind, ref_pk, level, at) VALUES (1, 'entry', last_insert_rowid(), 0, 0)`);
    expect(await index().indexNext()).toEqual({ indexedTo: 6, latest: 6, more: false });
    expect(await found('uncommitted')).toEqual([]);
    database.exec('COMMIT');
    expect(await index().indexNext()).toEqual({ indexedTo: 7, latest: 7, more: false });
    expect(await found('uncommitted')).toEqual(['1/6']);
  });

  it('takes about 256 kB of text at a time, and 100,000 characters of one entry', async () => {
    const { say, index, catchUp, found } = opened();
    await index().indexNext();
    say(Array.from({ length: 30 }, (_, each) => ({ session: each + 1, text: `${'filler '.repeat(15_000)}end` })));
    expect(await index().indexNext(1000)).toMatchObject({ indexedTo: 3, more: true });
    await catchUp();
    expect([(await found('filler')).length, await found('end')]).toEqual([20, []]);
  });

  it('goes on where it was after it was closed', async () => {
    const { say, index, found, meanwhile } = opened();
    await index().indexNext();
    say(Array.from({ length: 4 }, () => ({ session: 1, text: 'word' })));
    await index().indexNext(3);
    await meanwhile(() => {});
    expect(await found('word')).toEqual(['1/3', '1/2', '1/1']);
    expect(await index().indexNext(3)).toEqual({ indexedTo: 4, latest: 4, more: false });
  });

  it('that is new reads the older entries too, newest first, between what is coming in', async () => {
    const { say, index, found, ask } = opened();
    say(Array.from({ length: 5 }, () => ({ session: 1, text: 'word' })));
    expect(await index().indexNext(2)).toEqual({ indexedTo: 0, latest: 5, more: true });
    expect(await found('word')).toEqual(['1/5', '1/4']);
    say([{ session: 1, text: 'word' }]);
    expect(await index().indexNext(2)).toEqual({ indexedTo: 0, latest: 6, more: true });
    expect(await found('word')).toEqual(['1/6', '1/5', '1/4', '1/3']);
    expect(await index().indexNext(3)).toEqual({ indexedTo: 6, latest: 6, more: false });
    expect(await ask('word')).toMatchObject({ found: { length: 6 }, indexedTo: 6 });
  });

  it('can be made anew, also when the feed has forgotten what it was made from', async () => {
    const { database, say, index, catchUp, ask, meanwhile } = opened();
    await catchUp();
    say(Array.from({ length: 50 }, (_, each) => ({ session: (each % 7) + 1, text: `word ${'word '.repeat(each % 3)}` })));
    await catchUp();
    const before = await ask('word', { limit: 100 });
    expect(before.found).toHaveLength(50);
    database.exec('DELETE FROM feed WHERE pos <= 40');
    await meanwhile((file) => rmSync(file));
    expect(await ask('word')).toMatchObject({ found: [], indexedTo: 0, latest: 50 });
    await catchUp(7);
    expect(await ask('word', { limit: 100 })).toEqual(before);
    database.exec('DELETE FROM feed');
    expect(await index().indexNext()).toEqual({ indexedTo: 50, latest: 50, more: false });
  });

  it('that fell behind what the feed still has finds its way by itself', async () => {
    const { database, say, catchUp, found } = opened();
    await catchUp();
    say([{ session: 1, text: 'word' }]);
    await catchUp();
    say(Array.from({ length: 3 }, () => ({ session: 2, text: 'word' })));
    database.exec('DELETE FROM feed WHERE pos <= 3');
    await catchUp();
    expect(await found('word')).toEqual(['2/3', '2/2', '2/1', '1/1']);
  });

  it('that is ahead of the store, because an older store was put back, starts over', async () => {
    const { database, say, catchUp, found } = opened();
    say(Array.from({ length: 3 }, () => ({ session: 1, text: 'word' })));
    await catchUp();
    database.exec(
      `DELETE FROM feed WHERE pos > 1; DELETE FROM entries WHERE pk > 1; UPDATE sqlite_sequence SET seq = 1 WHERE name = 'feed'`,
    );
    database.exec(`UPDATE entries SET text = 'other'`);
    expect(await found('word')).toEqual([]);
    await catchUp();
    expect([await found('word'), await found('other')]).toEqual([[], ['1/1']]);
  });

  it.each([
    ['here', undefined],
    ['in a thread', -1],
  ])('that has read another history of the store, which is as long, starts over; asked %s', async (_, readerAfter) => {
    const { database, history, say, catchUp, found } = opened(readerAfter === undefined ? {} : { readerAfter });
    say(Array.from({ length: 3 }, () => ({ session: 1, text: 'word' })));
    await catchUp();
    database.exec(`UPDATE entries SET text = 'other'`);
    await catchUp();
    expect(await found('other')).toEqual([]);
    history.timeline = 'two';
    await catchUp();
    expect([await found('word'), await found('other')]).toEqual([[], ['1/3', '1/2', '1/1']]);
  });

  it('that is large is not asked on the thread that serves requests', async () => {
    const { say, catchUp, found } = opened({ readerAfter: 2 });
    const here = vi.spyOn(SearchFile.prototype, 'propose');
    onTestFinished(() => here.mockRestore());
    say([{ session: 1, text: 'word' }]);
    await catchUp();
    expect(await found('word')).toEqual(['1/1']);
    expect(here).toHaveBeenCalledTimes(1);
    say(Array.from({ length: 3 }, () => ({ session: 2, text: 'word' })));
    await catchUp();
    expect(await found('word')).toEqual(['2/3', '2/2', '2/1', '1/1']);
    expect(here).toHaveBeenCalledTimes(1);
  });

  it('that is far behind catches up when it is woken', async () => {
    const { say, index, found } = opened();
    await index().indexNext();
    say(Array.from({ length: 2_000 }, (_, each) => ({ session: each + 1, text: `word number${each}` })));
    index().wake();
    await expect.poll(() => index().progress(), { timeout: 20_000 }).toEqual({ indexedTo: 2_000, latest: 2_000 });
    expect([await found('number0'), await found('number1999')]).toEqual([['1/1'], ['2000/1']]);
  });

  it('reads a store in memory, too', async () => {
    const store = memoryStore<{ pos: number }>();
    const index = new SqliteSearch({
      store,
      path: inMemory,
      failed: expect.unreachable,
      recovered: expect.unreachable,
      after: () => expect.unreachable(),
    });
    onTestFinished(async () => {
      await index.close();
      await store.close();
    });
    const append: Command<{ seq: number; text: string }, void, { pos: number }> = {
      name: 'append',
      *body(t, { seq, text }) {
        const row = { session_pk: 1, seq, id: `e${seq}`, run_pk: null, step: null, role: 'user' as const, taint: 0, provenance: null };
        const { pk } = yield* insert(t, { ...row, text, body: null, at: seq });
        t.note({ sessionPk: 1, kind: 'entry', refPk: pk, state: null, detail: null, level: 0, at: seq, moves: false }, {});
      },
    };
    await store.write(append, { seq: 1, text: 'a word before' });
    while ((await index.indexNext()).more);
    await store.write(append, { seq: 2, text: 'a word after' });
    while ((await index.indexNext()).more);
    const { found } = await index.search({ text: 'word', readable: (entry) => entry.text });
    expect(found.map((hit) => hit.snippet)).toEqual(['a word after', 'a word before']);
  });

  it('never shows what the store no longer has, nor another entry in its place', async () => {
    const { database, say, catchUp, found } = opened();
    say([
      { session: 1, text: 'word one' },
      { session: 2, text: 'word two' },
    ]);
    await catchUp();
    database.exec('DELETE FROM entries WHERE session_pk = 2');
    expect(await found('word')).toEqual(['1/1']);
    say([{ session: 3, text: 'three' }]); // takes the freed number
    expect([await found('word'), await found('two'), await found('three')]).toEqual([['1/1'], [], []]);
    await catchUp();
    expect([await found('two'), await found('three')]).toEqual([[], ['3/1']]);
  });

  it('forgets a session, and no other', async () => {
    const { say, catchUp, index, found } = opened();
    say(Array.from({ length: 30 }, (_, each) => ({ session: each % 3 === 0 ? 12 : 1, text: 'word s12' })));
    await catchUp();
    expect(await index().forget([12])).toBe(true);
    expect(await index().forget([12, 13])).toBe(true);
    expect((await found('word', { limit: 100 })).filter((one) => one.startsWith('12/'))).toEqual([]);
    expect(await found('word', { limit: 100 })).toHaveLength(20);
  });

  const faults: [string, (file: string) => void][] = [
    ['missing', (file) => rmSync(file)],
    ['empty', (file) => truncateSync(file)],
    ['text', (file) => writeFileSync(file, 'not an index '.repeat(1000))],
    ['cut short', (file) => truncateSync(file, 4096 + 100)],
    ['damaged in its first page', (file) => overwrite(file, 100, 4096)],
    ['damaged in all other pages', (file) => overwrite(file, 4096, statSync(file).size)],
    ['of another version', (file) => edit(file, 'PRAGMA user_version = 77')],
    ['the database of somebody else', (file) => (rmSync(file), edit(file, 'CREATE TABLE notes (text)'))],
  ];

  it.each(faults)('that is %s is made anew', async (_, fault) => {
    const { say, catchUp, ask, found, meanwhile } = opened();
    say(Array.from({ length: 40 }, (_each, index) => ({ session: 1, text: `word ${'ab'.repeat(index)} number${index}` })));
    await catchUp();
    await meanwhile(fault);
    expect(await ask('word')).toMatchObject({ found: [], indexedTo: 0, latest: 40 });
    await catchUp();
    expect(await found('number7')).toEqual(['1/8']);
    expect((await ask('word', { limit: 100 })).found).toHaveLength(40);
  });

  it.each(faults)('that is %s is made anew by the next step of reading, too', async (_, fault) => {
    const { say, catchUp, found, meanwhile } = opened();
    say(Array.from({ length: 40 }, () => ({ session: 1, text: 'word' })));
    await catchUp();
    await meanwhile(fault);
    say([{ session: 2, text: 'word' }]);
    await catchUp();
    expect(await found('word', { limit: 100 })).toHaveLength(41);
  });

  it('that cannot be opened is refused by name, and nothing is removed', async () => {
    const { ask, meanwhile, directory } = opened();
    const file = join(directory, searchName);
    await meanwhile(() => {
      rmSync(file, { force: true });
      mkdirSync(file);
      writeFileSync(join(file, 'precious'), 'x');
    });
    await expect(ask('word')).rejects.toThrow(
      expect.objectContaining({ code: 'STORE_FAILED', message: expect.stringContaining(`search index ${file}`) }),
    );
    expect(readdirSync(file)).toEqual(['precious']);
  });

  it('is private, and holds no text', async () => {
    const before = process.umask(0);
    onTestFinished(() => void process.umask(before));
    const { directory, say, catchUp, meanwhile } = opened();
    say([{ session: 1, text: 'Secret sentence, spelled out.' }]);
    await catchUp();
    const files = readdirSync(directory).filter((name) => name.startsWith(searchName));
    expect(files.map((name) => `${name} ${(statSync(join(directory, name)).mode & 0o777).toString(8)}`).toSorted()).toEqual([
      'search.db 600',
      'search.db-shm 600',
      'search.db-wal 600',
    ]);
    await meanwhile((file) => expect(readFileSync(file).includes('sentence, spelled')).toBe(false));
  });
});

function overwrite(file: string, from: number, to: number): void {
  writeFileSync(file, readFileSync(file).fill(0xa5, from, to));
}

function edit(file: string, sql: string): void {
  const database = new DatabaseSync(file);
  database.exec(sql);
  database.close();
}

it('looks at proposed entries in slices, as pieces of the work of its client', async () => {
  const { say, catchUp, ask } = opened();
  say(Array.from({ length: 300 }, () => ({ session: 1, text: `alpha ${'beta '.repeat(40)}` })));
  await catchUp();
  let pauses = 0;
  const pause = () => Promise.resolve(void pauses++);
  const { found } = await ask('alpha', { pace: { client: {}, signal: new AbortController().signal, pause } });
  expect(found).toHaveLength(20);
  // About 100,000 characters, 16,000 in a slice.
  expect(pauses).toBeGreaterThanOrEqual(6);
});
