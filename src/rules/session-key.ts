// Session keys: text ↔ a tagged value, parsed by position. The only parser and the only formatter of keys.
import { InterlaneError } from '../errors.ts';
import { accountId, isIdToken, platformId } from '../protocol/ids.ts';
import { chatWords, grammarWords, ownedShapes, reservedKeys, shapeWords, threadWords } from '../protocol/key-words.ts';
import type { ChatType, SessionKind } from '../protocol/labels.ts';
import type { DmScope } from '../protocol/settings.ts';
import { canonicalId, decodeId, encodeId, markUnlinked } from './key-text.ts';

// The grammar, after `agent:<agentId>:` —
//   <mainKey>                                  the agent's main session (`main` is always understood)
//   direct:<peer>                              dmScope per-peer            (`dm` is read as `direct`)
//   <channel>:direct:<peer>                    dmScope per-channel-peer
//   <channel>:<account>:direct:<peer>          dmScope per-account-channel-peer
//   <channel>:group:<id>  <channel>:channel:<id>
//   cron:<job>  hook:<id>  node-<id>  subagent:<id>  acp:<id>  guest:<name>
//   <anything else>                            a named session
// — each followed by any number of `:thread:<id>` or `:topic:<id>`. With `session.scope: "global"` all direct chats are
// in the default agent's main session, and `global` is read as that one. Ids are written by key-text.ts, so that none of them can spell a part of this grammar.

type OwnedShape = (typeof ownedShapes)[number];

interface Thread {
  marker: 'thread' | 'topic';
  id: string;
}

/** One session's address. `peer`, `id`, `channel` and `name` are key text; `idOf` returns the platform's own id. */
export type SessionKey = { agent: string; threads: Thread[] } & (
  | { shape: 'main'; name: string }
  | { shape: 'direct'; peer: string; channel?: string; account?: string }
  | { shape: 'group' | 'channel'; channel: string; peer: string }
  | { shape: OwnedShape; id: string }
  | { shape: 'named'; name: string }
);

/** The agent of keys that name none, and the name of the main session. */
export interface KeyContext {
  agentId: string;
  mainKey: string;
  /** The default agent, when `session.scope` is `global`: `global` is read as its main session. */
  globalOwner?: string | undefined;
}

export type ParsedKey = { ok: true; key: SessionKey } | { ok: false; code: 'SESSION_KEY_INVALID' | 'SESSION_KEY_RESERVED'; why: string };

const opensShape = (word: string) => shapeWords.has(word) || word.startsWith('node-');
const maskInId = (segment: string) => threadWords.has(segment);
const maskInName = (segment: string, index: number) => grammarWords.has(segment) || (index === 0 && opensShape(segment));

/** A longer text is not a key. Ids inside may be long and are then stored as digests. */
const longestText = 100_000;

export function parseSessionKey(text: string, context: KeyContext): ParsedKey {
  if (text.length > longestText) return invalid(`it is longer than ${longestText} characters`);
  const whole = text.trim().toLowerCase();
  if (whole === '') return invalid('the key is empty');
  if (whole === 'unknown') return reserved(whole);
  if (whole === 'global') {
    return context.globalOwner === undefined
      ? reserved(whole)
      : { ok: true, key: { agent: context.globalOwner, threads: [], shape: 'main', name: context.mainKey } };
  }
  const segments = whole.split(':');
  let agent = context.agentId;
  if (segments[0] === 'agent') {
    agent = segments[1] ?? '';
    if (!isIdToken(agent)) return invalid(`${JSON.stringify(agent.slice(0, 100))} is not an agent id (a-z, 0-9, "_" and "-", at most 64)`);
    segments.splice(0, 2);
    if (segments.join('') === '') return invalid('nothing follows the agent id');
    if (segments[0] === 'agent') return invalid('agent keys do not nest');
  }
  const threads: Thread[] = [];
  for (let at = lastThreadWord(segments); at > 0; at = lastThreadWord(segments)) {
    const id = canonicalId(segments.slice(at + 1).join(':'), maskInId);
    if (id === undefined) return invalid(`the id after "${segments[at]!}:" is blank`);
    threads.push({ marker: segments[at] as Thread['marker'], id });
    segments.length = at;
  }
  threads.reverse();
  return parseBase(segments, { agent, threads }, context);
}

/** For text that must be a key. Throws an error that names the key if `parseSessionKey` refuses it. */
export function requireSessionKey(text: string, context: KeyContext): SessionKey {
  const parsed = parseSessionKey(text, context);
  if (parsed.ok) return parsed.key;
  throw unusable(text, parsed);
}

const unusable = (text: string, { code, why }: Pick<ParsedKey & { ok: false }, 'code' | 'why'>) =>
  // A reserved key is named by its own word, however it was written: a key that a hidden session has gets the same answer.
  new InterlaneError(
    code,
    `session key ${code === 'SESSION_KEY_RESERVED' ? '' : `${JSON.stringify(text.slice(0, 200))} is not usable: `}${why}`,
  );

