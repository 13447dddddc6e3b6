// Text → the words it is found by: without case and accents, and letter by letter in scripts that write no spaces.
import { InterlaneError } from '../errors.ts';

/** Only so much of a text is searched; the rest is a file that somebody pasted. */
export const longestText = 100_000;
const longestWord = 100;
const longestSearch = 1000;
const mostTerms = 16;
const snippetBefore = 80;
const snippetLength = 240;

const word =
  /[\p{sc=Han}\p{sc=Hira}\p{sc=Kana}\p{sc=Thai}\p{sc=Laoo}\p{sc=Khmr}\p{sc=Mymr}]|[[\p{L}\p{N}\p{M}]--[\p{sc=Han}\p{sc=Hira}\p{sc=Kana}\p{sc=Thai}\p{sc=Laoo}\p{sc=Khmr}\p{sc=Mymr}]]+/gv;
const ascii = /^[0-9A-Za-z]+$/;
const accents = /[\u0300-\u036f]/g;

interface Word {
  text: string;
  /** Where it begins in the composed text (see `searchable`). */
  at: number;
}

/** A text as it is cut into words: bounded, and composed, so that one letter is one letter. */
const searchable = (text: string) => text.slice(0, longestText).normalize('NFC');

export function wordsOf(text: string): Word[] {
  const words: Word[] = [];
  for (const { 0: run, index: at } of searchable(text).matchAll(word)) {
    if (ascii.test(run)) words.push({ text: run.slice(0, longestWord).toLowerCase(), at });
    else for (const [part] of fold(run).matchAll(word)) words.push({ text: part.slice(0, longestWord), at });
  }
  return words;
}

/** What looks alike is alike: "Ｃａｆé" is "cafe". A sign that stands for several letters becomes them. */
function fold(run: string): string {
  return run.normalize('NFKD').replaceAll(accents, '').normalize('NFC').toLowerCase();
}

/** What was asked for: terms that must all be there, each a row of words. "foo_bar" is one term of two words; nothing is an operator. */
export function parseSearch(text: string): string[][] {
  if (text.length > longestSearch) throw refuse(`is too long; at most ${longestSearch} characters are looked for`);
  const terms = new Map<string, string[]>();
  for (const part of text.split(/\s+/u)) {
    const words = wordsOf(part).map((one) => one.text);
    if (words.length > 0) terms.set(words.join(' '), words);
  }
  if (terms.size === 0) throw refuse('has no word in it; write at least one');
  if (terms.size > mostTerms) throw refuse(`has too many words; at most ${mostTerms} are looked for`);
  return [...terms.values()];
}

const refuse = (why: string) => new InterlaneError('INVALID_REQUEST', `search text ${why}`);

/** How often the terms are in a text and where first; undefined unless every one of them is. */
export function findTerms(text: string, terms: string[][]): { hits: number; at: number } | undefined {
  const words = wordsOf(text);
  let hits = 0;
  let at = Infinity;
  for (const term of terms) {
    const before = hits;
    for (let start = 0; start + term.length <= words.length; start++) {
      if (!term.every((one, offset) => words[start + offset]!.text === one)) continue;
      hits++;
      at = Math.min(at, words[start]!.at);
    }
    if (hits === before) return undefined;
  }
  return { hits, at };
}

/** One line around a place in a text. */
export function cutSnippet(text: string, at: number): string {
  const whole = searchable(text);
  const start = boundary(whole, Math.max(0, at - snippetBefore));
  const end = boundary(whole, Math.min(whole.length, start + snippetLength));
  const line = whole.slice(start, end).replaceAll(/\s+/gu, ' ').trim();
  return `${start > 0 ? '…' : ''}${line}${end < whole.length || text.length > longestText ? '…' : ''}`;
}

/** Never between the two halves of one character. */
function boundary(text: string, index: number): number {
  const code = text.charCodeAt(index);
  return code >= 0xdc00 && code <= 0xdfff ? index - 1 : index;
}
