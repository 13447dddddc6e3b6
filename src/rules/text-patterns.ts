// The patterns of text rules: a message, or the arguments or the result of a call → where each pattern was found. Text in, plain data out,
// so that another thread can search before a transaction needs the answer.
import type { RE2JS } from 're2js';
import { reasonOf } from '../errors.ts';
import { mapStrings } from './json-strings.ts';

/**
 * `message`: the text itself. `result` of a tool: if it is JSON, the strings in it, decoded, at any depth. `arguments` of a call: the same,
 * and across its strings, because the model that wrote them chose where to cut.
 */
export type TextForm = 'message' | 'arguments' | 'result';

/** A place: which string of the text, and from where to where in it. A message is one string. */
export type Span = [piece: number, start: number, end: number];

/** The pattern was found, but not within one string. */
const whole: Span = [-1, 0, 0];

/** What came of one pattern. Undefined: it was not found. A pattern that failed must not let anything through. */
export type Found = Span[] | { failed: string } | undefined;

/** A string that is JSON itself is decoded, and the strings in it too, this often. */
const mostNested = 4;

export function findPatterns(patterns: readonly (RE2JS | undefined)[], text: string, form: TextForm): Found[] {
  let read: ReadText | undefined;
  return patterns.map((pattern) => {
    try {
      return pattern && findIn(pattern, (read ??= readText(text, form)), form);
    } catch (thrown) {
      return { failed: reasonOf(thrown) };
    }
  });
}

interface ReadText {
  pieces: { text: string; readings: string[] }[];
  /** The text in one piece, in other ways. */
  wholes: string[];
}

function readText(text: string, form: TextForm): ReadText {
  const value = form === 'message' ? undefined : parsed(text);
  if (value === undefined) return { pieces: [{ text, readings: readingsOf(text, form) }], wholes: [] };
  const pieces = piecesOf(value);
  const read = pieces.map((one) => ({ text: one, readings: readingsOf(one, form) }));
  if (form === 'result') return { pieces: read, wholes: [text] };
  const values: string[] = [];
  mapStrings(value, (one, isName) => (isName || values.push(one), one));
  return { pieces: read, wholes: [text, values.join(''), values.join(' '), pieces.join('')].map(plainly) };
}

/** What a reader may take a string for: without invisible characters, with its written-out breaks, and the strings in it if it is JSON with escapes. */
function readingsOf(text: string, form: TextForm): string[] {
  const plain = plainly(text);
  const spaced = plain.replace(/\\[nrt]/g, ' ');
  return [
    ...(plain === text ? [] : [plain]),
    ...(spaced === plain ? [] : [spaced]),
    ...(form === 'message' ? [] : nestedIn(text, mostNested)),
  ];
}

/** Invisible characters, dashes and other forms of letters and digits, such as full-width ones, look the same to a reader. */
const plainly = (text: string) =>
  isAscii(text)
    ? text
    : text
        .normalize('NFKC')
        .replace(/\p{Cf}/gu, '')
        .replace(/[\p{Pd}\u2043\u2212]/gu, '-');

// oxlint-disable-next-line no-control-regex -- all of ASCII
const isAscii = (text: string) => !/[^\u0000-\u007f]/.test(text);

function findIn(pattern: RE2JS, { pieces, wholes }: ReadText, form: TextForm): Span[] | undefined {
  const spans = pieces.flatMap(({ text, readings }, piece) => {
    const found = findAll(pattern, text).map(({ start, end }): Span => [piece, start, end]);
    // A string that still hides a match goes as a whole.
    const rest = found.length === 0 || readings.length === 0 ? readings : readingsOf(without(text, found), form);
    return rest.some((one) => pattern.test(one)) ? [...found, [piece, 0, text.length] satisfies Span] : found;
  });
  if (spans.length > 0) return spans;
  return wholes.some((text) => pattern.test(text)) ? [whole] : undefined;
}

/** One search is linear, but searching again after every match is not. After this many matches the rest of the text is removed. */
const mostMatches = 200;
const mostWork = 20_000_000;

function findAll(pattern: RE2JS, text: string): { start: number; end: number }[] {
  const ranges: { start: number; end: number }[] = [];
  const matcher = pattern.matcher(text);
  const most = Math.max(1, Math.min(mostMatches, Math.floor(mostWork / (text.length + 1))));
  while (matcher.find()) {
    if (ranges.length === most) return [...ranges, { start: matcher.start(), end: text.length }];
    ranges.push({ start: matcher.start(), end: matcher.end() });
  }
  return ranges;
}

const redacted = '[redacted]';

/** The text without these places. All of them are places in the original, so that one rule cannot break up a match of another. */
export function redact(text: string, spans: readonly Span[], form: TextForm = 'message'): string {
  if (spans.some(([piece]) => piece < 0)) return redacted;
  const value = form === 'message' ? undefined : parsed(text);
  if (value === undefined) return without(text, spans);
  const byPiece = Map.groupBy(spans, ([piece]) => piece);
  let piece = 0;
  return JSON.stringify(mapStrings(value, (one) => without(one, byPiece.get(piece++) ?? [])));
}

function without(text: string, spans: readonly Span[]): string {
  let result = '';
  let at = 0;
  for (const [, start, end] of spans.toSorted(([, a], [, b]) => a - b)) {
    if (start === end) continue;
    if (start >= at) result += `${text.slice(at, start)}${redacted}`;
    at = Math.max(at, end);
  }
  return result + text.slice(at);
}

function parsed(text: string, opening = /^\s*[[{]/): unknown {
  if (!opening.test(text)) return undefined;
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/** Without an escape the strings in a JSON text are the same in the text itself. */
function nestedIn(text: string, depth: number): string[] {
  const value = depth > 0 && text.includes('\\') ? parsed(text, /^\s*[[{"]/) : undefined;
  if (value === undefined) return [];
  const inner = piecesOf(value);
  return [...inner, ...inner.flatMap((one) => nestedIn(one, depth - 1))];
}

function piecesOf(value: unknown): string[] {
  const pieces: string[] = [];
  mapStrings(value, (text) => (pieces.push(text), text));
  return pieces;
}