/** For a store key that cannot be opened because a hidden session has it: the answer to a reserved one. */
export const keyReserved = (key: string) => unusable(key, reserved(key.split(':').slice(2).join(':')));

function parseBase(segments: string[], common: { agent: string; threads: Thread[] }, context: KeyContext): ParsedKey {
  const [first = '', second = '', third = ''] = segments;
  const idFrom = (from: number) => canonicalId(segments.slice(from).join(':'), maskInId);
  const done = (key: SessionKey | undefined, missing: string): ParsedKey =>
    key ? { ok: true, key } : invalid(`"${missing}" must be followed by an id`);

  if (first === 'direct' || first === 'dm') {
    const peer = idFrom(1);
    return done(peer ? { ...common, shape: 'direct', peer } : undefined, `${first}:`);
  }
  if (first.startsWith('node-')) {
    const id = canonicalId(segments.join(':').slice('node-'.length), maskInId);
    return done(id ? { ...common, shape: 'node', id } : undefined, 'node-');
  }
  const owned = ownedShapes.find((shape) => shape === first);
  if (owned) {
    const id = idFrom(1);
    return done(id ? { ...common, shape: owned, id } : undefined, `${first}:`);
  }
  if (chatWords.has(second)) {
    const peer = idFrom(2);
    const channel = typedChannel(first);
    if (!peer) return done(undefined, `${first}:${second}:`);
    if (second === 'group' || second === 'channel') return { ok: true, key: { ...common, shape: second, channel, peer } };
    return { ok: true, key: { ...common, shape: 'direct', channel, peer } };
  }
  if (third === 'direct' || third === 'dm') {
    const peer = idFrom(3);
    const direct = { ...common, shape: 'direct' as const, channel: typedChannel(first), account: accountText(decodeId(second) ?? '') };
    return done(peer ? { ...direct, peer } : undefined, `${first}:${second}:${third}:`);
  }
  const name = canonicalId(segments.join(':'), maskInName);
  if (name === undefined || /^:*$/.test(name)) return invalid('the key is empty');
  if (reservedKeys.has(name)) return reserved(name);
  if (name === 'main' || name === context.mainKey) {
    return { ok: true, key: { ...common, shape: 'main', name: context.mainKey } };
  }
  return { ok: true, key: { ...common, shape: 'named', name } };
}

/** Where the last thread or topic begins: a marker word with something before it and something after it. */
function lastThreadWord(segments: string[]): number {
  for (let at = segments.length - 2; at > 0; at--) if (threadWords.has(segments[at]!)) return at;
  return -1;
}

function invalid(why: string): ParsedKey {
  return { ok: false, code: 'SESSION_KEY_INVALID', why };
}

function reserved(word: string): ParsedKey & { ok: false } {
  return { ok: false, code: 'SESSION_KEY_RESERVED', why: `"${word}" is reserved; use "main" or a full key from sessions_list` };
}

/** The store key: the full text under which a session is stored and displayed. */
export function formatSessionKey(key: SessionKey): string {
  return `agent:${key.agent}:${requestKey(key)}`;
}

/** The store key without `agent:<agentId>:`. Parsed again for the same agent, it means the same session. */
export function requestKey(key: SessionKey): string {
  return [baseText(key), ...threadParts(key)].join(':');
}

const threadParts = (key: SessionKey) => key.threads.map((thread) => `${thread.marker}:${thread.id}`);

function baseText(key: SessionKey): string {
  switch (key.shape) {
    case 'main':
    case 'named':
      return key.name;
    case 'direct':
      return [key.channel, key.account, 'direct', key.peer].filter((part) => part !== undefined).join(':');
    case 'group':
    case 'channel':
      return `${key.channel}:${key.shape}:${key.peer}`;
    case 'node':
      return `node-${key.id}`;
    default:
      return `${key.shape}:${key.id}`;
  }
}

/** Every way this key may be written, in full or without its agent: its own, with `dm`, and `main` for a main session of another name. */
export function keySpellings(key: SessionKey): string[] {
  const spellings = [formatSessionKey(key), requestKey(key)];
  if (key.shape === 'direct') {
    const short = [key.channel, key.account, 'dm', key.peer, ...threadParts(key)].filter((part) => part !== undefined).join(':');
    spellings.push(short, `agent:${key.agent}:${short}`);
  }
  if (key.shape === 'main') {
    const short = requestKey({ ...key, shape: 'main', name: 'main' });
    spellings.push(short, `agent:${key.agent}:${short}`);
  }
  return spellings;
}

/** The session a thread hangs from: the key without its last thread or topic. */
export function parentKey(key: SessionKey): SessionKey | undefined {
  return key.threads.length === 0 ? undefined : { ...key, threads: key.threads.slice(0, -1) };
}

export function sessionKind(key: SessionKey): SessionKind {
  switch (key.shape) {
    case 'main':
      return key.threads.length === 0 ? 'main' : 'other';
    case 'group':
    case 'channel':
      return 'group';
    case 'cron':
    case 'hook':
    case 'node':
      return key.shape;
    default:
      return 'other';
  }
}

