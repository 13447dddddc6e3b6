// Ids inside a session key: any platform id ↔ text that cannot be mistaken for a part of the key's grammar.
import { createHash } from 'node:crypto';
import { platformId } from '../protocol/ids.ts';

// Ids keep their own spelling, colons included, as long as it is harmless. Three things are written with `%`:
//   %hh / %uhhhh   one character that is invisible, a control, half a surrogate pair or a bracket of the gateway's lines to a model,
//                  or the first letter of a grammar word
//   %sha256-<hex>  an id whose text would be longer than `longest`
//   %peer-<id>     a peer who is not linked, but whose id is the name of a linked person
// A `%` that would read as one of these is itself written `%25`, so `decode(encode(id)) === id` and no two ids share a text.
const longest = 256;
const escape = /%(?:u([0-9a-f]{4})|([0-9a-f]{2}))/g;
const escapable = /%(?=[0-9a-f]{2}|u[0-9a-f]{4}|sha256-|peer-)/g;
const digest = /^%sha256-[0-9a-f]{64}$/;
const unlinkedMark = '%peer-';
// Listed by hand, not by Unicode class: a key must not change with the Unicode version of the runtime. Plain spaces stay.
const unsafe =
  // oxlint-disable-next-line no-control-regex, no-misleading-character-class
  /[\u0000-\u001f\u007f-\u00a0\u00ad\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u27e6\u27e7\u3000\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/g;

/** The text of an id in a key, or undefined for a blank id. Equal ids up to case and outer space give equal text; others never do. */
export function encodeId(raw: string, masked: (segment: string, index: number) => boolean): string | undefined {
  const id = platformId(raw);
  if (id === '') return undefined;
  const text = id
    .split(':')
    .map((segment, index) => (masked(segment, index) ? hex(segment[0]!) + plain(segment.slice(1)) : plain(segment)))
    .join(':');
  return text.length > longest ? `%sha256-${createHash('sha256').update(text).digest('hex')}` : text;
}

/** The id behind a text, or undefined where only its digest is known. */
export function decodeId(text: string): string | undefined {
  const plainText = text.startsWith(unlinkedMark) ? text.slice(unlinkedMark.length) : text;
  if (digest.test(plainText)) return undefined;
  return plainText.replace(escape, (_, wide?: string, narrow?: string) => String.fromCharCode(parseInt(wide ?? narrow!, 16)));
}

/** The same id in its one canonical spelling: what a person typed → what `encodeId` would have written. */
export function canonicalId(typed: string, masked: (segment: string, index: number) => boolean): string | undefined {
  const id = decodeId(typed);
  if (id === undefined) return typed;
  const text = encodeId(id, masked);
  return text !== undefined && typed.startsWith(unlinkedMark) ? unlinkedMark + text : text;
}

/** Marks the text of an unlinked peer whose id is also the name of a linked person. */
export function markUnlinked(text: string): string {
  return unlinkedMark + text;
}

function plain(segment: string): string {
  return segment.replace(escapable, '%25').replace(unsafe, hex);
}

function hex(character: string): string {
  const code = character.charCodeAt(0);
  return code > 0xff ? `%u${code.toString(16).padStart(4, '0')}` : `%${code.toString(16).padStart(2, '0')}`;
}