/** The kind of chat that a key names; undefined for sessions that are not a chat with people. */
export function keyChatType(key: SessionKey): ChatType | undefined {
  switch (key.shape) {
    case 'main':
    case 'direct':
      return 'direct';
    case 'group':
    case 'channel':
      return key.shape;
    default:
      return undefined;
  }
}

/** The channel a key itself names. */
export function keyChannel(key: SessionKey): string | undefined {
  return 'channel' in key && key.channel !== undefined ? idOf(key.channel) : undefined;
}

/** Whether a key names this chat of a channel. */
export function isChatOf(key: SessionKey, channel: string, to: string): boolean {
  return keyChannel(key) === channel && 'peer' in key && idOf(key.peer) === platformId(to);
}

/** The channel that lists display for a session: a group's own, a direct chat's last one, `internal` for work that no person started. */
export function sessionChannel(key: SessionKey, known: { channel?: string | undefined; lastChannel?: string | undefined }): string {
  const kind = sessionKind(key);
  if (kind === 'cron' || kind === 'hook' || kind === 'node') return 'internal';
  if (key.shape === 'group' || key.shape === 'channel') return known.channel ?? keyChannel(key) ?? 'unknown';
  return known.lastChannel ?? 'unknown';
}

/** The platform's own id behind a part of a key; undefined where the key contains only its digest. */
export function idOf(text: string): string | undefined {
  return decodeId(text);
}

// Building keys ------------------------------------------------------------------------------------------------------

/** Which person each `<channel>:<id>` is, from `session.identityLinks`. */
export interface IdentityLinks {
  people: Map<string, Map<string, string>>;
  names: Set<string>;
}

export function compileIdentityLinks(links: Record<string, string[]>): IdentityLinks {
  const compiled: IdentityLinks = { people: new Map(), names: new Set() };
  for (const [person, entries] of Object.entries(links)) {
    const name = idText(person);
    compiled.names.add(name);
    for (const entry of entries) {
      const colon = entry.indexOf(':');
      const channel = platformId(entry.slice(0, colon));
      const id = platformId(entry.slice(colon + 1));
      const onChannel = compiled.people.get(channel) ?? new Map<string, string>();
      if (!onChannel.has(id)) onChannel.set(id, name); // the first person listed wins
      compiled.people.set(channel, onChannel);
    }
  }
  return compiled;
}

export function mainKey(context: KeyContext): SessionKey {
  return { agent: context.agentId, threads: [], shape: 'main', name: context.mainKey };
}

export interface DirectChat {
  scope: DmScope;
  channel: string;
  account: string;
  peer: string;
  links: IdentityLinks;
}

/** The session of a direct chat. Two peers share one only if the scope or an identity link says so. */
export function directKey(chat: DirectChat, context: KeyContext): SessionKey {
  if (chat.scope === 'main') return mainKey(context);
  const key = { agent: context.agentId, threads: [], shape: 'direct' as const, peer: linkedPeer(chat) };
  if (chat.scope === 'per-peer') return key;
  const channel = channelText(chat.channel);
  if (chat.scope === 'per-channel-peer') return { ...key, channel };
  return { ...key, channel, account: accountText(chat.account) };
}

function linkedPeer(chat: DirectChat): string {
  const person = chat.links.people.get(platformId(chat.channel))?.get(platformId(chat.peer));
  if (person !== undefined) return person;
  const peer = idText(chat.peer);
  return chat.links.names.has(peer) ? markUnlinked(peer) : peer;
}

export function groupKey(group: { kind: 'group' | 'channel'; channel: string; id: string }, agent: string): SessionKey {
  return { agent, threads: [], shape: group.kind, channel: channelText(group.channel), peer: idText(group.id) };
}

/** A session that work opens rather than a chat: a job, a hook, a device, a spawned child, a guest. */
export function ownedKey(shape: OwnedShape, id: string, agent: string): SessionKey {
  return { agent, threads: [], shape, id: idText(id) };
}

export function threadKey(parent: SessionKey, marker: Thread['marker'], id: string): SessionKey {
  return { ...parent, threads: [...parent.threads, { marker, id: idText(id) }] };
}

function idText(raw: string): string {
  const text = encodeId(raw, maskInId);
  if (text === undefined)
    throw new InterlaneError('INVALID_REQUEST', 'session key cannot be made from a blank id; give the id of the chat or sender');
  return text;
}

function channelText(name: string): string {
  return encodeId(platformId(name) || 'unknown', (segment, index) => index === 0 && opensShape(segment))!.replaceAll(':', '%3a');
}

function typedChannel(typed: string): string {
  const name = decodeId(typed);
  return name === undefined ? typed : channelText(name);
}

function accountText(raw: string): string {
  const id = accountId(raw);
  return encodeId(id, (segment) => chatWords.has(segment) || threadWords.has(segment))!;
}
